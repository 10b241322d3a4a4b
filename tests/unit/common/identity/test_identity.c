/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests through a server that asks for keys: what a handler finds in them, what a refusal looks
 * like in each protocol, and that all is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cluster/coord/coord.h"
#include "common/identity/identity.h"
#include "common/net/http_server.h"
#include "common/role/core/doors.h"
#include "common/role/core/role.h"
#include "tests/lib/net/net_h2.h"

#define PUSH "/push.v1.PusherService/Push"

struct bed {
    struct net_world w;
    char dir[40], file[60];
    struct identity *identity;
    char push[KEY_TEXT_LEN + 1], read[KEY_TEXT_LEN + 1];
};

/* ---- handlers ------------------------------------------------------------------------------- */

static int calls;
static char seen[200]; /* subject, tenants by tenant_of */

static void on_any(struct http_req *r)
{
    const struct tenancy_conf t = { .multi = true };
    struct str tenants[4];
    char subject[80];
    size_t n = 0;
    struct err e;

    calls++;
    identity_subject(r, subject, sizeof(subject));
    if (tenant_of(r, &t, ARRAY_LEN(tenants), tenants, &n, &e))
        n = 0;
    (void)snprintf(seen, sizeof(seen), "%s %.*s %zu", subject, STR_ARG(n ? tenants[0] : STR("-")),
                   n);
    http_reply(r, 200, NULL, NULL);
}

static bool on_admit(void *cookie, struct http_req *r, const struct http_door *d)
{
    return identity_admits(cookie, r, d);
}

static void on_forget(void *cookie, struct http_req *r)
{
    identity_forget(cookie, r);
    assert_null(r->identity);
}

/* ---- the bed -------------------------------------------------------------------------------- */

static void put_key(FILE *f, const char *text, const char *grant)
{
    const uint8_t zeros[KEY_PEPPER_BYTES] = { 0 };
    uint8_t hash[KEY_HASH_BYTES];
    struct key_text t;

    assert_true(key_text_parse(str_c(text), &t));
    key_hash(zeros, t.id, t.secret, hash);
    fprintf(f, "- {id: %.*s, name: n, grants: [%s], hash: 'offline:", STR_ARG(t.id), grant);
    for (size_t i = 0; i < sizeof(hash); i++)
        fprintf(f, "%02x", hash[i]);
    fprintf(f, "'}\n");
}

static void bed_init(struct bed *b, const char *mode)
{
    static struct identity_conf conf;
    static struct env env;
    struct identity_opts o = { .conf = &conf, .env = &env, .multi = true, .own_tenant = "own" };
    const struct http_door *d;
    struct err e;
    size_t n;

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-identity-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->file, sizeof(b->file), "%s/keys.yaml", b->dir);
    key_make(env_real(), KEY_API, b->push);
    key_make(env_real(), KEY_API, b->read);
    FILE *f = fopen(b->file, "we");
    assert_non_null(f);
    fprintf(f, "keys:\n");
    put_key(f, b->push, "{tenants: [shop], roles: [push]}");
    put_key(f, b->read, "{tenants: ['*'], roles: [read]}");
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(b->file, 0600), 0);
    net_world_init(&b->w);
    env = *env_real();
    env.clock = loop_clock(b->w.loop);
    conf = (struct identity_conf){ .mode = mode, .file = b->file, .keys_per_tenant = 10 };
    o.loop = b->w.loop;
    o.metrics = b->w.metrics;
    o.dir = b->dir;
    if (identity_start(&o, &b->identity, &e))
        fail_msg("%s", e.text);
    b->w.server->o.doors = d = doors(&n);
    b->w.server->o.doors_len = n;
    b->w.server->o.admit = on_admit;
    b->w.server->o.forget = on_forget;
    b->w.server->o.admit_cookie = b->identity;
    for (size_t i = 0; i < n; i++)
        http_route(b->w.server, d[i].methods, d[i].path, MIB, on_any, NULL);
    calls = 0;
    seen[0] = '\0';
}

static void remove_file(const struct bed *b, const char *name)
{
    char path[100];

    (void)snprintf(path, sizeof(path), "%s/%s", b->dir, name);
    (void)unlink(path);
}

static void bed_deinit(struct bed *b)
{
    b->w.server->o.admit = NULL;
    b->w.server->o.forget = NULL;
    identity_free(b->identity); /* it has timers of the loop */
    net_world_deinit(&b->w);
    remove_file(b, "keys.yaml");
    remove_file(b, "identity.json");
    assert_int_equal(rmdir(b->dir), 0);
}

/* The answer as text; valid until the next call. */
static const char *send_plain(struct bed *b, const char *line, const char *key, const char *more)
{
    static char got[4096];
    struct net_mem *m = net_connect(&b->w);
    struct buf text;

    buf_init(&text, 8 * KIB);
    (void)buf_addf(&text, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s%s%s\r\n",
                   line, key ? "Authorization: Bearer " : "", key ? key : "", key ? "\r\n" : "",
                   more);
    net_send(m, buf_str(&text));
    buf_deinit(&text);
    net_pass(&b->w, 20);
    (void)snprintf(got, sizeof(got), "%s", net_got(m));
    net_mem_free(m);
    return got;
}

static void assert_has(const char *text, const char *part)
{
    if (!strcasestr(text, part))
        fail_msg("no \"%s\" in: %s", part, text);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static uint32_t refs_of(const struct bed *b, const char *key)
{
    struct key_text t;

    assert_true(key_text_parse(str_c(key), &t));
    return registry_find(identity_registry(b->identity), t.id)->refs;
}

static void test_handler(void **state)
{
    struct bed b;
    char want[80];

    (void)state;
    bed_init(&b, "require");
    uint32_t refs = refs_of(&b, b.push);
    assert_has(send_plain(&b, "POST /ingest", b.push, ""), "HTTP/1.1 200 ");
    (void)snprintf(want, sizeof(want), "key:%.12s shop 1", b.push + 5);
    assert_string_equal(seen, want);
    assert_has(send_plain(&b, "GET /labels", b.read, "X-Scope-OrgID: mill|bank\r\n"),
               "HTTP/1.1 200 ");
    (void)snprintf(want, sizeof(want), "key:%.12s bank 2", b.read + 5);
    assert_string_equal(seen, want);
    /* of no tenant: what the header says does not become one */
    assert_has(
        send_plain(&b, "POST /version.v1.Version/Version", b.push, "X-Scope-OrgID: bank\r\n"),
        "HTTP/1.1 200 ");
    (void)snprintf(want, sizeof(want), "key:%.12s / 1", b.push + 5);
    assert_string_equal(seen, want);
    assert_has(send_plain(&b, "GET /", NULL, ""), "HTTP/1.1 200 ");
    assert_string_equal(seen, "anonymous - 0");
    assert_int_equal(calls, 4);
    assert_int_equal(refs_of(&b, b.push), refs);
    bed_deinit(&b);
}

static void test_refusals(void **state)
{
    struct bed b;
    const char *got;

    (void)state;
    bed_init(&b, "require");
    got = send_plain(&b, "POST /ingest", NULL, "");
    assert_has(got, "HTTP/1.1 401 ");
    assert_has(got, "\r\nWWW-Authenticate: Bearer\r\n");
    assert_has(got, "{\"code\":\"unauthenticated\",\"message\":\"");
    assert_has(got, "\"reason\":\"none\"}");
    got = send_plain(&b, "POST /ingest", b.read, "X-Scope-OrgID: shop\r\n");
    assert_has(got, "HTTP/1.1 403 ");
    assert_has(got, "{\"code\":\"permission_denied\",\"message\":\"");
    assert_has(got, "\"reason\":\"role\"}");
    got = send_plain(&b, "POST /ingest", b.push, "X-Scope-OrgID: bank\r\n");
    assert_has(got, "\"reason\":\"tenant\"}");
    got = send_plain(&b, "GET /labels", b.read, "");
    assert_has(got, "HTTP/1.1 400 ");
    assert_has(got, "\"reason\":\"no_tenant\"}");
    for (int i = 0; i < 12; i++)
        got = send_plain(&b, "POST /ingest", b.dir, "");
    assert_has(got, "HTTP/1.1 429 ");
    assert_has(got, "\r\nRetry-After: ");
    assert_has(got, "{\"code\":\"resource_exhausted\"");
    assert_int_equal(calls, 0);
    assert_has(send_plain(&b, "POST /ingest", b.push, ""), "HTTP/1.1 200 ");
    bed_deinit(&b);
}

static void test_grpc(void **state)
{
    struct bed b;
    char right[KEY_TEXT_LEN + 8], other[KEY_TEXT_LEN + 8];
    struct net_h2_stream *s;

    (void)state;
    bed_init(&b, "require");
    (void)snprintf(right, sizeof(right), "Bearer %s", b.push);
    (void)snprintf(other, sizeof(other), "Bearer %s", b.read);
    struct net_h2 *c = net_h2_connect(&b.w, false, 0);
    const struct {
        const char *proof, *status;
        int times;
    } rows[] = {
        { other, "grpc-status: 7\n", 1 },
        { "Bearer x", "grpc-status: 16\n", 10 },
        { "Bearer x", "grpc-status: 8\n", 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int k = 0; k < rows[i].times; k++) {
            const char *const head[] = { "content-type",
                                         "application/grpc",
                                         "authorization",
                                         rows[i].proof,
                                         "x-scope-orgid",
                                         "shop",
                                         NULL };
            s = net_h2_request(c, "POST", PUSH, head, STR("\0\0\0\0\0"));
            assert_int_equal(s->status, 200);
            assert_true(s->ended);
            assert_has(s->headers, rows[i].status);
            assert_has(s->headers, "grpc-message: ");
        }
    }
    assert_int_equal(calls, 0);
    /* the connection is still good, and a plain route does not speak gRPC */
    const char *const good[] = { "content-type", "application/grpc", "authorization", right, NULL };
    s = net_h2_request(c, "POST", PUSH, good, STR("\0\0\0\0\0"));
    assert_int_equal(s->status, 200);
    assert_int_equal(calls, 1);
    const char *const plain[] = {
        "content-type", "application/grpc", "authorization", other, "x-scope-orgid", "shop", NULL
    };
    s = net_h2_request(c, "POST", "/ingest", plain, STR("x"));
    assert_int_equal(s->status, 403);
    net_h2_finish(c);
    bed_deinit(&b);
}

static void test_modes(void **state)
{
    static const char *const modes[] = { "off", "observe" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct bed b;
        struct buf text;

        bed_init(&b, modes[i]);
        /* a right key changes nothing, either: the header names the tenant, as it did */
        assert_has(send_plain(&b, "POST /ingest", b.push, "X-Scope-OrgID: bank\r\n"), " 200 ");
        assert_string_equal(seen, "anonymous bank 1");
        assert_has(send_plain(&b, "POST /ingest", b.push, ""), " 200 ");
        assert_string_equal(seen, "anonymous - 0");
        assert_has(send_plain(&b, "GET /config", NULL, ""), " 200 ");
        identity_tick(b.identity);
        buf_init(&text, MIB);
        metrics_render(b.w.metrics, &text);
        (void)buf_add_c(&text, '\0');
        assert_int_equal(strstr(text.ptr, "embertree_identity_") != NULL, i);
        if (i) {
            assert_has(text.ptr, "would_refuse_total{route=\"/ingest\",reason=\"tenant\"} 1\n");
            assert_has(text.ptr, "would_refuse_total{route=\"/config\",reason=\"none\"} 1\n");
            assert_has(text.ptr, "embertree_identity_keys 2\n");
            assert_has(text.ptr, "embertree_identity_blocks 0\n");
        }
        buf_deinit(&text);
        bed_deinit(&b);
    }
}

static struct str on_token(void *cookie, const struct http_req *r)
{
    (void)cookie;
    return str_eqc(http_header(r, "Authorization"), "Bearer agent") ? STR("mill") : STR_NULL;
}

/* With etcd the pepper lies where the records do, so that it can sign nothing. */
static void test_wants_cluster_key(void **state)
{
    struct coord away = { 0 };
    struct identity_conf conf = { .mode = "require", .file = "", .keys_per_tenant = 10 };
    struct identity_opts o = { .conf = &conf, .env = env_real(), .coord = &away };
    struct identity *i = NULL;
    struct err e;

    (void)state;
    assert_int_equal(identity_start(&o, &i, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "cluster.key_file"));
    assert_null(i);
}

static void test_tokens(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b, "require");
    assert_has(send_plain(&b, "POST /ingest", "agent", ""), " 401 ");
    identity_tokens(b.identity, on_token, NULL);
    for (int i = 0; i < 3; i++) {
        assert_has(send_plain(&b, "POST /ingest", "agent", ""), " 200 ");
        assert_string_equal(seen, "option:distributor.tokens_file mill 1");
    }
    assert_has(send_plain(&b, "POST /ingest", "agent", "X-Scope-OrgID: shop\r\n"), " 403 ");
    assert_has(send_plain(&b, "GET /labels", "agent", ""), " 403 ");
    assert_has(send_plain(&b, "POST /ingest", identity_own_token(b.identity), ""), " 200 ");
    assert_string_equal(seen, "option:selfprof own 1");
    identity_tokens(b.identity, NULL, NULL);
    assert_has(send_plain(&b, "POST /ingest", "agent", ""), " 401 ");
    bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handler), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_grpc),    cmocka_unit_test(test_modes),
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_wants_cluster_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
