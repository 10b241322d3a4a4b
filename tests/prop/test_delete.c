/* SPDX-License-Identifier: Apache-2.0
 *
 * Deletes of all kinds beside the slow obvious engine (tests/lib/store/store_model.h): between
 * pushes, seals, builds, jobs of a compactor that lie about, held views, restarts, power cuts and
 * writes that fail; purged in steps of few rows, or much later, or cut off in the middle. At any
 * moment an answer is the model's; a deleted profile that is pushed again is refused while copies
 * of it may be under way, then stored again, any other is a duplicate; and in the end no key names
 * deleted data.
 * SEED=n repeats one; SEEDS=n runs more of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

#define STEPS 300
#define DAY   17280u
#define SEEDS 24

struct flight { /* a batch that is staged, not committed */
    struct store_batch *b;
    VEC(struct model_request *) requests;
    VEC(struct model_push *) pushes; /* of them, those that were stored */
};
struct pushed {           /* everything that was ever stored */
    struct model_push *p; /* the whole push */
    bool known;           /* its write id: not all of it was deleted at once */
    bool buried;          /* it was deleted with its tenant */
    uint64_t until_ms;    /* if it is not known: it is refused */
    uint64_t perhaps_ms;  /* or may be: the time at which a tenant's write ids go is not fixed */
    int64_t created_ms;   /* engine time of the delete */
};
enum again { AGAIN_FRESH, AGAIN_KNOWN, AGAIN_LATE, AGAIN_PERHAPS };
struct gone { /* a number that no key may name when it is purged */
    uint32_t tenant, scope;
    uint64_t series;
};
struct run {
    struct model_world w;
    struct model m; /* of what is committed and not deleted */
    struct store_bed bed;
    VEC(struct flight) flights;
    VEC(struct model_request *) requests; /* owned */
    VEC(struct pushed) pushed;
    VEC(void *) old; /* arrays of earlier lists; freed at the end */
    VEC(struct gone) gone;
    struct store_view *view; /* held; NULL: none */
    struct model view_model;
    bool ranges; /* of this run: then days are not what the model thinks */
    uint32_t ids;
    struct steps_held *held; /* NULL: none */
};

static struct {
    uint64_t late, anew; /* requests that were refused; pushes that were stored again */
} counts;

static uint32_t below(struct run *r, uint32_t n)
{
    return (uint32_t)prng_below(&r->w.prng, n);
}

static bool chance(struct run *r, double p)
{
    return prng_chance(&r->w.prng, p);
}

/* ---- pushes ---- */

static uint32_t any_slot(struct run *r)
{
    uint32_t now = store_bed_slot(&r->bed);

    switch (below(r, 8)) {
    case 0:
        return now - below(r, 720);
    case 1:
        return now - below(r, DAY * (chance(r, 0.3) ? 100 : 3));
    default:
        return now - below(r, 12);
    }
}

static struct flight *open_flight(struct run *r)
{
    if (!r->flights.len || chance(r, 0.3)) {
        struct flight f = { .b = store_batch_new(r->bed.s) };
        vec_push(&r->flights, f);
    }
    return &r->flights.ptr[r->flights.len - 1];
}

static struct pushed *find_pushed(struct run *r, const struct model_push *p)
{
    vec_for (i, &r->pushed)
        if (!memcmp(r->pushed.ptr[i].p->wid, p->wid, 16))
            return &r->pushed.ptr[i];
    return NULL;
}

static bool in_flight(struct run *r, const struct model_push *p)
{
    vec_for (i, &r->flights)
        vec_for (j, &r->flights.ptr[i].pushes)
            if (!memcmp(r->flights.ptr[i].pushes.ptr[j]->wid, p->wid, 16))
                return true;
    return false;
}

static uint64_t mono_ms(struct run *r)
{
    return clock_mono_ms(&r->bed.clock.clock);
}

static enum again again(struct run *r, const struct model_push *p)
{
    const struct pushed *was = find_pushed(r, p);

    if (in_flight(r, p) || (was && was->known))
        return AGAIN_KNOWN;
    if (was && mono_ms(r) < was->until_ms)
        return AGAIN_LATE;
    return was && mono_ms(r) < was->perhaps_ms ? AGAIN_PERHAPS : AGAIN_FRESH;
}

/* False: it was refused as a whole, rightly. */
static bool try_stage(struct run *r, struct flight *f, struct model_request *q,
                      struct store_result *ret)
{
    bool late = false, perhaps = false;
    struct stacks st;
    struct err e;

    vec_for (i, &q->pushes) {
        late |= again(r, &q->pushes.ptr[i]) == AGAIN_LATE;
        perhaps |= again(r, &q->pushes.ptr[i]) == AGAIN_PERHAPS;
    }
    stacks_init(&st, 64 * MIB, prng_u64(&r->w.prng));
    int rc = steps_try_stage(&r->bed, f->b, &r->w, q, &st, ret, &e);
    stacks_deinit(&st);
    if (late && rc != ERR_BUSY)
        fail_msg("a copy of what was deleted is taken: %d", rc);
    if (rc && !(rc == ERR_BUSY && (late || perhaps)))
        fail_msg("stage: %s", e.text);
    counts.late += late;
    return !rc;
}

/* Stages the request; those of its pushes that must be stored are, the others are duplicates. */
static void stage(struct run *r, struct flight *f, struct model_request *q)
{
    struct store_result got = { 0 };
    uint32_t fresh = 0;

    vec_for (i, &q->pushes)
        fresh += again(r, &q->pushes.ptr[i]) != AGAIN_KNOWN;
    if (!try_stage(r, f, q, &got))
        return;
    assert_int_equal(got.stored, fresh);
    assert_int_equal(got.stored + got.duplicates, q->pushes.len);
    vec_for (i, &q->pushes) {
        struct pushed *was = find_pushed(r, &q->pushes.ptr[i]);
        if (!(was && was->known) && !in_flight(r, &q->pushes.ptr[i]))
            vec_push(&f->pushes, &q->pushes.ptr[i]);
    }
}

static void step_push(struct run *r)
{
    struct model_request *q = model_request_new(&r->w, any_slot(r));

    vec_push(&r->requests, q);
    stage(r, open_flight(r), q);
}

/* Something that came before comes again, deleted or not. */
static void step_again(struct run *r)
{
    if (r->requests.len)
        stage(r, open_flight(r), r->requests.ptr[below(r, (uint32_t)r->requests.len)]);
}

static void committed(struct run *r, struct model_push *p)
{
    struct pushed *was = find_pushed(r, p);

    if (was) {
        counts.anew++;
        *was = (struct pushed){ .p = was->p, .known = true };
    } else {
        vec_push(&r->pushed, ((struct pushed){ .p = p, .known = true }));
    }
    vec_push(&r->m.pushes, *p);
}

static void pop_flight(struct run *r)
{
    vec_free(&r->flights.ptr[0].requests);
    vec_free(&r->flights.ptr[0].pushes);
    r->flights.len--;
    memmove(r->flights.ptr, r->flights.ptr + 1, r->flights.len * sizeof(*r->flights.ptr));
}

static void step_commit(struct run *r)
{
    struct err e;

    if (!r->flights.len)
        return;
    if (store_commit(r->bed.s, r->flights.ptr[0].b, &e))
        fail_msg("commit: %s", e.text);
    vec_for (i, &r->flights.ptr[0].pushes)
        committed(r, r->flights.ptr[0].pushes.ptr[i]);
    pop_flight(r);
}

static void commit_all(struct run *r)
{
    while (r->flights.len)
        step_commit(r);
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

/* All of the push is deleted, now or before: that delete has a guard. A push that was deleted with
 * its tenant does not count for the tenant that has the name now. */
static void bury(struct run *r, struct pushed *p, const struct tomb *t)
{
    if (p->buried || (t->kind != TOMB_TENANT && !t->services))
        return;
    p->known = false;
    p->buried = t->kind == TOMB_TENANT;
    p->until_ms = mono_ms(r) + r->bed.o.delete_guard_ms;
    p->created_ms = t->created_ms;
}

/* The model without them; its earlier lists stay, for views. */
static void model_delete(struct run *r, struct str tenant, const struct selector *s, uint32_t from,
                         uint32_t to, const struct tomb *t)
{
    struct model now = { .w = r->m.w, .floors = r->m.floors };

    vec_for (i, &r->m.pushes) {
        struct model_push p = r->m.pushes.ptr[i];
        if (named(r, &p, tenant, s)) {
            struct model_push left = { .series = p.series, .type = p.type };
            memcpy(left.wid, p.wid, 16);
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
    vec_for (i, &r->pushed) {
        struct pushed *p = &r->pushed.ptr[i];
        size_t n = p->p->vectors.len;
        if (named(r, p->p, tenant, s) && p->p->vectors.ptr[0].slot >= from &&
            p->p->vectors.ptr[n - 1].slot < to)
            bury(r, p, t);
    }
}

/* What no key may name once it is purged. */
static void note_gone(struct run *r, const struct tomb *t)
{
    if (t->kind == TOMB_TENANT && t->tenant)
        vec_push(&r->gone, ((struct gone){ t->tenant, 0, 0 }));
    vec_for (i, &t->masks.at) {
        const struct mask *m = &t->masks.at.ptr[i];
        if (m->kind == TOMB_SERVICES)
            vec_push(&r->gone, ((struct gone){ t->tenant, m->scope, 0 }));
        for (size_t k = 0; m->kind == TOMB_SERIES && k < m->series_len; k++)
            if (m->series[k]) /* 0, of hashes of few bits, would mean all */
                vec_push(&r->gone, ((struct gone){ t->tenant, m->scope, m->series[k] }));
    }
}

static void reopen(struct run *r, enum kv_mem_crash how, uint64_t keep);

static void step_delete(struct run *r)
{
    struct arena *a = arena_new(MIB);
    struct selector s = { 0 };
    struct tomb_result got;
    char id[16];
    struct err e;
    uint32_t now = store_bed_slot(&r->bed), from = 0, to = 0;

    (void)snprintf(id, sizeof(id), "%u", ++r->ids);
    commit_all(r);
    if (!chance(r, 0.1))
        s = model_selector(&r->w, a);
    if (r->ranges && chance(r, 0.7)) {
        uint32_t len = 1 + below(r, chance(r, 0.5) ? 300 : DAY * 5);
        from = now - below(r, len) - below(r, chance(r, 0.2) ? DAY * 50 : 100);
        to = chance(r, 0.2) ? 0 : from + len;
        from = to && chance(r, 0.2) ? 0 : from;
    }
    if (!r->ranges) /* labels of a type are a range: of all time */
        for (size_t i = 0; i < s.len; i++)
            if (tomb_by_type(&s.matchers[i]))
                goto out;
    struct tomb_request q = {
        .tenant = chance(r, 0.7) ? STR("anonymous") : STR("acme"),
        .id = str_c(id),
        .what = STR("w"),
        .selector = &s,
        .from_ms = from ? slot_to_ms(from) : 0,
        .to_ms = to ? slot_to_ms(to) : 0,
    };
    bool cut = chance(r, 0.1);
    r->bed.faults.fail_in = cut ? 1 : 0;
    r->bed.faults.fail_code = ERR_IO;
    r->bed.faults.fail_in_doubt = chance(r, 0.5);
    int rc = store_delete(r->bed.s, &q, &got, &e);
    r->bed.faults.fail_in = 0;
    if (rc && cut) { /* the result is not known: asked again, it is done, once */
        reopen(r, chance(r, 0.5) ? KV_MEM_KILL : KV_MEM_POWER, 100);
        rc = store_delete(r->bed.s, &q, &got, &e);
    }
    if (rc == ERR_BUSY)
        goto out;
    if (rc)
        fail_msg("delete: %s", e.text);
    const struct tomb *t = r->bed.s->tombs->at.ptr[r->bed.s->tombs->at.len - 1];
    model_delete(r, q.tenant, &s, got.from_ms ? slot_of_ms(got.from_ms) : 0,
                 got.to_ms ? slot_of_ms(got.to_ms) : UINT32_MAX, t);
    if (!got.repeated)
        note_gone(r, t);
    for (uint32_t i = below(r, 4); i > 0; i--) /* copies that were under way */
        step_again(r);
out:
    selector_deinit(&s);
    arena_free(a);
}

static void step_purge(struct run *r)
{
    bool more = true;
    struct err e;

    for (uint32_t i = 1 + below(r, chance(r, 0.2) ? 300 : 6); more && i > 0; i--) {
        if (store_purge(r->bed.s, 1 + below(r, 30), &more, &e))
            fail_msg("purge: %s", e.text);
        if (store_wants_quiet(r->bed.s))
            commit_all(r);
    }
}

static void step_reclaim(struct run *r)
{
    bool more = true;
    struct err e;

    while (more && chance(r, 0.9))
        if (store_reclaim(r->bed.s, &more, &e))
            fail_msg("reclaim: %s", e.text);
}

/* ---- seals, builds, time ---- */

static void step_seal(struct run *r)
{
    (void)steps_seal(&r->bed, 1 + below(r, 40));
}

static void step_clock(struct run *r)
{
    clock_fake_advance(&r->bed.clock, below(r, chance(r, 0.1) ? 1800000 : 20000));
}

static void step_build(struct run *r)
{
    bool more = true;

    for (uint32_t i = below(r, chance(r, 0.3) ? 200 : 5); more && i > 0; i--)
        more = steps_build(&r->bed, 1 + below(r, 60));
}

static void drop_held(struct run *r)
{
    steps_held_free(r->held);
    r->held = NULL;
}

static void take_job(struct run *r)
{
    struct store_view *v = store_view_get(r->bed.s);
    struct build_nodes due = { 0 };

    steps_due(v, &r->bed, 1 + below(r, 20), &due);
    if (due.at.len) {
        const struct build_node *n = &due.at.ptr[below(r, (uint32_t)due.at.len)];
        r->held = steps_held_read(v, n, below(r, 3000));
    }
    store_view_put(v);
    vec_free(&due.at);
}

/* A job that was read before a delete may come back after it. */
static void step_job(struct run *r)
{
    if (!r->held) {
        take_job(r);
        return;
    }
    steps_held_apply(&r->bed, r->held);
    r->held = NULL;
}

/* ---- questions ---- */

static void ask(struct run *r, struct store_view *v, const struct model *m)
{
    static const uint32_t lengths[] = { 40, 720, DAY * 3, DAY * 200 };
    const struct str by[] = { STR("pod"), STR("__type__"), STR("zone"), STR("service_name") };
    uint32_t now = store_bed_slot(&r->bed), len = 1 + below(r, lengths[below(r, 4)]);
    uint32_t from = now - below(r, len) - below(r, 24), at = below(r, 4);
    struct arena *a = arena_new(MIB);
    struct selector s = model_selector(&r->w, a);
    struct store_query q = {
        .tenant = chance(r, 0.7) ? STR("anonymous") : STR("acme"),
        .selector = &s,
        .profile_type = str_c(model_types[below(r, MODEL_TYPES)].id),
        .start_ms = slot_to_ms(from) + below(r, 5000),
        .end_ms = slot_to_ms(from + len) + 1 + below(r, 5000),
    };
    struct store_labels_query l = {
        .tenant = q.tenant,
        .kind = (enum store_labels_kind)below(r, 4),
        .name = chance(r, 0.5) ? STR("service_name") : STR("pod"),
        .names = by + at,
        .names_len = below(r, 4 - at + 1),
        .selector = &s,
    };

    if (chance(r, 0.5) || (r->ranges && chance(r, 0.5)))
        model_check_merge(m, m->pushes.len, v, &q);
    else if (r->ranges || chance(r, 0.5))
        model_check_timeline(m, m->pushes.len, v, &q, q.start_ms, chance(r, 0.5) ? 15000 : 60000,
                             1 + below(r, 30), by + at, below(r, 4 - at + 1));
    else
        model_check_labels(m, m->pushes.len, v, &l);
    selector_deinit(&s);
    arena_free(a);
}

static void step_ask(struct run *r)
{
    struct store_view *v = store_view_get(r->bed.s);

    for (int i = 0; i < 3; i++)
        ask(r, v, &r->m);
    store_view_put(v);
}

static void drop_view(struct run *r)
{
    if (r->view)
        store_view_put(r->view);
    r->view = NULL;
    vec_free(&r->view_model.pushes);
}

/* A view that is held sees the data of the moment when it was taken, deleted since or not. */
static void step_view(struct run *r)
{
    if (r->view && chance(r, 0.3))
        drop_view(r);
    if (!r->view) {
        r->view = store_view_get(r->bed.s);
        r->view_model = (struct model){ .w = r->m.w, .floors = r->m.floors };
        vec_for (i, &r->m.pushes)
            vec_push(&r->view_model.pushes, r->m.pushes.ptr[i]);
    }
    ask(r, r->view, &r->view_model);
}

/* ---- disasters ---- */

static void reopen(struct run *r, enum kv_mem_crash how, uint64_t keep)
{
    drop_view(r);
    drop_held(r);
    store_bed_reopen(&r->bed, how, keep);
    vec_for (i, &r->pushed) {
        struct pushed *p = &r->pushed.ptr[i];
        uint64_t until = mono_ms(r) + r->bed.o.delete_guard_ms;
        if (p->known || p->created_ms < store_now(r->bed.s) - 3600000)
            p->until_ms = p->perhaps_ms = 0;
        else if (p->buried && mono_ms(r) >= p->until_ms)
            p->perhaps_ms = until;
        else
            p->until_ms = until;
    }
}

static void step_crash(struct run *r)
{
    commit_all(r);
    reopen(r, chance(r, 0.5) ? KV_MEM_KILL : KV_MEM_POWER, below(r, 20));
    steps_check(&r->bed);
}

/* ---- runs ---- */

static void step(struct run *r)
{
    uint32_t n = below(r, 100);

    if (n < 30)
        step_push(r);
    else if (n < 36)
        step_again(r);
    else if (n < 48)
        step_commit(r);
    else if (n < 54)
        step_seal(r);
    else if (n < 61)
        step_clock(r);
    else if (n < 64)
        step_delete(r);
    else if (n < 72)
        step_purge(r);
    else if (n < 74)
        step_reclaim(r);
    else if (n < 78)
        step_build(r);
    else if (n < 82)
        step_job(r);
    else if (n < 92)
        step_ask(r);
    else if (n < 97)
        step_view(r);
    else
        step_crash(r);
}

static void finish(struct run *r)
{
    step_crash(r);
    for (int i = 0; i < 10; i++)
        step_ask(r);
    clock_fake_advance(&r->bed.clock, r->bed.o.delete_guard_ms);
    tomb_bed_purge(&r->bed, 1 + below(r, 100));
    vec_for (i, &r->gone) {
        const struct gone *g = &r->gone.ptr[i];
        size_t left = tomb_bed_keys(&r->bed, g->tenant, g->scope, g->series);
        if (left)
            fail_msg("%zu keys of tenant %u, service %u, series %016" PRIx64 " are left", left,
                     g->tenant, g->scope, g->series);
    }
    for (int i = 0; i < 10; i++)
        step_ask(r);
    steps_check(&r->bed);
    clock_fake_advance(&r->bed.clock, 730000);
    store_bed_seal(&r->bed);
    clock_fake_advance(&r->bed.clock, UINT64_C(65) * 86400000);
    store_bed_seal(&r->bed);
    for (int i = 0; i < 100; i++)
        step_build(r);
    for (int i = 0; i < 20; i++)
        step_ask(r);
    steps_check(&r->bed);
}

static void run_seed(uint64_t seed)
{
    struct run *r = XNEW(struct run);

    model_world_init(&r->w, seed);
    r->m.w = &r->w;
    struct store_opts o = {
        .dict_bytes_max = chance(r, 0.5) ? 1 : 64 * MIB,
        .seal_delay_ms = below(r, 60000),
        .build_all = chance(r, 0.5),
        .hot_bytes_max = chance(r, 0.5) ? 0 : 10 * MIB,
        .hot_members_min = 1 + below(r, 3),
        .wid_horizon_ms = UINT32_MAX / 2, /* retries come at any time */
        .delete_guard_ms = chance(r, 0.2) ? 0 : 1000 + below(r, chance(r, 0.5) ? 60000 : 600000),
        .seed = prng_u64(&r->w.prng),
        .epoch_nodes_max = chance(r, 0.5) ? 1 + below(r, 60) : 0,
        .hash_bits = chance(r, 0.5) ? 0 : 1 + below(r, 8),
    };
    if (chance(r, 0.7))
        o.test = (struct store_rollup_test){
            .groups_max = below(r, 6),
            .whole_after = 1 + below(r, 3),
            .rolled_members = 1 + below(r, 5),
            .delta_bytes = 1 + below(r, 200),
        };
    r->ranges = chance(r, 0.6);
    store_bed_init(&r->bed, &o);
    for (int i = 0; i < STEPS; i++)
        step(r);
    finish(r);
    drop_held(r);
    drop_view(r);
    store_bed_deinit(&r->bed);
    vec_for (i, &r->requests)
        model_request_free(r->requests.ptr[i]);
    vec_for (i, &r->old)
        xfree(r->old.ptr[i]);
    vec_free(&r->requests);
    vec_free(&r->pushed);
    vec_free(&r->old);
    vec_free(&r->gone);
    vec_free(&r->flights);
    vec_free(&r->m.pushes);
    model_world_deinit(&r->w);
    xfree(r);
}

static void test_model(void **state)
{
    (void)state;
    uint64_t ran = steps_seeds(run_seed, SEEDS);

    print_message("%" PRIu64 " requests refused, %" PRIu64 " pushes stored again\n", counts.late,
                  counts.anew);
    assert_true(ran < SEEDS || (counts.late > 0 && counts.anew > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
