/* SPDX-License-Identifier: Apache-2.0
 *
 * Unauthenticated clients on the port of a node: odd bytes, and clients that send nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_frame.h"
#include "tests/lib/net/rpc_bed.h"

/* The hello: \0 S P \0, the sender's protocol (PUSH is 80), two zeros; then each message has
 * its length in 8 bytes before it. */
static const char hello[8] = { 0, 'S', 'P', 0, 0, 80, 0, 0 };

static int stranger(uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)(void *)&to, sizeof(to)), 0);
    return fd;
}

/* One frame, more or less. */
static void odd_frame(struct prng *p, struct buf *b)
{
    static const char *const addrs[] = { "tcp://127.0.0.1:9", "ipc:///tmp/missing", "inproc://x",
                                         "tcp://nowhere", "rubbish" };
    struct rpc_frame f = {
        .version = 1,
        .speaks_min = 1,
        .speaks_max = 1,
        .kind = (uint8_t)(1 + prng_below(p, 8)),
        .epoch = 1 + prng_below(p, 3),
        .seq = 1 + prng_below(p, 100000),
        .id = prng_below(p, 100),
        .left_ms = (uint32_t)prng_below(p, 3000),
        .addr = str_c(addrs[prng_below(p, ARRAY_LEN(addrs))]),
    };
    uint8_t head[RPC_FRAME_HEAD_MAX];
    char body[64];

    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)prng_u64(p);
    f.method = f.kind == RPC_REQUEST ? (uint16_t)(1 + prng_below(p, 9)) : 0;
    f.code = f.kind == RPC_ERROR ? (uint16_t)(1 + prng_below(p, 40)) : 0;
    f.body = str_n(body, prng_below(p, sizeof(body) + 1));
    f.total = f.raw = (uint32_t)f.body.len;
    if (f.total && prng_chance(p, 0.2) && (f.kind == RPC_REQUEST || f.kind == RPC_REPLY)) {
        f.flags = RPC_FLAG_ZSTD;
        f.raw = (uint32_t)prng_u64(p) | 1;
    }
    buf_add(b, head, rpc_frame_head(&f, head));
    buf_add_str(b, f.body);
    if (prng_chance(p, 0.3))
        b->ptr[prng_below(p, b->len)] = (char)prng_u64(p);
    if (prng_chance(p, 0.1))
        b->len = prng_below(p, b->len + 1);
}

static void strange_connection(struct prng *p, int fd)
{
    struct buf b;

    buf_init(&b, MIB);
    if (prng_chance(p, 0.8))
        buf_add(&b, hello, sizeof(hello));
    for (uint64_t i = prng_below(p, 20); i > 0; i--) {
        struct buf frame;
        uint64_t kind = prng_below(p, 10);

        buf_init(&frame, 2000);
        if (kind < 7)
            odd_frame(p, &frame);
        else
            rpc_bed_bytes(&frame, prng_below(p, 300), prng_u64(p));
        if (kind == 9)
            wr_u64be(&b, prng_u64(p) >> prng_below(p, 64)); /* absurd lengths */
        else
            wr_u64be(&b, frame.len);
        buf_add_str(&b, buf_str(&frame));
        buf_deinit(&frame);
    }
    (void)send(fd, b.ptr, b.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    buf_deinit(&b);
}

static void strangers_do_no_harm(void **state)
{
    enum { OPEN = 32 };
    int open[OPEN];
    const struct linger rst = { 1, 0 };
    struct rpc_bed_call c;
    struct rpc_node *node;
    struct rpc_bed bed;
    struct rpc_peer *self;
    uint64_t port, seed = 77;
    char addr[128];
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, seed);
    print_message("seed %ju\n", (uintmax_t)seed);
    rpc_bed_init(&bed, RPC_BED_TCP, 3);
    rpc_bed_addr(&bed, addr);
    assert_true(str_u64(str_c(strrchr(addr, ':') + 1), &port));
    node = rpc_bed_node(&bed, addr);
    rpc_bed_echo(node, RPC_WRITE);
    for (int i = 0; i < OPEN; i++)
        open[i] = stranger((uint16_t)port);
    for (int i = 0; i < 40 * OPEN; i++) {
        int fd = stranger((uint16_t)port);

        strange_connection(&p, fd);
        /* Some close at once, some after their frames were read, some without a goodbye. */
        if (prng_chance(&p, 0.8)) {
            int former = open[i % OPEN];

            open[i % OPEN] = fd;
            fd = former;
        }
        if (prng_chance(&p, 0.3))
            (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &rst, sizeof(rst));
        (void)close(fd);
        if (i % OPEN == 0)
            rpc_bed_sleep(&bed, 3);
    }
    for (int i = 0; i < OPEN; i++)
        (void)close(open[i]);
    rpc_bed_sleep(&bed, 300);
    assert_int_equal(rpc_peer_get(node, addr, &self, &e), 0);
    rpc_bed_call(&c, self, RPC_WRITE, STR("still here"), 5000);
    if (rpc_bed_end(&bed, &c))
        fail_msg("%s", c.text);
    rpc_bed_call_deinit(&c);
    assert_true(rpc_bed_metric(&bed, "embertree_rpc_dropped_total{reason=\"checksum\"}") > 0);
    assert_true(rpc_bed_metric(&bed, "embertree_rpc_dropped_total{reason=\"magic\"}") > 0);
    assert_true(rpc_bed_metric(&bed, "embertree_rpc_dropped_total{reason=\"route\"}") > 0);
    assert_true(rpc_bed_metric(&bed, "embertree_rpc_frames_total{direction=\"in\"}") > 1000);
    assert_true(rpc_bed_metric(&bed, "embertree_rpc_stale_replies_total") > 0);
    rpc_node_free(node);
    rpc_bed_deinit(&bed);
}

static bool is_closed(int fd)
{
    char rest[16];
    ssize_t n;

    while ((n = recv(fd, rest, sizeof(rest), MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || errno != EAGAIN;
}

/* They say hello, `part` bytes of a frame, and nothing more. Returns how many were closed; the
 * newest is not, and all are closed behind it. */
static size_t strangers_wait(struct rpc_bed *bed, uint16_t port, size_t count, size_t part)
{
    int *fds = XNEW_ARRAY(int, count);
    size_t closed = 0;
    struct buf b;

    buf_init(&b, MIB);
    buf_add(&b, hello, sizeof(hello));
    if (part) {
        wr_u64be(&b, RPC_FRAME_MAX);
        rpc_bed_bytes(&b, part, 1);
    }
    for (size_t i = 0; i < count; i++) {
        fds[i] = stranger(port);
        for (size_t at = 0; at < b.len;) {
            ssize_t n = send(fds[i], b.ptr + at, b.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
            at += n > 0 ? (size_t)n : 0;
            if (n < 0)
                rpc_bed_sleep(bed, 1);
        }
        if (i % 64 == 0)
            rpc_bed_sleep(bed, 1);
    }
    rpc_bed_sleep(bed, 300);
    assert_false(is_closed(fds[count - 1]));
    for (size_t i = 0; i < count; i++) {
        closed += is_closed(fds[i]);
        (void)close(fds[i]);
    }
    buf_deinit(&b);
    xfree(fds);
    return closed;
}

/* A port that any client may reach: clients that never send a valid frame take neither all places
 * nor much memory, and no node is refused because of them. */
static void strangers_who_wait_are_few(void **state)
{
    struct rpc_bed_call c;
    struct rpc_node *node;
    struct rpc_bed bed;
    struct rpc_peer *self;
    struct rlimit files;
    uint64_t port;
    char addr[128];
    struct err e;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 10000) {
        print_message("SKIPPED: 10,000 open files are not allowed here\n");
        skip();
    }
    rpc_bed_init(&bed, RPC_BED_TCP, 4);
    rpc_bed_addr(&bed, addr);
    assert_true(str_u64(str_c(strrchr(addr, ':') + 1), &port));
    node = rpc_bed_node(&bed, addr);
    rpc_bed_echo(node, RPC_WRITE);
    assert_int_equal(rpc_peer_get(node, addr, &self, &e), 0);
    for (int round = 0; round < 3; round++) {
        size_t closed = round == 0   ? 0
                        : round == 1 ? strangers_wait(&bed, (uint16_t)port, 4200, 0)
                                     : strangers_wait(&bed, (uint16_t)port, 400, 200 * KIB);
        assert_in_range(closed, round ? 50 : 0, round ? 399 : 0);
        rpc_bed_call(&c, self, RPC_WRITE, STR("still here"), 5000);
        if (rpc_bed_end(&bed, &c))
            fail_msg("%s", c.text);
        rpc_bed_call_deinit(&c);
    }
    /* The one connection of the node to itself was the first of all, and the same all the time. */
    assert_int_equal(rpc_bed_metric(&bed, "embertree_rpc_reconnects_total"), 0);
    rpc_node_free(node);
    rpc_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_do_no_harm),
        cmocka_unit_test(strangers_who_wait_are_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
