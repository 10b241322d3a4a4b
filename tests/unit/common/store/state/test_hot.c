/* SPDX-License-Identifier: Apache-2.0
 *
 * Hot sums next to a list of rows: whatever comes, goes and is forgotten, the sums and the rows
 * that a reader is to scan are together every unsealed row of the group, once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/store/codec/vec.h"
#include "common/store/state/hot.h"

#define IDS    24
#define GROUPS 3
#define KNOWN  10

struct row {
    uint32_t group, slot;
    uint64_t seq, folded; /* entry; 0: unsealed */
    uint64_t value[IDS];
    struct buf bytes;
};
struct bed {
    struct prng prng;
    struct hot *hot;
    VEC(struct row) rows;
    uint64_t seq, applied;
    uint64_t got[IDS], got_total;
    uint64_t given;       /* leaves */
    size_t asked;         /* groups */
    uint32_t base, known; /* slots */
};

static struct member group_of(uint32_t group)
{
    return (struct member){ .tenant = 1, .scope = 2, .ptype = 3, .series = group };
}

static void add_row(struct bed *b)
{
    struct row r = { .group = (uint32_t)prng_below(&b->prng, GROUPS),
                     .slot = b->base + (uint32_t)prng_below(&b->prng, 30),
                     .seq = ++b->seq };
    uint32_t ids[IDS];
    uint64_t values[IDS];
    struct vec_part p = { .epoch = (uint32_t)prng_below(&b->prng, 2),
                          .ids = ids,
                          .values = values };
    struct vec_meta meta = { .writes = 1 };
    struct member m = group_of(r.group);

    for (uint32_t i = 0; i < IDS; i++) {
        if (!prng_below(&b->prng, 3))
            continue;
        ids[p.len] = i;
        values[p.len++] = r.value[i] = 1 + prng_below(&b->prng, 1000);
    }
    buf_init(&r.bytes, MIB);
    assert_true(vec_encode(&p, p.len ? 1 : 0, &meta, &r.bytes));
    hot_add(b->hot, &m, r.slot, buf_str(&r.bytes), r.seq);
    vec_push(&b->rows, r);
}

/* An entry over a few rows, in the middle of leaves. */
static void fold(struct bed *b)
{
    b->applied++;
    vec_for (i, &b->rows) {
        struct row *r = &b->rows.ptr[i];
        struct member m = group_of(r->group);
        if (r->folded || prng_below(&b->prng, 2))
            continue;
        r->folded = b->applied;
        hot_fold(b->hot, &m, r->slot, buf_str(&r->bytes), b->applied);
    }
}

static int on_leaf(void *cookie, size_t group, const struct hot_leaf *l, struct err *e)
{
    struct bed *b = cookie;
    uint64_t total = 0;

    (void)e;
    assert_true(group < b->asked);
    b->given++;
    for (size_t i = 0; i < l->len; i++) {
        for (size_t k = 0; k < l->sections[i].len; k++) {
            b->got[l->sections[i].ids[k]] += l->sections[i].values[k];
            total += l->sections[i].values[k];
        }
    }
    assert_int_equal(total, l->total[0] + l->total[1]);
    b->got_total += total;
    return 0;
}

static void ask(struct bed *b, const struct hot_state *v)
{
    uint32_t from = slot_leaf(b->base) + (uint32_t)prng_below(&b->prng, 14) * 2,
             to = from + 2 * (uint32_t)prng_below(&b->prng, 16);
    uint64_t first = prng_below(&b->prng, GROUPS), gids[GROUPS] = { first, (first + 1) % GROUPS };
    struct hot_query q = {
        .m = group_of(0), .gids = gids, .from = from, .to = to, .fn = on_leaf, .cookie = b
    };
    uint64_t want[IDS] = { 0 };
    hot_ranges scan = { 0 };
    struct err e;

    memset(b->got, 0, sizeof(b->got));
    b->asked = 1 + prng_below(&b->prng, 2);
    q.len = b->asked;
    assert_int_equal(hot_read(b->hot, v, &q, &scan, &e), 0);
    vec_for (i, &b->rows) {
        const struct row *r = &b->rows.ptr[i];
        bool shown = r->seq <= v->seq && (!r->folded || r->folded > v->applied);
        bool scanned = false;
        if ((r->group != gids[0] && (b->asked == 1 || r->group != gids[1])) || r->slot < from ||
            r->slot >= to)
            continue;
        vec_for (k, &scan)
            scanned |= r->slot >= scan.ptr[k].from && r->slot < scan.ptr[k].to;
        for (uint32_t k = 0; k < IDS; k++) {
            if (shown)
                want[k] += r->value[k];
            if (shown && scanned)
                b->got[k] += r->value[k];
        }
        assert_true(r->slot >= b->known || scanned);
    }
    vec_for (k, &scan)
        assert_true(scan.ptr[k].from >= from && scan.ptr[k].to <= to);
    assert_memory_equal(want, b->got, sizeof(want));
    vec_free(&scan);
}

static void run(uint64_t seed, size_t bytes_max, uint32_t members_min, uint64_t *ret_given)
{
    struct bed b = { 0 };
    struct hot_opts o = { .bytes_max = bytes_max,
                          .members_min = members_min,
                          .leaves_max = seed % 2 ? 0 : 1 + (uint32_t)seed % 7,
                          .known_from = KNOWN };
    struct hot_state held = { 0 };

    prng_init(&b.prng, seed);
    b.hot = hot_new(&o);
    b.known = KNOWN;
    for (int i = 0; i < 600; i++) {
        struct hot_state now = { b.applied, b.seq, false };
        if (i % 200 == 150) { /* groups change in the middle */
            b.known = b.base + 30;
            hot_block(b.hot, 1, 2, b.known);
        }
        b.base += i % 16 == 15;
        switch (prng_below(&b.prng, 12)) {
        case 0:
            fold(&b);
            break;
        case 1:
            ask(&b, &now);
            break;
        case 2:
            ask(&b, &held);
            break;
        case 3:
            held = now;
            break;
        default:
            add_row(&b);
        }
    }
    *ret_given += b.given;
    hot_free(b.hot);
    vec_for (i, &b.rows)
        buf_deinit(&b.rows.ptr[i].bytes);
    vec_free(&b.rows);
}

static void test_model(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL), given = 0;

    (void)state;
    printf("SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 40; i++)
        run(seed + i, i % 4 == 3 ? 3000 : MIB, (uint32_t)(i % 3), &given);
    assert_true(given > 100);
}

static void test_budget_zero(void **state)
{
    uint64_t given = 0;

    (void)state;
    for (uint64_t i = 0; i < 5; i++)
        run(i, i % 2, 0, &given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_budget_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
