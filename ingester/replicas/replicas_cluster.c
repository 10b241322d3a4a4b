/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_cluster: our part in the cluster: registered under a lease, coming forward where a
 * leader is gone (common/cluster/node/lead.h), telling how far our replicas are, and handing over
 * what we lead before we go.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/control/controller.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/lead.h"
#include "common/cluster/node/member.h"
#include "common/cluster/rebuild/adopt.h"
#include "common/obs/log.h"
#include "ingester/replicas/replicas_impl.h"
#include "ingester/shard/copy_load.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/top_services.h"
#include "ingester/tier/tier.h"

#define HAND_OVER_MS 8000
#define SPREAD_PART  8 /* services are reported from this part of the rate that spreads one */
#define REPORT_MS    1000
#define ASK_MS       1000
#define FULL_MS      3000 /* without room, unfit, or incomplete: others come first by so much */
#define UNFIT_MS     600000
#define SETTLE_MS    3000 /* no node came or went for so long: then a map is made */
#define MOVES_MAX    2
#define MUTE_TICKS   120 /* three seconds */

static void on_change(void *cookie, bool in, const struct err *why)
{
    const struct replicas *rs = cookie;

    if (in)
        log_info("registered in the cluster", KV_CSTR("node", rs->self));
    else if (why)
        log_warn("not registered in the cluster; shards that are led here are still served",
                 KV_ERR(why));
}

/* A replica that a copy of the database comes in for could lead when the copy is whole, which may
 * take hours; the coordination service may be away by the time it says so and names another one. */
static bool is_incomplete(const struct replica_of *r)
{
    return r->node && (replica_now(r).no_database || repl_node_copy(r->node).from);
}

static bool others_first(const struct replicas *rs, const struct replica_of *r)
{
    return is_incomplete(r) || rs->full || disk_watch_suspects(rs->in->disk_watch) ||
           replicas_now_ms(rs) < r->unfit_ms;
}

/* May this node lead the shard now? */
static bool able(void *cookie, uint32_t shard)
{
    const struct replicas *rs = cookie;
    struct replica_of *r = replica_find(rs, shard);

    /* Where the disks of all members are full, one leads nevertheless: for queries. */
    if (r && others_first(rs, r)) {
        if (!r->full_ms || r->full_term != replica_now(r).record_term) {
            r->full_ms = replicas_now_ms(rs);
            r->full_term = replica_now(r).record_term;
        }
        if (replicas_now_ms(rs) < r->full_ms + FULL_MS)
            return false;
    }
    return r && r->node && !r->failed && !replica_now(r).silent && !rs->handing_over &&
           !rs->stopping && !disk_watch_hangs(rs->in->disk_watch);
}

static struct metric_cell *gauge(const struct replicas *rs, const char *name, const char *help)
{
    struct metric *m = metric_new(rs->in->ctx->metrics, METRIC_GAUGE, name, help, NULL);

    return metric_at(m, NULL, 0);
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
        .life = rs->life,
    };

    uint8_t chance[CLUSTER_ID_BYTES];
    char id[CLUSTER_ID_LEN + 1];

    rs->in->busy = top_services_new();
    rs->weigh = copy_load_new();
    rs->member = member_new(&mo);
    rs->m_registered = gauge(rs, "embertree_ingester_registered",
                             "1: this node is in the cluster, as far as the coordination service "
                             "says");
    rs->m_rival = gauge(rs, "embertree_ingester_name_taken",
                        "1: another process, of another data folder, is in the cluster under this "
                        "node's name");
    lo.member = rs->member;
    ctx->env->random(ctx->env, &lo.seed, sizeof(lo.seed));
    rs->lead = lead_new(&lo);
    co.member = rs->member;
    ctx->env->random(ctx->env, chance, sizeof(chance));
    cluster_id_make(chance, id);
    co.cluster_id = id;
    rs->controller = controller_new(&co);
}

void cluster_free(struct replicas *rs)
{
    step_abort_end(rs);
    controller_free(rs->controller);
    copy_load_free(rs->weigh);
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

void replicas_give_lead(struct replicas *rs, uint32_t shard, const char *to, const char *why)
{
    if (rs->lead)
        lead_hand_over(rs->lead, shard, to, why);
}

/* At the second time: it may have been a moment's trouble. */
void cluster_unfit(struct replica_of *r)
{
    if (!r->unfit_ms) {
        r->unfit_ms = 1;
        return;
    }
    r->unfit_ms = replicas_now_ms(r->rs) + UNFIT_MS;
    if (replica_is_named(r) &&
        replicas_give_lead_away(r, "the leader before could not open the shard twice"))
        log_warn("another member is to lead the shard, which cannot be served from here: check "
                 "this node's disk, or drain the node, so that its copy is fetched again",
                 KV_U64("shard", r->shard));
}

/* ---- handing over --------------------------------------------------------------------------- */

static void hand_over_step(struct replicas *rs)
{
    bool left = false;

    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];

        left |= replica_is_named(r)
                    ? replicas_give_lead_away(r, "the leader before stops or restarts")
                    : r->at == AT_SERVING;
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

/* ---- a log that is gone ---------------------------------------------------------------------- */

/* An answer of this node counts permanently, so a log that has not begun must not speak for a log
 * that was lost. Before a log begins, its shard and node are noted in the coordination service,
 * once. If the note exists already, an earlier log has answered, or may have. Then the replica
 * stays silent as long as the record, or the established one before it, has this node as a member.
 * The controller sees that. Where the other members are a majority that has all entries, it removes
 * the replica from the members, which then copies the shard from them. */
static bool counted_on(const struct replicas *rs, const struct repl_record *rec)
{
    if (!rec->established && !rec->prev_members.len)
        return false; /* no member has committed anything */
    return name_set_has(&rec->members, rs->self) || name_set_has(&rec->prev_members, rs->self);
}

static void admit(struct replica_of *r)
{
    r->lost_rev = 0;
    r->noted = true;
    r->spoke = true;
    repl_node_admit(r->node);
    replicas_step_soon(r->rs);
}

/* The data folder, and which life of its process. */
struct begun_text {
    char text[40];
};
static struct begun_text begun_text(const struct replicas *rs)
{
    struct begun_text t;

    (void)snprintf(t.text, sizeof(t.text), "%016" PRIx64 ".%016" PRIx64, rs->o.id, rs->life);
    return t;
}

static void again(struct replica_of *r)
{
    r->ask_ms = replicas_now_ms(r->rs) + ASK_MS;
}

static void on_record(void *cookie, const struct coord_reply *reply)
{
    struct replica_of *r = cookie;
    struct coord_key key = key_shard(str_c(r->rs->o.prefix), r->shard);
    struct repl_record rec;
    struct err e;

    r->asking = false;
    again(r);
    for (size_t i = 0; !reply->err && i < reply->kvs_len; i++) {
        const struct coord_kv *kv = &reply->kvs[i];

        if (!str_eq(kv->key, key_str(&key)) || record_parse(kv->value, &rec, &e))
            continue;
        if (!counted_on(r->rs, &rec)) {
            admit(r);
            return;
        }
        r->lost_rev = kv->mod_rev;
        r->must_return = !r->rs->caught_up;
        log_error(
            "the log of a shard is gone, and this node is one of its members: it does not vote "
            "until the others have removed it, and then copies the shard from them. With too few "
            "others left the shard has no leader",
            KV_U64("shard", r->shard), KV_CSTR("node", r->rs->self));
    }
}

/* This process may have written it, and the answer was lost. */
static void on_whose(void *cookie, const struct coord_reply *reply)
{
    struct replica_of *r = cookie;
    struct coord_key key = key_shard(str_c(r->rs->o.prefix), r->shard);
    struct coord_key own = key_begun(str_c(r->rs->o.prefix), r->shard, r->rs->self);
    struct begun_text mine = begun_text(r->rs);

    bool there = reply->err != NULL;

    /* noted: this process had a log before, which is gone as well. */
    for (size_t i = 0; !reply->err && i < reply->kvs_len; i++) {
        if (!str_eq(reply->kvs[i].key, key_str(&own)))
            continue;
        there = true;
        if (!r->noted && str_eq(reply->kvs[i].value, str_c(mine.text))) {
            r->asking = false;
            admit(r);
            return;
        }
    }
    if (!there) { /* the record was another one: from the beginning */
        r->asking = false;
        again(r);
        return;
    }
    coord_list(r->rs->o.coord, key_str(&key), on_record, r);
}

static void on_begun(void *cookie, const struct coord_reply *reply)
{
    struct replica_of *r = cookie;
    struct coord_key key = key_begun(str_c(r->rs->o.prefix), r->shard, r->rs->self);

    if (!reply->err && !reply->done) { /* it had one once */
        coord_list(r->rs->o.coord, key_str(&key), on_whose, r);
        return;
    }
    r->asking = false;
    again(r);
    if (!reply->err)
        admit(r);
}

/* A shard that was adopted (common/cluster/rebuild/adopt.h) and not served since has its only copy
   in the
 * adopted folder, where its log has begun: there is no silent replica of it to admit. Compared in
 * the transaction itself, since another node may write the plan at the same time. */
void cluster_admit(struct replica_of *r)
{
    struct coord_key key = key_begun(str_c(r->rs->o.prefix), r->shard, r->rs->self);
    struct coord_key record = key_shard(str_c(r->rs->o.prefix), r->shard);
    struct coord_key plan = key_adopt(str_c(r->rs->o.prefix));
    struct coord_compare cmp[3] = { { .key = key_str(&key) },
                                    { .key = key_str(&record) },
                                    { .key = key_str(&plan) } };
    struct coord_change chg = { .key = key_str(&key) };
    int64_t rev = 0;
    const struct repl_record *rec = view_record(r->rs->view, r->shard, &rev);
    struct begun_text mine = begun_text(r->rs);

    if (r->asking || !r->node || !rev || !view_trusts(r->rs->view))
        return;
    if (r->lost_rev) {
        if (rec && rev > r->lost_rev && !counted_on(r->rs, rec))
            admit(r);
        else if (replica_is_named(r) && r->rs->lead)
            /* It is not known here which member has most of the log. */
            (void)lead_pass(r->rs->lead, r->shard, "the leader before has lost its log");
        return;
    }
    if (replicas_now_ms(r->rs) < r->ask_ms)
        return;
    r->asking = true;
    chg.value = str_c(mine.text);
    cmp[1].rev = rev; /* a service that forgot all would know of no earlier log */
    coord_txn(r->rs->o.coord,
              &(struct coord_txn){ .cmp = cmp,
                                   .cmp_len = rec && adopt_untouched(rec, r->rs->self) ? 3 : 2,
                                   .chg = &chg,
                                   .chg_len = 1 },
              on_begun, r);
}

static void on_noted(void *cookie, const struct coord_reply *reply)
{
    struct replica_of *r = cookie;

    r->asking = false;
    r->noted = !reply->err; /* there now, or before */
    again(r);
}

void cluster_note(struct replica_of *r)
{
    struct coord_key key = key_begun(str_c(r->rs->o.prefix), r->shard, r->rs->self);
    struct begun_text mine = begun_text(r->rs);
    struct coord_compare cmp = { .key = key_str(&key) };
    struct coord_change chg = { .key = key_str(&key), .value = str_c(mine.text) };

    r->spoke = true;
    if (r->noted || r->asking || !r->rs->o.coord || !view_trusts(r->rs->view) ||
        replicas_now_ms(r->rs) < r->ask_ms)
        return;
    r->asking = true;
    coord_txn(r->rs->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 }, on_noted,
              r);
}

void cluster_forget(struct replica_of *r)
{
    if (r->asking)
        coord_cancel(r->rs->o.coord, r);
    r->asking = false;
    r->lost_rev = 0;
}

/* A log that was found to be gone stays gone: the next record that does not count on it lets it
 * speak, whatever revision it has there. */
void cluster_store_anew(struct replica_of *r)
{
    if (r->asking)
        coord_cancel(r->rs->o.coord, r);
    r->asking = false;
    if (r->lost_rev)
        r->lost_rev = 1;
    if (r->node && !replica_now(r).silent)
        r->noted = false;
}

/* ---- progress ------------------------------------------------------------------------------- */

static void weigh(struct replicas *rs, const struct replica_of *r, struct progress_shard *ret)
{
    struct kv_stats st;
    uint64_t bytes = 0;

    copy_load_report(rs->weigh, repl_node_appended(r->node), REPORT_MS, ret);
    if (!copy_load_turn(rs->weigh, r->shard) || !repl_node_stats(r->node, &st))
        return;
    for (size_t i = 0; i < KV_CFS; i++)
        bytes += st.file_bytes[i];
    copy_load_stored(rs->weigh, r->shard, bytes);
}

/* In the epoch that began with what is stored: others have written nothing since. */
static bool serves(const struct replica_of *r, const struct replica_state *st)
{
    return r->at == AT_SERVING && st->role == REPLICA_LEADING && st->epoch == r->epoch;
}

/* True for a member that has acked nothing for MUTE_TICKS: it takes no entries. A member that
 * restarts is mute, too: its log does not count until it answers. */
bool replica_peer_is_mute(const struct replica_peer *p)
{
    return p->member && !p->snapshot &&
           (p->silent_ticks >= MUTE_TICKS || p->stuck_ticks >= MUTE_TICKS);
}

/* Copies that take nothing, of this node and of shards it leads. */
static size_t report_bad(const struct replicas *rs, struct progress_bad *bad)
{
    struct replica_peer p;
    size_t n = 0;

    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];

        if (n < PROGRESS_BAD_MAX && r->wanted && r->trouble.code)
            bad[n++] = (struct progress_bad){ r->shard, STR(""), str_c(r->trouble.text) };
        else if (n < PROGRESS_BAD_MAX && r->wanted && r->at != AT_OPENING && r->damage.code)
            bad[n++] = (struct progress_bad){ r->shard, STR(""), str_c(r->damage.text) };
        if (replica_now(r).role != REPLICA_LEADING)
            continue;
        for (size_t k = 0; n < PROGRESS_BAD_MAX && repl_node_peer(r->node, k, &p); k++)
            if (replica_peer_is_mute(&p))
                bad[n++] = (struct progress_bad){
                    r->shard, str_c(p.name),
                    p.silent_ticks >= MUTE_TICKS ? STR("it does not answer its leader")
                                                 : STR("it stores nothing of what its leader sends")
                };
    }
    return n;
}

static void report(struct replicas *rs)
{
    struct progress_bad bad[PROGRESS_BAD_MAX];
    char trouble[DISK_WATCH_WORDS];
    struct progress_shard shards[SHARDS_MAX];
    struct progress_service services[PROGRESS_SERVICES_MAX];
    struct progress p = { .shards = shards, .services = services };
    uint64_t version = placement_guard_version(rs->in->placed); /* before the times below:
    placement_guard.h */
    uint64_t spread = rs->in->ctx->cluster->spread_rate;

    disk_watch_words(rs->in->disk_watch, trouble);
    p.trouble = str_c(trouble);
    p.room = rs->full ? PROGRESS_NO_ROOM : PROGRESS_ROOM;
    p.replace_ms = rs->in->ctx->cluster->replace_after_ms;
    p.bad = bad;
    p.bad_len = report_bad(rs, bad);
    if (spread)
        p.services_len = top_services_report(rs->in->busy, REPORT_MS, spread / SPREAD_PART,
                                             services, PROGRESS_SERVICES_MAX);

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
            .lost = st.silent && r->lost_rev,
            .full = others_first(rs, r),
            .newest_ms = serves(r, &st) ? placement_guard_newest_ms(rs->in->placed, r->shard) : 0,
        };
        copy_report(r, &shards[p.shards_len - 1]);
        weigh(rs, r, &shards[p.shards_len - 1]);
    }
    copy_load_end(rs->weigh);
    struct err cold;
    if (tier_trouble(rs->in->tier, &cold))
        p.cold = str_c(cold.text);
    p.map = MIN(version, view_kept(rs->view));
    member_report(rs->member, &p);
}

/* Logs once that this node has left the cluster, and again after each start of the process, which
 * would otherwise wait for shards without end. A start alone does not use the node again, since
 * machines and pods restart processes by themselves. */
static void look_left(struct replicas *rs)
{
    struct view_node n;
    bool left = view_node_find(rs->view, rs->self, &n) && n.state == MAP_LEFT;

    if (left && !rs->left)
        log_warn("this node was drained and has left the cluster: it is given nothing, also when "
                 "it is started again, and can be stopped for good; `embertreectl cluster undrain` "
                 "with its name uses it again",
                 KV_CSTR("node", rs->self));
    rs->left = left;
}

void cluster_tick(struct replicas *rs)
{
    uint64_t now = replicas_now_ms(rs);

    if (rs->member) {
        look_left(rs);
        metric_set(rs->m_registered, member_in(rs->member));
        metric_set(rs->m_rival, member_rival(rs->member)[0] != '\0');
    }
    if (rs->handed_over)
        hand_over_step(rs);
    for (size_t i = 0; rs->lead && !rs->handing_over && i < rs->len; i++)
        replicas_lost_majority(rs->at[i]);
    if (rs->controller)
        step_abort_tick(rs);
    if (rs->member && !rs->handing_over && now >= rs->report_ms) {
        rs->report_ms = now + REPORT_MS;
        report(rs);
    }
}
