/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention against a model: a list of all pushes. Months of simulated time with late data, seals,
 * builds, retention in small steps, restarts and power cuts in between. At any moment, for any
 * range:
 *
 *   the answer's bounds contain the range, as far as anything is kept, and by no more than the base
 *   nodes at its edges; the answer is the exact sum of all pushes within these bounds, nothing
 *   older, nothing missing; held views answer as before; data that are too old are refused, all
 *   else is taken; nothing is answered that is older than the total retention by more than a 64th
 *   of it and a base node there.
 *
 * At times the wall clock is years off for a while, over restarts and power cuts; it is corrected
 * before it is believed (engine_clock.h), and then nothing has expired that would not have
 * otherwise.
 *
 * SEED=n repeats one; SEEDS=n runs more of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/check/check.h"
#include "common/store/retain/retain.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"

#define HOUR_MS   INT64_C(3600000)
#define DAY_MS    (24 * HOUR_MS)
#define SERVICES  3
#define PODS      3
#define TIMES_MAX 40
#define SLACK     720 /* slots that rounds may be late */
#define SEEDS     4

struct pushed {
    uint32_t slot, service;
    uint64_t value;
};
struct bed {
    struct store_bed s;
    struct prng p;
    struct retain_policy *policy;
    struct retain_keep keep[SERVICES];
    VEC(struct pushed) all;
    uint64_t wid, again, folded, refused, epochs_dropped, moved, files, purged, wrong;
};

static const char *const services[SERVICES] = { "api", "batch", "shop-cart" };

static const char rules[] = "# what differs\n"
                            "service=batch 10s=1h 1m=2h 10m=6h 1h=1d 6h=3d 1d=10d 8d=20d 64d=20d\n"
                            "\n"
                            "service=shop-* type=process_cpu:* 10s=2d   # longer\n";

static void set_policy(struct bed *b)
{
    struct retain_policy_opts o = { .interval_ms = 60000, .rules = str_c(rules), .file = "rules" };
    static const int64_t keep[KEY_LEVELS] = { 6, 12, 48, 96, 8 * 24, 16 * 24, 32 * 24, 70 * 24 };
    struct err e;

    for (size_t i = 0; i < KEY_LEVELS; i++)
        o.keep.ms[i] = (uint64_t)(keep[i] * HOUR_MS);
    retain_policy_unref(b->policy);
    assert_int_equal(retain_policy_new(&o, &b->policy, &e), 0);
    assert_int_equal(retain_policy_rules(b->policy), 2);
    for (size_t i = 0; i < SERVICES; i++)
        b->keep[i] = retain_policy_keep(b->policy, STR("t"), str_c(services[i]), STR(BED_CPU));
    store_set_retention(b->s.s, b->policy);
}

static void bed_open(struct bed *b, uint64_t seed)
{
    struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .build_all = true,
        .wid_horizon_ms = 3600000,
        .seed = seed,
        .epoch_nodes_max = 60,
    };

    *b = (struct bed){ 0 };
    prng_init(&b->p, seed);
    store_bed_init(&b->s, &o);
    set_policy(b);
}

static void bed_close(struct bed *b)
{
    store_bed_deinit(&b->s);
    retain_policy_unref(b->policy);
    vec_free(&b->all);
}

static void count(struct bed *b)
{
    struct retain_stats st;

    store_retain_stats(b->s.s, &st);
    b->epochs_dropped += st.epochs_dropped;
    b->moved += st.floors_moved;
    b->files += st.file_drops;
    b->purged += st.rows_purged;
}

static void reopen(struct bed *b)
{
    enum kv_mem_crash how = prng_chance(&b->p, 0.5) ? KV_MEM_KILL : KV_MEM_POWER;

    count(b);
    store_bed_reopen(&b->s, how, prng_below(&b->p, 20));
    store_set_retention(b->s.s, b->policy);
}

static void load_floors(struct bed *b, uint32_t service, struct floors *ret)
{
    struct member m = { .tenant = 0, .scope = 0 };
    struct tenant *t;
    struct known_name *scope, *type;
    struct err e;

    assert_int_equal(names_tenant(b->s.s->names, STR("t"), &t, &e), 0);
    assert_int_equal(names_scope(b->s.s->names, t, str_c(services[service]), &scope, &e), 0);
    assert_int_equal(names_ptype(b->s.s->names, t, STR(BED_CPU), false, &type, &e), 0);
    *ret = (struct floors){ 0 };
    if (scope->seq == NAMES_RESERVED || type->seq == NAMES_RESERVED ||
        t->known->seq == NAMES_RESERVED)
        return;
    m.tenant = t->number;
    m.scope = scope->number;
    m.ptype = (uint16_t)type->number;
    assert_int_equal(floors_load_read(b->s.s->kv, NULL, &m, ret, &e), 0);
}

static void seal(struct bed *b)
{
    while (steps_seal(&b->s, 1 + prng_below(&b->p, 20)))
        ;
}

static void build(struct bed *b, bool all)
{
    bool more = true;

    while (more && (all || prng_chance(&b->p, 0.9)))
        more = steps_build(&b->s, 1 + prng_below(&b->p, 200));
}

static void retain(struct bed *b, bool all)
{
    bool more = true;
    struct err e;

    while (more && (all || prng_chance(&b->p, 0.9)))
        if (store_retain(b->s.s, 1 + prng_below(&b->p, 10), &more, &e))
            fail_msg("retain: %s", e.text);
}

/* Stages and commits *p, `again` with the write id of a push before: must be known then. */
static int commit(struct bed *b, const struct bed_push *p, bool again, struct err *e)
{
    struct store_batch *batch = store_batch_new(b->s.s);
    struct store_result result;
    struct err other;

    int rc = store_bed_stage(&b->s, batch, p, &result, e);
    assert_int_equal(store_commit(b->s.s, batch, &other), 0);
    if (!rc)
        assert_int_equal(result.duplicates, again);
    return rc;
}

/* One push, mostly of now, sometimes of long ago, often of many slots; some come a second time
 * after hours in which floors may have moved, but nothing was sealed. */
static void push(struct bed *b)
{
    uint32_t now = store_bed_slot(&b->s), service = (uint32_t)prng_below(&b->p, SERVICES), back;
    uint32_t times = prng_chance(&b->p, 0.4) ? 2 + (uint32_t)prng_below(&b->p, TIMES_MAX) : 1;
    uint32_t every = 1 + (uint32_t)prng_below(&b->p, prng_chance(&b->p, 0.5) ? 12 : 500);
    uint64_t rows = b->s.s->raw.rows;
    char labels[32], stacks[64];
    struct floors f;
    struct err e;

    back = prng_chance(&b->p, 0.7)
               ? (uint32_t)prng_below(&b->p, 200)
               : (uint32_t)prng_below(&b->p, 17280u * (prng_chance(&b->p, 0.5) ? 2 : 90));
    struct pushed x = { MIN(now - back, now), service, 1 + prng_below(&b->p, 1000) };
    times = MIN(times, 1 + back / every);
    (void)snprintf(labels, sizeof(labels), "pod=p%u", (unsigned)prng_below(&b->p, PODS));
    (void)snprintf(stacks, sizeof(stacks), "a;b%u;c%u=%" PRIu64, (unsigned)prng_below(&b->p, 5),
                   (unsigned)(now / 200000 + prng_below(&b->p, 30)), x.value);
    struct bed_push pushed = { .service = services[service],
                               .labels = labels,
                               .stacks = stacks,
                               .slot = x.slot,
                               .times = times,
                               .every = every,
                               .wid = ++b->wid };
    load_floors(b, service, &f);
    int rc = commit(b, &pushed, false, &e);
    if (!f.at[0]) /* the service is new, and its floors are those of now */
        retain_floors(&b->keep[service], atomic_load(&b->s.clock.wall_ms), &f);
    int64_t oldest =
        atomic_load(&b->s.clock.wall_ms) - (int64_t)b->keep[service].ms[KEY_LEVELS - 1];
    assert_int_equal(rc, x.slot < MAX(f.at[KEY_LEVELS - 1], slot_of_ms(oldest)) ? ERR_INPUT : 0);
    if (rc) {
        assert_int_equal(rc, ERR_INPUT);
        assert_non_null(strstr(e.text, "not_in_ingestion_window: the profile is "));
        b->refused++;
        return;
    }
    b->folded += b->s.s->raw.rows - rows < times;
    for (uint32_t i = 0; i < times; i++, x.slot += every)
        vec_push(&b->all, x);
    if (prng_chance(&b->p, 0.1)) {
        clock_fake_advance(&b->s.clock, (int64_t)prng_below(&b->p, 3 * HOUR_MS));
        retain(b, false);
        rc = commit(b, &pushed, true, &e); /* its oldest slot may be too old by now */
        assert_true(!rc || rc == ERR_INPUT);
        b->again += !rc;
    }
}

static uint64_t ask(struct bed *b, struct store_view *v, uint32_t service, uint32_t from,
                    uint32_t to, int64_t *ret_start, int64_t *ret_end)
{
    struct matcher m = { .op = MATCH_EQ,
                         .name = STR("service_name"),
                         .value = str_c(services[service]) };
    struct selector sel = { .matchers = &m, .len = 1 };
    struct store_query q = {
        .tenant = STR("t"),
        .selector = &sel,
        .profile_type = STR(BED_CPU),
        .start_ms = slot_to_ms(from),
        .end_ms = slot_to_ms(to),
    };
    struct stacks st;
    struct store_merge r = { .stacks = &st };
    uint64_t total;
    struct err e;

    (void)b;
    stacks_init(&st, 16 * MIB, 3);
    assert_int_equal(selector_compile(&sel, &e), 0);
    if (store_merge(v, &q, &r, &e))
        fail_msg("merge: %s", e.text);
    total = r.total;
    *ret_start = r.start_ms;
    *ret_end = r.end_ms;
    store_merge_deinit(&r);
    stacks_deinit(&st);
    selector_deinit(&sel);
    return total;
}

static uint64_t sum_of(const struct bed *b, uint32_t service, int64_t start_ms, int64_t end_ms)
{
    uint64_t total = 0;

    vec_for (i, &b->all) {
        const struct pushed *x = &b->all.ptr[i];
        int64_t at = slot_to_ms(x->slot);

        if (x->service == service && at >= start_ms && at < end_ms)
            total += x->value;
    }
    return total;
}

static void check_range(struct bed *b)
{
    uint32_t now = store_bed_slot(&b->s), service = (uint32_t)prng_below(&b->p, SERVICES);
    uint32_t reach = prng_chance(&b->p, 0.5) ? 17280 : 120 * 17280u, start_slot, end_slot;
    uint32_t from = now - (uint32_t)prng_below(&b->p, reach);
    uint32_t to = from + 1 + (uint32_t)prng_below(&b->p, now + 100 - from);
    struct store_view *v = store_view_get(b->s.s);
    int64_t start, end;
    struct floors f;
    uint64_t total = ask(b, v, service, from, to, &start, &end);

    store_view_put(v);
    load_floors(b, service, &f);
    start_slot = slot_of_ms(start);
    end_slot = slot_of_ms(end);
    uint32_t gone = floors_lowest(&f), base;
    if (to <= gone) {
        assert_int_equal(total, 0);
        return;
    }
    /* Not more than the base nodes at the edges, of members, the coarser ones. */
    bool below = from < gone;
    from = MAX(from, gone);
    base = floors_base(&f, false, from);
    if (start_slot > from || (!below && start_slot < node_of(base, from)))
        fail_msg("%s: asked from %u, base %u, answered from %u; floors %u %u %u %u .. %u",
                 services[service], from, base, start_slot, f.at[0], f.at[1], f.at[2], f.at[3],
                 gone);
    base = floors_base(&f, false, to - 1);
    assert_true(end_slot >= to && end_slot <= node_of(base, to - 1) + LEVELS[base].node);
    uint64_t want = sum_of(b, service, MAX(start, slot_to_ms(gone)), end);
    if (total != want)
        fail_msg("%s, slots %u to %u (asked %u to %u, floors %u %u %u .. %u): %" PRIu64
                 ", pushed were %" PRIu64,
                 services[service], start_slot, end_slot, from, to, f.at[0], f.at[1], f.at[2], gone,
                 total, want);
}

/* No floor stands higher than the time that really is would have it. */
static void check_floors(struct bed *b, int64_t truth_ms)
{
    struct floors have, want;

    for (uint32_t i = 0; i < SERVICES; i++) {
        load_floors(b, i, &have);
        retain_floors(&b->keep[i], truth_ms, &want);
        for (size_t l = 0; l < KEY_LEVELS; l++)
            if (have.at[l] > want.at[l])
                fail_msg("%s: floor %zu is %u, and should be %u", services[i], l, have.at[l],
                         want.at[l]);
        if (have.end > retain_end(&b->keep[i], truth_ms))
            fail_msg("%s: answers begin at %u, and should at %u", services[i], have.end,
                     retain_end(&b->keep[i], truth_ms));
    }
}

/* Total retention ends when it says, however wide the coarsest nodes are. */
static void check_ends(struct bed *b)
{
    uint32_t now = store_bed_slot(&b->s);

    for (uint32_t i = 0; i < SERVICES; i++) {
        uint32_t keep = (uint32_t)(b->keep[i].ms[KEY_LEVELS - 1] / SLOT_MS), cut = now - keep;
        struct store_view *v = store_view_get(b->s.s);
        struct floors f;
        int64_t start, end;

        load_floors(b, i, &f);
        (void)ask(b, v, i, now - 400 * DAY_SLOTS, now, &start, &end);
        store_view_put(v);
        uint32_t node = LEVELS[MIN(floors_base(&f, false, cut), KEY_LEVELS - 1)].node;
        if (start != end && slot_of_ms(start) + keep / 64 + node < cut - SLACK)
            fail_msg("%s: %u slots are kept, the answer begins %u slots before that", services[i],
                     keep, cut - slot_of_ms(start));
    }
}

/* Until the clock is believed: what is stored may be of days ago after a power cut. */
static void settle(struct bed *b)
{
    for (int i = 0; i < 3 || (b->s.s->clock.held && i < 2000); i++) {
        clock_fake_advance(&b->s.clock, 130000);
        (void)store_now(b->s.s);
    }
}

static void wrong_clock(struct bed *b)
{
    int64_t by = DAY_MS + (int64_t)prng_below(&b->p, (uint64_t)(3650 * DAY_MS));
    int64_t left = (int64_t)prng_below(&b->p, (uint64_t)MIN(by / 60, 7 * DAY_MS)) * 9 / 10;
    bool back = prng_chance(&b->p, 0.3);

    settle(b);
    if (back) { /* engine time stands still meanwhile, and catches up at once if it is no more */
        by = -by;
        left = MIN(left, DAY_MS * 9 / 10);
    }
    clock_fake_jump(&b->s.clock, by);
    while (left > 0) {
        int64_t step = MIN(left, 1 + (int64_t)prng_below(&b->p, 2 * HOUR_MS));

        clock_fake_advance(&b->s.clock, step);
        left -= step;
        seal(b);
        build(b, false);
        retain(b, true);
        check_floors(b, atomic_load(&b->s.clock.wall_ms) - by);
        if (prng_chance(&b->p, 0.2))
            reopen(b);
    }
    clock_fake_jump(&b->s.clock, -by);
    settle(b);
    assert_int_equal(store_now(b->s.s), atomic_load(&b->s.clock.wall_ms));
    b->wrong++;
}

/* Months; each step some hours. */
static void run(struct bed *b, size_t steps)
{
    struct store_view *old = NULL;
    uint64_t old_total = 0;
    uint32_t old_from = 0, old_to = 0;
    int64_t x, y;

    for (size_t i = 0; i < steps; i++) {
        clock_fake_advance(&b->s.clock, (int64_t)prng_below(&b->p, 12 * HOUR_MS));
        for (size_t k = prng_below(&b->p, 5); k > 0; k--)
            push(b);
        if (prng_chance(&b->p, 0.8))
            seal(b);
        if (prng_chance(&b->p, 0.8))
            build(b, prng_chance(&b->p, 0.7));
        if (prng_chance(&b->p, 0.8))
            retain(b, false);
        if (!old && prng_chance(&b->p, 0.1)) {
            old = store_view_get(b->s.s);
            old_to = store_bed_slot(&b->s);
            old_from = old_to - (uint32_t)prng_below(&b->p, 90 * 17280);
            old_total = ask(b, old, 0, old_from, old_to, &x, &y);
        } else if (old && prng_chance(&b->p, 0.3)) {
            assert_int_equal(ask(b, old, 0, old_from, old_to, &x, &y), old_total);
            store_view_put(old);
            old = NULL;
        }
        for (size_t k = 0; k < 4; k++)
            check_range(b);
        if (!old && prng_chance(&b->p, 0.05))
            reopen(b);
        if (!old && prng_chance(&b->p, 0.02))
            wrong_clock(b);
        if (prng_chance(&b->p, 0.02))
            steps_check(&b->s);
    }
    if (old)
        store_view_put(old);
}

/* Rows of all kinds: none lies wholly below the floor of its service and level. */
static uint64_t rows_below(struct bed *b)
{
    static const enum kv_cf cfs[] = { KV_FINE, KV_COARSE, KV_RU, KV_FN, KV_TL };
    uint64_t below = 0, seen = 0;
    struct floors f;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(cfs); i++) {
        struct kv_iter *it = kv_iter_new(b->s.s->kv, NULL, cfs[i], STR_NULL, STR_NULL);

        for (; kv_iter_valid(it); kv_iter_next(it), seen++) {
            struct str key = kv_iter_key(it);
            uint8_t first = (uint8_t)key.ptr[0];
            uint32_t level = first & 7, len = LEVELS[level].node, t = get_u32be(key.ptr + 23);
            struct member m = { .tenant = get_u32be(key.ptr + 5),
                                .scope = get_u32be(key.ptr + 9),
                                .ptype = (uint16_t)get_u16be(key.ptr + 13) };

            if (cfs[i] == KV_TL)
                len = LEVELS[level].tl_chunk;
            assert_int_equal(floors_load(b->s.s->kv, NULL, &m, &f, &e), 0);
            below += t + len <= f.at[level];
        }
        kv_iter_free(it);
    }
    assert_true(seen > 0);
    return below;
}

static void run_seed(uint64_t seed)
{
    struct check_report report;
    struct bed b;
    struct err e;

    bed_open(&b, seed);
    run(&b, 900); /* about 220 days */
    /* Left alone, everything that may go has gone: no row stands below its floor. */
    clock_fake_advance(&b.s.clock, 4 * 60000);
    seal(&b);
    build(&b, true);
    for (size_t i = 0; i < 3; i++) {
        clock_fake_advance(&b.s.clock, 4 * 60000);
        retain(&b, true);
    }
    count(&b);
    assert_int_equal(rows_below(&b), 0);
    check_ends(&b);
    struct store_view *v = store_view_get(b.s.s);
    if (store_check(v, &report, &e))
        fail_msg("check: %s", e.text);
    store_view_put(v);
    print_message("pushed %zu, folded %" PRIu64 ", again %" PRIu64 ", refused %" PRIu64
                  ", floors moved %" PRIu64 ", purged %" PRIu64 ", drops of files %" PRIu64
                  ", epochs dropped %" PRIu64 ", wrong clocks %" PRIu64 "; leaves left %" PRIu64
                  "\n",
                  b.all.len, b.folded, b.again, b.refused, b.moved, b.purged, b.files,
                  b.epochs_dropped, b.wrong, report.leaves);
    assert_true(b.folded > 0 && b.again > 0 && b.refused > 0 && b.moved > 0 && b.purged > 0 &&
                b.files > 0 && b.epochs_dropped > 0 && b.wrong > 0);
    bed_close(&b);
}

static void test_months(void **state)
{
    (void)state;
    (void)steps_seeds(run_seed, SEEDS);
}

/* How often `text` is in a list: names, or values of `name`; any time, or a range to now. */
static size_t listed(struct bed *b, const char *name, bool any_time, const char *text)
{
    struct store_labels_query q = { .tenant = STR("t"),
                                    .kind = name ? STORE_VALUES : STORE_NAMES,
                                    .name = str_c(name ? name : "") };
    struct store_view *v = store_view_get(b->s.s);
    struct arena *a = arena_new(MIB);
    struct store_labels l;
    size_t n = 0;
    struct err e;

    if (!any_time) {
        q.end_ms = atomic_load(&b->s.clock.wall_ms) + 60000;
        q.start_ms = q.end_ms - 300 * DAY_MS;
    }
    if (store_labels(v, &q, a, &l, &e))
        fail_msg("labels: %s", e.text);
    vec_for (i, &l.values)
        n += str_eqc(l.values.ptr[i], text);
    store_labels_deinit(&l);
    arena_free(a);
    store_view_put(v);
    return n;
}

/* Lists have what an answer may have, by days: `edge` is where answers of services[0] begin, which
 * has a pod for each day. services[1] was pushed once, on day 0. */
static void check_lists(struct bed *b, uint32_t edge, uint32_t days)
{
    for (int any_time = 0; any_time < 2; any_time++) {
        vec_for (i, &b->all) {
            char pod[32];
            (void)snprintf(pod, sizeof(pod), "p%zu", i);
            bool want = b->all.ptr[i].slot / DAY_SLOTS >= edge / DAY_SLOTS;
            if (listed(b, "pod", any_time, pod) != want)
                fail_msg("%s is %slisted, %d days after the edge", pod, want ? "not " : "",
                         (int)(b->all.ptr[i].slot / DAY_SLOTS) - (int)(edge / DAY_SLOTS));
        }
        bool there = days<30, gone = days> 32;
        size_t service = listed(b, "service_name", any_time, services[1]);
        size_t name = listed(b, NULL, any_time, "once");
        if ((there && !(service && name)) || (gone && (service || name)))
            fail_msg("after %u days: service %zu, label %zu", days, service, name);
    }
}

/* All levels are kept for the same time, shorter than the coarsest node: an answer ends with it, at
 * any moment, and is the exact sum of what it says it covers; lists end with it, too. */
static void test_everything_30_days(void **state)
{
    (void)state;
    struct retain_policy_opts o = { .interval_ms = 60000, .rules = STR(""), .file = "rules" };
    uint32_t worst = 0;
    struct bed b;
    struct err e;

    bed_open(&b, 7);
    for (size_t i = 0; i < KEY_LEVELS; i++)
        o.keep.ms[i] = (uint64_t)(30 * DAY_MS);
    retain_policy_unref(b.policy);
    assert_int_equal(retain_policy_new(&o, &b.policy, &e), 0);
    for (size_t i = 0; i < SERVICES; i++)
        b.keep[i] = o.keep;
    store_set_retention(b.s.s, b.policy);
    struct bed_push once = { .service = services[1],
                             .labels = "once=yes",
                             .stacks = "a;b=1",
                             .slot = store_bed_slot(&b.s),
                             .times = 1,
                             .every = 1,
                             .wid = ++b.wid };
    assert_int_equal(commit(&b, &once, false, &e), 0);
    for (uint32_t day = 0; day < 200; day++) {
        clock_fake_advance(&b.s.clock, DAY_MS);
        uint32_t now = store_bed_slot(&b.s);
        struct pushed x = { now, 0, 1 + day };
        char stacks[64], pod[32];
        (void)snprintf(stacks, sizeof(stacks), "a;b=%u", (unsigned)x.value);
        (void)snprintf(pod, sizeof(pod), "pod=p%u", day);
        struct bed_push p = { .service = services[0],
                              .labels = pod,
                              .stacks = stacks,
                              .slot = now,
                              .times = 1,
                              .every = 1,
                              .wid = ++b.wid };
        assert_int_equal(commit(&b, &p, false, &e), 0);
        vec_push(&b.all, x);
        clock_fake_advance(&b.s.clock, 4 * 60000);
        seal(&b);
        build(&b, true);
        for (size_t i = 0; i < 2; i++)
            retain(&b, true);
        struct store_view *v = store_view_get(b.s.s);
        int64_t start, end;
        uint64_t total = ask(&b, v, 0, now - 150 * DAY_SLOTS, now + 12, &start, &end);
        store_view_put(v);
        assert_int_equal(total, sum_of(&b, 0, start, end));
        if (slot_of_ms(start) < now)
            worst = MAX(worst, now - slot_of_ms(start));
        check_range(&b);
        if (day % 9 == 0)
            check_lists(&b, slot_of_ms(start), day + 1);
    }
    print_message("an answer reached back %u slots, %.2f days\n", worst, worst / (double)DAY_SLOTS);
    assert_in_range(worst, 30 * DAY_SLOTS, 30 * DAY_SLOTS + 30 * DAY_SLOTS / 64 + SLACK);
    steps_check(&b.s);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_everything_30_days),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
