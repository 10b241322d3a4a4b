/* SPDX-License-Identifier: Apache-2.0
 *
 * Some series of a service are deleted, and its roll-ups are corrected: under several grouping
 * rules, with retention, late and old data, builds and jobs of a compactor, power cuts in the
 * middle of purging. At any moment an answer is the slow obvious engine's
 * (tests/lib/store/store_model.h), read from groups or from members; when all is purged, roll-ups
 * hold what members do at every level, byte for byte where they are sums, none had to begin again,
 * and long ranges are read from them. SEED=n repeats one; SEEDS=n runs more of them.
 *
 * Broken by hand: a value that vecdiff leaves in is noticed (30 seeds; test_purge_large, too), and
 * so are points of timelines that are not taken out (30 seeds, not in 8). Not noticed in 30 seeds:
 * unchanged functions of a node at its base level (10 m and up, under retention).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/catalog/group.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/retain/retain.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/rollup_check.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

#define STEPS 260
#define DAY   17280u
#define SEEDS 24

struct run {
    struct model_world w;
    struct model m; /* of what is not deleted */
    struct store_bed bed;
    VEC(struct model_request *) requests; /* owned */
    VEC(void *) old;                      /* arrays of earlier lists */
    struct steps_held *held;
    struct retain_policy *policy; /* NULL: all is kept */
    int drop;                     /* which labels the next rule drops */
    uint64_t rows_groups, rows_members;
};
static struct {
    uint64_t deletes, rules, moved, rows_groups, rows_members, purged;
} seen;

static uint32_t below(struct run *r, uint32_t n)
{
    return (uint32_t)prng_below(&r->w.prng, n);
}

static bool chance(struct run *r, double p)
{
    return prng_chance(&r->w.prng, p);
}

/* ---- rules ---- */

/* Arrays of their own, since their addresses tell that something changed. */
static struct group_drop drop_of(void *cookie, struct str tenant)
{
    static const char *const names[] = { "pod", "pod,zone", "po*", "nothing" };
    static struct str lists[ARRAY_LEN(names)][2];
    const struct run *r = cookie;
    struct str rest = str_c(names[r->drop]), name;
    size_t n = 0;
    bool more = true;

    (void)tenant;
    while (str_next(&rest, ',', &more, &name))
        lists[r->drop][n++] = name;
    return (struct group_drop){ lists[r->drop], n };
}

/* ---- pushes ---- */

static uint32_t any_slot(struct run *r)
{
    uint32_t now = store_bed_slot(&r->bed);

    switch (below(r, 10)) {
    case 0:
        return now - below(r, DAY * 3);
    case 1:
        return now - below(r, DAY * 100);
    case 2:
        return now - 4 * DAY - below(r, 240); /* the same few nodes, again and again */
    case 3:
        return now - 50 * DAY - below(r, 9000);
    case 4:
        return now - below(r, 720);
    default:
        return now - below(r, 12);
    }
}

static void step_push(struct run *r)
{
    struct model_request *q = model_request_new(&r->w, any_slot(r));
    struct store_batch *b = store_batch_new(r->bed.s);
    struct store_result got;
    struct err e;

    steps_stage(&r->bed, b, &r->w, q, 5, &got);
    if (store_commit(r->bed.s, b, &e))
        fail_msg("commit: %s", e.text);
    assert_int_equal(got.stored, q->pushes.len);
    model_add(&r->m, q);
    vec_push(&r->requests, q);
}

/* ---- deletes ---- */

static bool named(struct run *r, const struct model_push *p, struct str tenant,
                  const struct selector *s)
{
    struct arena *a = arena_new(MIB);
    struct labels l = model_labels(&r->w, p->series, p->type, a);
    struct err e;

    int yes = str_eqc(tenant, r->w.series.ptr[p->series].tenant) ? selector_match(s, &l, &e) : 0;
    assert_true(yes >= 0);
    arena_free(a);
    return yes > 0;
}

static void model_delete(struct run *r, struct str tenant, const struct selector *s, uint32_t from,
                         uint32_t to)
{
    struct model now = { .w = r->m.w, .floors = r->m.floors };

    vec_for (i, &r->m.pushes) {
        struct model_push p = r->m.pushes.ptr[i];
        if (named(r, &p, tenant, s)) {
            struct model_push left = { .series = p.series, .type = p.type };
            vec_for (j, &p.vectors)
                if (p.vectors.ptr[j].slot < from || p.vectors.ptr[j].slot >= to)
                    vec_push(&left.vectors, p.vectors.ptr[j]);
            if (left.vectors.len)
                vec_push(&r->old, (void *)left.vectors.ptr);
            p = left;
        }
        if (p.vectors.len)
            vec_push(&now.pushes, p);
    }
    if (r->m.pushes.ptr)
        vec_push(&r->old, (void *)r->m.pushes.ptr);
    r->m = now;
}

/* Mostly one label set or a few; sometimes a zone, a type, everything. */
static struct selector any_selector(struct run *r, struct arena *a)
{
    struct selector s = { 0 };
    char text[128];
    struct err e;

    if (chance(r, 0.2))
        return model_selector(&r->w, a);
    const struct model_series *x = &r->w.series.ptr[below(r, (uint32_t)r->w.series.len)];
    int n = snprintf(text, sizeof(text), "{service_name=\"%s\",pod=~\"%.*s|pod-%u\"}", x->service,
                     STR_ARG(labels_get(&x->labels, STR("pod"))), below(r, 12));
    struct str kept = arena_strdup(a, str_n(text, (size_t)n));
    if (selector_parse(kept, SELECTOR_PROMETHEUS, a, &s, &e) || selector_compile(&s, &e))
        fail_msg("selector: %s", e.text);
    return s;
}

static void step_delete(struct run *r)
{
    static uint64_t ids;
    struct arena *a = arena_new(MIB);
    struct selector s = any_selector(r, a);
    uint32_t now = store_bed_slot(&r->bed), from = 0, to = 0;
    struct tomb_result got;
    char id[24];
    struct err e;

    if (chance(r, 0.4)) {
        uint32_t len = 1 + below(r, chance(r, 0.5) ? 300 : DAY * 60);
        from = now - below(r, len) - below(r, DAY * (chance(r, 0.5) ? 1 : 60));
        to = chance(r, 0.2) ? 0 : from + len;
    }
    (void)snprintf(id, sizeof(id), "%" PRIu64, ++ids);
    struct tomb_request q = {
        .tenant = chance(r, 0.5) ? STR("anonymous") : STR("acme"),
        .id = str_c(id),
        .what = STR("w"),
        .selector = &s,
        .from_ms = from ? slot_to_ms(from) : 0,
        .to_ms = to ? slot_to_ms(to) : 0,
    };
    int rc = store_delete(r->bed.s, &q, &got, &e);
    if (rc && rc != ERR_BUSY)
        fail_msg("delete: %s", e.text);
    if (!rc) {
        model_delete(r, q.tenant, &s, got.from_ms ? slot_of_ms(got.from_ms) : 0,
                     got.to_ms ? slot_of_ms(got.to_ms) : UINT32_MAX);
        seen.deletes += got.kind >= TOMB_SERIES && got.entry;
    }
    selector_deinit(&s);
    arena_free(a);
}

/* No roll-up had to begin again. */
static void count_anew(struct run *r)
{
    struct tomb_stats st;

    store_delete_stats(r->bed.s, &st);
    seen.purged += st.rows;
    assert_int_equal(st.rollups_restarted, 0);
}

static void step_purge(struct run *r)
{
    bool more = true;
    struct err e;

    for (uint32_t i = 1 + below(r, chance(r, 0.2) ? 300 : 10); more && i > 0; i--)
        if (store_purge(r->bed.s, 1 + below(r, 30), &more, &e))
            fail_msg("purge: %s", e.text);
}

/* ---- time ---- */

static void step_clock(struct run *r)
{
    clock_fake_advance(&r->bed.clock, below(r, chance(r, 0.2) ? 12 * 3600000 : 60000));
    for (int i = 0; i < 3; i++)
        (void)steps_seal(&r->bed, 1 + below(r, 60));
}

static void step_retain(struct run *r)
{
    bool more = true;
    struct err e;

    for (uint32_t i = below(r, 60); more && i > 0; i--)
        if (store_retain(r->bed.s, 1 + below(r, 20), &more, &e))
            fail_msg("retain: %s", e.text);
}

static void step_build(struct run *r)
{
    for (uint32_t i = below(r, chance(r, 0.3) ? 300 : 10); i > 0; i--)
        if (!steps_build(&r->bed, 1 + below(r, 100)))
            break;
}

static void step_job(struct run *r)
{
    struct build_nodes due = { 0 };

    if (r->held) {
        steps_held_apply(&r->bed, r->held);
        r->held = NULL;
        return;
    }
    struct store_view *v = store_view_get(r->bed.s);
    steps_due(v, &r->bed, 1 + below(r, 20), &due);
    store_view_put(v);
    for (uint32_t i = below(r, 3); i > 0; i--) /* the list may be older than what is read */
        step_purge(r);
    v = store_view_get(r->bed.s);
    if (due.at.len)
        r->held = steps_held_read(v, &due.at.ptr[below(r, (uint32_t)due.at.len)], below(r, 3000));
    store_view_put(v);
    vec_free(&due.at);
}

static void reopen(struct run *r)
{
    steps_held_free(r->held);
    r->held = NULL;
    count_anew(r);
    store_bed_reopen(&r->bed, chance(r, 0.5) ? KV_MEM_KILL : KV_MEM_POWER, below(r, 20));
    if (r->policy)
        store_set_retention(r->bed.s, r->policy);
    steps_check(&r->bed);
}

/* ---- questions ---- */

static uint64_t rows_of(struct store_view *v, struct store_query q, bool members)
{
    struct stacks st;
    struct store_merge got = { .stacks = &st };
    struct err e;

    q.members = members;
    stacks_init(&st, 64 * MIB, 1);
    if (store_merge(v, &q, &got, &e))
        fail_msg("merge: %s", e.text);
    uint64_t rows = got.rows;
    store_merge_deinit(&got);
    stacks_deinit(&st);
    return rows;
}

static void ask(struct run *r, struct store_view *v)
{
    static const uint32_t lengths[] = { 40, 720, DAY * 7, DAY * 200 };
    const struct str by[] = { STR("pod"), STR("__type__"), STR("zone"), STR("service_name") };
    uint32_t now = store_bed_slot(&r->bed), len = 1 + below(r, lengths[below(r, 4)]);
    uint32_t from = now - below(r, len) - below(r, 24), at = below(r, 4);
    struct arena *a = arena_new(MIB);
    struct selector any = model_selector(&r->w, a), none = { 0 };
    bool all = chance(r, 0.5);
    struct store_query q = {
        .tenant = chance(r, 0.5) ? STR("anonymous") : STR("acme"),
        .selector = all ? &none : &any,
        .profile_type = str_c(model_types[below(r, MODEL_TYPES)].id),
        .start_ms = slot_to_ms(from),
        .end_ms = slot_to_ms(from + len),
        .members = chance(r, 0.3),
    };

    model_check_merge(&r->m, r->m.pushes.len, v, &q);
    if (all && len > DAY) {
        r->rows_groups += rows_of(v, q, false);
        r->rows_members += rows_of(v, q, true);
    }
    if (!r->policy)
        model_check_timeline(&r->m, r->m.pushes.len, v, &q, q.start_ms, 15000 * (1 + below(r, 60)),
                             1 + below(r, 30), by + at, below(r, 4 - at + 1));
    selector_deinit(&any);
    arena_free(a);
}

static void step_ask(struct run *r)
{
    struct store_view *v = store_view_get(r->bed.s);

    for (int i = 0; i < 3; i++)
        ask(r, v);
    store_view_put(v);
}

/* ---- runs ---- */

static void step(struct run *r)
{
    uint32_t n = below(r, 100);

    if (n < 45)
        step_push(r);
    else if (n < 55)
        step_clock(r);
    else if (n < 62)
        step_build(r);
    else if (n < 66)
        step_job(r);
    else if (n < 69)
        step_delete(r);
    else if (n < 77)
        step_purge(r);
    else if (n < 82 && r->policy)
        step_retain(r);
    else if (n < 84)
        r->drop = (int)below(r, 4);
    else if (n < 96)
        step_ask(r);
    else
        reopen(r);
}

/* No group of a retired series is remembered. */
static void check_forgotten(struct run *r)
{
    struct key from = { .len = 1, .b = { KEY_GROUP_OF } }, to = from, k;
    struct kv *kv = r->bed.s->kv;
    struct buf row;
    struct err e;

    key_end(&to);
    buf_init(&row, KIB);
    struct kv_iter *it = kv_iter_new(kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        uint32_t ordinal;
        memcpy(k.b, kv_iter_key(it).ptr, kv_iter_key(it).len);
        k.len = kv_iter_key(it).len;
        k.b[0] = KEY_SERIES;
        assert_int_equal(kv_get(kv, NULL, KV_META, key_str(&k), &row, &e), 0);
        assert_true(key_u32_read(buf_str(&row), &ordinal) && ordinal != SERIES_RETIRED);
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    buf_deinit(&row);
}

/* Roll-ups of all services reach back to the first slot, as they did before. */
static void check_since(struct run *r)
{
    struct key from = { .len = 1, .b = { KEY_RULE } }, to = from;
    struct group_service g;
    struct err e;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(r->bed.s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).len != 9)
            continue;
        assert_int_equal(group_service_read(kv_iter_value(it), &g, &e), 0);
        assert_int_equal(g.since[GROUP_BASE], 0);
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
}

static void finish(struct run *r)
{
    struct rollup_counts counts = { 0 };

    for (int i = 0; i < 5; i++) {
        clock_fake_advance(&r->bed.clock, 700000);
        store_bed_seal(&r->bed);
    }
    tomb_bed_purge(&r->bed, 1 + below(r, 100));
    count_anew(r);
    steps_check(&r->bed);
    check_forgotten(r);
    check_since(r);
    step_ask(r);
    for (int i = 0; i < 2000 && steps_build(&r->bed, 1000); i++)
        ;
    steps_check(&r->bed);
    if (!r->policy) {
        struct store_view *v = store_view_get(r->bed.s);
        rollup_check(v, &counts);
        store_view_put(v);
    }
    seen.rules = MAX(seen.rules, counts.rules);
    r->rows_groups = r->rows_members = 0;
    for (int i = 0; i < 10; i++)
        step_ask(r);
    seen.rows_groups += r->rows_groups;
    seen.rows_members += r->rows_members;
}

static void set_policy(struct run *r)
{
    static const uint32_t hours[KEY_LEVELS] = { 6, 48, 150, 480, 1000, 9600, 9600, 9600 };
    struct retain_policy_opts o = { .interval_ms = 60000 };
    struct err e;

    for (size_t i = 0; i < KEY_LEVELS; i++)
        o.keep.ms[i] = hours[i] * UINT64_C(3600000);
    assert_int_equal(retain_policy_new(&o, &r->policy, &e), 0);
    store_set_retention(r->bed.s, r->policy);
    r->m.floors = true;
}

static void run_seed(uint64_t seed)
{
    struct run *r = XNEW(struct run);

    model_world_init(&r->w, seed);
    r->m.w = &r->w;
    struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = below(r, 60000),
        .build_all = chance(r, 0.7),
        .hot_bytes_max = chance(r, 0.5) ? 0 : 10 * MIB,
        .hot_members_min = 1 + below(r, 3),
        .wid_horizon_ms = UINT32_MAX / 2,
        .seed = prng_u64(&r->w.prng),
        .epoch_nodes_max = chance(r, 0.5) ? 1 + below(r, 60) : 0,
        .hash_bits = chance(r, 0.7) ? 0 : 3 + below(r, 8),
        .group_drop = drop_of,
        .group_cookie = r,
        .test = { .groups_max = chance(r, 0.5) ? 0 : 1 + below(r, 6),
                  .whole_after = 1 + below(r, 3),
                  .rolled_members = 1 + below(r, 5),
                  .delta_bytes = 1 + below(r, 200) },
    };
    store_bed_init(&r->bed, &o);
    if (chance(r, 0.6))
        set_policy(r);
    for (int i = 0; i < STEPS; i++)
        step(r);
    finish(r);
    steps_held_free(r->held);
    store_bed_deinit(&r->bed);
    retain_policy_unref(r->policy);
    vec_for (i, &r->requests)
        model_request_free(r->requests.ptr[i]);
    vec_for (i, &r->old)
        xfree(r->old.ptr[i]);
    vec_free(&r->requests);
    vec_free(&r->old);
    vec_free(&r->m.pushes);
    model_world_deinit(&r->w);
    xfree(r);
}

static void test_groups(void **state)
{
    (void)state;
    uint64_t runs = steps_seeds(run_seed, SEEDS);
    printf("deletes of label sets and ranges %" PRIu64 ", rules %" PRIu64 ", rows purged %" PRIu64
           "; rows read of groups %" PRIu64 ", of members %" PRIu64 "\n",
           seen.deletes, seen.rules, seen.purged, seen.rows_groups, seen.rows_members);
    if (runs < SEEDS)
        return;
    assert_true(seen.rules > 1 && seen.deletes > SEEDS);
    assert_true(seen.rows_groups < seen.rows_members);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_groups) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
