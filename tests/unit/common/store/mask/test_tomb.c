/* SPDX-License-Identifier: Apache-2.0
 *
 * Deletes in small examples: which data are gone at once, that none are left after purging, which
 * come back and which do not. The model test is tests/prop/test_delete.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/tomb_two.h"

static struct err e;

static void test_tenant(void **state)
{
    (void)state;
    two_fill();
    struct tomb_result r = tomb_bed_delete(&two.bed, NULL, NULL, 0, 0, NULL);
    assert_int_equal(r.kind, TOMB_TENANT);
    assert_int_equal(r.services, 2);
    assert_int_equal(r.raw_rows, 4);
    assert_string_equal(two_merge("{}"), "");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "service_name", NULL), "");
    tomb_bed_check(&two.bed);
    /* The same push again is new data of a new tenant. */
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;z=7"), 1);
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;z=7"), 0);
    assert_string_equal(two_merge("{}"), "m;z=7");
    two_seal_later();
    assert_true(tomb_bed_keys(&two.bed, 1, 0, 0) > 0);
    tomb_bed_purge(&two.bed, 1);
    assert_int_equal(tomb_bed_keys(&two.bed, 1, 0, 0), 0);
    assert_true(tomb_bed_keys(&two.bed, 2, 0, 0) > 0);
    assert_string_equal(two_merge("{}"), "m;z=7");
    tomb_bed_check(&two.bed);
    store_bed_reopen(&two.bed, KV_MEM_KILL, 0);
    assert_string_equal(two_merge("{}"), "m;z=7");
    tomb_bed_check(&two.bed);
}

static void test_service(void **state)
{
    (void)state;
    two_fill();
    struct tomb_result r = tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", 0, 0, NULL);
    assert_int_equal(r.kind, TOMB_SERVICES);
    assert_int_equal(r.services, 1);
    assert_int_equal(r.series, 2);
    assert_int_equal(r.raw_rows, 2);
    assert_string_equal(two_merge("{}"), "m;x=1100 m;y=1100");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "service_name", NULL), "db");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "pod", NULL), "a");
    tomb_bed_check(&two.bed);
    assert_int_equal(two_push("api", "pod=b", two.now, 2, "m;x=10"), 1);
    assert_int_equal(two_push("api", "pod=b", two.now, 2, "m;x=10"), 0);
    assert_int_equal(two_push("api", "pod=b", two.now + 14, 6, "m;y=10"), 1);
    assert_int_equal(two_push("db", "pod=a", two.now, 3, "m;x=100"), 0);
    assert_string_equal(two_merge("{service_name=\"api\"}"), "m;x=10 m;y=10");
    two_seal_later();
    size_t steps = tomb_bed_purge(&two.bed, 1);
    assert_true(steps > 3);
    assert_int_equal(tomb_bed_keys(&two.bed, 1, 1, 0), 0);
    assert_string_equal(two_merge("{}"), "m;x=1110 m;y=1110");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "pod", NULL), "a,b");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "service_name", NULL), "api,db");
    tomb_bed_check(&two.bed);
    store_bed_reopen(&two.bed, KV_MEM_KILL, 0);
    assert_string_equal(two_merge("{}"), "m;x=1110 m;y=1110");
    assert_int_equal(two_push("api", "pod=b", two.now, 2, "m;x=10"), 0);
}

static void test_series(void **state)
{
    (void)state;
    two_fill();
    struct tomb_result r = tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    assert_int_equal(r.kind, TOMB_SERIES);
    assert_int_equal(r.services, 2);
    assert_int_equal(r.series, 2);
    assert_int_equal(r.raw_rows, 2);
    assert_string_equal(two_merge("{}"), "m;x=1010 m;y=1010");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "pod", NULL), "b");
    tomb_bed_check(&two.bed);
    /* Again: the same labels get another id, the same write id is no duplicate. */
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;x=1"), 1);
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;x=1"), 0);
    assert_int_equal(two_push("api", "pod=a", two.now + 14, 5, "m;y=1"), 1);
    two_seal_later();
    assert_string_equal(two_merge("{}"), "m;x=1011 m;y=1011");
    tomb_bed_purge(&two.bed, 1);
    assert_string_equal(two_merge("{}"), "m;x=1011 m;y=1011");
    assert_string_equal(two_merge("{service_name=\"db\"}"), "m;x=1000 m;y=1000");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "pod", NULL), "a,b");
    tomb_bed_check(&two.bed);
    store_bed_reopen(&two.bed, KV_MEM_KILL, 0);
    assert_string_equal(two_merge("{}"), "m;x=1011 m;y=1011");
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;x=1"), 0);
    tomb_bed_check(&two.bed);
}

/* No row of a retired series is left, and its id is never used again. */
static void test_series_rows(void **state)
{
    struct key k;
    struct buf row;
    uint64_t id = 0;

    (void)state;
    buf_init(&row, KIB);
    two_fill();
    struct kv_iter *it = kv_iter_new(two.bed.s->kv, NULL, KV_FINE, STR_NULL, STR_NULL);
    struct member m;
    uint32_t level, t;
    assert_true(key_member_read(kv_iter_key(it), &level, &m, &t));
    id = m.series;
    kv_iter_free(it);
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\", pod=~\"a|b\"}", 0, 0, NULL);
    assert_true(tomb_bed_keys(&two.bed, 1, 0, id) > 0);
    tomb_bed_purge(&two.bed, 1);
    assert_int_equal(tomb_bed_keys(&two.bed, 1, 0, id), 0);
    key_series(&k, 1, m.scope, id);
    assert_int_equal(kv_get(two.bed.s->kv, NULL, KV_META, key_str(&k), &row, &e), 0);
    assert_int_equal(get_u32be(row.ptr), SERIES_RETIRED);
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "service_name", NULL), "db");
    tomb_bed_check(&two.bed);
    buf_deinit(&row);
}

static void test_range(void **state)
{
    (void)state;
    two_fill();
    /* The minute of slot `now`, named by one slot of it. */
    struct tomb_result r =
        tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", two.now + 3, two.now + 4, NULL);
    assert_int_equal(r.kind, TOMB_RANGE);
    assert_int_equal(r.from_ms, slot_to_ms(two.now));
    assert_int_equal(r.to_ms, slot_to_ms(two.now + 12));
    assert_int_equal(r.raw_rows, 0);
    assert_string_equal(two_merge("{}"), "m;x=1100 m;y=1111");
    tomb_bed_check(&two.bed);
    /* What comes now for that minute stays, and waits raw. */
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;x=1"), 1);
    assert_int_equal(two_push("api", "pod=a", two.now, 1, "m;x=1"), 0);
    assert_string_equal(two_merge("{}"), "m;x=1101 m;y=1111");
    two_seal_later();
    struct store_stats st;
    store_stats(two.bed.s, &st);
    assert_int_equal(st.raw_rows, 1);
    assert_string_equal(two_merge("{}"), "m;x=1101 m;y=1111");
    tomb_bed_purge(&two.bed, 1);
    assert_string_equal(two_merge("{}"), "m;x=1101 m;y=1111");
    two_seal_later();
    store_stats(two.bed.s, &st);
    assert_int_equal(st.raw_rows, 0);
    assert_string_equal(two_merge("{}"), "m;x=1101 m;y=1111");
    tomb_bed_check(&two.bed);
}

static void test_range_of_series(void **state)
{
    (void)state;
    two_fill();
    struct tomb_result r = tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", two.now + 12, 0, NULL);
    assert_int_equal(r.kind, TOMB_RANGE);
    assert_int_equal(r.series, 2);
    assert_int_equal(r.raw_rows, 2);
    assert_string_equal(two_merge("{}"), "m;x=1111 m;y=1010");
    two_seal_later();
    tomb_bed_purge(&two.bed, 2);
    assert_string_equal(two_merge("{}"), "m;x=1111 m;y=1010");
    r = tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, two.now + 12, NULL);
    assert_string_equal(two_merge("{}"), "m;x=1010 m;y=1010");
    tomb_bed_purge(&two.bed, 2);
    assert_string_equal(two_merge("{}"), "m;x=1010 m;y=1010");
    tomb_bed_check(&two.bed);
}

/* A profile type is a label like others. */
static void test_type(void **state)
{
    static const char *heap = "memory:alloc_space:bytes:space:bytes";

    (void)state;
    two_fill();
    store_bed_push(&two.bed, &(struct bed_push){ .service = "api",
                                                 .labels = "pod=a",
                                                 .type = heap,
                                                 .slot = two.now,
                                                 .wid = 90,
                                                 .stacks = "h=5" });
    two_seal_later();
    struct tomb_result r = tomb_bed_delete(
        &two.bed, NULL,
        "{service_name=\"api\", __profile_type__=\"memory:alloc_space:bytes:space:bytes\"}", 0, 0,
        NULL);
    assert_int_equal(r.kind, TOMB_RANGE);
    assert_string_equal(store_bed_merge(&two.bed, NULL, "{}", heap, two.now - 10, two.now + 10),
                        "");
    assert_string_equal(two_merge("{}"), "m;x=1111 m;y=1111");
    tomb_bed_purge(&two.bed, 3);
    assert_string_equal(store_bed_merge(&two.bed, NULL, "{}", heap, two.now - 10, two.now + 10),
                        "");
    assert_string_equal(two_merge("{}"), "m;x=1111 m;y=1111");
    tomb_bed_check(&two.bed);
}

static void test_repeat(void **state)
{
    struct tomb_result r;

    (void)state;
    two_fill();
    r = tomb_bed_delete(&two.bed, NULL, "{pod=\"none\"}", 0, 0, "first");
    assert_int_equal(r.series, 0);
    two_push("api", "pod=none", two.now, 50, "m;x=5");
    r = tomb_bed_delete(&two.bed, NULL, "{pod=\"none\"}", 0, 0, "first");
    assert_true(r.repeated);
    assert_string_equal(two_merge("{pod=\"none\"}"), "m;x=5");
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", 0, 0, "first", &r, &e), ERR_INPUT);
    assert_int_equal(tomb_bed_try(&two.bed, "absent", "{pod=\"a\"}", 0, 0, "first", &r, &e), 0);
    store_bed_reopen(&two.bed, KV_MEM_POWER, 0);
    r = tomb_bed_delete(&two.bed, NULL, "{pod=\"none\"}", 0, 0, "first");
    assert_true(r.repeated);
}

static void test_list(void **state)
{
    struct arena *a = arena_new(MIB);
    struct tomb_list l;

    (void)state;
    two_fill();
    two_seal_later();
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", 0, 0, "one");
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"db\"}", two.now, two.now + 1, "two");
    struct store_view *v = store_view_get(two.bed.s);
    assert_int_equal(store_deletes(v, STR("t"), a, &l, &e), 0);
    assert_int_equal(l.at.len, 2);
    assert_true(str_eqc(l.at.ptr[0].id, "two") && str_eqc(l.at.ptr[1].id, "one"));
    assert_int_equal(l.at.ptr[1].state, TOMB_PURGING);
    assert_true(str_eqc(l.at.ptr[1].what, "{service_name=\"api\"}"));
    assert_string_equal(l.at.ptr[1].phase, "waiting");
    tomb_list_deinit(&l);
    store_view_put(v);
    tomb_bed_purge(&two.bed, 100);
    bool more = true;
    while (more)
        assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
    clock_fake_advance(&two.bed.clock, 2000);
    assert_int_equal(store_purge(two.bed.s, 100, &more, &e), 0);
    v = store_view_get(two.bed.s);
    assert_int_equal(store_deletes(v, STR_NULL, a, &l, &e), 0);
    assert_int_equal(l.at.ptr[0].state, TOMB_DONE);
    assert_int_equal(l.at.ptr[1].state, TOMB_DONE);
    assert_int_equal(l.at.ptr[1].done, l.at.ptr[1].of);
    assert_true(l.at.ptr[1].rows > 0);
    tomb_list_deinit(&l);
    assert_int_equal(store_deletes(v, STR("other"), a, &l, &e), 0);
    assert_int_equal(l.at.len, 0);
    tomb_list_deinit(&l);
    store_view_put(v);
    arena_free(a);
}

/* A power cut anywhere while purging: the delete holds, purging continues. */
static void test_power_cuts(void **state)
{
    (void)state;
    two_fill();
    two_seal_later();
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", 0, 0, NULL);
    tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    for (int i = 0; i < 40; i++) {
        bool more;
        for (int n = 0; n < i % 7; n++)
            assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
        store_bed_reopen(&two.bed, KV_MEM_POWER, (uint64_t)(i % 3));
        assert_string_equal(two_merge("{}"), "m;x=1000 m;y=1000");
        tomb_bed_check(&two.bed);
    }
    tomb_bed_purge(&two.bed, 1);
    assert_string_equal(two_merge("{}"), "m;x=1000 m;y=1000");
    assert_int_equal(tomb_bed_keys(&two.bed, 1, 1, 0), 0);
    tomb_bed_check(&two.bed);
}

/* Hashes of one bit: retired ids are clashes like any other. */
static void test_clashes(void **state)
{
    (void)state;
    store_bed_deinit(&two.bed);
    struct store_opts o = {
        .dict_bytes_max = 1, .seed = 1, .hash_bits = 1, .wid_horizon_ms = 3600000
    };
    store_bed_init(&two.bed, &o);
    two.now = store_bed_slot(&two.bed) / 12 * 12;
    for (uint64_t i = 1; i <= 20; i++) {
        two_fill();
        tomb_bed_delete(&two.bed, NULL, i % 2 ? "{pod=\"a\"}" : "{pod=\"b\"}", 0, 0, NULL);
        assert_string_equal(two_merge(i % 2 ? "{pod=\"a\"}" : "{pod=\"b\"}"), "");
        if (i % 3 == 0)
            tomb_bed_purge(&two.bed, 2);
        tomb_bed_check(&two.bed);
        tomb_bed_delete(&two.bed, NULL, "{service_name=~\".*\"}", 0, 0, NULL);
        assert_string_equal(two_merge("{}"), "");
    }
    tomb_bed_purge(&two.bed, 2);
    tomb_bed_check(&two.bed);
}

/* What a compactor read before a delete is refused behind it, also when all is purged. */
static void test_job_before(void **state)
{
    struct arena *a = arena_new(64 * MIB);
    struct build_nodes due = { 0 };
    struct build_cursor cursor = { 0 };
    struct build_job job = { 0 };
    struct build_result result = { 0 };
    struct store_clock clock;

    (void)state;
    two_fill();
    two_minutes(60);
    store_bed_seal(&two.bed);
    store_clock(two.bed.s, &clock);
    struct store_view *v = store_view_get(two.bed.s);
    struct build_search search = { .engine_ms = clock.engine_ms, .low = 2, .high = 7, .max = 10 };
    struct build_room room = { .bytes_max = MIB, .rows_max = SIZE_MAX, .arena = a };
    assert_int_equal(store_build_due(v, &search, &due, &e), 0);
    assert_true(due.at.len > 0);
    assert_int_equal(store_build_read(v, &due.at.ptr[0], &cursor, &room, &job, &e), 0);
    store_view_put(v);
    assert_int_equal(build_merge(&job, a, &result, &e), 0);
    tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    assert_int_equal(store_build_apply(two.bed.s, &job, &result, &e), ERR_NOT_FOUND);
    tomb_bed_purge(&two.bed, 100);
    assert_int_equal(store_build_apply(two.bed.s, &job, &result, &e), ERR_NOT_FOUND);
    bool more = true;
    while (more)
        assert_int_equal(store_build(two.bed.s, 100, &more, &e), 0);
    assert_string_equal(two_merge("{}"), "m;x=1010 m;y=1010");
    tomb_bed_check(&two.bed);
    build_job_deinit(&job);
    build_result_deinit(&result);
    vec_free(&due.at);
    arena_free(a);
}

static uint64_t live_bytes(struct store *s)
{
    struct kv_disk disk;
    uint64_t n = 0;

    if (kv_flush(s->kv, &e) || kv_disk(s->kv, &disk, &e))
        fail_msg("disk: %s", e.text);
    for (int cf = 0; cf < KV_CFS; cf++)
        n += cf == KV_META || cf == KV_WID ? 0 : disk.live_bytes[cf];
    return n;
}

/* On a real disk: when the list says that a delete is done, its bytes are gone from the files. */
static void test_bytes(void **state)
{
    char *dir = kv_dir_new(), text[2048];
    struct tomb_stats st;
    struct prng rnd;
    bool more = true;

    (void)state;
    store_bed_deinit(&two.bed);
    two.bed.o.kv = kv_dir_open(dir);
    if (store_open(&two.bed.o, &two.bed.s, &e))
        fail_msg("open: %s", e.text);
    prng_init(&rnd, 5);
    for (uint64_t i = 0; i < 400; i++) {
        size_t n = 0;
        for (int k = 0; k < 40; k++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%sf%" PRIu64 "=%" PRIu64,
                                  k ? " " : "", (uint64_t)k * 80 + prng_below(&rnd, 80),
                                  1 + prng_below(&rnd, 1u << 30));
        two_push(i % 8 ? "large" : "small", "pod=a", two.now + (uint32_t)i / 8 * 2, 1 + i, text);
    }
    two_minutes(30);
    store_bed_seal(&two.bed);
    uint64_t before = live_bytes(two.bed.s);
    struct tomb_result r = tomb_bed_delete(&two.bed, NULL, "{service_name=\"large\"}", 0, 0, NULL);
    assert_true(r.bytes_estimate > before / 2 && r.bytes_estimate <= before);
    tomb_bed_purge(&two.bed, 10);
    while (more)
        assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
    two_minutes(1);
    assert_int_equal(store_purge(two.bed.s, 10, &more, &e), 0);
    store_delete_stats(two.bed.s, &st);
    assert_int_equal(st.pending + st.purged, 0);
    uint64_t after = live_bytes(two.bed.s);
    print_message("%" PRIu64 " bytes before, %" PRIu64 " after\n", before, after);
    assert_true(after < before / 4);
    assert_int_equal(tomb_bed_keys(&two.bed, 1, 2, 0), 0);
    tomb_bed_check(&two.bed);
    store_close(two.bed.s);
    kv_dir_remove(dir);
    store_bed_init(&two.bed,
                   &(struct store_opts){ .dict_bytes_max = MIB, .wid_horizon_ms = 3600000 });
}

static void test_limits(void **state)
{
    struct tomb_result r;

    (void)state;
    two_fill();
    assert_int_equal(
        tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", two.now, two.now - 1, NULL, &r, &e), ERR_INPUT);
    for (int i = 0; i < TOMB_PENDING_MAX; i++)
        tomb_bed_delete(&two.bed, NULL, "{service_name=\"db\"}", two.now - 500, two.now - 499,
                        NULL);
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL, &r, &e), ERR_BUSY);
    /* Those of one tenant are no other's. */
    store_bed_push(&two.bed,
                   &(struct bed_push){ .tenant = "u", .stacks = "m;x=1", .slot = two.now });
    assert_int_equal(tomb_bed_try(&two.bed, "u", "", 0, 0, NULL, &r, &e), 0);
    tomb_bed_purge(&two.bed, 1000);
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL, &r, &e), 0);
}

static size_t list_of(const char *tenant, size_t bytes)
{
    struct arena *a = arena_new(bytes);
    struct store_view *v = store_view_get(two.bed.s);
    struct tomb_list l;

    if (store_deletes(v, str_c(tenant), a, &l, &e))
        fail_msg("%s", e.text);
    size_t n = l.at.len;
    tomb_list_deinit(&l);
    store_view_put(v);
    arena_free(a);
    return n;
}

/* Nor do remembered deletes; and long ones take no memory of a tenant that lists its own. */
static void test_remembered(void **state)
{
    struct tomb_result r;
    char what[4096];

    (void)state;
    (void)snprintf(what, sizeof(what), "{pod=\"%04000d\"}", 0);
    for (int i = 0; i < 4 * TOMB_KEPT; i++)
        assert_int_equal(tomb_bed_try(&two.bed, NULL, what, 0, 0, NULL, &r, &e), 0);
    assert_int_equal(tomb_bed_try(&two.bed, NULL, what, 0, 0, NULL, &r, &e), ERR_BUSY);
    assert_int_equal(tomb_bed_try(&two.bed, "u", "", 0, 0, NULL, &r, &e), 0);
    assert_int_equal(list_of("u", 16 * KIB), 1);
    assert_int_equal(list_of("t", 16 * MIB), 4 * TOMB_KEPT);
}

/* Replicas exchange batches of some size; a larger one is not even tried, since what is refused by
 * the database ends all writing. */
static void test_too_large(void **state)
{
    struct tomb_result r;

    (void)state;
    for (uint64_t wid = 1; wid <= 100; wid++)
        two_push("api", "pod=a", two.now, wid, "m;x=1");
    two.bed.s->kv->batch_max = 128 * KIB + 1000;
    /* With the unsealed rows it is too large, so these go first (test_tomb_parts.c). */
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", 0, 0, "d", &r, &e), 0);
    assert_true(r.more && r.raw_rows == 100);
    assert_false(store_read_only(two.bed.s));
    assert_string_equal(two_merge("{}"), "");
    two_push("api", "pod=a", two.now, 101, "m;x=1");
    two_minutes(2);
    store_bed_seal(&two.bed);
    tomb_bed_check(&two.bed);
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=\"a\"}", 0, 0, "d", &r, &e), 0);
    assert_true(!r.more && !r.repeated && r.entry > 0);
    assert_string_equal(two_merge("{}"), "");
    for (uint32_t pod = 0; pod < 200; pod++) {
        char labels[32];
        (void)snprintf(labels, sizeof(labels), "pod=p%u", pod);
        two_push("db", labels, two.now, 200 + pod, "m;x=1");
    }
    two_minutes(2);
    store_bed_seal(&two.bed);
    assert_int_equal(tomb_bed_try(&two.bed, NULL, "{pod=~\"p.*\"}", 0, 0, "l", &r, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "split the delete by labels"));
    assert_false(store_read_only(two.bed.s));
    tomb_bed_purge(&two.bed, 1000);
    assert_string_equal(two_merge("{}"), "m;x=200");
    tomb_bed_check(&two.bed);
}

/* A tenant whose series are all gone has no label names either, also none of profile types. */
static void test_names(void **state)
{
    struct arena *a = arena_new(MIB);
    struct store_labels_query q = { .tenant = STR("t"), .kind = STORE_NAMES };
    struct store_labels l;

    (void)state;
    two_fill();
    for (int gone = 0; gone < 2; gone++) {
        if (gone) {
            tomb_bed_delete(&two.bed, NULL, "{service_name=~\".*\"}", 0, 0, NULL);
            tomb_bed_purge(&two.bed, 1000);
        }
        struct store_view *v = store_view_get(two.bed.s);
        assert_int_equal(store_labels(v, &q, a, &l, &e), 0);
        store_view_put(v);
        bool type = false;
        vec_for (i, &l.values)
            type = type || str_eqc(l.values.ptr[i], "__type__");
        assert_true(gone ? !l.values.len : type);
        store_labels_deinit(&l);
    }
    arena_free(a);
}

/* What was staged for a group that the disk refused is never committed: the delete behind it is
 * refused as well, and nothing else. */
static void test_refused_after_a_failed_commit(void **state)
{
    struct store_batch *group = store_batch_new(two.bed.s);
    struct bed_push p = { .service = "api", .slot = two.now, .wid = 1, .stacks = "m;x=1" };
    struct store_result stored;
    struct tomb_result r;

    (void)state;
    assert_int_equal(store_bed_stage(&two.bed, group, &p, &stored, &e), 0);
    two.bed.faults.fail_in = 1;
    assert_int_not_equal(store_commit(two.bed.s, group, &e), 0);
    assert_int_equal(tomb_bed_try(&two.bed, "t", "", 0, 0, "d1", &r, &e), ERR_UNAVAILABLE);
    store_bed_reopen(&two.bed, KV_MEM_KILL, 0);
    assert_int_equal(tomb_bed_try(&two.bed, "t", "", 0, 0, "d1", &r, &e), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, two_setup, two_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_tenant),      T(test_service),   T(test_series),
        T(test_series_rows), T(test_range),     T(test_range_of_series),
        T(test_type),        T(test_repeat),    T(test_list),
        T(test_power_cuts),  T(test_clashes),   T(test_limits),
        T(test_remembered),  T(test_too_large), T(test_bytes),
        T(test_job_before),  T(test_names),     T(test_refused_after_a_failed_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
