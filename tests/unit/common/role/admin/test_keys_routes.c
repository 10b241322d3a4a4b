/* SPDX-License-Identifier: Apache-2.0
 *
 * The API of keys over a server in memory: what is answered, and that no caller gets hold of more
 * than it has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <string.h>

#include "common/base/mem.h"
#include "common/net/http_server.h"
#include "common/net/json_in.h"
#include "common/obs/log.h"
#include "common/role/admin/keys_routes.h"
#include "common/role/core/doors.h"
#include "tests/lib/net/net_mem.h"

#define ANSWER_MAX 16384
#define HASH       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define WEB_PUSH   "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"web\"],\"roles\":[\"push\"]}]}"
#define SHOP_PUSH  "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]}"
#define FILE_ID    "F3fT9aQz07Lm"

struct disk {
    struct fs fs;
    struct buf bytes;
    bool there, fails;
};
struct bed {
    struct net_world w;
    struct env_sim env;
    struct disk disk;
    struct registry *registry;
    struct keystore *store;
    struct keys_routes routes;
    struct key_record *who; /* of the next request; NULL: the operator */
    int status;
    char body[ANSWER_MAX];
};

static int disk_read(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    const struct disk *d = container_of((struct fs *)(uintptr_t)fs, struct disk, fs);

    if (!d->there)
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    (void)buf_add_str(out, buf_str(&d->bytes));
    return 0;
}

static int disk_write(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    struct disk *d = container_of((struct fs *)(uintptr_t)fs, struct disk, fs);

    if (d->fails)
        return err_set(e, ERR_IO, "%s: no space left", path);
    d->there = true;
    buf_reset(&d->bytes);
    (void)buf_add_str(&d->bytes, data);
    return 0;
}

static bool on_admit(void *cookie, struct http_req *r, const struct http_door *door)
{
    const struct bed *b = cookie;

    (void)door;
    r->identity = b->who;
    return true;
}

static void put_file_key(struct bed *b)
{
    struct key_record *r;
    struct err e;

    assert_int_equal(
        record_key_read(STR("{\"id\":\"" FILE_ID "\",\"hash\":\"" HASH
                            "\",\"name\":\"in git\",\"grants\":[{\"tenants\":[\"shop\"],"
                            "\"roles\":[\"push\"]}]}"),
                        &r, &e),
        0);
    r->from_file = true;
    registry_set_file(b->registry, &r, 1);
    record_key_unref(r);
}

static void bed_open(struct bed *b)
{
    const uint8_t none[KEY_PEPPER_BYTES] = { 0 };
    struct err e;

    memset(b, 0, sizeof(*b));
    net_world_init(&b->w);
    clock_fake_jump(&b->w.clock, INT64_C(1700000000000));
    b->w.server->o.doors = doors(&b->w.server->o.doors_len);
    b->w.server->o.admit = on_admit;
    b->w.server->o.admit_cookie = b;
    b->disk.fs = *fs_real();
    b->disk.fs.read_file = disk_read;
    b->disk.fs.write_file = disk_write;
    buf_init(&b->disk.bytes, MIB);
    env_sim_init(&b->env, &b->w.clock.clock, &b->disk.fs, 3);
    b->registry = registry_new(none);
    struct keystore_opts o = {
        .env = &b->env.env, .loop = b->w.loop, .dir = "/data", .registry = b->registry
    };
    assert_int_equal(keystore_new(&o, &b->store, &e), 0);
    b->routes = (struct keys_routes){ .env = &b->env.env,
                                      .registry = b->registry,
                                      .store = b->store,
                                      .keys_per_tenant = 3,
                                      .file = "/etc/keys.yaml" };
    put_file_key(b);
    keys_routes(&b->routes, b->w.server);
}

static void bed_end(struct bed *b)
{
    record_key_unref(b->who);
    keystore_free(b->store);
    registry_free(b->registry);
    buf_deinit(&b->disk.bytes);
    net_world_deinit(&b->w);
}

static int ask(struct bed *b, const char *method, const char *path, const char *body)
{
    struct net_mem *m = net_connect(&b->w);
    uint64_t status;
    struct buf text;

    buf_init(&text, 128 * KIB);
    (void)buf_addf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                   method, path, strlen(body), body);
    net_send(m, buf_str(&text));
    buf_deinit(&text);
    net_pass(&b->w, 1000);
    const char *got = net_got(m);
    const char *at = strstr(got, "\r\n\r\n");
    assert_non_null(at);
    assert_true(str_u64(str_n(got + 9, 3), &status));
    assert_true(strstr(got, "no-store") && strlen(at) < ANSWER_MAX);
    (void)snprintf(b->body, sizeof(b->body), "%s", at + 4);
    net_end(m, false);
    net_pass(&b->w, 10000);
    net_mem_free(m);
    b->status = (int)status;
    return b->status;
}

static void text_of(const struct bed *b, const char *name, char *to, size_t n)
{
    struct json_doc *doc;
    struct str s = STR("");
    struct err e;

    if (json_parse(str_c(b->body), &doc, &e))
        fail_msg("%s: %s", e.text, b->body);
    assert_int_equal(json_take_str(json_get(json_root(doc), name, NULL), name, &s, &e), 0);
    (void)snprintf(to, n, "%.*s", STR_ARG(s));
    json_doc_free(doc);
}

static enum credential_fault prove(struct bed *b, const char *key, struct key_record **ret)
{
    return registry_prove(b->registry, str_c(key), clock_wall_ms(&b->w.clock.clock), "10.0.0.1:1",
                          ret);
}

/* A key that may what `grants` says, as the operator makes it. */
static void make(struct bed *b, const char *grants, const char *more, char key[KEY_TEXT_LEN + 1])
{
    char body[2048];
    struct key_record *was = b->who;

    b->who = NULL;
    (void)snprintf(body, sizeof(body), "{\"name\":\"n\",\"grants\":%s%s}", grants, more);
    if (ask(b, "POST", "/api/v1/keys", body) != 200)
        fail_msg("%s", b->body);
    text_of(b, "key", key, KEY_TEXT_LEN + 1);
    assert_int_equal(strlen(key), KEY_TEXT_LEN);
    b->who = was;
}

/* The next requests come from who holds such a key. */
static void become(struct bed *b, const char *grants, const char *more)
{
    char key[KEY_TEXT_LEN + 1];
    struct key_record *r;

    make(b, grants, more, key);
    assert_int_equal(prove(b, key, &r), CREDENTIAL_OK);
    record_key_unref(b->who);
    b->who = record_key_ref(r);
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void test_life(void **state)
{
    char key[KEY_TEXT_LEN + 1], next[KEY_TEXT_LEN + 1], id[32], next_id[32], path[96];
    struct key_record *r;
    struct bed b;

    (void)state;
    bed_open(&b);
    assert_int_equal(ask(&b, "POST", "/api/v1/keys",
                         "{\"name\":\"agents\",\"owner\":\"team-a\",\"valid_for\":\"30d\","
                         "\"nets\":[\"10.0.0.0/8\"],\"grants\":[{\"tenants\":[\"shop\"],"
                         "\"roles\":[\"push\"],\"set\":{\"team\":\"a\"}}]}"),
                     200);
    text_of(&b, "key", key, sizeof(key));
    text_of(&b, "id", id, sizeof(id));
    assert_int_equal(prove(&b, key, &r), CREDENTIAL_OK);
    assert_true(str_eqc(r->name, "agents") && str_eqc(r->owner, "team-a") && r->nets_len == 1);
    assert_true(str_eqc(r->made_by, "operator") && r->grants.ptr[0].set.len == 1);
    int64_t now = clock_wall_ms(&b.w.clock.clock);
    assert_true(r->until_ms > now + INT64_C(29) * 86400000 &&
                r->until_ms <= now + INT64_C(30) * 86400000);
    /* The list has it, its last use, and nothing of its secret. */
    assert_int_equal(ask(&b, "GET", "/api/v1/keys", ""), 200);
    assert_true(strstr(b.body, id) && strstr(b.body, "\"name\":\"agents\""));
    assert_null(strstr(b.body, "hash"));
    assert_null(strstr(b.body, key + 4 + 1 + KEY_ID_LEN + 1));
    assert_null(strstr(b.body, "\"revoked_at\""));
    assert_int_equal(ask(&b, "GET", "/api/v1/keys?tenant=web", ""), 200);
    assert_null(strstr(b.body, id));
    /* Its successor: both are good, then the old one ends. */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%s/rotate?overlap=1h", id);
    assert_int_equal(ask(&b, "POST", path, ""), 200);
    text_of(&b, "key", next, sizeof(next));
    text_of(&b, "id", next_id, sizeof(next_id));
    assert_int_equal(prove(&b, next, &r), CREDENTIAL_OK);
    assert_true(str_eqc(r->replaces, id) && r->nets_len == 1 && str_eqc(r->name, "agents"));
    assert_int_equal(prove(&b, key, &r), CREDENTIAL_OK);
    clock_fake_jump(&b.w.clock, 3600000 + REGISTRY_SKEW_MS + 1000);
    assert_int_equal(prove(&b, key, &r), CREDENTIAL_EXPIRED);
    assert_int_equal(prove(&b, next, &r), CREDENTIAL_OK);
    assert_int_equal(ask(&b, "POST", path, ""), 409); /* it has ended */
    /* Revoked, for good. */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%s?why=lost", next_id);
    assert_int_equal(ask(&b, "DELETE", path, ""), 200);
    assert_non_null(strstr(b.body, "\"revoked\":true"));
    assert_int_equal(prove(&b, next, &r), CREDENTIAL_REVOKED);
    assert_int_equal(ask(&b, "DELETE", path, ""), 200);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%s/rotate", next_id);
    assert_int_equal(ask(&b, "POST", path, ""), 409);
    assert_int_equal(ask(&b, "GET", "/api/v1/keys?tenant=shop", ""), 200);
    assert_true(strstr(b.body, "\"why\":\"lost\"") && strstr(b.body, "\"revoked_at\":"));
    /* Not the secret in the file either. */
    assert_false(str_contains(buf_str(&b.disk.bytes), str_c(next + 4 + 1 + KEY_ID_LEN + 1)));
    bed_end(&b);
}

static void test_refused(void **state)
{
#define ONE "\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]"
    static const struct {
        const char *name, *method, *path, *body, *want;
        int status;
    } rows[] = {
        { "no JSON", "POST", "/api/v1/keys", "nonsense", "", 400 },
        { "a list", "POST", "/api/v1/keys", "[]", "object", 400 },
        { "no name", "POST", "/api/v1/keys", "{" ONE "}", "name is missing", 400 },
        { "no grants", "POST", "/api/v1/keys", "{\"name\":\"n\"}", "grants", 400 },
        { "empty grants", "POST", "/api/v1/keys", "{\"name\":\"n\",\"grants\":[]}", "grants", 400 },
        { "a wrong role", "POST", "/api/v1/keys",
          "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"fly\"]}]}", "fly",
          400 },
        { "a typing error", "POST", "/api/v1/keys", "{\"name\":\"n\",\"untill\":1," ONE "}",
          "untill", 400 },
        { "two ends", "POST", "/api/v1/keys",
          "{\"name\":\"n\",\"until\":9999999999999,\"valid_for\":\"1d\"," ONE "}", "not both",
          400 },
        { "past", "POST", "/api/v1/keys", "{\"name\":\"n\",\"until\":1000," ONE "}", "passed",
          400 },
        { "no time at all", "POST", "/api/v1/keys",
          "{\"name\":\"n\",\"valid_for\":\"soon\"," ONE "}", "duration", 400 },
        { "a life of ages", "POST", "/api/v1/keys",
          "{\"name\":\"n\",\"valid_for\":\"999999d\"," ONE "}", "duration", 400 },
        { "a bad network", "POST", "/api/v1/keys", "{\"name\":\"n\",\"nets\":[\"x\"]," ONE "}",
          "nets[0]", 400 },
        { "networks as text", "POST", "/api/v1/keys", "{\"name\":\"n\",\"nets\":\"::1\"," ONE "}",
          "nets", 400 },
        { "an unknown id", "DELETE", "/api/v1/keys/k3fT9aQz07Lm", "", "no key has the id", 404 },
        { "no id", "DELETE", "/api/v1/keys/x/y", "", "no key has the id", 404 },
        { "another verb", "POST", "/api/v1/keys/k3fT9aQz07Lm/paint", "", "rotate", 404 },
        { "to rotate it there", "POST", "/api/v1/keys/k3fT9aQz07Lm/rotate", "", "no key", 404 },
        { "one of the file", "DELETE", "/api/v1/keys/" FILE_ID, "", "/etc/keys.yaml", 409 },
        { "to rotate it", "POST", "/api/v1/keys/" FILE_ID "/rotate", "", "/etc/keys.yaml", 409 },
    };
    struct bed b;

    (void)state;
    bed_open(&b);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int got = ask(&b, rows[i].method, rows[i].path, rows[i].body);
        if (got != rows[i].status || !strstr(b.body, rows[i].want))
            fail_msg("%s: %d %s", rows[i].name, got, b.body);
    }
    assert_int_equal(registry_len(b.registry), 1); /* none was made */
    bed_end(&b);
}

/* ---- no more than one has -------------------------------------------------------------------- */

#define ADMIN_SHOP "[{\"tenants\":[\"shop\"],\"roles\":[\"tenant-admin\"]}]"

static void test_no_more(void **state)
{
    static const struct {
        const char *name, *body;
        int status;
    } rows[] = {
        { "of its tenant", SHOP_PUSH, 200 },
        { "its own rights",
          "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"tenant-admin\"]}]}",
          200 },
        { "of another tenant",
          "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"web\"],\"roles\":[\"push\"]}]}", 403 },
        { "of both",
          "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"shop\",\"web\"],\"roles\":[\"read\"]}]}",
          403 },
        { "of all", "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"*\"],\"roles\":[\"read\"]}]}",
          403 },
        { "of the server",
          "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"*\"],\"roles\":[\"server-admin\"]}]}", 403 },
    };
    struct bed b;

    (void)state;
    bed_open(&b);
    b.routes.keys_per_tenant = 100;
    become(&b, ADMIN_SHOP, "");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (ask(&b, "POST", "/api/v1/keys", rows[i].body) != rows[i].status)
            fail_msg("%s: %d %s", rows[i].name, b.status, b.body);
    bed_end(&b);
}

/* A key of another tenant is not there for this one, whatever it tries. */
static void test_others_keys(void **state)
{
    char key[KEY_TEXT_LEN + 1], id[KEY_ID_LEN + 1], path[96];
    struct key_record *r;
    struct bed b;

    (void)state;
    bed_open(&b);
    make(&b, "[{\"tenants\":[\"web\"],\"roles\":[\"push\"]}]", "", key);
    (void)snprintf(id, sizeof(id), "%.*s", KEY_ID_LEN, key + 5);
    become(&b, ADMIN_SHOP, "");
    assert_int_equal(ask(&b, "GET", "/api/v1/keys", ""), 200);
    assert_null(strstr(b.body, id));
    assert_non_null(strstr(b.body, FILE_ID)); /* of its tenant */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%s", id);
    assert_int_equal(ask(&b, "DELETE", path, ""), 404);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%s/rotate", id);
    assert_int_equal(ask(&b, "POST", path, ""), 404);
    assert_int_equal(prove(&b, key, &r), CREDENTIAL_OK);
    /* Its own it may end. */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s", STR_ARG(b.who->id));
    assert_int_equal(ask(&b, "DELETE", path, ""), 200);
    bed_end(&b);
}

/* Neither longer nor from further away. */
static void test_end_and_nets(void **state)
{
    static const struct {
        const char *name, *more;
        int status;
    } rows[] = {
        { "without an end", ",\"nets\":[\"10.1.0.0/16\"]", 403 },
        { "longer", ",\"valid_for\":\"2d\",\"nets\":[\"10.1.0.0/16\"]", 403 },
        { "from anywhere", ",\"valid_for\":\"1h\"", 403 },
        { "from further", ",\"valid_for\":\"1h\",\"nets\":[\"10.0.0.0/7\"]", 403 },
        { "from elsewhere", ",\"valid_for\":\"1h\",\"nets\":[\"10.1.0.0/16\",\"11.0.0.0/8\"]",
          403 },
        { "within", ",\"valid_for\":\"1h\",\"nets\":[\"10.1.0.0/16\",\"10.255.0.1\"]", 200 },
    };
    char body[1024], path[96];
    struct bed b;

    (void)state;
    bed_open(&b);
    b.routes.keys_per_tenant = 100;
    become(&b, ADMIN_SHOP, ",\"valid_for\":\"1d\",\"nets\":[\"10.0.0.0/8\"]");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        (void)snprintf(
            body, sizeof(body),
            "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]%s}",
            rows[i].more);
        if (ask(&b, "POST", "/api/v1/keys", body) != rows[i].status)
            fail_msg("%s: %d %s", rows[i].name, b.status, b.body);
    }
    /* Its own successor ends when it does, or it would live on by rotating itself. */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s/rotate?valid_for=9d", STR_ARG(b.who->id));
    assert_int_equal(ask(&b, "POST", path, ""), 403);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s/rotate", STR_ARG(b.who->id));
    assert_int_equal(ask(&b, "POST", path, ""), 200);
    bed_end(&b);
}

/* ---- bounds and faults ----------------------------------------------------------------------- */

static void test_limit(void **state)
{
    char key[KEY_TEXT_LEN + 1], path[96];
    struct bed b;

    (void)state;
    bed_open(&b); /* the file has one of three */
    make(&b, "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]", "", key);
    make(&b, "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]", "", key);
    assert_int_equal(ask(&b, "POST", "/api/v1/keys", SHOP_PUSH), 400);
    assert_non_null(strstr(b.body, "identity.keys_per_tenant"));
    make(&b, "[{\"tenants\":[\"web\"],\"roles\":[\"push\"]}]", "", key); /* of others: none */
    assert_int_equal(ask(&b, "POST", "/api/v1/keys",
                         "{\"name\":\"n\",\"grants\":[{\"tenants\":[\"web\",\"shop\"],"
                         "\"roles\":[\"push\"]}]}"),
                     400);
    /* A revoked key counts no more. */
    assert_int_equal(ask(&b, "GET", "/api/v1/keys?tenant=shop", ""), 200);
    const char *at = strstr(b.body, "\"id\":\"");
    while (at && strncmp(at + 6, FILE_ID, KEY_ID_LEN) == 0)
        at = strstr(at + 6, "\"id\":\"");
    assert_non_null(at);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s", KEY_ID_LEN, at + 6);
    assert_int_equal(ask(&b, "DELETE", path, ""), 200);
    make(&b, "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]", "", key);
    /* At the limit a key can be rotated. */
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s/rotate", KEY_ID_LEN, key + 5);
    assert_int_equal(ask(&b, "POST", path, ""), 200);
    bed_end(&b);
}

/* Keys that were made and revoked stay as records, of which a cluster has a maximum: a tenant which
 * makes them in a loop is stopped, and others are not. */
static void test_churn(void **state)
{
    char key[KEY_TEXT_LEN + 1], path[96];
    struct bed b;

    (void)state;
    bed_open(&b);
    for (int i = 0; i < 30; i++) {
        make(&b, "[{\"tenants\":[\"web\"],\"roles\":[\"push\"]}]", "", key);
        (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s", KEY_ID_LEN, key + 5);
        assert_int_equal(ask(&b, "DELETE", path, ""), 200);
    }
    assert_int_equal(ask(&b, "POST", "/api/v1/keys", WEB_PUSH), 400);
    assert_non_null(strstr(b.body, "within a week"));
    make(&b, "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]", "", key);
    bed_end(&b);
}

static void test_disk(void **state)
{
    char key[KEY_TEXT_LEN + 1], path[96];
    struct key_record *r;
    struct bed b;

    (void)state;
    bed_open(&b);
    make(&b, "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]", "", key);
    b.disk.fails = true;
    assert_int_equal(ask(&b, "POST", "/api/v1/keys", SHOP_PUSH), 500);
    assert_null(strstr(b.body, "emb_k"));
    assert_int_equal(registry_len(b.registry), 2);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s/rotate", KEY_ID_LEN, key + 5);
    assert_int_equal(ask(&b, "POST", path, ""), 500);
    (void)snprintf(path, sizeof(path), "/api/v1/keys/%.*s", KEY_ID_LEN, key + 5);
    assert_int_equal(ask(&b, "DELETE", path, ""), 500);
    assert_int_equal(prove(&b, key, &r), CREDENTIAL_REVOKED); /* here, until it ends */
    bed_end(&b);
}

static void test_off(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    b.routes.store = NULL;
    assert_int_equal(ask(&b, "GET", "/api/v1/keys", ""), 501);
    assert_int_equal(ask(&b, "POST", "/api/v1/keys", SHOP_PUSH), 501);
    assert_int_equal(ask(&b, "DELETE", "/api/v1/keys/" FILE_ID, ""), 501);
    assert_int_equal(ask(&b, "POST", "/api/v1/keys/" FILE_ID "/rotate", ""), 501);
    assert_non_null(strstr(b.body, "identity.mode"));
    bed_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_more),      cmocka_unit_test(test_others_keys),
        cmocka_unit_test(test_end_and_nets), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_churn),        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_off),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
