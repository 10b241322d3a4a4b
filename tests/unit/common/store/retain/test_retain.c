/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies and floors: what is written, what it means, and how it is refused. The step itself is
 * tested against a model in tests/prop/test_retain.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/retain/retain.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define DAY  UINT64_C(86400000)
#define HOUR UINT64_C(3600000)
#define CPU  "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define HEAP "memory:inuse_space:bytes:space:bytes"

static struct retain_policy *policy(const char *rules)
{
    struct retain_policy_opts o = {
        .keep = retain_keep_default(), .interval_ms = 1000, .rules = str_c(rules), .file = "rules"
    };
    struct retain_policy *p = NULL;
    struct err e;

    if (retain_policy_new(&o, &p, &e))
        fail_msg("%s", e.text);
    return p;
}

static uint64_t days(struct retain_policy *p, const char *tenant, const char *service,
                     const char *type, uint32_t level)
{
    return retain_policy_keep(p, str_c(tenant), str_c(service), str_c(type)).ms[level] / DAY;
}

static void test_rules(void **state)
{
    struct retain_policy *p =
        policy("# all of it\n"
               "service=shop-* 10s=2d 1m=14d\t# words\n"
               "\n"
               "type=memory:*   10m=30d 1h=60d 6h=60d 1d=60d 8d=60d 64d=60d\r\n"
               "tenant=acme service=*cart* 10s=40d\n"
               "tenant=acme type=process_cpu:*:nanoseconds 64d=1000d\n"
               "tenant=team-* service=a/b 1m=20d");

    (void)state;
    assert_int_equal(retain_policy_rules(p), 5);
    assert_int_equal(days(p, "t", "api", CPU, 0), 7);
    assert_int_equal(days(p, "t", "api", CPU, 2), 90);
    assert_int_equal(days(p, "t", "api", CPU, 7), 400);
    assert_int_equal(days(p, "t", "shop-cart", CPU, 0), 2);
    assert_int_equal(days(p, "t", "shop-cart", CPU, 1), 14);
    assert_int_equal(days(p, "t", "shop", CPU, 0), 7);
    assert_int_equal(days(p, "t", "api", HEAP, 2), 30);
    assert_int_equal(days(p, "t", "api", HEAP, 7), 60);
    /* The last line that fits wins; coarser levels are kept at least as long as finer ones. */
    assert_int_equal(days(p, "acme", "shop-cart", HEAP, 0), 40);
    assert_int_equal(days(p, "acme", "shop-cart", HEAP, 1), 40);
    assert_int_equal(days(p, "acme", "shop-cart", HEAP, 2), 40);
    assert_int_equal(days(p, "acme", "shop-cart", HEAP, 3), 60);
    assert_int_equal(days(p, "acme", "shop-cart", CPU, 7), 1000);
    assert_int_equal(days(p, "acme", "shop-cart", CPU, 6), 400);
    assert_int_equal(days(p, "acme2", "shop-cart", CPU, 7), 400);
    assert_int_equal(days(p, "team-b", "a/b", CPU, 1), 20);
    retain_policy_unref(retain_policy_ref(p));
    retain_policy_unref(p);
}

static void test_refused(void **state)
{
    static const struct {
        const char *rules, *text;
    } rows[] = {
        { "10s", "rules line 1: \"10s\" has no =" },
        { "\n\nservice= 10s=1d", "rules line 3: nothing stands behind \"service=\"" },
        { "service=a service=b 10s=1d", "rules line 1: service is given twice" },
        { "10s=1d 10s=2d", "rules line 1: 10s is given twice" },
        { "10s=week", "rules line 1: 10s=week is not a duration such as 12h or 30d" },
        { "10s=5s", "rules line 1: 10s=5s is not between 1m and 73000d" },
        { "64d=80000d", "rules line 1: 64d=80000d is not between 1m and 73000d" },
        { "2h=1d", "rules line 1: \"2h\" is neither tenant, service, type nor a level (10s 1m 10m "
                   "1h 6h 1d 8d 64d)" },
        { "tenant=a # 10s=1d", "rules line 1: no level is given, so nothing would be different" },
        { "tenant=a/b 10s=1d", "rules line 1: tenant=a/b: tenant id has byte 0x2f at position 1; "
                               "allowed are letters, digits and !-_.*'()" },
        { "10s=1d\ntenant=.. 10s=1d", "rules line 2: tenant=..: tenant id is '.' or '..'" },
        { "service=\xff 10s=1d", "rules is not UTF-8 text" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct retain_policy_opts o = { .keep = retain_keep_default(),
                                        .rules = str_c(rows[i].rules),
                                        .file = "rules" };
        struct retain_policy *p;
        struct err e;

        assert_int_equal(retain_policy_new(&o, &p, &e), ERR_CONFIG);
        assert_string_equal(e.text, rows[i].text);
    }
}

static void test_bounds(void **state)
{
    struct retain_policy_opts o = { .keep = retain_keep_default(), .file = "rules" };
    struct retain_policy *p;
    struct buf text;
    struct err e;

    (void)state;
    buf_init(&text, 2 * RETAIN_TEXT_MAX);
    for (size_t i = 0; i < RETAIN_RULES_MAX; i++)
        assert_true(buf_add_str(&text, STR("10s=1d\n")));
    o.rules = buf_str(&text);
    assert_int_equal(retain_policy_new(&o, &p, &e), 0);
    retain_policy_unref(p);
    assert_true(buf_add_str(&text, STR("10s=1d\n")));
    o.rules = buf_str(&text);
    assert_int_equal(retain_policy_new(&o, &p, &e), ERR_CONFIG);
    assert_string_equal(e.text, "rules line 4097: more than 4096 rules");
    while (text.len <= RETAIN_TEXT_MAX)
        assert_true(buf_add_c(&text, ' '));
    o.rules = buf_str(&text);
    assert_int_equal(retain_policy_new(&o, &p, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "at most 1048576 are read"));
    /* A pattern of stars over a long name: bounded work. */
    buf_reset(&text);
    assert_true(buf_add_str(&text, STR("service=*a*a*a*a*a*a*a*a*a*a*a*a*a*ab 10s=1d")));
    o.rules = buf_str(&text);
    assert_int_equal(retain_policy_new(&o, &p, &e), 0);
    char name[4000];
    memset(name, 'a', sizeof(name));
    assert_int_equal(
        retain_policy_keep(p, STR("t"), str_n(name, sizeof(name)), STR(CPU)).ms[0] / DAY, 7);
    retain_policy_unref(p);
    buf_deinit(&text);
}

/* Sound, never over their time by more than a bucket or a sixteenth, and never back. */
static void test_floors(void **state)
{
    static const uint64_t keeps[][KEY_LEVELS] = {
        { 7 * DAY, 30 * DAY, 90 * DAY, 400 * DAY, 400 * DAY, 400 * DAY, 400 * DAY, 400 * DAY },
        { HOUR, 2 * HOUR, 5 * HOUR, DAY, 3 * DAY, 9 * DAY, 20 * DAY, 70 * DAY },
        { 60000, 60000, 60000, 60000, 60000, 60000, 60000, 60000 },
        { 73000 * DAY, 73000 * DAY, 73000 * DAY, 73000 * DAY, 73000 * DAY, 73000 * DAY, 73000 * DAY,
          73000 * DAY },
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(keeps); k++) {
        struct floors before = { 0 };
        struct retain_keep keep;

        memcpy(keep.ms, keeps[k], sizeof(keep.ms));
        for (int64_t at = BED_START_MS; at < BED_START_MS + (int64_t)(900 * DAY);
             at += (int64_t)(7 * HOUR + 13000)) {
            struct floors f, aligned;

            retain_floors(&keep, at, &f);
            aligned = f;
            floors_align(&aligned);
            assert_memory_equal(&f, &aligned, sizeof(f));
            for (uint32_t l = 0; l < KEY_LEVELS; l++) {
                uint64_t cut = slot_of_ms(at - (int64_t)keep.ms[l]);
                uint64_t slack = MAX(keep.ms[l] / SLOT_MS / 4, LEVELS[MIN(l + 1, 7)].node);

                slack = MAX(slack, LEVELS[2].node);
                assert_true(f.at[l] >= before.at[l] && f.at[l] <= cut);
                if (l == 0 && f.at[0]) /* the others may be held by a finer one's alignment */
                    assert_true(cut - f.at[l] <= slack);
            }
            before = f;
        }
    }
}

/* A service that begins with old data stores it at the level that keeps it. */
static void test_import_goes_to_its_level(void **state)
{
    struct store_opts o = { .dict_bytes_max = 16 * MIB, .build_all = true };
    struct retain_policy *p = policy("");
    struct store_bed b;
    bool more = true;
    struct err e;

    (void)state;
    store_bed_init(&b, &o);
    store_set_retention(b.s, p);
    uint32_t now = store_bed_slot(&b), old = now - 200 * DAY_SLOTS;
    struct bed_push push = { .labels = "pod=a", .stacks = "a;b=5", .slot = old, .wid = 1 };
    assert_int_equal(store_bed_push(&b, &push), 1);
    push = (struct bed_push){ .labels = "pod=a", .stacks = "a;b=7", .slot = old + 3, .wid = 2 };
    assert_int_equal(store_bed_push(&b, &push), 1);
    clock_fake_advance(&b.clock, 200000);
    store_bed_seal(&b);
    while (more)
        assert_int_equal(store_build(b.s, 100, &more, &e), 0);
    struct kv_iter *it = kv_iter_new(b.s->kv, NULL, KV_FINE, STR_NULL, STR_NULL);
    assert_false(kv_iter_valid(it)); /* nothing of 10 s */
    kv_iter_free(it);
    it = kv_iter_new(b.s->kv, NULL, KV_COARSE, STR_NULL, STR_NULL);
    assert_true(kv_iter_valid(it));
    assert_int_equal(kv_iter_key(it).ptr[0], 3); /* 1 h is the finest that is kept so long */
    kv_iter_free(it);
    assert_string_equal(store_bed_merge(&b, "t", "{}", BED_CPU, old, old + 1), "a;b=12");

    /* Older than all levels: refused, and nothing is left of it. */
    struct store_batch *batch = store_batch_new(b.s);
    struct store_result r;
    push = (struct bed_push){ .stacks = "a=1", .slot = now - 600 * DAY_SLOTS, .wid = 3 };
    assert_int_equal(store_bed_stage(&b, batch, &push, &r, &e), ERR_INPUT);
    assert_string_equal(e.text,
                        "not_in_ingestion_window: the profile is 600 days old, more than the 400 "
                        "that are kept of service svc (retention.64d, retention.overrides); from= "
                        "and until= in the URL store it under another time");
    assert_int_equal(store_commit(b.s, batch, &e), 0);
    store_bed_deinit(&b);
    retain_policy_unref(p);
}

/* Without a policy everything is kept, and taken. */
static void test_no_policy(void **state)
{
    struct store_opts o = { .dict_bytes_max = 16 * MIB };
    struct retain_stats st;
    struct store_bed b;
    bool more = true;
    struct err e;

    (void)state;
    store_bed_init(&b, &o);
    assert_int_equal(
        store_bed_push(&b, &(struct bed_push){ .stacks = "a=1", .slot = 10, .wid = 1 }), 1);
    clock_fake_advance(&b.clock, 200000);
    store_bed_seal(&b);
    assert_int_equal(store_retain(b.s, 10, &more, &e), 0);
    assert_false(more);
    store_retain_stats(b.s, &st);
    assert_int_equal(st.steps, 0);
    assert_string_equal(store_bed_merge(&b, "t", "{}", BED_CPU, 0, 100), "a=1");
    store_bed_deinit(&b);
}

/* While the clock is paused nothing is deleted. */
static void test_paused_clock(void **state)
{
    struct store_opts o = { .dict_bytes_max = 16 * MIB };
    struct retain_policy *p = policy("");
    struct retain_stats st;
    struct store_bed b;
    bool more = true;
    struct err e;

    (void)state;
    store_bed_init(&b, &o);
    store_set_retention(b.s, p);
    assert_int_equal(
        store_bed_push(&b,
                       &(struct bed_push){ .stacks = "a=1", .slot = store_bed_slot(&b), .wid = 1 }),
        1);
    clock_fake_jump(&b.clock, (int64_t)(500 * DAY));
    assert_int_equal(store_retain(b.s, 10, &more, &e), 0);
    store_retain_stats(b.s, &st);
    assert_int_equal(st.steps, 0);
    assert_true(store_retain_wait_ms(b.s) > 0);
    store_bed_deinit(&b);
    retain_policy_unref(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_import_goes_to_its_level),
        cmocka_unit_test(test_no_policy),
        cmocka_unit_test(test_paused_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
