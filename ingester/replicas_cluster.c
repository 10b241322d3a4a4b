/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_cluster: our part in the cluster: registered under a lease, coming forward where a
 * leader is gone (common/cluster/lead.h), telling how far our replicas are, and handing over what
 * we lead before we go.
 */
#include "common/base/mem.h"
#include "common/cluster/controller.h"
#include "common/cluster/lead.h"
#include "common/cluster/member.h"
#include "common/obs/log.h"
#include "ingester/busy.h"
#include "ingester/replicas_impl.h"

#define HAND_OVER_MS 8000
#define SPREAD_PART  8 /* services of so small a part of what spreads one are told */
#define REPORT_MS    1000
#define SETTLE_MS    3000 /* no node came or went for so long: then a map is made */
#define MOVES_MAX    2

static void on_change(void *cookie, bool in, const struct err *why)
{
    const struct replicas *rs = cookie;

    if (in)
        log_info("registered in the cluster", KV_CSTR("node", rs->self));
    else if (why)
        log_warn("not registered in the cluster; what is led here goes on", KV_ERR(why));
}

/* May this node lead the shard now? */
static bool able(void *cookie, uint32_t shard)
{
    const struct replicas *rs = cookie;
    const struct replica_of *r = replica_find(rs, shard);

    return r && r->node && !r->failed && !rs->handing_over && !rs->stopping;
}

void cluster_join(struct replicas *rs)
{
    const struct replicas_opts *o = &rs->o;
    const struct role_ctx *ctx = rs->in->ctx;
    struct member_opts mo = {
        .loop = ctx->loop,
        .coord = o->coord,
        .view = rs->view,
        .prefix = o->prefix,
        .name = rs->self,
        .addr = o->addr,
        .zone = o->zone,
        .id = o->id,
        .ttl_ms = o->lease_ms,
        .on_change = on_change,
        .cookie = rs,
    };
    struct lead_opts lo = {
        .loop = ctx->loop,
        .coord = o->coord,
        .view = rs->view,
        .prefix = o->prefix,
        .able = able,
        .cookie = rs,
    };

    struct controller_opts co = {
        .loop = ctx->loop,
        .coord = o->coord,
        .view = rs->view,
        .prefix = o->prefix,
        .shards = (uint32_t)ctx->cluster->shards,
        .replicas = (uint32_t)ctx->cluster->replicas,
        .settle_ms = SETTLE_MS,
        .replace_ms = ctx->cluster->replace_after_ms,
        .moves_max = MOVES_MAX,
        .spread_bytes = ctx->cluster->spread_rate,
        .spread_after_ms = ctx->cluster->place_after_ms,
        .tenant_shards = (uint32_t)ctx->cluster->tenant_shards,
    };

    rs->in->busy = busy_new();
    rs->member = member_new(&mo);
    lo.member = rs->member;
    ctx->env->random(ctx->env, &lo.seed, sizeof(lo.seed));
    rs->lead = lead_new(&lo);
    co.member = rs->member;
    rs->controller = controller_new(&co);
}

void cluster_free(struct replicas *rs)
{
    controller_free(rs->controller);
    lead_free(rs->lead);
    member_free(rs->member);
}

static void on_left(void *cookie)
{
    (void)cookie;
}

void cluster_leave(struct replicas *rs)
{
    if (rs->member)
        member_leave(rs->member, on_left, NULL);
}

void cluster_established(struct replicas *rs, uint32_t shard, uint64_t record_term)
{
    if (rs->lead)
        lead_established(rs->lead, shard, record_term);
}

void cluster_give(struct replicas *rs, uint32_t shard, const char *to)
{
    if (rs->lead)
        lead_give(rs->lead, shard, to);
}

bool cluster_give_away(struct replica_of *r)
{
    struct replica_peer p, best = { 0 };
    struct view_node n;

    for (size_t i = 0; r->node && repl_node_peer(r->node, i, &p); i++)
        if (p.member && view_node_find(r->rs->view, p.name, &n) && n.live &&
            (!best.name || p.match > best.match))
            best = p;
    if (!best.name || !r->rs->lead)
        return false;
    cluster_give(r->rs, r->shard, best.name);
    return true;
}

/* ---- handing over --------------------------------------------------------------------------- */

static void hand_over_step(struct replicas *rs)
{
    bool left = false;

    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];

        left |= replica_is_named(r) ? cluster_give_away(r) : r->at == AT_SERVING;
    }
    if (left && replicas_now_ms(rs) < rs->hand_over_until_ms)
        return;
    void (*done)(void *cookie) = rs->handed_over;
    rs->handed_over = NULL;
    done(rs->handed_cookie);
}

void replicas_hand_over(struct replicas *rs, void (*done)(void *cookie), void *cookie)
{
    rs->handing_over = true;
    rs->handed_over = done;
    rs->handed_cookie = cookie;
    rs->hand_over_until_ms = replicas_now_ms(rs) + HAND_OVER_MS;
}

/* ---- progress ------------------------------------------------------------------------------- */

static void report(struct replicas *rs)
{
    struct progress_shard shards[SHARDS_MAX];
    struct progress_service services[PROGRESS_SERVICES_MAX];
    struct progress p = { .shards = shards, .services = services };
    uint64_t spread = rs->in->ctx->cluster->spread_rate;

    if (spread)
        p.services_len = busy_report(rs->in->busy, REPORT_MS, spread / SPREAD_PART, services,
                                     PROGRESS_SERVICES_MAX);

    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];
        struct replica_state st = replica_now(r);

        if (!r->node)
            continue;
        shards[p.shards_len++] = (struct progress_shard){
            .shard = r->shard,
            .term = replica_record_of(st.term),
            .last = st.last_index,
            .commit = st.commit,
            .leads = st.role == REPLICA_LEADING,
        };
    }
    member_report(rs->member, &p);
}

void cluster_tick(struct replicas *rs)
{
    uint64_t now = replicas_now_ms(rs);

    if (rs->handed_over)
        hand_over_step(rs);
    if (rs->member && !rs->handing_over && now >= rs->report_ms) {
        rs->report_ms = now + REPORT_MS;
        report(rs);
    }
}
