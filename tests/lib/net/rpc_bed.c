/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/rpc_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/rpc/rpc_net.h"
#include "tests/lib/test_port.h"

enum { PORTS = 16 };

static void seeded_random(struct env *env, void *p, size_t n)
{
    struct rpc_bed *b = env->random_state;
    uint8_t *to = p;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)prng_u64(&b->prng);
}

void rpc_bed_init(struct rpc_bed *b, unsigned kind, uint64_t seed)
{
    bool sealed = kind & RPC_BED_SEALED;

    kind &= ~RPC_BED_SEALED;
    *b = (struct rpc_bed){ .kind = (enum rpc_bed_kind)kind };
    b->env = *env_real();
    prng_init(&b->prng, seed);
    b->metrics = metrics_new();
    if (kind == RPC_BED_MEM) {
        clock_fake_init(&b->clock, 1600000000000);
        b->env.clock = &b->clock.clock;
        b->env.random = seeded_random;
        b->env.random_state = b;
        b->loop = loop_sim_new(&b->clock);
    } else {
        b->loop = loop_new(b->env.clock);
    }
    if (kind == RPC_BED_IPC) {
        (void)snprintf(b->dir, sizeof(b->dir), "/tmp/rpc-bed-XXXXXX");
        CHECK(mkdtemp(b->dir));
    }
    b->pool = pool_new("rpc-bed", kind == RPC_BED_MEM ? 0 : 1, 64);
    b->net = rpc_net_new(&b->env, b->metrics);
    if (kind == RPC_BED_MEM)
        rpc_mem_seed(b->net, seed);
    if (sealed) {
        b->keys = rpc_bed_keys("k");
        rpc_net_seal(b->net, b->keys, false);
    }
}

void rpc_bed_give_keys(struct rpc_bed *b, const struct rpc_keys *keys, bool optional)
{
    b->net->keys = keys;
    b->net->keys_optional = keys && optional;
}

struct rpc_keys *rpc_bed_keys(const char *letters)
{
    struct rpc_keys *keys;
    struct buf text;
    struct err e;

    buf_init(&text, 16 * KIB);
    for (const char *c = letters; *c; c++) {
        (void)buf_addf(&text, "id-%c: ", *c);
        for (int i = 0; i < RPC_KEY_BYTES; i++)
            (void)buf_addf(&text, "%02x", (unsigned)*c);
        (void)buf_add_c(&text, '\n');
    }
    CHECK(rpc_keys_parse(buf_str(&text), "test", &keys, &e) == 0);
    buf_deinit(&text);
    return keys;
}

void rpc_bed_deinit(struct rpc_bed *b)
{
    pool_free(b->pool);
    rpc_net_free(b->net);
    rpc_keys_free(b->keys);
    loop_free(b->loop);
    metrics_free(b->metrics);
    if (b->port)
        test_port_give_back(b->port, PORTS);
    if (b->dir[0]) {
        char command[96];

        (void)snprintf(command, sizeof(command), "rm -r %s", b->dir);
        CHECK(system(command) == 0);
    }
}

void rpc_bed_addr(struct rpc_bed *b, char ret[128])
{
    uint32_t n = b->next++;

    switch (b->kind) {
    case RPC_BED_TCP:
        if (!b->port)
            b->port = test_port_new(PORTS);
        if (n < PORTS)
            (void)snprintf(ret, 128, "tcp://127.0.0.1:%u", b->port + n);
        else /* unused: servers of other tests must not be called */
            (void)snprintf(ret, 128, "tcp://127.250.%u.%u:1", n >> 8, n & 255);
        break;
    case RPC_BED_IPC:
        (void)snprintf(ret, 128, "ipc://%s/%u", b->dir, n);
        break;
    case RPC_BED_INPROC:
        (void)snprintf(ret, 128, "inproc://n%u", n);
        break;
    case RPC_BED_MEM:
        (void)snprintf(ret, 128, "mem://n%u", n);
        break;
    }
}

struct rpc_node_opts rpc_bed_opts(struct rpc_bed *b, const char *listen)
{
    return (struct rpc_node_opts){
        .net = b->net,
        .loop = b->loop,
        .listen = listen,
        .message_max = 4 * MIB,
        .pending_max = 256,
        .heartbeat_ms = 20,
        .dead_ms = 300,
        .pool = b->pool,
        .queue_max = 8 * MIB,
        .assembly_max = 16 * MIB,
        .serving_max = 32 * MIB,
    };
}

struct rpc_node *rpc_bed_node(struct rpc_bed *b, const char *listen)
{
    struct rpc_node_opts o = rpc_bed_opts(b, listen);
    struct rpc_node *n;
    struct err e;

    if (rpc_node_new(&o, &n, &e)) {
        (void)fprintf(stderr, "%s: %s\n", listen, e.text);
        abort();
    }
    return n;
}

struct wait {
    struct rpc_bed *bed;
    bool (*until)(void *cookie);
    void *cookie;
    uint64_t limit_ns;
    bool over;
};

static bool wait_over(struct wait *w)
{
    if (!w->over)
        w->over = (w->until && w->until(w->cookie)) ||
                  clock_mono_ns(loop_clock(w->bed->loop)) >= w->limit_ns;
    return w->over;
}

static void on_look(void *cookie)
{
    struct wait *w = cookie;

    if (wait_over(w))
        loop_stop(w->bed->loop);
}

/* Step by step; the clock stops at the limit. */
static void sim_run(struct wait *w)
{
    struct rpc_bed *b = w->bed;
    uint64_t at;

    while (!wait_over(w)) {
        if (loop_sim_next(b->loop, &at) && at <= w->limit_ns) {
            CHECK(loop_sim_step(b->loop));
        } else {
            at = clock_mono_ns(loop_clock(b->loop));
            clock_fake_advance(&b->clock, (int64_t)((w->limit_ns - at) / 1000000));
        }
    }
}

bool rpc_bed_run(struct rpc_bed *b, bool (*until)(void *cookie), void *cookie, uint64_t limit_ms)
{
    struct wait w = { b, until, cookie, clock_mono_ns(loop_clock(b->loop)) + limit_ms * 1000000,
                      false };

    if (b->kind == RPC_BED_MEM) {
        sim_run(&w);
    } else {
        struct timer *t = loop_timer_new(b->loop, on_look, &w);

        loop_timer_start(t, 1, 1);
        loop_run(b->loop);
        loop_timer_free(t);
    }
    return !until || until(cookie);
}

void rpc_bed_sleep(struct rpc_bed *b, uint64_t ms)
{
    (void)rpc_bed_run(b, NULL, NULL, ms);
}

uint64_t rpc_bed_metric(struct rpc_bed *b, const char *name)
{
    struct buf out;
    uint64_t v = 0;
    struct str rest, line;
    bool more = true;

    buf_init(&out, 4 * MIB);
    metrics_render(b->metrics, &out);
    rest = buf_str(&out);
    while (str_next(&rest, '\n', &more, &line)) {
        if (str_starts(line, str_c(name)) && line.ptr[strlen(name)] == ' ')
            CHECK(str_u64(str_sub(line, strlen(name) + 1, line.len), &v));
    }
    buf_deinit(&out);
    return v;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct rpc_bed_call *c = cookie;

    c->ends++;
    c->code = err ? err->code : 0;
    (void)snprintf(c->text, sizeof(c->text), "%s", err ? err->text : "");
    c->again_s = err ? err->again_s : 0;
    buf_reset(&c->reply);
    CHECK(buf_add_str(&c->reply, reply));
}

void rpc_bed_call(struct rpc_bed_call *c, struct rpc_peer *p, enum rpc_method m, struct str payload,
                  uint64_t deadline_ms)
{
    struct buf b;

    *c = (struct rpc_bed_call){ 0 };
    buf_init(&c->reply, SIZE_MAX);
    buf_init(&b, SIZE_MAX);
    CHECK(buf_add_str(&b, payload));
    c->id = rpc_send(p, m, &b, deadline_ms, on_done, c);
    CHECK(c->id && c->ends == 0 && b.len == 0);
}

void rpc_bed_call_deinit(struct rpc_bed_call *c)
{
    buf_deinit(&c->reply);
}

static bool call_ended(void *cookie)
{
    return ((struct rpc_bed_call *)cookie)->ends > 0;
}

int rpc_bed_end(struct rpc_bed *b, struct rpc_bed_call *c)
{
    CHECK(rpc_bed_run(b, call_ended, c, 60000));
    CHECK(c->ends == 1);
    return c->code;
}

static void serve_echo(void *cookie, struct rpc_call *call, struct str payload)
{
    struct buf b;

    (void)cookie;
    buf_init(&b, SIZE_MAX);
    CHECK(buf_add_str(&b, payload));
    rpc_reply(call, &b);
}

void rpc_bed_echo(struct rpc_node *n, enum rpc_method m)
{
    rpc_serve(n, m, serve_echo, NULL);
}

void rpc_bed_bytes(struct buf *out, size_t n, uint64_t seed)
{
    struct prng p;

    prng_init(&p, seed);
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t v = prng_u64(&p);

        CHECK(buf_add(out, &v, MIN(sizeof(v), n - i)));
    }
}
