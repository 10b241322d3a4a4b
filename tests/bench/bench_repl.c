/* SPDX-License-Identifier: Apache-2.0
 *
 * What a copy costs (P7, P9): batches written by one thread into a database in memory, through a
 * log with 1, 3 and 5 replicas in this process (messages by pointer, logs in files of one disk),
 * beside the bare disk: write and fdatasync of the same bytes. CPU is that of the whole process, so
 * with n replicas it is what n machines spend together.
 *
 * "begun": the same batches by kv_begin, as sealing and chores write; each 16th is waited for.
 * p50 and p99 are for how long the writer stood; the last figure is how many times as many batches
 * a second there are as of those that are each waited for, in the same run.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_node.h"
#include "common/sys/thread.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/store/kv_dir.h"

enum { NODES_MAX = 5, WRITES = 300, BEGUN = 16 };

static struct {
    struct rpc_bed bed;
    char names[NODES_MAX][4], addrs[NODES_MAX][128];
    struct rpc_node *rpc[NODES_MAX];
    struct repl_hub *hubs[NODES_MAX];
    struct repl_node *nodes[NODES_MAX];
    struct repl_record rec;
    int n, gone;
    size_t bytes;
    uint64_t took[WRITES]; /* ns */
    bool begun;            /* not each is waited for */
    double all_ms;         /* of the writer */
    bool done;
} t;

static uint64_t now_ns(void)
{
    return clock_mono_ns(clock_real());
}

static double cpu_ms(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *what, double cpu)
{
    qsort(t.took, WRITES, sizeof(*t.took), by_time);
    (void)printf("%-12s %7zu bytes: p50 %7.0f us, p99 %7.0f us, CPU %6.0f us a write\n", what,
                 t.bytes, (double)t.took[WRITES / 2] / 1e3, (double)t.took[WRITES * 99 / 100] / 1e3,
                 cpu * 1e3 / WRITES);
    (void)fflush(stdout);
}

static void bare(const char *dir)
{
    char path[300], *bytes = xmalloc(t.bytes);
    double cpu = cpu_ms();

    (void)snprintf(path, sizeof(path), "%s/bare", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    memset(bytes, 'x', t.bytes);
    for (int i = 0; i < WRITES; i++) {
        uint64_t began = now_ns();
        CHECK(write(fd, bytes, t.bytes) == (ssize_t)t.bytes && fdatasync(fd) == 0);
        t.took[i] = now_ns() - began;
    }
    (void)close(fd);
    xfree(bytes);
    report("bare disk", cpu_ms() - cpu);
}

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return t.addrs[name[1] - '0'];
}

static void tell(void *cookie)
{
    (void)cookie;
    for (int i = 0; i < t.n; i++)
        repl_node_record(t.nodes[i], &t.rec);
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    (void)cookie;
    if (t.rec.established || term != t.rec.term)
        return;
    t.rec.established = true;
    loop_post(t.bed.loop, tell, NULL);
}

static void on_gone(void *cookie)
{
    (void)cookie;
    t.gone++;
}

static bool all_gone(void *cookie)
{
    (void)cookie;
    return t.gone == t.n;
}

static bool leads(void *cookie)
{
    (void)cookie;
    return repl_node_state(t.nodes[0]).role == REPLICA_LEADING;
}

static bool is_done(void *cookie)
{
    (void)cookie;
    return __atomic_load_n(&t.done, __ATOMIC_ACQUIRE);
}

static void writer(void *cookie)
{
    struct kv *k = kv_repl_new(t.nodes[0]);
    struct kv_batch *b = kv_batch_new();
    char key[8], *value = xmalloc(t.bytes);
    struct err e;

    (void)cookie;
    memset(value, 'x', t.bytes);
    uint64_t start = now_ns(), number;
    for (uint64_t i = 0; i < WRITES; i++) {
        bool waits = !t.begun || i % BEGUN == BEGUN - 1 || i == WRITES - 1;
        put_u64be(key, i % 16);
        kv_batch_clear(b);
        kv_batch_put(b, KV_RAW, str_n(key, 8), str_n(value, t.bytes));
        uint64_t began = now_ns();
        CHECK((waits ? kv_write(k, b, true, &e) : kv_begin(k, b, &number, &e)) == 0);
        t.took[i] = now_ns() - began;
    }
    t.all_ms = (double)(now_ns() - start) / 1e6;
    kv_batch_free(b);
    xfree(value);
    kv_close(k);
    __atomic_store_n(&t.done, true, __ATOMIC_RELEASE);
}

/* All batches, once; ms. */
static double write_all(void)
{
    struct thread thread = { 0 };

    t.done = false;
    thread_start(&thread, "writer", writer, NULL);
    CHECK(rpc_bed_run(&t.bed, is_done, NULL, 120000));
    thread_join(&thread);
    return t.all_ms;
}

static void replicas(const char *dir, int n)
{
    char path[300], what[32];
    struct err e;

    rpc_bed_init(&t.bed, RPC_BED_INPROC, 1);
    t.n = n;
    t.gone = 0;
    t.rec = (struct repl_record){ .term = 1, .leader = "n0" };
    for (int i = 0; i < n; i++) {
        (void)snprintf(t.names[i], sizeof(t.names[i]), "n%d", i);
        (void)name_set_add(&t.rec.members, t.names[i]);
        rpc_bed_addr(&t.bed, t.addrs[i]);
        t.rpc[i] = rpc_bed_node(&t.bed, t.addrs[i]);
        struct repl_hub_opts ho = {
            .rpc = t.rpc[i], .loop = t.bed.loop, .metrics = t.bed.metrics, .addr = addr_of
        };
        t.hubs[i] = repl_hub_new(&ho);
        (void)snprintf(path, sizeof(path), "%s/%zu-%d-%d", dir, t.bytes, n, i);
        struct repl_node_opts o = { .hub = t.hubs[i],
                                    .self = t.names[i],
                                    .dir = path,
                                    .db = kv_mem_new(NULL),
                                    .role = on_role,
                                    .establish = on_establish };
        CHECK(repl_node_new(&o, &t.nodes[i], &e) == 0);
    }
    tell(NULL);
    CHECK(rpc_bed_run(&t.bed, leads, NULL, 10000));
    t.begun = false;
    double cpu = cpu_ms(), each = write_all();
    (void)snprintf(what, sizeof(what), "%d replica%s", n, n > 1 ? "s" : "");
    report(what, cpu_ms() - cpu);
    t.begun = true;
    cpu = cpu_ms();
    double begun = write_all();
    (void)snprintf(what, sizeof(what), "%d begun", n);
    report(what, cpu_ms() - cpu);
    (void)printf("%-12s %.1f times as many batches a second\n", what, each / begun);
    for (int i = 0; i < n; i++)
        repl_node_stop(t.nodes[i], on_gone, NULL);
    CHECK(rpc_bed_run(&t.bed, all_gone, NULL, 10000));
    for (int i = 0; i < n; i++) {
        repl_hub_free(t.hubs[i]);
        rpc_node_free(t.rpc[i]);
    }
    rpc_bed_deinit(&t.bed);
}

int main(void)
{
    static const size_t sizes[] = { 4096, 100000, 1000000 };
    char *dir = kv_dir_new();

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        t.bytes = sizes[i];
        bare(dir);
        replicas(dir, 1);
        replicas(dir, 3);
        replicas(dir, 5);
    }
    kv_dir_remove(dir);
    return 0;
}
