/* SPDX-License-Identifier: Apache-2.0
 *
 * year_stacks: more stacks of the same make.
 *
 * A process that is watched for longer shows more stacks, and they are variations: the same way in,
 * another way on. So a new stack is an older one up to some depth, continued by functions that were
 * seen to follow one another (a walk over the pairs of the real stacks), on other lines, sometimes
 * through a function of its own. Depths scatter around that of the real service, and about two or
 * three nodes are new in each stack, as measured.
 */
#include "tests/lib/gen/year_stacks.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

#define DEPTH_MAX 256

const struct year_kind_row year_kinds[YEAR_KINDS] = {
    { "kafka",
      { "pprof/java_cpu.pb.gz", "collapsed/perf-vertx-stacks-01-collapsed-all.txt" },
      550,
      404,
      23,
      0.55,
      10000000,
      27714,
      0.06,
      0.75 },
    { "node",
      { "pprof/node_cpu_js.pb.gz", "pprof/node_wall.pb.gz" },
      614,
      156,
      10,
      0.50,
      2000000,
      7203,
      0.06,
      0.25 },
    { "python",
      { "pprof/python_pyroscope.pb.gz", "pprof/python_pyspy_labels.pb" },
      499,
      277,
      17,
      0.60,
      2000000,
      9553,
      0.03,
      0.6 },
};

/* ---- real stacks ---- */

static uint32_t frame_at(const struct stacks *s, uint32_t node)
{
    return s->node_frame.ptr[node - 1];
}

static struct frame frame_of(const struct stacks *s, uint32_t id)
{
    return (struct frame){ .func = s->frame_func.ptr[id],
                           .file = s->frame_file.ptr[id],
                           .module = s->frame_module.ptr[id],
                           .line = s->frame_line.ptr[id],
                           .addr = s->frame_addr.ptr[id] };
}

static bool known(const struct year_stacks *y, uint32_t node)
{
    for (size_t i = 0; i < y->node.len; i++)
        if (y->node.ptr[i] == node)
            return true;
    return false;
}

static void read_file(struct year_stacks *y, const char *path)
{
    bool text = str_ends(str_c(path), STR(".txt"));
    struct limits limits = limits_default();
    struct dist_push d;
    struct buf body;
    struct err e;

    testdata_read(path, &body);
    if (dist_decode(&d, "year", text ? "groups" : "pprof", NULL, buf_str(&body), &limits, &e)) {
        fprintf(stderr, "year: %s: %s\n", path, e.text);
        abort();
    }
    struct stacks_view v = stacks_view(&d.push.stacks);
    uint32_t *map = XNEW_ARRAY(uint32_t, v.nodes + 1);
    CHECK(!stacks_merge(&y->all, &v, map, &e));
    for (size_t i = 0; i < d.push.series_len; i++) {
        const struct push_series *s = &d.push.series[i];
        for (size_t j = 0; j < s->len; j++)
            if (s->nodes[j] && !known(y, map[s->nodes[j]]))
                vec_push(&y->node, map[s->nodes[j]]);
    }
    xfree(map);
    dist_push_free(&d);
    buf_deinit(&body);
}

/* A small program of about the right shape, where there is nothing real. */
static void make_up(struct year_stacks *y)
{
    char text[96];

    for (uint32_t i = 0; i < 150; i++) {
        uint32_t at = 0, depth = 4 + (uint32_t)prng_below(&y->prng, 2 * y->row->depth);
        for (uint32_t k = 0; k < depth; k++) {
            uint32_t f = k * 7 + (uint32_t)prng_below(&y->prng, k < 4 ? 1 + k : 12);
            int n = snprintf(text, sizeof(text), "org/example/part%u/Class%u.method%u", f % 9,
                             f % 50, f);
            struct frame frame = { .func = stacks_string(&y->all, str_n(text, (size_t)n)) };
            n = snprintf(text, sizeof(text), "Class%u.java", f % 50);
            frame.file = stacks_string(&y->all, str_n(text, (size_t)n));
            frame.line = 1 + f % 700;
            at = stacks_node(&y->all, at, stacks_frame(&y->all, &frame));
        }
        if (!known(y, at))
            vec_push(&y->node, at);
    }
    y->synthetic = true;
}

static int by_func(const void *a, const void *b)
{
    const struct year_follow *x = a, *y = b;

    if (x->func != y->func)
        return x->func < y->func ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

static void learn_pairs(struct year_stacks *y)
{
    const struct stacks *s = &y->all;

    for (size_t i = 0; i < s->node_parent.len; i++) {
        uint32_t up = s->node_parent.ptr[i];
        uint32_t func = up ? s->frame_func.ptr[frame_at(s, up)] : 0;
        vec_push(&y->after, ((struct year_follow){ func, s->node_frame.ptr[i] }));
    }
    qsort(y->after.ptr, y->after.len, sizeof(*y->after.ptr), by_func);
}

/* ---- more of them ---- */

static size_t first_after(const struct year_stacks *y, uint32_t func)
{
    size_t lo = 0, hi = y->after.len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (y->after.ptr[mid].func < func)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* A function that the real files do not have, named after an existing one. */
static uint32_t new_function(struct year_stacks *y, uint32_t like)
{
    static const char *const words[] = { "Handler", "Filter", "Writer", "Reader",
                                         "Cache",   "Queue",  "Codec",  "Pool" };
    struct str name = stacks_string_at(&y->all, like);
    struct buf text;

    buf_init(&text, 4096);
    buf_add_str(&text, str_sub(name, 0, 2048));
    buf_addf(&text, "%s%u", words[prng_below(&y->prng, ARRAY_LEN(words))],
             (unsigned)prng_below(&y->prng, 400));
    uint32_t id = stacks_string(&y->all, buf_str(&text));
    buf_deinit(&text);
    return id;
}

static uint32_t next_frame(struct year_stacks *y, uint32_t func)
{
    size_t at = first_after(y, func), end = at;

    while (end < y->after.len && y->after.ptr[end].func == func)
        end++;
    if (at == end) {
        at = 0;
        end = y->after.len;
    }
    struct frame f = frame_of(&y->all, y->after.ptr[at + prng_below(&y->prng, end - at)].frame);
    f.line = (f.line ? f.line : 1 + f.func % 700) + (uint32_t)prng_below(&y->prng, 12);
    if (prng_chance(&y->prng, y->row->functions))
        f.func = new_function(y, f.func);
    return stacks_frame(&y->all, &f);
}

uint32_t year_stacks_depth(const struct year_stacks *y, uint32_t node)
{
    uint32_t n = 0;

    for (; node; node = y->all.node_parent.ptr[node - 1])
        n++;
    return n;
}

/* Root first; the number of frames. */
static uint32_t path_of(const struct year_stacks *y, uint32_t node, uint32_t *path)
{
    uint32_t n = MIN(year_stacks_depth(y, node), DEPTH_MAX), i = n;

    for (; i; node = y->all.node_parent.ptr[node - 1])
        path[--i] = node;
    return n;
}

static uint32_t derive(struct year_stacks *y)
{
    uint32_t like = y->node.ptr[prng_below(&y->prng, y->node.len)], path[DEPTH_MAX];
    uint32_t have = path_of(y, like, path), mean = y->row->depth;
    uint32_t want = mean / 2 + (uint32_t)prng_below(&y->prng, mean + 4) + 1, fresh = 1;

    while (fresh < 12 && prng_chance(&y->prng, y->row->more))
        fresh++;
    uint32_t keep = MIN(have - 1, want > fresh ? want - fresh : 1);
    uint32_t at = keep ? path[keep - 1] : 0;
    for (uint32_t i = 0; i < fresh; i++) {
        uint32_t func = at ? y->all.frame_func.ptr[frame_at(&y->all, at)] : 0;
        at = stacks_node(&y->all, at, next_frame(y, func));
    }
    CHECK(at != STACKS_FULL);
    return at;
}

void year_stacks_init(struct year_stacks *y, enum year_kind kind, uint32_t count, uint64_t seed)
{
    *y = (struct year_stacks){ .row = &year_kinds[kind] };
    prng_init(&y->prng, seed);
    stacks_init(&y->all, UINT32_MAX, 7);
    if (testdata_here("stacks of the simulated year: made-up ones of the same size are used"))
        for (size_t i = 0; y->row->files[i]; i++)
            read_file(y, y->row->files[i]);
    else
        make_up(y);
    y->real = y->node.len;
    learn_pairs(y);
    while (y->node.len < count) {
        uint32_t node = derive(y); /* not inside vec_push, which counts first or last */
        vec_push(&y->node, node);
    }
}

void year_stacks_deinit(struct year_stacks *y)
{
    stacks_deinit(&y->all);
    vec_free(&y->node);
    vec_free(&y->after);
}

/* ---- deploys ---- */

static uint32_t moved(struct year_stacks *y, uint32_t node)
{
    uint32_t path[DEPTH_MAX], n = path_of(y, node, path);
    uint32_t from = n - 1 - (uint32_t)prng_below(&y->prng, MIN(n, 3));
    uint32_t at = from ? path[from - 1] : 0;

    for (uint32_t i = from; i < n; i++) {
        struct frame f = frame_of(&y->all, frame_at(&y->all, path[i]));
        f.line += 1 + (uint32_t)prng_below(&y->prng, 9);
        at = stacks_node(&y->all, at, stacks_frame(&y->all, &f));
    }
    CHECK(at != STACKS_FULL);
    return at;
}

void year_stacks_deploy(struct year_stacks *y, uint32_t permille)
{
    y->deploy++;
    for (size_t i = 0; i < y->node.len; i++)
        if (prng_below(&y->prng, 1000) < permille)
            y->node.ptr[i] = moved(y, y->node.ptr[i]);
}
