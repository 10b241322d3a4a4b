/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_targets: bounds that move outward may mean other days, so other series and services, and those
 * other floors: it is done again until nothing moves. Mostly nothing does.
 */
#include "common/store/query/tl_targets.h"

#include "common/store/state/view.h"
#include "common/store/store.h"

#define SPREAD_STEP_MS 60000 /* from here on points come from levels that do not know slots */
#define LEAD_SLOTS     (SPREAD_SLOTS_MAX - 1)

static struct member member_of(const struct targets_part *p)
{
    return (struct member){ p->scan.tenant, p->scan.scope, p->scan.ptype, 0 };
}

static int load_floors(struct tl_targets *x, struct store_view *v, const struct store_query *q,
                       struct err *e)
{
    struct targets_part p;

    x->floors.len = x->spread.len = 0;
    for (size_t i = 0; targets_part(&x->t, q, i, &p); i++) {
        struct member m = member_of(&p);
        struct floors f;
        int rc = floors_load_read(v->kv, v->snap, &m, &f, e);
        if (rc)
            return rc;
        vec_push(&x->floors, f);
        tl_grid_floors(&x->grid, &f);
        if (!x->grid.lead)
            continue;
        struct spread s;
        if (spread_load(v->kv, v->snap, &m, &s, e))
            return e->code;
        vec_push(&x->spread, s);
    }
    return 0;
}

int tl_targets_open(struct tl_targets *x, struct store_view *v, const struct targets_query *ask,
                    struct err *e)
{
    const struct store_query *q = ask->q;
    struct arena *a = ask->arena;
    struct tl_grid *g = &x->grid;

    x->t = (struct targets){ 0 };
    x->floors.ptr = NULL;
    x->floors.len = x->floors.cap = 0;
    x->spread.ptr = NULL;
    x->spread.len = x->spread.cap = 0;
    bool spread = q->spread && !g->vectors && g->step_ms < SPREAD_STEP_MS;
    tl_grid_asked(g, &g->from, &g->to);
    for (struct arena_mark mark = arena_mark(a);; arena_rewind(a, mark)) {
        uint32_t from = g->from, to = g->to, lead = spread ? MIN(LEAD_SLOTS, from) : 0;
        struct targets_query tq = *ask;
        tq.start_ms = slot_to_ms(from - lead);
        tq.end_ms = slot_to_ms(to);
        int rc = targets_plan(&x->t, v, &tq, e);
        g->lead = x->t.type.gauge ? 0 : lead;
        if (!rc && from < to)
            rc = load_floors(x, v, q, e);
        if (rc || !x->floors.len)
            return rc;
        tl_grid_bounds(g);
        if (g->from >= from && g->to <= to)
            return 0;
        g->from = MIN(g->from, from);
        g->to = MAX(g->to, to);
        targets_close(&x->t);
    }
}

void tl_targets_close(struct tl_targets *x)
{
    targets_close(&x->t);
    vec_free(&x->floors);
    vec_free(&x->spread);
}

bool tl_targets_part(struct tl_targets *x, const struct store_query *q, size_t i,
                     struct tl_part *ret)
{
    if (i >= x->floors.len || !targets_part(&x->t, q, i, &ret->p))
        return false;
    ret->m = member_of(&ret->p);
    ret->floors = &x->floors.ptr[i];
    ret->spread = x->spread.len ? &x->spread.ptr[i] : NULL;
    ret->from = x->grid.from;
    ret->to = x->grid.to;
    /* Above level 0 rows cannot be cut there, and have nothing to spread. */
    if (ret->from > ret->floors->at[0])
        ret->from = MAX(ret->from - x->grid.lead, ret->floors->at[0]);
    if (ret->p.group)
        ret->from = MAX(ret->from, cover_split(ret->floors, ret->p.since));
    if (ret->p.until < UINT32_MAX)
        ret->to = MIN(ret->to, cover_split(ret->floors, ret->p.until));
    return true;
}

int tl_targets_pieces(struct tl_targets *x, const struct tl_part *p, mask_parts *ret, struct err *e)
{
    const struct scan *c = &p->p.scan;
    struct mask_part whole = { p->from, p->to, c->series, c->len, NULL };

    if (!p->p.group)
        return masks_split(&x->t.match.masks, c->scope, c->ptype, &whole, ret, e);
    ret->len = 0; /* nothing of groups is masked: targets_plan.c */
    vec_push(ret, whole);
    return 0;
}
