/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest: "others also bought". Everything related to the hits is a candidate; candidates are made
 * unique, scored by how near their taste is to that of the hits, and sorted.
 *
 * Version 2 makes them unique by comparing each with all before it: the kind of change that passes
 * every test and shows in a profile. Comparing the two versions finds it at first sight.
 */
#include <stdlib.h>

#include "deploy/demo/shop.h"

enum { CANDIDATES_MAX = HITS_MAX * RELATED };

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static size_t unique_by_sorting(uint32_t *list, size_t n)
{
    size_t kept = 0;

    qsort(list, n, sizeof(*list), by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || list[i] != list[i - 1])
            list[kept++] = list[i];
    return kept;
}

static size_t unique_by_looking(uint32_t *list, size_t n, const struct product *products)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        bool seen = false;

        for (size_t k = 0; k < kept && !seen; k++)
            seen = str_eq(products[list[k]].name, products[list[i]].name);
        if (!seen)
            list[kept++] = list[i];
    }
    return kept;
}

NOINLINE static size_t drop_duplicates(const struct shop *s, uint32_t *list, size_t n)
{
    if (s->version == SHOP_V2)
        return unique_by_looking(list, n, s->catalog->products);
    return unique_by_sorting(list, n);
}

NOINLINE static size_t collect_related(const struct shop *s, const struct hit *hits, size_t n,
                                       uint32_t *list)
{
    size_t len = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < RELATED; k++)
            list[len++] = s->catalog->products[hits[i].product].related[k];
    return len;
}

NOINLINE static void score_by_taste(const struct shop *s, const struct hit *hits, size_t n,
                                    const uint32_t *list, size_t len, struct hit *scored)
{
    const struct product *products = s->catalog->products;

    for (size_t i = 0; i < len; i++) {
        float score = 0;

        for (size_t h = 0; h < n; h++)
            for (size_t t = 0; t < TASTES; t++)
                score += products[hits[h].product].taste[t] * products[list[i]].taste[t];
        scored[i] = (struct hit){ list[i], score };
    }
}

static int by_score(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;

    return (x->score < y->score) - (x->score > y->score);
}

size_t suggest_products(const struct shop *s, const struct hit *hits, size_t n,
                        uint32_t ret[SUGGESTIONS])
{
    uint32_t list[CANDIDATES_MAX];
    struct hit scored[CANDIDATES_MAX];
    size_t len = collect_related(s, hits, n, list), shown;

    len = drop_duplicates(s, list, len);
    score_by_taste(s, hits, n, list, len, scored);
    qsort(scored, len, sizeof(scored[0]), by_score);
    shown = MIN(len, (size_t)SUGGESTIONS);
    for (size_t i = 0; i < shown; i++)
        ret[i] = scored[i].product;
    return shown;
}
