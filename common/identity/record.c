/* SPDX-License-Identifier: Apache-2.0
 *
 * record: keys and blocks as JSON, and the signature over them.
 *
 * A signature is an HMAC over the record's own JSON without "sig", as this file writes it, so that
 * blanks and the order of fields do not matter. The first line of the signed text says whether it
 * is a key or a block: the one cannot be passed off as the other.
 *
 *   text ──json_parse──> tree ──twice──> arena of the exact size ──record_key_write──> text
 *
 * A key is read twice: into a large arena, to learn its size, and into one of that size. There may
 * be 100,000 of them in a process, and most take 500 bytes.
 *
 * Fields of a key that are not known are refused: a later version may have added a field which
 * narrows the key. Those of a block are skipped: a block that is refused would let a key through.
 *
 * Invariant: what is read, written with a signature, has at most KEY_RECORD_BYTES_MAX bytes, and
 * reads back to the same. Thread: any; but regexes and the count of references are the loop's.
 */
#include "common/identity/record.h"

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/identity/record_net.h"
#include "common/rpc/rpc_crypto.h"

#define SCRATCH_MAX  (256 * KIB)
#define SIG_HEX      (2 * RPC_MAC_BYTES)
#define SIG_ROOM     (sizeof(",\"sig\":\"\"") - 1 + SIG_HEX)
#define KEY_SIGNED   "embertree key record 1\n"
#define BLOCK_SIGNED "embertree block record 1\n"
static_assert(RECORD_SIGN_BYTES == RPC_MAC_BYTES, "a key for HMACs is as long as its result");

/* ---- reading --------------------------------------------------------------------------------- */

static const char *const key_fields[] = { "id",      "hash",    "name",  "owner",
                                          "grants",  "from",    "until", "replaces",
                                          "made_by", "made_at", "nets",  "sig" };

static int check_names(const struct json_val *v, struct err *e)
{
    const struct json_val *val;
    struct str name;
    void *pos = NULL;

    while (json_each(v, &pos, &name, &val)) {
        bool found = false;

        for (size_t i = 0; i < ARRAY_LEN(key_fields); i++)
            found |= str_eqc(name, key_fields[i]);
        if (!found)
            return err_set(e, ERR_INPUT,
                           "\"%.*s\" is not a field of a key; a later version may have written it",
                           STR_ARG(str_sub(name, 0, 40)));
    }
    return 0;
}

/* A text that people wrote. It comes into logs and lists, so it has no control characters. */
static int take_text(const struct json_val *v, const char *name, struct arena *a, struct str *ret,
                     struct err *e)
{
    struct str s = STR("");

    if (json_take_str(json_get(v, name, NULL), name, &s, e))
        return e->code;
    if (s.len > RECORD_NAME_MAX)
        return err_set(e, ERR_INPUT, "%s: %zu bytes, at most %d are allowed", name, s.len,
                       RECORD_NAME_MAX);
    for (size_t i = 0; i < s.len; i++)
        if ((uint8_t)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
            return err_set(e, ERR_INPUT, "%s: a control character at byte %zu", name, i + 1);
    *ret = arena_strdup(a, s);
    return ret->ptr ? 0 : err_set(e, ERR_LIMIT, "the record takes too much memory");
}

static int take_id(const struct json_val *v, const char *name, bool may_lack, struct arena *a,
                   struct str *ret, struct err *e)
{
    if (take_text(v, name, a, ret, e))
        return e->code;
    if (key_id_ok(*ret) || (may_lack && !ret->len))
        return 0;
    return err_set(e, ERR_INPUT, "%s: want the id of a key, %d letters and digits", name,
                   KEY_ID_LEN);
}

static int take_ms(const struct json_val *v, const char *name, int64_t *ret, struct err *e)
{
    if (json_take_i64(json_get(v, name, NULL), name, ret, e))
        return e->code;
    if (*ret < 0)
        return err_set(e, ERR_INPUT, "%s: want milliseconds since 1970", name);
    return 0;
}

static int take_hash(const struct json_val *v, uint8_t ret[KEY_HASH_BYTES], struct err *e)
{
    struct str hex = STR_NULL;

    if (json_take_str(json_get(v, "hash", NULL), "hash", &hex, e))
        return e->code;
    if (hex.len != 2 * (size_t)KEY_HASH_BYTES || !hex_read(hex.ptr, KEY_HASH_BYTES, ret))
        return err_set(e, ERR_INPUT, "hash: want %d hexadecimal digits", 2 * KEY_HASH_BYTES);
    return 0;
}

static int take_nets(const struct json_val *list, struct key_record *r, struct err *e)
{
    size_t n = json_len(list);

    if (list && !json_is_arr(list))
        return err_set(e, ERR_INPUT, "nets: want a list of addresses");
    if (n > RECORD_NETS_MAX)
        return err_set(e, ERR_INPUT, "nets: there are %zu, at most %d are allowed", n,
                       RECORD_NETS_MAX);
    r->nets = ARENA_ARRAY(r->arena, struct net_range, n);
    if (!r->nets)
        return err_set(e, ERR_LIMIT, "the record takes too much memory");
    for (size_t i = 0; i < n; i++) {
        struct str text = STR_NULL;

        if (json_take_str(json_at(list, i), "nets", &text, e))
            return e->code;
        if (net_range_parse(text, &r->nets[i], e))
            return err_wrap(e, "nets[%zu]", i);
    }
    r->nets_len = n;
    return 0;
}

static int take_all(const struct json_val *v, struct key_record *r, struct err *e)
{
    struct arena *a = r->arena;

    if (take_id(v, "id", false, a, &r->id, e) || take_hash(v, r->hash, e) ||
        take_text(v, "name", a, &r->name, e) || take_text(v, "owner", a, &r->owner, e) ||
        take_ms(v, "from", &r->from_ms, e) || take_ms(v, "until", &r->until_ms, e) ||
        take_id(v, "replaces", true, a, &r->replaces, e) ||
        take_text(v, "made_by", a, &r->made_by, e) || take_ms(v, "made_at", &r->made_ms, e) ||
        take_nets(json_get(v, "nets", NULL), r, e))
        return e->code;
    if (r->until_ms && r->until_ms < r->from_ms)
        return err_set(e, ERR_INPUT, "until: the key would end before it begins");
    return grants_read(json_get(v, "grants", NULL), a, &r->grants, e);
}

/* A record in an arena that hands out `limit` bytes; NULL: *e is set. */
static struct key_record *build(const struct json_val *v, size_t limit, struct err *e)
{
    struct key_record *r = XNEW(struct key_record);

    r->refs = 1;
    r->arena = arena_new(limit);
    if (!take_all(v, r, e))
        return r;
    record_key_unref(r);
    return NULL;
}

static bool fits(const struct key_record *r)
{
    struct buf b;

    buf_init(&b, KEY_RECORD_BYTES_MAX - SIG_ROOM);
    record_key_write(r, NULL, &b);
    bool ok = buf_ok(&b);
    buf_deinit(&b);
    return ok;
}

static int read_tree(const struct json_val *v, struct key_record **ret, struct err *e)
{
    struct key_record *r;

    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "want an object");
    if (check_names(v, e))
        return e->code;
    r = build(v, SCRATCH_MAX, e);
    if (!r)
        return e->code;
    size_t bytes = arena_used(r->arena);
    bool ok = fits(r);
    record_key_unref(r);
    if (!ok)
        return err_set(e, ERR_LIMIT, "the record takes more than %d bytes; make two keys of it",
                       KEY_RECORD_BYTES_MAX);
    r = build(v, bytes, e);
    if (!r)
        return e->code;
    *ret = r;
    return 0;
}

static int parse(struct str json, const char *what, struct json_doc **ret, struct err *e)
{
    if (json.len > KEY_RECORD_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s of %zu bytes, at most %d are allowed", what, json.len,
                       KEY_RECORD_BYTES_MAX);
    return json_parse(json, ret, e) ? err_wrap(e, "%s", what) : 0;
}

int record_key_read(struct str json, struct key_record **ret, struct err *e)
{
    struct json_doc *doc;

    if (parse(json, "the record of a key", &doc, e))
        return e->code;
    int code = read_tree(json_root(doc), ret, e);
    json_doc_free(doc);
    return code;
}

struct key_record *record_key_ref(struct key_record *r)
{
    CHECK(r->refs > 0 && r->refs < UINT32_MAX);
    r->refs++;
    return r;
}

void record_key_unref(struct key_record *r)
{
    if (!r)
        return;
    CHECK(r->refs > 0);
    if (--r->refs)
        return;
    grants_deinit(&r->grants);
    arena_free(r->arena);
    xfree(r);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Ends the object that begins at `from`, with the signature of its text so far. */
static void finish(struct json *j, size_t from, const char *label, const uint8_t *sign)
{
    struct rpc_mac *m;
    char hex[SIG_HEX + 1];
    uint8_t mac[RPC_MAC_BYTES];

    if (sign && buf_ok(j->out)) {
        struct str text = str_sub(buf_str(j->out), from, j->out->len);
        const struct str parts[] = { str_c(label), text, STR("}") };

        m = rpc_mac_new(str_n(sign, RECORD_SIGN_BYTES));
        rpc_mac(m, parts, ARRAY_LEN(parts), mac);
        rpc_mac_free(m);
        hex_put_c(mac, sizeof(mac), hex);
        json_put_cstr(j, "sig", hex);
    }
    json_obj_end(j);
}

static void put_fields(const struct key_record *r, struct json *j)
{
    json_put_str(j, "name", r->name);
    json_put_str(j, "owner", r->owner);
    json_key(j, "grants");
    grants_write(&r->grants, j);
    json_put_i64(j, "from", r->from_ms);
    json_put_i64(j, "until", r->until_ms);
    json_put_str(j, "replaces", r->replaces);
    json_put_str(j, "made_by", r->made_by);
    json_put_i64(j, "made_at", r->made_ms);
    json_key(j, "nets");
    json_arr(j);
    for (size_t i = 0; i < r->nets_len; i++) {
        char text[NET_RANGE_TEXT];

        net_range_format(&r->nets[i], text);
        json_cstr(j, text);
    }
    json_arr_end(j);
}

void record_key_write(const struct key_record *r, const uint8_t sign[RECORD_SIGN_BYTES],
                      struct buf *out)
{
    char hash[2 * KEY_HASH_BYTES + 1];
    size_t from = out->len;
    struct json j;

    hex_put_c(r->hash, KEY_HASH_BYTES, hash);
    json_init(&j, out);
    json_obj(&j);
    json_put_str(&j, "id", r->id);
    json_put_cstr(&j, "hash", hash);
    put_fields(r, &j);
    finish(&j, from, KEY_SIGNED, sign);
}

void record_key_show(const struct key_record *r, struct json *j)
{
    json_put_str(j, "id", r->id);
    put_fields(r, j);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int take_block(const struct json_val *v, struct arena *a, struct block_record *ret,
                      struct err *e)
{
    struct block_record b = { 0 };

    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "want an object");
    if (take_id(v, "id", false, a, &b.id, e) || take_ms(v, "at", &b.at_ms, e) ||
        take_text(v, "why", a, &b.why, e))
        return e->code;
    *ret = b;
    return 0;
}

int record_block_read(struct str json, struct arena *a, struct block_record *ret, struct err *e)
{
    struct json_doc *doc;

    if (parse(json, "the block of a key", &doc, e))
        return e->code;
    int code = take_block(json_root(doc), a, ret, e);
    json_doc_free(doc);
    return code;
}

void record_block_write(const struct block_record *b, const uint8_t sign[RECORD_SIGN_BYTES],
                        struct buf *out)
{
    size_t from = out->len;
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_str(&j, "id", b->id);
    json_put_i64(&j, "at", b->at_ms);
    json_put_str(&j, "why", b->why);
    finish(&j, from, BLOCK_SIGNED, sign);
}

/* ---- signatures ------------------------------------------------------------------------------ */

/* The text that such a key or block is signed to; false: it cannot be read. */
static bool write_again(const struct json_val *v, const uint8_t sign[RECORD_SIGN_BYTES],
                        struct buf *out)
{
    struct key_record *r;
    struct block_record b;
    struct err e;

    if (json_get(v, "hash", NULL)) {
        r = check_names(v, &e) ? NULL : build(v, SCRATCH_MAX, &e);
        if (!r)
            return false;
        record_key_write(r, sign, out);
        record_key_unref(r);
        return buf_ok(out);
    }
    struct arena *a = arena_new(SCRATCH_MAX);
    bool ok = !take_block(v, a, &b, &e);
    if (ok)
        record_block_write(&b, sign, out);
    arena_free(a);
    return ok && buf_ok(out);
}

bool record_sig_ok(struct str json, const uint8_t sign[RECORD_SIGN_BYTES])
{
    struct str sig = STR_NULL;
    struct json_doc *doc;
    struct err e;
    struct buf b;
    bool ok = false;

    if (parse(json, "the record", &doc, &e))
        return false;
    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    if (!json_take_str(json_get(json_root(doc), "sig", NULL), "sig", &sig, &e) &&
        sig.len == SIG_HEX && write_again(json_root(doc), sign, &b)) {
        size_t end = b.len - 2; /* "} behind the signature */

        ok = secret_eq(str_sub(buf_str(&b), end - SIG_HEX, end), sig);
    }
    buf_deinit(&b);
    json_doc_free(doc);
    return ok;
}
