/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/querier_bed.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/cluster/view/view.h"
#include "common/role/core/options.h"
#include "querier/base/state.h"
#include "tests/lib/roles/querier_fake.h"

#define FLAGS_MAX 16

/* ---- ingesters --------------------------------------------------------------------------------*/

static void answer(struct qbed_ingester *in, struct rpc_call *call, enum rpc_method method,
                   struct str payload)
{
    struct err e = { 0 };
    struct buf out;

    if (in->fail) {
        err_set(&e, in->fail, "canned failure");
        rpc_fail(call, &e);
        return;
    }
    if (method == RPC_DELETE) {
        buf_reset(&in->told);
        buf_add_str(&in->told, payload);
    }
    buf_init(&out, 64 * MIB);
    if (method == RPC_DOC) {
        in->bed->docs.now_ms = clock_wall_ms(&in->bed->world.clock.clock);
        if (fake_docs_answer(&in->bed->docs, payload, &out, &e)) {
            buf_deinit(&out);
            rpc_fail(call, &e);
            return;
        }
    } else if (in->canned)
        (void)buf_add_str(&out, *in->canned);
    else if (method == RPC_DELETE || method == RPC_SPACE || method == RPC_LEDGER ||
             method == RPC_LEDGER_ACCEPT)
        ; /* the empty message: has nothing */
    else if (fake_answer(&(struct fake){ in->bed->pushes, in->bed->pushes_len, in->bed->exemplars,
                                         in->bed->exemplars_len, in->bed->coarse_ms,
                                         in->bed->coarse_until_ms, in->index,
                                         in->bed->ingesters_len },
                         method, payload, &out, &e)) {
        buf_deinit(&out);
        rpc_fail(call, &e);
        return;
    }
    rpc_reply(call, &out);
}

static void on_delay_over(void *cookie)
{
    struct qbed_ingester *in = cookie;
    size_t n = in->held_len;

    in->held_len = 0;
    for (size_t i = 0; i < n; i++) {
        in->canceled += *rpc_call_canceled(in->held[i].call);
        answer(in, in->held[i].call, in->held[i].method, in->held[i].payload);
    }
}

static void on_call(struct qbed_ingester *in, enum rpc_method method, struct rpc_call *call,
                    struct str payload)
{
    in->calls++;
    in->left_ms = rpc_call_left_ms(call);
    if (in->forever) {
        CHECK(in->lost_len < ARRAY_LEN(in->lost));
        in->lost[in->lost_len++] = call;
        return;
    }
    if (!in->delay_ms && !in->mute) {
        answer(in, call, method, payload);
        return;
    }
    CHECK(in->held_len < ARRAY_LEN(in->held)); /* those of a query or two */
    in->held[in->held_len++] = (struct qbed_held){ call, payload, method };
    if (in->held_len == 1)
        loop_timer_start(in->timer, in->mute ? 1000000 : in->delay_ms, 0);
}

static void on_merge(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_MERGE, call, payload);
}

static void on_timeline(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_TIMELINE, call, payload);
}

static void on_labels(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_LABELS, call, payload);
}

static void on_functions(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_FUNCTIONS, call, payload);
}

static void on_estimate(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_ESTIMATE, call, payload);
}

/* Canned answers, or empty ones. */
static void on_delete(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_DELETE, call, payload);
}

static void on_space(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_SPACE, call, payload);
}

static void on_ledger(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_LEDGER, call, payload);
}

static void on_accept(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_LEDGER_ACCEPT, call, payload);
}

static void on_exemplars(void *cookie, struct rpc_call *call, struct str payload)
{
    on_call(cookie, RPC_EXEMPLARS, call, payload);
}

static void on_doc(void *cookie, struct rpc_call *call, struct str payload)
{
    struct qbed_ingester *in = cookie;

    if (in->doc_late) {
        in->doc_late = false;
        buf_add_str(&in->late_doc, payload);
        CHECK(in->lost_len < ARRAY_LEN(in->lost));
        in->lost[in->lost_len++] = call;
    } else if (in->docs_at_once)
        answer(in, call, RPC_DOC, payload);
    else
        on_call(in, RPC_DOC, call, payload);
}

static void start_ingester(struct qbed *b, size_t i, const char *addr)
{
    struct qbed_ingester *in = &b->ingesters[i];
    struct err e;
    struct rpc_node_opts o = { .net = b->rpc,
                               .loop = b->world.loop,
                               .listen = addr,
                               .message_max = 64 * MIB,
                               .pending_max = 1000,
                               .heartbeat_ms = 100,
                               .dead_ms = 1000 };

    in->bed = b;
    in->index = i;
    buf_init(&in->late_doc, MIB);
    buf_init(&in->told, MIB);
    in->timer = loop_timer_new(b->world.loop, on_delay_over, in);
    CHECK(rpc_node_new(&o, &in->node, &e) == 0);
    rpc_serve(in->node, RPC_MERGE, on_merge, in);
    rpc_serve(in->node, RPC_TIMELINE, on_timeline, in);
    rpc_serve(in->node, RPC_LABELS, on_labels, in);
    rpc_serve(in->node, RPC_FUNCTIONS, on_functions, in);
    rpc_serve(in->node, RPC_ESTIMATE, on_estimate, in);
    rpc_serve(in->node, RPC_DELETE, on_delete, in);
    rpc_serve(in->node, RPC_DOC, on_doc, in);
    rpc_serve(in->node, RPC_SPACE, on_space, in);
    rpc_serve(in->node, RPC_LEDGER, on_ledger, in);
    rpc_serve(in->node, RPC_LEDGER_ACCEPT, on_accept, in);
    rpc_serve(in->node, RPC_EXEMPLARS, on_exemplars, in);
}

/* ---- the bed ----------------------------------------------------------------------------------*/

static const struct role *const bed_roles[] = { &querier_role, NULL };

static void seeded_random(struct env *env, void *p, size_t n)
{
    struct qbed *b = env->random_state;
    uint8_t *to = p;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)prng_u64(&b->prng);
}

static void load_conf(struct qbed *b, size_t ingesters, const char *const *flags)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(bed_roles, tables);
    char list[256] = "--cluster.ingesters=", shards[64];
    char *argv[FLAGS_MAX] = { (char *)(uintptr_t) "test", list, shards,
                              (char *)(uintptr_t) "--querier.listen=mem://querier" };
    int argc = 4;
    size_t at = strlen(list);
    struct err e;

    for (size_t i = 0; i < ingesters; i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%smem://i%zu", i ? "," : "", i);
    (void)snprintf(shards, sizeof(shards), "--cluster.shards=%zu", 2 * ingesters);
    for (; flags && *flags; flags++) {
        CHECK(argc < FLAGS_MAX);
        argv[argc++] = (char *)(uintptr_t)*flags;
    }
    if (conf_load(tables, n, argc, argv, &b->conf, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

void qbed_init(struct qbed *b, size_t ingesters, const char *const *flags)
{
    struct err e;

    *b = (struct qbed){ 0 };
    CHECK(ingesters <= QBED_INGESTERS_MAX);
    net_world_init(&b->world);
    fake_doorman(b->world.server, &b->door);
    prng_init(&b->prng, 7);
    b->env = *env_real();
    b->env.clock = &b->world.clock.clock;
    b->env.random = seeded_random;
    b->env.random_state = b;
    b->rpc = rpc_net_new(&b->env, b->world.metrics);
    rpc_mem_seed(b->rpc, 7);
    load_conf(b, ingesters, flags);
    for (size_t i = 0; i < ingesters; i++) {
        char addr[32];
        (void)snprintf(addr, sizeof(addr), "mem://i%zu", i);
        start_ingester(b, i, addr);
    }
    b->ingesters_len = ingesters;
    b->ctx = (struct role_ctx){ .env = &b->env,
                                .loop = b->world.loop,
                                .pool = b->world.pool,
                                .http = b->world.server,
                                .rpc = b->rpc,
                                .metrics = b->world.metrics,
                                .in_flight = &b->world.budget,
                                .conf = b->conf,
                                .common = conf_get(b->conf, &http_options),
                                .cluster = conf_get(b->conf, &cluster_options),
                                .view = options_view(conf_get(b->conf, &cluster_options)),
                                .tenancy = conf_get(b->conf, &tenancy_options),
                                .data = conf_get(b->conf, &data_options),
                                .data_dir = "memory",
                                .memory_limit = 512 * MIB,
                                .simulated = true };
    if (querier_role.start(&b->ctx, &b->self, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
    net_pass(&b->world, 1000); /* peers find each other */
    clock_fake_jump(&b->world.clock, QBED_NOW - clock_wall_ms(&b->world.clock.clock));
    b->client = net_connect(&b->world);
}

void qbed_data(struct qbed *b, const struct qbed_push *pushes, size_t n)
{
    b->pushes = pushes;
    b->pushes_len = n;
}

static void on_drained(void *cookie)
{
    ((struct qbed *)cookie)->drained = true;
}

static void drop_client(struct qbed *b)
{
    net_end(b->client, true);
    net_settle(&b->world);
    CHECK(b->client->closed);
    net_mem_free(b->client);
    b->client = NULL;
}

void qbed_hang_up(struct qbed *b)
{
    drop_client(b);
    b->client = net_connect(&b->world);
}

void qbed_deinit(struct qbed *b)
{
    const struct querier *qr = b->self;

    drop_client(b);
    for (size_t i = 0; i < b->ingesters_len; i++)
        for (size_t k = 0; k < b->ingesters[i].lost_len; k++)
            rpc_fail(b->ingesters[i].lost[k], &(struct err){ .code = ERR_TIMEOUT });
    for (size_t i = 0; i < b->ingesters_len; i++)
        if (b->ingesters[i].held_len) {
            loop_timer_stop(b->ingesters[i].timer);
            on_delay_over(&b->ingesters[i]);
        }
    net_pass(&b->world, 200);
    CHECK(qr->running == 0 && qr->bytes.used == 0);
    querier_role.drain(b->self, on_drained, b);
    net_pass(&b->world, 5000);
    CHECK(b->drained);
    for (size_t i = 0; i < b->ingesters_len; i++) {
        rpc_node_free(b->ingesters[i].node);
        loop_timer_free(b->ingesters[i].timer);
        buf_deinit(&b->ingesters[i].late_doc);
        buf_deinit(&b->ingesters[i].told);
    }
    querier_role.free(b->self);
    net_pass(&b->world, 100);
    view_free(b->ctx.view);
    rpc_net_free(b->rpc);
    fake_docs_free(&b->docs);
    net_world_deinit(&b->world);
    conf_free(b->conf);
}

/* ---- requests ---------------------------------------------------------------------------------*/

void qbed_send(struct qbed *b, const char *method, const char *target, const char *headers,
               const char *body)
{
    struct buf out;

    if (b->client->closed) {
        net_mem_free(b->client);
        b->client = net_connect(&b->world);
    }
    buf_reset(&b->client->out);
    buf_init(&out, MIB);
    buf_addf(&out, "%s %s HTTP/1.1\r\nHost: h\r\n%s", method, target, headers ? headers : "");
    if (body)
        buf_addf(&out, "Content-Length: %zu\r\n", strlen(body));
    buf_addf(&out, "\r\n%s", body ? body : "");
    CHECK(buf_ok(&out));
    net_send(b->client, buf_str(&out));
    buf_deinit(&out);
}

const char *qbed_post(struct qbed *b, const char *target, const char *headers, struct str body)
{
    struct buf out;

    if (b->client->closed) {
        net_mem_free(b->client);
        b->client = net_connect(&b->world);
    }
    buf_reset(&b->client->out);
    buf_init(&out, MIB);
    buf_addf(&out, "POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n", target, headers,
             body.len);
    buf_add_str(&out, body);
    CHECK(buf_ok(&out));
    net_send(b->client, buf_str(&out));
    buf_deinit(&out);
    net_pass(&b->world, 0);
    return qbed_reply(b);
}

const char *qbed_reply(struct qbed *b)
{
    CHECK(buf_add_c(&b->client->out, '\0'));
    b->client->out.len--;
    return b->client->out.ptr;
}

const char *qbed_get(struct qbed *b, const char *target)
{
    qbed_send(b, "GET", target, NULL, NULL);
    net_pass(&b->world, 0);
    return qbed_reply(b);
}

const char *qbed_connect(struct qbed *b, const char *method, const char *json)
{
    char target[128];

    (void)snprintf(target, sizeof(target), "/querier.v1.QuerierService/%s", method);
    qbed_send(b, "POST", target, "Content-Type: application/json\r\n", json);
    net_pass(&b->world, 0);
    return qbed_reply(b);
}

const char *qbed_body(const char *reply)
{
    const char *body = strstr(reply, "\r\n\r\n");

    return body ? body + 4 : "";
}

int qbed_status(const char *reply)
{
    uint64_t status = 0;

    if (strncmp(reply, "HTTP/1.1 ", 9) == 0)
        (void)str_u64(str_n(reply + 9, 3), &status);
    return (int)status;
}

uint64_t qbed_metric(struct qbed *b, const char *name_and_labels)
{
    struct buf text;
    struct str rest, line;
    bool more = true;
    uint64_t v = 0;

    buf_init(&text, 16 * MIB);
    metrics_render(b->world.metrics, &text);
    rest = buf_str(&text);
    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t blank = str_rfind(line, ' ');
        if (blank > 0 && str_eqc(str_sub(line, 0, (size_t)blank), name_and_labels))
            (void)str_u64(str_sub(line, (size_t)blank + 1, line.len), &v);
    }
    buf_deinit(&text);
    return v;
}
