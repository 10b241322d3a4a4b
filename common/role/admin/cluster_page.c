/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_page: what a person changes in a cluster. Any process can do it, since all of them reach
 * the coordination service. The answer says that the map has it; moving takes its time, which /ring
 * shows.
 */
#include "common/role/admin/cluster_page.h"

#include "common/base/mem.h"
#include "common/cluster/view/node_state.h"
#include "common/obs/log.h"
#include "common/role/admin/cluster_reply.h"
#include "common/role/core/readiness.h"

#define NODES "/api/v1/cluster/nodes/"

struct change {
    struct http_req *r;
    char node[NODE_NAME_MAX + 1];
    bool drain;
};

static void done_json(void *cookie, struct json *j)
{
    const struct change *c = cookie;

    log_info(c->drain ? "a node is to be emptied" : "a node is to be used again",
             KV_CSTR("node", c->node), KV_CSTR("peer", c->r->peer));
    json_put_cstr(j, "node", c->node);
    json_put_cstr(j, "state", c->drain ? "draining" : "active");
}

static void on_changed(void *cookie, const struct err *e)
{
    struct change *c = cookie;

    cluster_reply(c->r, e, done_json, c);
    xfree(c);
}

/* ".../NODE/drain": false where it is something else. */
static bool parse(struct str path, struct str *ret_node, bool *ret_drain)
{
    struct str rest = str_sub(path, STR(NODES).len, path.len);
    ptrdiff_t slash = str_find(rest, '/');

    if (slash < 0)
        return false;
    *ret_node = str_sub(rest, 0, (size_t)slash);
    rest = str_sub(rest, (size_t)slash + 1, rest.len);
    *ret_drain = str_eq(rest, STR("drain"));
    return (*ret_drain || str_eq(rest, STR("undrain"))) && node_name_ok(*ret_node);
}

static void on_node(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct str node;
    struct err e;
    bool drain;

    if (!parse(r->path, &node, &drain)) {
        (void)err_set(&e, ERR_NOT_FOUND, "want " NODES "NODE/drain or " NODES "NODE/undrain");
        http_reply_err(r, &e);
        return;
    }
    if (!p->ctx.coord) {
        (void)err_set(&e, ERR_UNIMPLEMENTED,
                      "shards do not move here: cluster.coordination is %s, and nodes can be "
                      "emptied with etcd only",
                      p->ctx.cluster->coordination);
        http_reply_err(r, &e);
        return;
    }
    if (!cluster_followed(p->ctx.view, r))
        return;
    struct change *c = XNEW(struct change);
    *c = (struct change){ .r = r, .drain = drain };
    memcpy(c->node, node.ptr, node.len);
    node_state_set(p->ctx.coord, p->ctx.cluster->etcd_prefix, c->node,
                   drain ? MAP_DRAINING : MAP_ACTIVE, on_changed, c);
}

void cluster_page_routes(struct process_core *p)
{
    http_route(p->ctx.http, HTTP_POST, NODES "*", 0, on_node, p);
}
