/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_routes: keys are listed, made, replaced by a successor, and revoked.
 *
 * The door decides which callers get here (common/role/core/doors.c: tenant-admin or server-admin).
 * What such a caller may do to which key is decided here, by one rule: its own grants must cover
 * those of the key. It follows that an admin of one tenant neither sees nor ends keys of another;
 * they are "not found" to it, so that ids tell nothing. A new key does not outlive the caller's own
 * key, nor reach further in the network. The first key of a server (keystore_bootstrap) is the
 * exception: it lives for a day, and is there to make keys that last.
 *
 *   rotate:  successor is stored ──> the old key gets an end ──> answer
 *                                      (failed: the answer says that the old key stays)
 *
 * The key itself is in memory between key_make and the answer, and nowhere else.
 */
#include "common/role/admin/keys_routes.h"
#include "common/identity/record_net.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/role/admin/keys_rights.h"
#include "common/rpc/rpc_crypto.h"

#define KEYS        "/api/v1/keys"
#define BODY_MAX    (64 * KIB)
#define REPLY_MAX   (128 * MIB)
#define TREE_MAX    (4 * MIB)
#define DAY_MS      INT64_C(86400000)
#define OVERLAP_MS  (7 * DAY_MS)
#define OVERLAP_MAX (366 * DAY_MS)
#define LIFE_MAX    (100 * 366 * DAY_MS)

static int64_t now_ms(const struct keys_routes *k)
{
    return clock_wall_ms(k->env->clock);
}

struct call { /* a change that is under way */
    const struct keys_routes *k;
    struct http_req *r;
    struct key_record *record; /* a reference: the new one */
    struct key_record *old;    /* a reference, of a rotation: with its end */
    char key[KEY_TEXT_LEN + 1];
    char id[KEY_ID_LEN + 1];
};

/* ---- answers --------------------------------------------------------------------------------- */

static void call_free(struct call *c)
{
    record_key_unref(c->record);
    record_key_unref(c->old);
    rpc_wipe(c->key, sizeof(c->key));
    xfree(c);
}

static struct call *call_new(const struct keys_routes *k, struct http_req *r)
{
    struct call *c = XNEW(struct call);

    c->k = k;
    c->r = r;
    return c;
}

static void reply_err(struct http_req *r, const struct err *e)
{
    http_reply_header(r, "Cache-Control", STR("no-store"));
    http_reply_err(r, e);
}

/* True, and answered, where there are no keys. */
static bool off(const struct keys_routes *k, struct http_req *r)
{
    struct err e;

    if (k->store)
        return false;
    (void)err_set(
        &e, ERR_UNIMPLEMENTED,
        "identity.mode is off, so there are no keys here; start with identity.mode=observe "
        "to make some, then require");
    reply_err(r, &e);
    return true;
}

/* The new key: told here, and never again. */
static void reply_key(struct call *c, const char *warning)
{
    struct json j;
    struct buf b;

    buf_init(&b, BODY_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_cstr(&j, "key", c->key);
    record_key_show(c->record, &j);
    if (c->old)
        json_put_i64(&j, "old_until", c->old->until_ms);
    if (warning)
        json_put_cstr(&j, "warning", warning);
    json_obj_end(&j);
    (void)buf_add_c(&b, '\n');
    http_reply_header(c->r, "Cache-Control", STR("no-store"));
    http_reply(c->r, 200, "application/json", &b);
}

/* ---- the list -------------------------------------------------------------------------------- */

struct listing {
    const struct keys_routes *k;
    const struct http_req *r;
    struct str tenant; /* STR_NULL: all */
    struct json j;
};

static bool names_tenant(const struct key_record *key, struct str tenant)
{
    for (size_t i = 0; i < key->grants.len; i++) {
        const struct grant *g = &key->grants.ptr[i];

        if (g->everywhere)
            return true;
        for (size_t t = 0; t < g->tenants_len; t++)
            if (str_eq(g->tenants[t], tenant))
                return true;
    }
    return false;
}

static void list_one(void *cookie, struct key_record *key, const struct block_record *b)
{
    struct listing *l = cookie;

    if (!key || !keys_covers(l->r, key) || (l->tenant.ptr && !names_tenant(key, l->tenant)))
        return;
    json_obj(&l->j);
    record_key_show(key, &l->j);
    json_put_bool(&l->j, "file", key->from_file);
    json_put_i64(&l->j, "last_use", registry_last_use_ms(l->k->registry, key->id));
    if (b) {
        json_put_i64(&l->j, "revoked_at", b->at_ms);
        json_put_str(&l->j, "why", b->why);
    }
    json_obj_end(&l->j);
}

static void on_list(struct http_req *r)
{
    const struct keys_routes *k = r->route_cookie;
    struct listing l = { .k = k, .r = r };
    struct buf b;

    if (off(k, r))
        return;
    if (!http_param(r, "tenant", &l.tenant) || !l.tenant.len)
        l.tenant = STR_NULL;
    buf_init(&b, REPLY_MAX);
    json_init(&l.j, &b);
    json_obj(&l.j);
    json_key(&l.j, "keys");
    json_arr(&l.j);
    registry_each(k->registry, list_one, &l);
    json_arr_end(&l.j);
    json_put_i64(&l.j, "now", now_ms(k));
    json_put_bool(&l.j, "fresh", keystore_fresh(k->store));
    json_obj_end(&l.j);
    (void)buf_add_c(&b, '\n');
    http_reply_header(r, "Cache-Control", STR("no-store"));
    http_reply(r, 200, "application/json", &b);
}

/* ---- making one ------------------------------------------------------------------------------ */

static int known_members(const struct json_val *v, struct err *e)
{
    static const char *const names[] = { "name", "owner", "grants", "until", "valid_for", "nets" };
    const struct json_val *ignored;
    void *pos = NULL;
    struct str key;

    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "the body must be a JSON object");
    while (json_each(v, &pos, &key, &ignored)) {
        bool known = false;

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            known |= str_eqc(key, names[i]);
        if (!known)
            return err_set(e, ERR_INPUT,
                           "\"%.*s\" is unknown; name, owner, grants, until or valid_for, and nets "
                           "are known",
                           STR_ARG(str_sub(key, 0, 40)));
    }
    return 0;
}

/* "30d" from now on. */
static int life(struct str text, const char *name, int64_t from, int64_t most, int64_t *ret,
                struct err *e)
{
    uint64_t ms;

    if (!str_duration_ms(text, &ms) || ms < 1000 || ms > (uint64_t)most)
        return err_set(e, ERR_INPUT, "%s is \"%.*s\"; want a duration such as 90d, up to %d days",
                       name, STR_ARG(str_sub(text, 0, 20)), (int)(most / DAY_MS));
    *ret = from + (int64_t)ms;
    return 0;
}

static int until_of(const struct json_val *v, int64_t now, int64_t *ret, struct err *e)
{
    const struct json_val *until = json_get(v, "until", NULL);
    const struct json_val *valid = json_get(v, "valid_for", NULL);
    struct str text = STR_NULL;
    int64_t ms = 0;

    *ret = 0;
    if (until && valid)
        return err_set(e, ERR_INPUT, "give until or valid_for, not both");
    if (json_take_i64(until, "until", &ms, e) || json_take_str(valid, "valid_for", &text, e))
        return e->code;
    if (valid)
        return life(text, "valid_for", now, LIFE_MAX, ret, e);
    if (until && ms != 0 && ms <= now)
        return err_set(
            e, ERR_INPUT,
            "until is %" PRId64 ", which has passed (milliseconds since 1970; 0: no end)", ms);
    *ret = ms;
    return 0;
}

static int nets_of(const struct json_val *list, struct arena *a, struct key_record *to,
                   struct err *e)
{
    size_t n = json_len(list);

    if (!list)
        return 0;
    if (!json_is_arr(list) || n > RECORD_NETS_MAX)
        return err_set(e, ERR_INPUT, "nets: want a list of at most %d networks, \"10.0.0.0/8\"",
                       RECORD_NETS_MAX);
    to->nets = ARENA_ARRAY(a, struct net_range, n + 1);
    if (!to->nets)
        return err_set(e, ERR_LIMIT, "nets take too much memory");
    for (size_t i = 0; i < n; i++) {
        struct str text = STR("");

        if (json_take_str(json_at(list, i), "nets", &text, e) ||
            net_range_parse(text, &to->nets[i], e))
            return err_wrap(e, "nets[%zu]", i);
    }
    to->nets_len = n;
    return 0;
}

/* A record with a copy of all that `from` has, or ERR_INPUT for what records may not have. */
static int record_make(const struct key_record *from, struct key_record **ret, struct err *e)
{
    struct buf b;
    int code;

    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    record_key_write(from, NULL, &b);
    if (buf_ok(&b))
        code = record_key_read(buf_str(&b), ret, e);
    else
        code = err_set(e, ERR_LIMIT, "the key's record is over %d bytes: fewer grants",
                       KEY_RECORD_BYTES_MAX);
    buf_deinit(&b);
    return code;
}

/* Gives the call a new key, and `base` its id and hash; makes the record. */
static int call_key(struct call *c, struct key_record *base, struct err *e)
{
    const struct keys_routes *k = c->k;
    char by[KEYS_SUBJECT_MAX];
    struct key_text text;

    key_make(k->env, KEY_API, c->key);
    CHECK(key_text_parse(str_c(c->key), &text));
    keystore_hash(k->store, text.id, text.secret, base->hash);
    keys_subject(c->r, by);
    base->id = text.id;
    base->made_by = str_c(by);
    base->made_ms = base->from_ms = now_ms(k);
    int code = record_make(base, &c->record, e);
    return code ? code : keys_may_hand_out(c->r, c->record, e);
}

static int room_for(const struct keys_routes *k, const struct key_record *r, uint64_t times,
                    struct err *e)
{
    return keys_room_for(k->registry, r, times * k->keys_per_tenant, now_ms(k), e);
}

static int make_read(struct call *c, const struct json_val *v, struct arena *a, struct err *e)
{
    struct key_record base = { .name = STR(""), .owner = STR("") };
    const struct json_val *grants = json_get(v, "grants", NULL);
    int code = known_members(v, e);

    if (!code)
        code = json_take_str(json_get(v, "name", NULL), "name", &base.name, e);
    if (!code && !base.name.len)
        code = err_set(e, ERR_INPUT, "name is missing: it says what the key is for");
    if (!code)
        code = json_take_str(json_get(v, "owner", NULL), "owner", &base.owner, e);
    if (!code && json_len(grants) == 0)
        code = err_set(e, ERR_INPUT,
                       "grants: want a list, "
                       "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]");
    if (!code)
        code = until_of(v, now_ms(c->k), &base.until_ms, e);
    if (!code)
        code = nets_of(json_get(v, "nets", NULL), a, &base, e);
    if (code || grants_read(grants, a, &base.grants, e))
        return e->code;
    code = call_key(c, &base, e);
    grants_deinit(&base.grants);
    return code ? code : room_for(c->k, c->record, 1, e);
}

static void on_made(void *cookie, const struct err *e, bool away)
{
    struct call *c = cookie;
    char by[KEYS_SUBJECT_MAX];

    (void)away;
    if (e) {
        reply_err(c->r, e);
    } else {
        keys_subject(c->r, by);
        log_info("a key was made", KV_STR("id", c->record->id), KV_STR("name", c->record->name),
                 KV_CSTR("by", by), KV_CSTR("peer", c->r->peer));
        reply_key(c, NULL);
    }
    call_free(c);
}

static void on_make(struct http_req *r)
{
    const struct keys_routes *k = r->route_cookie;
    struct json_doc *doc = NULL;
    struct call *c;
    struct err e;

    if (off(k, r))
        return;
    c = call_new(k, r);
    struct arena *a = arena_new(TREE_MAX);
    int code = json_parse(r->body, &doc, &e);
    if (!code)
        code = make_read(c, json_root(doc), a, &e);
    json_doc_free(doc);
    arena_free(a);
    if (code) {
        reply_err(r, &e);
        call_free(c);
        return;
    }
    keystore_add(k->store, c->record, on_made, c);
}

/* ---- a key that exists ----------------------------------------------------------------------- */

/* The key that the path names, if this caller may do something to it. */
static int find(const struct keys_routes *k, const struct http_req *r, struct str id,
                struct key_record **ret, struct err *e)
{
    struct key_record *key = key_id_ok(id) ? registry_find(k->registry, id) : NULL;

    if (!key || !keys_covers(r, key))
        return err_set(e, ERR_NOT_FOUND, "no key has the id \"%.*s\", or it is not yours to change",
                       STR_ARG(str_sub(id, 0, KEY_ID_LEN)));
    if (key->from_file)
        return err_set(e, ERR_CONFLICT,
                       "key %.*s is one of the file %.200s (identity.file): change it there",
                       STR_ARG(id), k->file);
    *ret = key;
    return 0;
}

static void on_ended(void *cookie, const struct err *e, bool away)
{
    struct call *c = cookie;

    (void)away;
    if (e) { /* the old key has no new end, which must not hide the new one */
        record_key_unref(c->old);
        c->old = NULL;
        reply_key(c, e->text);
    } else {
        reply_key(c, NULL);
    }
    call_free(c);
}

static void on_successor(void *cookie, const struct err *e, bool away)
{
    struct call *c = cookie;
    char by[KEYS_SUBJECT_MAX];

    (void)away;
    if (e) {
        reply_err(c->r, e);
        call_free(c);
        return;
    }
    keys_subject(c->r, by);
    log_info("a key was rotated", KV_STR("id", c->record->id), KV_STR("replaces", c->old->id),
             KV_CSTR("by", by), KV_CSTR("peer", c->r->peer));
    keystore_replace(c->k->store, c->old, on_ended, c);
}

static int rotate_read(struct call *c, struct key_record *old, struct err *e)
{
    const struct keys_routes *k = c->k;
    struct key_record next = *old, end = *old;
    int64_t now = now_ms(k), until = now + OVERLAP_MS;
    struct str text;

    if (registry_blocked(k->registry, old->id) || (old->until_ms && old->until_ms <= now))
        return err_set(e, ERR_CONFLICT, "key %.*s is revoked or has expired: make a new one",
                       STR_ARG(old->id));
    if (http_param(c->r, "overlap", &text) && !str_eqc(text, "0") &&
        life(text, "overlap", now, OVERLAP_MAX, &until, e))
        return e->code;
    if (http_param(c->r, "overlap", &text) && str_eqc(text, "0"))
        until = now;
    if (http_param(c->r, "valid_for", &text) &&
        life(text, "valid_for", now, LIFE_MAX, &next.until_ms, e))
        return e->code;
    next.replaces = old->id;
    end.until_ms = old->until_ms ? MIN(old->until_ms, until) : until;
    if (call_key(c, &next, e) || record_make(&end, &c->old, e))
        return e->code;
    /* More than the limit, since the old key still counts while both are good. */
    return room_for(k, c->record, 2, e);
}

static void on_post(struct http_req *r)
{
    const struct keys_routes *k = r->route_cookie;
    const struct str tail = STR("/rotate");
    struct str id = str_sub(r->path, sizeof(KEYS "/") - 1, r->path.len);
    struct key_record *old;
    struct call *c;
    struct err e;

    if (off(k, r))
        return;
    if (!str_ends(id, tail)) {
        (void)err_set(&e, ERR_NOT_FOUND, "want POST " KEYS ", or POST " KEYS "/ID/rotate");
        reply_err(r, &e);
        return;
    }
    id.len -= tail.len;
    c = call_new(k, r);
    if (find(k, r, id, &old, &e) || rotate_read(c, old, &e)) {
        reply_err(r, &e);
        call_free(c);
        return;
    }
    keystore_add(k->store, c->record, on_successor, c);
}

static void on_revoked(void *cookie, const struct err *e, bool away)
{
    struct call *c = cookie;
    char by[KEYS_SUBJECT_MAX];
    struct json j;
    struct buf b;

    if (e) {
        reply_err(c->r, e);
        call_free(c);
        return;
    }
    keys_subject(c->r, by);
    log_info("a key was revoked", KV_CSTR("id", c->id), KV_CSTR("by", by),
             KV_CSTR("peer", c->r->peer), KV_BOOL("away", away));
    buf_init(&b, BODY_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_cstr(&j, "id", c->id);
    json_put_bool(&j, "revoked", true);
    json_put_bool(&j, "away", away);
    if (away)
        json_put_cstr(&j, "message",
                      "this server refuses the key, and keeps that over a restart; the "
                      "coordination service is away, so others learn it once it is back");
    json_obj_end(&j);
    (void)buf_add_c(&b, '\n');
    http_reply_header(c->r, "Cache-Control", STR("no-store"));
    http_reply(c->r, away ? 202 : 200, "application/json", &b);
    call_free(c);
}

static void on_delete(struct http_req *r)
{
    const struct keys_routes *k = r->route_cookie;
    struct str id = str_sub(r->path, sizeof(KEYS "/") - 1, r->path.len), why = STR("");
    struct key_record *key;
    struct call *c;
    struct err e;

    if (off(k, r))
        return;
    (void)http_param(r, "why", &why);
    if (why.len > RECORD_NAME_MAX || !str_utf8_valid(why)) {
        (void)err_set(&e, ERR_INPUT, "why: want at most %d bytes of UTF-8", RECORD_NAME_MAX);
        reply_err(r, &e);
        return;
    }
    if (find(k, r, id, &key, &e)) {
        reply_err(r, &e);
        return;
    }
    c = call_new(k, r);
    (void)snprintf(c->id, sizeof(c->id), "%.*s", STR_ARG(key->id));
    keystore_block(k->store, key->id, why, on_revoked, c);
}

void keys_routes(const struct keys_routes *k, struct http_server *http)
{
    void *cookie = (void *)(uintptr_t)k;

    http_route(http, HTTP_GET, KEYS, 0, on_list, cookie);
    http_route(http, HTTP_POST, KEYS, BODY_MAX, on_make, cookie);
    http_route(http, HTTP_POST, KEYS "/*", BODY_MAX, on_post, cookie);
    http_route(http, HTTP_DELETE, KEYS "/*", 0, on_delete, cookie);
}
