/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes of distributors that know an old map; and which services send most.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/map/map_edit.h"
#include "common/cluster/map/map_pending.h"
#include "common/cluster/view/view_impl.h"
#include "common/model/slot.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/top_services.h"

#define STEP_MS (SLOT_EPOCH_MS + INT64_C(1000000) * LEAF_MS)

static int check(struct placement_guard *p, const char *service, uint64_t version, int64_t last_ms)
{
    struct store_vector v[2] = { { .slot = 7 }, { .slot = slot_of_ms(last_ms) } };
    struct store_series s = { .vectors = v, .len = 2 };
    struct store_write w = {
        .tenant = STR("t"), .service = str_c(service), .series = &s, .len = 1
    };
    struct err e;

    return placement_guard_check(p, 3, &w, version, &e);
}

static void test_old_maps_are_refused(void **state)
{
    (void)state;
    static const char *const addrs[] = { "inproc://a" };
    struct view *v = view_new_list(addrs, 1, 8);
    struct placement_guard *p = placement_guard_new(v, clock_real(), 0);
    const struct map *spread, *both;
    int64_t rev;
    struct err e;

    assert_int_equal(check(p, "s", 0, STEP_MS), 0); /* no steps */
    assert_int_equal(map_edit_spread(view_map(v, &rev), &(struct map_whose){ STR("t"), STR("s") },
                                     4, STEP_MS, &spread, &e),
                     0);
    uint64_t version = spread->version;
    assert_int_equal(map_edit_tenant(spread, STR("t"), 3, STEP_MS + LEAF_MS, &both, &e), 0);
    view_set_map(v, spread);
    assert_int_equal(check(p, "s", version - 1, STEP_MS), 0); /* view_changed is still due */
    view_changed(v);
    assert_int_equal(check(p, "s", version - 1, STEP_MS), ERR_UNAVAILABLE);
    assert_int_equal(check(p, "s", version - 1, STEP_MS - 1), 0);
    assert_int_equal(check(p, "s", version, STEP_MS), 0);
    assert_int_equal(check(p, "other", version - 1, STEP_MS), 0);
    view_set_map(v, both);
    view_changed(v);
    assert_int_equal(check(p, "other", version, STEP_MS), 0);
    assert_int_equal(check(p, "other", version, STEP_MS + LEAF_MS), ERR_UNAVAILABLE);
    assert_int_equal(check(p, "s", version + 1, STEP_MS + LEAF_MS), 0);
    assert_int_equal(check(p, "s", version + 9, STEP_MS + LEAF_MS), 0); /* newer than ours */
    placement_guard_free(p);
    view_free(v);
}

static bool all_known(struct placement_guard *p, uint32_t shard, uint64_t *ret_version)
{
    const struct map *m;
    bool all;

    m = placement_guard_map(p, shard, &all);
    *ret_version = m ? m->version : UINT64_MAX;
    map_unref(m);
    return all;
}

/* What a backup says of where its rows are: all there is to know, or not. */
static void test_map_of_a_backup(void **state)
{
    (void)state;
    static const char *const addrs[] = { "inproc://a" };
    struct view *v = view_new_list(addrs, 1, 8);
    struct placement_guard *p = placement_guard_new(v, clock_real(), 0);
    struct repl_record r = *view_record(v, 3, NULL);
    const struct map *spread;
    uint64_t version;
    int64_t rev;
    struct err e;

    assert_true(all_known(p, 3, &version));
    assert_int_equal(version, 0);
    assert_int_equal(map_edit_spread(view_map(v, &rev), &(struct map_whose){ STR("t"), STR("s") },
                                     4, STEP_MS, &spread, &e),
                     0);
    /* A distributor placed it by a map that is newer than ours. */
    assert_int_equal(check(p, "s", spread->version, STEP_MS), 0);
    assert_false(all_known(p, 3, &version));
    assert_true(all_known(p, 4, &version));
    view_set_map(v, spread);
    view_changed(v);
    assert_true(all_known(p, 3, &version));
    assert_int_equal(version, 1);
    /* We come to lead: until it is established the leader before may let in what we know nothing
     * of. */
    r.established = false;
    view_set_record(v, 3, &r, 0);
    view_changed(v);
    assert_false(all_known(p, 3, &version));
    assert_true(all_known(p, 4, &version));
    r.established = true;
    view_set_record(v, 3, &r, 0);
    view_changed(v);
    assert_true(all_known(p, 3, &version));
    placement_guard_free(p);
    view_free(v);
}

/* Once a change is announced, its writes are refused unless the sender has a newer map than ours.
 * The newest time that was let in before is reported, whichever sender it came from. */
static void test_announced(void **state)
{
    (void)state;
    static const char *const addrs[] = { "inproc://a" };
    const struct map_whose w = { STR("t"), STR("s") };
    struct view *v = view_new_list(addrs, 1, 8);
    struct clock_fake clock;
    clock_fake_init(&clock, 0);
    struct placement_guard *p = placement_guard_new(v, &clock.clock, 0);
    const struct map *wanted, *announced;
    int64_t rev;
    struct err e;

    assert_int_equal(placement_guard_newest_ms(p, 3), 1);
    assert_int_equal(check(p, "s", 0, STEP_MS - SLOT_MS), 0);
    assert_int_equal(placement_guard_newest_ms(p, 3), STEP_MS - SLOT_MS);
    assert_int_equal(map_pending_request(view_map(v, &rev), &w, 4, &wanted, &e), 0);
    assert_int_equal(map_pending_announce(wanted, &w, STEP_MS, STR("a 1"), &announced, &e), 0);
    uint64_t version = announced->version;
    view_set_map(v, wanted);
    view_changed(v);
    assert_int_equal(placement_guard_version(p), version - 1);
    assert_int_equal(check(p, "s", version - 1, STEP_MS), 0); /* wanted only */
    assert_int_equal(placement_guard_read(p, version - 2, &e), 0);
    assert_int_equal(placement_guard_newest_ms(p, 3), STEP_MS);
    view_set_map(v, announced);
    assert_int_equal(placement_guard_version(p), version - 1);
    view_changed(v);
    /* Reads by the map before are taken for a moment; so long nothing is confirmed. */
    assert_int_equal(placement_guard_version(p), version - 1);
    assert_int_equal(placement_guard_read(p, version - 1, &e), 0);
    clock_fake_advance(&clock, 1000);
    assert_int_equal(placement_guard_read(p, version - 1, &e), 0);
    assert_int_equal(placement_guard_version(p), version);
    assert_int_equal(placement_guard_read(p, version - 1, &e), ERR_CONFLICT);
    assert_int_equal(check(p, "s", version - 1, STEP_MS), ERR_UNAVAILABLE);
    assert_int_equal(check(p, "s", version, STEP_MS), ERR_UNAVAILABLE);
    assert_int_equal(check(p, "s", version, STEP_MS - 1), 0);
    assert_int_equal(check(p, "s", version + 1, STEP_MS), 0);
    assert_int_equal(check(p, "other", version, STEP_MS + 9 * SLOT_MS), 0);
    assert_int_equal(placement_guard_newest_ms(p, 3), STEP_MS + 9 * SLOT_MS);
    placement_guard_note_time(p, 3, STEP_MS); /* earlier: no news */
    placement_guard_note_time(p, 4, 77);
    assert_int_equal(placement_guard_newest_ms(p, 3), STEP_MS + 9 * SLOT_MS);
    assert_int_equal(placement_guard_newest_ms(p, 4), 77);
    /* A querier with an earlier map may ask too few shards, whatever it reads. */
    assert_int_equal(placement_guard_read(p, version - 1, &e), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "the querier will try again with the newer map"));
    assert_int_equal(placement_guard_read(p, version, &e), 0);
    assert_int_equal(placement_guard_read(p, version + 5, &e), 0);
    /* 0: the querier asks all shards, or is of the previous version. */
    assert_int_equal(placement_guard_read(p, 0, &e), 0);
    placement_guard_free(p);
    view_free(v);
}

/* A new leader does not know what the previous leader confirmed, so reads by the map before the
 * announcement are refused at once; the same holds after a start. */
static void test_begins(void **state)
{
    (void)state;
    static const char *const addrs[] = { "inproc://a" };
    const struct map_whose w = { STR("t"), STR("s") };
    struct view *v = view_new_list(addrs, 1, 8);
    struct clock_fake clock;
    const struct map *wanted, *announced;
    int64_t rev;
    struct err e;

    clock_fake_init(&clock, 0);
    struct placement_guard *p = placement_guard_new(v, &clock.clock, 0);
    assert_int_equal(map_pending_request(view_map(v, &rev), &w, 4, &wanted, &e), 0);
    assert_int_equal(map_pending_announce(wanted, &w, STEP_MS, STR("a 1"), &announced, &e), 0);
    uint64_t version = announced->version;
    map_unref(wanted);
    view_set_map(v, announced);
    view_changed(v);
    assert_int_equal(placement_guard_read(p, version - 1, &e), 0);
    placement_guard_begins(p, 3, 5);
    assert_int_equal(placement_guard_read(p, version - 1, &e), ERR_CONFLICT);
    assert_int_equal(placement_guard_newest_ms(p, 3), 5);
    placement_guard_free(p);
    p = placement_guard_new(v, &clock.clock, 0);
    assert_int_equal(placement_guard_read(p, version - 1, &e), ERR_CONFLICT);
    assert_int_equal(placement_guard_version(p), version);
    placement_guard_free(p);
    view_free(v);
}

/* An announced change is aborted: writes are taken as before it, but no time before the change is
 * confirmed. */
static void test_given_up(void **state)
{
    (void)state;
    static const char *const addrs[] = { "inproc://a" };
    const struct map_whose w = { STR("t"), STR("s") };
    struct view *v = view_new_list(addrs, 1, 8);
    struct clock_fake clock;
    const struct map *wanted, *announced, *again;
    int64_t rev;
    struct err e;

    clock_fake_init(&clock, 0);
    struct placement_guard *p = placement_guard_new(v, &clock.clock, 0);
    assert_int_equal(map_pending_request(view_map(v, &rev), &w, 4, &wanted, &e), 0);
    assert_int_equal(map_pending_announce(wanted, &w, STEP_MS, STR("a 1"), &announced, &e), 0);
    assert_int_equal(map_pending_announce(announced, &w, STEP_MS + LEAF_MS, STR("b 1"), &again, &e),
                     0);
    uint64_t version = announced->version;
    map_unref(wanted);
    view_set_map(v, announced);
    view_changed(v);
    placement_guard_note_time(p, 3, 5);
    placement_guard_give_up(p, version - 1); /* another one */
    placement_guard_give_up(p, version + 1);
    assert_int_equal(placement_guard_gave_up(p), 0);
    assert_int_equal(check(p, "s", version, STEP_MS), ERR_UNAVAILABLE);
    placement_guard_give_up(p, version);
    assert_int_equal(placement_guard_gave_up(p), version);
    assert_int_equal(placement_guard_newest_ms(p, 4), STEP_MS); /* before anything came */
    for (int i = 0; i < 2; i++) { /* also when something else has changed */
        assert_int_equal(check(p, "s", version, STEP_MS), 0);
        assert_int_equal(check(p, "s", version - 1, STEP_MS + 9 * LEAF_MS), 0);
        view_changed(v);
    }
    assert_int_equal(placement_guard_newest_ms(p, 4), STEP_MS);
    view_set_map(v, again); /* announced again, and this announcement was not aborted */
    view_changed(v);
    assert_int_equal(check(p, "s", version + 1, STEP_MS + LEAF_MS), ERR_UNAVAILABLE);
    assert_int_equal(check(p, "s", version + 1, STEP_MS), 0);
    placement_guard_free(p);
    view_free(v);
}

static void test_busiest(void **state)
{
    (void)state;
    struct progress_service out[8];
    struct top_services *b = top_services_new();
    char name[32];
    size_t n;

    for (int second = 0; second < 120; second++) {
        for (int i = 0; i < 3000; i++) { /* more than there is room for */
            int len = snprintf(name, sizeof(name), "small-%d", i);
            top_services_add(b, STR("t"), str_n(name, (size_t)len), 10);
        }
        top_services_add(b, STR("t"), STR("big"), 1000000);
        top_services_add(b, STR("u"), STR("big"), 2000000);
        top_services_add(b, STR("t"), STR("burst"), second == 60 ? 9000000 : 0);
        n = top_services_report(b, 1000, 500000, out, 8);
        for (size_t i = 0; i < n; i++)
            assert_true(str_eqc(out[i].name, "big"));
    }
    assert_int_equal(n, 2);
    assert_true(str_eqc(out[0].tenant, "u"));
    assert_in_range(out[0].rate, 1900000, 2000000);
    assert_in_range(out[1].rate, 940000, 1000000);
    for (int second = 0; second < 600; second++)
        n = top_services_report(b, 1000, 1, out, 8);
    assert_int_equal(n, 0);
    top_services_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_maps_are_refused),
        cmocka_unit_test(test_announced),
        cmocka_unit_test(test_begins),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_map_of_a_backup),
        cmocka_unit_test(test_busiest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
