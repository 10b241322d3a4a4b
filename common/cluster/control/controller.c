/* SPDX-License-Identifier: Apache-2.0
 *
 * controller: from what is seen to the next write.
 *
 *   each tick (on_tick):
 *
 *     waits ──campaign, act: the key is ours──> acts ──depose: lease or store changed──> waits
 *                                                │
 *               the map: not found ──controller_make_map──────────────> end of the tick
 *                        no id ──controller_name_cluster──────────────> end of the tick
 *                        a node missing, moved, drained empty
 *                              ──controller_mend_map──────────────────> end of the tick
 *               work_out: which nodes should have each shard
 *               records: a shard has none ──first_records──> its first one
 *               places:  ──controller_spread, controller_steps──> the next version of the map
 *               leaders: ──controller_lead──> other leaders for some shards
 *               records: ──move_shards──> one step for some of the others
 *
 * One write of the map at a time, some records at once, each a transaction that compares the fence
 * and the revision that it was made from. A write that fails is worked out again in the next tick:
 * there is no list of things to do that could go stale.
 *
 * A dead node keeps its place for replace_ms: a restart must not move its data. A controller knows
 * only since its own start when a node was last alive, so a new controller waits the whole time
 * again.
 *
 * How far replicas are comes from the nodes' own keys. A shard whose leader reports nothing is left
 * alone.
 */
#include "common/cluster/control/controller.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/hash.h"
#include "common/cluster/control/controller_impl.h"
#include "common/cluster/place/place.h"

#define TICK_MS    500
#define FRESH_MS   3000
#define CALLS_MOST 32
#define FIRST_MOST 32 /* first records in one transaction */
#define REPLAN_MS  60000
#define CANDIDATES 3

void PRINTF(2, 3) controller_say(struct controller *c, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(c->says, sizeof(c->says), fmt, args);
    va_end(args);
}

struct coord_compare controller_fence(const struct controller *c, const struct coord_key *key)
{
    return (struct coord_compare){ .key = key_str(key), .create = true, .rev = c->fence };
}

/* ---- calls ----------------------------------------------------------------------------------- */

void controller_on_called(void *cookie, const struct coord_reply *r)
{
    struct control_call *k = cookie;
    struct controller *c = k->c;

    if (k->shard == CLUSTER_SHARDS_MAX) {
        c->map_busy = false;
    } else {
        c->busy[k->shard] = false;
        if (!r->err && r->done) {
            c->tried[k->shard] = k->rev;
            lead_note_log(&k->note, k->shard);
        }
    }
    if (r->err)
        controller_say(c, "%s", r->err->text);
    else if (!r->done)
        view_suspect_leader(c->o.view, 0, UINT64_MAX - 1);
    list_del(&k->list);
    c->calls_len--;
    xfree(k);
}

struct control_call *controller_call(struct controller *c, uint32_t shard, int64_t rev)
{
    struct control_call *k = XNEW(struct control_call);

    k->c = c;
    k->shard = shard;
    k->rev = rev;
    list_add_tail(&c->calls, &k->list);
    c->calls_len++;
    if (shard == CLUSTER_SHARDS_MAX)
        c->map_busy = true;
    else
        c->busy[shard] = true;
    return k;
}

/* ---- which node is the controller ------------------------------------------------------------ */

static void depose(struct controller *c)
{
    c->fence = 0;
    c->moving = 0;
    c->resize_ms = 0;
    c->steps = (struct control_steps){ .announced = 0 };
    controller_lead_forget(c);
    coord_unwatch(c->o.coord, c->watch);
    c->watch = NULL;
    controller_forget_all(c);
}

static void act(struct controller *c, int64_t fence)
{
    struct coord_key states = key_states(str_c(c->prefix));
    struct coord_watch_opts w = { .prefix = key_str(&states),
                                  .all = controller_on_states,
                                  .event = controller_on_state,
                                  .cookie = c };

    c->fence = fence;
    c->store = view_store(c->o.view);
    memset(c->tried, 0, CLUSTER_SHARDS_MAX * sizeof(*c->tried));
    c->fence_lease = member_lease(c->o.member);
    controller_step_is_aborted(c);
    c->watch = coord_watch(c->o.coord, &w);
    controller_say(c, "acts since revision %" PRId64, fence);
}

/* The answer may have been lost: a key that has our lease is ours. */
static void on_who(void *cookie, const struct coord_reply *r)
{
    struct controller *c = cookie;
    struct coord_key key = key_controller(str_c(c->prefix));

    c->campaigning = false;
    for (size_t i = 0; !r->err && i < r->kvs_len; i++)
        if (str_eq(r->kvs[i].key, key_str(&key)) && r->kvs[i].lease != 0 &&
            r->kvs[i].lease == member_lease(c->o.member) && !c->fence)
            act(c, r->kvs[i].create_rev);
}

static void on_campaigned(void *cookie, const struct coord_reply *r)
{
    struct controller *c = cookie;
    struct coord_key key = key_controller(str_c(c->prefix));

    if (!r->err && r->done && !c->fence) {
        c->campaigning = false;
        act(c, r->rev);
        return;
    }
    coord_list(c->o.coord, key_str(&key), on_who, c);
}

/* Only the first few nodes that live try, or a thousand nodes would ask all the time. A node that
 * has tried under its present lease tries again: the key may be its own although the answer was
 * lost, and no other node could then get it. */
static bool candidate(const struct controller *c)
{
    uint32_t before = 0;

    if (c->asked_lease && c->asked_lease == member_lease(c->o.member))
        return true;
    for (size_t i = 0; i < view_nodes_len(c->o.view); i++) {
        struct view_node n;

        view_node(c->o.view, i, &n);
        if (strcmp(n.name, member_name(c->o.member)) == 0)
            return n.live && before < CANDIDATES;
        before += n.live;
    }
    return false;
}

static void campaign(struct controller *c)
{
    struct coord_key key = key_controller(str_c(c->prefix));
    struct coord_compare cmp[2] = { { .key = key_str(&key), .rev = 0 } };
    struct coord_change chg = { .key = key_str(&key),
                                .value = str_c(member_name(c->o.member)),
                                .lease = member_lease(c->o.member) };

    if (c->campaigning || !candidate(c) || !member_guard(c->o.member, &cmp[1]))
        return;
    c->campaigning = true;
    c->asked_lease = member_lease(c->o.member);
    coord_txn(c->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
              on_campaigned, c);
}

/* ---- where shards should be ------------------------------------------------------------------ */

static void note_gone(struct controller *c)
{
    for (size_t i = 0; i < view_nodes_len(c->o.view); i++) {
        struct known_node *k;
        struct view_node n;

        view_node(c->o.view, i, &n);
        k = controller_known(c, n.name);
        if (!k)
            continue;
        if (n.live)
            k->gone_since_ms = 0;
        else if (k->gone_since_ms == 0)
            k->gone_since_ms = controller_now_ms(c);
    }
}

/* For so long that others are to have its copies. */
static bool is_gone(struct controller *c, const char *name)
{
    const struct known_node *k = controller_known(c, name);

    return k && k->gone_since_ms && controller_now_ms(c) - k->gone_since_ms >= c->o.replace_ms;
}

static bool eligible(struct controller *c, const struct map_node *n, bool strict)
{
    return n->state == MAP_ACTIVE && !(strict && is_gone(c, n->name));
}

bool controller_look(struct controller *c, const struct map *m, struct control_look *ret)
{
    struct place_node *nodes = XNEW_ARRAY(struct place_node, MAX(m->nodes_len, 1));
    struct place_shard *shards;
    size_t n = 0;

    /* Where too few are left, the dead are counted in: better late than fewer copies. */
    for (int strict = 1; strict >= 0 && n < m->replicas; strict--) {
        n = 0;
        for (size_t i = 0; i < m->nodes_len; i++) {
            struct view_node v;

            if (!eligible(c, &m->nodes[i], strict))
                continue;
            bool live = view_node_find(c->o.view, m->nodes[i].name, &v) && v.live;
            nodes[n++] = (struct place_node){ m->nodes[i].name, m->nodes[i].zone, !live };
        }
    }
    if (!n) {
        xfree(nodes);
        return false;
    }
    shards = XNEW_ARRAY(struct place_shard, m->shards);
    for (uint32_t i = 0; i < m->shards; i++)
        reports_place(c->reports, c->o.view, i, &shards[i]);
    *ret = (struct control_look){ nodes, shards, { nodes, n, shards, m->shards, m->replicas } };
    return true;
}

void controller_look_end(struct control_look *look)
{
    xfree(look->nodes);
    xfree(look->shards);
}

/* Works out the places again when nodes came or went and, once all shards are where they should be,
 * every REPLAN_MS, since what shards store changes. Not while shards move, or a half-made copy
 * might be dropped for another place. */
static void work_out(struct controller *c, const struct map *m)
{
    bool idle = !c->moving && controller_now_ms(c) - c->wanted_ms >= REPLAN_MS;
    uint64_t hash = m->shards * 64 + m->replicas;
    struct control_look look;

    for (size_t i = 0; i < m->nodes_len; i++) {
        const struct map_node *n = &m->nodes[i];

        hash = hash * 4 + eligible(c, n, true) * 2 + eligible(c, n, false);
        hash = hash64(n->name, strlen(n->name), hash);
        hash = hash64(n->zone, strlen(n->zone), hash);
    }
    if (c->wanted && hash == c->wanted_for && !idle)
        return;
    if (!controller_look(c, m, &look))
        return;
    xfree(c->wanted);
    c->wanted = XNEW_ARRAY(struct name_set, m->shards);
    c->wanted_len = m->shards;
    c->wanted_for = hash;
    c->wanted_ms = controller_now_ms(c);
    placement_target(&look.in, c->wanted);
    c->lead.looked_ms = 0;
    controller_look_end(&look);
}

/* ---- records --------------------------------------------------------------------------------- */

static void first_records(struct controller *c, const struct map *m)
{
    struct coord_key fence = key_controller(str_c(c->prefix)), keys[FIRST_MOST];
    struct coord_compare cmp[FIRST_MOST + 1] = { controller_fence(c, &fence) };
    struct coord_change chg[FIRST_MOST];
    struct buf text[FIRST_MOST];
    size_t n = 0;

    for (uint32_t i = 0; i < m->shards && n < FIRST_MOST; i++) {
        struct repl_record r = { .term = 1, .members = c->wanted[i] };

        if (view_record(c->o.view, i, NULL) || c->wanted[i].len < m->replicas)
            continue;
        memcpy(r.leader, r.members.names[0], sizeof(r.leader));
        keys[n] = key_shard(str_c(c->prefix), i);
        buf_init(&text[n], RECORD_BYTES_MAX);
        record_write(&r, &text[n]);
        cmp[n + 1] = (struct coord_compare){ .key = key_str(&keys[n]), .rev = 0 };
        chg[n] = (struct coord_change){ .key = key_str(&keys[n]), .value = buf_str(&text[n]) };
        n++;
    }
    if (n) {
        controller_say(c, "names the first replicas of %zu shards", n);
        coord_txn(c->o.coord,
                  &(struct coord_txn){ .cmp = cmp, .cmp_len = n + 1, .chg = chg, .chg_len = n },
                  controller_on_called, controller_call(c, CLUSTER_SHARDS_MAX, 0));
    }
    for (size_t i = 0; i < n; i++)
        buf_deinit(&text[i]);
}

static void add_fact(struct controller *c, const char *name, uint32_t shard, uint64_t commit,
                     struct place_facts *ret)
{
    const struct progress_shard *p = reports_shard(c->reports, name, shard);
    struct view_node n;

    if (view_node_find(c->o.view, name, &n) && n.live)
        (void)name_set_add(&ret->live, name);
    if (p && p->full)
        (void)name_set_add(&ret->full, name);
    if (p && p->lost)
        (void)name_set_add(&ret->lost, name);
    if (is_gone(c, name))
        (void)name_set_add(&ret->gone, name);
    if (reports_keeps_up(p, commit))
        (void)name_set_add(&ret->synced, name);
}

/* False: the leader has not said how far it is. */
static bool facts_of(struct controller *c, const struct repl_record *r, uint32_t shard,
                     struct place_facts *ret)
{
    const struct progress_shard *leader = reports_shard(c->reports, r->leader, shard);
    const struct name_set *wanted = &c->wanted[shard];

    *ret = (struct place_facts){ .replicas = c->wanted_of };
    if (!leader || !leader->leads)
        return false;
    for (uint32_t i = 0; i < r->members.len; i++)
        add_fact(c, r->members.names[i], shard, leader->commit, ret);
    for (uint32_t i = 0; i < r->learners.len; i++)
        add_fact(c, r->learners.names[i], shard, leader->commit, ret);
    for (uint32_t i = 0; i < wanted->len; i++)
        if (!name_set_has(&r->members, wanted->names[i]) &&
            !name_set_has(&r->learners, wanted->names[i]))
            add_fact(c, wanted->names[i], shard, leader->commit, ret);
    return true;
}

static bool on_its_way(const struct repl_record *r, uint32_t replicas)
{
    return !r->established || r->learners.len || r->members.len > replicas;
}

static bool has_lost(const struct controller *c, const struct repl_record *r, uint32_t shard)
{
    for (uint32_t i = 0; i < r->members.len; i++) {
        const struct progress_shard *p = reports_shard(c->reports, r->members.names[i], shard);

        if (p && p->lost)
            return true;
    }
    return false;
}

/* NULL: the step names no other leader. */
static const char *why_leader(const struct repl_record *now, const struct place_step *step)
{
    if (strcmp(now->leader, step->to.leader) == 0)
        return NULL;
    return step->kind == PLACE_LEAD
               ? "leaders are spread evenly by load"
               : "the leader before loses its copy: it drains, is gone, or has too many";
}

static void write_step(struct controller *c, uint32_t shard, int64_t rev,
                       const struct repl_record *now, const struct place_step *step)
{
    struct coord_key fence = key_controller(str_c(c->prefix));
    struct coord_key key = key_shard(str_c(c->prefix), shard);
    struct coord_compare cmp[2] = { controller_fence(c, &fence),
                                    { .key = key_str(&key), .rev = rev } };
    struct buf text;

    buf_init(&text, RECORD_BYTES_MAX);
    record_write(&step->to, &text);
    struct coord_change chg = { .key = key_str(&key), .value = buf_str(&text) };
    struct control_call *k = controller_call(c, shard, rev);
    lead_note_set(&k->note, now, &step->to, why_leader(now, step));
    coord_txn(c->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
              controller_on_called, k);
    buf_deinit(&text);
}

/* Shards with other copies than they should have; ret_on_way: those in the middle of it. */
static uint32_t count_off(const struct controller *c, const struct map *m, uint32_t *ret_on_way)
{
    uint32_t off = 0;

    *ret_on_way = 0;
    for (uint32_t i = 0; i < m->shards; i++) {
        const struct repl_record *r = view_record(c->o.view, i, NULL);

        off +=
            !r || r->learners.len || !name_set_eq(&r->members, &c->wanted[i]) || has_lost(c, r, i);
        *ret_on_way += r && on_its_way(r, m->replicas);
    }
    return off;
}

static void move_shards(struct controller *c, const struct map *m)
{
    uint32_t on_way;

    c->wanted_of = m->replicas;
    c->moving = count_off(c, m, &on_way) + c->lead.uneven;
    for (uint32_t i = 0; i < m->shards && c->moving && c->calls_len < CALLS_MOST; i++) {
        struct place_facts facts;
        struct place_step step;
        int64_t rev;
        const struct repl_record *r = view_record(c->o.view, i, &rev);

        if (!r || c->busy[i] || c->tried[i] == rev || !facts_of(c, r, i, &facts))
            continue;
        if (!on_its_way(r, m->replicas) && on_way >= MAX(c->o.moves_max, m->moves))
            continue;
        place_next(r, &c->wanted[i], &facts, &step);
        if (step.kind == PLACE_NOTHING || (step.kind == PLACE_LEAD && !controller_turns(c, i, rev)))
            continue;
        if (step.kind == PLACE_LEAD)
            controller_turned(c, i);
        on_way += !on_its_way(r, m->replicas);
        write_step(c, i, rev, r, &step);
    }
}

/* ---- the tick -------------------------------------------------------------------------------- */

static void count_live(struct controller *c)
{
    size_t live = 0;

    for (size_t i = 0; i < view_nodes_len(c->o.view); i++) {
        struct view_node n;

        view_node(c->o.view, i, &n);
        live += n.live;
    }
    if (live != c->live)
        c->changed_ms = controller_now_ms(c);
    c->live = live;
}

static void on_tick(void *cookie)
{
    struct controller *c = cookie;
    const struct map *m;
    int64_t rev;

    if (c->fence && (view_stranger(c->o.view)[0] || c->store != view_store(c->o.view)))
        depose(c);
    if (!view_trusts(c->o.view) || view_age_ms(c->o.view) > FRESH_MS)
        return;
    count_live(c);
    if (c->fence && member_lease(c->o.member) != c->fence_lease)
        depose(c);
    if (!c->fence) {
        if (member_in(c->o.member))
            campaign(c);
        return;
    }
    note_gone(c);
    m = view_map(c->o.view, &rev);
    if (c->map_busy)
        return;
    if (!m) {
        controller_make_map(c);
        return;
    }
    if (!controller_name_cluster(c) || !controller_mend_map(c, m, rev))
        return;
    work_out(c, m);
    if (!c->wanted)
        return;
    first_records(c, m);
    if (c->map_busy)
        return;
    controller_spread(c, m, rev);
    if (!c->map_busy)
        controller_steps(c, m, rev);
    controller_lead(c, m);
    move_shards(c, m);
    if (!c->map_busy && !c->moving)
        controller_calm(c, m, rev);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct controller *controller_new(const struct controller_opts *o)
{
    struct controller *c = XNEW(struct controller);

    c->o = *o;
    c->prefix = xstrdup(o->prefix);
    (void)snprintf(c->id, sizeof(c->id), "%s", o->cluster_id ? o->cluster_id : "");
    c->busy = XNEW_ARRAY(bool, CLUSTER_SHARDS_MAX);
    c->tried = XNEW_ARRAY(int64_t, CLUSTER_SHARDS_MAX);
    c->lead.turned_ms = XNEW_ARRAY(uint64_t, CLUSTER_SHARDS_MAX);
    c->lead.turn_rev = XNEW_ARRAY(int64_t, CLUSTER_SHARDS_MAX);
    c->reports = reports_new();
    c->changed_ms = controller_now_ms(c);
    list_init(&c->calls);
    c->known = map_str_new();
    c->tick = loop_timer_new(o->loop, on_tick, c);
    loop_timer_start(c->tick, TICK_MS, TICK_MS);
    return c;
}

void controller_free(struct controller *c)
{
    if (!c)
        return;
    depose(c);
    coord_cancel(c->o.coord, c);
    list_for (it, &c->calls) {
        struct control_call *k = container_of(it, struct control_call, list);

        coord_cancel(c->o.coord, k);
        xfree(k);
    }
    loop_timer_free(c->tick);
    map_str_free(c->known);
    xfree(c->wanted);
    xfree(c->busy);
    xfree(c->tried);
    xfree(c->lead.turned_ms);
    xfree(c->lead.turn_rev);
    reports_free(c->reports);
    xfree(c->prefix);
    xfree(c);
}

bool controller_acts(const struct controller *c)
{
    return c->fence != 0;
}

const char *controller_says(const struct controller *c)
{
    return c->says;
}

uint32_t controller_moving(const struct controller *c)
{
    return c->moving;
}
