/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_steps: announces the changes of places that are wanted, and commits them once they are
 * confirmed.
 *
 *   wanted ──announce──> announced ──commit──> a step
 *     ^                      │  │
 *     └──────retreat─────────┘  └──announce, with a later time: profiles exist after the first one
 *
 * 1. A change is announced only when all nodes that must confirm it have just confirmed the map
 *    that wants it, so they are able to. One change at a time.
 * 2. While it is announced, every process that knows it refuses writes that it may move. So it ends
 *    after 5 s plus a 15th of spread_after_ms, at most (10 s at least).
 * 3. Confirmed by all nodes: it is committed. If a profile at the old places is as late as the
 *    step, the step gets a later time instead.
 * 4. Not confirmed in time: the change is only wanted again (retreat), and another one gets its
 *    turn.
 *
 * Only the controller that announced a step commits it. If etcd goes away before that, an ingester
 * that refuses writes for the step asks the announcing controller to abort it
 * (controller_step_abort). The abort is final: the controller remembers it while the process
 * lives, and a later controller announces again. A step that it has tried to commit it cannot
 * abort, since etcd may have executed the commit.
 *
 * No clock makes this right, clocks only make it fast: that no profile at the old places is as late
 * as the step is what confirmations say.
 */
#include <stdio.h>

#include "common/base/hash.h"
#include "common/cluster/control/controller_impl.h"
#include "common/cluster/map/map_pending.h"
#include "common/cluster/place/step_confirm.h"
#include "common/rpc/rpc.h"

#define LEAD_MS      5000   /* a confirmation takes as long as a report and a file */
#define PATIENCE     15     /* this part of spread_after_ms, and LEAD_MS twice at least */
#define MARGIN_MS    120000 /* behind the latest profile there is, at most */
#define LOOKS_MOST   32     /* at what is wanted, each tick */
#define FAR_AHEAD_MS INT64_C(86400000)

static const char *text_of(const struct map_whose *w, char buf[160])
{
    if (w->service.len)
        (void)snprintf(buf, 160, "service %.*s of %.*s", STR_ARG(str_sub(w->service, 0, 60)),
                       STR_ARG(str_sub(w->tenant, 0, 60)));
    else if (w->tenant.len)
        (void)snprintf(buf, 160, "tenant %.*s", STR_ARG(str_sub(w->tenant, 0, 60)));
    else
        (void)snprintf(buf, 160, "tenants without a number");
    return buf;
}

void controller_step_is_aborted(struct controller *c)
{
    uint64_t id = hash_u64(c->o.life + hash_u64((uint64_t)c->fence + hash_u64(c->store)));

    if (c->o.life)
        (void)snprintf(c->word.by, sizeof(c->word.by), "%s %016" PRIx64, member_name(c->o.member),
                       id);
}

int controller_step_abort(struct controller *c, struct str by, uint64_t version, struct err *e)
{
    if (!by.len || !str_eqc(by, c->word.by))
        return err_set(e, ERR_CONFLICT,
                       "what map %" PRIu64 " of the cluster announces was announced by another "
                       "controller, or before this one was started",
                       version);
    if (version <= c->word.decided)
        return err_set(e, ERR_CONFLICT,
                       "what map %" PRIu64 " of the cluster announces may be valid by now",
                       version);
    c->word.given_up = MAX(c->word.given_up, version);
    return 0;
}

/* A controller of an older build commits any step that it finds announced. While such a controller
 * may exist, or a node whose build is not known, no promise of an abort can be kept. */
static struct str word(const struct controller *c, const struct map *m)
{
    struct view_node n;

    for (size_t i = 0; i < view_nodes_len(c->o.view); i++) {
        view_node(c->o.view, i, &n);
        if ((n.live || n.state != MAP_LEFT) && n.methods <= RPC_GIVE_UP)
            return STR_NULL;
    }
    for (size_t i = 0; i < m->nodes_len; i++)
        if (m->nodes[i].state != MAP_LEFT && !view_node_find(c->o.view, m->nodes[i].name, &n))
            return STR_NULL;
    return str_c(c->word.by);
}

static void announce(struct controller *c, const struct map *m, int64_t rev,
                     const struct map_whose *w, int64_t newest_ms)
{
    int64_t now = clock_wall_ms(loop_clock(c->o.loop)), after = (int64_t)c->o.spread_after_ms;
    int64_t from = MAX(now + after, newest_ms + MIN(after, (int64_t)MARGIN_MS)) + LEAD_MS;
    const struct map *next;
    char name[160];
    struct err e;

    if (newest_ms > now + after + FAR_AHEAD_MS) {
        controller_say(
            c, "%s waits: its shards hold profiles of %" PRId64 " hours ahead of this node's clock",
            text_of(w, name), (newest_ms - now) / 3600000);
        return;
    }
    if (map_pending_announce(m, w, from, word(c, m), &next, &e)) {
        controller_say(c, "%s: %s", text_of(w, name), e.text);
        return;
    }
    controller_say(c, "announces %u shards of %s", map_whose_steps(next, w)->next.n,
                   text_of(w, name));
    controller_put_map(c, next, rev);
    map_unref(next);
}

static void commit(struct controller *c, const struct map *m, int64_t rev,
                   const struct map_whose *w)
{
    uint32_t n = map_whose_steps(m, w)->next.n;
    const struct map *next;
    char name[160];
    struct err e;

    if (map_pending_commit(m, w, &next, &e)) {
        controller_say(c, "%s: %s", text_of(w, name), e.text);
        return;
    }
    controller_say(c, "gives %s %u shards", text_of(w, name), n);
    c->word.decided = map_whose_steps(m, w)->next.version;
    controller_put_map(c, next, rev);
    map_unref(next);
}

static void retreat(struct controller *c, const struct map *m, int64_t rev,
                    const struct map_whose *w, const char *why)
{
    const struct map *next;
    char name[160];
    struct err e;

    if (map_pending_retreat(m, w, &next, &e))
        return;
    controller_say(c, "%s waits again: %s", text_of(w, name), why);
    controller_put_map(c, next, rev);
    map_unref(next);
}

static void mind(struct controller *c, const struct map *m, int64_t rev, const struct map_whose *w)
{
    const struct map_pending *next = &map_whose_steps(m, w)->next;
    uint64_t patience = LEAD_MS + MAX(c->o.spread_after_ms / PATIENCE, (uint64_t)LEAD_MS);
    struct confirmed got;
    char name[160];

    if (c->steps.announced != next->version) {
        c->steps.announced = next->version;
        c->steps.since_ms = controller_now_ms(c);
    }
    step_confirm_check(c->o.view, c->reports, w, next->version, &got);
    if (next->by.len && !str_eqc(next->by, c->word.by))
        retreat(c, m, rev, w, "another controller did it");
    else if (next->version <= c->word.given_up)
        retreat(c, m, rev, w, "it was aborted while etcd was away");
    else if (got.all && got.newest_ms < next->from_ms)
        commit(c, m, rev, w);
    else if (got.all)
        announce(c, m, rev, w, got.newest_ms);
    else if (controller_now_ms(c) - c->steps.since_ms >= patience)
        retreat(c, m, rev, w, got.why);
    else
        controller_say(c, "%s waits to be confirmed: %s", text_of(w, name), got.why);
}

void controller_steps(struct controller *c, const struct map *m, int64_t rev)
{
    size_t all = 1 + m->tenants_len + m->services_len;
    struct map_whose w;
    struct confirmed got;
    char name[160];

    for (size_t pos = 0; map_pending_each(m, &pos, &w);)
        if (map_whose_steps(m, &w)->next.from_ms) {
            mind(c, m, rev, &w);
            return;
        }
    for (uint32_t looks = 0; looks < LOOKS_MOST && !c->map_busy; looks++) {
        size_t pos = c->steps.turn % all;

        if (!map_pending_each(m, &pos, &w)) {
            c->steps.turn = 0;
            return;
        }
        c->steps.turn = pos;
        step_confirm_check(c->o.view, c->reports, &w, map_whose_steps(m, &w)->next.version, &got);
        if (got.all)
            announce(c, m, rev, &w, got.newest_ms);
        else
            controller_say(c, "%s waits: %s", text_of(&w, name), got.why);
    }
}
