/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_ask: what others want to know of the replicas: are they well, do they lead, how far are
 * they.
 */
#include "common/base/mem.h"
#include "common/cluster/node/member.h"
#include "common/obs/log.h"
#include "ingester/replicas/replicas_impl.h"

/* Entries that a copy may be behind and still take over soon. */
#define REACH 1024

/* How far is it behind, as far as known; 0: within reach. */
static uint64_t behind(const struct replica_of *r, struct err *e)
{
    struct replica_state st = replica_now(r);
    struct view_shard v;
    uint64_t n = 1;

    if (r->at == AT_SERVING || (!r->wanted && !r->must_return))
        return 0;
    if (!r->node) {
        (void)err_set(e, ERR_UNAVAILABLE, "shard %" PRIu32 " is not open yet%s%.300s", r->shard,
                      r->trouble.code ? ": " : "", r->trouble.code ? r->trouble.text : "");
    } else if (r->damage.code) {
        (void)err_set(e, ERR_UNAVAILABLE, "shard %" PRIu32 ": %.450s", r->shard, r->damage.text);
    } else if (r->must_return && (st.silent || !st.member)) {
        (void)err_set(e, ERR_UNAVAILABLE,
                      "shard %" PRIu32 ": the local copy was lost and is still being fetched from "
                      "other members",
                      r->shard);
    } else if (st.silent || st.no_database || repl_node_copy(r->node).from) {
        (void)err_set(e, ERR_UNAVAILABLE, "shard %" PRIu32 " is on its way here as a whole",
                      r->shard);
    } else if (replica_is_named(r) || !view_shard(r->rs->view, r->shard, &v) || !v.leader_live) {
        n = 0; /* it leads soon, or the commit index of the leader is not known */
    } else if (!st.leader_commit) {
        (void)err_set(e, ERR_UNAVAILABLE, "the leader of shard %" PRIu32 " (%s) was not heard yet",
                      r->shard, v.leader);
    } else if (!st.applied) {
        (void)err_set(e, ERR_UNAVAILABLE, "nothing of shard %" PRIu32 " is here yet", r->shard);
    } else if (st.applied + REACH < st.leader_commit) {
        n = st.leader_commit - st.applied;
        (void)err_set(e, ERR_UNAVAILABLE,
                      "shard %" PRIu32 " is %" PRIu64 " entries behind its leader", r->shard, n);
    } else {
        n = 0;
    }
    return n;
}

void replicas_look_behind(struct replicas *rs)
{
    struct err e = { 0 };
    uint64_t n = 0;

    for (size_t i = 0; i < rs->len; i++) { /* a loss that is mended is no reason for later ones */
        struct replica_state st = replica_now(rs->at[i]);

        rs->at[i]->must_return &= !rs->at[i]->node || st.silent || !st.member;
    }
    if (rs->caught_up || !view_ready(rs->view))
        return;
    /* While a cluster is made its shards are placed one after the other: some of them here. */
    for (uint32_t i = 0; i < view_shards(rs->view) && !n; i++)
        if (!view_record(rs->view, i, NULL)) {
            (void)err_set(&e, ERR_UNAVAILABLE, "shard %" PRIu32 " is not placed yet", i);
            n = 1;
        }
    for (size_t i = 0; i < rs->len && !n; i++)
        n = behind(rs->at[i], &e);
    rs->caught_up = n == 0 || replicas_now_ms(rs) >= rs->catch_up_until_ms;
    if (n && rs->caught_up)
        log_warn("not all copies are within reach of their leaders, and it took "
                 "cluster.catch_up_wait: ready nevertheless",
                 KV_ERR(&e));
    rs->behind = e;
}

int replicas_ready(const struct replicas *rs, struct err *e)
{
    if (!view_ready(rs->view))
        return err_set(e, ERR_UNAVAILABLE, "the map of the cluster is not known yet%s%s",
                       view_why(rs->view)[0] ? ": " : "", view_why(rs->view));
    /* What others believe of this name is said of the other one. */
    if (rs->member && member_rival(rs->member)[0])
        return err_set(e, ERR_UNAVAILABLE, "%s", member_rival(rs->member));
    if (rs->handing_over)
        return err_set(e, ERR_UNAVAILABLE, "the ingester hands over what it leads");
    if (disk_watch_check(rs->in->disk_watch, ERR_UNAVAILABLE, e))
        return e->code;
    if (!rs->caught_up)
        return err_set(e, ERR_UNAVAILABLE, "%s",
                       rs->behind.code ? rs->behind.text : "copies are looked at");
    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];

        if (r->wanted && !r->node)
            return err_set(e, ERR_UNAVAILABLE, "shard %" PRIu32 " is not open: %s", r->shard,
                           r->at != AT_OPENING && r->err.code ? r->err.text : "it is being opened");
        if (r->wanted && replica_is_named(r) && r->at != AT_SERVING)
            return err_set(e, ERR_UNAVAILABLE,
                           "shard %" PRIu32 " is led from here, and not served yet", r->shard);
    }
    return 0;
}

const char *replicas_follows(const struct replicas *rs, uint32_t shard)
{
    const struct replica_of *r = replica_find(rs, shard);
    struct replica_state st;

    if (!r || !r->node)
        return NULL;
    st = replica_now(r);
    if (st.role == REPLICA_LEADING)
        return rs->self;
    return st.follows[0] ? st.follows : NULL;
}

struct step_confirm {
    struct replicas *rs;
    size_t pending;
    struct err err;
    void (*done)(void *cookie, const struct err *e);
    void *cookie;
};
struct confirm_part {
    struct step_confirm *c;
    struct replica_of *r;
    uint64_t epoch;
};

static void confirm_end(struct step_confirm *c)
{
    if (--c->pending > 0)
        return;
    c->done(c->cookie, c->err.code ? &c->err : NULL);
    xfree(c);
}

static void on_confirmed(void *cookie, int code)
{
    struct confirm_part *p = cookie;
    const struct replica_of *r = p->r;

    if (code || r->at != AT_SERVING || r->epoch != p->epoch)
        (void)err_set(&p->c->err, ERR_UNAVAILABLE,
                      "this ingester does not lead shard %" PRIu32
                      " any more, or no majority of its members answers; ask its leader",
                      r->shard);
    confirm_end(p->c);
    xfree(p);
}

static void on_begun(void *cookie)
{
    confirm_end(cookie);
}

void replicas_confirm(struct replicas *rs, struct shard *const *shards, size_t n,
                      void (*done)(void *cookie, const struct err *e), void *cookie)
{
    struct step_confirm *c = XNEW(struct step_confirm);

    *c = (struct step_confirm){ .rs = rs, .pending = 1, .done = done, .cookie = cookie };
    for (size_t i = 0; i < n; i++) {
        struct replica_of *r = replica_find(rs, shard_number(shards[i]));

        /* The caller holds the shard, so if one is served it is this one. */
        if (!r || r->at != AT_SERVING) {
            (void)err_set(&c->err, ERR_UNAVAILABLE, "shard %" PRIu32 " is being closed here",
                          shard_number(shards[i]));
            continue;
        }
        struct confirm_part *p = XNEW(struct confirm_part);
        *p = (struct confirm_part){ c, r, r->epoch };
        c->pending++;
        repl_node_confirm(r->node, on_confirmed, p);
    }
    loop_post(rs->in->ctx->loop, on_begun, c);
}

static void peers_json(const struct replica_of *r, const struct replica_state *st, struct json *j)
{
    struct replica_peer p;

    json_key(j, "peers");
    json_arr(j);
    for (size_t i = 0; r->node && st->role == REPLICA_LEADING && repl_node_peer(r->node, i, &p);
         i++) {
        json_obj(j);
        json_put_cstr(j, "name", p.name);
        json_put_bool(j, "member", p.member);
        json_put_u64(j, "behind", st->last_index - MIN(p.match, st->last_index));
        json_put_bool(j, "snapshot", p.snapshot);
        json_put_bool(j, "takesNothing", replica_peer_is_mute(&p));
        json_obj_end(j);
    }
    json_arr_end(j);
}

void replicas_ring(const struct replicas *rs, struct json *j)
{
    static const char *const words[] = { "closed",  "opening", "following", "starting",
                                         "serving", "closing", "stopping",  "removing" };

    json_put_cstr(j, "node", rs->self);
    json_put_bool(j, "noRoom", rs->full);
    if (rs->member) {
        json_put_bool(j, "registered", member_in(rs->member));
        json_put_cstr(j, "whyNot", member_why(rs->member));
    }
    json_key(j, "replicas");
    json_arr(j);
    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];
        struct replica_state st = replica_now(r);

        json_obj(j);
        json_put_u64(j, "shard", r->shard);
        json_put_cstr(j, "state", words[r->at]);
        json_put_bool(j, "lost", st.silent && r->lost_rev);
        json_put_cstr(j, "damage", r->at != AT_OPENING && r->damage.code ? r->damage.text : "");
        json_put_u64(j, "term", st.record_term);
        json_put_cstr(j, "leader", r->node && st.leader ? st.leader : "");
        json_put_u64(j, "lastIndex", st.last_index);
        json_put_u64(j, "commit", st.commit);
        json_put_u64(j, "applied", st.applied);
        copy_json(r, j);
        peers_json(r, &st, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}
