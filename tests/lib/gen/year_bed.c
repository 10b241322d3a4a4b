/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/year_bed.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/retain/retain.h"
#include "common/sys/chan.h"
#include "common/sys/thread.h"
#include "distributor/api/import_msg.h"
#include "ingester/write/write_msg.h"
#include "tests/lib/store/kv_dir.h"

#define SEAL_PROFILES   65536 /* that wait before an import is sealed; a server waits 10 s */
#define SEAL_ROWS       16384 /* of one entry */
#define BUILD_ROWS      65536
#define IMPORT_MINUTES  60 /* of a message, */
#define IMPORT_PODS     10 /* and at most so many */
#define MESSAGES_QUEUED 8

double year_wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double year_cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

uint64_t year_rss(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long size = 0, resident = 0;

    CHECK(f && fscanf(f, "%lu %lu", &size, &resident) == 2);
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "year: %s: %s\n", what, e->text);
    exit(1);
}

/* ---- open and close ---- */

static void set_retention(struct year_bed *b)
{
    struct retain_policy_opts o = { .keep = retain_keep_default(), .interval_ms = 60000 };
    struct retain_policy *policy;
    struct err e;

    if (retain_policy_new(&o, &policy, &e))
        die("policy", &e);
    store_set_retention(b->s, policy);
    retain_policy_unref(policy);
}

void year_bed_open(struct year_bed *b, const struct year_bed_opts *o)
{
    struct err e;

    *b = (struct year_bed){ .o = *o, .dir = o->dir ? xstrdup(o->dir) : kv_dir_new() };
    if (!b->o.memory)
        b->o.memory = GIB;
    (void)mkdir(b->dir, 0777);
    CHECK((size_t)snprintf(b->shard, sizeof(b->shard), "%s/shard-0", b->dir) < sizeof(b->shard));
    clock_fake_init(&b->clock, slot_to_ms(o->slot));
    struct kv_opts k = { .dir = b->shard,
                         .block_cache_bytes = b->o.memory / 100 * 20,
                         .memtable_bytes = b->o.memory / 100 * 15 };
    struct store_opts s = { .clock = &b->clock.clock,
                            .dict_bytes_max = b->o.memory / 100 * 25,
                            .seal_delay_ms = 90000,
                            .build_delay_ms = 60000,
                            .build_all = true,
                            .wid_horizon_ms = 4 * 3600 * 1000,
                            .hot_bytes_max = b->o.memory / 100 * 10,
                            .seed = 1 };
    if (kv_rocks_open(&k, &b->kv, &e))
        die("open", &e);
    s.kv = b->kv;
    if (store_open(&s, &b->s, &e))
        die("open", &e);
    if (o->retention)
        set_retention(b);
}

void year_bed_close(struct year_bed *b)
{
    store_close(b->s);
    b->s = NULL;
}

void year_bed_remove(struct year_bed *b)
{
    year_bed_close(b);
    if (b->o.dir)
        xfree(b->dir);
    else
        kv_dir_remove(b->dir);
}

uint32_t year_bed_slot(const struct year_bed *b)
{
    return slot_of_ms(atomic_load(&b->clock.wall_ms));
}

/* ---- time and work ---- */

static bool step(struct year_bed *b)
{
    struct err e;
    bool sealed, built, retained = false;
    double t = year_cpu_s();

    if (store_seal(b->s, SEAL_ROWS, &sealed, &e))
        die("seal", &e);
    b->seal_s += year_cpu_s() - t;
    t = year_cpu_s();
    if (store_build(b->s, BUILD_ROWS, &built, &e))
        die("build", &e);
    b->build_s += year_cpu_s() - t;
    t = year_cpu_s();
    if (b->o.retention && store_retain(b->s, BUILD_ROWS, &retained, &e))
        die("retain", &e);
    b->retain_s += year_cpu_s() - t;
    return sealed || built || retained;
}

void year_bed_work(struct year_bed *b)
{
    while (step(b))
        ;
}

void year_bed_advance(struct year_bed *b, uint32_t slot)
{
    int64_t to = slot_to_ms(slot);

    /* In steps below the jump that would pause the engine's clock. */
    while (atomic_load(&b->clock.wall_ms) < to) {
        int64_t left = to - atomic_load(&b->clock.wall_ms);
        clock_fake_advance(&b->clock, MIN(left, 60000));
        year_bed_work(b);
    }
}

/* ---- writing ---- */

static void stage(struct year_bed *b, struct store_batch *batch, const struct store_write *w)
{
    struct store_result r;
    struct err e;
    double t = year_cpu_s();

    if (store_stage(b->s, batch, w, &r, &e))
        die("stage", &e);
    b->stage_s += year_cpu_s() - t;
    CHECK(r.stored == w->len);
    for (size_t i = 0; i < w->len; i++) {
        b->profiles += w->series[i].len;
        for (size_t k = 0; k < w->series[i].len; k++)
            b->values += w->series[i].vectors[k].len;
    }
}

static void commit(struct year_bed *b, struct store_batch *batch)
{
    struct err e;
    double t = year_wall_s();

    if (store_commit(b->s, batch, &e))
        die("commit", &e);
    b->commit_s += year_wall_s() - t;
}

void year_bed_live(struct year_bed *b, struct year *y, uint32_t from, uint32_t to, uint32_t pods)
{
    struct store_batch *batch = NULL;

    for (uint32_t at = from; at < to; at += LEAF_SLOTS) {
        if (!batch)
            batch = store_batch_new(b->s);
        year_begin(y);
        for (uint32_t pod = 0; pod < pods; pod++)
            year_add(y, pod, at, LEAF_SLOTS);
        stage(b, batch, year_end(y));
        clock_fake_advance(&b->clock, LEAF_MS);
        if ((at + LEAF_SLOTS) % 12 && at + LEAF_SLOTS < to)
            continue;
        commit(b, batch); /* a minute's, as a server in a hurry has them: one fsync */
        batch = NULL;
        if ((at + LEAF_SLOTS) % 12 == 0)
            year_bed_work(b);
    }
}

/* ---- importing: a thread makes messages, this one stores them ---- */

struct importing {
    struct year *y;
    uint32_t from, to, pods;
    int64_t now_ms;
    struct chan *made; /* of struct buf, as the ingester gets them */
    struct thread thread;
    struct arena *arena;
    struct buf message, body;
};

static void make_message(struct importing *x, uint32_t from, uint32_t to, uint32_t pod,
                         struct buf *out)
{
    struct limits limits = limits_default();
    struct write_secret secret = { 1, 2 };
    struct import_opts o = { .tenant = STR(YEAR_TENANT),
                             .secret = &secret,
                             .limits = &limits,
                             .accept = { x->now_ms, UINT64_C(400) * 86400000, 600000 },
                             .node_slots = 12,
                             .shards = 1 };
    struct import_count count;
    struct import_frames frames;
    struct err e;

    year_begin(x->y);
    for (uint32_t at = from; at < to; at += 12)
        for (uint32_t k = pod; k < MIN(x->pods, pod + IMPORT_PODS); k++)
            year_add(x->y, k, at, 12);
    buf_reset(&x->message);
    buf_reset(&x->body);
    arena_reset(x->arena);
    year_pack(year_end(x->y), 0, &x->message);
    wr_varint(&x->body, x->message.len);
    buf_add_str(&x->body, buf_str(&x->message));
    (void)buf_room(out, x->message.len + KIB);
    limits.samples = 100000000;
    if (import_frames(buf_str(&x->body), x->arena, &frames, &e) ||
        import_msg(frames.at[0], &o, x->arena, out, &count, &e))
        die("import", &e);
}

static void make_messages(void *cookie)
{
    struct importing *x = cookie;
    struct timespec pause = { .tv_nsec = 1000000 };
    uint32_t hour = IMPORT_MINUTES * 12;

    for (uint32_t at = x->from, end; at < x->to; at = end) {
        end = MIN(at - at % hour + hour, x->to);
        for (uint32_t pod = 0; pod < x->pods; pod += IMPORT_PODS) {
            struct buf *out = XNEW(struct buf);
            buf_init(out, GIB);
            make_message(x, at, end, pod, out);
            while (!chan_send(x->made, out))
                nanosleep(&pause, NULL);
        }
    }
    chan_close(x->made);
}

static void take_message(struct year_bed *b, struct buf *in)
{
    struct arena *a = arena_new(write_msg_arena_bytes(in->len));
    struct store_batch *batch = store_batch_new(b->s);
    struct write_msg m;
    struct err e;

    if (write_msg_decode(buf_str(in), false, a, &m, &e))
        die("decode", &e);
    stage(b, batch, &m.write);
    commit(b, batch);
    arena_free(a);
    buf_deinit(in);
    xfree(in);
}

void year_bed_import(struct year_bed *b, struct year *y, uint32_t from, uint32_t to, uint32_t pods)
{
    struct importing x = { y,
                           from,
                           to,
                           pods,
                           .now_ms = slot_to_ms(year_bed_slot(b)),
                           .made = chan_new(MESSAGES_QUEUED, NULL, NULL),
                           .arena = arena_new(GIB) };
    uint64_t sealed = b->profiles;
    void *one;

    buf_init(&x.message, GIB);
    buf_init(&x.body, GIB);
    thread_start(&x.thread, "year", make_messages, &x);
    while (chan_wait(x.made, &one, 1, UINT64_MAX)) {
        take_message(b, one);
        if (b->profiles - sealed < SEAL_PROFILES)
            continue;
        sealed = b->profiles;
        clock_fake_advance(&b->clock, 1000);
        year_bed_work(b);
    }
    thread_join(&x.thread);
    chan_free(x.made);
    arena_free(x.arena);
    buf_deinit(&x.message);
    buf_deinit(&x.body);
    year_bed_work(b);
}

void year_bed_import_at(struct year_bed *b, struct year *y, uint32_t from, uint32_t n,
                        uint32_t every, uint32_t pods)
{
    struct store_batch *batch = store_batch_new(b->s);

    year_begin(y);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t pod = 0; pod < pods; pod++)
            year_add(y, pod, from + i * every, 12);
    stage(b, batch, year_end(y));
    commit(b, batch);
    clock_fake_advance(&b->clock, 11000);
    year_bed_work(b);
}

/* ---- reading ---- */

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median_ms(double *s, uint32_t n)
{
    qsort(s, n, sizeof(*s), by_double);
    return s[n / 2] * 1000;
}

static void parse_selector(const char *text, struct arena *a, struct selector *ret)
{
    struct err e;

    if (selector_parse(str_c(text), SELECTOR_PROMETHEUS, a, ret, &e) || selector_compile(ret, &e))
        die(text, &e);
}

struct year_answer year_bed_merge(struct year_bed *b, const char *selector, uint32_t from,
                                  uint32_t to, uint32_t times)
{
    struct arena *a = arena_new(MIB);
    struct year_answer r = { 0 };
    double *s = XNEW_ARRAY(double, times);
    struct selector sel;
    struct stacks st;
    struct err e;

    parse_selector(selector, a, &sel);
    struct store_query q = { .tenant = STR(YEAR_TENANT),
                             .selector = &sel,
                             .profile_type = STR(YEAR_TYPE),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    for (uint32_t i = 0; i < times; i++) {
        struct store_merge m = { .stacks = &st };
        stacks_init(&st, GIB, 3);
        double t = year_cpu_s();
        struct store_view *v = store_view_get(b->s);
        if (store_merge(v, &q, &m, &e))
            die("merge", &e);
        store_view_put(v);
        s[i] = year_cpu_s() - t;
        r = (struct year_answer){ 0, m.rows, m.series, m.total, m.nodes.len, st.node_parent.len };
        store_merge_deinit(&m);
        stacks_deinit(&st);
    }
    r.ms = median_ms(s, times);
    selector_deinit(&sel);
    arena_free(a);
    xfree(s);
    return r;
}

void year_bed_ask(struct year_bed *b, const char *selector, uint32_t from, uint32_t to,
                  struct store_merge *m)
{
    struct arena *a = arena_new(MIB);
    struct selector sel;
    struct err e;

    parse_selector(selector, a, &sel);
    struct store_query q = { .tenant = STR(YEAR_TENANT),
                             .selector = &sel,
                             .profile_type = STR(YEAR_TYPE),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    struct store_view *v = store_view_get(b->s);
    if (store_merge(v, &q, m, &e))
        die("merge", &e);
    store_view_put(v);
    selector_deinit(&sel);
    arena_free(a);
}

struct year_answer year_bed_timeline(struct year_bed *b, const char *selector, uint32_t from,
                                     uint32_t to, uint32_t step_slots, const char *group_by,
                                     uint32_t times)
{
    struct arena *a = arena_new(MIB);
    struct year_answer r = { 0 };
    double *s = XNEW_ARRAY(double, times);
    struct str group = str_c(group_by);
    struct selector sel;
    struct err e;

    parse_selector(selector, a, &sel);
    struct store_query q = { .tenant = STR(YEAR_TENANT),
                             .selector = &sel,
                             .profile_type = STR(YEAR_TYPE),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    for (uint32_t i = 0; i < times; i++) {
        struct arena *mine = arena_new(GIB);
        struct store_timeline tl = { 0 };
        r = (struct year_answer){ 0 };
        double t = year_cpu_s();
        struct store_view *v = store_view_get(b->s);
        if (store_timeline(v,
                           &(struct store_timeline_query){
                               .q = q,
                               .origin_ms = slot_to_ms(from + step_slots) - SLOT_MS,
                               .step_ms = (int64_t)step_slots * SLOT_MS,
                               .points = (to - from) / step_slots,
                               .group_by = &group,
                               .group_by_len = group_by ? 1 : 0 },
                           mine, &tl, &e))
            die("timeline", &e);
        store_view_put(v);
        s[i] = year_cpu_s() - t;
        vec_for (k, &tl.series) {
            r.rows += tl.series.ptr[k].point.len;
            vec_for (p, &tl.series.ptr[k].value)
                r.total += tl.series.ptr[k].value.ptr[p];
        }
        r.series = tl.series.len;
        store_timeline_deinit(&tl);
        arena_free(mine);
    }
    r.ms = median_ms(s, times);
    selector_deinit(&sel);
    arena_free(a);
    xfree(s);
    return r;
}
