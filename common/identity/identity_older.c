/* SPDX-License-Identifier: Apache-2.0
 *
 * identity_older: a record for each tenant of an older option, made when it is first needed.
 *
 * The options keep their own lists of secrets and compare them in constant time. What is added here
 * is only what the rules want to know of a caller: a record with grants. The number of records is
 * bounded; over it the table starts empty again.
 *
 * The process itself is one of these callers: it pushes its own profiles through its own door
 * (common/obs/selfprof.h), with a token that it makes at its start and keeps to itself.
 */
#include "common/identity/identity_older.h"

#include "common/base/hex.h"
#include "common/base/json.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/secret.h"

#define TENANTS_MAX 1024
#define NO_HASH     "0000000000000000000000000000000000000000000000000000000000000000"

void identity_older_init(struct identity_older *o, struct env *env)
{
    uint8_t bytes[(sizeof(o->own_token) - 1) / 2];

    env->random(env, bytes, sizeof(bytes));
    hex_put_c(bytes, sizeof(bytes), o->own_token);
    o->by_tenant = map_str_new();
}

static void forget_all(struct identity_older *o)
{
    struct str tenant;
    size_t at = 0;
    void *r;

    while (map_str_next(o->by_tenant, &at, &tenant, &r))
        record_key_unref(r);
    map_str_free(o->by_tenant);
    o->by_tenant = NULL;
}

void identity_older_deinit(struct identity_older *o)
{
    if (o->by_tenant)
        forget_all(o);
    record_key_unref(o->admin);
    record_key_unref(o->own);
    o->admin = o->own = NULL;
}

/* Its id is that of no key: no secret has a hash of zeros, and it is never stored. */
static struct key_record *make(const char *option, const char *id, struct str tenant,
                               enum identity_role role)
{
    struct key_record *r = NULL;
    struct json j;
    struct buf b;
    struct err e;

    buf_init(&b, KEY_RECORD_BYTES_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_cstr(&j, "id", id);
    json_put_cstr(&j, "hash", NO_HASH);
    json_put_cstr(&j, "name", option);
    json_put_cstr(&j, "owner", "");
    json_key(&j, "grants");
    json_arr(&j);
    json_obj(&j);
    json_key(&j, "tenants");
    json_arr(&j);
    json_str(&j, tenant);
    json_arr_end(&j);
    json_key(&j, "roles");
    json_arr(&j);
    json_str(&j, str_c(grants_role_name(role)));
    json_arr_end(&j);
    json_obj_end(&j);
    json_arr_end(&j);
    json_put_cstr(&j, "made_by", IDENTITY_OLDER_BY);
    json_obj_end(&j);
    if (record_key_read(buf_str(&b), &r, &e))
        r = NULL; /* a tenant of a name that no tenant may have */
    buf_deinit(&b);
    return r;
}

static struct key_record *of_tenant(struct identity_older *o, struct str tenant)
{
    struct key_record *r = map_str_get(o->by_tenant, tenant);

    if (r)
        return r;
    if (map_str_len(o->by_tenant) == TENANTS_MAX) {
        forget_all(o);
        o->by_tenant = map_str_new();
    }
    r = make("distributor.tokens_file", "olderPusher0", tenant, ROLE_PUSH);
    if (r)
        (void)map_str_put(o->by_tenant, r->grants.ptr[0].tenants[0], r);
    return r;
}

static bool shows_own(const struct identity_older *o, const struct http_req *r)
{
    struct str key, wish;

    return decide_credential(http_header(r, "Authorization"), r->arena, &key, &wish) &&
           secret_eq(str_c(o->own_token), key);
}

struct key_record *identity_older_find(void *cookie, const struct http_req *r)
{
    struct identity_older *o = cookie;
    struct str tenant;

    if (shows_own(o, r)) {
        if (!o->own)
            o->own = make("selfprof", "olderProfile", str_c(o->own_tenant), ROLE_PUSH);
        return o->own;
    }
    tenant = o->tokens ? o->tokens(o->tokens_cookie, r) : STR_NULL;
    if (tenant.len)
        return of_tenant(o, o->multi ? tenant : STR("anonymous"));
    if (!o->shows_token || !o->shows_token(o->token_cookie, r)) /* last, since it reads a file */
        return NULL;
    if (!o->admin)
        o->admin = make("http.admin_token_file", "olderAdmin00", STR("*"), ROLE_SERVER_ADMIN);
    return o->admin;
}
