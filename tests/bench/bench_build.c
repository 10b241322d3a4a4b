/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node of 1 h costs whom: reading its children in the ingester, adding them up in the
 * compactor (unpack, merge, pack), checking and writing on the shard thread; beside memcpy of the
 * same bytes. 20 pods, each with some hundred stacks in each 10 minutes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/store.h"
#include "compactor/build_msg.h"
#include "proto/build.pb-c.h"
#include "tests/lib/store/kv_dir.h"

#define PODS    20
#define HOURS   24
#define STACKS  5000 /* of the service */
#define SAMPLED 400  /* of them in a push */
#define NOW_MS  INT64_C(1750000000000)

static uint64_t cpu_ns(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void must(int code, const struct err *e)
{
    if (code) {
        (void)fprintf(stderr, "%s\n", e->text);
        exit(1);
    }
}

struct bed {
    struct store *s;
    struct clock_fake clock;
    struct prng p;
    struct stacks st;
    uint32_t leaf[STACKS];
    uint64_t wid;
};

static void make_stacks(struct bed *b)
{
    stacks_init(&b->st, 64 * MIB, 1);
    for (uint32_t i = 0; i < STACKS; i++) {
        uint32_t node = 0;

        for (uint32_t depth = 0; depth < 20; depth++) {
            char name[32];
            int n = snprintf(name, sizeof(name), "f%u", depth < 12 ? depth * 7 + i % 7 : i + depth);
            struct frame f = { .func = stacks_string(&b->st, str_n(name, (size_t)n)) };

            node = stacks_node(&b->st, node, stacks_frame(&b->st, &f));
        }
        b->leaf[i] = node;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void push(struct bed *b, uint32_t pod, uint32_t slot)
{
    struct stacks_view view = stacks_view(&b->st);
    struct store_batch *batch = store_batch_new(b->s);
    uint32_t nodes[SAMPLED];
    uint64_t values[SAMPLED];
    char name[16];
    struct label label = { STR("pod"),
                           str_n(name, (size_t)snprintf(name, sizeof(name), "p%u", pod)) };
    struct store_vector v = { .slot = slot, .nodes = nodes, .values = values };
    struct store_series series = {
        .labels = { &label, 1 },
        .profile_type = STR("process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
        .vectors = &v,
        .len = 1,
    };
    struct store_write w = {
        .tenant = STR("t"), .service = STR("svc"), .stacks = &view, .series = &series, .len = 1
    };
    struct store_result r;
    struct err e;

    for (uint32_t i = 0; i < SAMPLED; i++) {
        double x = (double)prng_below(&b->p, 1000000) / 1e6;

        nodes[i] = b->leaf[(uint32_t)(x * x * (STACKS - 1))]; /* some are hot */
    }
    qsort(nodes, SAMPLED, sizeof(*nodes), by_number);
    for (uint32_t i = 0; i < SAMPLED; i++) {
        if (v.len && nodes[v.len - 1] == nodes[i]) {
            values[v.len - 1] += 10000000;
            continue;
        }
        nodes[v.len] = nodes[i];
        values[v.len++] = 10000000;
    }
    put_u64be((char *)series.wid, ++b->wid);
    must(store_stage(b->s, batch, &w, &r, &e), &e);
    must(store_commit(b->s, batch, &e), &e);
}

static void fill(struct bed *b)
{
    uint32_t hour = slot_of_ms(NOW_MS) / LEVELS[3].node * LEVELS[3].node;
    bool more = true;
    struct err e;

    for (uint32_t h = 1; h <= HOURS; h++)
        for (uint32_t ten = 0; ten < 6; ten++)
            for (uint32_t pod = 0; pod < PODS; pod++)
                for (uint32_t leaf = 0; leaf < 4; leaf++) /* of a ten minutes, to have sums there */
                    push(b, pod, hour - h * LEVELS[3].node + ten * LEVELS[2].node + leaf * 30);
    while (more)
        must(store_seal(b->s, 4096, &more, &e), &e);
    for (more = true; more;)
        must(store_build(b->s, 4096, &more, &e), &e);
}

struct cost {
    uint64_t read_ns, merge_ns, apply_ns, copy_ns, in_bytes, out_bytes, in_rows, out_rows, nodes;
};

/* As a message, there and back: what the compactor decodes and sends. */
static void merge(const struct build_job *job, struct arena *a, struct build_result *ret,
                  struct cost *c)
{
    struct buf out, copy;
    uint64_t began = cpu_ns(), bytes;
    struct err e;

    must(build_merge(job, a, ret, &e), &e);
    buf_init(&out, 64 * MIB);
    must(build_apply_pack(&(struct build_sent){ 0, 1, 0 }, ret, a, &out, &bytes, &e), &e);
    c->merge_ns += cpu_ns() - began;
    c->out_bytes += bytes;
    c->out_rows += ret->rows.len;
    buf_deinit(&out);
    buf_init(&copy, 64 * MIB);
    began = cpu_ns();
    vec_for (i, &job->rows)
        CHECK(buf_add_str(&copy, job->rows.ptr[i].bytes));
    c->copy_ns += cpu_ns() - began;
    c->in_bytes += copy.len;
    c->in_rows += job->rows.len;
    buf_deinit(&copy);
}

static void build(struct bed *b, const struct build_node *n, struct cost *c)
{
    struct build_cursor cursor = { 0 };
    struct build_job job = { 0 };
    struct err e;

    do {
        struct arena *a = arena_new(GIB);
        struct build_result result = { 0 };
        struct store_view *v = store_view_get(b->s);
        uint64_t began = cpu_ns();

        must(store_build_read(
                 v, n, &cursor,
                 &(struct build_room){ .bytes_max = 4 * MIB, .rows_max = SIZE_MAX, .arena = a },
                 &job, &e),
             &e);
        c->read_ns += cpu_ns() - began;
        store_view_put(v);
        merge(&job, a, &result, c);
        began = cpu_ns();
        must(store_build_apply(b->s, &job, &result, &e), &e);
        c->apply_ns += cpu_ns() - began;
        build_result_deinit(&result);
        arena_free(a);
    } while (!job.last);
    build_job_deinit(&job);
    c->nodes++;
}

int main(void)
{
    struct bed b = { .wid = 0 };
    char *dir = kv_dir_new();
    struct kv_opts ko = { .dir = dir, .block_cache_bytes = 64 * MIB, .memtable_bytes = 64 * MIB };
    struct store_opts so = { .clock = &b.clock.clock, .dict_bytes_max = 256 * MIB, .seed = 1 };
    struct err e;

    clock_fake_init(&b.clock, NOW_MS);
    prng_init(&b.p, 1);
    must(kv_rocks_open(&ko, &so.kv, &e), &e);
    must(store_open(&so, &b.s, &e), &e);
    make_stacks(&b);
    fill(&b);
    for (uint32_t level = 3; level <= 5; level++) {
        struct build_nodes due = { 0 };
        struct store_view *v = store_view_get(b.s);
        struct cost c = { 0 };

        must(store_build_due(v,
                             &(struct build_search){
                                 .engine_ms = NOW_MS, .low = level, .high = level, .max = 1000 },
                             &due, &e),
             &e);
        store_view_put(v);
        vec_for (i, &due.at)
            build(&b, &due.at.ptr[i], &c);
        vec_free(&due.at);
        if (!c.nodes)
            continue;
        double n = (double)c.nodes * 1000;
        (void)printf(
            "build level %u (%u s): %" PRIu64 " nodes of %d pods, each %" PRIu64
            " rows in, %" PRIu64 " KiB -> %" PRIu64 " rows, %" PRIu64
            " KiB; CPU us: read %.0f, merge %.0f, apply %.0f, memcpy %.1f; merge %.2f ns a "
            "byte in\n",
            level, LEVELS[level].node * 5, c.nodes, PODS, c.in_rows / c.nodes,
            c.in_bytes / c.nodes / 1024, c.out_rows / c.nodes, c.out_bytes / c.nodes / 1024,
            (double)c.read_ns / n, (double)c.merge_ns / n, (double)c.apply_ns / n,
            (double)c.copy_ns / n, (double)c.merge_ns / (double)c.in_bytes);
    }
    stacks_deinit(&b.st);
    store_close(b.s);
    kv_dir_remove(dir);
    return 0;
}
