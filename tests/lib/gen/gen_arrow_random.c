/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/gen_arrow.h"

static struct str random_bytes(struct ga *g, struct prng *r, size_t n)
{
    char *p = arena_alloc(g->arena, n + 1);

    CHECK(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + prng_below(r, 3));
    return str_n(p, n);
}

struct ga_type *ga_random_type(struct ga *g, struct prng *r, const char *name, unsigned depth)
{
    static const unsigned widths[] = { 1, 2, 4, 8 };
    enum ga_kind kind = (enum ga_kind)prng_below(r, depth > 1 ? GA_KINDS : GA_LIST);
    struct ga_type *t = NULL;

    switch (kind) {
    case GA_DICT:
        do
            t = ga_random_type(g, r, NULL, depth - 1);
        while (t->kind == GA_DICT);
        t = ga_dict_of(g, name, t);
        t->width = prng_chance(r, 0.5) ? 4 : 2;
        break;
    case GA_RUNS:
        t = ga_runs_of(g, name, ga_random_type(g, r, NULL, depth - 1));
        t->kids[0]->nullable = true;
        t->width = widths[1 + prng_below(r, 3)];
        break;
    case GA_LIST:
    case GA_LISTVIEW:
        t = ga_type(g, kind, name, ga_random_type(g, r, NULL, depth - 1), NULL);
        break;
    case GA_STRUCT:
        t = ga_type(g, kind, name, NULL);
        for (size_t n = 1 + prng_below(r, 3); t->kids_len < n;)
            t->kids[t->kids_len++] = ga_random_type(g, r, NULL, depth - 1);
        break;
    case GA_INT:
        t = ga_int(g, name, widths[prng_below(r, 4)], prng_chance(r, 0.5));
        break;
    case GA_BOOL:
    case GA_FIXED:
    case GA_UTF8:
    case GA_BINARY:
    case GA_VIEW:
    case GA_LARGE:
    case GA_TIME:
        t = ga_type(g, kind, name, NULL);
        t->width = (unsigned)prng_below(r, 20);
        break;
    }
    CHECK(t);
    t->nullable = t->nullable && prng_chance(r, 0.7);
    return t;
}

static int64_t random_number(struct prng *r, const struct ga_type *t)
{
    uint64_t v = prng_u64(r);

    if (prng_chance(r, 0.5))
        v &= 3;
    if (t->kind == GA_TIME)
        return (int64_t)v;
    unsigned bits = 8 * t->width;
    if (t->is_signed)
        return (int64_t)(v << (64 - bits)) >> (64 - bits);
    return (int64_t)(v << (64 - bits) >> (64 - bits) & INT64_MAX);
}

struct ga_value ga_random(struct ga *g, struct prng *r, const struct ga_type *t)
{
    struct ga_value items[GA_KIDS_MAX];
    size_t n = 0;

    /* Runs and dictionaries: the null is that of the values. */
    if (t->kind != GA_RUNS && t->nullable && prng_chance(r, 0.2))
        return ga_null();
    switch (t->kind) {
    case GA_INT:
    case GA_TIME:
        return ga_num(random_number(r, t));
    case GA_BOOL:
        return ga_num((int64_t)prng_below(r, 2));
    case GA_FIXED:
        return ga_bytes(random_bytes(g, r, t->width));
    case GA_UTF8:
    case GA_BINARY:
    case GA_VIEW:
    case GA_LARGE:
        return ga_bytes(random_bytes(g, r, prng_below(r, prng_chance(r, 0.5) ? 3 : 30)));
    case GA_LIST:
    case GA_LISTVIEW:
        for (size_t most = prng_below(r, 4); n < most; n++)
            items[n] = ga_random(g, r, t->kids[0]);
        return ga_items(g, n, items);
    case GA_STRUCT:
        for (; n < t->kids_len; n++)
            items[n] = ga_random(g, r, t->kids[n]);
        return ga_items(g, n, items);
    case GA_RUNS:
    case GA_DICT:
        return ga_random(g, r, t->kids[0]);
    }
    return ga_null();
}
