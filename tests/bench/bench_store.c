/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine over RocksDB: staging, committing beside a bare fsync of as many bytes, sealing, and
 * merging an hour. Profiles are synthetic, about the size of a Kafka broker's CPU profile: 450 of
 * 5,000 stacks, 15 to 30 frames deep.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/testdata.h"

#define PODS     20
#define SAMPLES  450
#define STACKS   5000
#define DISTINCT 64
#define START_MS INT64_C(1790000000000)
#define CPU_TYPE "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

struct profile {
    struct stacks st;
    struct stacks_view view;
    uint32_t nodes[SAMPLES];
    uint64_t values[SAMPLES];
    size_t len;
};
struct bench {
    struct prng prng;
    uint32_t up[STACKS], frame[STACKS]; /* a tree of 5,000 nodes, deep */
    struct profile p[DISTINCT];
    char *dir;
    struct clock_fake clock;
    struct store *s;
    uint64_t wid;
    size_t few; /* values of a vector at most; 0: all */
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Of this thread: what the work costs on a machine that others use, too. */
static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->text);
    exit(1);
}

/* ---- profiles ---- */

/* Chains of about 20 nodes that branch off one another. */
static void make_tree(struct bench *b)
{
    for (uint32_t i = 1; i < STACKS; i++) {
        b->up[i] = i % 20 ? i - 1 : (uint32_t)prng_below(&b->prng, i);
        b->frame[i] = (uint32_t)prng_below(&b->prng, 2000);
    }
}

static uint32_t intern(struct bench *b, struct stacks *st, uint32_t node)
{
    uint32_t path[256], n = 0, at = 0;
    char text[96];

    for (; node && n < ARRAY_LEN(path); node = b->up[node])
        path[n++] = b->frame[node];
    while (n) {
        uint32_t f = path[--n];
        int len = snprintf(text, sizeof(text), "org/example/module%u/Class%u.method%u", f % 40,
                           f % 300, f);
        struct frame frame = { .func = stacks_string(st, str_n(text, (size_t)len)) };
        len = snprintf(text, sizeof(text), "Class%u.java", f % 300);
        frame.file = stacks_string(st, str_n(text, (size_t)len));
        frame.line = f % 1000;
        at = stacks_node(st, at, stacks_frame(st, &frame));
    }
    return at;
}

struct pair {
    uint32_t node;
    uint64_t value;
};

static int by_node(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return x->node < y->node ? -1 : x->node > y->node;
}

static void make_profile(struct bench *b, struct profile *p)
{
    struct pair pairs[SAMPLES];
    double u;

    stacks_init(&p->st, 64 * MIB, 5);
    for (size_t i = 0; i < SAMPLES; i++) { /* low numbers are hot */
        u = prng_unit(&b->prng);
        pairs[i].node = intern(b, &p->st, (uint32_t)(u * u * (STACKS - 1)) + 1);
        pairs[i].value = 10000000 * (1 + prng_below(&b->prng, 3));
    }
    qsort(pairs, SAMPLES, sizeof(*pairs), by_node);
    for (size_t i = 0; i < SAMPLES; i++) {
        if (i && pairs[i].node == pairs[i - 1].node)
            continue;
        p->nodes[p->len] = pairs[i].node;
        p->values[p->len++] = pairs[i].value;
    }
    p->view = stacks_view(&p->st);
}

/* ---- the engine ---- */

static void open_store(struct bench *b)
{
    struct store_opts o = { .clock = &b->clock.clock,
                            .dict_bytes_max = 256 * MIB,
                            .seal_delay_ms = 30000,
                            .build_all = true,
                            .wid_horizon_ms = 4 * 3600 * 1000 };
    struct kv_opts k = { .dir = b->dir, .block_cache_bytes = 64 * MIB, .memtable_bytes = 64 * MIB };
    struct err e;

    if (kv_rocks_open(&k, &o.kv, &e) || store_open(&o, &b->s, &e))
        die("open", &e);
}

static void stage(struct bench *b, struct store_batch *to, uint32_t pod, uint32_t slot)
{
    const struct profile *p = &b->p[b->wid % DISTINCT];
    struct label labels[3];
    char name[32];
    int len = snprintf(name, sizeof(name), "kafka-%u", pod);
    struct store_vector v = { slot, p->nodes, p->values, b->few ? MIN(b->few, p->len) : p->len };
    struct store_series r = { .profile_type = STR(CPU_TYPE), .vectors = &v, .len = 1 };
    struct store_result ret;
    struct err e;

    labels[0] = (struct label){ STR("namespace"), STR("production") };
    labels[1] = (struct label){ STR("pod"), str_n(name, (size_t)len) };
    labels[2] = (struct label){ STR("service_name"), STR("kafka") };
    r.labels = (struct labels){ labels, 3 };
    put_u64be(r.wid, ++b->wid);
    struct store_write w = { STR("anonymous"), STR("kafka"), &p->view, &r, 1, NULL, 0, 0, 0 };
    if (store_stage(b->s, to, &w, &ret, &e))
        die("stage", &e);
}

static void commit(struct bench *b, struct store_batch *batch)
{
    struct err e;

    if (store_commit(b->s, batch, &e))
        die("commit", &e);
}

/* Median of n durations. */
static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *us, size_t n)
{
    qsort(us, n, sizeof(*us), by_double);
    return us[n / 2];
}

static double fsync_us(const struct bench *b, size_t bytes)
{
    double us[50];
    char path[4096];

    snprintf(path, sizeof(path), "%s.fsync", b->dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    char *data = xcalloc(bytes, 1);
    for (size_t i = 0; i < ARRAY_LEN(us); i++) {
        double t = now_us();
        if (write(fd, data, bytes) != (ssize_t)bytes || fdatasync(fd))
            exit(1);
        us[i] = now_us() - t;
    }
    close(fd);
    unlink(path);
    xfree(data);
    return median(us, ARRAY_LEN(us));
}

/* Batches of `size` profiles; prints staging per profile and committing per batch. */
static void bench_batches(struct bench *b, uint32_t size, uint32_t slot)
{
    double staged = 0, us[100];
    size_t bytes = 0;

    for (size_t i = 0; i < ARRAY_LEN(us); i++) {
        struct store_batch *batch = store_batch_new(b->s);
        double t = cpu_us();
        for (uint32_t j = 0; j < size; j++)
            stage(b, batch, j % PODS, slot);
        staged += cpu_us() - t;
        bytes += store_batch_bytes(batch);
        t = now_us();
        commit(b, batch);
        us[i] = now_us() - t;
    }
    size_t per_batch = bytes / ARRAY_LEN(us);
    double commit_us = median(us, ARRAY_LEN(us)), bare = fsync_us(b, per_batch);
    printf(
        "store: %2u per batch: stage %.1f us CPU/profile; commit %.0f us, bare fsync of %zu bytes "
        "%.0f us (%.2f x)\n",
        size, staged / (double)size / ARRAY_LEN(us), commit_us, per_batch, bare, commit_us / bare);
}

/* All stacks become known; what a deploy costs is not what a steady service costs. */
static void warm_up(struct bench *b, uint32_t slot)
{
    struct store_batch *batch = store_batch_new(b->s);
    double t = cpu_us();

    for (uint32_t i = 0; i < DISTINCT; i++)
        stage(b, batch, i % PODS, slot);
    printf("store: first %d profiles of a service: stage %.1f us CPU/profile\n", DISTINCT,
           (cpu_us() - t) / DISTINCT);
    commit(b, batch);
}

/* All levels that are due. */
static void build(struct bench *b)
{
    struct err e;
    bool more = true;

    while (more)
        if (store_build(b->s, 4096, &more, &e))
            die("build", &e);
}

/* An hour of 20 pods, every 10 s, sealed and built as it goes. */
static void fill_hour(struct bench *b, uint32_t slot)
{
    double sealed = 0, built = 0;
    uint64_t rows = 0;
    struct err e;
    bool more;

    for (uint32_t i = 0; i < 720; i += 2) {
        struct store_batch *batch = store_batch_new(b->s);
        for (uint32_t pod = 0; pod < PODS; pod++)
            stage(b, batch, pod, slot + i);
        commit(b, batch);
        rows += PODS;
        clock_fake_advance(&b->clock, 10000);
        double t = cpu_us();
        do {
            if (store_seal(b->s, 4096, &more, &e))
                die("seal", &e);
        } while (more);
        sealed += cpu_us() - t;
        t = cpu_us();
        build(b);
        built += cpu_us() - t;
    }
    printf("store: seal %.1f us CPU/profile, build %.1f us\n", sealed / (double)rows,
           built / (double)rows);
}

/* A minute of `rows` rows, sealed by entries of 256 as an ingester does: what a row costs must not
 * depend on how many there are. Few nodes, so that folding them does not hide the way to them. */
static void bench_minute(struct bench *b, uint32_t rows, uint32_t slot)
{
    size_t had = b->few;
    struct err e;
    bool more;

    b->few = 3;
    for (uint32_t i = 0; i < rows;) {
        struct store_batch *batch = store_batch_new(b->s);
        for (uint32_t end = MIN(i + 256, rows); i < end; i++)
            stage(b, batch, i * 1000 / rows, slot);
        commit(b, batch);
    }
    b->few = had;
    clock_fake_advance(&b->clock, 120000);
    double t = cpu_us();
    do {
        if (store_seal(b->s, 256, &more, &e))
            die("seal", &e);
    } while (more);
    printf("store: a minute of %u small rows: sealed by 256 at a time in %.1f us CPU/row\n", rows,
           (cpu_us() - t) / rows);
    build(b);
}

static void bench_merge(struct bench *b, const char *what, const char *selector, uint32_t from,
                        uint32_t to)
{
    struct arena *a = arena_new(MIB);
    struct store_merge m = { 0 };
    struct selector s;
    struct stacks st;
    struct err e;
    double us[20];

    if (selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e) || selector_compile(&s, &e))
        die("selector", &e);
    struct store_query q = { .tenant = STR("anonymous"),
                             .selector = &s,
                             .profile_type = STR(CPU_TYPE),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    for (size_t i = 0; i < ARRAY_LEN(us); i++) {
        stacks_init(&st, 256 * MIB, 3);
        m.stacks = &st;
        double t = cpu_us();
        struct store_view *v = store_view_get(b->s);
        if (store_merge(v, &q, &m, &e))
            die("merge", &e);
        store_view_put(v);
        us[i] = cpu_us() - t;
        if (i + 1 < ARRAY_LEN(us))
            store_merge_deinit(&m);
        stacks_deinit(&st);
    }
    double mid = median(us, ARRAY_LEN(us));
    printf("store: merge %s: %" PRIu64 " rows, %zu stacks, %.0f us CPU, %.2f us/row\n", what,
           m.rows, m.nodes.len, mid, mid / (double)m.rows);
    store_merge_deinit(&m);
    selector_deinit(&s);
    arena_free(a);
}

/* A real pprof, as the distributor decodes it, pushed again and again by one pod. */
static void bench_file(struct bench *b, const char *path, uint32_t slot)
{
    enum { TIMES = 100 };
    struct store_series series[32];
    struct store_vector vectors[32];
    struct limits limits = limits_default();
    struct store_result ret;
    struct dist_push d;
    struct buf body;
    struct err e;
    double cpu = 0;
    size_t samples = 0;

    if (!testdata_here("staging of real profiles"))
        return;
    testdata_read(path, &body);
    if (dist_decode(&d, "bench", "pprof", NULL, buf_str(&body), &limits, &e))
        die(path, &e);
    size_t len = MIN(d.push.series_len, ARRAY_LEN(series));
    struct stacks_view view = stacks_view(&d.push.stacks);
    struct store_write w = { STR("anonymous"), d.push.service, &view, series, len, NULL, 0, 0, 0 };
    for (size_t i = 0; i < TIMES; i++) {
        struct store_batch *batch = store_batch_new(b->s);
        for (size_t j = 0; j < len; j++) {
            const struct push_series *p = &d.push.series[j];
            vectors[j] = (struct store_vector){ slot, p->nodes, p->values, p->len };
            series[j] = (struct store_series){ .labels = p->labels,
                                               .profile_type = p->profile_type,
                                               .gauge = p->gauge,
                                               .vectors = &vectors[j],
                                               .len = 1 };
            put_u64be(series[j].wid, ++b->wid);
            samples += p->len;
        }
        double t = cpu_us();
        if (store_stage(b->s, batch, &w, &ret, &e))
            die(path, &e);
        cpu += i ? cpu_us() - t : 0;
        commit(b, batch);
    }
    printf("store: %s: %zu series, %zu values, %zu nodes, %zu strings: stage %.1f us CPU/profile\n",
           path, len, samples / TIMES, view.nodes, view.strings, cpu / (TIMES - 1));
    dist_push_free(&d);
    buf_deinit(&body);
}

int main(void)
{
    struct bench *b = XNEW(struct bench);
    uint32_t slot = slot_of_ms(START_MS) / 720 * 720;

    prng_init(&b->prng, 1);
    make_tree(b);
    size_t nodes = 0, frames = 0, strings = 0;
    for (size_t i = 0; i < DISTINCT; i++) {
        make_profile(b, &b->p[i]);
        nodes += b->p[i].view.nodes;
        frames += b->p[i].view.frames;
        strings += b->p[i].view.strings;
    }
    printf("store: profiles of %d samples, %zu nodes, %zu frames, %zu strings on average\n",
           SAMPLES, nodes / DISTINCT, frames / DISTINCT, strings / DISTINCT);
    b->dir = kv_dir_new();
    clock_fake_init(&b->clock, slot_to_ms(slot));
    open_store(b);
    warm_up(b, slot - 300);
    bench_batches(b, 1, slot - 200);
    bench_batches(b, 64, slot - 100);
    fill_hour(b, slot);
    bench_merge(b, "1 h of 1 pod", "{pod=\"kafka-3\"}", slot, slot + 720);
    bench_merge(b, "1 h of 20 pods", "{service_name=\"kafka\"}", slot, slot + 720);
    bench_merge(b, "last 3 m of 20 pods", "{service_name=\"kafka\"}", slot + 684, slot + 720);
    bench_minute(b, 10000, slot + 720);
    bench_minute(b, 100000, slot + 744);
    bench_file(b, "pprof/java_cpu.pb.gz", slot);
    bench_file(b, "pprof/go_cpu.pb.gz", slot);
    bench_file(b, "pprof/go_cpu_large.pb.gz", slot);
    bench_file(b, "pprof/go_heap.pb.gz", slot);
    bench_file(b, "pprof/python_pyroscope.pb.gz", slot);
    store_close(b->s);
    kv_dir_remove(b->dir);
    for (size_t i = 0; i < DISTINCT; i++)
        stacks_deinit(&b->p[i].st);
    xfree(b);
    return 0;
}
