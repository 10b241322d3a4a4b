/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences that an operator accepts: they stay in the report and are no difference any more, nor
 * in the numbers of the tenant; the next difference counts, at once, and by itself. That holds
 * whatever happens to the data afterwards: seals, repairs, retention, deletes, a restart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/retain/retain.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

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

static void push(const char *service, const char *labels)
{
    struct bed_push p = { .service = service,
                          .labels = labels,
                          .stacks = "a;b=5 a;c=7",
                          .slot = store_bed_slot(&bed),
                          .wid = next_wid++ };

    assert_int_equal(store_bed_push(&bed, &p), 1);
}

static void settle(void)
{
    clock_fake_advance(&bed.clock, 30 * 60000);
    store_bed_seal(&bed);
    for (int i = 0; i < 100000 && steps_build(&bed, 1000); i++)
        ;
}

struct row {
    enum kv_cf cf;
    char key[64], value[4096];
    size_t key_len, value_len;
};

/* Takes the first or the last row of a family out, behind the store's back. */
static struct row take(enum kv_cf cf, bool last)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, STR_NULL, STR_NULL);
    struct kv_batch *b = kv_batch_new();
    struct row r = { .cf = cf };

    for (bool first = true; kv_iter_valid(it) && (first || last); kv_iter_next(it), first = false) {
        r.key_len = kv_iter_key(it).len;
        r.value_len = kv_iter_value(it).len;
        memcpy(r.key, kv_iter_key(it).ptr, r.key_len);
        memcpy(r.value, kv_iter_value(it).ptr, r.value_len);
    }
    kv_iter_free(it);
    assert_true(r.key_len > 0);
    kv_batch_del(b, cf, str_n(r.key, r.key_len));
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
    return r;
}

static void put_back(const struct row *r)
{
    struct kv_batch *b = kv_batch_new();

    kv_batch_put(b, r->cf, str_n(r->key, r->key_len), str_n(r->value, r->value_len));
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
}

struct found {
    uint64_t difference, lost, doubled, want, found;
};

static int accept_one(struct ledger_audit *a, struct str who, struct str reason, size_t *ret_rows)
{
    const struct ledger_accept x = { .audits = &a, .audits_len = 1, .who = who, .reason = reason };

    return store_ledger_accept(bed.s, &x, ret_rows, &e);
}

/* Walks all services; with a reason what differs is accepted. */
static struct found audit(const char *reason)
{
    struct store_view *v = store_view_get(bed.s);
    uint32_t tenant = 0, scope = 0;
    struct found f = { 0 };

    for (;;) {
        struct ledger_audit *a;
        bool done = false;
        size_t rows;

        assert_int_equal(store_ledger_next(v, tenant, scope, &a, &e), 0);
        if (!a)
            break;
        const struct ledger_result *r = ledger_audit_result(a);
        tenant = r->tenant;
        scope = r->scope;
        while (!done)
            assert_int_equal(store_ledger_audit(a, 5, SIZE_MAX, &done, &e), 0);
        f.difference += r->difference;
        f.lost += r->lost;
        f.doubled += r->doubled;
        f.want += r->want;
        f.found += r->found;
        if (reason && accept_one(a, STR("ann"), str_c(reason), &rows))
            fail_msg("%s", e.text);
        assert_true(!reason || rows == 0 || r->difference > 0);
        ledger_audit_free(a);
    }
    store_view_put(v);
    return f;
}

static struct ledger_tenant tenant(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct ledger_tenant t;

    if (store_ledger(v, STR("t"), &t, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    return t;
}

/* Nothing differs, and the numbers equal the stored data. */
static void even(uint64_t writes)
{
    struct found f = audit(NULL);
    struct ledger_tenant t = tenant();

    assert_int_equal(f.difference, 0);
    assert_int_equal(f.want, writes);
    assert_int_equal(f.found, writes);
    assert_int_equal(t.stored, writes);
    assert_int_equal(t.adopting, 0);
}

struct told {
    size_t len;
    uint64_t lost, doubled;
    int64_t last_ms;
    char service[32], reason[64];
};

static int on_accepted(void *cookie, const struct ledger_accepted *x, struct err *err)
{
    struct told *l = cookie;

    (void)err;
    l->len++;
    l->lost += x->lost;
    l->doubled += x->doubled;
    l->last_ms = MAX(l->last_ms, x->at_ms);
    assert_true(str_eqc(x->who, "ann"));
    assert_true(x->service.len < sizeof(l->service) && x->reason.len < sizeof(l->reason));
    (void)snprintf(l->service, sizeof(l->service), "%.*s", STR_ARG(x->service));
    (void)snprintf(l->reason, sizeof(l->reason), "%.*s", STR_ARG(x->reason));
    return 0;
}

static struct told list(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct told l = { 0 };

    assert_int_equal(store_ledger_accepted(v, STR("t"), on_accepted, &l, &e), 0);
    store_view_put(v);
    return l;
}

static void test_unsealed(void **state)
{
    (void)state;
    push("svc", "pod=a");
    push("svc", "pod=b");
    push("svc", "pod=c");
    push("other", "pod=a");
    even(4);
    assert_int_equal(audit("nothing is to be accepted").difference, 0);
    assert_int_equal(list().len, 0);
    (void)take(KV_RAW, false);
    struct found f = audit("disk of node 7");
    assert_int_equal(f.difference, 1);
    assert_int_equal(f.lost, 1);
    even(3);
    struct told l = list();
    assert_int_equal(l.len, 1);
    assert_int_equal(l.lost, 1);
    assert_true(l.last_ms > 0);
    assert_string_equal(l.service, "svc");
    assert_string_equal(l.reason, "disk of node 7");
    assert_int_equal(tenant().raw, 3);
    settle();
    even(3);
    (void)take(KV_COARSE, true); /* another one: that alone is new */
    f = audit(NULL);
    assert_true(f.difference >= 1 && f.lost == 1 && f.doubled == 0);
    assert_int_equal(audit("and another").difference, f.difference);
    f = audit(NULL);
    assert_int_equal(f.difference, 0);
    l = list();
    assert_int_equal(l.len, 2);
    assert_int_equal(l.lost, 2);
    store_bed_reopen(&bed, KV_MEM_POWER, 0);
    assert_int_equal(audit(NULL).difference, 0);
    assert_int_equal(list().len, 2);
    push("svc", "pod=d");
    settle();
    assert_int_equal(audit(NULL).difference, 0);
}

/* What was accepted as lost comes back: that is no surplus. */
static void test_comes_back(void **state)
{
    (void)state;
    push("svc", "pod=a");
    push("svc", "pod=b");
    settle();
    struct row finest = take(KV_FINE, false), top = take(KV_COARSE, true);
    struct found f = audit("gone");
    assert_true(f.difference >= 2);
    assert_int_equal(audit(NULL).difference, 0);
    put_back(&top);
    assert_int_equal(audit(NULL).difference, 0);
    put_back(&finest);
    assert_int_equal(audit(NULL).difference, 0);
    (void)take(KV_FINE, true); /* and if it goes again, or another one does */
    (void)take(KV_FINE, false);
    assert_true(audit(NULL).difference > 0);
}

static void test_surplus(void **state)
{
    (void)state;
    push("svc", "pod=a");
    struct row r = take(KV_RAW, false), twice = r;
    put_back(&r);
    twice.key[twice.key_len - 1] ^= 0x55;
    put_back(&twice);
    assert_int_equal(audit("sent twice").doubled, 1);
    even(2);
    assert_int_equal(list().doubled, 1);
    (void)take(KV_RAW, false);
    assert_int_equal(audit(NULL).difference, 0); /* it is mended */
    (void)take(KV_RAW, false);
    assert_int_equal(audit(NULL).difference, 1);
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

/* Each tenth push is lost; a year later nothing of that is in any number but the list's. */
static void test_expires(void **state)
{
    bool more;

    (void)state;
    set_retention(100);
    for (int i = 0; i < 40; i++) {
        push("svc", "pod=a");
        push("svc", "pod=b");
        if (i % 10 == 3) {
            (void)take(KV_RAW, false);
            assert_int_equal(audit("a bad day").lost, 1);
        }
        for (int d = 0; d < 10; d++)
            clock_fake_advance(&bed.clock, INT64_C(86400000));
        settle();
        for (more = true; more;)
            assert_int_equal(store_retain(bed.s, 1000, &more, &e), 0);
        struct found f = audit(NULL);
        assert_int_equal(f.difference, 0);
        even(f.want);
    }
    struct ledger_tenant t = tenant();
    assert_true(t.expired >= 40);
    assert_int_equal(t.accepted, 80);
    assert_int_equal(t.stored + t.expired + t.deleted + 4, 80);
    assert_int_equal(list().len, 4);
}

static void test_deleted(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        push("svc", "pod=a");
        push("other", "pod=a");
    }
    (void)take(KV_RAW, false);
    assert_int_equal(audit("lost").lost, 1);
    settle();
    even(9);
    (void)tomb_bed_delete(&bed, "t", "{service_name=\"svc\"}", 0, 0, NULL);
    (void)tomb_bed_purge(&bed, 1000);
    struct ledger_tenant t = tenant();
    even(t.stored);
    assert_true(t.stored == 4 || t.stored == 5); /* whichever the lost one was of */
    assert_int_equal(list().len, 1);
    push("svc", "pod=a"); /* another service of that name */
    even(t.stored + 1);
    (void)tomb_bed_delete(&bed, "t", "{service_name=\"other\"}", 0, 0, NULL);
    (void)tomb_bed_purge(&bed, 1000);
    even(1);
    assert_int_equal(list().len, 1);
    (void)tomb_bed_delete(&bed, "t", "", 0, 0, NULL);
    (void)tomb_bed_purge(&bed, 1000);
    assert_int_equal(list().len, 0);
}

static void test_refused(void **state)
{
    struct ledger_audit *a;
    char big[LEDGER_REASON_MAX + 1];
    bool done = false;
    size_t rows = 0;

    (void)state;
    push("svc", "pod=a");
    (void)take(KV_RAW, false);
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_ledger_next(v, 0, 0, &a, &e), 0);
    while (!done)
        assert_int_equal(store_ledger_audit(a, 5, SIZE_MAX, &done, &e), 0);
    memset(big, 'x', sizeof(big));
    assert_int_equal(accept_one(a, STR(""), STR("r"), &rows), ERR_INPUT);
    assert_int_equal(accept_one(a, STR("w"), STR(""), &rows), ERR_INPUT);
    assert_int_equal(accept_one(a, STR("w"), str_n(big, sizeof(big)), &rows), ERR_INPUT);
    uint32_t t = ledger_audit_result(a)->tenant, s = ledger_audit_result(a)->scope;
    struct ledger_audit *same, *none;
    assert_int_equal(store_ledger_of(v, t, s, &same, &e), 0);
    assert_non_null(same);
    assert_int_equal(store_ledger_of(v, t, s + 1, &none, &e), 0);
    assert_null(none);
    ledger_audit_free(same);
    (void)tomb_bed_delete(&bed, "t", "{service_name=\"svc\"}", 0, 0, NULL);
    assert_int_equal(accept_one(a, STR("w"), STR("r"), &rows), ERR_BUSY);
    assert_int_equal(rows, 0);
    ledger_audit_free(a);
    store_view_put(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unsealed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_surplus, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expires, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deleted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
