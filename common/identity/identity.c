/* SPDX-License-Identifier: Apache-2.0
 *
 * identity: keys and rules in the life of a process.
 *
 *   identity.file ──file.c──────┐
 *   etcd, identity.json ──keystore.c──> registry <── decide.c <── identity_admits <── HTTP server
 *   older options ──identity_older.c──────────────────┘                │
 *                                                     throttle, counters, answer
 *
 * A request is decided once, at the end of its head. What came of it lies in the request: its
 * record, with a reference until the request ends, and its tenants, in its arena. Handlers ask
 * those (tenant_of, identity_of), never the headers again: what they say may be more than what the
 * key may.
 *
 * In mode observe nothing is put into the request, so that handlers do what they do without
 * identities. Only counters and the log differ.
 *
 * Thread: the loop's.
 */
#include "common/identity/identity.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/identity/file.h"
#include "common/identity/identity_count.h"
#include "common/identity/identity_older.h"
#include "common/identity/throttle.h"
#include "common/net/svc/svc.h"
#include "common/obs/log.h"

#define IDENTITY_MAGIC MAGIC('i', 'd', 'e', 'n')
#define ANSWER_MAX     (4 * KIB)

static const struct conf_row rows[] = {
    CONF_ENUM(struct identity_conf, mode, "mode", "off", "off|observe|require",
              "Whether callers must show an API key. off: no caller is asked; observe: nothing is "
              "refused, and metrics and the log say what require would refuse; require: a request "
              "without a key that may do it is refused."),
    CONF_STR(struct identity_conf, file, "file", "",
             "YAML file of keys, with their hashes (embertreectl key make --offline), beside those "
             "that are made by the API. Read again when it changes."),
    CONF_U64(struct identity_conf, keys_per_tenant, "keys_per_tenant", "100", "1", "10000",
             "Keys in force that a tenant may have by the API."),
};
const struct conf_table identity_conf_table = { "identity", "API keys", rows, ARRAY_LEN(rows),
                                                sizeof(struct identity_conf) };

struct identity {
    uint32_t magic;
    enum identity_mode mode;
    struct identity_opts o;
    struct registry *registry; /* owned, as all below; NULL in mode off */
    struct keystore *store;
    struct identity_file *file; /* NULL: none configured */
    struct throttle *throttle;
    struct identity_count *count;
    struct identity_older older;
};

/* ---- life ----------------------------------------------------------------------------------- */

static enum identity_mode mode_of(const char *name)
{
    if (strcmp(name, "require") == 0)
        return IDENTITY_REQUIRE;
    return strcmp(name, "observe") == 0 ? IDENTITY_OBSERVE : IDENTITY_OFF;
}

static int start_keys(struct identity *i, struct err *e)
{
    static const uint8_t no_pepper[KEY_PEPPER_BYTES]; /* until the keystore has read or made it */
    const struct identity_opts *o = &i->o;
    struct keystore_opts k = {
        .env = o->env,
        .loop = o->loop,
        .coord = o->coord,
        .prefix = o->prefix,
        .dir = o->dir,
        .cluster_key = o->cluster_key,
        .other_keys = o->other_keys,
        .other_keys_len = o->other_keys_len,
        .pool = o->pool,
    };

    i->registry = k.registry = registry_new(no_pepper);
    if (keystore_new(&k, &i->store, e))
        return err_wrap(e, "identity");
    if (o->conf->file[0] && identity_file_new(o->env, o->conf->file, i->registry, &i->file, e))
        return err_wrap(e, "identity.file");
    return 0;
}

int identity_start(const struct identity_opts *o, struct identity **ret, struct err *e)
{
    struct identity *i;

    if (mode_of(o->conf->mode) == IDENTITY_REQUIRE && o->coord && !o->cluster_key.len)
        return err_set(
            e, ERR_CONFIG,
            "identity.mode: require with etcd needs cluster.key_file, which signs the keys "
            "of callers: without it anyone who can write to etcd could make keys");
    i = XNEW(struct identity);
    i->magic = IDENTITY_MAGIC;
    i->mode = mode_of(o->conf->mode);
    i->o = *o;
    if (i->mode != IDENTITY_OFF) {
        if (start_keys(i, e)) {
            identity_free(i);
            return e->code;
        }
        i->throttle = throttle_new();
        i->count = identity_count_new(o->metrics, i->registry);
        i->older.shows_token = o->shows_token;
        i->older.token_cookie = o->token_cookie;
        i->older.multi = o->multi;
        i->older.own_tenant = o->multi ? o->own_tenant : "anonymous";
        identity_older_init(&i->older, o->env);
        log_info("callers are asked for keys", KV_CSTR("mode", o->conf->mode),
                 KV_U64("keys", registry_len(i->registry)), KV_CSTR("file", o->conf->file));
    }
    *ret = i;
    return 0;
}

void identity_free(struct identity *i)
{
    if (!i)
        return;
    CHECK(i->magic == IDENTITY_MAGIC);
    i->magic = 0;
    keystore_free(i->store);
    identity_file_free(i->file);
    identity_older_deinit(&i->older);
    throttle_free(i->throttle);
    identity_count_free(i->count);
    registry_free(i->registry);
    xfree(i);
}

enum identity_mode identity_mode_of(const struct identity *i)
{
    return i->mode;
}

struct registry *identity_registry(struct identity *i)
{
    return i->registry;
}

struct keystore *identity_keystore(struct identity *i)
{
    return i->store;
}

void identity_keys(struct identity *i, const struct str *keys, size_t n)
{
    CHECK(i->magic == IDENTITY_MAGIC);
    if (i->store)
        keystore_keys(i->store, n ? keys[0] : STR_NULL, keys + 1, n ? n - 1 : 0);
}

void identity_tokens(struct identity *i, identity_tokens_fn fn, void *cookie)
{
    i->older.tokens = fn;
    i->older.tokens_cookie = cookie;
}

const char *identity_own_token(const struct identity *i)
{
    return i->mode == IDENTITY_OFF ? NULL : i->older.own_token;
}

void identity_tick(struct identity *i)
{
    struct err e;

    CHECK(i->magic == IDENTITY_MAGIC);
    if (i->mode == IDENTITY_OFF)
        return;
    err_clear(&e);
    if (!identity_file_tick(i->file, &e) && e.code)
        log_warn("the changed identity.file cannot be used; its keys stay unchanged", KV_ERR(&e));
    if (i->mode == IDENTITY_REQUIRE)
        keystore_bootstrap(i->store);
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Of a service: "/package.Service/Method". */
static bool is_rpc(const struct http_door *d)
{
    struct str rest = str_sub(str_c(d->path), 1, SIZE_MAX);
    ptrdiff_t slash = str_find(rest, '/');

    return slash > 0 && str_find(str_sub(rest, 0, (size_t)slash), '.') >= 0;
}

static void answer_json(struct http_req *r, const struct decision *d)
{
    int status = err_http_status(d->err.code);
    struct json j;
    struct buf b;

    buf_init(&b, ANSWER_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_cstr(&j, "code", status == 429 ? "resource_exhausted" : err_connect_name(d->err.code));
    json_put_cstr(&j, "message", d->err.text);
    json_put_cstr(&j, "reason", d->reason);
    json_obj_end(&j);
    (void)buf_add_c(&b, '\n');
    http_reply_retry(r, status, &d->err);
    http_reply_header(r, "X-Content-Type-Options", STR("nosniff"));
    http_reply(r, status, "application/json", &b);
    buf_deinit(&b);
}

static void answer(struct identity *i, struct http_req *r, const struct http_door *door,
                   const struct decision *d)
{
    if (d->err.code == ERR_UNAUTHENTICATED) /* no Basic: a browser would ask for a password */
        http_reply_header(r, "WWW-Authenticate", STR("Bearer"));
    if (i->o.refusing)
        i->o.refusing(i->o.token_cookie, r, door);
    if (!is_rpc(door) || !svc_refuse(r, &d->err))
        answer_json(r, d);
}

/* After too many failures the answer says when to try again, not what is wrong. */
static void slow_down(struct identity *i, const struct http_req *r, struct decision *d)
{
    uint32_t wait_s = throttle_fail(i->throttle, r->peer, clock_mono_ms(i->o.env->clock));

    if (!wait_s)
        return;
    d->code = err_set_again(&d->err, ERR_RATE, wait_s,
                            "too many requests from your address showed no key that is valid here; "
                            "those with a valid key are answered");
    d->reason = "throttled";
}

/* ---- requests ------------------------------------------------------------------------------- */

/* False: the arena of the request is full. */
static bool keep(struct http_req *r, const struct decision *d)
{
    struct str *tenants = ARENA_ARRAY(r->arena, struct str, d->tenants_len + 1);

    if (!tenants)
        return false;
    memcpy(tenants, d->tenants, d->tenants_len * sizeof(*tenants));
    r->identity = d->who ? record_key_ref(d->who) : NULL;
    r->tenants = tenants;
    r->tenants_len = d->tenants_len;
    return true;
}

bool identity_admits(struct identity *i, struct http_req *r, const struct http_door *d)
{
    struct decide_in in = {
        .registry = i->registry,
        .door = d,
        .r = r,
        .multi = i->o.multi,
        .strict = i->o.strict,
        .older = identity_older_find,
        .older_cookie = &i->older,
    };
    bool refuses = i->mode == IDENTITY_REQUIRE;
    struct decision it;

    CHECK(i->magic == IDENTITY_MAGIC);
    if (i->mode == IDENTITY_OFF)
        return true;
    in.now_ms = clock_wall_ms(i->o.env->clock);
    in.fresh = keystore_fresh(i->store);
    decide(&in, &it);
    if (refuses && it.code == ERR_UNAUTHENTICATED)
        slow_down(i, r, &it);
    identity_count_add(i->count, &in, &it, refuses);
    if (!refuses)
        return true;
    if (!it.code && !keep(r, &it)) {
        it.code = err_set(&it.err, ERR_BUSY, "this request holds too much memory; try again");
        it.reason = "memory";
    }
    if (it.code)
        answer(i, r, d, &it);
    return !it.code;
}

void identity_forget(struct identity *i, struct http_req *r)
{
    (void)i;
    record_key_unref(r->identity);
    r->identity = NULL;
    r->tenants = NULL;
    r->tenants_len = 0;
}

/* ---- for handlers --------------------------------------------------------------------------- */

const struct key_record *identity_of(const struct http_req *r)
{
    return r->identity;
}

void identity_subject(const struct http_req *r, char *to, size_t n)
{
    const struct key_record *who = r->identity;

    if (!who)
        (void)snprintf(to, n, "%s", r->local ? "socket" : "anonymous");
    else if (str_eqc(who->made_by, IDENTITY_OLDER_BY))
        (void)snprintf(to, n, "option:%.*s", STR_ARG(who->name));
    else
        (void)snprintf(to, n, "key:%.*s", STR_ARG(who->id));
}
