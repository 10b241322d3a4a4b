/* SPDX-License-Identifier: Apache-2.0
 *
 * From an ingester's decoded reply to flame graph JSON, for trees of 8,192 and 100,000 nodes, and a
 * large tree cut to the default: best of several runs, beside a plain copy of the JSON.
 */
#include <stdio.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/render/flame.h"
#include "tests/lib/roles/querier_gen.h"

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A tree of exactly `nodes` nodes, shaped like profiles: most branch near the leaves. */
static void make_part(struct gen_part *g, size_t nodes)
{
    struct prng p;
    char name[128];

    prng_init(&p, 20261121);
    *g = (struct gen_part){ 0 };
    stacks_init(&g->stacks, GIB, 1);
    while (g->stacks.node_parent.len < nodes) {
        size_t have = g->stacks.node_parent.len;
        size_t back = 1 + prng_below(&p, 40);
        uint32_t up = back > have ? 0 : (uint32_t)(have - back);
        int n =
            snprintf(name, sizeof(name), "github.com/example/project/package%u.(*Type).Method%u",
                     (unsigned)prng_below(&p, 40), (unsigned)prng_below(&p, nodes / 80 + 50));
        struct frame f = { .func = stacks_string(&g->stacks, str_n(name, (size_t)n)),
                           .file = stacks_string(&g->stacks, STR("/src/project/file.go")),
                           .line = (uint32_t)prng_below(&p, 3) };
        (void)stacks_node(&g->stacks, up, stacks_frame(&g->stacks, &f));
    }
    for (uint32_t i = 1; i <= nodes; i++) {
        vec_push(&g->nodes, i);
        vec_push(&g->values, 1 + prng_below(&p, 1000000000));
    }
    g->part = (struct calltree_part){ .stacks = stacks_view(&g->stacks),
                                      .nodes = g->nodes.ptr,
                                      .values = g->values.ptr,
                                      .len = g->nodes.len };
}

struct times {
    double add, layout, bars, json, copy;
    size_t bytes, bar_count;
};

static void run_once(const struct calltree_part *part, size_t max_nodes, struct times *best)
{
    struct calltree t;
    struct layout l;
    struct flame f;
    struct json j;
    struct buf out;
    struct err e;
    double at[6];

    at[0] = now_ms();
    calltree_init(&t, 42);
    CHECK(calltree_add(&t, part, NULL, &e) == 0);
    at[1] = now_ms();
    layout_init(&l, &t, max_nodes);
    at[2] = now_ms();
    flame_init(&f, &l, &t);
    at[3] = now_ms();
    buf_init(&out, GIB);
    json_init(&j, &out);
    flame_json(&f, &j);
    at[4] = now_ms();
    char *copy = xmemdup(out.ptr, out.len);
    at[5] = now_ms();
    double took[5];
    for (int i = 0; i < 5; i++)
        took[i] = at[i + 1] - at[i];
    best->add = MIN(best->add, took[0]);
    best->layout = MIN(best->layout, took[1]);
    best->bars = MIN(best->bars, took[2]);
    best->json = MIN(best->json, took[3]);
    best->copy = MIN(best->copy, took[4]);
    best->bytes = out.len;
    best->bar_count = f.bars.len / 4;
    xfree(copy);
    buf_deinit(&out);
    flame_deinit(&f);
    layout_deinit(&l);
    calltree_deinit(&t);
}

int main(void)
{
    static const struct {
        size_t nodes, max_nodes;
    } rows[] = { { 8192, 0 }, { 100000, 0 }, { 100000, 8192 }, { 1000000, 8192 } };

    printf("nodes      max-nodes  bars     merge  layout   bars   json  total ms  JSON bytes"
           "  json/memcpy\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct times b = { 1e9, 1e9, 1e9, 1e9, 1e9, 0, 0 };
        struct gen_part g;
        make_part(&g, rows[i].nodes);
        for (int k = 0; k < (rows[i].nodes > 500000 ? 3 : 10); k++)
            run_once(&g.part, rows[i].max_nodes, &b);
        printf("%-10zu %-10zu %-7zu %6.2f %7.2f %6.2f %6.2f %9.2f %11zu %12.1f\n", rows[i].nodes,
               rows[i].max_nodes, b.bar_count, b.add, b.layout, b.bars, b.json,
               b.add + b.layout + b.bars + b.json, b.bytes, b.json / b.copy);
        gen_part_free(&g);
    }
    return 0;
}
