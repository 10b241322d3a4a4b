/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributors agree on one secret of write ids, in any order, also through a service that loses
 * requests. One distributor starts while the service is away, and one runs when it lost all data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/coord_sim.h"
#include "distributor/send/secret.h"
#include "tests/lib/store/kv_dir.h"

enum { NODES = 4, WAIT_MS = 60000 };

struct node {
    struct coord *coord;
    struct view *view; /* NULL: none is asked */
    struct tenants *tenants;
    struct secret *secret;
    char dir[512];
};
struct bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct distributor_conf conf;
    struct node at[NODES];
    char *dir;
};

static void open_bed(struct bed *b)
{
    *b = (struct bed){ .conf = { .tenant_requests = 1000, .tenant_burst_bytes = 1000 } };
    clock_fake_init(&b->clock, 1700000000000);
    b->loop = loop_sim_new(&b->clock);
    b->site = coord_site_new(b->loop, 5);
    b->dir = kv_dir_new();
}

static void start_with(struct bed *b, size_t i, const char *option, bool alone, bool view)
{
    struct node *n = &b->at[i];
    struct err e;

    (void)snprintf(n->dir, sizeof(n->dir), "%s/%zu", b->dir, i);
    n->coord = alone ? NULL : coord_sim_new(b->site);
    n->tenants = tenants_new(&b->conf, NULL, true);
    if (view)
        n->view = view_new_coord(
            &(struct view_opts){ .loop = b->loop, .coord = n->coord, .prefix = "/e" });
    struct secret_opts o = { .loop = b->loop,
                             .env = env_real(),
                             .option = option,
                             .data_dir = n->dir,
                             .coord = n->coord,
                             .prefix = "/e",
                             .view = n->view,
                             .tenants = n->tenants };
    assert_int_equal(secret_new(&o, &n->secret, &e), 0);
}

static void start(struct bed *b, size_t i, const char *option, bool alone)
{
    start_with(b, i, option, alone, false);
}

static void stop(struct bed *b, size_t i)
{
    struct node *n = &b->at[i];

    secret_free(n->secret);
    view_free(n->view);
    tenants_free(n->tenants);
    coord_free(n->coord);
    *n = (struct node){ 0 };
}

static void close_bed(struct bed *b)
{
    for (size_t i = 0; i < NODES; i++)
        if (b->at[i].secret)
            stop(b, i);
    coord_site_free(b->site);
    loop_free(b->loop);
    kv_dir_remove(b->dir);
}

static bool run_until_known(struct bed *b, size_t i)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + WAIT_MS, due;

    while (secret_missing(b->at[i].secret) && loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
    return !secret_missing(b->at[i].secret);
}

static struct write_secret of_tenant(struct bed *b, size_t i)
{
    struct tenant *t;
    struct err e;

    assert_int_equal(tenant_enter(b->at[i].tenants, STR("t"), 1, 0, &t, &e), 0);
    struct write_secret s = t->secret;
    tenant_leave(t);
    return s;
}

static void same(struct bed *b, size_t i, size_t j)
{
    struct write_secret x = of_tenant(b, i), y = of_tenant(b, j);

    assert_memory_equal(&x, &y, sizeof(x));
}

static void test_agree(void **state)
{
    (void)state;
    struct bed b;
    struct tenant *t;
    struct err e;

    open_bed(&b);
    coord_site_faults(b.site, &(struct coord_faults){ .delay_min_ms = 1,
                                                      .delay_max_ms = 50,
                                                      .lose_request = 0.3,
                                                      .lose_reply = 0.3 });
    for (size_t i = 0; i < NODES; i++)
        start(&b, i, "", false);
    assert_int_equal(tenant_enter(b.at[0].tenants, STR("t"), 1, 0, &t, &e), ERR_UNAVAILABLE);
    for (size_t i = 0; i < NODES; i++)
        assert_true(run_until_known(&b, i));
    for (size_t i = 1; i < NODES; i++)
        same(&b, 0, i);
    /* Again, and without the service: all kept what was agreed on, whosever it was. */
    struct write_secret was = of_tenant(&b, 0);
    coord_site_away(b.site, true);
    for (size_t i = 0; i < NODES; i++) {
        stop(&b, i);
        start(&b, i, "", false);
        assert_null(secret_missing(b.at[i].secret)); /* at once */
        struct write_secret is = of_tenant(&b, i);
        assert_memory_equal(&was, &is, sizeof(is));
    }
    close_bed(&b);
}

/* A distributor that never was in the cluster cannot start alone, however often it tries. */
static void test_first_start_without_the_service(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b);
    coord_site_away(b.site, true);
    start(&b, 0, "", false);
    assert_false(run_until_known(&b, 0));
    stop(&b, 0);
    start(&b, 0, "", false);
    assert_false(run_until_known(&b, 0));
    coord_site_away(b.site, false);
    assert_true(run_until_known(&b, 0));
    close_bed(&b);
}

/* What was noted is of one secret and one cluster: another file, or another prefix, waits. */
static void test_noted_is_of_one_secret(void **state)
{
    (void)state;
    struct bed b;
    struct err e;
    char file[600];

    open_bed(&b);
    start(&b, 0, "", false);
    assert_true(run_until_known(&b, 0));
    struct write_secret was = of_tenant(&b, 0);
    (void)snprintf(file, sizeof(file), "%s/write-id-secret", b.at[0].dir);
    stop(&b, 0);
    const struct fs *fs = env_real()->fs;
    assert_int_equal(fs->write_file(fs, file, STR("of another cluster, and long\n"), &e), 0);
    coord_site_away(b.site, true);
    start(&b, 0, "", false);
    assert_false(run_until_known(&b, 0));
    coord_site_away(b.site, false);
    assert_true(run_until_known(&b, 0));
    struct write_secret is = of_tenant(&b, 0);
    assert_memory_equal(&was, &is, sizeof(is));
    close_bed(&b);
}

static void test_configured_or_alone(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b);
    start(&b, 0, "0123456789abcdef", false);
    start(&b, 1, "0123456789abcdef", true);
    start(&b, 2, "", true);
    for (size_t i = 0; i < 3; i++)
        assert_null(secret_missing(b.at[i].secret)); /* at once */
    same(&b, 0, 1);
    struct write_secret x = of_tenant(&b, 0), y = of_tenant(&b, 2);
    assert_memory_not_equal(&x, &y, sizeof(x));
    assert_null(coord_site_get(b.site, STR("/e/write-id-secret")));
    close_bed(&b);
}

static void pass(struct bed *b, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + ms, due;

    while (loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
}

static void on_cluster(void *cookie, const struct coord_reply *r)
{
    (void)cookie;
    assert_true(!r->err && r->done);
}

/* As the controller does; as `recover` does: the id first, the map last. */
static void put_cluster(struct bed *b, bool again)
{
    struct coord *c = coord_sim_new(b->site);
    struct coord_change chg[2] = {
        { STR("/e/ring/cluster"), STR("{\"id\":\"00112233445566778899aabbccddeeff\"}"), 0, false },
        { STR("/e/ring/map"), STR("{\"version\":3,\"shards\":2,\"replicas\":1}"), 0, false }
    };

    for (size_t i = 0; i < 2; i += again ? 1 : 2)
        coord_txn(c, &(struct coord_txn){ .chg = &chg[i], .chg_len = again ? 1 : 2 }, on_cluster,
                  b);
    pass(b, 100);
    coord_free(c);
}

/* The service loses all data and is filled again. The running distributors put their unchanged
 * secret back before a new distributor with an empty folder may put its own. */
static void test_put_back(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b);
    coord_site_faults(b.site, &(struct coord_faults){ .delay_min_ms = 1, .delay_max_ms = 5 });
    for (size_t i = 0; i < 2; i++)
        start_with(&b, i, "", false, true);
    pass(&b, 2000);
    assert_non_null(strstr(secret_missing(b.at[0].secret), "there is no cluster"));
    put_cluster(&b, false);
    pass(&b, 1000);
    assert_null(secret_missing(b.at[0].secret));
    same(&b, 0, 1);
    struct write_secret was = of_tenant(&b, 0);
    coord_site_restore(b.site, NULL);
    pass(&b, 10000);
    start_with(&b, 2, "", false, true);
    pass(&b, 20000);
    assert_null(coord_site_get(b.site, STR("/e/write-id-secret"))); /* no distributor believes it */
    assert_non_null(strstr(secret_missing(b.at[2].secret), "there is no cluster"));
    put_cluster(&b, true);
    pass(&b, 15000);
    assert_non_null(coord_site_get(b.site, STR("/e/write-id-secret")));
    for (size_t i = 0; i < 3; i++) {
        assert_null(secret_missing(b.at[i].secret));
        struct write_secret is = of_tenant(&b, i);
        assert_memory_equal(&was, &is, sizeof(is));
    }
    /* All that agreed are gone permanently: the cluster continues with a new secret. */
    coord_site_del(b.site, STR("/e/write-id-secret"));
    for (size_t i = 0; i < 3; i++)
        stop(&b, i);
    start_with(&b, 3, "", false, true);
    pass(&b, 20000);
    assert_null(secret_missing(b.at[3].secret));
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agree),
        cmocka_unit_test(test_first_start_without_the_service),
        cmocka_unit_test(test_noted_is_of_one_secret),
        cmocka_unit_test(test_configured_or_alone),
        cmocka_unit_test(test_put_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
