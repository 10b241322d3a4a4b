/* SPDX-License-Identifier: Apache-2.0
 *
 * Round trips between two nodes on one loop, over each transport, one at a time (latency) and 32 at
 * once (throughput), beside the same bytes through a socketpair there and back (what the kernel
 * costs). Bodies do not compress. Both ends share the loop, so a real pair has twice the CPU.
 * Then what a cluster key costs: the same sealed, and one frame alone, sealed and opened beside
 * its checksum and a copy of it.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/rpc/rpc_seal.h"
#include "tests/lib/net/rpc_bed.h"

enum { RUN_MS = 400 };

struct run {
    struct rpc_peer *peer;
    struct str body;
    uint64_t done, failed;
    int under_way;
    bool stop;
};

static void next(struct run *r);

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct run *r = cookie;

    (void)reply;
    r->under_way--;
    r->done++;
    r->failed += err != NULL;
    if (!r->stop)
        next(r);
}

static void next(struct run *r)
{
    struct buf b;

    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, r->body);
    r->under_way++;
    (void)rpc_send(r->peer, RPC_WRITE, &b, 10000, on_done, r);
}

static bool idle(void *cookie)
{
    return ((struct run *)cookie)->under_way == 0;
}

static bool up(void *cookie)
{
    return rpc_peer_up(cookie);
}

static double cpu_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The kernel's part: write and read it all, twice. */
static double socketpair_us(struct str body)
{
    char *to = xmalloc(body.len);
    int fd[2], rounds = body.len > 100000 ? 200 : 2000;
    double began;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    began = cpu_us();
    for (int i = 0; i < 2 * rounds; i++) {
        for (size_t at = 0; at < body.len;) {
            size_t n = MIN(body.len - at, (size_t)32768);

            CHECK(write(fd[0], body.ptr + at, n) == (ssize_t)n);
            for (size_t got = 0; got < n;) {
                ssize_t k = read(fd[1], to + at + got, n - got);

                CHECK(k > 0);
                got += (size_t)k;
            }
            at += n;
        }
    }
    began = (cpu_us() - began) / rounds;
    (void)close(fd[0]);
    (void)close(fd[1]);
    xfree(to);
    return began;
}

static void measure(unsigned kind, const char *name, size_t size, int window)
{
    struct rpc_node *server, *client;
    struct run r = { 0 };
    struct rpc_bed bed;
    struct buf body;
    char addr[128];
    struct err e;
    double cpu, wall_us;
    uint64_t began;

    rpc_bed_init(&bed, kind, 1);
    rpc_bed_addr(&bed, addr);
    server = rpc_bed_node(&bed, addr);
    client = rpc_bed_node(&bed, "");
    rpc_bed_echo(server, RPC_WRITE);
    buf_init(&body, SIZE_MAX);
    rpc_bed_bytes(&body, size, 1);
    r.body = buf_str(&body);
    CHECK(rpc_peer_get(client, addr, &r.peer, &e) == 0);
    CHECK(rpc_bed_run(&bed, up, r.peer, 5000));
    began = clock_mono_ns(bed.env.clock);
    cpu = cpu_us();
    for (int i = 0; i < window; i++)
        next(&r);
    rpc_bed_sleep(&bed, RUN_MS);
    r.stop = true;
    CHECK(rpc_bed_run(&bed, idle, &r, 20000));
    cpu = cpu_us() - cpu;
    wall_us = (double)(clock_mono_ns(bed.env.clock) - began) / 1e3;
    CHECK(r.failed == 0 && r.done > 0);
    (void)printf("%-7s %8zu B  %2d at once  %9.1f us each  %9.1f us CPU  = %5.1f x socketpair\n",
                 name, size, window, wall_us / (double)r.done, cpu / (double)r.done,
                 cpu / (double)r.done / socketpair_us(r.body));
    rpc_node_free(client);
    rpc_node_free(server);
    buf_deinit(&body);
    rpc_bed_deinit(&bed);
}

/* CPU of `rounds` times fn, each, in microseconds: the least of five, against noise. */
static double least_us(void (*fn)(void *cookie), void *cookie, int rounds)
{
    double least = 1e12;

    for (int run = 0; run < 5; run++) {
        double began = cpu_us();

        for (int i = 0; i < rounds; i++)
            fn(cookie);
        least = MIN(least, (cpu_us() - began) / rounds);
    }
    return least;
}

struct crypto {
    struct rpc_aead *seal, *open;
    uint8_t nonce[RPC_NONCE_BYTES], head[RPC_SEAL_HEAD];
    struct str frame;
    uint8_t *sealed, *opened;
    uint32_t sum;
};

static void do_copy(void *cookie)
{
    struct crypto *c = cookie;

    memcpy(c->opened, c->frame.ptr, c->frame.len);
    c->sum += ((volatile uint8_t *)c->opened)[c->frame.len / 2]; /* or nothing is copied */
}

static void do_sum(void *cookie)
{
    struct crypto *c = cookie;

    c->sum += crc32c(0, c->frame.ptr, c->frame.len);
}

static void do_seal(void *cookie)
{
    struct crypto *c = cookie;

    c->nonce[4]++; /* the key dies with this program */
    rpc_aead_seal(c->seal, c->nonce, str_n(c->head, sizeof(c->head)), c->frame, STR_NULL,
                  c->sealed);
}

static void do_open(void *cookie)
{
    struct crypto *c = cookie;

    CHECK(rpc_aead_open(c->open, c->nonce, str_n(c->head, sizeof(c->head)),
                        str_n(c->sealed, c->frame.len + RPC_TAG_BYTES), c->opened));
}

static void do_greeting_key(void *cookie)
{
    struct rpc_seal s = { .cls = RPC_SEAL_GREETING, .epoch = 1 };
    uint8_t key[RPC_KEY_BYTES] = { 1 };

    (void)cookie;
    rpc_seal_greeting_key(key, &s, key);
    rpc_aead_free(rpc_aead_new(key, true));
}

static void measure_frame(size_t size)
{
    uint8_t key[RPC_KEY_BYTES] = { 7 };
    struct crypto c = { 0 };
    int rounds = size > 100000 ? 300 : 5000;
    double copy, sum, seal, open;
    struct buf body;

    buf_init(&body, SIZE_MAX);
    rpc_bed_bytes(&body, size, 1);
    c.frame = buf_str(&body);
    c.seal = rpc_aead_new(key, true);
    c.open = rpc_aead_new(key, false);
    c.sealed = xmalloc(size + RPC_TAG_BYTES);
    c.opened = xmalloc(size + RPC_TAG_BYTES);
    copy = least_us(do_copy, &c, rounds);
    sum = least_us(do_sum, &c, rounds);
    seal = least_us(do_seal, &c, rounds);
    open = least_us(do_open, &c, rounds);
    (void)printf("frame   %8zu B  seal %8.2f us  open %8.2f us  (%4.1f GB/s)  beside crc32c %7.2f "
                 "us  memcpy %7.2f us\n",
                 size, seal, open, (double)size / 1e3 / seal, sum, copy);
    rpc_aead_free(c.seal);
    rpc_aead_free(c.open);
    xfree(c.sealed);
    xfree(c.opened);
    buf_deinit(&body);
}

int main(void)
{
    static const size_t sizes[] = { 1024, 65536, 1 << 20 };
    static const int windows[] = { 1, 32 };
    static const size_t frames[] = { 128, 1024, 4096, 65536, 256 * KIB };

    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        for (size_t w = 0; w < ARRAY_LEN(windows); w++) {
            int window = sizes[s] > 100000 ? MIN(windows[w], 6) : windows[w];

            measure(RPC_BED_TCP, "tcp", sizes[s], window);
            measure(RPC_BED_IPC, "ipc", sizes[s], window);
            measure(RPC_BED_INPROC, "inproc", sizes[s], window);
            measure(RPC_BED_TCP | RPC_BED_SEALED, "tcp+key", sizes[s], window);
            measure(RPC_BED_IPC | RPC_BED_SEALED, "ipc+key", sizes[s], window);
        }
    }
    for (size_t s = 0; s < ARRAY_LEN(frames); s++)
        measure_frame(frames[s]);
    (void)printf("key of a ping, or of a run: %.2f us\n", least_us(do_greeting_key, NULL, 2000));
    return 0;
}
