/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_bed: see copy_bed.h. A replica that took a copy is stopped, the copy is put in place of its
 * database, and it is opened again, as an ingester does it.
 */
#include "tests/lib/repl/copy_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/wr.h"
#include "common/repl/copy_in.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_bootstrap.h"
#include "common/sys/thread.h"
#include "tests/lib/store/kv_dir.h"

struct copy_bed copy_bed;

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return copy_bed.m[name[1] - '0'].addr;
}

static void tell(void *cookie)
{
    (void)cookie;
    copy_bed.posted = false;
    for (int i = 0; i < COPY_BED_NODES; i++)
        if (copy_bed.m[i].node)
            repl_node_record(copy_bed.m[i].node, &copy_bed.rec);
}

void copy_bed_tell_soon(void)
{
    if (!copy_bed.posted)
        loop_post(copy_bed.bed.loop, tell, NULL);
    copy_bed.posted = true;
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    struct repl_record next;

    (void)cookie;
    if (copy_bed.rec.term != term || copy_bed.rec.established)
        return;
    record_established(&copy_bed.rec, &next);
    copy_bed.rec = next;
    copy_bed_tell_soon();
}

static void on_failed(void *cookie, const struct err *why)
{
    (void)cookie;
    fail_msg("%s", why->text);
}

static void on_reopened(void *cookie)
{
    copy_bed_node_up(cookie);
}

static void stop_it(void *cookie)
{
    struct copy_member *m = cookie;

    if (!m->node)
        return;
    repl_node_stop(m->node, on_reopened, m);
    m->node = NULL;
}

static void on_copied(void *cookie)
{
    loop_post(copy_bed.bed.loop, stop_it, cookie);
}

static uint64_t on_room(void *cookie)
{
    return ((const struct copy_member *)cookie)->room;
}

static int on_call(void *cookie, const char *what, const char *path)
{
    struct copy_member *m = cookie;

    (void)path;
    if (!strcmp(what, "link"))
        while (__atomic_load_n(&m->hold, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&m->held, true, __ATOMIC_RELEASE);
            (void)usleep(1000);
        }
    return __atomic_add_fetch(&m->calls, 1, __ATOMIC_RELAXED) ==
                   __atomic_load_n(&m->fail_at, __ATOMIC_RELAXED)
               ? m->fail_code
               : 0;
}

static struct copy_faults faults[COPY_BED_NODES];

void copy_bed_node_up(struct copy_member *m)
{
    bool installed;
    struct err e;

    if (copy_install(m->db, m->base, NULL, &installed, &e))
        fail_msg("%s", e.text);
    faults[m->number] = (struct copy_faults){ .fails = on_call, .cookie = m };
    struct repl_node_opts o = { .hub = m->hub,
                                .shard = COPY_BED_SHARD,
                                .self = m->name,
                                .dir = m->log,
                                .db = kv_dir_open(m->db),
                                .role = on_role,
                                .establish = on_establish,
                                .failed = on_failed,
                                .log_bytes_max = 200000,
                                .segment_bytes = 50000,
                                .copy_dir = m->no_files ? NULL : m->base,
                                .copied = on_copied,
                                .room = on_room,
                                .copy_faults = &faults[m->number],
                                .cookie = m };
    if (repl_node_new(&o, &m->node, &e))
        fail_msg("%s", e.text);
    m->opened++;
    repl_node_record(m->node, &copy_bed.rec);
}

static void on_gone(void *cookie)
{
    ((struct copy_member *)cookie)->gone = true;
}

static bool is_gone(void *cookie)
{
    return ((struct copy_member *)cookie)->gone;
}

static bool is_up(void *cookie)
{
    return ((struct copy_member *)cookie)->node != NULL;
}

void copy_bed_node_down(struct copy_member *m)
{
    assert_true(rpc_bed_run(&copy_bed.bed, is_up, m, COPY_BED_LIMIT_MS));
    m->gone = false;
    repl_node_stop(m->node, on_gone, m);
    m->node = NULL;
    assert_true(rpc_bed_run(&copy_bed.bed, is_gone, m, COPY_BED_LIMIT_MS));
}

void copy_bed_hub_up(struct copy_member *m)
{
    struct repl_hub_opts o = { .rpc = m->rpc,
                               .loop = copy_bed.bed.loop,
                               .metrics = copy_bed.bed.metrics,
                               .addr = addr_of,
                               .snapshot_rate = copy_bed.rate };

    m->hub = repl_hub_new(&o);
}

static void fill(struct kv *kv)
{
    struct err e;

    for (uint64_t i = 0; i < COPY_BED_ROWS; i++) {
        struct kv_batch *b = kv_batch_new();
        static char value[COPY_BED_VALUE];
        char key[8];
        put_u64be(key, i);
        for (size_t k = 0; k < COPY_BED_VALUE; k += 8)
            put_u64le(value + k, hash_u64(i * 10000 + k));
        kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8), str_n(value, COPY_BED_VALUE));
        assert_int_equal(kv_write(kv, b, false, &e), 0);
        kv_batch_free(b);
    }
}

void copy_bed_begin(uint64_t rate)
{
    struct kv *kv;
    struct err e;

    memset(&copy_bed, 0, sizeof(copy_bed));
    copy_bed.rate = rate;
    copy_bed.dir = kv_dir_new();
    rpc_bed_init(&copy_bed.bed, RPC_BED_INPROC, 1);
    copy_bed.rec = (struct repl_record){ .term = 1, .leader = "n0" };
    (void)name_set_add(&copy_bed.rec.members, "n0");
    for (int i = 0; i < COPY_BED_NODES; i++) {
        struct copy_member *m = &copy_bed.m[i];
        m->number = i;
        m->room = UINT64_MAX;
        (void)snprintf(m->name, sizeof(m->name), "n%d", i);
        (void)snprintf(m->db, sizeof(m->db), "%s/shard-%d", copy_bed.dir, i);
        (void)snprintf(m->log, sizeof(m->log), "%s/log-%d", copy_bed.dir, i);
        (void)snprintf(m->base, sizeof(m->base), "%s/copy-%d", copy_bed.dir, i);
        rpc_bed_addr(&copy_bed.bed, m->addr);
        m->rpc = rpc_bed_node(&copy_bed.bed, m->addr);
        copy_bed_hub_up(m);
    }
    kv = kv_dir_open(copy_bed.m[0].db);
    fill(kv);
    assert_int_equal(repl_adopt(rlog_fs_real(), copy_bed.m[0].log, kv, &e), 0);
    kv_close(kv);
}

void copy_bed_end(void)
{
    for (int i = 0; i < COPY_BED_NODES; i++) {
        if (copy_bed.m[i].opened)
            copy_bed_node_down(&copy_bed.m[i]);
        repl_hub_free(copy_bed.m[i].hub);
    }
    for (int i = 0; i < COPY_BED_NODES; i++)
        rpc_node_free(copy_bed.m[i].rpc);
    rpc_bed_deinit(&copy_bed.bed);
    kv_dir_remove(copy_bed.dir);
}

bool copy_bed_leads(void *cookie)
{
    const struct copy_member *m = cookie;

    return m->node && repl_node_state(m->node).role == REPLICA_LEADING;
}

static void writer(void *cookie)
{
    struct kv *k = cookie;

    for (uint64_t i = copy_bed.from; i < copy_bed.upto && !copy_bed.err.code; i++) {
        struct kv_batch *b = kv_batch_new();
        char key[8];
        put_u64be(key, i);
        kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8), STR("later"));
        if (kv_write(k, b, true, &copy_bed.err) == 0)
            err_clear(&copy_bed.err);
        kv_batch_free(b);
    }
    __atomic_store_n(&copy_bed.done, true, __ATOMIC_RELEASE);
}

static bool is_done(void *cookie)
{
    (void)cookie;
    return __atomic_load_n(&copy_bed.done, __ATOMIC_ACQUIRE);
}

void copy_bed_writes(struct copy_member *m, uint64_t from, uint64_t n)
{
    struct thread thread = { 0 };

    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_leads, m, COPY_BED_LIMIT_MS));
    struct kv *k = kv_repl_new(m->node);
    copy_bed.from = from;
    copy_bed.upto = from + n;
    copy_bed.done = false;
    thread_start(&thread, "writer", writer, k);
    assert_true(rpc_bed_run(&copy_bed.bed, is_done, NULL, COPY_BED_LIMIT_MS));
    thread_join(&thread);
    kv_close(k);
    if (copy_bed.err.code)
        fail_msg("%s", copy_bed.err.text);
}

/* The node with all entries: n0, or n2 if n0 has ended. */
static struct repl_node *whole(void)
{
    return copy_bed.m[0].node ? copy_bed.m[0].node : copy_bed.m[2].node;
}

bool copy_bed_caught_up(void *cookie)
{
    const struct copy_member *m = cookie;
    struct replica_state st, led;

    if (!m->node || !whole())
        return false;
    st = repl_node_state(m->node);
    led = repl_node_state(whole());
    return !st.no_database && st.applied > 1 && st.applied == led.last_index &&
           led.applied == led.last_index;
}

void copy_bed_same_rows(struct copy_member *m)
{
    uint64_t rows = 0;

    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_caught_up, m, COPY_BED_LIMIT_MS));
    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *a =
            kv_iter_new(repl_node_db(whole()), NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        struct kv_iter *b =
            kv_iter_new(repl_node_db(m->node), NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(a) && kv_iter_valid(b); kv_iter_next(a), kv_iter_next(b), rows++) {
            assert_true(str_eq(kv_iter_key(a), kv_iter_key(b)));
            assert_true(str_eq(kv_iter_value(a), kv_iter_value(b)));
        }
        assert_true(!kv_iter_valid(a) && !kv_iter_valid(b));
        kv_iter_free(a);
        kv_iter_free(b);
    }
    assert_true(rows > COPY_BED_ROWS);
}

uint64_t copy_bed_taken(void)
{
    return rpc_bed_metric(&copy_bed.bed, "embertree_repl_copy_taken_bytes_total");
}

uint64_t copy_bed_copies(void)
{
    return rpc_bed_metric(&copy_bed.bed, "embertree_repl_copies_total");
}

void copy_bed_learn(struct copy_member *m)
{
    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_leads, &copy_bed.m[0], COPY_BED_LIMIT_MS));
    (void)name_set_add(&copy_bed.rec.learners, m->name);
    copy_bed_tell_soon();
}

bool copy_bed_some_taken(void *cookie)
{
    (void)cookie;
    return copy_bed_taken() >= copy_bed.from;
}
