/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore: keys are added, replaced and revoked here; keystore_local.c keeps the file,
 * keystore_coord.c speaks to the coordination service.
 *
 *                      no service                    with one
 *   add, replace       registry, file, answer        service, registry, answer; file soon
 *   block              registry, file, answer        registry, file, service, answer
 *
 * A key must be known to the whole cluster before its owner gets it, so it is stored in the service
 * first. A block is the other way round: it must hold here at once and after a kill, and reaches
 * the others as soon as it can. Blocks are only added, so nothing that is late can undo one.
 *
 * Every new key raises the version of `head` in its transaction, so two processes that read the
 * same state cannot both change it: the second one's compare fails, and it looks again. That is
 * also how one of several processes makes the bootstrap key.
 */
#include "common/identity/keystore.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cluster/coord/coord.h"
#include "common/identity/keystore_impl.h"
#include "common/obs/log.h"
#include "common/rpc/rpc_crypto.h"

#define KEYSTORE_MAGIC UINT32_C(0x6b737472)
#define FILE_NAME      "identity.json"
#define BOOTSTRAP      "bootstrap" /* made_by of its key */
#define BOOTSTRAP_MS   INT64_C(86400000)
#define BLOCK_MAX      (4 * KIB)
#define BOOTSTRAP_WHY  "another server-admin was made"

/* ---- calls ----------------------------------------------------------------------------------- */

static struct op *op_new(struct keystore *k, enum op_kind kind, struct str id, keystore_fn fn,
                         void *cookie)
{
    struct op *op = XNEW(struct op);

    CHECK(id.len == KEY_ID_LEN);
    op->k = k;
    op->kind = kind;
    op->fn = fn;
    op->cookie = cookie;
    memcpy(op->id, id.ptr, KEY_ID_LEN);
    buf_init(&op->block, BLOCK_MAX);
    list_add_tail(&k->ops, &op->node);
    return op;
}

static void op_free(struct op *op)
{
    list_del(&op->node);
    record_key_unref(op->r);
    record_key_unref(op->before);
    buf_deinit(&op->block);
    xfree(op);
}

static void on_blocked(void *cookie, const struct err *e, bool away)
{
    (void)cookie, (void)away;
    if (e)
        log_warn("the bootstrap key is not revoked yet", KV_ERR(e));
}

struct admins {
    const struct keystore *k;
    char id[KEY_ID_LEN + 1];
};

static void find_bootstrap(void *cookie, struct key_record *r, const struct block_record *b)
{
    struct admins *a = cookie;

    if (r && !b && str_eqc(r->made_by, BOOTSTRAP) && r->until_ms > keystore_now_ms(a->k))
        (void)snprintf(a->id, sizeof(a->id), "%.*s", STR_ARG(r->id));
}

static bool is_admin(const struct key_record *r)
{
    for (size_t i = 0; i < r->grants.len; i++)
        if (r->grants.ptr[i].roles & ROLE_SERVER_ADMIN)
            return true;
    return false;
}

/* The first key has done its work once there is another server-admin. */
static void end_bootstrap(struct keystore *k, const struct key_record *r)
{
    struct admins a = { .k = k };

    if (!is_admin(r) || str_eqc(r->made_by, BOOTSTRAP))
        return;
    registry_each(k->o.registry, find_bootstrap, &a);
    if (a.id[0])
        keystore_block(k, str_c(a.id), STR(BOOTSTRAP_WHY), on_blocked, NULL);
}

void keystore_op_end(struct op *op, const struct err *e, bool away)
{
    struct keystore *k = op->k;
    keystore_fn fn = op->fn;
    void *cookie = op->cookie;
    struct err copy;

    if (e) {
        copy = *e;
        e = &copy;
    }
    if (e && op->put && op->before) /* there was room for it before */
        (void)!registry_put(k->o.registry, op->before, &(struct err){ 0 });
    else if (e && op->put)
        registry_del(k->o.registry, str_c(op->id));
    if (!e && op->kind != OP_BLOCK)
        end_bootstrap(k, op->r);
    op_free(op);
    fn(cookie, e, away);
}

/* ---- adding, replacing ----------------------------------------------------------------------- */

static int may_change(const struct keystore *k, struct err *e)
{
    if (keystore_fresh(k) && !k->raise)
        return 0;
    return err_set_again(e, ERR_UNAVAILABLE, 2,
                         k->raise ? "the coordination service holds an older state of the keys, "
                                    "which is being put right; try again"
                                  : "the coordination service is away, and keys are not made "
                                    "without it; try again");
}

static void put_local(struct op *op)
{
    struct keystore *k = op->k;
    struct err e;

    if (registry_put(k->o.registry, op->r, &e)) {
        keystore_op_end(op, &e, false);
        return;
    }
    op->put = true;
    k->head.version++;
    op->state = OP_SAVING;
    op->wants = keystore_changed(k, true);
}

static void change(struct keystore *k, enum op_kind kind, struct key_record *r, keystore_fn fn,
                   void *cookie, bool once)
{
    struct key_record *known = registry_find(k->o.registry, r->id);
    struct err e;

    CHECK(k->magic == KEYSTORE_MAGIC);
    if (may_change(k, &e)) {
        fn(cookie, &e, false);
        return;
    }
    if (known && known->from_file)
        (void)err_set(&e, ERR_CONFLICT, "key %.*s is one of identity.file", STR_ARG(r->id));
    else if (kind == OP_ADD && (known || registry_blocked(k->o.registry, r->id)))
        (void)err_set(&e, ERR_CONFLICT, "key %.*s exists", STR_ARG(r->id));
    else if (kind == OP_REPLACE && !known)
        (void)err_set(&e, ERR_NOT_FOUND, "no key has the id %.*s", STR_ARG(r->id));
    else if (registry_len(k->o.registry) + (kind == OP_ADD) > REGISTRY_KEYS_MAX)
        (void)err_set(&e, ERR_LIMIT, "the cluster has %d keys, and that is the most",
                      REGISTRY_KEYS_MAX);
    else
        e.code = 0;
    if (e.code) {
        fn(cookie, &e, false);
        return;
    }
    struct op *op = op_new(k, kind, r->id, fn, cookie);
    op->r = record_key_ref(r);
    op->once = once;
    if (known)
        op->before = record_key_ref(known);
    if (k->o.coord)
        keystore_store(op);
    else
        put_local(op);
}

void keystore_add(struct keystore *k, struct key_record *r, keystore_fn fn, void *cookie)
{
    change(k, OP_ADD, r, fn, cookie, false);
}

void keystore_replace(struct keystore *k, struct key_record *r, keystore_fn fn, void *cookie)
{
    change(k, OP_REPLACE, r, fn, cookie, false);
}

/* ---- revoking -------------------------------------------------------------------------------- */

void keystore_block(struct keystore *k, struct str id, struct str why, keystore_fn fn, void *cookie)
{
    struct block_record b = { .id = id,
                              .why = str_sub(why, 0, RECORD_NAME_MAX),
                              .at_ms = keystore_now_ms(k) };
    struct err e;

    CHECK(k->magic == KEYSTORE_MAGIC);
    if (!k->head.known) {
        (void)err_set_again(&e, ERR_UNAVAILABLE, 2,
                            "this process has not heard the coordination service since its start, "
                            "and knows no keys; ask another one, or try again");
        fn(cookie, &e, false);
        return;
    }
    struct op *op = op_new(k, OP_BLOCK, id, fn, cookie);
    record_block_write(&b, k->sign[0], &op->block);
    CHECK(buf_ok(&op->block));
    registry_block(k->o.registry, &b);
    op->state = OP_SAVING;
    op->wants = keystore_changed(k, true);
}

/* ---- the first key --------------------------------------------------------------------------- */

static void bootstrap_say(const char *key)
{
    (void)fprintf(stderr,
                  "\nThere is no key of a server-admin yet. This one is valid for 24 hours, or "
                  "until another\nserver-admin is made, and is shown this once:\n\n    %s\n\n"
                  "Make one for yourself with it: embertreectl --token-file FILE key make --name "
                  "NAME --for '*' --roles server-admin,tenant-admin,gateway,scrape\n\n",
                  key);
    (void)fflush(stderr);
}

static void on_bootstrap(void *cookie, const struct err *e, bool away)
{
    struct keystore *k = cookie;

    (void)away;
    if (!e)
        bootstrap_say(k->bootstrap_key);
    else if (e->code != ERR_CONFLICT) /* another process was faster: what it made is looked for */
        log_warn("the first key could not be made, and is tried again", KV_ERR(e));
    k->bootstrapped = !e;
    rpc_wipe(k->bootstrap_key, strlen(k->bootstrap_key));
    xfree(k->bootstrap_key);
    k->bootstrap_key = NULL;
}

static int bootstrap_record(struct keystore *k, struct key_record **ret, struct err *e)
{
    uint8_t hash[KEY_HASH_BYTES];
    int64_t now = keystore_now_ms(k);
    struct key_text text;
    struct buf b;

    CHECK(key_text_parse(str_c(k->bootstrap_key), &text));
    keystore_hash(k, text.id, text.secret, hash);
    /* All that a key may hand out, since a key hands out no more than it has. */
    struct grant all = { .everywhere = true,
                         .roles =
                             ROLE_SERVER_ADMIN | ROLE_TENANT_ADMIN | ROLE_GATEWAY | ROLE_SCRAPE };
    struct key_record r = { .id = text.id,
                            .name = STR("first key"),
                            .made_by = STR(BOOTSTRAP),
                            .grants = { &all, 1 },
                            .from_ms = now,
                            .made_ms = now,
                            .until_ms = now + BOOTSTRAP_MS };

    memcpy(r.hash, hash, sizeof(hash));
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    record_key_write(&r, NULL, &b);
    int code = record_key_read(buf_str(&b), ret, e);
    buf_deinit(&b);
    return code;
}

void keystore_bootstrap(struct keystore *k)
{
    char key[KEY_TEXT_LEN + 1];
    struct key_record *r;
    struct err e;

    if (k->bootstrapped || k->bootstrap_key || !keystore_fresh(k) || k->raise ||
        registry_has_admin(k->o.registry, keystore_now_ms(k)))
        return;
    key_make(k->o.env, KEY_API, key);
    k->bootstrap_key = xstrdup(key);
    rpc_wipe(key, sizeof(key));
    if (bootstrap_record(k, &r, &e)) {
        on_bootstrap(k, &e, false);
        return;
    }
    change(k, OP_ADD, r, on_bootstrap, k, true);
    record_key_unref(r);
}

/* ---- life ------------------------------------------------------------------------------------ */

void keystore_keys(struct keystore *k, struct str cluster_key, const struct str *other_keys,
                   size_t other_keys_len)
{
    CHECK(k->magic == KEYSTORE_MAGIC);
    keystore_signs(k, cluster_key, other_keys, other_keys_len);
    if (k->own_sign)
        keystore_pepper(k, k->head.pepper);
    k->resign = k->relist = true;
    (void)keystore_changed(k, false); /* the file, too */
}

bool keystore_fresh(const struct keystore *k)
{
    CHECK(k->magic == KEYSTORE_MAGIC);
    if (!k->o.coord)
        return true;
    return k->listed &&
           clock_mono_ms(loop_clock(k->o.loop)) - k->heard_ms <= (uint64_t)KEYSTORE_FRESH_MS;
}

void keystore_hash(const struct keystore *k, struct str id, struct str secret,
                   uint8_t ret[KEY_HASH_BYTES])
{
    key_hash(k->head.pepper, id, secret, ret);
}

/* The first start: with a service its head is awaited, without one it is made and must be on the
 * disk before a key depends on it. */
static void begin(struct keystore *k)
{
    uint8_t pepper[KEY_PEPPER_BYTES];

    if (k->o.coord)
        return;
    k->o.env->random(k->o.env, pepper, sizeof(pepper));
    k->head.version = 1;
    k->head.known = true;
    keystore_pepper(k, pepper);
    rpc_wipe(pepper, sizeof(pepper));
    (void)keystore_changed(k, true);
}

static char *path_of(const char *dir)
{
    struct buf b;

    buf_init(&b, 64 * KIB);
    (void)buf_addf(&b, "%s/%s%c", dir, FILE_NAME, '\0');
    CHECK(buf_ok(&b));
    return (char *)(uintptr_t)buf_take(&b).ptr;
}

int keystore_new(const struct keystore_opts *o, struct keystore **ret, struct err *e)
{
    struct keystore *k = XNEW(struct keystore);
    int code;

    k->magic = KEYSTORE_MAGIC;
    k->o = *o;
    k->o.cluster_key = STR_NULL; /* borrowed for the call */
    k->o.other_keys = NULL;
    k->path = path_of(o->dir);
    list_init(&k->ops);
    keystore_signs(k, o->cluster_key, o->other_keys, o->other_keys_len);
    k->resign = true;
    k->save_timer = loop_timer_new(o->loop, keystore_on_save, k);
    code = keystore_load(k, e);
    if (code == ERR_NOT_FOUND) {
        begin(k);
    } else if (code) {
        keystore_free(k);
        return code;
    }
    if (o->coord)
        keystore_coord_start(k);
    *ret = k;
    return 0;
}

void keystore_free(struct keystore *k)
{
    if (!k)
        return;
    CHECK(k->magic == KEYSTORE_MAGIC);
    keystore_coord_stop(k);
    keystore_local_stop(k);
    list_for (n, &k->ops)
        op_free(container_of(n, struct op, node));
    if (k->bootstrap_key)
        rpc_wipe(k->bootstrap_key, strlen(k->bootstrap_key));
    xfree(k->bootstrap_key);
    xfree(k->path);
    rpc_wipe(k, sizeof(*k));
    xfree(k);
}
