/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c: two tables (top.h) joined by the text of the names.
 *
 * Factors are doubles, values stay integers until they are shown: sums are exact, only what people
 * read is rounded. Differences are taken of shown values, and order follows them.
 */
#include "querier/render/compare.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"

static const char *const mode_names[] = { [COMPARE_ABSOLUTE] = "absolute",
                                          [COMPARE_RELATIVE] = "relative",
                                          [COMPARE_SECOND] = "second",
                                          [COMPARE_INSTANCE] = "instance",
                                          [COMPARE_SECOND_INSTANCE] = "second-instance" };

bool compare_mode_parse(struct str text, enum compare_mode *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(mode_names); i++)
        if (str_eqc(text, mode_names[i])) {
            *ret = (enum compare_mode)i;
            return true;
        }
    return false;
}

const char *compare_mode_name(enum compare_mode m)
{
    return mode_names[m];
}

double compare_factor(const struct compare_side *s, enum compare_mode m)
{
    const bool second = m == COMPARE_SECOND || m == COMPARE_SECOND_INSTANCE;
    const bool instance = m == COMPARE_INSTANCE || m == COMPARE_SECOND_INSTANCE;
    double f = 1;

    if (m == COMPARE_RELATIVE)
        return s->total ? 100.0 / (double)s->total : 0;
    if (second && !s->gauge)
        f = s->range_ms ? 1000.0 / (double)s->range_ms : 0;
    if (instance)
        f = s->instances ? f / (double)s->instances : 0;
    return f;
}

/* ---- the table --------------------------------------------------------------------------------*/

size_t compare_cost(const struct calltree *left, const struct calltree *right)
{
    /* Rows, slots of the map, and the larger of the two tables. */
    return (left->names.len + right->names.len) * (sizeof(struct compare_row) + 48) +
           MAX(top_cost(left), top_cost(right));
}

static void add_side(struct compare *c, struct map_str *ids, const struct calltree *t,
                     enum diff_side side)
{
    struct top top;

    top_init(&top, t);
    for (size_t i = 0; i < top.len; i++) {
        struct str name = t->names.ptr[top.rows[i].name];
        size_t at = map_str_index(ids, name, c->len);
        if (at == c->len)
            c->rows[c->len++] = (struct compare_row){ .name = name };
        c->rows[at].self[side] = top.rows[i].self;
        c->rows[at].total[side] = top.rows[i].total;
    }
    top_deinit(&top);
}

void compare_init(struct compare *c, const struct calltree *left, const struct calltree *right,
                  const double factor[DIFF_SIDES])
{
    struct map_str *ids = map_str_new();

    *c = (struct compare){ .rows =
                               XNEW_ARRAY(struct compare_row, left->names.len + right->names.len),
                           .factor = { factor[DIFF_LEFT], factor[DIFF_RIGHT] } };
    add_side(c, ids, left, DIFF_LEFT);
    add_side(c, ids, right, DIFF_RIGHT);
    c->functions = c->len;
    map_str_free(ids);
}

void compare_deinit(struct compare *c)
{
    xfree(c->rows);
    *c = (struct compare){ 0 };
}

void compare_search(struct compare *c, struct str text)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->len; i++)
        if (top_text_has(c->rows[i].name, text))
            c->rows[kept++] = c->rows[i];
    c->len = kept;
}

double compare_value(const struct compare *c, enum diff_side side, uint64_t v)
{
    return (double)v * c->factor[side];
}

double compare_delta(const struct compare *c, const uint64_t v[DIFF_SIDES])
{
    /* Of unscaled integers the difference is exact. */
    if (c->factor[DIFF_LEFT] == c->factor[DIFF_RIGHT])
        return (v[DIFF_RIGHT] >= v[DIFF_LEFT] ? (double)(v[DIFF_RIGHT] - v[DIFF_LEFT])
                                              : -(double)(v[DIFF_LEFT] - v[DIFF_RIGHT])) *
               c->factor[DIFF_LEFT];
    return compare_value(c, DIFF_RIGHT, v[DIFF_RIGHT]) - compare_value(c, DIFF_LEFT, v[DIFF_LEFT]);
}

struct order {
    const struct compare *c;
    enum compare_sort by;
    enum compare_dir dir;
};

static const uint64_t *column(const struct order *o, const struct compare_row *r)
{
    return o->by == COMPARE_SELF ? r->self : r->total;
}

/* Larger comes first. */
static double weight(const struct order *o, const struct compare_row *r)
{
    double delta = compare_delta(o->c, column(o, r));

    return o->dir == COMPARE_GREW ? delta : o->dir == COMPARE_SHRANK ? -delta : fabs(delta);
}

static int by_weight(const void *a, const void *b, void *cookie)
{
    const struct compare_row *x = a, *y = b;
    const struct order *o = cookie;

    if (o->by != COMPARE_NAME) {
        double wx = weight(o, x), wy = weight(o, y);
        if (wx > wy || wx < wy)
            return wx > wy ? -1 : 1;
    }
    return str_cmp(x->name, y->name);
}

void compare_order(struct compare *c, enum compare_sort by, enum compare_dir dir)
{
    struct order o = { c, by, dir };
    size_t kept = 0;

    for (size_t i = 0; i < c->len; i++)
        if (dir == COMPARE_ALL || weight(&o, &c->rows[i]) > 0)
            c->rows[kept++] = c->rows[i];
    c->len = kept;
    if (c->len)
        qsort_r(c->rows, c->len, sizeof(*c->rows), by_weight, &o);
}

/* ---- trees ------------------------------------------------------------------------------------*/

void compare_scale(struct calltree *t, double factor)
{
    long double sum = 0;
    uint64_t given = 0;

    /* Each value gets what the rounded sum up to it has grown by. */
    vec_for (i, &t->self) {
        sum += (long double)t->self.ptr[i] * (long double)factor;
        uint64_t upto = sum >= 0x1p63L ? (uint64_t)INT64_MAX : (uint64_t)llroundl(sum);
        t->saturated |= sum >= 0x1p63L;
        t->self.ptr[i] = upto - given;
        given = upto;
    }
}
