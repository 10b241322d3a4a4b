/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_local: <data>/identity.json, and who signed what.
 *
 *   {"format":1,"version":57,"pepper":"..","sum":".."}      one line
 *   {"keys":[..],"blocks":[..]}                              what registry_write makes
 *
 * The sum is an HMAC over version, pepper and the second part, under the key that signs records. A
 * file that was cut, mixed up or edited is refused: blocks may be missing in it, and a revoked key
 * would be good again. Without a cluster key the pepper signs, which lies in the same file; then
 * the sum is a checksum, and no protection from who can write here (nor is it with one from who can
 * read cluster.key_file).
 *
 * A key that signs changes in two ways: a server gets a cluster key, or cluster.key_file another
 * first line. Both are seen by what the sum was made with. Everything is signed again then.
 *
 *   loop: changed ──now, or half a second──> text ──> pool: write, sync, rename ──> loop: calls end
 *
 * Not on the loop, since a sync on a bad disk takes long. At most one write is under way; what came
 * meanwhile is in the next one. A call that waits for the disk counts changes: it ends with the
 * first write that began after its own.
 */
#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/identity/keystore_impl.h"
#include "common/obs/log.h"
#include "common/rpc/rpc_crypto.h"
#include "common/sys/secret_file.h"

#define FILE_MAX       (256 * MIB)
#define FORMAT         1
#define SAVE_AFTER_MS  500
#define AGAIN_AFTER_MS 5000 /* it could not be written */
#define SIGN_INFO      "embertree identity records 1"
#define HEAD_LABEL     "embertree identity head 1"
#define FILE_LABEL     "embertree identity file 1"
#define MAC_HEX        (2 * RPC_MAC_BYTES)
#define LABEL_MAX      256

struct keystore_save {  /* one write; frees itself */
    struct keystore *k; /* NULL: gone meanwhile */
    const struct fs *fs;
    char *path; /* owned */
    struct buf text;
    bool failed;
    struct err err;
};

/* ---- signatures ------------------------------------------------------------------------------ */

static void sign_of(struct str secret, uint8_t ret[RECORD_SIGN_BYTES])
{
    rpc_hkdf(secret, STR_NULL, STR(SIGN_INFO), ret, RECORD_SIGN_BYTES);
}

void keystore_signs(struct keystore *k, struct str cluster_key, const struct str *others, size_t n)
{
    k->own_sign = cluster_key.len == 0;
    k->sign_len = 0;
    if (k->own_sign)
        return; /* keystore_pepper makes it */
    sign_of(cluster_key, k->sign[k->sign_len++]);
    for (size_t i = 0; i < n && k->sign_len < KEYSTORE_SIGNS_MAX; i++)
        sign_of(others[i], k->sign[k->sign_len++]);
}

void keystore_pepper(struct keystore *k, const uint8_t pepper[KEY_PEPPER_BYTES])
{
    memcpy(k->head.pepper, pepper, KEY_PEPPER_BYTES);
    registry_set_pepper(k->o.registry, pepper);
    if (!k->own_sign)
        return;
    sign_of(str_n(pepper, KEY_PEPPER_BYTES), k->sign[0]);
    k->sign_len = 1;
}

int keystore_signed_by(const struct keystore *k, struct str json)
{
    for (size_t i = 0; i < k->sign_len; i++)
        if (record_sig_ok(json, k->sign[i]))
            return (int)i;
    return -1;
}

/* The HMAC, in hex, of a label, the head and what follows it. */
static void seal(const uint8_t sign[RECORD_SIGN_BYTES], const char *label,
                 const struct keystore_head *h, struct str rest, char ret[MAC_HEX + 1])
{
    char pepper[2 * KEY_PEPPER_BYTES + 1], inner[MAC_HEX + 1], text[LABEL_MAX];
    struct str key = str_n(sign, RECORD_SIGN_BYTES);
    uint8_t mac[RPC_MAC_BYTES];
    struct buf b;

    hex_put_c(h->pepper, KEY_PEPPER_BYTES, pepper);
    rpc_hmac(key, rest, mac);
    hex_put_c(mac, sizeof(mac), inner);
    buf_init(&b, sizeof(text));
    (void)buf_addf(&b, "%s|%" PRIu64 "|%s|%s", label, h->version, pepper, inner);
    CHECK(buf_ok(&b));
    rpc_hmac(key, buf_str(&b), mac);
    hex_put_c(mac, sizeof(mac), ret);
    buf_deinit(&b);
}

static void head_put(struct json *j, const struct keystore_head *h, const char *name,
                     const char *mac)
{
    char pepper[2 * KEY_PEPPER_BYTES + 1];

    hex_put_c(h->pepper, KEY_PEPPER_BYTES, pepper);
    json_put_u64(j, "version", h->version);
    json_put_cstr(j, "pepper", pepper);
    json_put_cstr(j, name, mac);
}

void keystore_head_write(const struct keystore *k, uint64_t version, struct buf *out)
{
    struct keystore_head h = k->head;
    char mac[MAC_HEX + 1];
    struct json j;

    h.version = version;
    seal(k->sign[0], HEAD_LABEL, &h, STR_NULL, mac);
    json_init(&j, out);
    json_obj(&j);
    head_put(&j, &h, "sig", mac);
    json_obj_end(&j);
}

/* Members of a head; *ret_mac is a slice of the doc. */
static int head_take(const struct json_val *v, const char *name, struct keystore_head *ret,
                     struct str *ret_mac, struct err *e)
{
    struct str pepper = STR_NULL;
    int64_t version = 0;
    int code = json_take_i64(json_get(v, "version", NULL), "version", &version, e);

    if (!code)
        code = json_take_str(json_get(v, "pepper", NULL), "pepper", &pepper, e);
    if (!code)
        code = json_take_str(json_get(v, name, NULL), name, ret_mac, e);
    if (code)
        return code;
    if (version < 1 || pepper.len != 2 * (size_t)KEY_PEPPER_BYTES || ret_mac->len != MAC_HEX ||
        !hex_read(pepper.ptr, KEY_PEPPER_BYTES, ret->pepper))
        return err_set(e, ERR_INPUT, "it lacks version, pepper or %s", name);
    ret->version = (uint64_t)version;
    ret->known = true;
    return 0;
}

/* Which key sealed it: an index of k->sign, sign_len for the pepper's own; -1: none. */
static int sealed_by(const struct keystore *k, const char *label, const struct keystore_head *h,
                     struct str rest, struct str mac, uint8_t ret_sign[RECORD_SIGN_BYTES])
{
    char want[MAC_HEX + 1];

    for (size_t i = 0; i <= k->sign_len; i++) {
        if (i < k->sign_len && !k->own_sign)
            memcpy(ret_sign, k->sign[i], RECORD_SIGN_BYTES);
        else
            sign_of(str_n(h->pepper, KEY_PEPPER_BYTES), ret_sign);
        seal(ret_sign, label, h, rest, want);
        if (secret_eq(str_n(want, MAC_HEX), mac))
            return (int)i;
    }
    return -1;
}

int keystore_head_read(const struct keystore *k, struct str json, struct keystore_head *ret)
{
    uint8_t sign[RECORD_SIGN_BYTES];
    struct str mac = STR_NULL;
    struct json_doc *doc;
    struct err e;
    int by = -1;

    if (json_parse(json, &doc, &e))
        return -1;
    if (!head_take(json_root(doc), "sig", ret, &mac, &e))
        by = sealed_by(k, HEAD_LABEL, ret, STR_NULL, mac, sign);
    json_doc_free(doc);
    rpc_wipe(sign, sizeof(sign));
    /* A pepper that signs for itself says nothing where a cluster key is wanted. */
    if (k->own_sign)
        return by < 0 ? -1 : 0;
    return by >= 0 && (size_t)by < k->sign_len ? by : -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int load_text(struct keystore *k, struct str head, struct str rest, struct err *e)
{
    struct keystore_head h = { 0 };
    uint8_t sign[RECORD_SIGN_BYTES];
    struct str mac = STR_NULL;
    struct json_doc *doc;
    int64_t format = 0;
    int by = -1, code = json_parse(head, &doc, e);

    if (code)
        return code;
    code = json_take_i64(json_get(json_root(doc), "format", NULL), "format", &format, e);
    if (!code && format != FORMAT)
        code = err_set(e, ERR_INPUT, "its format is %" PRId64 ", and this version reads %d", format,
                       FORMAT);
    if (!code)
        code = head_take(json_root(doc), "sum", &h, &mac, e);
    if (!code) {
        by = sealed_by(k, FILE_LABEL, &h, rest, mac, sign);
        if (by < 0)
            code = err_set(e, ERR_CORRUPT,
                           "its sum is wrong: it is torn, was edited, or belongs "
                           "to another cluster.key_file");
    }
    json_doc_free(doc);
    if (!code)
        code = registry_read(k->o.registry, rest, sign, e);
    rpc_wipe(sign, sizeof(sign));
    if (code)
        return code;
    k->head = h;
    keystore_pepper(k, h.pepper);
    if (by > 0)
        (void)keystore_changed(k, false); /* signed again, by the first key */
    return 0;
}

int keystore_load(struct keystore *k, struct err *e)
{
    const struct fs *fs = k->o.env->fs;
    struct str rest, head = STR_NULL;
    bool more = true;
    struct buf in;
    int code;

    if (secret_file_check(k->path, e))
        return e->code;
    buf_init(&in, FILE_MAX);
    code = fs->read_file(fs, k->path, &in, e);
    if (code) {
        buf_deinit(&in);
        return code;
    }
    rest = buf_str(&in);
    (void)str_next(&rest, '\n', &more, &head);
    code = load_text(k, head, rest, e);
    buf_deinit(&in);
    if (!code)
        return 0;
    e->code = code = ERR_CORRUPT;
    (void)err_wrap(e, "%s", k->path);
    struct err why = *e;
    return err_set(e, code,
                   "%.300s. It says which keys are revoked, so it is not passed over: put back the "
                   "file%s",
                   why.text,
                   k->o.coord ? ", or remove it while the coordination service answers, which has "
                                "all of it"
                              : ", or remove it, which makes all keys void");
}

/* ---- writing --------------------------------------------------------------------------------- */

static void save_text(const struct keystore *k, struct buf *out)
{
    char mac[MAC_HEX + 1];
    struct json j;
    struct buf rest;

    buf_init(&rest, FILE_MAX);
    registry_write(k->o.registry, k->sign[0], &rest);
    seal(k->sign[0], FILE_LABEL, &k->head, buf_str(&rest), mac);
    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "format", FORMAT);
    head_put(&j, &k->head, "sum", mac);
    json_obj_end(&j);
    (void)buf_add_c(out, '\n');
    (void)buf_add_str(out, buf_str(&rest));
    if (!buf_ok(&rest))
        out->failed = true;
    buf_deinit(&rest);
}

/* Calls that waited for this write. */
static void save_tell(struct keystore *k, const struct err *e)
{
    list_for (n, &k->ops) {
        struct op *op = container_of(n, struct op, node);

        if (op->state != OP_SAVING || op->wants > k->tried)
            continue;
        if (op->kind == OP_BLOCK && k->o.coord) { /* the service may still take it */
            op->saved = !e;
            if (e)
                op->disk = *e;
            keystore_store(op);
        } else {
            keystore_op_end(op, e, false);
        }
    }
}

static void save_again(struct keystore *k, bool failed)
{
    bool waits = false;

    if (k->changes == k->saved)
        return;
    list_for (n, &k->ops)
        waits |= container_of(n, struct op, node)->state == OP_SAVING;
    k->due = true;
    loop_timer_start(k->save_timer, waits ? 0 : failed ? AGAIN_AFTER_MS : SAVE_AFTER_MS, 0);
}

static void save_work(void *cookie)
{
    struct keystore_save *s = cookie;

    s->failed = s->fs->write_file(s->fs, s->path, buf_str(&s->text), &s->err) != 0;
}

static void save_done(void *cookie)
{
    struct keystore_save *s = cookie;
    struct keystore *k = s->k;

    if (k) {
        k->saving = NULL;
        if (s->failed)
            log_error("the file of keys cannot be written", KV_CSTR("file", s->path),
                      KV_ERR(&s->err));
        else
            k->saved = k->tried;
        save_tell(k, s->failed ? &s->err : NULL);
        save_again(k, s->failed);
    }
    rpc_wipe(s->text.ptr, s->text.len);
    buf_deinit(&s->text);
    xfree(s->path);
    xfree(s);
}

void keystore_on_save(void *cookie)
{
    struct keystore *k = cookie;
    struct keystore_save *s;

    k->due = false;
    if (k->saving || k->changes == k->saved || !k->head.known)
        return;
    s = XNEW(struct keystore_save);
    *s = (struct keystore_save){ .k = k, .fs = k->o.env->fs, .path = xstrdup(k->path) };
    buf_init(&s->text, FILE_MAX);
    save_text(k, &s->text);
    k->saving = s;
    k->tried = k->changes;
    if (!buf_ok(&s->text)) {
        s->failed = true;
        (void)err_set(&s->err, ERR_LIMIT, "keys and blocks take over %d MiB",
                      (int)(FILE_MAX / MIB));
        save_done(s);
    } else if (!k->o.pool || !pool_submit(k->o.pool, k->o.loop, save_work, save_done, s)) {
        save_work(
            s); /* no pool, or all its threads are busy: a revocation does not wait for them */
        save_done(s);
    }
}

uint64_t keystore_changed(struct keystore *k, bool now)
{
    k->changes++;
    if (!k->saving && (now || !k->due)) { /* not put off by what comes: it might never end */
        k->due = true;
        loop_timer_start(k->save_timer, now ? 0 : SAVE_AFTER_MS, 0);
    }
    return k->changes;
}

void keystore_local_stop(struct keystore *k)
{
    if (k->saving)
        k->saving->k = NULL;
    loop_timer_free(k->save_timer);
}
