/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_decode: CPU of the distributor's part of a push, beside gunzip of the same body.
 *
 *   gunzip   the body as agents send it (libdeflate; files that are not gzip are zipped first)
 *   parse    bytes to columns                    walk    columns to stacks and series
 *   pack     series to the WriteRequest          all     the three, and all / gunzip
 *
 * JFR is one step from bytes to series: MB/s and CPU per MB of the inflated recording.
 *
 * Files of ../shared/testdata (or those named, as pprof/x.pb.gz) and a generated one; microseconds
 * per profile (of OTLP: per request, a push for each of its profiles), best of many. The columns
 * "bytes per inflated byte" say what the decoder holds at its peak.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/formats/jfr/jfr.h"
#include "distributor/formats/pprof/pprof_stacks.h"
#include "distributor/formats/pprof/symbol_session.h"
#include "distributor/otlp/otlp_push.h"
#include "distributor/parca/parca_write.h"
#include "distributor/send/pack.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/roles/parca_bed.h"
#include "tests/lib/testdata.h"

#define SPEND_NS 150000000u

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct figures {
    uint64_t gunzip, parse, walk, pack;
    size_t inflated, columns, stacks, arena, packed;
};

/* COLD=1: what lies between two pushes of one agent, the pushes of others, leaves nothing of the
 * first in the caches near the processor. */
static void cool(void)
{
    static char *other;
    size_t n = 8 * MIB;

    if (!getenv("COLD"))
        return;
    if (!other)
        other = xmalloc(n);
    for (size_t i = 0; i < n; i += 64)
        other[i]++;
}

static void best(uint64_t *at, uint64_t ns)
{
    if (*at == 0 || ns < *at)
        *at = ns;
}

/* KNOWN=1: as a service that has sent the same before, and whose ingester has understood it. */
static struct symbol_session *take_known(void *cookie, const struct push *push)
{
    static const uint8_t session[SYMBOL_SESSION_BYTES] = "bench";
    struct symbol_session **k = cookie;

    (void)push;
    if (!*k)
        *k = symbol_session_new(session, 1, limits_default().symbol_keep_bytes, 64 * MIB);
    (*k)->told = symbol_session_now(*k);
    return symbol_session_ref(*k);
}

static void put_known(void *cookie, struct symbol_session *k)
{
    (void)cookie;
    (void)k;
}

/* One push, timed by step. */
static void once(struct str gz, const struct limits *l, struct symbol_session **known,
                 struct figures *f)
{
    const struct inflate_limits inflate = limits_inflate(l);
    const struct sample_config none = { 0 };
    struct ingest_raw raw = { .name = STR("bench"), .format = STR("pprof") };
    struct arena *a = arena_new((size_t)l->decode_bytes);
    struct write_secret secret = { 1, 2 };
    struct window w = { DIST_NOW_MS - 10000, DIST_NOW_MS };
    struct leaves leaves;
    struct ingest in;
    struct pprof p;
    struct push push;
    struct buf plain, out;
    struct err e = { 0 };
    uint64_t t[5];

    buf_init(&plain, (size_t)l->inflated_bytes);
    buf_init(&out, 256 * MIB);
    cool();
    t[0] = cpu_ns();
    CHECK(gunzip(gz, &inflate, &plain, &e) == 0);
    t[1] = cpu_ns();
    CHECK(pprof_parse(&p, buf_str(&plain), l, &e) == 0);
    t[2] = cpu_ns();
    push_init(&push, a, l, 1);
    if (getenv("KNOWN"))
        push.memory = (struct push_memory){ take_known, put_known, known };
    CHECK(ingest_parse(&raw, l, DIST_NOW_MS, a, &in, &e) == 0);
    CHECK(push_base(&push, &in, in.name.app, l, &e) == 0);
    CHECK(pprof_push(&(struct decode_job){ &in, l, DIST_NOW_MS, &push }, &p, &none, NULL, &e) == 0);
    t[3] = cpu_ns();
    push.has_identity = true;
    struct write_base base =
        write_base_of(&secret, &(struct write_sender){ 0 }, &in, &push, gz, NULL);
    CHECK(leaves_of(&w, (size_t)l->leaves, a, &leaves));
    struct packing packing = { .tenant = STR("anonymous"),
                               .received_ms = DIST_NOW_MS,
                               .push = &push,
                               .leaves = &leaves,
                               .secret = &secret,
                               .write_base = &base };
    CHECK(pack_write(&packing, &out, &e) == 0);
    t[4] = cpu_ns();
    best(&f->gunzip, t[1] - t[0]);
    best(&f->parse, t[2] - t[1]);
    best(&f->walk, t[3] - t[2]);
    best(&f->pack, t[4] - t[3]);
    f->inflated = plain.len;
    f->columns = p.bytes;
    f->stacks = stacks_bytes(&push.stacks);
    f->arena = arena_used(a);
    f->packed = out.len;
    pprof_deinit(&p);
    push_deinit(&push);
    arena_free(a);
    buf_deinit(&plain);
    buf_deinit(&out);
}

/* ---- OTLP: a push per profile, packed as it ends --------------------------------------------- */

struct otlp_run {
    const struct limits *l;
    struct figures *f;
    struct arena *arena;
    struct push push;
    uint64_t pack_ns;
};

static struct push *otlp_begin(void *cookie, const struct ingest *in, struct err *e)
{
    struct otlp_run *r = cookie;

    (void)in;
    (void)e;
    r->arena = arena_new((size_t)r->l->decode_bytes);
    push_init(&r->push, r->arena, r->l, 1);
    return &r->push;
}

static void otlp_give_up(struct otlp_run *r)
{
    push_deinit(&r->push);
    arena_free(r->arena);
}

static int otlp_end(void *cookie, struct push *push, struct str identity, struct str id,
                    struct err *e)
{
    struct otlp_run *r = cookie;
    struct write_secret secret = { 1, 2 };
    struct window w = { DIST_NOW_MS - 10000, DIST_NOW_MS };
    struct ingest in = { .has_from = false };
    struct leaves leaves;
    struct buf out;
    uint64_t began = cpu_ns();

    (void)id;
    push->has_identity = true;
    struct write_base base =
        write_base_of(&secret, &(struct write_sender){ 0 }, &in, push, identity, NULL);
    buf_init(&out, 256 * MIB);
    CHECK(leaves_of(&w, (size_t)r->l->leaves, r->arena, &leaves));
    struct packing packing = { .tenant = STR("anonymous"),
                               .received_ms = DIST_NOW_MS,
                               .push = push,
                               .leaves = &leaves,
                               .secret = &secret,
                               .write_base = &base };
    CHECK(pack_write(&packing, &out, e) == 0);
    r->f->stacks += stacks_bytes(&push->stacks);
    r->f->arena += arena_used(r->arena);
    r->f->packed += out.len;
    buf_deinit(&out);
    otlp_give_up(r);
    r->pack_ns += cpu_ns() - began;
    return 0;
}

static void otlp_reject(void *cookie, struct push *push, uint64_t n, const struct err *why)
{
    (void)n;
    (void)why;
    if (push)
        otlp_give_up(cookie);
}

static void otlp_once(struct str gz, const struct limits *l, struct figures *f)
{
    const struct inflate_limits inflate = limits_inflate(l);
    struct arena *a = arena_new((size_t)l->decode_bytes);
    struct otlp_run r = { .l = l, .f = f };
    struct batch_sink sink = { .begin = otlp_begin,
                               .end = otlp_end,
                               .reject = otlp_reject,
                               .limits = l,
                               .now_ms = DIST_NOW_MS,
                               .cookie = &r };
    struct otlp o;
    struct buf plain;
    struct err e = { 0 };
    uint64_t t[4];

    f->stacks = f->arena = f->packed = 0;
    buf_init(&plain, (size_t)l->inflated_bytes);
    t[0] = cpu_ns();
    CHECK(gunzip(gz, &inflate, &plain, &e) == 0);
    t[1] = cpu_ns();
    if (plain.ptr[0] == '{')
        CHECK(otlp_parse_json(&o, buf_str(&plain), l, a, &e) == 0);
    else
        CHECK(otlp_parse_proto(&o, buf_str(&plain), OTLP_AUTO, l, a, &e) == 0);
    t[2] = cpu_ns();
    CHECK(otlp_push(&o, &sink, &e) == 0);
    t[3] = cpu_ns();
    best(&f->gunzip, t[1] - t[0]);
    best(&f->parse, t[2] - t[1]);
    best(&f->walk, t[3] - t[2] - r.pack_ns);
    best(&f->pack, r.pack_ns);
    f->inflated = plain.len;
    f->columns = o.bytes;
    otlp_deinit(&o);
    arena_free(a);
    buf_deinit(&plain);
}

static void measure(const char *name, struct str body)
{
    bool otlp = strstr(name, ".bin") || strstr(name, ".json") || strstr(name, ".otlp");
    struct limits l = limits_default();
    struct symbol_session *known = NULL;
    struct figures f = { 0 };
    struct buf gz;
    struct err e;

    buf_init(&gz, 256 * MIB);
    if (gzip_sniff(body))
        buf_add_str(&gz, body);
    else
        CHECK(gzip(body, 6, &gz, &e) == 0);
    for (uint64_t began = cpu_ns(), n = 0; n < 5 || cpu_ns() - began < SPEND_NS; n++)
        if (otlp)
            otlp_once(buf_str(&gz), &l, &f);
        else
            once(buf_str(&gz), &l, &known, &f);
    double g = (double)f.gunzip, all = (double)(f.parse + f.walk + f.pack),
           size = (double)f.inflated;
    printf("%-28s %9zu %9.1f %9.1f %9.1f %9.1f %9.1f %6.2f   %5.1f %5.1f %5.1f %5.2f\n", name,
           f.inflated, g / 1e3, (double)f.parse / 1e3, (double)f.walk / 1e3, (double)f.pack / 1e3,
           all / 1e3, all / g, (double)f.columns / size, (double)f.stacks / size,
           (double)f.arena / size, (double)f.packed / size);
    symbol_session_unref(known);
    buf_deinit(&gz);
}

/* JFR goes from bytes to series in one call. */
static void measure_jfr(const char *name, struct str body)
{
    struct limits l = limits_default();
    const struct inflate_limits inflate = limits_inflate(&l);
    struct ingest_raw raw = { .name = STR("bench"), .from = STR("now-10s"), .format = STR("jfr") };
    uint64_t unzip = 0, decode = 0, events = 0;
    struct buf gz, plain;
    struct ingest in;
    struct push push;
    struct err e = { 0 };

    buf_init(&gz, 256 * MIB);
    buf_init(&plain, (size_t)l.inflated_bytes);
    if (gzip_sniff(body))
        buf_add_str(&gz, body);
    else
        CHECK(gzip(body, 6, &gz, &e) == 0);
    for (uint64_t began = cpu_ns(), n = 0; n < 5 || cpu_ns() - began < SPEND_NS; n++) {
        struct arena *a = arena_new((size_t)l.decode_bytes);
        uint64_t t[3] = { cpu_ns() };
        buf_reset(&plain);
        CHECK(gunzip(buf_str(&gz), &inflate, &plain, &e) == 0);
        t[1] = cpu_ns();
        push_init(&push, a, &l, 1);
        CHECK(ingest_parse(&raw, &l, DIST_NOW_MS, a, &in, &e) == 0);
        const struct decode_job job = { &in, &l, DIST_NOW_MS, &push };
        CHECK(jfr_push(&job, buf_str(&plain), STR_NULL, &e) == 0);
        t[2] = cpu_ns();
        best(&unzip, t[1] - t[0]);
        best(&decode, t[2] - t[1]);
        events = push.samples;
        push_deinit(&push);
        arena_free(a);
    }
    double mb = (double)plain.len / 1e6;
    printf("%-44s %9zu %8" PRIu64 " %9.1f %9.1f %6.2f %8.1f %8.2f\n", name, plain.len, events,
           (double)unzip / 1e3, (double)decode / 1e3, (double)decode / (double)unzip,
           mb / ((double)decode / 1e9), (double)decode / 1e6 / mb);
    buf_deinit(&gz);
    buf_deinit(&plain);
}

static void measure_jfr_files(void)
{
    static const char *const files[] = {
        "jfr/dump1.jfr.gz",
        "jfr/dump2.jfr.gz",
        "jfr/cortex-dev-01__kafka-0__cpu_lock0_alloc0__0.jfr.gz",
        "jfr/object-allocation-sample.jfr.gz",
        "jfr/event-with-type-zero.jfr.gz",
        "jfr/jmc_jdk21.jfr",
    };
    struct buf body;

    printf("\n%-44s %9s %8s %9s %9s %6s %8s %8s\n", "JFR, us per recording", "inflated", "events",
           "gunzip", "decode", "ratio", "MB/s", "ms/MB");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        testdata_read(files[i], &body);
        measure_jfr(files[i] + strlen("jfr/"), buf_str(&body));
        buf_deinit(&body);
    }
}

/* ---- Arrow: five seconds of a machine as parca-agent sends them */

static void measure_arrow(const char *name, enum ga_codec codec, size_t samples)
{
    const struct parca_opts o = { .drop_labels = "cpu,thread_id", .seed = 1 };
    struct limits l = limits_default();
    struct arena *a = arena_new(512 * MIB);
    struct figures f = { 0 };
    struct parca_model m;
    struct buf body;
    struct err e;

    buf_init(&body, 64 * MIB);
    parca_gen(&m, a, 1, samples, DIST_NOW_MS * 1000000);
    parca_gen_v2(&m, codec, 1, &body);
    for (uint64_t began = cpu_ns(), n = 0; n < 5 || cpu_ns() - began < SPEND_NS; n++) {
        struct otlp_run r = { .l = &l, .f = &f };
        struct batch_sink sink = { .begin = otlp_begin,
                                   .end = otlp_end,
                                   .reject = otlp_reject,
                                   .limits = &l,
                                   .now_ms = DIST_NOW_MS,
                                   .cookie = &r };
        f.stacks = f.arena = f.packed = 0;
        uint64_t from = cpu_ns();
        CHECK(parca_arrow_push(buf_str(&body), &o, &sink, &e) == 0);
        best(&f.walk, cpu_ns() - from - r.pack_ns);
        best(&f.pack, r.pack_ns);
    }
    printf("%-28s %9zu %9s %9s %9.1f %9.1f %9.1f   %.0f ns a sample, %.1f MB/s\n", name, body.len,
           "-", "-", (double)f.walk / 1e3, (double)f.pack / 1e3, (double)(f.walk + f.pack) / 1e3,
           (double)(f.walk + f.pack) / (double)samples,
           (double)body.len * 1e3 / (double)(f.walk + f.pack));
    buf_deinit(&body);
    arena_free(a);
}

int main(int argc, char **argv)
{
    static const char *const files[] = {
        "pprof/node_wall.pb.gz",
        "pprof/go_cpu_labels.pb.gz",
        "pprof/go_cpu.pb.gz",
        "pprof/go_cpu_truncated.pb.gz",
        "pprof/go_heap.pb.gz",
        "pprof/java_cpu.pb.gz",
        "pprof/dotnet_labels.pb",
        "pprof/ruby_rbspy.pb.gz",
        "pprof/ebpf_labels.pb.gz",
        "pprof/go_heap_large.pb.gz",
        "pprof/go_cpu_large.pb.gz",
        "otlp/v1.9_profile.otlp",
        "otlp/v1.10_77_resources.bin",
        "otlp/v1.10_77_resources.json",
        "otlp/v1.10_cpu_offcpu_same.bin",
    };
    struct gen_random r;
    struct prng p;
    struct buf body;
    char name[64];

    printf("%-28s %9s %9s %9s %9s %9s %9s %6s   %s\n", "us per profile", "inflated", "gunzip",
           "parse", "walk", "pack", "all", "ratio", "bytes per inflated byte:");
    printf("%95s   %5s %5s %5s %5s\n", "", "colum", "stack", "arena", "rpc");
    if (argc == 1) {
        prng_init(&p, 1);
        gen_random_pprof(&p, 2000, &r);
        measure("generated", buf_str(&r.body));
        gen_random_deinit(&r);
        measure_arrow("arrow, 6,000 samples", GA_PLAIN, 6000);
        measure_arrow("arrow lz4, 6,000 samples", GA_LZ4, 6000);
    }
    if (!testdata_here("decode benchmark over sample files"))
        return 0;
    size_t n = argc > 1 ? (size_t)argc - 1 : ARRAY_LEN(files);
    for (size_t i = 0; i < n; i++) {
        const char *file = argc > 1 ? argv[i + 1] : files[i];
        testdata_read(file, &body);
        snprintf(name, sizeof(name), "%s", file + (strchr(file, '/') ? strcspn(file, "/") + 1 : 0));
        measure(name, buf_str(&body));
        buf_deinit(&body);
    }
    if (argc == 1)
        measure_jfr_files();
    return 0;
}
