/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_lead: which member should lead each shard, worked out every few seconds from the
 * present leaders and what nodes report of their shards (place_leaders.c).
 *
 * A new leader costs a shard a moment without one, so hand-overs for evenness are limited: so many
 * at once, and as many again each half minute (a thirty-second of the shards, at least eight); and
 * a shard keeps the leader that it got for some minutes at least. Leads that must change for other
 * reasons (a node drains, its disk is full, it died) are not limited by this: those have other ways
 * to a new leader. A node that lost its leads while it was away has no claim to them; it has less
 * to do then, and gets as many leads as make the load even.
 */
#include "common/cluster/control/controller_impl.h"

#define LOOK_MS   2000
#define FILL_MS   30000
#define STAY_MS   180000
#define TURNS_MIN 8
#define TURNS_OF  32 /* shards for one hand-over each half minute */

static void fill(struct controller *c, uint32_t shards)
{
    uint64_t now = controller_now_ms(c);

    if (c->lead.filled_ms && now - c->lead.filled_ms < FILL_MS)
        return;
    c->lead.filled_ms = MAX(now, UINT64_C(1));
    c->lead.left = MAX(shards / TURNS_OF, (uint32_t)TURNS_MIN);
}

void controller_lead(struct controller *c, const struct map *m)
{
    uint64_t now = controller_now_ms(c);
    struct control_look look;

    fill(c, m->shards);
    if ((c->lead.looked_ms && now - c->lead.looked_ms < LOOK_MS) || !controller_look(c, m, &look))
        return;
    c->lead.looked_ms = MAX(now, UINT64_C(1));
    for (uint32_t i = 0; i < m->shards; i++)
        look.shards[i].stay =
            (c->lead.turned_ms[i] && now - c->lead.turned_ms[i] < STAY_MS) ||
            (look.shards[i].now && !name_set_eq(&look.shards[i].now->members, &c->wanted[i]));
    c->lead.uneven = place_leaders(&look.in, c->wanted, UINT32_MAX);
    if (c->lead.uneven > c->lead.left)
        (void)place_leaders(&look.in, c->wanted, c->lead.left);
    for (uint32_t i = 0; i < m->shards; i++) {
        int64_t rev = 0;
        const struct repl_record *r = view_record(c->o.view, i, &rev);

        c->lead.turn_rev[i] =
            r && !look.shards[i].stay && strcmp(r->leader, c->wanted[i].names[0]) != 0 ? rev : 0;
    }
    controller_look_end(&look);
}

bool controller_turns(const struct controller *c, uint32_t shard, int64_t rev)
{
    return c->lead.left && rev && c->lead.turn_rev[shard] == rev;
}

void controller_turned(struct controller *c, uint32_t shard)
{
    c->lead.left--;
    c->lead.turned_ms[shard] = MAX(controller_now_ms(c), UINT64_C(1));
}

void controller_lead_forget(struct controller *c)
{
    c->lead = (struct control_lead){ .turned_ms = c->lead.turned_ms, .turn_rev = c->lead.turn_rev };
    memset(c->lead.turned_ms, 0, CLUSTER_SHARDS_MAX * sizeof(*c->lead.turned_ms));
    memset(c->lead.turn_rev, 0, CLUSTER_SHARDS_MAX * sizeof(*c->lead.turn_rev));
}
