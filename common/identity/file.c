/* SPDX-License-Identifier: Apache-2.0
 *
 * file: identity.file, and when it is read again.
 *
 * Each entry becomes the JSON of a record, which record_key_read checks as it checks one of the
 * coordination service: there is one set of rules. What is checked here is what a file adds: its
 * keys and their lines, the two kinds of hashes, a date, and that no id comes twice.
 *
 * The file is looked at twice a second by size, time and inode. Kubernetes replaces a secret by
 * turning a link, which gives another inode; an editor that writes into the file gives another time
 * or size. A file that cannot be read, or is invalid, changes nothing: keys that disappear because
 * of a slip would lock out all agents at once. It is said once for each state of the file.
 */
#include "common/identity/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/conf/conf_tree.h"
#include "common/model/attime.h"
#include "common/sys/secret_file.h"

#define MADE_BY    "identity.file"
#define DEPTH_MAX  8
#define ARENA_MAX  (64 * MIB)
#define HASH_HEX   (2 * (size_t)KEY_HASH_BYTES)
#define DATE_BYTES 10 /* 2027-01-31 */
#define YEAR_MS    INT64_C(31536000000)

struct stamp { /* one state of the file */
    int64_t size, sec, nsec;
    uint64_t inode, device;
    bool there;
};
struct identity_file {
    struct env *env;       /* borrowed */
    struct registry *keys; /* borrowed */
    char *path;            /* owned */
    struct stamp seen;
    bool fine; /* the last state could be read */
};

/* ---- an entry -------------------------------------------------------------------------------- */

/* YAML as JSON: texts stay texts, but for true and false. */
static int put_value(const struct conf_node *n, const char *file, size_t depth, struct json *j,
                     struct err *e)
{
    int code = 0;

    if (depth > DEPTH_MAX)
        return conf_node_fail(n, file, e, "too many lists or maps in one another");
    switch (n->kind) {
    case CONF_NODE_NULL:
        json_null(j);
        break;
    case CONF_NODE_SCALAR:
        if (!n->quoted && (str_eqc(n->value, "true") || str_eqc(n->value, "false")))
            json_bool(j, str_eqc(n->value, "true"));
        else
            json_str(j, n->value);
        break;
    case CONF_NODE_MAP:
        json_obj(j);
        for (const struct conf_node *c = n->first; c && !code; c = c->next) {
            json_key_str(j, c->key);
            code = put_value(c, file, depth + 1, j, e);
        }
        json_obj_end(j);
        break;
    case CONF_NODE_LIST:
        json_arr(j);
        for (const struct conf_node *c = n->first; c && !code; c = c->next)
            code = put_value(c, file, depth + 1, j, e);
        json_arr_end(j);
        break;
    }
    return code;
}

static int put_text(const struct conf_node *map, const char *name, const char *file, struct json *j,
                    struct err *e)
{
    struct str text = STR("");
    int code = conf_node_str(conf_node_get(map, name), file, &text, e);

    if (!code)
        json_put_str(j, name, text);
    return code;
}

/* 2027-01-31 (its beginning, in UTC), or milliseconds since 1970. */
static int until_of(const struct conf_node *n, const char *file, int64_t *ret, struct err *e)
{
    struct str text = STR_NULL;
    char digits[DATE_BYTES - 1];
    uint64_t ms;
    int code = conf_node_str(n, file, &text, e);

    *ret = 0;
    if (code || !n)
        return code;
    if (str_u64(text, &ms) && text.len >= 13 && ms <= INT64_MAX) {
        *ret = (int64_t)ms;
        return 0;
    }
    if (text.len == DATE_BYTES && text.ptr[4] == '-' && text.ptr[7] == '-') {
        memcpy(digits, text.ptr, 4);
        memcpy(digits + 4, text.ptr + 5, 2);
        memcpy(digits + 6, text.ptr + 8, 2);
        /* Digits that are no date are taken for seconds, which are in 1970. */
        if (str_u64(str_n(digits, 8), &ms) && !attime_parse(str_n(digits, 8), 0, ret, e) &&
            *ret > YEAR_MS)
            return 0;
    }
    return conf_node_fail(
        n, file, e,
        "until is \"%.*s\"; want a date such as 2027-01-31, or milliseconds since "
        "1970",
        STR_ARG(str_sub(text, 0, 40)));
}

static int put_hash(const struct conf_node *map, const char *file, struct json *j,
                    bool *ret_offline, struct err *e)
{
    const struct conf_node *n = conf_node_get(map, "hash");
    const struct str offline = STR("offline:");
    struct str text = STR("");
    uint8_t bytes[KEY_HASH_BYTES];
    int code = conf_node_str(n, file, &text, e);

    if (code)
        return code;
    *ret_offline = str_starts(text, offline);
    if (*ret_offline)
        text = str_sub(text, offline.len, text.len);
    if (text.len != HASH_HEX || !hex_read(text.ptr, KEY_HASH_BYTES, bytes))
        return conf_node_fail(n ? n : map, file, e,
                              "hash: want \"offline:\" and %zu hex digits, as `embertreectl key "
                              "make --offline` prints them; a key itself must not be in this file",
                              HASH_HEX);
    json_put_str(j, "hash", text);
    return 0;
}

static int put_list(const struct conf_node *map, const char *name, const char *file, struct json *j,
                    struct err *e)
{
    const struct conf_node *n = conf_node_get(map, name);

    json_key(j, name);
    if (n && n->kind != CONF_NODE_NULL)
        return put_value(n, file, 0, j, e);
    json_arr(j);
    json_arr_end(j);
    return 0;
}

static int put_entry(const struct conf_node *map, const char *file, struct buf *out,
                     bool *ret_offline, struct err *e)
{
    static const char *const names[] = { "id",     "hash",  "name", "owner",
                                         "grants", "until", "nets", NULL };
    int64_t until = 0;
    struct json j;
    int code = conf_node_keys(map, file, names, e);

    json_init(&j, out);
    json_obj(&j);
    if (!code)
        code = put_text(map, "id", file, &j, e);
    if (!code)
        code = put_hash(map, file, &j, ret_offline, e);
    if (!code)
        code = put_text(map, "name", file, &j, e);
    if (!code)
        code = put_text(map, "owner", file, &j, e);
    if (!code)
        code = put_list(map, "grants", file, &j, e);
    if (!code)
        code = until_of(conf_node_get(map, "until"), file, &until, e);
    if (code)
        return code;
    json_put_i64(&j, "from", 0);
    json_put_i64(&j, "until", until);
    json_put_cstr(&j, "replaces", "");
    json_put_cstr(&j, "made_by", MADE_BY);
    json_put_i64(&j, "made_at", 0);
    code = put_list(map, "nets", file, &j, e);
    json_obj_end(&j);
    return code;
}

static int entry(const struct conf_node *map, const char *file, struct key_record **ret,
                 struct err *e)
{
    struct key_record *r;
    struct err why;
    bool offline = false;
    struct buf b;

    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    int code = put_entry(map, file, &b, &offline, e);
    if (!code && !buf_ok(&b))
        code = conf_node_fail(map, file, e, "the entry takes over %d bytes", KEY_RECORD_BYTES_MAX);
    if (!code && record_key_read(buf_str(&b), &r, &why))
        code = conf_node_fail(map, file, e, "%.400s", why.text);
    buf_deinit(&b);
    if (code)
        return code;
    if (!r->grants.len) {
        record_key_unref(r);
        return conf_node_fail(map, file, e,
                              "grants: want a list such as [{tenants: [shop], roles: [push]}]");
    }
    *ret = r;
    (*ret)->from_file = true;
    (*ret)->offline_hash = offline;
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void drop(struct key_record **r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        record_key_unref(r[i]);
    xfree(r);
}

static int by_id(const void *a, const void *b)
{
    return str_cmp((*(struct key_record *const *)a)->id, (*(struct key_record *const *)b)->id);
}

static int entries(const struct conf_node *list, const char *file, struct key_record **r,
                   size_t *len, struct err *e)
{
    for (const struct conf_node *n = list->first; n; n = n->next) {
        if (entry(n, file, &r[*len], e))
            return e->code;
        (*len)++;
    }
    if (*len)
        qsort(r, *len, sizeof(struct key_record *), by_id);
    for (size_t i = 1; i < *len; i++)
        if (str_eq(r[i - 1]->id, r[i]->id))
            return err_set(e, ERR_CONFIG, "%s: the id %.*s is there twice", file,
                           STR_ARG(r[i]->id));
    return 0;
}

static int parse(const char *file, struct str text, struct arena *a, struct key_record ***ret,
                 size_t *ret_len, struct err *e)
{
    static const char *const names[] = { "keys", NULL };
    struct conf_node *root;
    const struct conf_node *list;
    struct key_record **r;
    size_t len = 0;

    if (conf_tree_parse(file, text, a, &root, e) || conf_node_keys(root, file, names, e))
        return e->code;
    list = conf_node_get(root, "keys");
    if (list && list->kind == CONF_NODE_NULL)
        list = NULL;
    if (list && conf_node_is(list, file, CONF_NODE_LIST, e))
        return e->code;
    if (list && list->len > IDENTITY_FILE_KEYS_MAX)
        return conf_node_fail(list, file, e, "%zu keys, at most %d", list->len,
                              IDENTITY_FILE_KEYS_MAX);
    r = XNEW_ARRAY(struct key_record *, list ? list->len + 1 : 1);
    if (list && entries(list, file, r, &len, e)) {
        drop(r, len);
        return e->code;
    }
    *ret = r;
    *ret_len = len;
    return 0;
}

int identity_file_parse(const char *file, struct str text, struct key_record ***ret,
                        size_t *ret_len, struct err *e)
{
    struct arena *a = arena_new(ARENA_MAX);
    int code = parse(file, text, a, ret, ret_len, e);

    arena_free(a);
    return code;
}

static struct stamp stamp_of(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return (struct stamp){ 0 };
    return (struct stamp){ .size = st.st_size,
                           .sec = st.st_mtim.tv_sec,
                           .nsec = st.st_mtim.tv_nsec,
                           .inode = st.st_ino,
                           .device = st.st_dev,
                           .there = true };
}

static bool stamp_eq(const struct stamp *a, const struct stamp *b)
{
    return a->size == b->size && a->sec == b->sec && a->nsec == b->nsec && a->inode == b->inode &&
           a->device == b->device && a->there == b->there;
}

static int load(struct identity_file *f, struct err *e)
{
    struct key_record **r = NULL;
    size_t n = 0;
    struct buf in;
    int code;

    f->seen = stamp_of(f->path); /* before it is read: what changes meanwhile is read again */
    if (secret_file_check(f->path, e))
        return e->code;
    buf_init(&in, IDENTITY_FILE_BYTES_MAX);
    code = f->env->fs->read_file(f->env->fs, f->path, &in, e);
    if (!code)
        code = identity_file_parse(f->path, buf_str(&in), &r, &n, e);
    buf_deinit(&in);
    if (code)
        return e->code = ERR_CONFIG;
    registry_set_file(f->keys, r, n);
    drop(r, n);
    return 0;
}

int identity_file_new(struct env *env, const char *path, struct registry *g,
                      struct identity_file **ret, struct err *e)
{
    struct identity_file *f = XNEW(struct identity_file);

    f->env = env;
    f->keys = g;
    f->path = xstrdup(path);
    f->fine = true;
    if (load(f, e)) {
        identity_file_free(f);
        return e->code;
    }
    *ret = f;
    return 0;
}

void identity_file_free(struct identity_file *f)
{
    if (!f)
        return;
    xfree(f->path);
    xfree(f);
}

bool identity_file_tick(struct identity_file *f, struct err *e)
{
    struct stamp now;

    err_clear(e);
    if (!f)
        return true;
    now = stamp_of(f->path);
    if (stamp_eq(&now, &f->seen))
        return f->fine;
    f->fine = load(f, e) == 0;
    if (f->fine)
        err_clear(e);
    return f->fine;
}
