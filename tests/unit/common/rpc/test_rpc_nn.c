/* SPDX-License-Identifier: Apache-2.0
 *
 * Beside nanomsg, which nodes of former versions use: its PUSH is heard by our ear, its PULL hears
 * our pipe, every frame whole and in order, over tcp and ipc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>

#include "common/base/mem.h"
#include "common/rpc/rpc_frame.h"
#include "tests/lib/net/rpc_bed.h"

enum { CALLS = 12 };

/* Between a node and its peer stand two nanomsg sockets: what is pulled is pushed on. So every
 * frame of every call passes our pipe -> PULL, and PUSH -> our ear. */
struct relay {
    int pull, push, frames;
    void *held; /* pulled, not pushed yet; owned */
    int len;
};

static int sock(int kind, const char *listen, const char *connect)
{
    int s = nn_socket(AF_SP, kind), max = RPC_FRAME_MAX;

    assert_true(s >= 0);
    assert_int_equal(nn_setsockopt(s, NN_SOL_SOCKET, NN_RCVMAXSIZE, &max, sizeof(max)), 0);
    if (listen)
        assert_true(nn_bind(s, listen) >= 0);
    if (connect)
        assert_true(nn_connect(s, connect) >= 0);
    return s;
}

/* Moves the frames that came. Nothing may wait here: the loop runs in this thread. */
static void relay_step(struct relay *r)
{
    for (;;) {
        if (!r->held) {
            r->len = nn_recv(r->pull, &r->held, NN_MSG, NN_DONTWAIT);
            if (r->len < 0) {
                assert_int_equal(nn_errno(), EAGAIN);
                r->held = NULL;
                return;
            }
        }
        if (nn_send(r->push, &r->held, NN_MSG, NN_DONTWAIT) < 0) {
            assert_int_equal(nn_errno(), EAGAIN);
            return;
        }
        r->held = NULL;
        r->frames++;
    }
}

struct both {
    struct relay *there;
    struct rpc_bed_call *calls;
};

static bool all_ended(void *cookie)
{
    struct both *b = cookie;

    relay_step(b->there);
    for (int i = 0; i < CALLS; i++) {
        if (!b->calls[i].ends)
            return false;
    }
    return true;
}

/* Waits for a busy machine, too. */
static struct rpc_node *patient_node(struct rpc_bed *bed, const char *listen)
{
    struct rpc_node_opts o = rpc_bed_opts(bed, listen);
    struct rpc_node *n;
    struct err e;

    o.dead_ms = 20000;
    assert_int_equal(rpc_node_new(&o, &n, &e), 0);
    return n;
}

/* client ──our pipe──> PULL | PUSH ──> server's ear; the server answers to the client's ear. So the
 * client knows the server by two names: it calls one, and answers the server's pings at the
 * other. */
static void frames_pass_nanomsg_both_ways(void **state)
{
    static const size_t sizes[] = { 0, 1, 1000, 32 * KIB, 300 * KIB, 3 * MIB };
    struct rpc_bed_call calls[CALLS];
    struct relay there = { 0 };
    struct rpc_node *server, *client;
    char front[128], back[128], own[128];
    struct rpc_peer *peer;
    struct rpc_bed bed;
    struct err e;

    rpc_bed_init(&bed, (enum rpc_bed_kind)(uintptr_t)*state, 3);
    rpc_bed_addr(&bed, front);
    rpc_bed_addr(&bed, back);
    rpc_bed_addr(&bed, own);
    server = patient_node(&bed, back);
    rpc_bed_echo(server, RPC_WRITE);
    there.pull = sock(NN_PULL, front, NULL);
    there.push = sock(NN_PUSH, NULL, back);
    client = patient_node(&bed, own);
    assert_int_equal(rpc_peer_get(client, front, &peer, &e), 0);
    for (int i = 0; i < CALLS; i++) {
        struct buf b;

        buf_init(&b, SIZE_MAX);
        rpc_bed_bytes(&b, sizes[(size_t)i % ARRAY_LEN(sizes)], (uint64_t)i);
        rpc_bed_call(&calls[i], peer, RPC_WRITE, buf_str(&b), 60000);
        buf_deinit(&b);
    }
    assert_true(rpc_bed_run(&bed, all_ended, &(struct both){ &there, calls }, 60000));
    for (int i = 0; i < CALLS; i++) {
        struct buf b;

        if (calls[i].code)
            fail_msg("call %d after %d frames, of which %d are stuck: %s", i, there.frames,
                     there.held != NULL, calls[i].text);
        buf_init(&b, SIZE_MAX);
        rpc_bed_bytes(&b, sizes[(size_t)i % ARRAY_LEN(sizes)], (uint64_t)i);
        assert_true(str_eq(buf_str(&calls[i].reply), buf_str(&b)));
        buf_deinit(&b);
        rpc_bed_call_deinit(&calls[i]);
    }
    assert_true(there.frames > CALLS);
    rpc_node_free(client);
    rpc_node_free(server);
    assert_int_equal(nn_close(there.pull), 0);
    assert_int_equal(nn_close(there.push), 0);
    rpc_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        { "tcp: frames_pass_nanomsg_both_ways", frames_pass_nanomsg_both_ways, NULL, NULL,
          (void *)(uintptr_t)RPC_BED_TCP },
        { "ipc: frames_pass_nanomsg_both_ways", frames_pass_nanomsg_both_ways, NULL, NULL,
          (void *)(uintptr_t)RPC_BED_IPC },
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
