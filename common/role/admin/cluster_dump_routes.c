/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_kept: told from memory, so that it can be asked while the service is away or strange; any
 * process that reaches the service can write.
 */
#include "common/role/admin/cluster_dump_routes.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/rebuild/cluster_dump.h"
#include "common/cluster/rebuild/etcd_rebuild.h"
#include "common/obs/log.h"
#include "common/role/admin/cluster_reply.h"
#include "common/role/core/readiness.h"

#define KEPT    "/api/v1/cluster/kept"
#define RECOVER "/api/v1/cluster/recover"

static bool has_service(const struct process_core *p, struct http_req *r)
{
    struct err e;

    if (p->ctx.coord)
        return true;
    (void)err_set(&e, ERR_UNIMPLEMENTED,
                  "cluster.coordination is %s: there is no etcd that could lose anything",
                  p->ctx.cluster->coordination);
    http_reply_err(r, &e);
    return false;
}

/* ---- the dump of this process ---------------------------------------------------------------- */

static void fill(const struct process_core *p, struct cluster_dump *k)
{
    const struct view *v = p->ctx.view;

    cluster_dump_init(k, view_ready(v) ? view_map_ref(v) : NULL);
    (void)snprintf(k->cluster, sizeof(k->cluster), "%s", view_cluster_id(v));
    (void)snprintf(k->node, sizeof(k->node), "%s", p->ctx.node);
    (void)snprintf(k->stranger, sizeof(k->stranger), "%s", view_stranger(v));
    for (uint32_t i = 0; k->map && i < k->map->shards; i++) {
        const struct repl_record *rec = view_record(v, i, NULL);

        k->shards[i].known = rec != NULL;
        if (rec)
            k->shards[i].record = *rec;
    }
    for (size_t i = 0; i < p->parts_len; i++)
        if (p->parts[i].role->kept)
            p->parts[i].role->kept(p->parts[i].self, k);
}

static void on_kept(struct http_req *r)
{
    const struct process_core *p = r->route_cookie;
    struct cluster_dump k;
    struct buf b;

    if (!has_service(p, r))
        return;
    fill(p, &k);
    buf_init(&b, CLUSTER_DUMP_BYTES_MAX);
    cluster_dump_write(&k, &b);
    (void)buf_add_c(&b, '\n');
    cluster_dump_deinit(&k);
    http_reply(r, 200, "application/json", &b);
}

/* ---- written back ---------------------------------------------------------------------------- */

struct recovery {
    struct http_req *r;
    uint32_t shards;
    bool dry;
    const struct etcd_rebuild_found *found;
};

static void put_list(struct json *j, const char *key, const struct recovery *y,
                     enum etcd_rebuild_is is)
{
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; i < y->shards; i++)
        if (y->found->shards[i] == is)
            json_u64(j, i);
    json_arr_end(j);
}

static void done_json(void *cookie, struct json *j)
{
    static const char *const words[] = { "same", "absent", "behind", "ahead", "differs" };
    const struct recovery *y = cookie;
    const struct etcd_rebuild_found *f = y->found;

    json_put_bool(j, "written", !y->dry);
    json_put_bool(j, "idAbsent", f->id);
    json_put_cstr(j, "map", words[f->map]);
    json_put_u64(j, "mapVersion", f->map_version);
    json_put_u64(j, "notesAbsent", f->notes);
    put_list(j, "absent", y, ETCD_REBUILD_ABSENT);
    put_list(j, "behind", y, ETCD_REBUILD_BEHIND);
    put_list(j, "ahead", y, ETCD_REBUILD_AHEAD);
    put_list(j, "differs", y, ETCD_REBUILD_DIFFERS);
}

static void on_done(void *cookie, const struct etcd_rebuild_found *found, const struct err *e)
{
    struct recovery *y = cookie;

    y->found = found;
    if (!e && !y->dry)
        log_warn("the coordination service was filled again from what the nodes kept",
                 KV_CSTR("peer", y->r->peer));
    cluster_reply(y->r, e, done_json, y);
    xfree(y);
}

/* What is given is of this process's own cluster. */
static int check(const struct process_core *p, const struct cluster_dump *k, struct err *e)
{
    const char *own = view_cluster_id(p->ctx.view);

    if (!k->map)
        return err_set(e, ERR_INPUT, "the dump has no map");
    if (own[0] && strcmp(own, k->cluster) != 0)
        return err_set(e, ERR_CONFLICT, "this process is of cluster %s, and what is given of %s",
                       own, k->cluster[0] ? k->cluster : "one without an id");
    return 0;
}

static void on_recover(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct cluster_dump k = { .map = NULL };
    struct recovery *y;
    struct str dry;
    struct err e;

    if (!has_service(p, r))
        return;
    if (cluster_dump_parse(r->body, &k, &e) || check(p, &k, &e)) {
        cluster_dump_deinit(&k);
        http_reply_err(r, &e);
        return;
    }
    y = XNEW(struct recovery);
    *y = (struct recovery){ .r = r, .shards = k.map->shards };
    y->dry = http_param(r, "dry_run", &dry) && !str_eq(dry, STR("0"));
    cluster_recover(&(struct etcd_rebuild_opts){ .coord = p->ctx.coord,
                                                 .prefix = p->ctx.cluster->etcd_prefix,
                                                 .what = &k,
                                                 .look = y->dry,
                                                 .done = on_done,
                                                 .cookie = y });
}

void cluster_dump_routes(struct process_core *p)
{
    http_route(p->ctx.http, HTTP_GET, KEPT, 0, on_kept, p);
    http_route(p->ctx.http, HTTP_POST, RECOVER, CLUSTER_DUMP_BYTES_MAX, on_recover, p);
}
