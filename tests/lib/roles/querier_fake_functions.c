/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake ingester's answer to RPC_FUNCTIONS: each push is one stack.
 */
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/model/leaves.h"
#include "common/model/slot.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/querier_fake_impl.h"

#define FUNCTIONS_MAX 32

struct functions {
    struct str names[FUNCTIONS_MAX];
    uint64_t *self[FUNCTIONS_MAX], *total[FUNCTIONS_MAX]; /* by point */
    size_t len;
    uint32_t points;
};

static size_t find(struct functions *f, struct str name)
{
    for (size_t i = 0; i < f->len; i++)
        if (str_eq(f->names[i], name))
            return i;
    CHECK(f->len < FUNCTIONS_MAX);
    f->names[f->len] = name;
    f->self[f->len] = XNEW_ARRAY(uint64_t, f->points);
    f->total[f->len] = XNEW_ARRAY(uint64_t, f->points);
    return f->len++;
}

static void add_push(struct functions *f, const struct qbed_push *p, uint32_t k)
{
    struct str rest = str_c(p->folded), part;
    bool more = rest.len > 0, counted[FUNCTIONS_MAX] = { false };
    size_t at = 0;

    while (more && str_next(&rest, ';', &more, &part)) {
        at = find(f, part);
        if (!counted[at])
            f->total[at][k] += p->value;
        counted[at] = true;
    }
    f->self[at][k] += p->value;
}

static bool wanted(const Embertree__FunctionsRequest *q, struct str name)
{
    for (size_t i = 0; i < q->n_names; i++)
        if (str_eq(str_n(q->names[i].data, q->names[i].len), name))
            return true;
    return !q->n_names;
}

static void put_series(const struct functions *f, size_t i, struct arena *a,
                       Embertree__FunctionsReply *r)
{
    Embertree__FunctionSeries *s = ARENA_NEW(a, Embertree__FunctionSeries);

    embertree__function_series__init(s);
    s->name = (ProtobufCBinaryData){ f->names[i].len, (uint8_t *)(uintptr_t)f->names[i].ptr };
    s->point = ARENA_ARRAY(a, uint32_t, f->points);
    s->self = f->self[i];
    s->total = f->total[i];
    for (uint32_t k = 0; k < f->points; k++)
        s->point[s->n_point++] = k;
    s->n_self = s->n_total = f->points;
    r->functions[r->n_functions++] = s;
}

int fake_functions(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                   struct err *e)
{
    Embertree__FunctionsRequest *q =
        embertree__functions_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    Embertree__FunctionsReply r = EMBERTREE__FUNCTIONS_REPLY__INIT;
    struct functions all = { .points = q->points };
    struct leaf_items items = { 0 };
    struct leaf_writer w = { .to = &items }; /* pushes come in order of time */

    CHECK(q);
    r.all = ARENA_ARRAY(a, uint64_t, q->points);
    r.leaves = ARENA_ARRAY(a, uint32_t, q->points);
    r.functions = ARENA_ARRAY(a, Embertree__FunctionSeries *, FUNCTIONS_MAX);
    memset(r.all, 0, q->points * sizeof(*r.all));
    memset(r.leaves, 0, q->points * sizeof(*r.leaves));
    r.n_all = q->points;
    for (size_t i = 0; i < f->n && e->code == 0; i++) {
        const struct qbed_push *p = &f->pushes[i];
        int64_t behind = slot_to_ms(slot_of_ms(p->ms)) - q->origin_ms;
        int64_t k =
            behind <= 0 ? (behind > -q->step_ms ? 0 : -1) : (behind + q->step_ms - 1) / q->step_ms;
        if (!fake_lives_here(f, p, q->shards, q->n_shards) || k < 0 || k >= q->points ||
            !str_eqc(str_n(q->profile_type.data, q->profile_type.len), p->type) ||
            fake_matches(p, str_n(q->tenant.data, q->tenant.len), q->matchers, q->n_matchers, a,
                         e) <= 0)
            continue;
        add_push(&all, p, (uint32_t)k);
        r.all[k] += p->value;
        r.leaves[k]++; /* the pushes of the tests have a leaf each, by type */
        leaf_put(&w, slot_of_ms(p->ms) / LEAF_SLOTS, 1);
        r.gauge |= p->gauge;
    }
    r.n_leaves = r.gauge ? q->points : 0;
    leaf_put_end(&w);
    r.leaf_items = items.ptr;
    r.n_leaf_items = q->leaf_items && r.gauge ? items.len : 0;
    for (size_t i = 0; i < all.len; i++)
        if (wanted(q, all.names[i]))
            put_series(&all, i, a, &r);
    if (!e->code)
        fake_pack(&r.base, out);
    vec_free(&items);
    for (size_t i = 0; i < all.len; i++) {
        xfree(all.self[i]);
        xfree(all.total[i]);
    }
    embertree__functions_request__free_unpacked(q, NULL);
    return e->code;
}
