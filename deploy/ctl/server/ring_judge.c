/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_judge: is a shard well? By the records, by the leases of nodes, and by what nodes say of
 * their copies.
 *
 * A lease says that a process lives and reaches the coordination service, and nothing of its disk.
 * So a copy counts if its node lives, its node does not say that the copy failed or that the disk
 * hangs, and the leader of the shard has not missed its acks for some seconds. A copy whose log was
 * lost does not count until it is a member again, so it is no part of a majority either.
 */
#include <string.h>

#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/server/ring.h"

static uint64_t number(const struct json_val *v, const char *key)
{
    struct err e;
    int64_t n = 0;

    return json_take_i64(json_get(v, key, NULL), key, &n, &e) || n < 0 ? 0 : (uint64_t)n;
}

static bool is_behind(const struct json_val *peer)
{
    return ask_truth(peer, "member") &&
           (number(peer, "behind") > RING_BEHIND_MOST || ask_truth(peer, "snapshot"));
}

struct str ring_bad_why(const struct ring *r, uint64_t shard, struct str node)
{
    const struct ring_node *n = ring_node(r, node);

    vec_for (i, &r->bad)
        if (r->bad.ptr[i].shard == shard && str_eq(r->bad.ptr[i].node, node))
            return r->bad.ptr[i].why;
    return n ? n->trouble : STR("");
}

bool ring_takes(const struct ring *r, const struct ring_shard *s, struct str node)
{
    const struct ring_node *n = ring_node(r, node);

    return n && n->live && !ring_bad_why(r, s->shard, node).len;
}

/* Its log is gone: it is being copied again, and does not count until that has ended. */
static bool is_lost(const struct ring *r, const struct ring_shard *s, struct str node)
{
    vec_for (i, &r->copies)
        if (r->copies.ptr[i].shard == s->shard && str_eq(r->copies.ptr[i].node, node))
            return r->copies.ptr[i].lost;
    return false;
}

static enum ring_trouble trouble_of(const struct ring *r, const struct ring_shard *s)
{
    size_t members = json_len(s->members), take = 0, speak = 0;

    for (size_t i = 0; i < members; i++) {
        struct str name = ring_name(s->members, i);
        bool takes = ring_takes(r, s, name);

        take += takes;
        speak += takes && !is_lost(r, s, name);
    }
    if (!s->named)
        return RING_UNNAMED;
    if (r->replicas == 0) /* a list of ingesters: no records, no copies */
        return s->leader_live ? RING_FINE : RING_LEADERLESS;
    if (2 * speak <= members)
        return RING_MINORITY;
    if (!s->leader_live || !ring_takes(r, s, s->leader))
        return RING_LEADERLESS;
    if (!s->established)
        return RING_STARTING;
    if (take < r->replicas)
        return RING_COPIES;
    for (size_t i = 0; i < json_len(s->peers); i++)
        if (is_behind(json_at(s->peers, i)))
            return RING_BEHIND;
    return RING_FINE;
}

void ring_judge(struct ring *r)
{
    memset(r->troubles, 0, sizeof(r->troubles));
    vec_for (i, &r->shards) {
        struct ring_shard *s = &r->shards.ptr[i];

        s->trouble = trouble_of(r, s);
        r->troubles[s->trouble]++;
    }
}
