/* SPDX-License-Identifier: Apache-2.0
 *
 * catalog.h: the goods of the demo shop, made from a seed, with a full-text index over them.
 * Thread: one at a time; each worker has a catalog of its own.
 */
#ifndef DEPLOY_DEMO_CATALOG_H
#define DEPLOY_DEMO_CATALOG_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/prng.h"
#include "common/base/vec.h"

enum { PRODUCTS = 2000, RELATED = 32, TASTES = 16, HITS_MAX = 24 };

struct product {
    struct str name, description; /* in the catalog's arena */
    uint32_t price_cents;
    uint32_t related[RELATED]; /* bought together with it */
    float taste[TASTES];       /* unit vector */
};
struct hit {
    uint32_t product;
    float score;
};
struct postings;
struct catalog {
    struct arena *texts; /* owned */
    struct product *products;
    VEC(struct str) words; /* the vocabulary */
    struct map_str *index; /* word -> struct postings, owned */
    VEC(struct postings *) lists;
    float *scores; /* per product; all 0 between searches */
    uint64_t words_total;
};

struct catalog *catalog_new(uint64_t seed);
void catalog_free(struct catalog *c);
/* A question as people type it: two to four words, mostly common ones. */
void catalog_random_query(const struct catalog *c, struct prng *p, struct buf *out);
/* Best products first (BM25). */
size_t catalog_search(struct catalog *c, struct str query, struct hit ret[HITS_MAX]);
/* Makes the whole index again, as after an import. */
void catalog_reindex(struct catalog *c);

#endif
