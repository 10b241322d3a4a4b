/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/dist_bed.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/cluster/view/view.h"
#include "common/role/core/options.h"

#define FLAGS_MAX 24

static const struct role *const bed_roles[] = { &distributor_role, NULL };

static void bed_random(struct env *env, void *p, size_t n)
{
    struct dist_bed *b = env->random_state;
    uint8_t *to = p;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)prng_u64(&b->prng);
}

/* ---- ingesters ----------------------------------------------------------------------------- */

static void ack(struct dist_bed *b, struct rpc_call *call)
{
    Embertree__WriteReply m = EMBERTREE__WRITE_REPLY__INIT;
    struct buf out;

    m.stored = 1;
    m.duplicates = b->duplicates;
    buf_init(&out, KIB);
    char *to = buf_room(&out, embertree__write_reply__get_packed_size(&m));
    out.len += embertree__write_reply__pack(&m, (uint8_t *)(void *)to);
    rpc_reply(call, &out);
}

static void on_write(void *cookie, struct rpc_call *call, struct str payload)
{
    struct dist_bed_ingester *in = cookie;
    struct dist_bed *b = in->bed;
    struct err e;

    vec_push(&b->writes, str_n(xmemdup(payload.ptr, payload.len), payload.len));
    vec_push(&b->writes_to, in->number);
    if (b->writes.len <= b->fail_first || b->answer == DIST_BED_SILENT) {
        CHECK(b->silent_len < ARRAY_LEN(b->silent));
        b->silent[b->silent_len++] = call;
    } else if (b->answer == DIST_BED_FAIL) {
        err_set_again(&e, b->fail, b->again_s, "the ingester says no");
        rpc_fail(call, &e);
    } else {
        ack(b, call);
    }
}

static struct rpc_node_opts node_opts(struct dist_bed *b, const char *listen)
{
    return (struct rpc_node_opts){ .net = b->net,
                                   .loop = b->world.loop,
                                   .listen = listen,
                                   .message_max = 64 * MIB,
                                   .pending_max = 256,
                                   .heartbeat_ms = 100,
                                   .dead_ms = 500 };
}

void dist_bed_start_ingester(struct dist_bed *b, size_t i)
{
    struct dist_bed_ingester *in = &b->ingesters[i];
    struct rpc_node_opts o = node_opts(b, in->addr);
    struct err e;

    CHECK(rpc_node_new(&o, &in->node, &e) == 0);
    rpc_serve(in->node, RPC_WRITE, on_write, in);
}

/* Calls it has not answered are gone with it. */
void dist_bed_kill_ingester(struct dist_bed *b, size_t i)
{
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "killed");
    for (size_t k = 0; k < b->silent_len; k++)
        rpc_fail(b->silent[k], &e);
    b->silent_len = 0;
    rpc_node_free(b->ingesters[i].node);
    b->ingesters[i].node = NULL;
}

/* ---- the role ------------------------------------------------------------------------------ */

static void load_conf(struct dist_bed *b, const char *const *flags)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(bed_roles, tables), at = 0;
    char ingesters[256] = "--cluster.ingesters=";
    char *argv[FLAGS_MAX] = { (char *)(uintptr_t) "test", ingesters,
                              (char *)(uintptr_t) "--cluster.heartbeat=100ms",
                              (char *)(uintptr_t) "--cluster.dead_after=500ms" };
    int argc = 4;
    struct err e;

    at = strlen(ingesters);
    for (size_t i = 0; i < b->ingesters_len; i++)
        at += (size_t)snprintf(ingesters + at, sizeof(ingesters) - at, "%s%s", i ? "," : "",
                               b->ingesters[i].addr);
    for (; flags && *flags; flags++) {
        CHECK(argc < FLAGS_MAX);
        argv[argc++] = (char *)(uintptr_t)*flags;
    }
    if (conf_load(tables, n, argc, argv, &b->conf, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

void dist_bed_init(struct dist_bed *b, size_t ingesters, const char *const *flags)
{
    struct err e;

    *b = (struct dist_bed){ .ingesters_len = ingesters, .fail = ERR_INTERNAL };
    net_world_init(&b->world);
    fake_doorman(b->world.server, &b->door);
    b->world.budget.max = 256 * MIB;
    prng_init(&b->prng, 42);
    b->env = *env_real();
    b->env.clock = &b->world.clock.clock;
    b->env.random = bed_random;
    b->env.random_state = b;
    b->net = rpc_net_new(&b->env, b->world.metrics);
    for (size_t i = 0; i < ingesters; i++) {
        b->ingesters[i].bed = b;
        b->ingesters[i].number = i;
        snprintf(b->ingesters[i].addr, sizeof(b->ingesters[i].addr), "mem://ingester%zu", i);
        dist_bed_start_ingester(b, i);
    }
    load_conf(b, flags);
    b->ctx = (struct role_ctx){ .env = &b->env,
                                .loop = b->world.loop,
                                .pool = b->world.pool,
                                .http = b->world.server,
                                .rpc = b->net,
                                .metrics = b->world.metrics,
                                .in_flight = &b->world.budget,
                                .conf = b->conf,
                                .common = conf_get(b->conf, &http_options),
                                .cluster = conf_get(b->conf, &cluster_options),
                                .view = options_view(conf_get(b->conf, &cluster_options)),
                                .tenancy = conf_get(b->conf, &tenancy_options),
                                .data = conf_get(b->conf, &data_options),
                                .data_dir = "/nonexistent",
                                .memory_limit = 512 * MIB,
                                .simulated = true };
    if (distributor_role.start(&b->ctx, &b->self, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    b->client = net_connect(&b->world);
    net_pass(&b->world, 1000); /* the peers answer their first pings */
}

static void on_drained(void *cookie)
{
    ((struct dist_bed *)cookie)->drained = true;
}

void dist_bed_stop(struct dist_bed *b)
{
    if (!b->self)
        return;
    distributor_role.drain(b->self, on_drained, b);
    for (int i = 0; i < 600 && !b->drained; i++)
        net_pass(&b->world, 100);
    CHECK(b->drained);
    distributor_role.free(b->self);
    b->self = NULL;
}

void dist_bed_deinit(struct dist_bed *b)
{
    dist_bed_stop(b);
    for (size_t i = 0; i < b->ingesters_len; i++)
        if (b->ingesters[i].node)
            dist_bed_kill_ingester(b, i);
    if (!b->client->closed && !b->client->ended)
        net_end(b->client, false);
    net_pass(&b->world, 1000);
    net_mem_free(b->client);
    view_free(b->ctx.view);
    rpc_net_free(b->net);
    vec_for (i, &b->writes)
        xfree((void *)(uintptr_t)b->writes.ptr[i].ptr);
    vec_free(&b->writes);
    vec_free(&b->writes_to);
    conf_free(b->conf);
    net_world_deinit(&b->world);
}

/* ---- the client ---------------------------------------------------------------------------- */

void dist_bed_send(struct dist_bed *b, const char *target, const char *headers, struct str body)
{
    struct buf out;

    buf_init(&out, 256 * MIB);
    buf_addf(&out, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n", target, body.len,
             headers);
    buf_add_str(&out, body);
    net_send(b->client, buf_str(&out));
    buf_deinit(&out);
}

const char *dist_bed_reply(struct dist_bed *b, uint64_t ms)
{
    for (uint64_t passed = 0; b->client->out.len == 0 && passed < ms; passed += 10)
        net_pass(&b->world, 10);
    return net_got(b->client);
}

int dist_bed_push(struct dist_bed *b, const char *target, const char *headers, struct str body,
                  const char **ret)
{
    int status = 0;

    dist_bed_send(b, target, headers, body);
    const char *got = dist_bed_reply(b, 60000);
    if (sscanf(got, "HTTP/1.1 %d", &status) != 1)
        status = 0;
    if (ret)
        *ret = got;
    return status;
}

Embertree__WriteRequest *dist_bed_write(const struct dist_bed *b, size_t i)
{
    CHECK(i < b->writes.len);
    Embertree__WriteRequest *m = embertree__write_request__unpack(
        NULL, b->writes.ptr[i].len, (const uint8_t *)(const void *)b->writes.ptr[i].ptr);
    CHECK(m);
    return m;
}

uint64_t dist_bed_metric(struct dist_bed *b, const char *line)
{
    struct buf out;
    struct str rest, row;
    uint64_t v = 0;
    bool more = true;

    buf_init(&out, 16 * MIB);
    metrics_render(b->world.metrics, &out);
    rest = buf_str(&out);
    while (str_next(&rest, '\n', &more, &row)) {
        ptrdiff_t blank = str_rfind(row, ' ');
        if (blank > 0 && str_eqc(str_sub(row, 0, (size_t)blank), line))
            CHECK(str_u64(str_sub(row, (size_t)blank + 1, row.len), &v));
    }
    buf_deinit(&out);
    return v;
}
