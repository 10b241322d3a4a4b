/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_progress: reads the reports from the coordination service for each request, since only
 * the controller watches these keys: they change all the time.
 */
#include "common/role/admin/cluster_progress.h"

#include "common/base/mem.h"
#include "common/base/rate_estimate.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/progress.h"
#include "common/role/core/readiness.h"

#define PATH      "/api/v1/cluster/progress"
#define REPLY_MAX (64 * MIB)
#define ARENA_MAX (16 * MIB)

struct question {
    struct http_req *r;
    struct process_core *p;
};

/* A time or a total that is not known is left out. */
static void coming_json(const struct progress_coming *c, struct json *j)
{
    uint64_t left = c->total > c->bytes ? c->total - c->bytes : 0;

    if (!c->files && !c->rows)
        return;
    json_key(j, "copy");
    json_obj(j);
    json_put_bool(j, "rows", c->rows);
    json_put_u64(j, "bytes", c->bytes);
    if (c->total)
        json_put_u64(j, "of", c->total);
    if (c->timed)
        json_put_u64(j, "bytesPerSecond", c->per_s);
    if (c->timed && c->total && (c->per_s || !left))
        json_put_u64(j, "leftSeconds", rate_estimate_left_s(c->per_s, left));
    json_obj_end(j);
}

static void bad_json(const struct progress *p, struct json *j)
{
    json_key(j, "bad");
    json_arr(j);
    for (size_t i = 0; i < p->bad_len; i++) {
        json_obj(j);
        json_put_u64(j, "shard", p->bad[i].shard);
        if (p->bad[i].node.len)
            json_put_str(j, "node", p->bad[i].node);
        json_put_str(j, "why", p->bad[i].why);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void node_json(struct str name, const struct progress *p, struct json *j)
{
    json_obj(j);
    json_put_str(j, "name", name);
    json_put_str(j, "trouble", p->trouble);
    if (p->room != PROGRESS_ROOM_UNSAID)
        json_put_bool(j, "noRoom", p->room == PROGRESS_NO_ROOM);
    if (p->replace_ms)
        json_put_u64(j, "replaceAfterMs", p->replace_ms);
    bad_json(p, j);
    if (p->cold.len)
        json_put_str(j, "cold", p->cold);
    json_key(j, "shards");
    json_arr(j);
    for (size_t i = 0; i < p->shards_len; i++) {
        const struct progress_shard *s = &p->shards[i];

        json_obj(j);
        json_put_u64(j, "shard", s->shard);
        json_put_u64(j, "term", s->term);
        json_put_u64(j, "last", s->last);
        json_put_u64(j, "commit", s->commit);
        json_put_bool(j, "leads", s->leads);
        json_put_bool(j, "full", s->full);
        json_put_bool(j, "lost", s->lost);
        if (s->timed)
            json_put_u64(j, "entriesPerSecond", s->per_s);
        coming_json(&s->coming, j);
        if (s->why.len)
            json_put_str(j, "why", s->why);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void nodes_json(const struct question *q, const struct coord_reply *reply, struct json *j)
{
    json_obj(j);
    json_key(j, "nodes");
    json_arr(j);
    for (size_t i = 0; i < reply->kvs_len; i++) {
        const struct coord_kv *kv = &reply->kvs[i];
        struct arena *a = arena_new(ARENA_MAX);
        struct progress p;
        struct str node;
        uint32_t shard;
        struct err e;

        /* What cannot be read is left out, as what is not there. */
        if (key_parse(str_c(q->p->ctx.cluster->etcd_prefix), kv->key, &shard, &node) == KEY_STATE &&
            !progress_parse(kv->value, a, &p, &e))
            node_json(node, &p, j);
        arena_free(a);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void on_listed(void *cookie, const struct coord_reply *reply)
{
    struct question *q = cookie;
    struct json j;
    struct buf b;

    if (reply->err) {
        http_reply_err(q->r, reply->err);
    } else {
        buf_init(&b, REPLY_MAX);
        json_init(&j, &b);
        nodes_json(q, reply, &j);
        (void)buf_add_c(&b, '\n');
        http_reply(q->r, 200, "application/json", &b);
    }
    xfree(q);
}

static void on_progress(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct coord_key key;
    struct question *q;
    struct err e;

    if (!p->ctx.coord) {
        (void)err_set(&e, ERR_UNIMPLEMENTED,
                      "shards have no copies here: cluster.coordination is %s",
                      p->ctx.cluster->coordination);
        http_reply_err(r, &e);
        return;
    }
    q = XNEW(struct question);
    *q = (struct question){ r, p };
    key = key_states(str_c(p->ctx.cluster->etcd_prefix));
    coord_list(p->ctx.coord, key_str(&key), on_listed, q);
}

void cluster_progress_routes(struct process_core *p)
{
    http_route(p->ctx.http, HTTP_GET, PATH, 0, on_progress, p);
}
