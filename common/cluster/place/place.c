/* SPDX-License-Identifier: Apache-2.0
 *
 * place: nodes and shards get numbers, members are chosen (place_members.c), then leaders
 * (place_leaders.c).
 *
 * Both begin with the present places, and for the same reason: each move costs. A copy costs bytes,
 * a leader a moment in which no node accepts pushes for a shard. Members depend on which nodes
 * belong to the cluster and on what is stored; leaders depend on load, so they are checked all the
 * time.
 */
#include "common/cluster/place/place.h"

#include <stdlib.h>

#include "common/cluster/place/place_impl.h"

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct place_node *const *)a)->name,
                  (*(const struct place_node *const *)b)->name);
}

static void make_zones(struct plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const char *zone = p->nodes[i]->zone;
        uint32_t k = i;

        for (k = 0; k < i; k++)
            if (zone[0] && strcmp(p->nodes[k]->zone, zone) == 0)
                break;
        p->zone[i] = k < i ? p->zone[k] : p->zones++;
    }
}

uint32_t plan_find(const struct plan *p, const char *name)
{
    uint32_t lo = 0, hi = p->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int order = strcmp(name, p->nodes[mid]->name);

        if (order == 0)
            return mid;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return p->n;
}

void plan_init(struct plan *p, const struct place_in *in)
{
    CHECK(in->nodes_len > 0 && in->shards_len > 0 && in->replicas > 0 &&
          in->replicas <= RECORD_SET_MAX);
    *p = (struct plan){ .in = in, .n = (uint32_t)in->nodes_len, .shards = in->shards_len };
    p->replicas = MIN(in->replicas, p->n);
    p->nodes = XNEW_ARRAY(const struct place_node *, p->n);
    p->zone = XNEW_ARRAY(uint32_t, p->n);
    p->got = XNEW_ARRAY(uint32_t, (size_t)p->shards * PLAN_SET);
    p->got_len = XNEW_ARRAY(uint32_t, p->shards);
    for (uint32_t i = 0; i < p->n; i++)
        p->nodes[i] = &in->nodes[i];
    qsort(p->nodes, p->n, sizeof(*p->nodes), by_name);
    make_zones(p);
}

void plan_deinit(struct plan *p)
{
    xfree(p->nodes);
    xfree(p->zone);
    xfree(p->got);
    xfree(p->got_len);
}

static void write_sets(const struct plan *p, struct name_set *ret)
{
    for (uint32_t s = 0; s < p->shards; s++) {
        memset(&ret[s], 0, sizeof(ret[s]));
        for (uint32_t i = 0; i < p->got_len[s]; i++)
            CHECK(name_set_add(&ret[s], p->nodes[plan_got(p, s)[i]]->name));
    }
}

void placement_target(const struct place_in *in, struct name_set *ret)
{
    struct plan p;

    plan_init(&p, in);
    plan_members(&p);
    (void)plan_leaders(&p, UINT32_MAX);
    write_sets(&p, ret);
    plan_deinit(&p);
}

void place_fresh(const struct place_node *nodes, size_t n, uint32_t shards, uint32_t replicas,
                 struct name_set *ret)
{
    struct place_shard *none = XNEW_ARRAY(struct place_shard, shards);

    placement_target(&(struct place_in){ nodes, n, none, shards, replicas }, ret);
    xfree(none);
}

uint32_t place_leaders(const struct place_in *in, struct name_set *wanted, uint32_t max)
{
    struct plan p;
    uint32_t changed;

    plan_init(&p, in);
    for (uint32_t s = 0; s < p.shards; s++)
        for (uint32_t i = 0; i < wanted[s].len; i++) {
            uint32_t node = plan_find(&p, wanted[s].names[i]);

            CHECK(node < p.n);
            plan_got(&p, s)[p.got_len[s]++] = node;
        }
    changed = plan_leaders(&p, max);
    write_sets(&p, wanted);
    plan_deinit(&p);
    return changed;
}
