/* SPDX-License-Identifier: Apache-2.0
 *
 * How long it takes until a shard has one copy more: a RocksDB of MIB mebibytes (first argument,
 * 512 by default; values do not compress) is adopted, led alone, and a second node with an empty
 * folder learns it over tcp on loopback, with SEALED=1 through AEAD, with ROWS=1 as rows and not as
 * files, with RATE=mebibytes a second at most. Beside it, cp of the same folder and sync. CPU is
 * that of both nodes, which are one process here. The time ends when the new node has its database
 * open and has applied all its log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/repl/copy_in.h"
#include "common/repl/repl_bootstrap.h"
#include "common/repl/repl_node.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/store/kv_dir.h"

enum { NODES = 2, VALUE = 4096, ROWS_ONCE = 64, LIMIT_MS = 3600 * 1000, DEAD_MS = 30000 };

static struct {
    struct rpc_bed bed;
    char names[NODES][4], addrs[NODES][128], dirs[NODES][300], logs[NODES][300], copies[NODES][300];
    bool rows;
    struct rpc_node *rpc[NODES];
    struct repl_hub *hubs[NODES];
    struct repl_node *nodes[NODES];
    struct repl_record rec;
    int gone;
} t;

static double now_s(void)
{
    return (double)clock_mono_ns(clock_real()) / 1e9;
}

static double cpu_s(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void die(const struct err *e)
{
    (void)fprintf(stderr, "bench_rebalance: %s\n", e->text);
    exit(1);
}

static struct kv *open_kv(int i)
{
    struct kv_opts o = { .dir = t.dirs[i],
                         .block_cache_bytes = 64 * MIB,
                         .memtable_bytes = 64 * MIB };
    struct kv *kv;
    struct err e;

    if (kv_rocks_open(&o, &kv, &e))
        die(&e);
    return kv;
}

/* Keys in order within each column family, as most rows of a shard come. */
static void fill(struct kv *kv, uint64_t rows)
{
    static const enum kv_cf cfs[] = { KV_FINE, KV_COARSE, KV_META, KV_RU };
    struct kv_batch *b = kv_batch_new();
    struct prng prng;
    char key[8], value[VALUE];
    struct err e;

    prng_init(&prng, 1);
    for (uint64_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < VALUE; k += 8)
            put_u64le(value + k, prng_u64(&prng));
        put_u64be(key, i + 1);
        kv_batch_put(b, cfs[i % ARRAY_LEN(cfs)], str_n(key, 8), str_n(value, VALUE));
        if (i % ROWS_ONCE && i + 1 < rows)
            continue;
        if (kv_write(kv, b, false, &e))
            die(&e);
        kv_batch_clear(b);
    }
    if (kv_flush(kv, &e))
        die(&e);
    kv_batch_free(b);
}

static void open_node(int i, struct kv *db);

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return t.addrs[name[1] - '0'];
}

static void tell(void *cookie)
{
    (void)cookie;
    for (int i = 0; i < NODES; i++)
        if (t.nodes[i])
            repl_node_record(t.nodes[i], &t.rec);
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    (void)cookie, (void)term;
    t.rec.established = true;
    loop_post(t.bed.loop, tell, NULL);
}

static void on_failed(void *cookie, const struct err *why)
{
    (void)cookie;
    die(why);
}

static void on_stopped(void *cookie)
{
    int i = (int)(intptr_t)cookie;
    bool installed;
    struct err e;

    if (copy_install(t.dirs[i], t.copies[i], NULL, &installed, &e))
        die(&e);
    open_node(i, open_kv(i));
}

static void stop(void *cookie)
{
    int i = (int)(intptr_t)cookie;

    repl_node_stop(t.nodes[i], on_stopped, cookie);
    t.nodes[i] = NULL;
}

static void on_copied(void *cookie)
{
    loop_post(t.bed.loop, stop, cookie);
}

static void open_node(int i, struct kv *db)
{
    struct repl_node_opts o = { .hub = t.hubs[i],
                                .self = t.names[i],
                                .dir = t.logs[i],
                                .db = db,
                                .copy_dir = t.rows ? NULL : t.copies[i],
                                .copied = on_copied,
                                .cookie = (void *)(intptr_t)i,
                                .role = on_role,
                                .establish = on_establish,
                                .failed = on_failed };
    struct err e;

    if (repl_node_new(&o, &t.nodes[i], &e))
        die(&e);
    repl_node_record(t.nodes[i], &t.rec);
}

static void node_up(int i, struct kv *db)
{
    const char *rate = getenv("RATE");
    struct rpc_node_opts ro;
    struct err e;

    (void)snprintf(t.names[i], sizeof(t.names[i]), "n%d", i);
    rpc_bed_addr(&t.bed, t.addrs[i]);
    ro = rpc_bed_opts(&t.bed, t.addrs[i]);
    ro.dead_ms = DEAD_MS;
    if (rpc_node_new(&ro, &t.rpc[i], &e))
        die(&e);
    struct repl_hub_opts ho = { .rpc = t.rpc[i],
                                .loop = t.bed.loop,
                                .metrics = t.bed.metrics,
                                .addr = addr_of,
                                .snapshot_rate = rate ? strtoull(rate, NULL, 10) * MIB : 0 };
    t.hubs[i] = repl_hub_new(&ho);
    open_node(i, db);
}

static bool leads(void *cookie)
{
    (void)cookie;
    return repl_node_state(t.nodes[0]).role == REPLICA_LEADING;
}

static bool learned(void *cookie)
{
    struct replica_state st = { 0 };

    (void)cookie;
    if (t.nodes[1])
        st = repl_node_state(t.nodes[1]);
    return t.nodes[1] && !st.no_database && st.applied > 0 &&
           st.applied == repl_node_state(t.nodes[0]).last_index;
}

static void on_gone(void *cookie)
{
    (void)cookie;
    t.gone++;
}

static bool all_gone(void *cookie)
{
    (void)cookie;
    return t.gone == NODES;
}

static void copy(const char *dir, uint64_t mib)
{
    char command[1200];
    double began = now_s(), took;

    /* A log may go between cp's look and its copying: not a failure. */
    (void)snprintf(command, sizeof(command), "cp -r '%s' '%s/cp'; sync -f '%s/cp'", t.dirs[0], dir,
                   dir);
    CHECK(system(command) == 0);
    took = now_s() - began;
    (void)snprintf(command, sizeof(command), "rm -r '%s/cp'", dir);
    CHECK(system(command) == 0);
    (void)printf("cp and sync    %6" PRIu64 " MiB: %6.1f s, %5.0f MiB/s\n", mib, took,
                 (double)mib / took);
}

int main(int argc, char **argv)
{
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 512;
    bool sealed = getenv("SEALED") != NULL;
    char *dir = kv_dir_new();
    struct err e;

    t.rows = getenv("ROWS") != NULL;
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(t.dirs[i], sizeof(t.dirs[i]), "%s/db%d", dir, i);
        (void)snprintf(t.logs[i], sizeof(t.logs[i]), "%s/log%d", dir, i);
        (void)snprintf(t.copies[i], sizeof(t.copies[i]), "%s/copy%d", dir, i);
    }
    struct kv *db = open_kv(0);
    fill(db, mib * MIB / VALUE);
    if (repl_adopt(rlog_fs_real(), t.logs[0], db, &e))
        die(&e);
    copy(dir, mib);
    rpc_bed_init(&t.bed, RPC_BED_TCP | (sealed ? RPC_BED_SEALED : 0), 1);
    t.rec = (struct repl_record){ .term = 1, .leader = "n0" };
    (void)name_set_add(&t.rec.members, "n0");
    node_up(0, db);
    tell(NULL);
    CHECK(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    node_up(1, open_kv(1));
    (void)name_set_add(&t.rec.learners, "n1");
    double began = now_s(), cpu = cpu_s();
    tell(NULL);
    CHECK(rpc_bed_run(&t.bed, learned, NULL, LIMIT_MS));
    double took = now_s() - began;
    (void)printf("a copy more%s  %6" PRIu64 " MiB: %6.1f s, %5.0f MiB/s, CPU %.1f s; 10 GiB: %.1f "
                 "min\n",
                 sealed ? "*" : " ", mib, took, (double)mib / took, cpu_s() - cpu,
                 took * 10240 / (double)mib / 60);
    for (int i = 0; i < NODES; i++)
        repl_node_stop(t.nodes[i], on_gone, NULL);
    CHECK(rpc_bed_run(&t.bed, all_gone, NULL, LIMIT_MS));
    for (int i = 0; i < NODES; i++) {
        repl_hub_free(t.hubs[i]);
        rpc_node_free(t.rpc[i]);
    }
    rpc_bed_deinit(&t.bed);
    kv_dir_remove(dir);
    return 0;
}
