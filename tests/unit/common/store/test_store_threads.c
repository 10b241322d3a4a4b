/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread stages, seals and builds, one commits, one makes coarse nodes, two read: what a reader
 * sees is always what some prefix of the committed batches makes, and never less than was committed
 * before it looked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/sys/chan.h"
#include "common/sys/thread.h"
#include "tests/lib/store/store_bed.h"

#define PUSHES 1500

/* Push i has value 1 on stack "s<i % 50>;t<i>", at a slot that creeps forward. */
struct shared {
    struct store_bed bed;
    struct selector all;
    uint32_t first; /* slot */
    struct chan *commits;
    _Atomic uint64_t committed; /* pushes */
    _Atomic bool stop, failed;
    _Atomic uint64_t reads;
    struct held *_Atomic held; /* from the builder to the shard */
    uint64_t applied;
};
struct held { /* a job and its result */
    struct arena *arena;
    struct build_job job;
    struct build_result result;
};

static uint64_t total(struct shared *x, struct err *e)
{
    struct store_query q = { .tenant = STR("t"),
                             .selector = &x->all,
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(x->first),
                             .end_ms = slot_to_ms(x->first + 10000) };
    struct store_merge m = { 0 };
    struct store_timeline t;
    struct stacks st;
    struct arena *a = arena_new(MIB);
    uint64_t n = UINT64_MAX, line = 0;

    stacks_init(&st, 64 * MIB, 1);
    m.stacks = &st;
    struct store_view *v = store_view_get(x->bed.s);
    if (!store_merge(v, &q, &m, e)) {
        n = m.total == m.nodes.len ? m.total : UINT64_MAX; /* each value is 1 */
        store_merge_deinit(&m);
    }
    if (!store_timeline(
            v,
            &(struct store_timeline_query){ .q = q,
                                            .origin_ms = slot_to_ms(x->first) + 49999999,
                                            .step_ms = 50000000,
                                            .points = 2 },
            a, &t, e)) {
        vec_for (i, &t.series)
            vec_for (k, &t.series.ptr[i].point)
                line += t.series.ptr[i].value.ptr[k];
        store_timeline_deinit(&t);
    }
    store_view_put(v);
    stacks_deinit(&st);
    arena_free(a);
    return line == n ? n : UINT64_MAX;
}

static void reader(void *cookie)
{
    struct shared *x = cookie;
    struct err e = { 0 };

    while (!atomic_load(&x->stop)) {
        uint64_t before = atomic_load(&x->committed), seen = total(x, &e);
        if (seen < before || seen > PUSHES) {
            fprintf(stderr, "committed %" PRIu64 ", seen %" PRIu64 " %s\n", before, seen, e.text);
            atomic_store(&x->failed, true);
            return;
        }
        atomic_fetch_add(&x->reads, 1);
    }
}

/* ---- builds ---- */

static void drop(struct held *h)
{
    if (!h)
        return;
    build_job_deinit(&h->job);
    build_result_deinit(&h->result);
    arena_free(h->arena);
    xfree(h);
}

static struct held *make_job(struct shared *x)
{
    struct held *h = XNEW(struct held);
    struct store_view *v = store_view_get(x->bed.s);
    struct build_nodes due = { 0 };
    struct build_cursor c = { 0 };
    struct store_clock now;
    struct err e;

    h->arena = arena_new(64 * MIB);
    store_clock(x->bed.s, &now);
    int rc = store_build_due(
        v, &(struct build_search){ .engine_ms = now.engine_ms, .low = 3, .high = 7, .max = 4 },
        &due, &e);
    if (!rc && due.at.len) {
        rc = store_build_read(
            v, &due.at.ptr[0], &c,
            &(struct build_room){ .bytes_max = 64 * MIB, .rows_max = SIZE_MAX, .arena = h->arena },
            &h->job, &e);
        if (!rc)
            rc = build_merge(&h->job, h->arena, &h->result, &e);
    }
    if (rc && rc != ERR_NOT_FOUND)
        atomic_store(&x->failed, true);
    if (rc || !due.at.len) {
        drop(h);
        h = NULL;
    }
    vec_free(&due.at);
    store_view_put(v);
    return h;
}

static void builder(void *cookie)
{
    struct shared *x = cookie;

    while (!atomic_load(&x->stop))
        if (!atomic_load(&x->held))
            atomic_store(&x->held, make_job(x));
}

/* Shard thread. */
static void build(struct shared *x)
{
    struct held *h = atomic_exchange(&x->held, NULL);
    struct err e;
    bool more = true;

    for (int i = 0; more && i < 20; i++)
        if (store_build(x->bed.s, 50, &more, &e))
            atomic_store(&x->failed, true);
    if (!h)
        return;
    int rc = store_build_apply(x->bed.s, &h->job, &h->result, &e);
    x->applied += !rc;
    if (rc && rc != ERR_NOT_FOUND)
        atomic_store(&x->failed, true);
    drop(h);
}

/* ---- writes ---- */

struct group {
    struct store_batch *b;
    uint64_t pushes;
};

static void committer(void *cookie)
{
    struct shared *x = cookie;
    struct err e;
    void *p;

    while (chan_wait(x->commits, &p, 1, UINT64_MAX)) {
        struct group *g = p;
        if (store_commit(x->bed.s, g->b, &e))
            atomic_store(&x->failed, true);
        atomic_store(&x->committed, g->pushes);
        xfree(g);
    }
}

static void send_group(struct shared *x, struct store_batch *b, uint64_t pushes)
{
    struct group *g = XNEW(struct group);

    *g = (struct group){ b, pushes };
    while (!chan_send(x->commits, g)) /* the committer is behind */
        ;
}

static void stage_all(struct shared *x)
{
    struct store_batch *b = store_batch_new(x->bed.s);
    struct store_result ret;
    char stacks[64];
    struct err e;
    bool more;

    for (uint32_t i = 0; i < PUSHES; i++) {
        snprintf(stacks, sizeof(stacks), "s%u;t%u=1", i % 50, i);
        struct bed_push p = { .slot = x->first + i * 2, .wid = i + 1, .stacks = stacks };
        p.labels = i % 3 ? "pod=a" : "pod=b";
        if (store_bed_stage(&x->bed, b, &p, &ret, &e) || ret.stored != 1) {
            atomic_store(&x->failed, true);
            break;
        }
        if (i % 4 == 3) {
            send_group(x, b, i + 1);
            b = store_batch_new(x->bed.s);
        }
        if (i % 50 == 49) { /* sealing while batches are on their way */
            clock_fake_advance(&x->bed.clock, 500000);
            if (store_seal(x->bed.s, 25, &more, &e))
                atomic_store(&x->failed, true);
            build(x);
        }
    }
    send_group(x, b, PUSHES);
}

static void run(uint64_t dict_bytes_max)
{
    struct shared x = { .commits = chan_new(4, NULL, NULL) };
    struct store_opts o = { .dict_bytes_max = dict_bytes_max,
                            .wid_horizon_ms = 3600 * 1000,
                            .hot_bytes_max = 8 * MIB,
                            .hot_members_min = 1,
                            .epoch_nodes_max = 400 };
    struct thread committing = { 0 }, building = { 0 }, reading[2] = { 0 };
    struct err e;

    store_bed_init(&x.bed, &o);
    x.first = store_bed_slot(&x.bed) / 12 * 12;
    thread_start(&committing, "commit", committer, &x);
    thread_start(&building, "build", builder, &x);
    thread_start(&reading[0], "read-0", reader, &x);
    thread_start(&reading[1], "read-1", reader, &x);
    stage_all(&x);
    chan_close(x.commits);
    thread_join(&committing);
    while (!atomic_load(&x.failed) && (atomic_load(&x.reads) < 10 || x.applied < 3)) {
        clock_fake_advance(&x.bed.clock, 1000);
        store_bed_seal(&x.bed);
        build(&x);
    }
    atomic_store(&x.stop, true);
    thread_join(&building);
    drop(atomic_load(&x.held));
    thread_join(&reading[0]);
    thread_join(&reading[1]);
    assert_false(atomic_load(&x.failed));
    assert_int_equal(total(&x, &e), PUSHES);
    chan_free(x.commits);
    store_bed_deinit(&x.bed);
}

static void test_threads(void **state)
{
    (void)state;
    run(64 * MIB);
}

static void test_threads_without_room(void **state)
{
    (void)state;
    run(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
