/* SPDX-License-Identifier: Apache-2.0
 *
 * A querier over two real ingesters (four shards, databases in memory) on one simulated loop:
 * random writes, some repeated, some late, sealed from time to time; the answers of /render and
 * SelectMergeStacktraces equal the sum over the acked writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/cluster/view/view.h"
#include "common/model/shard.h"
#include "common/model/slot.h"
#include "common/net/json_in.h"
#include "common/role/core/options.h"
#include "common/rpc/rpc_mem.h"
#include "common/store/kv/kv_mem.h"
#include "ingester/ingester.h"
#include "querier/base/state.h"
#include "querier/querier.h"
#include "tests/lib/gen/write_gen.h"
#include "tests/lib/net/net_mem.h"

#define INGESTERS 2
#define SHARDS    4
#define SERVICES  5
#define CPU       WRITE_GEN_CPU
#define HEAP      "memory:inuse_space:bytes::"

struct world {
    struct net_world net;
    struct env env;
    struct prng prng;
    struct fs fs;
    struct kv_source kv;
    struct rpc_net *rpc;
    struct conf *ingester_conf[INGESTERS], *querier_conf;
    struct role_ctx ctx[INGESTERS + 1];
    void *ingester[INGESTERS], *querier;
    struct rpc_node *client;
    struct rpc_peer *peer[INGESTERS];
    struct net_mem *http;
    int drained;
};

/* ---- the world --------------------------------------------------------------------------------*/

static void seeded_random(struct env *env, void *p, size_t n)
{
    struct world *w = env->random_state;
    uint8_t *to = p;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)prng_u64(&w->prng);
}

static int much_space(const struct fs *fs, const char *path, uint64_t *ret_free,
                      uint64_t *ret_total, struct err *e)
{
    (void)fs, (void)path, (void)e;
    *ret_free = 50 * GIB;
    *ret_total = 100 * GIB;
    return 0;
}

static int memory_kv(const struct kv_source *src, const struct kv_opts *o, struct kv **ret,
                     struct err *e)
{
    (void)src, (void)o, (void)e;
    *ret = kv_mem_new(NULL);
    return 0;
}

static struct conf *load(const struct role *role, const char *listen)
{
    const struct role *const list[] = { role, NULL };
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(list, tables);
    char own[80];
    char *argv[] = { (char *)(uintptr_t) "test",
                     (char *)(uintptr_t) "--cluster.ingesters=mem://i0,mem://i1",
                     (char *)(uintptr_t) "--cluster.shards=4", own };
    struct conf *conf;
    struct err e;

    (void)snprintf(own, sizeof(own), "--%s.listen=%s", role->name, listen);
    if (conf_load(tables, n, ARRAY_LEN(argv), argv, &conf, &e))
        fail_msg("%s", e.text);
    return conf;
}

static void start(struct world *w, const struct role *role, struct conf *conf, struct role_ctx *ctx,
                  void **ret_self)
{
    struct err e;

    *ctx = (struct role_ctx){ .env = &w->env,
                              .loop = w->net.loop,
                              .pool = w->net.pool,
                              .http = role == &querier_role ? w->net.server : NULL,
                              .rpc = w->rpc,
                              .metrics = w->net.metrics,
                              .in_flight = &w->net.budget,
                              .conf = conf,
                              .common = conf_get(conf, &http_options),
                              .cluster = conf_get(conf, &cluster_options),
                              .view = options_view(conf_get(conf, &cluster_options)),
                              .tenancy = conf_get(conf, &tenancy_options),
                              .data = conf_get(conf, &data_options),
                              .data_dir = "memory",
                              .memory_limit = 512 * MIB,
                              .simulated = true,
                              .kv = &w->kv };
    if (role->start(ctx, ret_self, &e))
        fail_msg("%s", e.text);
}

static void world_open(struct world *w, uint64_t seed)
{
    char addr[16];
    struct err e;

    *w = (struct world){ 0 };
    net_world_init(&w->net);
    prng_init(&w->prng, seed);
    w->env = *env_real();
    w->env.clock = &w->net.clock.clock;
    w->env.random = seeded_random;
    w->env.random_state = w;
    w->fs = *fs_real();
    w->fs.space = much_space;
    w->env.fs = &w->fs;
    w->kv.open = memory_kv;
    w->rpc = rpc_net_new(&w->env, w->net.metrics);
    rpc_mem_seed(w->rpc, seed);
    for (int i = 0; i < INGESTERS; i++) {
        (void)snprintf(addr, sizeof(addr), "mem://i%d", i);
        w->ingester_conf[i] = load(&ingester_role, addr);
        start(w, &ingester_role, w->ingester_conf[i], &w->ctx[i], &w->ingester[i]);
    }
    w->querier_conf = load(&querier_role, "mem://q");
    start(w, &querier_role, w->querier_conf, &w->ctx[INGESTERS], &w->querier);
    struct rpc_node_opts o = { .net = w->rpc,
                               .loop = w->net.loop,
                               .listen = "mem://c",
                               .message_max = 64 * MIB,
                               .pending_max = 100,
                               .heartbeat_ms = 100,
                               .dead_ms = 1000 };
    CHECK(rpc_node_new(&o, &w->client, &e) == 0);
    for (int i = 0; i < INGESTERS; i++) {
        (void)snprintf(addr, sizeof(addr), "mem://i%d", i);
        CHECK(rpc_peer_get(w->client, addr, &w->peer[i], &e) == 0);
    }
    net_pass(&w->net, 2000);
    w->http = net_connect(&w->net);
}

static void on_drained(void *cookie)
{
    ((struct world *)cookie)->drained++;
}

static void world_close(struct world *w)
{
    if (!w->http->closed)
        net_end(w->http, true);
    net_pass(&w->net, 100);
    net_mem_free(w->http);
    rpc_node_free(w->client);
    querier_role.drain(w->querier, on_drained, w);
    net_pass(&w->net, 10000);
    querier_role.free(w->querier);
    for (int i = 0; i < INGESTERS; i++)
        ingester_role.drain(w->ingester[i], on_drained, w);
    net_pass(&w->net, 20000);
    assert_int_equal(w->drained, 1 + INGESTERS);
    for (int i = 0; i < INGESTERS; i++)
        ingester_role.free(w->ingester[i]);
    net_pass(&w->net, 100);
    for (int i = 0; i <= INGESTERS; i++)
        view_free(w->ctx[i].view);
    rpc_net_free(w->rpc);
    net_world_deinit(&w->net);
    conf_free(w->querier_conf);
    for (int i = 0; i < INGESTERS; i++)
        conf_free(w->ingester_conf[i]);
}

/* ---- writes -----------------------------------------------------------------------------------*/

struct ack {
    bool done;
    int code;
    char text[ERR_TEXT_MAX];
};

static void on_ack(void *cookie, struct str reply, const struct err *err)
{
    struct ack *a = cookie;

    (void)reply;
    a->done = true;
    a->code = err ? err->code : 0;
    if (err)
        memcpy(a->text, err->text, sizeof(a->text));
}

static void send_write(struct world *w, uint32_t shard, struct str payload)
{
    struct ack ack = { 0 };
    struct buf b;

    buf_init(&b, 64 * MIB);
    buf_add_str(&b, payload);
    rpc_send(w->peer[shard % INGESTERS], RPC_WRITE, &b, 10000, on_ack, &ack);
    for (int i = 0; i < 100 && !ack.done; i++)
        net_pass(&w->net, 10);
    if (!ack.done || ack.code)
        fail_msg("write: %s", ack.text);
}

/* What was acked, by service; a gauge's leaves are counted beside. */
struct model {
    struct write_model sums[SERVICES];
    int64_t first_ms, last_ms;
};

static void write_some(struct world *w, struct prng *p, struct model *m, uint64_t *wid)
{
    static const char *const services[] = { "s0", "s1", "s2", "s3", "s4" };
    static const char *const pods[] = { "a", "b", "c" };
    uint32_t now = slot_of_ms(clock_wall_ms(w->env.clock));
    uint32_t k = (uint32_t)prng_below(p, SERVICES);
    struct write_gen g = { .tenant = "anonymous",
                           .service = services[k],
                           .pod = pods[prng_below(p, 3)],
                           .shard = shard_of(STR("anonymous"), str_c(services[k]), SHARDS),
                           .slot = now - (uint32_t)prng_below(p, prng_chance(p, 0.2) ? 120 : 4),
                           .wid = ++*wid,
                           .stacks = 1 + (uint32_t)prng_below(p, 8) };
    struct buf b;

    buf_init(&b, 64 * MIB);
    write_gen_pack(&g, p, &b, &m->sums[k]);
    send_write(w, g.shard, buf_str(&b));
    if (prng_chance(p, 0.2))
        send_write(w, g.shard, buf_str(&b)); /* a retry counts once */
    buf_deinit(&b);
}

/* ---- questions --------------------------------------------------------------------------------*/

static const char *ask(struct world *w, const char *request)
{
    if (w->http->closed) { /* idle for too long */
        net_mem_free(w->http);
        w->http = net_connect(&w->net);
    }
    net_send_c(w->http, request);
    for (int i = 0; i < 50 && !w->http->out.len; i++)
        net_pass(&w->net, 10);
    const char *got = net_got(w->http);
    const char *body = strstr(got, "\r\n\r\n");
    if (strncmp(got, "HTTP/1.1 200", 12) != 0 || !body)
        fail_msg("%s\n%s", request, got);
    return body + 4;
}

/* Adds folded lines to a model. */
static void read_folded(const char *text, struct write_model *ret)
{
    struct str rest = str_c(text), line;
    bool more = true;

    while (str_next(&rest, '\n', &more, &line)) {
        uint64_t value = 0;
        ptrdiff_t blank = str_rfind(line, ' ');
        if (!line.len)
            continue;
        assert_true(blank > 0 && str_u64(str_sub(line, (size_t)blank + 1, line.len), &value));
        struct str path = str_sub(line, 0, (size_t)blank);
        write_model_add(ret, str_eqc(path, "(empty stack)") ? STR("") : path, value);
    }
}

static uint64_t read_total(const char *json)
{
    struct json_doc *doc;
    struct err e;
    int64_t total = 0;

    assert_int_equal(json_parse(str_c(json), &doc, &e), 0);
    const struct json_val *graph = json_get(json_root(doc), "flamegraph", NULL);
    assert_int_equal(json_take_i64(json_get(graph, "total", NULL), "total", &total, &e), 0);
    json_doc_free(doc);
    return (uint64_t)total;
}

/* The sum of a /render timeline, all of whose range was asked for. */
static uint64_t read_timeline(const char *json)
{
    struct json_doc *doc;
    struct err e;
    uint64_t sum = 0;

    assert_int_equal(json_parse(str_c(json), &doc, &e), 0);
    const struct json_val *samples =
        json_get(json_get(json_root(doc), "timeline", NULL), "samples", NULL);
    for (size_t i = 0; i < json_len(samples); i++) {
        int64_t v = 0;
        assert_int_equal(json_take_i64(json_at(samples, i), "sample", &v, &e), 0);
        sum += (uint64_t)v;
    }
    json_doc_free(doc);
    return sum;
}

static void add_all(struct write_model *to, const struct write_model *from)
{
    size_t pos = 0;
    struct str key;
    void *val;

    while (map_str_next(from->sums, &pos, &key, &val))
        write_model_add(to, key, write_model_get(from, key));
}

static void check(struct world *w, const struct model *m, int service)
{
    struct write_model want, got;
    char request[700], body[400], matcher[64] = "";
    int64_t now = clock_wall_ms(w->env.clock);

    write_model_init(&want);
    write_model_init(&got);
    for (int i = 0; i < SERVICES; i++)
        if (service < 0 || service == i)
            add_all(&want, &m->sums[i]);
    if (service >= 0)
        (void)snprintf(matcher, sizeof(matcher), "service_name=%%22s%d%%22", service);
    for (int old = 0; old < 2; old++) {
        (void)snprintf(request, sizeof(request),
                       "GET /pyroscope/render?query=%s%%7B%s%%7D&from=now-1h&until=%lld&format=%s "
                       "HTTP/1.1\r\nHost: h\r\n\r\n",
                       CPU, matcher, (long long)now + 1, old ? "json" : "collapsed");
        const char *reply = ask(w, request);
        if (old)
            assert_int_equal(read_timeline(reply), want.total);
        else
            read_folded(reply, &got);
    }
    assert_int_equal(got.total, want.total);
    assert_true(write_model_eq(&want, &got));
    if (service >= 0)
        (void)snprintf(matcher, sizeof(matcher), "service_name=\\\"s%d\\\"", service);
    (void)snprintf(body, sizeof(body),
                   "{\"profile_typeID\":\"%s\",\"label_selector\":\"{%s}\",\"start\":%lld,"
                   "\"end\":%lld,\"maxNodes\":3}",
                   CPU, matcher, (long long)now - 3600000, (long long)now);
    (void)snprintf(request, sizeof(request),
                   "POST /querier.v1.QuerierService/SelectMergeStacktraces HTTP/1.1\r\nHost: h\r\n"
                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    assert_int_equal(read_total(ask(w, request)), want.total);
    write_model_deinit(&want);
    write_model_deinit(&got);
}

static void run(uint64_t seed)
{
    struct world w;
    struct model m = { 0 };
    struct prng p;
    uint64_t wid = seed * 1000;

    prng_init(&p, seed);
    world_open(&w, seed);
    for (int i = 0; i < SERVICES; i++)
        write_model_init(&m.sums[i]);
    for (int step = 0; step < 60; step++) {
        write_some(&w, &p, &m, &wid);
        if (prng_chance(&p, 0.3))
            check(&w, &m, (int)prng_below(&p, SERVICES + 1) - 1);
        if (prng_chance(&p, 0.2)) /* seals happen */
            net_pass(&w.net, prng_below(&p, 90000));
    }
    check(&w, &m, -1);
    for (int i = 0; i < SERVICES; i++) {
        check(&w, &m, i);
        write_model_deinit(&m.sums[i]);
    }
    world_close(&w);
}

static void test_answers_equal_the_acked_writes(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t seed = 20261121;

    if (given)
        (void)str_u64(str_c(given), &seed);
    for (uint64_t i = 0; i < 4; i++) {
        print_message("seed %llu\n", (unsigned long long)(seed + i));
        run(seed + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_equal_the_acked_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
