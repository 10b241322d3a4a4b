/* SPDX-License-Identifier: Apache-2.0
 *
 * A small year beside a list of everything that was pushed: 1,000 random ranges and selectors, each
 * merge equal to adding up the list, sample by sample; timelines likewise. The year has deploys,
 * pods with new names, data imported long after their time, late data, levels that are built, and
 * levels that have left by retention. SEED=n repeats one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/retain/retain.h"
#include "tests/lib/gen/year.h"
#include "tests/lib/store/store_bed.h"

#define DAYS      380
#define LIVE_DAY  250 /* until here everything is imported later, at once */
#define PODS      6
#define PER_DAY   12 /* profiles */
#define QUESTIONS 1000
#define DAY       YEAR_DAY_SLOTS
#define HOUR      720u

struct pushed {
    uint32_t slot, labels;
    size_t first, len;
};
struct small_year {
    struct prng prng;
    struct year *y;
    struct store_bed bed;
    struct stacks known; /* all stacks; answers are put on top of it */
    uint32_t start;
    VEC(struct pushed) list;
    VEC(uint32_t) nodes; /* of all stacks of the year */
    VEC(uint64_t) values;
    VEC(struct year_labels) labels;
    uint64_t *want, *have; /* by node */
    uint32_t widest;       /* what an answer was wider than asked for at most, in slots */
};

static uint32_t below(struct small_year *x, uint32_t n)
{
    return (uint32_t)prng_below(&x->prng, n);
}

/* ---- the year ---- */

static void work(struct small_year *x)
{
    bool sealed, built, retained = false;
    struct err e;

    do {
        if (store_seal(x->bed.s, 1 + below(x, 500), &sealed, &e))
            fail_msg("seal: %s", e.text);
        if (store_build(x->bed.s, 1 + below(x, 500), &built, &e))
            fail_msg("build: %s", e.text);
        if (store_retain(x->bed.s, 1 + below(x, 500), &retained, &e))
            fail_msg("retain: %s", e.text);
    } while (sealed || built || retained);
}

static uint32_t labels_of(struct small_year *x, uint32_t pod, uint32_t slot)
{
    struct year_labels l;

    year_labels(x->y, pod, slot, &l);
    vec_for (i, &x->labels)
        if (strcmp(x->labels.ptr[i].pod, l.pod) == 0)
            return (uint32_t)i;
    vec_push(&x->labels, l);
    vec_for (i, &x->labels) { /* the array may have moved */
        struct year_labels *at = &x->labels.ptr[i];
        at->labels.ptr = at->at;
        at->at[1].value.ptr = at->pod;
        at->at[3].value.ptr = at->zone;
    }
    return (uint32_t)x->labels.len - 1;
}

/* The generator would say the same again, under the same write id. */
static bool known(struct small_year *x, uint32_t pod, uint32_t slot)
{
    uint32_t labels = labels_of(x, pod, slot);

    for (size_t i = x->list.len; i-- > 0;)
        if (x->list.ptr[i].slot == slot && x->list.ptr[i].labels == labels)
            return true;
    return false;
}

/* Into the request that was begun, and into the list. */
static void add(struct small_year *x, uint32_t pod, uint32_t slot)
{
    struct pushed p = { slot, labels_of(x, pod, slot), x->nodes.len, 0 };
    struct year_profile f = year_profile(x->y, pod, slot, LEAF_SLOTS);

    for (size_t i = 0; i < f.len; i++) {
        vec_push(&x->nodes, f.nodes[i]);
        vec_push(&x->values, f.values[i]);
    }
    p.len = f.len;
    vec_push(&x->list, p);
    year_add(x->y, pod, slot, LEAF_SLOTS);
}

static void push(struct small_year *x)
{
    struct store_batch *b = store_batch_new(x->bed.s);
    struct store_result r;
    struct err e;

    if (store_stage(x->bed.s, b, year_end(x->y), &r, &e))
        fail_msg("stage: %s", e.text);
    assert_int_equal(r.duplicates, 0);
    if (store_commit(x->bed.s, b, &e))
        fail_msg("commit: %s", e.text);
    year_begin(x->y);
}

/* A day's profiles; on some days few pods, or none. */
static void import_day(struct small_year *x, uint32_t day)
{
    uint32_t n = below(x, 8) ? PER_DAY : 0, slots[PER_DAY];

    for (uint32_t i = 0; i < n; i++)
        slots[i] = x->start + day * DAY + i * (DAY / PER_DAY) + below(x, DAY / PER_DAY);
    for (uint32_t i = 0; i < n; i++)
        add(x, below(x, PODS), slots[i]);
    if (n)
        push(x);
}

/* A day passes; data come at the time of their measurement, some of them late. */
static void live_day(struct small_year *x, uint32_t day)
{
    for (uint32_t i = 0; i < PER_DAY; i++) {
        uint32_t now = x->start + day * DAY + (i + 1) * (DAY / PER_DAY);
        uint32_t back = below(x, 5) ? below(x, 60) : below(x, 3 * HOUR);
        clock_fake_advance(&x->bed.clock, slot_to_ms(now) - slot_to_ms(store_bed_slot(&x->bed)));
        if (day % 5 == 0) /* a deploy: the generator does not go back over it */
            back = MIN(back, now - x->start - day * DAY);
        uint32_t pod = below(x, PODS), slot = now - 1 - MIN(back, now - 1 - x->start);
        if (known(x, pod, slot))
            continue;
        add(x, pod, slot);
        push(x);
        if (!below(x, 3))
            work(x);
    }
}

static void set_retention(struct small_year *x)
{
    struct retain_policy_opts o = { .keep = retain_keep_default(), .interval_ms = 600000 };
    struct retain_policy *policy;
    struct err e;

    if (retain_policy_new(&o, &policy, &e))
        fail_msg("policy: %s", e.text);
    store_set_retention(x->bed.s, policy);
    retain_policy_unref(policy);
}

/* Every fifth day there is a deploy, which the generator crosses once. So imported days come in
 * order, but all of them after their time. */
static void make_year(struct small_year *x, uint64_t seed)
{
    struct year_opts yo = { .seed = seed,
                            .kind = YEAR_NODE,
                            .pods = PODS,
                            .stacks = 500,
                            .deploy_days = 5,
                            .moved = 30,
                            .zones = 3,
                            .start = 1800 * DAY };
    struct store_opts so = { .dict_bytes_max = 64 * MIB,
                             .seal_delay_ms = 60000,
                             .build_delay_ms = 60000,
                             .build_all = true,
                             .wid_horizon_ms = 3600000,
                             .epoch_nodes_max = below(x, 2) ? 1000 : 0,
                             .hot_bytes_max = below(x, 2) ? 4 * MIB : 0,
                             .test = { .whole_after = below(x, 2) ? 2 : 0 },
                             .seed = seed };

    x->start = yo.start;
    x->y = year_new(&yo);
    store_bed_init(&x->bed, &so);
    set_retention(x);
    clock_fake_advance(&x->bed.clock,
                       slot_to_ms(x->start + LIVE_DAY * DAY) - slot_to_ms(store_bed_slot(&x->bed)));
    year_begin(x->y);
    for (uint32_t day = 0; day < LIVE_DAY; day++) {
        import_day(x, day);
        if (!below(x, 20))
            work(x);
    }
    for (uint32_t day = LIVE_DAY; day < DAYS; day++)
        live_day(x, day);
    work(x);
    for (int i = 0; i < 5; i++) { /* what is not sealed yet */
        uint32_t slot = x->start + DAYS * DAY - 1 - (uint32_t)i;
        if (known(x, 0, slot))
            continue;
        add(x, 0, slot);
        push(x);
    }
}

static void know_stacks(struct small_year *x)
{
    struct stacks_view v = stacks_view(&year_stacks(x->y)->all);
    uint32_t *map = XNEW_ARRAY(uint32_t, v.nodes + 1);
    struct err e;

    stacks_init(&x->known, GIB, 11);
    assert_int_equal(stacks_merge(&x->known, &v, map, &e), 0);
    vec_for (i, &x->nodes)
        x->nodes.ptr[i] = map[x->nodes.ptr[i]];
    x->want = XNEW_ARRAY(uint64_t, v.nodes + 1);
    x->have = XNEW_ARRAY(uint64_t, v.nodes + 1);
    xfree(map);
}

/* ---- questions ---- */

static const char *random_selector(struct small_year *x, char *text, size_t size)
{
    const char *pod = x->labels.ptr[below(x, (uint32_t)x->labels.len)].pod;

    switch (below(x, 9)) {
    case 0:
        (void)snprintf(text, size, "{service_name=\"node\",pod=\"%s\"}", pod);
        break;
    case 1:
        (void)snprintf(text, size, "{pod=~\"node-.*[0-7]\"}");
        break;
    case 2:
        (void)snprintf(text, size, "{zone=\"zone-%u\"}", (unsigned)below(x, 4));
        break;
    case 3:
        (void)snprintf(text, size, "{service_name=\"node\",zone!=\"zone-1\"}");
        break;
    case 4:
        (void)snprintf(text, size, "{zone=~\"zone-[01]\",namespace=\"production\"}");
        break;
    case 5:
        (void)snprintf(text, size, "{pod!~\".*[0-7]\",zone=\"zone-2\"}");
        break;
    case 6:
        (void)snprintf(text, size, "{}");
        break;
    default:
        (void)snprintf(text, size, "{service_name=\"node\"}");
        break;
    }
    return text;
}

static void random_range(struct small_year *x, uint32_t *from, uint32_t *to)
{
    static const uint32_t widths[] = { 2,   12,      120,      HOUR,     6 * HOUR,
                                       DAY, 8 * DAY, 30 * DAY, 64 * DAY, 365 * DAY };
    uint32_t end = x->start + DAYS * DAY;
    uint32_t width = widths[below(x, ARRAY_LEN(widths))] * 2;
    uint32_t len = 1 + below(x, MIN(width, DAYS * DAY - 1));

    *to = end - below(x, below(x, 3) ? DAYS * DAY - len + 1 : MIN(20 * DAY, DAYS * DAY - len + 1));
    *from = *to - len;
}

/* Which label sets match. */
static uint8_t *matching(struct small_year *x, const struct selector *s)
{
    uint8_t *yes = XNEW_ARRAY(uint8_t, x->labels.len);
    struct err e;

    vec_for (i, &x->labels)
        yes[i] = selector_match(s, &x->labels.ptr[i].labels, &e) > 0;
    return yes;
}

static uint64_t brute_force(struct small_year *x, const uint8_t *yes, uint32_t from, uint32_t to)
{
    uint64_t total = 0;

    memset(x->want, 0, (x->known.node_parent.len + 1) * sizeof(*x->want));
    vec_for (i, &x->list) {
        const struct pushed *p = &x->list.ptr[i];
        if (p->slot < from || p->slot >= to || !yes[p->labels])
            continue;
        for (size_t k = p->first; k < p->first + p->len; k++) {
            x->want[x->nodes.ptr[k]] += x->values.ptr[k];
            total += x->values.ptr[k];
        }
    }
    return total;
}

/* Slots an edge of this age may be moved outward: it is inside a node of the finest level kept. */
static uint32_t snap_max(const struct small_year *x, uint32_t slot)
{
    uint32_t now = store_bed_slot(&x->bed), age = now > slot ? now - slot : 0;

    return age < 7 * DAY ? 2 : age < 90 * DAY ? 120 : HOUR;
}

static void ask_merge(struct small_year *x, struct store_view *v, uint32_t question)
{
    struct arena *a = arena_new(MIB);
    struct store_merge m = { .stacks = &x->known };
    size_t nodes = x->known.node_parent.len;
    struct selector s;
    uint32_t from, to;
    char text[256];
    struct err e;

    random_selector(x, text, sizeof(text));
    random_range(x, &from, &to);
    assert_int_equal(selector_parse(str_c(text), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = { .tenant = STR(YEAR_TENANT),
                             .selector = &s,
                             .profile_type = STR(YEAR_TYPE),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    if (store_merge(v, &q, &m, &e))
        fail_msg("question %u: %s", question, e.text);
    uint32_t real_from = slot_of_ms(m.start_ms), real_to = slot_of_ms(m.end_ms);
    if (real_from > from || real_to < to || from - real_from >= snap_max(x, real_from) ||
        real_to - to >= snap_max(x, to))
        fail_msg("question %u: %s over [%u, %u) is answered for [%u, %u)", question, text, from, to,
                 real_from, real_to);
    x->widest = MAX(x->widest, MAX(from - real_from, real_to - to));
    uint8_t *yes = matching(x, &s);
    uint64_t total = brute_force(x, yes, real_from, real_to);
    if (x->known.node_parent.len != nodes)
        fail_msg("question %u: stacks that were never pushed", question);
    memset(x->have, 0, (nodes + 1) * sizeof(*x->have));
    vec_for (i, &m.nodes)
        x->have[m.nodes.ptr[i]] = m.values.ptr[i];
    for (size_t i = 0; i <= nodes; i++)
        if (x->have[i] != x->want[i])
            fail_msg("question %u: %s over [%u, %u): node %zu has %" PRIu64 ", not %" PRIu64
                     " (total %" PRIu64 ", want %" PRIu64 ")",
                     question, text, real_from, real_to, i, x->have[i], x->want[i], m.total, total);
    assert_int_equal(m.total, total);
    xfree(yes);
    store_merge_deinit(&m);
    selector_deinit(&s);
    arena_free(a);
}

/* Points on whole hours and more: no node that is left of old data reaches over such an edge. */
static void ask_timeline(struct small_year *x, struct store_view *v, uint32_t question)
{
    static const uint32_t steps[] = { HOUR, 6 * HOUR, DAY, 8 * DAY, 3 * HOUR, 30 * DAY };
    uint32_t step = steps[below(x, ARRAY_LEN(steps))], from, to;
    struct arena *a = arena_new(64 * MIB);
    struct store_timeline tl = { 0 };
    struct selector s;
    char text[256];
    struct err e;

    random_selector(x, text, sizeof(text));
    random_range(x, &from, &to);
    from -= from % step;
    uint32_t points = (to - from) / step + 1;
    uint64_t *have = XNEW_ARRAY(uint64_t, points), *want = XNEW_ARRAY(uint64_t, points);
    assert_int_equal(selector_parse(str_c(text), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = { .tenant = STR(YEAR_TENANT),
                             .selector = &s,
                             .profile_type = STR(YEAR_TYPE) };
    /* Point k is [from + k step, from + (k + 1) step): see store.h on which ends belong to it. */
    if (store_timeline(
            v,
            &(struct store_timeline_query){ .q = q,
                                            .origin_ms = slot_to_ms(from + step) - SLOT_MS,
                                            .step_ms = (int64_t)step * SLOT_MS,
                                            .points = points },
            a, &tl, &e))
        fail_msg("question %u: %s", question, e.text);
    vec_for (i, &tl.series)
        vec_for (k, &tl.series.ptr[i].point)
            have[tl.series.ptr[i].point.ptr[k]] += tl.series.ptr[i].value.ptr[k];
    uint8_t *yes = matching(x, &s);
    for (uint32_t k = 0; k < points; k++)
        want[k] = brute_force(x, yes, from + k * step, from + (k + 1) * step);
    for (uint32_t k = 0; k < points; k++)
        if (have[k] != want[k])
            fail_msg("question %u: %s from %u by %u: point %u has %" PRIu64 ", not %" PRIu64,
                     question, text, from, step, k, have[k], want[k]);
    store_timeline_deinit(&tl);
    selector_deinit(&s);
    arena_free(a);
    xfree(have);
    xfree(want);
    xfree(yes);
}

static void free_year(struct small_year *x)
{
    store_bed_deinit(&x->bed);
    year_free(x->y);
    stacks_deinit(&x->known);
    vec_free(&x->list);
    vec_free(&x->nodes);
    vec_free(&x->values);
    vec_free(&x->labels);
    xfree(x->want);
    xfree(x->have);
}

static void test_merges_equal_brute_force(void **state)
{
    struct small_year x = { 0 };
    uint64_t seed;

    (void)state;
    if (!str_u64(str_c(getenv("SEED")), &seed))
        seed = (uint64_t)time(NULL);
    printf("SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    prng_init(&x.prng, seed);
    make_year(&x, seed);
    know_stacks(&x);
    struct store_view *v = store_view_get(x.bed.s);
    for (uint32_t i = 0; i < QUESTIONS; i++)
        ask_merge(&x, v, i);
    for (uint32_t i = 0; i < QUESTIONS / 10; i++)
        ask_timeline(&x, v, i);
    store_view_put(v);
    printf("%zu pushes, %zu samples, %zu label sets; answers up to %u s wider than asked\n",
           x.list.len, x.values.len, x.labels.len, x.widest * 5);
    free_year(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_merges_equal_brute_force) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
