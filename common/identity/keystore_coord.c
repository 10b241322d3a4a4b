/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_coord: keys and blocks in the coordination service, followed by one watch.
 *
 * Keys and blocks are only added: a key ends by its block or its time. So whatever one side lacks
 * the other may write, in any order, and a service that was restored from an older backup, or lost
 * everything, is filled again by those who know more. What a record says can change (its end), so
 * for two records of one id the higher `version` of the head decides; it never goes down:
 *
 *   the service's is ours or higher   its records are taken over ours
 *   lower, or it has no head          ours stay, and are written, then the head with a higher
 *                                     version (`raise`); no key is made meanwhile
 *   no head, and we know nothing      the first start of a cluster: we make the head
 *
 * Of several processes that write at once one wins each transaction, since each compares the head's
 * revision; the others look again. A value that a later version wrote may have members that are
 * unknown here, so it is not written again for looking different.
 *
 * A head with another pepper and a higher version is another beginning of the cluster. We follow it
 * and drop our keys, whose hashes are void. If its version is lower we write ours, but only under
 * a cluster key, which proves that both are of one cluster.
 *
 * Values that are not signed by a key of the cluster are passed over, and logged once for each
 * name, since who can write to the service must not be able to make a key.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/cluster/coord/coord.h"
#include "common/identity/keystore_impl.h"
#include "common/obs/log.h"
#include "common/rpc/rpc_crypto.h"

#define TICK_MS  200
#define AWAY_MS  5000
#define SAID_MAX 1000

static uint64_t mono_ms(const struct keystore *k)
{
    return clock_mono_ms(loop_clock(k->o.loop));
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "head", "key/<id>", "block/<id>". */
static struct str name_of(const struct keystore *k, const struct coord_kv *kv)
{
    struct coord_key root = key_identity(k->o.prefix);

    return str_sub(kv->key, root.len, kv->key.len);
}

/* The id behind "key/" or "block/"; false: the name is something else. */
static bool id_of(struct str name, bool *ret_block, struct str *ret_id)
{
    const struct str key = STR("key/"), block = STR("block/");

    *ret_block = str_starts(name, block);
    if (!*ret_block && !str_starts(name, key))
        return false;
    *ret_id = str_sub(name, *ret_block ? block.len : key.len, name.len);
    return key_id_ok(*ret_id);
}

static void say_bad(struct keystore *k, struct str name, const char *why)
{
    uint64_t h = hash64(name.ptr, name.len, 0);

    vec_for (i, &k->said)
        if (k->said.ptr[i] == h)
            return;
    if (k->said.len < SAID_MAX)
        vec_push(&k->said, h);
    log_warn("a value of the coordination service is passed over",
             KV_STR("name", str_sub(name, 0, 100)), KV_CSTR("why", why));
}

void keystore_owe(struct keystore *k, struct str id, bool block, struct str json)
{
    struct pending p = { .block = block };

    memcpy(p.id, id.ptr, KEY_ID_LEN);
    p.json = str_n(xmemdup(json.ptr, json.len), json.len);
    vec_push(&k->out, p);
}

static void out_clear(struct keystore *k)
{
    vec_for (i, &k->out)
        xfree((void *)(uintptr_t)k->out.ptr[i].json.ptr);
    k->out.len = 0;
    k->sent = 0;
}

static void owe_record(struct keystore *k, const struct key_record *r)
{
    struct buf b;

    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    record_key_write(r, k->sign[0], &b);
    if (buf_ok(&b))
        keystore_owe(k, r->id, false, buf_str(&b));
    buf_deinit(&b);
}

static void owe_block(struct keystore *k, const struct block_record *block)
{
    struct buf b;

    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    record_block_write(block, k->sign[0], &b);
    if (buf_ok(&b))
        keystore_owe(k, block->id, true, buf_str(&b));
    buf_deinit(&b);
}

static const char *take_key(struct keystore *k, struct str id, struct str json, bool again,
                            struct err *e)
{
    struct key_record *r;
    const char *why = NULL;

    if (record_key_read(json, &r, e))
        return e->text;
    if (!str_eq(r->id, id))
        why = "it has another id than its name";
    else if (registry_put(k->o.registry, r, e))
        why = e->text;
    else if (again)
        owe_record(k, r);
    record_key_unref(r);
    return why;
}

static const char *take_block(struct keystore *k, struct str id, struct str json, bool again,
                              struct err *e)
{
    struct arena *a = arena_new(4 * KEY_RECORD_BYTES_MAX);
    struct block_record b;
    const char *why = NULL;

    if (record_block_read(json, a, &b, e)) {
        why = e->text;
    } else if (!str_eq(b.id, id)) {
        why = "it has another id than its name";
    } else {
        registry_block(k->o.registry, &b);
        if (again)
            owe_block(k, &b);
    }
    arena_free(a);
    return why;
}

/* A key or block of the service comes into the registry. What a former key of the cluster signed
 * is written again, signed by the present one; but only at a start, and when cluster.key_file
 * changed: two processes of which each takes the other's key for the old key would never end. */
static void take(struct keystore *k, const struct coord_kv *kv)
{
    struct str name = name_of(k, kv), id;
    const char *why;
    bool block;
    struct err e;

    if (!id_of(name, &block, &id))
        return; /* of a later version */
    int by = keystore_signed_by(k, kv->value);
    if (by < 0)
        why = "it is not signed by a key of this cluster (cluster.key_file)";
    else if (block)
        why = take_block(k, id, kv->value, by > 0 && k->resign, &e);
    else
        why = take_key(k, id, kv->value, by > 0 && k->resign, &e);
    if (why)
        say_bad(k, name, why);
}

/* ---- a whole list ---------------------------------------------------------------------------- */

struct list_of { /* keys of the service, sorted */
    struct keystore *k;
    const struct coord_kv *kvs;
    size_t n;
    bool older; /* than what this process knows */
};

static const struct coord_kv *find(const struct list_of *l, struct str key)
{
    size_t low = 0, high = l->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_cmp(l->kvs[mid].key, key);

        if (c == 0)
            return &l->kvs[mid];
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static void owe_missing(void *cookie, struct key_record *r, const struct block_record *b)
{
    const struct list_of *l = cookie;
    struct keystore *k = l->k;
    struct coord_key key;

    if (b) {
        key = key_identity_of(k->o.prefix, true, b->id);
        const struct coord_kv *kv = find(l, key_str(&key));
        if (!kv || keystore_signed_by(k, kv->value) < 0)
            owe_block(k, b);
    }
    if (r && !r->from_file) {
        key = key_identity_of(k->o.prefix, false, r->id);
        const struct coord_kv *kv = find(l, key_str(&key));
        if (!kv || l->older || keystore_signed_by(k, kv->value) < 0)
            owe_record(k, r);
    }
}

static void follow(struct keystore *k, const struct keystore_head *h)
{
    bool other = memcmp(k->head.pepper, h->pepper, KEY_PEPPER_BYTES) != 0;

    if (k->head.known && other) {
        log_warn("the coordination service has other keys than this data folder: it is followed",
                 KV_U64("version", h->version), KV_U64("version_here", k->head.version));
        registry_clear_stored(k->o.registry);
    }
    k->head.version = h->version;
    k->head.known = true;
    if (other || k->sign_len == 0)
        keystore_pepper(k, h->pepper);
}

static void on_head_made(void *cookie, const struct coord_reply *r)
{
    struct keystore *k = cookie;

    k->sending = false;
    k->relist |= !r->err; /* made by this process or another: it is there */
}

static void make_head(struct keystore *k)
{
    struct keystore_head none = k->head;
    struct coord_key key = key_identity_head(k->o.prefix);
    struct coord_compare cmp = { .key = key_str(&key), .create = true };
    uint8_t pepper[KEY_PEPPER_BYTES];
    struct buf b;

    if (k->sending)
        return;
    k->o.env->random(k->o.env, pepper, sizeof(pepper));
    keystore_pepper(k, pepper); /* to write it; it is in force once the service has it */
    buf_init(&b, KIB);
    keystore_head_write(k, 1, &b);
    k->head = none;
    k->sending = true;
    struct coord_change chg = { .key = key_str(&key), .value = buf_str(&b) };
    coord_txn(k->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 },
              on_head_made, k);
    buf_deinit(&b);
    rpc_wipe(pepper, sizeof(pepper));
}

/* False: nothing of this list may be believed. */
static bool judge(struct keystore *k, struct list_of *l)
{
    struct coord_key key = key_identity_head(k->o.prefix);
    const struct coord_kv *kv = find(l, key_str(&key));
    struct keystore_head h = { 0 };

    k->head_rev = 0;
    if (!kv) {
        if (!k->head.known)
            make_head(k);
        l->older = k->raise = true;
        return k->head.known;
    }
    k->head_rev = kv->mod_rev;
    int by = keystore_head_read(k, kv->value, &h);
    if (by < 0) {
        say_bad(k, STR("head"), "it is not signed by a key of this cluster (cluster.key_file)");
        return false;
    }
    bool same = memcmp(h.pepper, k->head.pepper, KEY_PEPPER_BYTES) == 0;
    l->older = k->head.known && k->head.version > h.version && (same || !k->own_sign);
    k->raise = l->older || (by > 0 && k->resign);
    if (!l->older)
        follow(k, &h);
    else if (!same)
        l->n = 0; /* hashes by another pepper */
    return true;
}

static void apply(struct keystore *k, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct list_of l = { .k = k, .kvs = kvs, .n = n };

    k->heard_ms = mono_ms(k);
    k->listed_rev = rev;
    k->raise = false;
    out_clear(k);
    k->listed = judge(k, &l);
    if (!k->listed)
        return;
    for (size_t i = 0; i < l.n; i++) {
        struct str name = name_of(k, &kvs[i]), id;
        bool block;

        if (id_of(name, &block, &id) && (block || !l.older || !registry_find(k->o.registry, id)))
            take(k, &kvs[i]);
    }
    registry_each(k->o.registry, owe_missing, &l);
    k->resign = false;
    if (l.older)
        log_warn("the coordination service holds an older state of the keys: it is written back",
                 KV_U64("values", k->out.len), KV_U64("version", k->head.version));
    (void)keystore_changed(k, false);
}

static void on_listed(void *cookie, const struct coord_reply *r)
{
    struct keystore *k = cookie;

    k->listing = false;
    if (r->err)
        k->relist = true;
    else
        apply(k, r->kvs, r->kvs_len, r->rev);
}

static void relist(struct keystore *k)
{
    struct coord_key root = key_identity(k->o.prefix);

    if (k->listing)
        return;
    k->relist = false;
    k->listing = true;
    coord_list(k->o.coord, key_str(&root), on_listed, k);
}

/* ---- the watch ------------------------------------------------------------------------------- */

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    apply(cookie, kvs, n, rev);
}

/* After a silence it may be another service, whose revisions happen to continue where those of the
 * first ended: then no event tells what it lacks. */
static void heard(struct keystore *k)
{
    if (mono_ms(k) - k->heard_ms > AWAY_MS)
        k->relist = true;
    k->heard_ms = mono_ms(k);
}

static void on_heard(void *cookie)
{
    heard(cookie);
}

static void head_changed(struct keystore *k, const struct coord_kv *kv)
{
    struct keystore_head h;

    if (kv->deleted || !k->listed || keystore_head_read(k, kv->value, &h) < 0 ||
        h.version < k->head.version || memcmp(h.pepper, k->head.pepper, KEY_PEPPER_BYTES) != 0) {
        k->relist = true; /* judge() decides by all of it */
        return;
    }
    k->head.version = h.version;
    k->head_rev = MAX(k->head_rev, kv->mod_rev);
    (void)keystore_changed(k, false);
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct keystore *k = cookie;
    struct str name = name_of(k, kv), id;
    bool block;

    heard(k);
    if (kv->mod_rev <= k->listed_rev)
        return;
    if (str_eqc(name, "head")) {
        head_changed(k, kv);
        return;
    }
    if (!k->listed || !id_of(name, &block, &id))
        return;
    if (kv->deleted)
        k->relist = true; /* it is written again: what ends a key is its block */
    else
        take(k, kv);
    (void)keystore_changed(k, false);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_tick(void *cookie)
{
    struct keystore *k = cookie;

    list_for (n, &k->ops) {
        struct op *op = container_of(n, struct op, node);

        if (op->state == OP_AGAIN)
            keystore_store(op);
    }
    if (k->relist)
        relist(k);
    if (k->sending || k->listing || !k->listed)
        return;
    keystore_settle(k);
}

void keystore_coord_start(struct keystore *k)
{
    struct coord_key root = key_identity(k->o.prefix);
    struct coord_watch_opts w = {
        .prefix = key_str(&root), .all = on_all, .event = on_event, .heard = on_heard, .cookie = k
    };

    k->tick = loop_timer_new(k->o.loop, on_tick, k);
    loop_timer_start(k->tick, TICK_MS, TICK_MS);
    k->watch = coord_watch(k->o.coord, &w);
}

void keystore_coord_stop(struct keystore *k)
{
    if (!k->tick)
        return;
    coord_unwatch(k->o.coord, k->watch);
    coord_cancel(k->o.coord, k);
    list_for (n, &k->ops)
        coord_cancel(k->o.coord, container_of(n, struct op, node));
    loop_timer_free(k->tick);
    out_clear(k);
    vec_free(&k->out);
    vec_free(&k->said);
}
