/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_view.c: chooses the profile type that is shown, and makes a call tree of its series.
 *
 * For two profiles the type must be in both; types are alike if they measure the same thing in the
 * same unit, since profilers name periods differently. All series of the type are summed by node
 * first, so that the stacks are walked once. Pure: any thread.
 */
#include "distributor/adhoc/adhoc_view.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/render/diff.h"
#include "common/render/flame.h"
#include "common/render/folded.h"
#include "common/render/metadata.h"

/* ---- which type ------------------------------------------------------------------------------ */

static struct ptype parsed(struct str id)
{
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(id, &t, &e) == 0); /* the reader saw to it */
    return t;
}

/* Profilers name periods differently: what is measured, and in what, is enough to compare. */
static bool alike(struct str a, struct str b)
{
    struct ptype x = parsed(a), y = parsed(b);

    return str_eq(a, b) ||
           (str_eq(x.sample_type, y.sample_type) && str_eq(x.sample_unit, y.sample_unit));
}

static const struct adhoc_type *find_alike(const struct adhoc_meta *m, struct str id)
{
    for (size_t i = 0; i < m->types_len; i++)
        if (str_eq(m->types[i].id, id))
            return &m->types[i];
    for (size_t i = 0; i < m->types_len; i++)
        if (alike(m->types[i].id, id))
            return &m->types[i];
    return NULL;
}

bool adhoc_both(const struct adhoc_side *other, const struct adhoc_type *t)
{
    return find_alike(other->meta, t->id) != NULL;
}

static size_t rank_of(const struct adhoc_type *t)
{
    static const char *const first[] = { "cpu", "wall", "inuse_space", "alloc_space" };
    struct ptype p = parsed(t->id);
    size_t i = 0;

    while (i < ARRAY_LEN(first) && !str_eqc(p.sample_type, first[i]))
        i++;
    return i;
}

static const struct adhoc_type *best_type(const struct adhoc_side *sides, size_t n, struct str wish)
{
    const struct adhoc_meta *m = sides[0].meta;
    const struct adhoc_type *best = NULL;

    for (size_t i = 0; i < m->types_len; i++) {
        const struct adhoc_type *t = &m->types[i];
        if (n > 1 && !adhoc_both(&sides[1], t))
            continue;
        if (wish.len ? !best && (str_eq(t->shown, wish) || str_eq(t->id, wish))
                     : !best || rank_of(t) < rank_of(best))
            best = t;
    }
    return best;
}

int adhoc_choose(struct adhoc_side *sides, size_t n, struct str wish, struct err *e)
{
    struct buf names;

    sides[0].type = best_type(sides, n, wish);
    if (sides[0].type) {
        if (n > 1)
            sides[1].type = find_alike(sides[1].meta, sides[0].type->id);
        return 0;
    }
    buf_init(&names, ERR_TEXT_MAX / 2);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < sides[k].meta->types_len; i++) {
            const char *between = i ? ", " : k ? " and " : "";
            buf_addf(&names, "%s%.*s", between, STR_ARG(sides[k].meta->types[i].shown));
        }
    if (wish.len)
        (void)err_set(e, ERR_INPUT, "there is no type \"%.*s\", but %.*s", (int)MIN(wish.len, 100),
                      wish.ptr, STR_ARG(buf_str(&names)));
    else
        (void)err_set(e, ERR_INPUT, "the profiles have no type in common: %.*s",
                      STR_ARG(buf_str(&names)));
    buf_deinit(&names);
    return e->code;
}

/* ---- trees ----------------------------------------------------------------------------------- */

size_t adhoc_view_cost(const struct adhoc_profile *p)
{
    return calltree_cost(&p->stacks) + p->stacks.nodes * 24;
}

/* All series of the type as one, so that the stacks are walked once. */
static int tree_of(const struct adhoc_side *s, uint64_t seed, struct calltree *t, struct err *e)
{
    const struct adhoc_profile *p = s->profile;
    struct calltree_part part = { .stacks = p->stacks };
    uint64_t *sum = xcalloc(p->stacks.nodes + 1, sizeof(*sum));
    uint32_t *node = xcalloc(p->stacks.nodes + 1, sizeof(*node));
    size_t n = 0;

    for (size_t i = 0; i < p->len; i++)
        for (size_t k = 0; str_eq(p->series[i].type, s->type->id) && k < p->series[i].len; k++) {
            uint64_t *at = &sum[p->series[i].nodes[k]];
            *at = MIN(u64_add_sat(*at, p->series[i].values[k]), INT64_MAX);
        }
    for (size_t i = 0; i <= p->stacks.nodes; i++)
        if (sum[i]) {
            node[n] = (uint32_t)i;
            sum[n++] = sum[i];
        }
    part.nodes = node;
    part.values = sum;
    part.len = n;
    calltree_init(t, seed);
    int rc = calltree_add(t, &part, NULL, e);
    xfree(sum);
    xfree(node);
    if (rc)
        calltree_deinit(t);
    return rc;
}

static void put_metadata(const struct adhoc_side *s, const char *format, struct json *j)
{
    struct ptype t = parsed(s->type->id);

    json_key(j, "metadata");
    json_obj(j);
    metadata_json(&t, format, j);
    json_obj_end(j);
    json_key(j, "timeline");
    json_null(j);
    json_key(j, "groups");
    json_null(j);
    json_key(j, "heatmap");
    json_null(j);
}

static int full(const struct json *j, struct err *e)
{
    return buf_ok(j->out)
               ? 0
               : err_set(e, ERR_LIMIT, "the answer has over %zu bytes: ask for fewer nodes",
                         j->out->max);
}

int adhoc_view_flame(const struct adhoc_side *s, size_t nodes, uint64_t seed, struct json *j,
                     struct err *e)
{
    struct calltree t;
    struct layout l;
    struct flame f;

    if (tree_of(s, seed, &t, e))
        return e->code;
    layout_init(&l, &t, nodes);
    flame_init(&f, &l, &t);
    json_put_u64(j, "version", 1);
    json_key(j, "flamebearer");
    flame_json(&f, j);
    put_metadata(s, "single", j);
    flame_deinit(&f);
    layout_deinit(&l);
    calltree_deinit(&t);
    return full(j, e);
}

int adhoc_view_diff(const struct adhoc_side *sides, size_t nodes, uint64_t seed, struct json *j,
                    struct err *e)
{
    struct calltree left, right;
    struct diff d;

    if (tree_of(&sides[0], seed, &left, e))
        return e->code;
    if (tree_of(&sides[1], seed, &right, e)) {
        calltree_deinit(&left);
        return e->code;
    }
    diff_init(&d, &left, &right, nodes);
    json_put_u64(j, "version", 1);
    json_key(j, "flamebearer");
    diff_json(&d, j);
    put_metadata(&sides[0], "double", j);
    json_put_u64(j, "leftTicks", d.ticks[DIFF_LEFT]);
    json_put_u64(j, "rightTicks", d.ticks[DIFF_RIGHT]);
    diff_deinit(&d);
    calltree_deinit(&left);
    calltree_deinit(&right);
    return full(j, e);
}

int adhoc_view_folded(const struct adhoc_side *s, size_t nodes, uint64_t seed, struct buf *out,
                      struct err *e)
{
    struct calltree t;
    struct layout l;

    if (tree_of(s, seed, &t, e))
        return e->code;
    layout_init(&l, &t, nodes);
    folded_write(&l, &t, out);
    layout_deinit(&l);
    calltree_deinit(&t);
    return buf_ok(out) ? 0
                       : err_set(e, ERR_LIMIT, "the text has over %zu bytes: ask for fewer nodes",
                                 out->max);
}
