/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/ingester_bed.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/cluster/view/view.h"
#include "common/model/slot.h"
#include "common/role/core/options.h"
#include "common/store/kv/kv_mem.h"
#include "proto/ingest.pb-c.h"
#include "proto/query.pb-c.h"
#include "tests/lib/store/kv_dir.h"

#define FLAGS_MAX 16

static const struct role *const bed_roles[] = { &ingester_role, NULL };

static int bed_space(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                     struct err *e)
{
    const struct ingester_bed *b =
        (const void *)((const char *)fs - offsetof(struct ingester_bed, fs));

    (void)path, (void)e;
    *ret_free = b->disk_free;
    *ret_total = b->disk_total;
    return 0;
}

static int bed_kv(const struct kv_source *src, const struct kv_opts *o, struct kv **ret,
                  struct err *e)
{
    (void)src, (void)o, (void)e;
    *ret = kv_mem_new(NULL);
    return 0;
}

static uint64_t bed_resident(void *cookie)
{
    return ((const struct ingester_bed *)cookie)->resident;
}

static void load_conf(struct ingester_bed *b, const char *const *flags)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(bed_roles, tables);
    char ingesters[160], listen[160];
    char *argv[FLAGS_MAX] = { (char *)(uintptr_t) "test", ingesters, listen };
    int argc = 3;
    struct err e;

    (void)snprintf(ingesters, sizeof(ingesters), "--cluster.ingesters=%s", b->addr);
    (void)snprintf(listen, sizeof(listen), "--ingester.listen=%s", b->addr);
    for (; flags && *flags; flags++) {
        CHECK(argc < FLAGS_MAX);
        argv[argc++] = (char *)(uintptr_t)*flags;
    }
    if (conf_load(tables, n, argc, argv, &b->conf, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

void ingester_bed_init(struct ingester_bed *b, bool simulated, uint64_t seed,
                       const char *const *flags)
{
    struct err e;

    *b = (struct ingester_bed){ .disk_free = 50 * GIB, .disk_total = 100 * GIB };
    rpc_bed_init(&b->rpc, simulated ? RPC_BED_MEM : RPC_BED_INPROC, seed);
    rpc_bed_addr(&b->rpc, b->addr);
    load_conf(b, flags);
    b->fs = *fs_real();
    b->fs.space = bed_space;
    b->rpc.env.fs = &b->fs;
    b->kv.open = bed_kv;
    b->dir = simulated ? NULL : kv_dir_new();
    b->memory = memory_new(&(struct memory_opts){
        .limit = 512 * MIB, .metrics = b->rpc.metrics, .resident = bed_resident, .cookie = b });
    b->ctx = (struct role_ctx){
        .env = &b->rpc.env,
        .loop = b->rpc.loop,
        .pool = b->rpc.pool,
        .rpc = b->rpc.net,
        .metrics = b->rpc.metrics,
        .conf = b->conf,
        .common = conf_get(b->conf, &http_options),
        .cluster = conf_get(b->conf, &cluster_options),
        .view = options_view(conf_get(b->conf, &cluster_options)),
        .tenancy = conf_get(b->conf, &tenancy_options),
        .data = conf_get(b->conf, &data_options),
        .data_dir = simulated ? "memory" : b->dir,
        .memory_limit = 512 * MIB,
        .memory = b->memory,
        .simulated = simulated,
        .kv = simulated ? &b->kv : NULL,
    };
    b->client = rpc_bed_node(&b->rpc, "");
    CHECK(rpc_peer_get(b->client, b->addr, &b->peer, &e) == 0);
}

static bool peer_up(void *cookie)
{
    return rpc_peer_up(((struct ingester_bed *)cookie)->peer);
}

int ingester_bed_start(struct ingester_bed *b, struct err *e)
{
    int code = ingester_role.start(&b->ctx, &b->self, e);

    if (!code)
        CHECK(rpc_bed_run(&b->rpc, peer_up, b, 20000));
    return code;
}

static void on_drained(void *cookie)
{
    ((struct ingester_bed *)cookie)->drained = true;
}

static bool bed_drained(void *cookie)
{
    return ((struct ingester_bed *)cookie)->drained;
}

void ingester_bed_stop(struct ingester_bed *b)
{
    b->drained = false;
    ingester_role.drain(b->self, on_drained, b);
    CHECK(rpc_bed_run(&b->rpc, bed_drained, b, 20000));
    ingester_role.free(b->self);
    b->self = NULL;
}

void ingester_bed_deinit(struct ingester_bed *b)
{
    if (b->self)
        ingester_bed_stop(b);
    rpc_node_free(b->client);
    view_free(b->ctx.view);
    rpc_bed_deinit(&b->rpc);
    memory_free(b->memory);
    conf_free(b->conf);
    kv_dir_remove(b->dir);
}

int ingester_bed_call(struct ingester_bed *b, enum rpc_method m, struct str payload,
                      struct rpc_bed_call *c)
{
    rpc_bed_call(c, b->peer, m, payload, 10000);
    return rpc_bed_end(&b->rpc, c);
}

int ingester_bed_write(struct ingester_bed *b, const struct write_gen *g, struct prng *p,
                       struct write_model *m)
{
    struct write_model own;
    struct rpc_bed_call c;
    struct buf payload;
    size_t pos = 0;
    struct str key;
    void *val;
    int code;

    buf_init(&payload, 64 * MIB);
    write_model_init(&own);
    write_gen_pack(g, p, &payload, &own);
    code = ingester_bed_call(b, RPC_WRITE, buf_str(&payload), &c);
    while (!code && m && map_str_next(own.sums, &pos, &key, &val))
        write_model_add(m, key, write_model_get(&own, key));
    write_model_deinit(&own);
    rpc_bed_call_deinit(&c);
    buf_deinit(&payload);
    return code;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

void ingester_bed_take_merge(struct str payload, struct write_model *ret)
{
    Embertree__MergeReply *r = embertree__merge_reply__unpack(
        NULL, payload.len, (const uint8_t *)(const void *)payload.ptr);
    struct stacks_view v;
    struct err e;

    CHECK(r && r->stacks);
    v = (struct stacks_view){
        .string_data = str_n(r->stacks->string_data.data, r->stacks->string_data.len),
        .string_len = r->stacks->string_len,
        .strings = r->stacks->n_string_len,
        .frame_func = r->stacks->frame_func,
        .frame_file = r->stacks->frame_file,
        .frame_line = r->stacks->frame_line,
        .frame_module = r->stacks->frame_module,
        .frame_addr = r->stacks->frame_addr,
        .frames = r->stacks->n_frame_func,
        .node_parent = r->stacks->node_parent,
        .node_frame = r->stacks->node_frame,
        .nodes = r->stacks->n_node_parent,
    };
    CHECK(stacks_view_check(&v, &e) == 0);
    write_model_add_stacks(ret, &v, r->node, r->value, r->n_node);
    CHECK(r->total == ret->total);
    embertree__merge_reply__free_unpacked(r, NULL);
}

int ingester_bed_merge(struct ingester_bed *b, const char *service, int64_t start_ms,
                       int64_t end_ms, struct write_model *ret)
{
    Embertree__MergeRequest m = EMBERTREE__MERGE_REQUEST__INIT;
    Embertree__Matcher matcher = EMBERTREE__MATCHER__INIT, *matchers = &matcher;
    struct rpc_bed_call c;
    uint8_t payload[1024];
    size_t len;
    int code;

    matcher.name = bytes("service_name");
    matcher.value = bytes(service ? service : "");
    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.start_ms = start_ms;
    m.end_ms = end_ms;
    m.matchers = &matchers;
    m.n_matchers = service ? 1 : 0;
    len = embertree__merge_request__pack(&m, payload);
    CHECK(len <= sizeof(payload));
    code = ingester_bed_call(b, RPC_MERGE, str_n(payload, len), &c);
    if (code)
        (void)fprintf(stderr, "merge: %s\n", c.text);
    else
        ingester_bed_take_merge(buf_str(&c.reply), ret);
    rpc_bed_call_deinit(&c);
    return code;
}

uint32_t ingester_bed_slot(const struct ingester_bed *b)
{
    return slot_of_ms(clock_wall_ms(b->rpc.env.clock));
}
