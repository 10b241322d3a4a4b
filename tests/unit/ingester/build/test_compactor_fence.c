/* SPDX-License-Identifier: Apache-2.0
 *
 * Which claim on a shard is the newest, when the coordination service's revisions go back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/view/view.h"
#include "ingester/build/compactor_fence.h"

#define CLAIM "/e/compactor/shard/0007"
#define ID    "{\"id\":\"00112233445566778899aabbccddeeff\"}"
#define MAP(version)        \
    "{\"version\":" version \
    ",\"shards\":8,\"replicas\":1,\"nodes\":[{\"name\":\"a\",\"addr\":\"tcp://a:1\"}]}"
#define ALONE_MS 30000

struct bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct coord *coord;
    struct view *view;
    struct compactor_fence_opts o;
    struct compactor_fence c;
};

static void pass(struct bed *b, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + ms, due;

    while (loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
    if (clock_mono_ms(&b->clock.clock) < end)
        clock_fake_advance(&b->clock, (int64_t)(end - clock_mono_ms(&b->clock.clock)));
}

static void open_bed(struct bed *b)
{
    *b = (struct bed){ 0 };
    clock_fake_init(&b->clock, 1700000000000);
    b->loop = loop_sim_new(&b->clock);
    b->site = coord_site_new(b->loop, 1);
    coord_site_put(b->site, STR("/e/ring/cluster"), STR(ID));
    coord_site_put(b->site, STR("/e/ring/map"), STR(MAP("3")));
    b->coord = coord_sim_new(b->site);
    b->view = view_new_coord(
        &(struct view_opts){ .loop = b->loop, .coord = b->coord, .prefix = "/e", .keeps = true });
    b->o = (struct compactor_fence_opts){ b->coord, b->view, "/e", &b->clock.clock };
    pass(b, 3000);
    assert_true(view_trusts(b->view));
}

static void close_bed(struct bed *b)
{
    compactor_fence_clear(&b->c);
    view_free(b->view);
    coord_free(b->coord);
    coord_site_free(b->site);
    loop_free(b->loop);
}

/* Another claim is made; its fence. */
static uint64_t claim(struct bed *b)
{
    coord_site_del(b->site, STR(CLAIM));
    coord_site_put(b->site, STR(CLAIM), STR("a compactor"));
    return (uint64_t)coord_site_get(b->site, STR(CLAIM))->create_rev;
}

static int come(struct bed *b, uint64_t fence)
{
    struct err e;

    return compactor_fence_check(&b->c, &b->o, 7, fence, ALONE_MS, &e);
}

static int come_twice(struct bed *b, uint64_t fence)
{
    int first = come(b, fence);

    pass(b, 3000);
    return first ? come(b, fence) : first;
}

static void test_newer_ones_are_larger(void **state)
{
    struct bed b;
    (void)state;

    open_bed(&b);
    uint64_t old = claim(&b), now = claim(&b);
    assert_int_equal(come(&b, old), 0);
    assert_int_equal(come(&b, now), 0);
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    assert_int_equal(come(&b, 0), ERR_CONFLICT);
    assert_int_equal(come(&b, now), 0);
    /* However long it takes: only a compactor that knows no fences may rely on silence. */
    pass(&b, 2 * (uint64_t)ALONE_MS);
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    pass(&b, 2 * (uint64_t)ALONE_MS);
    assert_int_equal(come(&b, 0), 0);
    /* A compactor whose claim the service names later passes at once, without a question to the
     * service; also where no compactor had the shard at the last question. */
    assert_int_equal(come(&b, claim(&b)), 0);
    coord_site_del(b.site, STR(CLAIM));
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    assert_int_equal(come(&b, claim(&b)), 0);
    close_bed(&b);
}

static void test_revisions_go_back(void **state)
{
    struct coord_backup *backup;
    struct bed b;
    (void)state;

    open_bed(&b);
    backup = coord_site_backup(b.site);
    for (size_t i = 0; i < 20; i++)
        (void)claim(&b);
    uint64_t old = claim(&b);
    assert_int_equal(come(&b, old), 0);

    coord_site_restore(b.site, backup);
    uint64_t now = claim(&b);
    assert_true(now < old);
    pass(&b, 20000);
    assert_true(view_trusts(b.view));   /* the ring is what it was */
    assert_int_equal(come(&b, old), 0); /* it woke late: the service was not asked yet */
    assert_int_equal(come_twice(&b, now), 0);

    /* It wakes once more; larger is not newer any more. */
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    assert_int_equal(come(&b, now), 0);
    uint64_t next = claim(&b);
    assert_true(next > now && next < old);
    assert_int_equal(come_twice(&b, next), 0);
    assert_int_equal(come_twice(&b, now), ERR_CONFLICT);
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    coord_backup_free(backup);
    close_bed(&b);
}

/* What a service says that forgot changes nothing, and while it is away nothing is learnt. */
static void test_a_stranger_says_nothing(void **state)
{
    struct coord_backup *backup;
    struct bed b;
    (void)state;

    open_bed(&b);
    uint64_t old = claim(&b);
    backup = coord_site_backup(b.site);
    coord_site_put(b.site, STR("/e/ring/map"), STR(MAP("4")));
    uint64_t now = claim(&b);
    pass(&b, 3000);
    assert_int_equal(come(&b, now), 0);

    coord_site_restore(b.site, backup);
    pass(&b, 20000);
    assert_false(view_trusts(b.view));
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    coord_site_put(b.site, STR("/e/ring/map"), STR(MAP("4")));
    pass(&b, 20000);
    assert_true(view_trusts(b.view));
    coord_site_away(b.site, true);
    assert_int_equal(come_twice(&b, old), ERR_CONFLICT);
    assert_int_equal(come(&b, now), 0);
    coord_site_away(b.site, false);
    pass(&b, 20000);
    assert_int_equal(come_twice(&b, old), 0); /* it is its, there */
    assert_int_equal(come_twice(&b, now), ERR_CONFLICT);

    /* Its shard is closed while the service is asked. */
    assert_int_equal(come(&b, claim(&b)), ERR_CONFLICT);
    compactor_fence_clear(&b.c);
    pass(&b, 3000);
    assert_int_equal(b.c.fence, 0);
    coord_backup_free(backup);
    close_bed(&b);
}

static void test_nobody_to_ask(void **state)
{
    struct bed b;
    (void)state;

    open_bed(&b);
    b.o.coord = NULL;
    assert_int_equal(come(&b, 9), 0);
    assert_int_equal(come_twice(&b, 8), ERR_CONFLICT);
    assert_int_equal(come(&b, 10), 0);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newer_ones_are_larger),
        cmocka_unit_test(test_revisions_go_back),
        cmocka_unit_test(test_a_stranger_says_nothing),
        cmocka_unit_test(test_nobody_to_ask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
