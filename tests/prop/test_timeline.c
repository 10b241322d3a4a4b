/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines and functions over all levels beside a list of all pushes: random floors, pushes of
 * now, late and weeks old, seals and builds between them, random grids. What must hold:
 *
 *   each point is the sum of the pushes whose base node begins in it (tl_cover.h), for gauges with
 *   the number of their leaves; the points add up to the flame graph of the same bounds; so do the
 *   self values of functions. Where a push is to be spread, each of its slots has its part of it,
 *   to a sixth of a unit.
 *
 * SEED=n repeats one; SEEDS=n runs more of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <roaring/roaring.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/mask/tomb.h"
#include "common/store/query/tl_cover.h"
#include "common/store/state/commit.h"
#include "common/store/state/spread.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"

#define SEEDS    12
#define STEPS    120
#define SERVICES 2
#define PODS     6
#define WEEKS    (DAY_SLOTS * 21)
#define GAUGE    "memory:inuse_space:bytes::"

static const char *const names[] = { "main", "work", "wait", "send" };

struct push {
    uint32_t slot, pod, service;
    bool gauge;
    uint64_t total, self[ARRAY_LEN(names)]; /* of the four functions */
};
struct run {
    struct prng prng;
    struct store_bed bed;
    struct arena *arena;
    VEC(struct push) pushes;
    struct floors floors[SERVICES][2]; /* by gauge */
    bool same_floors;                  /* of all services */
    bool no_floors;                    /* at all */
    uint32_t usual[SERVICES];          /* slots a push covers, as a rule */
    uint64_t deletes;
    uint64_t wid;
    uint64_t spread; /* parts of pushes that were expected */
    uint32_t start;  /* slot */
};

static uint32_t below(struct run *r, uint32_t n)
{
    return (uint32_t)prng_below(&r->prng, n);
}

static bool chance(struct run *r, double p)
{
    return prng_chance(&r->prng, p);
}

/* ---- writing ---- */

static void push(struct run *r, uint32_t slot, uint32_t number, bool gauge)
{
    struct push p = { .slot = slot, .pod = below(r, PODS), .service = number, .gauge = gauge };
    char text[256], labels[32], service[16];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        p.self[i] = 1 + below(r, 1000);
        p.total += p.self[i];
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s%s=%" PRIu64, i ? " main;" : "",
                              names[i], "", p.self[i]);
    }
    (void)snprintf(labels, sizeof(labels), "pod=p%u", p.pod);
    (void)snprintf(service, sizeof(service), "s%u", p.service);
    struct bed_push b = { .wid = ++r->wid,
                          .slot = slot,
                          .service = service,
                          .labels = labels,
                          .stacks = text,
                          .type = p.gauge ? GAUGE : NULL,
                          .gauge = p.gauge,
                          .spread = chance(r, 0.95) ? r->usual[p.service] : below(r, 5) };
    assert_int_equal(store_bed_push(&r->bed, &b), 1);
    vec_push(&r->pushes, p);
}

/* One push of each service and type, so that they have numbers; then their floors. */
static void begin(struct run *r)
{
    struct kv_batch *b = kv_batch_new();
    uint32_t now = store_bed_slot(&r->bed);
    struct err e;

    r->same_floors = chance(r, 0.5);
    r->no_floors = r->same_floors && chance(r, 0.3);
    for (uint32_t i = 0; i < SERVICES * 2; i++) {
        struct member m = { 1, i / 2 + 1, (uint16_t)(i % 2), 0 };
        struct floors *f = &r->floors[i / 2][i % 2];
        uint32_t at = now;
        push(r, now, i / 2, i % 2);
        for (uint32_t l = 0; l < 7 && chance(r, 0.8); l++)
            f->at[l] = at -= below(r, LEVELS[MIN(l + 3, 6u)].node * (l < 3 ? 20 : 2));
        if (r->no_floors || chance(r, 0.3))
            *f = (struct floors){ 0 };
        if (r->same_floors && i >= 2)
            *f = r->floors[0][i % 2];
        floors_align(f);
        floors_put(b, &m, f);
        floors_forget(r->bed.s, &m);
    }
    assert_int_equal(store_write_batch(r->bed.s, b, true, &e), 0);
    kv_batch_free(b);
}

static void seal_and_build(struct run *r)
{
    store_bed_seal(&r->bed);
    while (steps_build(&r->bed, 1000))
        ;
}

/* ---- deleting ---- */

static void forget(struct run *r, uint32_t pod, uint32_t from, uint32_t to)
{
    size_t n = 0;

    vec_for (i, &r->pushes) {
        const struct push *p = &r->pushes.ptr[i];
        if ((pod < PODS && p->pod != pod) || p->slot < from || p->slot >= to)
            r->pushes.ptr[n++] = *p;
    }
    r->pushes.len = n;
}

/* Deletes a pod, at all times; or some time of a pod or of all, whose real bounds it returns. */
static void delete (struct run *r)
{
    bool range = r->no_floors && chance(r, 0.5);
    uint32_t pod = below(r, range ? PODS + 3 : PODS), now = store_bed_slot(&r->bed);
    uint32_t from = now - below(r, chance(r, 0.5) ? 3000 : WEEKS);
    struct tomb_result got;
    struct selector s;
    char text[32], id[32];
    struct err e;

    (void)snprintf(text, sizeof(text), pod < PODS ? "{pod=\"p%u\"}" : "{pod!=\"\"}", pod);
    (void)snprintf(id, sizeof(id), "d%" PRIu64, ++r->deletes);
    arena_reset(r->arena);
    if (selector_parse(str_c(text), SELECTOR_PROMETHEUS, r->arena, &s, &e) ||
        selector_compile(&s, &e))
        fail_msg("%s", e.text);
    struct tomb_request q = {
        .tenant = STR("t"), .id = str_c(id), .what = str_c(text), .selector = &s
    };
    if (range) {
        q.from_ms = slot_to_ms(from);
        q.to_ms = slot_to_ms(from + 1 + below(r, 20000));
    }
    if (store_delete(r->bed.s, &q, &got, &e))
        fail_msg("delete: %s", e.text);
    selector_deinit(&s);
    if (!got.entry)
        return;
    forget(r, pod, range ? slot_of_ms(got.from_ms) : 0, range ? slot_of_ms(got.to_ms) : UINT32_MAX);
}

/* Purging may raise the floor of minutes where members have none to subtract (purge_floor.c). */
static void look_at_floors(struct run *r)
{
    struct err e;

    for (uint32_t i = 0; i < SERVICES * 2; i++) {
        const struct member m = { 1, i / 2 + 1, (uint16_t)(i % 2), 0 };
        struct floors was = r->floors[i / 2][i % 2], *now = &r->floors[i / 2][i % 2];
        if (floors_get(r->bed.s, &m, now, &e))
            fail_msg("floors: %s", e.text);
        for (uint32_t l = 0; l < KEY_LEVELS; l++)
            assert_true(l == 1 ? now->at[l] >= was.at[l] : now->at[l] == was.at[l]);
        r->same_floors &= memcmp(now, &r->floors[0][i % 2], sizeof(*now)) == 0;
    }
}

static void purge(struct run *r)
{
    bool more = true;
    struct err e;

    for (uint32_t n = below(r, 20); more && n; n--)
        if (store_purge(r->bed.s, 50, &more, &e))
            fail_msg("purge: %s", e.text);
    look_at_floors(r);
}

/* ---- asking ---- */

struct question {
    bool gauge;
    uint32_t service, pod; /* SERVICES, PODS: any */
    int64_t origin_ms, step_ms;
    uint32_t points;
    struct selector selector;
    struct store_query q;
};

static bool wanted(const struct question *x, const struct push *p)
{
    return p->gauge == x->gauge && (x->service == SERVICES || p->service == x->service) &&
           (x->pod == PODS || p->pod == x->pod);
}

static struct question random_question(struct run *r)
{
    static const int64_t steps[] = { 5000, 15000, 60000, 600000, 3600000, 86400000, 21600000 };
    struct question x = { .gauge = chance(r, 0.4),
                          .service = below(r, SERVICES + r->same_floors),
                          .pod = chance(r, 0.6) ? PODS : below(r, PODS),
                          .step_ms = steps[below(r, ARRAY_LEN(steps))] };
    uint32_t now = store_bed_slot(&r->bed), from = now - below(r, chance(r, 0.5) ? 2000 : WEEKS);
    char text[64];
    size_t n = 0;
    struct err e;

    if (chance(r, 0.3))
        x.step_ms = 1 + (int64_t)prng_below(&r->prng, 100000000);
    if (r->pushes.len && chance(r, 0.3)) /* a push may reach over the edge */
        from = MIN(now, r->pushes.ptr[below(r, (uint32_t)r->pushes.len)].slot + below(r, 4));
    int64_t max = ((int64_t)(now - from + 500) * SLOT_MS) / x.step_ms + 1;
    x.points = 1 + below(r, (uint32_t)MIN(max, 400));
    x.origin_ms = slot_to_ms(from) + x.step_ms - 1;
    if (chance(r, 0.6)) /* whole steps, as dashboards ask */
        x.origin_ms -= (x.origin_ms + 1 - SLOT_EPOCH_MS) % x.step_ms;
    else if (chance(r, 0.3))
        x.origin_ms += below(r, 10000);
    n = (size_t)snprintf(text, sizeof(text), "{");
    if (x.service < SERVICES)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "service_name=\"s%u\"", x.service);
    if (x.pod < PODS)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%spod=\"p%u\"", n > 1 ? "," : "", x.pod);
    (void)snprintf(text + n, sizeof(text) - n, "}");
    struct str kept = arena_strdup(r->arena, str_c(text));
    if (selector_parse(kept, SELECTOR_PROMETHEUS, r->arena, &x.selector, &e) ||
        selector_compile(&x.selector, &e))
        fail_msg("%s", e.text);
    x.q = (struct store_query){ .tenant = STR("t"),
                                .spread = chance(r, 0.7),
                                .profile_type = str_c(x.gauge ? GAUGE : BED_CPU) };
    return x;
}

/* The grid as the store must see it: a question is about one service, or all have equal floors. */
static struct tl_grid grid_of(const struct run *r, const struct question *x, bool vectors)
{
    struct tl_grid g;

    tl_grid_init(&g, x->origin_ms, x->step_ms, x->points);
    g.vectors = g.members = vectors;
    tl_grid_floors(&g, &r->floors[x->service % SERVICES][x->gauge]);
    tl_grid_bounds(&g);
    return g;
}

struct wanted {
    uint64_t *value, *writes;
    uint32_t *leaves;
    uint64_t sum;
    uint64_t (*self)[ARRAY_LEN(names)];
};

static bool is_spread(const struct question *x, const struct tl_grid *g)
{
    return x->q.spread && !x->gauge && !g->vectors && x->step_ms < 60000;
}

/* Each slot of a push has the same part of it, if it is kept by slots. In sixths of units. */
static void add_parts(struct run *r, const struct push *p, const struct tl_grid *g,
                      uint64_t *sixths)
{
    struct member m = { 1, p->service + 1, (uint16_t)p->gauge, 0 };
    struct spread s;
    struct err e;

    assert_int_equal(spread_load(r->bed.s->kv, NULL, &m, &s, &e), 0);
    bool by_slots = p->slot >= r->floors[p->service][p->gauge].at[0];
    uint32_t slots = by_slots ? spread_at(&s, p->slot) : 1;
    if (!by_slots && (p->slot < g->from || p->slot >= g->to))
        return;
    for (uint32_t i = p->slot; i < p->slot + slots; i++)
        if (i >= g->from && i < g->to)
            sixths[tl_grid_point(g, i)] += p->total * 6 / slots;
    r->spread += slots > 1;
}

static void take_parts(uint64_t *value, const uint64_t *sixths, uint32_t points)
{
    uint64_t before = 0, sum = 0;

    for (uint32_t k = 0; k < points; k++, before = sum) {
        sum += sixths[k];
        value[k] = sum / 6 - before / 6;
    }
}

static struct wanted model_of(struct run *r, const struct question *x, const struct tl_grid *g)
{
    uint64_t *sixths = xcalloc(x->points, 8);
    struct wanted m = { xcalloc(x->points, 8), xcalloc(x->points, 8), xcalloc(x->points, 4), 0,
                        xcalloc(x->points, sizeof(*m.self)) };
    roaring_bitmap_t *seen = roaring_bitmap_create();
    uint32_t high = 0;

    vec_for (i, &r->pushes) {
        const struct push *p = &r->pushes.ptr[i];
        if (wanted(x, p) && is_spread(x, g))
            add_parts(r, p, g, sixths);
        if (!wanted(x, p) || p->slot < g->from || p->slot >= g->to)
            continue;
        uint32_t k = tl_grid_point(g, p->slot), leaf = p->slot / LEAF_SLOTS;
        bool halves = tl_grid_point(g, leaf * LEAF_SLOTS) != tl_grid_point(g, leaf * 2 + 1);
        m.value[k] += p->total;
        m.writes[k]++;
        m.sum += p->total;
        /* A leaf cut by an edge counts on both sides. */
        uint32_t id = halves && p->slot % 2 ? UINT32_MAX / 2 + leaf : leaf;
        m.leaves[k] += roaring_bitmap_add_checked(seen, id);
        high = MAX(high, k);
        for (size_t f = 0; f < ARRAY_LEN(names); f++)
            m.self[k][f] += p->self[f];
    }
    if (is_spread(x, g))
        take_parts(m.value, sixths, x->points);
    xfree(sixths);
    roaring_bitmap_free(seen);
    return m;
}

static void model_free(struct wanted *m)
{
    xfree(m->value);
    xfree(m->writes);
    xfree(m->leaves);
    xfree(m->self);
}

static void check_flame(struct store_view *v, const struct question *x, int64_t start_ms,
                        int64_t end_ms, uint64_t sum)
{
    struct store_merge m = { 0 };
    struct store_query q = x->q;
    struct stacks st;
    struct err e;

    stacks_init(&st, 64 * MIB, 1);
    m.stacks = &st;
    q.start_ms = start_ms;
    q.end_ms = end_ms;
    if (store_merge(v, &q, &m, &e))
        fail_msg("merge: %s", e.text);
    if (m.start_ms == start_ms && m.end_ms == end_ms)
        assert_int_equal(m.total, sum);
    else /* vectors are coarser than points at an edge */
        assert_true(m.start_ms <= start_ms && m.end_ms >= end_ms && m.total >= sum);
    store_merge_deinit(&m);
    stacks_deinit(&st);
}

/* As many leaves as the counts say. */
static void check_items(struct leaf_part p)
{
    struct err e = { 0 };

    if (leaf_part_check(&p, &e))
        fail_msg("%s", e.text);
}

static void ask_timeline(struct run *r, struct store_view *v, struct question *x)
{
    struct tl_grid g = grid_of(r, x, false);
    struct wanted want = model_of(r, x, &g);
    struct store_timeline t;
    uint64_t sum = 0;
    size_t at = 0;
    struct err e;

    x->q.selector = &x->selector;
    x->q.leaf_items = true;
    if (store_timeline(
            v,
            &(struct store_timeline_query){
                .q = x->q, .origin_ms = x->origin_ms, .step_ms = x->step_ms, .points = x->points },
            r->arena, &t, &e))
        fail_msg("timeline: %s", e.text);
    if (g.from < g.to && t.series.len) {
        assert_int_equal(t.start_ms, slot_to_ms(g.from));
        assert_int_equal(t.end_ms, slot_to_ms(g.to));
    }
    assert_true(t.series.len <= 1);
    const struct store_points *p = t.series.len ? &t.series.ptr[0] : NULL;
    for (uint32_t k = 0; k < x->points; k++) {
        bool there = p && at < p->point.len && p->point.ptr[at] == k;
        assert_int_equal(there ? p->value.ptr[at] : 0, want.value[k]);
        assert_int_equal(there ? p->writes.ptr[at] : 0, want.writes[k]);
        if (x->gauge)
            assert_int_equal(there ? p->leaves.ptr[at] : 0, want.leaves[k]);
        sum += there ? p->value.ptr[at] : 0;
        at += there;
    }
    if (!is_spread(x, &g)) /* else parts of pushes cross the edges */
        assert_int_equal(sum, want.sum);
    if (p)
        check_items(x->gauge ? (struct leaf_part){ p->point.ptr, p->leaves.ptr, p->leaves.len,
                                                   p->items.ptr, p->items.len }
                             : (struct leaf_part){ .items_len = p->items.len });
    if (g.from < g.to && t.series.len)
        check_flame(v, x, t.start_ms, t.end_ms, want.sum);
    store_timeline_deinit(&t);
    model_free(&want);
}

static uint64_t self_of(const struct store_functions *f, const char *name, uint32_t k, bool total)
{
    vec_for (i, &f->at) {
        const struct store_function *got = &f->at.ptr[i];
        if (!str_eqc(got->name, name))
            continue;
        vec_for (n, &got->point)
            if (got->point.ptr[n] == k)
                return total ? got->total.ptr[n] : got->self.ptr[n];
    }
    return 0;
}

static void ask_functions(struct run *r, struct store_view *v, struct question *x)
{
    struct store_functions f;
    struct err e;

    x->q.selector = &x->selector;
    struct store_functions_query q = {
        .q = x->q, .origin_ms = x->origin_ms, .step_ms = x->step_ms, .points = x->points
    };
    if (store_functions(v, &q, r->arena, &f, &e))
        fail_msg("functions: %s", e.text);
    struct tl_grid g = grid_of(r, x, true);
    struct wanted want = model_of(r, x, &g);
    if (g.from < g.to && f.at.len) {
        assert_int_equal(f.start_ms, slot_to_ms(g.from));
        assert_int_equal(f.end_ms, slot_to_ms(g.to));
    }
    for (uint32_t k = 0; k < x->points; k++) {
        assert_int_equal(f.all.ptr[k], want.value[k]);
        if (x->gauge)
            assert_int_equal(f.leaves.ptr[k], want.leaves[k]);
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            assert_int_equal(self_of(&f, names[i], k, false), want.self[k][i]);
            assert_int_equal(self_of(&f, names[i], k, true), i ? want.self[k][i] : want.value[k]);
        }
    }
    check_items((struct leaf_part){ NULL, f.leaves.ptr, f.leaves.len, f.items.ptr, f.items.len });
    if (g.from < g.to && f.at.len)
        check_flame(v, x, f.start_ms, f.end_ms, want.sum);
    store_functions_deinit(&f);
    model_free(&want);
}

static void ask(struct run *r)
{
    struct store_view *v = store_view_get(r->bed.s);

    arena_reset(r->arena);
    struct question x = random_question(r);
    ask_timeline(r, v, &x);
    if (chance(r, 0.5))
        ask_functions(r, v, &x);
    selector_deinit(&x.selector);
    store_view_put(v);
}

/* ---- the run ---- */

static void run_seed(uint64_t seed)
{
    struct run *r = XNEW(struct run);
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600 * 1000,
                            .seal_delay_ms = 5000,
                            .build_all = true };

    prng_init(&r->prng, seed);
    if (chance(r, 0.3))
        o.epoch_nodes_max = 3;
    o.hot_bytes_max = chance(r, 0.7) ? MIB : 0;
    o.hot_members_min = 1;
    store_bed_init(&r->bed, &o);
    r->arena = arena_new(64 * MIB);
    for (uint32_t i = 0; i < SERVICES; i++)
        r->usual[i] = below(r, SPREAD_SLOTS_MAX + 1);
    begin(r);
    for (int i = 0; i < STEPS; i++) {
        uint32_t now = store_bed_slot(&r->bed);
        for (uint32_t n = below(r, 8); n; n--)
            push(r,
                 now - below(r, chance(r, 0.8)   ? 30
                                : chance(r, 0.5) ? 3000
                                                 : WEEKS),
                 below(r, SERVICES), chance(r, 0.4));
        clock_fake_advance(&r->bed.clock, below(r, chance(r, 0.1) ? 20000000 : 100000));
        if (chance(r, 0.02)) /* the agents of a service have another interval from now on */
            r->usual[below(r, SERVICES)] = below(r, SPREAD_SLOTS_MAX + 1);
        if (chance(r, 0.4))
            seal_and_build(r);
        if (chance(r, 0.03))
            delete (r);
        if (chance(r, 0.3))
            purge(r);
        ask(r);
        ask(r);
    }
    clock_fake_advance(&r->bed.clock, INT64_C(70) * 86400000);
    store_bed_seal(&r->bed);
    clock_fake_advance(&r->bed.clock, 130000); /* the jump is believed */
    for (int i = 0; i < 3; i++)
        seal_and_build(r);
    for (int i = 0; i < 20; i++)
        ask(r);
    print_message("pushes %zu, expected over several slots %" PRIu64 "\n", r->pushes.len,
                  r->spread);
    vec_free(&r->pushes);
    arena_free(r->arena);
    store_bed_deinit(&r->bed);
    xfree(r);
}

static void test_all_levels(void **state)
{
    (void)state;
    (void)steps_seeds(run_seed, SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_levels) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
