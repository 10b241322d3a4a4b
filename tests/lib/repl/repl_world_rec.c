/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/lib/repl/repl_world_impl.h"

/* ---- what the coordination does ---- */

/* Watches send it to all nodes, to some late. */
void world_record(const struct repl_record *rec)
{
    w.rec = *rec;
    for (int i = 0; i < NODES; i++)
        world_push((struct event){ .kind = EV_RECORD, .node = i },
                   world_below(prng_chance(&w.prng, 0.7) ? 10 : 300));
}

/* Returns to the previous members. */
static void go_back(const char *name, struct repl_record *next)
{
    *next = w.rec;
    next->term++;
    next->members = w.rec.prev_members;
    (void)snprintf(next->leader, sizeof(next->leader), "%s", name);
    next->learners.len = 0;
}

void world_prefer(const char *name, struct repl_record *next)
{
    if (name_set_has(&w.rec.members, name))
        record_next_leader(&w.rec, name, next);
    else
        go_back(name, next);
}

/* Any other members at once: more than the coordination's rules allow, but what the protocol
 * bears. */
static void jump(void)
{
    struct repl_record next = w.rec;

    if (!w.rec.established) { /* back */
        if (w.rec.prev_members.len) {
            world_prefer(w.rec.prev_members.names[world_below(w.rec.prev_members.len)], &next);
            world_record(&next);
        }
        return;
    }
    next.term++;
    next.established = false;
    next.prev_members = w.rec.members;
    next.members.len = 0;
    for (uint64_t n = 1 + world_below(4); n; n--) {
        const struct node *m = &w.nodes[world_below(NODES)];
        if (!m->lost)
            (void)name_set_add(&next.members, m->name);
    }
    if (!next.members.len)
        return;
    memcpy(next.leader, next.members.names[0], sizeof(next.leader));
    world_record(&next);
}

static const char *unlost(const struct name_set *s)
{
    for (uint32_t i = 0; i < s->len; i++)
        if (!world_node(s->names[i])->lost)
            return s->names[i];
    return NULL;
}

/* What a controller does about members that lost their disks. */
void world_mend(void)
{
    struct repl_record next;
    uint32_t lost = 0;
    const char *one = NULL, *leader = unlost(&w.rec.members);
    struct err e;

    for (uint32_t i = 0; i < w.rec.members.len; i++)
        if (world_node(w.rec.members.names[i])->lost) {
            one = w.rec.members.names[i];
            lost++;
        }
    if (!lost)
        return;
    if (!w.rec.established && lost > (w.rec.members.len - 1) / 2 && w.rec.prev_members.len) {
        go_back(unlost(&w.rec.prev_members), &next);
    } else if (world_node(w.rec.leader)->lost && leader) {
        record_next_leader(&w.rec, leader, &next);
    } else if (!w.rec.established || !leader ||
               record_next_remove(&w.rec, one, w.rec.leader, &next, &e)) {
        return;
    }
    world_record(&next);
}

void world_change_record(void)
{
    struct repl_record next;
    struct err e;
    uint64_t what = world_below(10);
    const char *who = w.rec.members.names[world_below(w.rec.members.len)];
    const char *other = w.nodes[world_below(NODES)].name;

    if (what < 2) {
        jump();
        return;
    }
    if (what < 5) {
        record_next_leader(&w.rec, who, &next);
    } else if (what < 8) {
        if (w.rec.members.len >= 4 || name_set_has(&w.rec.members, other) ||
            world_node(other)->lost || record_next_add(&w.rec, other, &next, &e))
            return;
    } else if (w.rec.members.len < 3 ||
               record_next_remove(
                   &w.rec, who,
                   !strcmp(who, w.rec.leader)
                       ? w.rec.members.names[!strcmp(who, w.rec.members.names[0]) ? 1 : 0]
                       : w.rec.leader,
                   &next, &e)) {
        return;
    }
    if (record_may_follow(&w.rec, &next, &e))
        world_broken("the test makes a record that may not be: %s", e.text);
    world_record(&next);
}

/* The leader is cut off while writes of it are under way, another leads and takes some, and then
 * the first is named again. Of the records between it never hears. */
bool world_returns(void)
{
    struct node *n = w.away ? &w.nodes[w.away - 1] : world_node(w.rec.leader);
    int i = (int)(n - w.nodes);
    struct repl_record next;
    const char *other = w.rec.members.names[world_below(w.rec.members.len)];

    if (w.away && w.now < w.away_until)
        return false;
    if (!w.away && (!n->up || replica_state(n->r).role != REPLICA_LEADING ||
                    !strcmp(other, n->name) || !prng_chance(&w.prng, 0.1)))
        return false;
    for (int k = 0; k < NODES; k++)
        w.cut[i][k] = w.cut[k][i] = !w.away;
    w.blind[i] = !w.away;
    if (!w.away) {
        w.away = i + 1;
        w.away_until = w.hold = w.now + 300 + world_below(3000);
        record_next_leader(&w.rec, other, &next);
        world_record(&next);
        return true;
    }
    w.away = 0;
    if (!name_set_has(&w.rec.members, n->name))
        return true;
    record_next_leader(&w.rec, n->name, &next);
    world_record(&next);
    if (n->up)
        replica_record(n->r, &w.rec);
    return true;
}
