/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of purging: a step that fails, and what each reports as its work. test_tomb.c checks the
 * data after them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/delete/purge.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_two.h"

static struct err e;

/* Overwrites points of members, or puts back what they were. */
static void damage(struct buf rows[8], bool damaged)
{
    struct kv_batch *b = kv_batch_new();
    size_t n = 0;

    struct kv_iter *it = kv_iter_new(two.bed.s->kv, NULL, KV_TL, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).ptr[0]) /* not level 0 of members */
            continue;
        assert_true(n < 8);
        if (damaged) {
            buf_init(&rows[n], KIB);
            buf_add_str(&rows[n], kv_iter_value(it));
        }
        kv_batch_put(b, KV_TL, kv_iter_key(it), damaged ? STR("damaged") : buf_str(&rows[n]));
        if (!damaged)
            buf_deinit(&rows[n]);
        n++;
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    assert_true(n > 0);
    assert_int_equal(store_write_batch(two.bed.s, b, false, &e), 0);
    kv_batch_free(b);
}

/* A step that fails half way has deleted nothing, and its first half is done again. */
static void test_failed_step(void **state)
{
    struct buf rows[8];
    bool more;

    (void)state;
    two_fill();
    two_seal_later();
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", two.now, two.now + 12, NULL);
    assert_string_equal(two_merge("{}"), "m;x=1100 m;y=1111");
    for (int i = 0; i < 100 && two.bed.s->tombs->at.ptr[0]->phase < 2; i++)
        assert_int_equal(store_purge(two.bed.s, 1000, &more, &e), 0);
    damage(rows, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_purge(two.bed.s, 1000, &more, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "purge of delete"));
    }
    damage(rows, false);
    tomb_bed_purge(&two.bed, 1000);
    assert_string_equal(two_merge("{}"), "m;x=1100 m;y=1111");
    steps_check(&two.bed);
}

/* Rows of the ledger cannot be read for a while. */
static struct {
    const struct kv_ops *ops;
    struct kv_ops mine;
    size_t failed;
} disk;

static int fail_ledger(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                       struct buf *out, struct err *ret)
{
    if (cf != KV_META || !key.len || (uint8_t)key.ptr[0] != KEY_LEDGER_OUT)
        return disk.ops->get(k, snap, cf, key, out, ret);
    disk.failed++;
    return err_set(ret, ERR_IO, "the disk says no");
}

/* A step that did all of its work, and could not write down what that means for the ledger, has
 * deleted nothing either: also the last one of a phase. */
static void test_failed_ledger(void **state)
{
    bool more = true;

    (void)state;
    two_fill();
    two_seal_later();
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"api\"}", two.now, two.now + 12, NULL);
    disk.ops = two.bed.s->kv->ops;
    disk.mine = *disk.ops;
    disk.mine.get = fail_ledger;
    disk.failed = 0;
    for (int i = 0; i < 1000 && more; i++) {
        bool failed = false;
        two.bed.s->kv->ops = &disk.mine;
        failed = store_purge(two.bed.s, 1, &more, &e) != 0;
        two.bed.s->kv->ops = disk.ops;
        if (!failed)
            continue;
        assert_int_equal(e.code, ERR_IO);
        assert_int_equal(two.bed.s->tombs->at.ptr[0]->state, TOMB_PURGING);
        assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    }
    assert_true(disk.failed > 0);
    assert_string_equal(two_merge("{}"), "m;x=1100 m;y=1111");
    steps_check(&two.bed);
}

/* Where roll-ups begin again, the earlier work of the step is dropped, also its news for the
 * ledger: both are done once. */
static void test_begun_anew(void **state)
{
    struct kv_batch *b = kv_batch_new();
    struct tomb_stats st;
    size_t n = 0;

    (void)state;
    two_fill();
    two_seal_later();
    struct kv_iter *it = kv_iter_new(two.bed.s->kv, NULL, KV_RU, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.ptr[0] != 1 || get_u32be(key.ptr + KEY_MEMBER_HEAD) < two.now + 12)
            continue; /* minutes, from the second one on */
        kv_batch_put(b, KV_RU, key, STR("damaged"));
        n++;
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    assert_true(n > 0);
    assert_int_equal(store_write_batch(two.bed.s, b, false, &e), 0);
    kv_batch_free(b);
    tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    tomb_bed_purge(&two.bed, 1000);
    store_delete_stats(two.bed.s, &st);
    assert_int_equal(st.rollups_restarted, 2); /* services */
    assert_string_equal(two_merge("{}"), "m;x=1010 m;y=1010");
    steps_check(&two.bed);
}

/* ---- leaves of a gauge, in steps ---- */

#define PODS  20
#define GAUGE "memory:inuse_space:bytes::"

static void push_gauge(uint32_t pod, uint32_t leaf)
{
    static uint64_t wid = 1000;
    char labels[32];

    (void)snprintf(labels, sizeof(labels), "pod=p%u", pod);
    assert_int_equal(
        store_bed_push(&two.bed, &(struct bed_push){ .service = "api",
                                                     .labels = labels,
                                                     .type = GAUGE,
                                                     .gauge = true,
                                                     .slot = two.now + leaf * LEAF_SLOTS,
                                                     .wid = ++wid,
                                                     .stacks = "m;heap=5" }),
        1);
}

/* Leaves with data of the service's gauge. */
static size_t leaves(bool members)
{
    struct arena *a = arena_new(MIB);
    struct selector s;
    struct stacks st;
    struct store_merge m = { .stacks = &st };

    assert_int_equal(selector_parse(STR("{service_name=\"api\"}"), SELECTOR_PROMETHEUS, a, &s, &e),
                     0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = { .tenant = STR("t"),
                             .selector = &s,
                             .profile_type = STR(GAUGE),
                             .start_ms = slot_to_ms(two.now),
                             .end_ms = slot_to_ms(two.now + 1000),
                             .members = members };
    struct store_view *v = store_view_get(two.bed.s);
    stacks_init(&st, MIB, 1);
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    size_t n = m.leaves.len;
    store_merge_deinit(&m);
    store_view_put(v);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return n;
}

/* While the leaves of those who stay are read, pod by pod, each of them comes to have data in a
 * leaf that only the deleted one had: those leaves stay the group's. */
static void test_seal_between(void **state)
{
    bool more;

    (void)state;
    for (uint32_t pod = 1; pod <= PODS; pod++) {
        push_gauge(0, pod);
        push_gauge(pod, PODS + 1);
    }
    push_gauge(0, PODS + 2);
    two_minutes(10);
    store_bed_seal(&two.bed);
    tomb_bed_delete(&two.bed, NULL, "{pod=\"p0\"}", 0, 0, NULL);
    struct tombs *all = two.bed.s->tombs;
    for (int i = 0; i < 1000 && !(all->purge && all->purge->fix && all->purge->fix->survivors); i++)
        assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    for (int i = 0; i < PODS / 2; i++)
        assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    assert_non_null(all->purge->fix->survivors); /* it is not over */
    for (uint32_t pod = 1; pod <= PODS; pod++)
        push_gauge(pod, pod);
    two_seal_later();
    tomb_bed_purge(&two.bed, 1);
    struct tomb_stats st;
    store_delete_stats(two.bed.s, &st);
    assert_int_equal(st.rollups_restarted, 0);
    assert_int_equal(leaves(true), PODS + 1);
    assert_int_equal(leaves(false), PODS + 1);
    steps_check(&two.bed);
}

/* Every phase says what it does, in its order, and only while it does. */
static void phases_of(const char *selector, uint32_t from, uint32_t to, const char *want)
{
    struct arena *a = arena_new(MIB);
    const char *last = "";
    struct tomb_list l;
    struct buf got;
    bool more = true;

    buf_init(&got, KIB);
    two_fill();
    two_seal_later();
    (void)tomb_bed_delete(&two.bed, NULL, selector, from, to, NULL);
    for (int i = 0; i < 1000; i++) {
        struct store_view *v = store_view_get(two.bed.s);
        assert_int_equal(store_deletes(v, STR("t"), a, &l, &e), 0);
        store_view_put(v);
        assert_int_equal(l.at.len, 1);
        if (strcmp(l.at.ptr[0].phase, last) != 0) {
            buf_add_str(&got, str_c(*last ? ", " : ""));
            buf_add_str(&got, str_c(last = l.at.ptr[0].phase));
        }
        bool done = l.at.ptr[0].state == TOMB_DONE;
        tomb_list_deinit(&l);
        if (done)
            break;
        if (!two.bed.s->tombs->pending) {
            assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
            clock_fake_advance(&two.bed.clock, 2000);
        }
        assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    }
    assert_true(buf_add(&got, "", 1));
    assert_string_equal(got.ptr, want);
    buf_deinit(&got);
    arena_free(a);
}

static void test_phases_of_services(void **state)
{
    (void)state;
    phases_of("{service_name=\"api\"}", 0, 0,
              "waiting, rows of whole services, label sets, label index, label values, "
              "dictionaries and names, files, ");
}

static void test_phases_of_series(void **state)
{
    (void)state;
    phases_of("{pod=\"a\"}", 0, 0,
              "waiting, roll-ups of those who stay, rows of series, label index, label values, "
              "days with data, files, ");
}

static void test_phases_of_range(void **state)
{
    (void)state;
    phases_of("{pod=\"a\"}", two.now, two.now + 12,
              "waiting, roll-ups of those who stay, rows of series, label index, label values, "
              "days with data, files, ");
}

static void test_phases_of_tenant(void **state)
{
    (void)state;
    phases_of(NULL, 0, 0, "waiting, rows of whole services, dictionaries and names, files, ");
}

/* ---- a commit in the middle of a step ---- */

/* The database with one more thing: what is armed happens right behind the next look at a table,
 * as a committer's fsync may come back at any moment. */
static struct meddler {
    const struct kv_ops *ops; /* the database's own */
    struct kv_ops mine;
    enum key_table table;
    struct store_batch *batch; /* NULL: not armed, or done */
} meddler;

static struct kv_iter *meddle(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf,
                              struct str from, struct str to)
{
    struct kv_iter *it = meddler.ops->iter_new(kv, snap, cf, from, to);
    struct store_batch *b = meddler.batch;

    if (b && cf == KV_META && from.len && (uint8_t)from.ptr[0] == meddler.table) {
        meddler.batch = NULL;
        assert_int_equal(store_commit(two.bed.s, b, &e), 0);
    }
    return it;
}

static void meddler_begin(enum key_table table)
{
    meddler = (struct meddler){ .ops = two.bed.s->kv->ops, .table = table };
    meddler.mine = *meddler.ops;
    meddler.mine.iter_new = meddle;
    two.bed.s->kv->ops = &meddler.mine;
}

static void meddler_arm(const struct bed_push *p)
{
    struct store_batch *b = store_batch_new(two.bed.s);
    struct store_result r;

    assert_int_equal(store_bed_stage(&two.bed, b, p, &r, &e), 0);
    meddler.batch = b;
}

static struct tomb *purge_until(const char *phase)
{
    struct tomb *t = two.bed.s->tombs->at.ptr[0];
    bool more;

    for (int i = 0; i < 1000 && strcmp(tomb_phase(t), phase) != 0; i++)
        assert_int_equal(store_purge(two.bed.s, 1000, &more, &e), 0);
    assert_string_equal(tomb_phase(t), phase);
    return t;
}

static void push_pod(uint32_t pod)
{
    char labels[32];

    (void)snprintf(labels, sizeof(labels), "pod=p%u,zone=z", pod);
    two_push("api", labels, two.now, 100 + pod, "m;x=1");
}

/* Series that `more` ones make are found by their label, though the bitmap of the label is written
 * by the commit that ends while the purge looks at it. */
static void join_between(uint32_t more)
{
    char labels[32];
    size_t found = 1;
    bool again;

    for (uint32_t pod = 0; pod < 70 + more; pod++)
        push_pod(pod);
    tomb_bed_delete(&two.bed, NULL, "{pod=\"p3\"}", 0, 0, NULL);
    (void)purge_until("label index");
    assert_int_equal(store_purge(two.bed.s, 1000, &again, &e), 0); /* which series live */
    (void)snprintf(labels, sizeof(labels), "pod=p%u,zone=z", 70 + more);
    meddler_begin(KEY_POST);
    struct bed_push p = {
        .service = "api", .labels = labels, .slot = two.now, .wid = 1, .stacks = "m;x=1"
    };
    meddler_arm(&p);
    assert_int_equal(store_purge(two.bed.s, 1000, &again, &e), 0);
    assert_null(meddler.batch);
    two.bed.s->kv->ops = meddler.ops;
    tomb_bed_purge(&two.bed, 1000);
    for (const char *at = tomb_bed_values(&two.bed, NULL, "pod", "{zone=\"z\"}"); *at; at++)
        found += *at == ',';
    assert_int_equal(found, 70 + more);
}

static void test_commit_between_postings(void **state)
{
    for (uint32_t more = 0; more < 64; more++) {
        join_between(more);
        if (more < 63) {
            two_teardown(state);
            two_setup(state);
        }
    }
}

/* A label pair without series comes back while the purge looks whether any series has it. */
static void test_commit_between_pairs(void **state)
{
    struct bed_push p = {
        .service = "api", .labels = "pod=a", .slot = two.now, .wid = 9, .stacks = "m;x=7"
    };
    bool more;

    (void)state;
    two_push("api", "pod=a", two.now, 1, "m;x=1");
    two_push("api", "pod=b", two.now, 2, "m;x=10");
    tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    (void)purge_until("label values");
    meddler_begin(KEY_POST);
    meddler_arm(&p);
    assert_int_equal(store_purge(two.bed.s, 1000, &more, &e), 0);
    assert_null(meddler.batch);
    two.bed.s->kv->ops = meddler.ops;
    tomb_bed_purge(&two.bed, 1000);
    assert_string_equal(two_merge("{pod=\"a\"}"), "m;x=7");
    assert_string_equal(tomb_bed_values(&two.bed, NULL, "pod", NULL), "a,b");
    steps_check(&two.bed);
}

/* ---- data left in files ---- */

static size_t spans(void)
{
    struct key from = { .len = 1, .b = { KEY_TOMB_SPAN } }, to = from;
    size_t n = 0;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(two.bed.s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

/* A range is compacted when nothing of it is deleted any more: else bytes would be left in files
 * when the delete says that it is done. Those of an earlier delete do not wait for that. */
static void test_compacted_when_purged(void **state)
{
    bool more = true;
    size_t n;

    (void)state;
    two_fill();
    two_seal_later();
    tomb_bed_delete(&two.bed, NULL, "{pod=\"a\"}", two.now, two.now + 12, NULL);
    (void)purge_until("rows of series");
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    assert_true((n = spans()) > 0);
    assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
    assert_false(more);
    assert_int_equal(spans(), n);
    tomb_bed_purge(&two.bed, 1000);
    tomb_bed_delete(&two.bed, NULL, "{service_name=\"db\"}", 0, 0, NULL);
    assert_int_equal(store_purge(two.bed.s, 1, &more, &e), 0);
    for (more = true; more;)
        assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
    assert_true(spans() > 0);
    tomb_bed_purge(&two.bed, 1000);
    for (more = true; more;)
        assert_int_equal(store_reclaim(two.bed.s, &more, &e), 0);
    assert_int_equal(spans(), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, two_setup, two_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_failed_step),
        T(test_failed_ledger),
        T(test_begun_anew),
        T(test_seal_between),
        T(test_phases_of_services),
        T(test_phases_of_series),
        T(test_phases_of_range),
        T(test_phases_of_tenant),
        T(test_commit_between_postings),
        T(test_commit_between_pairs),
        T(test_compacted_when_purged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
