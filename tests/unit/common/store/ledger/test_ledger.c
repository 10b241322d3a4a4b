/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger of a shard: every number of it after each thing that can happen to data; and what is
 * lost, doubled or changed behind its back is noticed, and named. That it is right at all times is
 * test_store's, test_delete's and test_retain's, which ask store_check, and that asks the ledger.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/codec/vec.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/retain/retain.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

#define DAY 17280u

static struct store_bed bed;
static struct err e;
static uint64_t next_wid;

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .build_all = true,
                            .wid_horizon_ms = 4 * 3600 * 1000 };

    (void)state;
    store_bed_init(&bed, &o);
    next_wid = 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static uint64_t push(const char *service, const char *labels, uint32_t slot)
{
    struct bed_push p = {
        .service = service, .labels = labels, .stacks = "a;b=5 a;c=7", .slot = slot, .wid = next_wid
    };

    assert_int_equal(store_bed_push(&bed, &p), 1);
    return next_wid++;
}

static void settle(void)
{
    clock_fake_advance(&bed.clock, 30 * 60000);
    store_bed_seal(&bed);
    for (int i = 0; i < 100000 && steps_build(&bed, 1000); i++)
        ;
}

/* ---- what the auditor says ---- */

struct audit {
    uint64_t services, skipped, want, found, difference, lost, doubled, adopted;
    enum ledger_where where[LEDGER_FINDINGS_MAX];
    size_t findings;
    char text[ERR_TEXT_MAX];
};

static void audit_one(struct ledger_audit *a, struct audit *ret, size_t rows, size_t deep)
{
    bool done = false;

    for (int i = 0; !done; i++) {
        assert_int_equal(store_ledger_audit(a, rows, deep, &done, &e), 0);
        assert_true(i < 1000000);
    }
    const struct ledger_result *r = ledger_audit_result(a);
    ret->services++;
    ret->skipped += r->skipped;
    ret->want += r->want;
    ret->found += r->found;
    ret->difference += r->difference;
    ret->lost += r->lost;
    ret->doubled += r->doubled;
    vec_for (i, &r->findings) {
        ret->where[ret->findings++] = r->findings.ptr[i].where;
        memcpy(ret->text, r->findings.ptr[i].text, sizeof(ret->text));
    }
    if (r->adopt) {
        assert_int_equal(store_ledger_adopt(bed.s, a, &e), 0);
        ret->adopted++;
    }
}

static struct audit audit_by(size_t rows, size_t deep)
{
    struct store_view *v = store_view_get(bed.s);
    uint32_t tenant = 0, scope = 0;
    struct audit r = { 0 };

    for (;;) {
        struct ledger_audit *a;
        assert_int_equal(store_ledger_next(v, tenant, scope, &a, &e), 0);
        if (!a)
            break;
        tenant = ledger_audit_result(a)->tenant;
        scope = ledger_audit_result(a)->scope;
        audit_one(a, &r, rows, deep);
        ledger_audit_free(a);
    }
    store_view_put(v);
    return r;
}

static struct audit audit(void)
{
    struct audit small = audit_by(3, SIZE_MAX), big = audit_by(100000, SIZE_MAX);

    if (!small.adopted) {
        assert_int_equal(small.want, big.want);
        assert_int_equal(small.found, big.found);
        assert_int_equal(small.difference, big.difference);
    }
    return small.adopted ? small : big;
}

static struct ledger_tenant tenant(const char *name)
{
    struct store_view *v = store_view_get(bed.s);
    struct ledger_tenant t;

    if (store_ledger(v, str_c(name), &t, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    return t;
}

#define EXPECT(t, acc, dup, seal, wait, exp, del) \
    do {                                          \
        struct ledger_tenant t_ = (t);            \
        assert_int_equal(t_.accepted, acc);       \
        assert_int_equal(t_.duplicates, dup);     \
        assert_int_equal(t_.sealed, seal);        \
        assert_int_equal(t_.raw, wait);           \
        assert_int_equal(t_.expired, exp);        \
        assert_int_equal(t_.deleted, del);        \
    } while (0)

static void clean(uint64_t writes)
{
    struct audit r = audit();

    if (r.difference)
        fail_msg("%s", r.text);
    assert_int_equal(r.want, writes);
    assert_int_equal(r.found, writes);
    steps_check(&bed);
}

/* ---- all that may happen ---- */

static void test_life(void **state)
{
    uint32_t now = store_bed_slot(&bed);
    struct store_view *v = store_view_get(bed.s);
    struct ledger_tenant none;

    (void)state;
    assert_int_equal(store_ledger(v, STR("t"), &none, &e), ERR_NOT_FOUND);
    store_view_put(v);
    push("svc", "pod=a", now);
    struct bed_push again = {
        .service = "svc", .labels = "pod=a", .stacks = "a;b=5 a;c=7", .slot = now, .wid = 1
    };
    assert_int_equal(store_bed_push(&bed, &again), 0);
    EXPECT(tenant("t"), 1, 0, 0, 1, 0, 0); /* a duplicate alone makes no batch */
    push("svc", "pod=b", now);
    push("other", "pod=b", now + 1);
    EXPECT(tenant("t"), 3, 1, 0, 3, 0, 0);
    clean(3);
    settle();
    EXPECT(tenant("t"), 3, 1, 3, 0, 0, 0);
    clean(3);
    push("svc", "pod=a", now); /* late: its leaf is sealed and built */
    push("svc", "pod=c", now - 40 * DAY);
    EXPECT(tenant("t"), 5, 1, 3, 2, 0, 0);
    clean(5);
    settle();
    clean(5);
    store_bed_reopen(&bed, KV_MEM_POWER, 0);
    assert_int_equal(tenant("t").since_ms, 0);
    assert_int_equal(tenant("t").adopting, 0);
    push("svc", "pod=a", store_bed_slot(&bed));
    clean(tenant("t").stored);
}

static void test_deletes(void **state)
{
    uint32_t now = store_bed_slot(&bed);
    struct ledger_tenant t;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        push("svc", "pod=a", now - i * 3000);
        push("svc", "pod=b", now - i * 3000);
        push("other", "pod=a", now - i * 3000);
    }
    settle();
    push("svc", "pod=a", store_bed_slot(&bed));
    push("svc", "pod=b", store_bed_slot(&bed));
    EXPECT(tenant("t"), 17, 0, 15, 2, 0, 0);

    (void)tomb_bed_delete(&bed, "t", "{service_name=\"svc\",pod=\"a\"}", 0, 0, NULL);
    EXPECT(tenant("t"), 17, 0, 15, 1, 0, 1); /* what was not sealed; the rest goes by and by */
    struct audit r = audit();
    assert_int_equal(r.skipped, 1);
    assert_int_equal(r.difference, 0);
    (void)tomb_bed_purge(&bed, 2);
    EXPECT(tenant("t"), 17, 0, 15, 1, 0, 6);
    clean(11);

    (void)tomb_bed_delete(&bed, "t", "{service_name=\"svc\"}", now - 9000, now - 2000, NULL);
    (void)tomb_bed_purge(&bed, 1);
    t = tenant("t");
    assert_int_equal(t.deleted, 9); /* three of those pushes lie in the range */
    clean(8);

    (void)tomb_bed_delete(&bed, "t", "{service_name=\"svc\"}", 0, 0, NULL);
    EXPECT(tenant("t"), 17, 0, 15, 0, 0, 12);
    (void)tomb_bed_purge(&bed, 1000);
    EXPECT(tenant("t"), 17, 0, 15, 0, 0, 12);
    clean(5);
    push("svc", "pod=a", store_bed_slot(&bed)); /* another service of that name */
    clean(6);
    (void)tomb_bed_delete(&bed, "t", "", 0, 0, NULL);
    (void)tomb_bed_purge(&bed, 1000);
    clean(0);
}

static void set_retention(uint64_t days)
{
    struct retain_policy_opts o = { .keep = retain_keep_default(), .interval_ms = 1000 };
    struct retain_policy *p = NULL;

    for (size_t l = 0; l < KEY_LEVELS; l++)
        o.keep.ms[l] = days * UINT64_C(86400000);
    assert_int_equal(retain_policy_new(&o, &p, &e), 0);
    store_set_retention(bed.s, p);
    retain_policy_unref(p);
}

static void retain_all(void)
{
    bool more = true;

    while (more)
        assert_int_equal(store_retain(bed.s, 1000, &more, &e), 0);
}

static void test_retention(void **state)
{
    struct ledger_tenant t = { 0 };

    (void)state;
    set_retention(100);
    for (uint32_t i = 0; i < 40; i++) {
        push("svc", i % 2 ? "pod=a" : "pod=b", store_bed_slot(&bed));
        for (int d = 0; d < 10; d++)
            clock_fake_advance(&bed.clock, INT64_C(86400000)); /* a day at a time is believed */
        settle();
        retain_all();
        struct audit r = audit();
        if (r.difference)
            fail_msg("push %u: %s", i, r.text);
        t = tenant("t");
        assert_int_equal(t.accepted, i + 1);
        assert_int_equal(t.stored, t.accepted - t.expired);
        assert_int_equal(r.want, t.stored);
    }
    assert_true(t.expired >= 20 && t.expired < 40);
    steps_check(&bed);
}

/* ---- mutants: done behind its back ---- */

struct found_row {
    char key[64], value[4096];
    size_t key_len, value_len;
};

/* The first row of a family whose key begins with these bytes. */
static struct found_row first_row(enum kv_cf cf, const char *lead, size_t lead_len)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, str_n(lead, lead_len), STR_NULL);
    struct found_row r = { 0 };

    assert_true(kv_iter_valid(it) && str_starts(kv_iter_key(it), str_n(lead, lead_len)));
    r.key_len = kv_iter_key(it).len;
    r.value_len = kv_iter_value(it).len;
    memcpy(r.key, kv_iter_key(it).ptr, r.key_len);
    memcpy(r.value, kv_iter_value(it).ptr, r.value_len);
    kv_iter_free(it);
    return r;
}

static void tamper(enum kv_cf cf, const struct found_row *r, bool del)
{
    struct kv_batch *b = kv_batch_new();

    if (del)
        kv_batch_del(b, cf, str_n(r->key, r->key_len));
    else
        kv_batch_put(b, cf, str_n(r->key, r->key_len), str_n(r->value, r->value_len));
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
}

/* One thing is wrong: where, and by how much. */
static void noticed(enum ledger_where where, uint64_t lost, uint64_t doubled)
{
    struct audit r = audit();

    assert_int_equal(r.difference, 1);
    assert_int_equal(r.where[0], where);
    assert_int_equal(r.lost, lost);
    assert_int_equal(r.doubled, doubled);
    assert_non_null(strstr(r.text, "service svc"));
    assert_non_null(strstr(r.text, ledger_where_names[where]));
}

static void test_raw_mutants(void **state)
{
    uint32_t now = store_bed_slot(&bed);

    (void)state;
    push("svc", "pod=a", now);
    push("svc", "pod=a", now);
    push("other", "pod=a", now);
    struct found_row r = first_row(KV_RAW, "", 0);
    tamper(KV_RAW, &r, true);
    noticed(LEDGER_RAW, 1, 0);
    tamper(KV_RAW, &r, false);
    clean(3);
    r.key[r.key_len - 1] ^= 0x55; /* another write id */
    tamper(KV_RAW, &r, false);
    noticed(LEDGER_RAW, 0, 1);
    tamper(KV_RAW, &r, true);
    clean(3);
}

static void test_sealed_mutants(void **state)
{
    uint32_t now = store_bed_slot(&bed);
    char level = 0;

    (void)state;
    push("svc", "pod=a", now);
    push("svc", "pod=b", now);
    settle();
    clean(2);
    /* A leaf under clean nodes: queries of all time do not need it, but it is the truth. */
    struct found_row r = first_row(KV_FINE, &level, 1);
    tamper(KV_FINE, &r, true);
    noticed(LEDGER_BASE, 1, 0);
    struct audit shallow = audit_by(1000, 0);
    assert_int_equal(shallow.difference, 0);
    tamper(KV_FINE, &r, false);
    clean(2);
    /* The coarsest node that is built. */
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_COARSE, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it))
        level = kv_iter_key(it).ptr[0];
    kv_iter_free(it);
    assert_true(level >= 2);
    r = first_row(KV_COARSE, &level, 1);
    tamper(KV_COARSE, &r, true);
    noticed(LEDGER_LEVELS, 1, 0);
    tamper(KV_COARSE, &r, false);
    clean(2);
    /* The same total and writes, of other stacks. */
    struct vec_reader v;
    assert_int_equal(vec_peek(str_n(r.value, r.value_len), &v, &e), 0);
    struct vec_meta meta = { .writes = v.meta.writes, .fp = v.meta.fp ^ 1 };
    uint32_t id = 1;
    struct vec_part part = { 0, &id, &v.meta.total, 1 };
    struct buf out;
    buf_init(&out, KIB);
    assert_true(vec_encode(&part, 1, &meta, &out));
    struct found_row other = r;
    other.value_len = out.len;
    memcpy(other.value, out.ptr, out.len);
    buf_deinit(&out);
    tamper(KV_COARSE, &other, false);
    noticed(LEDGER_LEVELS, 0, 0);
}

/* A write that was acked and is in no batch: only the ledger's row came through. */
static void test_acked_not_stored(void **state)
{
    static const char in = KEY_LEDGER_IN;
    struct ledger_sum sum;

    (void)state;
    push("svc", "pod=a", store_bed_slot(&bed));
    struct found_row r = first_row(KV_META, &in, 1);
    assert_int_equal(ledger_in_read(str_n(r.value, r.value_len), &sum, &e), 0);
    assert_int_equal(sum.writes, 1);
    sum.writes++;
    sum.rows++;
    ledger_in_put(&sum, r.value);
    tamper(KV_META, &r, false);
    noticed(LEDGER_RAW, 1, 0);
    settle();
    noticed(LEDGER_RAW, 1, 0); /* permanently: reported until an operator acts */
}

/* ---- older databases, and those of programs without a ledger ---- */

static void drop_ledger(void)
{
    struct kv_batch *b = kv_batch_new();
    struct key k;

    for (char table = KEY_LEDGER_IN; table <= KEY_LEDGER_WHOLE; table++) {
        char end = (char)(table + 1);
        kv_batch_del_range(b, KV_META, str_n(&table, 1), str_n(&end, 1));
    }
    key_control(&k, CONTROL_LEDGER);
    kv_batch_del(b, KV_META, key_str(&k));
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
}

static void test_adopted(void **state)
{
    uint32_t now = store_bed_slot(&bed);

    (void)state;
    push("svc", "pod=a", now);
    settle();
    push("svc", "pod=a", now); /* late, raw */
    push("other", "pod=a", now);
    drop_ledger();
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    push("svc", "pod=b", now);
    struct ledger_tenant t = tenant("t");
    assert_int_equal(t.adopting, 2);
    struct audit r = audit();
    assert_int_equal(r.adopted, 2);
    assert_int_equal(r.difference, 0);
    t = tenant("t");
    assert_int_equal(t.adopting, 0);
    assert_true(t.since_ms > 0);
    assert_int_equal(t.accepted, 4);
    assert_int_equal(t.raw, 3);
    clean(4);
    settle();
    clean(4);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    clean(4);
    char level = 0;
    struct found_row row = first_row(KV_FINE, &level, 1);
    tamper(KV_FINE, &row, true);
    assert_int_equal(audit().difference, 1);
}

/* An older program had the database in between: it writes the clock, and no ledger. */
static void test_written_by_others(void **state)
{
    uint32_t now = store_bed_slot(&bed);
    struct key k, v;

    (void)state;
    push("svc", "pod=a", now);
    push("svc", "pod=b", now);
    clean(2);
    struct found_row r = first_row(KV_RAW, "", 0);
    r.key[r.key_len - 1] ^= 0x55;
    tamper(KV_RAW, &r, false);
    struct kv_batch *b = kv_batch_new();
    key_u64(&v, (uint64_t)BED_START_MS + 12345);
    key_control(&k, CONTROL_CLOCK);
    kv_batch_put(b, KV_META, key_str(&k), key_str(&v));
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(tenant("t").adopting, 1);
    assert_int_equal(audit().difference, 0);
    assert_int_equal(tenant("t").adopting, 0);
    struct audit a = audit(); /* the row has no write id: not for store_check */
    assert_int_equal(a.want, 3);
    assert_int_equal(a.difference, 0);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(audit().adopted, 0);
    assert_int_equal(tenant("t").accepted, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deletes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_raw_mutants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sealed_mutants, setup, teardown),
        cmocka_unit_test_setup_teardown(test_acked_not_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_written_by_others, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
