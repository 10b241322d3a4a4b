/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_keys: reading the file of cluster keys.
 *
 * A change is looked for, not watched: files that are mounted into containers change by a rename
 * of a folder above them, which watchers miss and stat sees. The file is read whole and taken or
 * refused whole: half of a new set of keys would cut a node off.
 *
 * A key travels as its mark, eight bytes derived from it, and not as its id: two clusters may both
 * call their key "1", and then it shall be said that the keys differ, not that frames are forged.
 */
#include "common/rpc/rpc_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/base64.h"
#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/sys/secret_file.h"

struct stamp {
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns, size;
    uint64_t inode;
    uint32_t mode;
};

struct rpc_keys {
    char *path; /* owned; NULL: of a text */
    struct stamp stamp;
    uint64_t checked_ms, serial;
    size_t len;
    struct rpc_key keys[RPC_KEYS_MAX];
};

/* ---- text ------------------------------------------------------------------------------------ */

static bool hex_key(struct str s, uint8_t ret[RPC_KEY_BYTES])
{
    return s.len == 2 * (size_t)RPC_KEY_BYTES && hex_read(s.ptr, RPC_KEY_BYTES, ret);
}

static bool base64_key(struct str s, uint8_t ret[RPC_KEY_BYTES])
{
    struct buf b;
    bool ok;

    buf_init(&b, 2 * RPC_KEY_BYTES);
    ok = base64_decode(s, &b) && b.len == RPC_KEY_BYTES;
    if (ok)
        memcpy(ret, b.ptr, RPC_KEY_BYTES);
    if (b.len)
        rpc_wipe(b.ptr, b.len);
    buf_deinit(&b);
    return ok;
}

static bool id_fine(struct str id)
{
    for (size_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.'))
            return false;
    }
    return id.len > 0 && id.len <= RPC_KEY_ID_MAX;
}

static void key_mark(struct rpc_key *k)
{
    rpc_hkdf(str_n(k->secret, RPC_KEY_BYTES), STR_NULL, STR("embertree rpc mark 1"), k->mark,
             RPC_KEY_MARK);
}

/* The text of the line is never in a message: it may be a key. */
static int add_line(struct rpc_keys *k, struct str line, size_t number, struct err *e)
{
    static const uint8_t zero[RPC_KEY_BYTES];
    ptrdiff_t colon = str_find(line, ':');
    struct rpc_key *to = &k->keys[k->len];
    struct str id, secret;

    if (colon < 0)
        return err_set(e, ERR_CONFIG, "line %zu is not \"id: key\"", number);
    if (k->len == RPC_KEYS_MAX)
        return err_set(e, ERR_CONFIG, "line %zu is one key more than %d", number, RPC_KEYS_MAX);
    id = str_trim(str_sub(line, 0, (size_t)colon));
    secret = str_trim(str_sub(line, (size_t)colon + 1, line.len));
    if (!id_fine(id))
        return err_set(e, ERR_CONFIG,
                       "line %zu begins with a bad id: want 1 to %d letters, digits and -_.",
                       number, RPC_KEY_ID_MAX);
    if (!hex_key(secret, to->secret) && !base64_key(secret, to->secret))
        return err_set(e, ERR_CONFIG,
                       "line %zu: the key is not 32 bytes in hex or base64; make one with "
                       "openssl rand -hex 32",
                       number);
    if (memcmp(to->secret, zero, RPC_KEY_BYTES) == 0)
        return err_set(e, ERR_CONFIG,
                       "line %zu: the key is all zero; make one with openssl rand -hex 32", number);
    key_mark(to);
    memset(to->id, 0, sizeof(to->id));
    memcpy(to->id, id.ptr, id.len);
    for (size_t i = 0; i < k->len; i++) {
        if (str_eq(id, str_c(k->keys[i].id)))
            return err_set(e, ERR_CONFIG, "line %zu: the id %s is there twice", number, to->id);
        if (memcmp(k->keys[i].mark, to->mark, RPC_KEY_MARK) == 0)
            return err_set(e, ERR_CONFIG, "line %zu: %s is the same key as %s", number, to->id,
                           k->keys[i].id);
    }
    k->len++;
    return 0;
}

int rpc_keys_parse(struct str text, const char *name, struct rpc_keys **ret, struct err *e)
{
    struct rpc_keys *k = XNEW(struct rpc_keys);
    struct str rest = text, line;
    size_t number = 0;
    bool more = true;

    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t comment = str_find(line, '#');

        number++;
        line = str_trim(comment < 0 ? line : str_sub(line, 0, (size_t)comment));
        if (line.len && add_line(k, line, number, e)) {
            rpc_keys_free(k);
            return err_wrap(e, "%s", name);
        }
    }
    if (k->len == 0) {
        rpc_keys_free(k);
        return err_set(e, ERR_CONFIG,
                       "%s holds no key; want lines of \"id: key\", the key 32 random bytes in hex "
                       "or base64",
                       name);
    }
    *ret = k;
    return 0;
}

void rpc_keys_free(struct rpc_keys *k)
{
    if (!k)
        return;
    xfree(k->path);
    rpc_wipe(k, sizeof(*k));
    xfree(k);
}

/* ---- file ------------------------------------------------------------------------------------ */

static struct stamp stamp_of(const struct stat *st)
{
    return (struct stamp){
        .mtime_s = (int64_t)st->st_mtim.tv_sec,
        .mtime_ns = (int64_t)st->st_mtim.tv_nsec,
        .ctime_s = (int64_t)st->st_ctim.tv_sec,
        .ctime_ns = (int64_t)st->st_ctim.tv_nsec,
        .size = (int64_t)st->st_size,
        .inode = (uint64_t)st->st_ino,
        .mode = (uint32_t)st->st_mode,
    };
}

static bool stamp_eq(const struct stamp *a, const struct stamp *b)
{
    return a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns && a->ctime_s == b->ctime_s &&
           a->ctime_ns == b->ctime_ns && a->size == b->size && a->inode == b->inode &&
           a->mode == b->mode;
}

/* The text of an open file; the caller wipes it. */
static int read_text(int fd, const char *path, struct buf *out, struct err *e)
{
    char *to = buf_room(out, RPC_KEYS_FILE);

    CHECK(to);
    for (;;) {
        ssize_t n = read(fd, to + out->len, RPC_KEYS_FILE - out->len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "cannot read %s", path);
        if (n == 0)
            return 0;
        out->len += (size_t)n;
        if (out->len == RPC_KEYS_FILE)
            return err_set(e, ERR_CONFIG, "%s is larger than a file of keys can be", path);
    }
}

static int load_fd(int fd, const char *path, struct rpc_keys **ret, struct err *e)
{
    struct stat st;
    struct buf text;
    int code;

    /* Mode and text are of the same file, whatever happens to its name meanwhile. */
    if (fstat(fd, &st) < 0)
        return err_errno(e, errno, "cannot look at %s", path);
    if (secret_file_check_stat(path, &st, e))
        return e->code;
    buf_init(&text, RPC_KEYS_FILE);
    code = read_text(fd, path, &text, e);
    if (!code)
        code = rpc_keys_parse(buf_str(&text), path, ret, e);
    rpc_wipe(text.ptr, text.len);
    buf_deinit(&text);
    if (!code) {
        (*ret)->path = xstrdup(path);
        (*ret)->stamp = stamp_of(&st);
    }
    return code;
}

int rpc_keys_load(const char *path, struct rpc_keys **ret, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), code;

    if (fd < 0)
        return err_errno(e, errno, "cannot open the file of cluster keys, %s", path);
    code = load_fd(fd, path, ret, e);
    (void)close(fd);
    return code;
}

void rpc_keys_replace(struct rpc_keys *k, struct rpc_keys *with)
{
    CHECK(with->len > 0);
    memcpy(k->keys, with->keys, sizeof(k->keys));
    k->len = with->len;
    k->stamp = with->stamp;
    k->serial++;
    rpc_keys_free(with);
}

int rpc_keys_check(struct rpc_keys *k, uint64_t now_ms, bool *ret_changed, struct err *e)
{
    struct rpc_keys *fresh;
    struct stamp now;
    struct stat st;

    *ret_changed = false;
    if (!k->path || now_ms < k->checked_ms + RPC_KEYS_EVERY)
        return 0;
    k->checked_ms = now_ms;
    if (stat(k->path, &st) < 0)
        memset(&st, 0, sizeof(st));
    now = stamp_of(&st);
    if (stamp_eq(&now, &k->stamp))
        return 0;
    k->stamp = now;
    if (rpc_keys_load(k->path, &fresh, e))
        return e->code;
    rpc_keys_replace(k, fresh);
    *ret_changed = true;
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

const struct rpc_key *rpc_keys_first(const struct rpc_keys *k)
{
    return &k->keys[0];
}

const struct rpc_key *rpc_keys_at(const struct rpc_keys *k, size_t i)
{
    return i < k->len ? &k->keys[i] : NULL;
}

const struct rpc_key *rpc_keys_find(const struct rpc_keys *k, const uint8_t mark[RPC_KEY_MARK])
{
    for (size_t i = 0; i < k->len; i++) {
        if (memcmp(k->keys[i].mark, mark, RPC_KEY_MARK) == 0)
            return &k->keys[i];
    }
    return NULL;
}

uint64_t rpc_keys_serial(const struct rpc_keys *k)
{
    return k->serial;
}

void rpc_keys_say(const struct rpc_keys *k, struct buf *to)
{
    for (size_t i = 0; i < k->len; i++) {
        const uint8_t *mark = k->keys[i].mark;

        (void)buf_addf(to, "%s%s (%02x%02x%02x%02x)", i ? ", " : "", k->keys[i].id, mark[0],
                       mark[1], mark[2], mark[3]);
    }
}
