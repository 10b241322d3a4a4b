/* SPDX-License-Identifier: Apache-2.0
 *
 * P5 alone: timelines of a year of 1,000 series, over RocksDB. The points are written as the seal
 * and the builds write them, without the profiles behind them, so that loading takes seconds; the
 * questions go the usual way: labels, planner, cover, rows. SERIES=n for another number.
 *
 * Default retention: slots of 7 days, minutes of 30, ten minutes of 90, hours and up of the year.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/model/slot.h"
#include "common/store/catalog/group.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "tests/lib/gen/year_bed.h"
#include "tests/lib/store/kv_dir.h"

#define DAY   DAY_SLOTS
#define TIMES 7
#define CPU   "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

struct bench {
    char *dir;
    struct kv *kv;
    struct clock_fake clock;
    struct store *s;
    uint32_t series, end; /* slot: whole days */
    VEC(uint64_t) ids;
    struct floors floors;
    struct arena *arena;
};

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->text);
    exit(1);
}

static void open_store(struct bench *b)
{
    struct kv_opts ko = { .block_cache_bytes = 256 * MIB, .memtable_bytes = 128 * MIB };
    struct store_opts o = { .clock = &b->clock.clock,
                            .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600 * 1000,
                            .seal_delay_ms = 1000 };
    struct err e;

    b->dir = kv_dir_new();
    ko.dir = b->dir;
    clock_fake_init(&b->clock, slot_to_ms(b->end));
    if (kv_rocks_open(&ko, &b->kv, &e))
        die("open", &e);
    o.kv = b->kv;
    if (store_open(&o, &b->s, &e))
        die("open", &e);
}

/* ---- loading ---- */

/* One push of each pod at the begin of the year and one at the end: the series, their days. */
static void push_pods(struct bench *b)
{
    struct stacks st;
    struct arena *a = arena_new(64 * MIB);
    struct store_result r;
    struct err e;

    for (uint32_t i = 0; i < 2 * b->series; i++) {
        struct labels l = { 0 };
        char pod[32];
        int n = snprintf(pod, sizeof(pod), "pod-%u", i / 2);
        arena_reset(a);
        stacks_init(&st, MIB, 1);
        struct frame f = { .func = stacks_string(&st, STR("main")) };
        uint32_t node = stacks_node(&st, 0, stacks_frame(&st, &f));
        uint64_t value = 1;
        struct store_vector v = { b->end - (i % 2 ? 1 : 365 * DAY), &node, &value, 1 };
        if (labels_set(&l, a, STR("service_name"), STR("svc"), &e) ||
            labels_set(&l, a, STR("pod"), str_n(pod, (size_t)n), &e))
            die("labels", &e);
        struct store_series s = { .labels = l, .profile_type = STR(CPU), .vectors = &v, .len = 1 };
        put_u64be(s.wid, i + 1);
        struct stacks_view view = stacks_view(&st);
        struct store_write w = { STR("t"), STR("svc"), &view, &s, 1, NULL, 0, 0, 0 };
        struct store_batch *batch = store_batch_new(b->s);
        if (store_stage(b->s, batch, &w, &r, &e) || store_commit(b->s, batch, &e))
            die("push", &e);
        stacks_deinit(&st);
    }
    arena_free(a);
}

static void find_ids(struct bench *b)
{
    struct kv_iter *it = kv_iter_new(b->kv, NULL, KV_RAW, STR_NULL, STR_NULL);
    struct member m;
    const uint8_t *wid;
    uint32_t t;

    for (; kv_iter_valid(it) && b->ids.len < b->series; kv_iter_next(it))
        if (key_raw_read(kv_iter_key(it), &m, &t, &wid))
            vec_push(&b->ids, m.series);
    kv_iter_free(it);
}

/* All points of one series or group at one level, of what retention keeps of it. */
static void put_level(struct bench *b, struct tl_rows *rows, struct kv_batch *kb, bool group,
                      uint64_t id, uint32_t level)
{
    static const uint32_t none[KEY_LEVELS];
    struct member m = { 1, 1, 0, id };
    uint32_t from = MAX(b->end - 365 * DAY, b->floors.at[level]), width = LEVELS[level].tl_point;
    struct err e;

    for (uint32_t t = from - from % width; t < b->end; t += level ? width : 3) {
        uint64_t total = 1000000 + (uint64_t)(t * 2654435761u);
        struct tl_rows_point p = {
            .m = &m, .group = group, .level = level, .t = t, .total = total
        };
        p.writes = level >= 2 ? width / 3 : level ? 4 : 1;
        if (level >= 2)
            tl_rows_built(rows, &p);
        else if (level == 1 && group)
            tl_rows_sealed_above(rows, none, &p);
        p.group = false;
        if (level == 0 && t >= b->floors.at[0])
            tl_rows_sealed(rows, none, &p);
    }
    if (tl_rows_put(rows, 0, kb, &e))
        die("points", &e);
}

static void load(struct bench *b)
{
    struct tl_rows *rows = tl_rows_new(b->kv);
    struct member m = { 1, 1, 0, 0 };
    struct err e;

    push_pods(b);
    find_ids(b);
    for (size_t i = 0; i <= b->ids.len; i++) {
        struct kv_batch *kb = kv_batch_new();
        bool group = i == b->ids.len;
        for (uint32_t l = 0; l < KEY_LEVELS; l++)
            if (group || l >= 2 || (l == 0 && i < 20))
                put_level(b, rows, kb, group, group ? GID(GROUP_BASE, 0) : b->ids.ptr[i], l);
        if (i == 0)
            floors_put(kb, &m, &b->floors);
        if (store_write_batch(b->s, kb, false, &e))
            die("write", &e);
        kv_batch_free(kb);
    }
    if (kv_flush(b->kv, &e))
        die("flush", &e);
    tl_rows_free(rows);
}

/* ---- asking ---- */

static int by_ms(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Median CPU of this thread, ms; the answer is read whole. */
static double ask(struct bench *b, const char *selector, int64_t origin_ms, int64_t step_ms,
                  uint32_t points, const char *by, size_t *ret_series, uint64_t *ret_rows)
{
    struct store_view *v = store_view_get(b->s);
    struct str name = str_c(by);
    double ms[TIMES];
    struct selector s;
    struct err e;

    arena_reset(b->arena);
    if (selector_parse(str_c(selector), SELECTOR_PROMETHEUS, b->arena, &s, &e) ||
        selector_compile(&s, &e))
        die("selector", &e);
    struct store_query q = { .tenant = STR("t"), .selector = &s, .profile_type = STR(CPU) };
    for (size_t i = 0; i < TIMES; i++) {
        struct store_timeline t;
        double began = year_cpu_s();
        if (store_timeline(v,
                           &(struct store_timeline_query){ .q = q,
                                                           .origin_ms = origin_ms,
                                                           .step_ms = step_ms,
                                                           .points = points,
                                                           .group_by = &name,
                                                           .group_by_len = by[0] != 0 },
                           b->arena, &t, &e))
            die("timeline", &e);
        ms[i] = (year_cpu_s() - began) * 1e3;
        *ret_series = t.series.len;
        *ret_rows = t.rows;
        store_timeline_deinit(&t);
    }
    selector_deinit(&s);
    store_view_put(v);
    qsort(ms, TIMES, sizeof(*ms), by_ms);
    return ms[TIMES / 2];
}

static void report(struct bench *b, const char *what, uint32_t days, int64_t step_ms,
                   int64_t shift_ms)
{
    int64_t begin = slot_to_ms(b->end - days * DAY) + shift_ms;
    uint32_t points = (uint32_t)((int64_t)days * 86400000 / step_ms);
    size_t one, pods;
    uint64_t rows, pod_rows;
    double sum =
        ask(b, "{service_name=\"svc\"}", begin + step_ms - 1, step_ms, points, "", &one, &rows);
    double each = ask(b, "{service_name=\"svc\"}", begin + step_ms - 1, step_ms, points, "pod",
                      &pods, &pod_rows);

    printf("P5 %-34s sum %7.2f ms, %4" PRIu64 " rows; %4zu lines by pod %8.2f ms, %6" PRIu64
           " rows\n",
           what, sum, rows, pods, each, pod_rows);
    if (step_ms == 86400000 && !shift_ms)
        printf("P5 goal <= 20 ms for 1,000 series: %s\n",
               each * 1000 / b->series <= 20 ? "reached" : "MISSED");
    fflush(stdout);
}

int main(void)
{
    const char *series = getenv("SERIES");
    struct bench b = { .series = series ? (uint32_t)strtoul(series, NULL, 10) : 1000,
                       .end = 2300 * DAY,
                       .arena = arena_new(GIB) };
    double began = year_wall_s();

    b.floors = (struct floors){ .at = { b.end - 7 * DAY, b.end - 30 * DAY, b.end - 90 * DAY } };
    open_store(&b);
    load(&b);
    printf("%u series of a year loaded in %.1f s\n", b.series, year_wall_s() - began);
    report(&b, "1 y at 1 d", 365, 86400000, 0);
    report(&b, "1 y at 1 d, from 11:17:03", 365, 86400000, 40623000);
    report(&b, "90 d at 1 h", 90, 3600000, 0);
    report(&b, "30 d at 1,728 s, from 11:17:03", 29, 1728000, 40623000);
    store_close(b.s);
    kv_dir_remove(b.dir);
    vec_free(&b.ids);
    arena_free(b.arena);
    return 0;
}
