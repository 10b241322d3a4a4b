/* SPDX-License-Identifier: Apache-2.0
 *
 * What every coordination service must do, done to the simulated one and to a real etcd; and what
 * etcd alone can do to us: die, stand still, forget its history, ask for a password.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/cluster/coord/coord_etcd.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/net/client/http_client.h"
#include "tests/lib/net/etcd_run.h"

enum { GUARD_MS = 30000 };

struct reply {
    bool ended, done;
    int code;
    int64_t rev, lease;
    uint64_t ttl_ms;
    struct buf keys; /* "key=value;" of each */
    char text[ERR_TEXT_MAX];
};
struct bed {
    struct loop *loop;
    struct timer *guard, *look;
    struct coord_site *site; /* simulated */
    struct etcd_run *etcd;   /* real */
    struct coord *coord;
    struct buf log; /* of the watch: "[k=v;..]" for all, "+k=v;" and "-k;" for events */
    uint64_t heard, alls;
    bool (*until)(struct bed *b);
    struct reply *waits;
};

/* ---- running the loop ------------------------------------------------------------------------ */

static void on_guard(void *cookie)
{
    const struct bed *b = cookie;
    struct str log = buf_str(&b->log);

    fail_msg("nothing came for %d ms; the watch saw all %" PRIu64 " times, %zu bytes, at last %.*s",
             GUARD_MS, b->alls, log.len,
             STR_ARG(str_sub(log, log.len - MIN(log.len, 700), log.len)));
}

static void on_look(void *cookie)
{
    struct bed *b = cookie;

    if (b->until(b))
        loop_stop(b->loop);
}

static void run_until(struct bed *b, bool (*until)(struct bed *b))
{
    b->until = until;
    loop_timer_start(b->guard, GUARD_MS, 0);
    loop_timer_start(b->look, 1, 5);
    loop_run(b->loop);
    loop_timer_stop(b->guard);
    loop_timer_stop(b->look);
}

static bool has_ended(struct bed *b)
{
    return b->waits->ended;
}

static void on_reply(void *cookie, const struct coord_reply *r)
{
    struct reply *to = cookie;

    assert_false(to->ended);
    to->ended = true;
    to->code = r->err ? r->err->code : 0;
    if (r->err)
        (void)snprintf(to->text, sizeof(to->text), "%s", r->err->text);
    to->done = r->done;
    to->rev = r->rev;
    to->lease = r->lease;
    to->ttl_ms = r->ttl_ms;
    for (size_t i = 0; i < r->kvs_len; i++)
        buf_addf(&to->keys, "%.*s=%.*s;", STR_ARG(r->kvs[i].key), STR_ARG(r->kvs[i].value));
}

static void reply_init(struct bed *b, struct reply *r)
{
    memset(r, 0, sizeof(*r));
    buf_init(&r->keys, 16 * MIB);
    b->waits = r;
}

static void list(struct bed *b, const char *prefix, struct reply *r)
{
    reply_init(b, r);
    coord_list(b->coord, str_c(prefix), on_reply, r);
    run_until(b, has_ended);
}

static void put(struct bed *b, const char *key, const char *value, int64_t lease, int64_t rev,
                struct reply *r)
{
    struct coord_compare cmp = { .key = str_c(key), .rev = rev };
    struct coord_change chg = {
        .key = str_c(key), .value = str_c(value), .lease = lease, .del = !value
    };

    reply_init(b, r);
    coord_txn(
        b->coord,
        &(struct coord_txn){ .cmp = &cmp, .cmp_len = rev >= 0 ? 1 : 0, .chg = &chg, .chg_len = 1 },
        on_reply, r);
    run_until(b, has_ended);
}

static void grant(struct bed *b, uint64_t ttl_ms, struct reply *r)
{
    reply_init(b, r);
    coord_grant(b->coord, ttl_ms, on_reply, r);
    run_until(b, has_ended);
    if (r->code)
        fail_msg("%s", r->text);
}

static void keep(struct bed *b, int64_t lease, struct reply *r)
{
    reply_init(b, r);
    coord_keep(b->coord, lease, on_reply, r);
    run_until(b, has_ended);
}

/* ---- a bed ----------------------------------------------------------------------------------- */

static bool open_bed(struct bed *b, bool real)
{
    struct err e;

    *b = (struct bed){ .heard = 0 };
    b->loop = loop_new(clock_real());
    b->guard = loop_timer_new(b->loop, on_guard, b);
    b->look = loop_timer_new(b->loop, on_look, b);
    buf_init(&b->log, MIB);
    if (!real) {
        b->site = coord_site_new(b->loop, 1);
        b->coord = coord_sim_new(b->site);
        return true;
    }
    b->etcd = etcd_run_new();
    if (!b->etcd)
        return false;
    /* No process listens on the first endpoint: all calls must find the second. */
    const char *urls[] = { "http://127.0.0.1:1", etcd_run_url(b->etcd) };
    if (coord_etcd_new(&(struct coord_etcd_opts){ .loop = b->loop, .urls = urls, .urls_len = 2 },
                       &b->coord, &e))
        fail_msg("%s", e.text);
    struct reply r;
    list(b, "/find/", &r);
    assert_int_equal(r.code, 0);
    buf_deinit(&r.keys);
    return true;
}

static void close_bed(struct bed *b)
{
    coord_free(b->coord);
    coord_site_free(b->site);
    etcd_run_free(b->etcd);
    loop_timer_free(b->guard);
    loop_timer_free(b->look);
    buf_deinit(&b->log);
    loop_free(b->loop);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static void check_transactions(struct bed *b)
{
    struct coord_compare cmp[2] = { { .key = STR("/t/a") }, { .key = STR("/t/b") } };
    struct coord_change chg[3] = { { .key = STR("/t/a"), .value = STR("2") },
                                   { .key = STR("/t/c"), .value = STR("\x01\xff<\"") },
                                   { .key = STR("/t/d"), .del = true } };
    struct reply r;
    int64_t first;

    put(b, "/t/a", "1", 0, 0, &r);
    assert_true(r.done);
    first = r.rev;
    buf_deinit(&r.keys);
    put(b, "/t/a", "x", 0, 0, &r);
    assert_int_equal(r.code, 0);
    assert_false(r.done);
    buf_deinit(&r.keys);
    put(b, "/t/d", "", 0, -1, &r);
    assert_true(r.done);
    assert_true(r.rev > first);
    buf_deinit(&r.keys);

    cmp[0].rev = first;
    reply_init(b, &r);
    coord_txn(b->coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = chg, .chg_len = 3 },
              on_reply, &r);
    run_until(b, has_ended);
    assert_true(r.done);
    buf_deinit(&r.keys);
    /* The revision has moved, that of the creation has not. */
    reply_init(b, &r);
    coord_txn(b->coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = 1, .chg = chg, .chg_len = 1 },
              on_reply, &r);
    run_until(b, has_ended);
    assert_false(r.done);
    buf_deinit(&r.keys);
    cmp[0].create = true;
    reply_init(b, &r);
    coord_txn(b->coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = 1, .chg = chg, .chg_len = 1 },
              on_reply, &r);
    run_until(b, has_ended);
    assert_true(r.done);
    buf_deinit(&r.keys);
    list(b, "/t/", &r);
    assert_true(str_eq(buf_str(&r.keys), STR("/t/a=2;/t/c=\x01\xff<\";")));
    buf_deinit(&r.keys);
}

static void check_leases(struct bed *b)
{
    struct reply r;
    int64_t lease;

    grant(b, 5000, &r);
    lease = r.lease;
    assert_true(r.ttl_ms >= 5000);
    buf_deinit(&r.keys);
    put(b, "/l/a", "1", lease, 0, &r);
    assert_true(r.done);
    buf_deinit(&r.keys);
    keep(b, lease, &r);
    assert_true(r.ttl_ms > 0);
    buf_deinit(&r.keys);
    reply_init(b, &r);
    coord_revoke(b->coord, lease, on_reply, &r);
    run_until(b, has_ended);
    assert_int_equal(r.code, 0);
    buf_deinit(&r.keys);
    list(b, "/l/", &r);
    assert_int_equal(r.keys.len, 0);
    buf_deinit(&r.keys);
    keep(b, lease, &r);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.ttl_ms, 0);
    buf_deinit(&r.keys);
    put(b, "/l/b", "1", lease, 0, &r);
    assert_int_equal(r.code, ERR_NOT_FOUND);
    buf_deinit(&r.keys);
}

/* ---- watches --------------------------------------------------------------------------------- */

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct bed *b = cookie;

    assert_true(rev > 0);
    b->alls++;
    buf_addf(&b->log, "[");
    for (size_t i = 0; i < n; i++)
        buf_addf(&b->log, "%.*s=%.*s;", STR_ARG(kvs[i].key), STR_ARG(kvs[i].value));
    buf_addf(&b->log, "]");
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct bed *b = cookie;

    if (kv->deleted)
        buf_addf(&b->log, "-%.*s;", STR_ARG(kv->key));
    else
        buf_addf(&b->log, "+%.*s=%.*s;", STR_ARG(kv->key), STR_ARG(kv->value));
}

static void on_heard(void *cookie)
{
    ((struct bed *)cookie)->heard++;
}

static struct coord_watch *watch(struct bed *b, const char *prefix)
{
    struct coord_watch_opts o = {
        .prefix = str_c(prefix), .all = on_all, .event = on_event, .heard = on_heard, .cookie = b
    };

    return coord_watch(b->coord, &o);
}

static bool saw_all(struct bed *b)
{
    return b->alls > 0;
}

static bool saw_gone(struct bed *b)
{
    return str_ends(buf_str(&b->log), STR("-/w/end;"));
}

static bool heard_more(struct bed *b)
{
    return b->heard >= 3;
}

static void put_away(struct bed *b, const char *key, const char *value, int64_t lease)
{
    struct reply r;

    put(b, key, value, lease, -1, &r);
    if (r.code)
        fail_msg("%s", r.text);
    assert_true(r.done);
    buf_deinit(&r.keys);
}

static void check_watches(struct bed *b)
{
    struct coord_watch *w;
    struct reply r;

    put_away(b, "/w/a", "1", 0);
    put_away(b, "/x", "outside", 0);
    w = watch(b, "/w/");
    run_until(b, saw_all);
    put_away(b, "/w/b", "2", 0);
    put_away(b, "/w/a", "3", 0);
    put_away(b, "/w", "outside", 0);
    put_away(b, "/w/b", NULL, 0);
    /* A lease that is not kept alive. */
    grant(b, 1000, &r);
    put_away(b, "/w/end", "", r.lease);
    buf_deinit(&r.keys);
    run_until(b, saw_gone);
    if (!str_eq(buf_str(&b->log), STR("[/w/a=1;]+/w/b=2;+/w/a=3;-/w/b;+/w/end=;-/w/end;")))
        fail_msg("%.*s", STR_ARG(buf_str(&b->log)));
    b->heard = 0;
    run_until(b, heard_more);
    coord_unwatch(b->coord, w);
    buf_reset(&b->log);
    put_away(b, "/w/c", "4", 0);
    assert_int_equal(b->log.len, 0);
}

static void check_all(bool real)
{
    struct bed b;

    if (open_bed(&b, real)) {
        check_transactions(&b);
        check_leases(&b);
        check_watches(&b);
    }
    close_bed(&b);
}

static void test_sim(void **state)
{
    (void)state;
    check_all(false);
}

static void test_etcd(void **state)
{
    (void)state;
    check_all(true);
}

/* ---- etcd in trouble ------------------------------------------------------------------------- */

static bool saw_five(struct bed *b)
{
    return str_ends(buf_str(&b->log), STR("+/k/b=5;"));
}

/* A large number of large values comes whole, and a watch of many events in pieces. */
static bool saw_last(struct bed *b)
{
    return str_ends(buf_str(&b->log), STR("+/k/last=;"));
}

static void test_etcd_dies(void **state)
{
    (void)state;
    struct reply r;
    struct bed b;

    if (!open_bed(&b, true)) {
        close_bed(&b);
        return;
    }
    put_away(&b, "/k/a", "1", 0);
    (void)watch(&b, "/k/");
    run_until(&b, saw_all);
    put_away(&b, "/k/a", "2", 0);
    etcd_run_kill(b.etcd);
    list(&b, "/k/", &r);
    assert_true(r.code == ERR_UNAVAILABLE || r.code == ERR_TIMEOUT);
    buf_deinit(&r.keys);
    put(&b, "/k/a", "3", 0, -1, &r);
    assert_true(r.code == ERR_UNAVAILABLE || r.code == ERR_TIMEOUT);
    buf_deinit(&r.keys);
    etcd_run_start(b.etcd);
    /* Whichever endpoint comes first now, a few tries find the live one. */
    for (int i = 0; i < 20; i++) {
        put(&b, "/k/b", "5", 0, -1, &r);
        buf_deinit(&r.keys);
        if (!r.code)
            break;
    }
    assert_int_equal(r.code, 0);
    run_until(&b, saw_five);
    if (!str_eq(buf_str(&b.log), STR("[/k/a=1;]+/k/a=2;+/k/b=5;")))
        fail_msg("%.*s", STR_ARG(buf_str(&b.log)));
    char key[32];
    for (int i = 0; i < 300; i++) {
        (void)snprintf(key, sizeof(key), "/k/n%03d", i);
        put_away(&b, key, "value", 0);
    }
    put_away(&b, "/k/last", "", 0);
    run_until(&b, saw_last);
    close_bed(&b);
}

static int post(const struct etcd_run *etcd, const char *path, const char *body)
{
    const char *const headers[] = { "Content-Type: application/json" };
    struct http_client *c = http_client_new();
    struct http_client_reply reply = { 0 };
    char url[128];
    struct err e;

    (void)snprintf(url, sizeof(url), "%s%s", etcd_run_url(etcd), path);
    buf_init(&reply.body, MIB);
    struct http_client_req req = { .method = "POST",
                                   .url = url,
                                   .headers = headers,
                                   .headers_len = 1,
                                   .body = str_c(body),
                                   .timeout_ms = 5000 };
    if (http_client_do(c, &req, &reply, &e))
        fail_msg("%s", e.text);
    buf_deinit(&reply.body);
    http_client_free(c);
    return reply.status;
}

static bool saw_two_alls(struct bed *b)
{
    return b->alls == 2;
}

/* The history is compacted while etcd is stopped for us; the watch begins from the start. */
static void test_etcd_compacts(void **state)
{
    (void)state;
    char body[64];
    struct reply r;
    struct bed b;

    if (!open_bed(&b, true)) {
        close_bed(&b);
        return;
    }
    put_away(&b, "/k/a", "1", 0);
    (void)watch(&b, "/k/");
    run_until(&b, saw_all);
    etcd_run_kill(b.etcd);
    /* While the loop does not run the watch sees nothing: not the death, not the changes. */
    etcd_run_start(b.etcd);
    assert_int_equal(post(b.etcd, "/v3/kv/put", "{\"key\":\"L2svYg==\",\"value\":\"Mg==\"}"), 200);
    assert_int_equal(post(b.etcd, "/v3/kv/put", "{\"key\":\"L2svYg==\",\"value\":\"Mw==\"}"), 200);
    assert_int_equal(post(b.etcd, "/v3/kv/put", "{\"key\":\"L2svYg==\",\"value\":\"NA==\"}"), 200);
    /* Revisions begin with 1, and one change came before these three. */
    (void)snprintf(body, sizeof(body), "{\"revision\":\"%d\",\"physical\":true}", 5);
    assert_int_equal(post(b.etcd, "/v3/kv/compaction", body), 200);
    run_until(&b, saw_two_alls);
    if (!str_eq(buf_str(&b.log), STR("[/k/a=1;][/k/a=1;/k/b=4;]")))
        fail_msg("%.*s", STR_ARG(buf_str(&b.log)));
    list(&b, "/k/", &r);
    assert_int_equal(r.code, 0);
    buf_deinit(&r.keys);
    close_bed(&b);
}

/* An etcd that does not answer ends calls by their deadline, and is found again when it runs. */
static void test_etcd_stands_still(void **state)
{
    (void)state;
    struct reply r;
    struct bed b;

    if (!open_bed(&b, true)) {
        close_bed(&b);
        return;
    }
    etcd_run_stop(b.etcd, true);
    put(&b, "/s", "1", 0, -1, &r);
    assert_int_equal(r.code, ERR_TIMEOUT);
    buf_deinit(&r.keys);
    etcd_run_stop(b.etcd, false);
    list(&b, "/s", &r);
    assert_int_equal(r.code, 0);
    buf_deinit(&r.keys);
    close_bed(&b);
}

static struct coord *log_in(struct bed *b, const char *password)
{
    const char *urls[] = { etcd_run_url(b->etcd) };
    struct coord *c;
    struct err e;

    assert_int_equal(coord_etcd_new(&(struct coord_etcd_opts){ .loop = b->loop,
                                                               .urls = urls,
                                                               .urls_len = 1,
                                                               .user = "root",
                                                               .password = password },
                                    &c, &e),
                     0);
    return c;
}

static void test_etcd_asks_for_a_password(void **state)
{
    (void)state;
    struct reply r;
    struct bed b;

    if (!open_bed(&b, true)) {
        close_bed(&b);
        return;
    }
    assert_int_equal(post(b.etcd, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"pw\"}"),
                     200);
    assert_int_equal(post(b.etcd, "/v3/auth/role/add", "{\"name\":\"root\"}"), 200);
    assert_int_equal(post(b.etcd, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"),
                     200);
    assert_int_equal(post(b.etcd, "/v3/auth/enable", "{}"), 200);
    list(&b, "/p/", &r); /* without a name */
    assert_int_equal(r.code, ERR_UNAVAILABLE);
    buf_deinit(&r.keys);
    coord_free(b.coord);
    b.coord = log_in(&b, "wrong");
    list(&b, "/p/", &r);
    assert_int_equal(r.code, ERR_CONFIG);
    buf_deinit(&r.keys);
    coord_free(b.coord);
    b.coord = log_in(&b, "pw");
    put_away(&b, "/p/a", "1", 0);
    (void)watch(&b, "/p/");
    run_until(&b, saw_all);
    /* Its tokens are kept in memory: after a restart ours is refused, and we log in again. */
    etcd_run_kill(b.etcd);
    etcd_run_start(b.etcd);
    list(&b, "/p/", &r);
    assert_int_equal(r.code, 0);
    assert_true(str_eq(buf_str(&r.keys), STR("/p/a=1;")));
    buf_deinit(&r.keys);
    close_bed(&b);
}

static void test_bad_urls(void **state)
{
    (void)state;
    static const char *const bad[] = { "", "etcd:2379", "ftp://a", "http://", "http://u:p@h" };
    struct coord *c;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(
            coord_etcd_new(&(struct coord_etcd_opts){ .urls = &bad[i], .urls_len = 1 }, &c, &e),
            ERR_CONFIG);
    assert_int_equal(coord_etcd_new(&(struct coord_etcd_opts){ .urls = bad }, &c, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim),
        cmocka_unit_test(test_etcd),
        cmocka_unit_test(test_etcd_dies),
        cmocka_unit_test(test_etcd_compacts),
        cmocka_unit_test(test_etcd_stands_still),
        cmocka_unit_test(test_etcd_asks_for_a_password),
        cmocka_unit_test(test_bad_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
