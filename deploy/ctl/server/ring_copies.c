/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_copies: how far each copy is, as its node last said it. Nodes say it at different moments,
 * so under load a copy that keeps up may seem some way behind: only what is far behind counts.
 */
#include "common/base/rate_estimate.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/server/ring.h"

#define COPIES_MOST (4096 * 8)
#define FAR_BEHIND  10000

int ring_copies_ask(struct cli *c, struct json_doc **ret, struct err *e)
{
    return ask_json_if(c, STR("/api/v1/cluster/progress"), ret, e);
}

static uint64_t number(const struct json_val *v, const char *key)
{
    struct err e;
    int64_t n = 0;

    return json_take_i64(json_get(v, key, NULL), key, &n, &e) || n < 0 ? 0 : (uint64_t)n;
}

/* Of a copy that comes in; false: none does. */
static bool read_coming(const struct json_val *shard, struct progress_now *ret)
{
    const struct json_val *v = json_get(shard, "copy", NULL);

    if (!v)
        return false;
    *ret = (struct progress_now){ .done = number(v, "bytes"),
                                  .total = number(v, "of"),
                                  .timed = json_get(v, "bytesPerSecond", NULL) != NULL,
                                  .per_s = number(v, "bytesPerSecond") };
    return true;
}

void ring_coming(const struct json_val *root, struct ring_coming *ret)
{
    const struct json_val *nodes = json_get(root, "nodes", NULL);
    struct progress_now p, *sum = &ret->sum;

    *ret = (struct ring_coming){ .sum.timed = true };
    for (size_t i = 0; i < json_len(nodes); i++) {
        const struct json_val *shards = json_get(json_at(nodes, i), "shards", NULL);

        for (size_t k = 0; k < json_len(shards); k++) {
            if (!read_coming(json_at(shards, k), &p))
                continue;
            ret->copies++;
            ret->open += p.total == 0;
            if (!p.total)
                continue;
            sum->done += p.done;
            sum->total += p.total;
            sum->per_s += p.per_s;
            sum->timed &= p.timed;
        }
    }
}

uint64_t ring_coming_of(const struct json_val *root, uint64_t shard, struct str node)
{
    const struct json_val *nodes = json_get(root, "nodes", NULL);
    struct progress_now p;

    for (size_t i = 0; i < json_len(nodes); i++) {
        const struct json_val *v = json_at(nodes, i), *shards = json_get(v, "shards", NULL);

        for (size_t k = 0; str_eq(ask_text(v, "name"), node) && k < json_len(shards); k++)
            if (number(json_at(shards, k), "shard") == shard && read_coming(json_at(shards, k), &p))
                return p.done;
    }
    return 0;
}

static bool leads(const struct ring *r, uint64_t shard, struct str node)
{
    return shard < r->shards.len && str_eq(r->shards.ptr[shard].leader, node);
}

/* A node is believed about itself, and the leader of a shard about its members. */
static void read_bad(struct ring *r, struct ring_node *of, const struct json_val *node)
{
    const struct json_val *bad = json_get(node, "bad", NULL);

    of->trouble = ask_text(node, "trouble");
    of->full |= of->live && ask_truth(node, "noRoom");
    r->replace_ms = MAX(r->replace_ms, number(node, "replaceAfterMs"));
    for (size_t i = 0; i < json_len(bad) && r->bad.len < COPIES_MOST; i++) {
        const struct json_val *v = json_at(bad, i);
        struct str name = ask_text(v, "node");
        struct ring_bad b = { .shard = number(v, "shard"),
                              .node = name.len ? name : of->name,
                              .why = ask_text(v, "why"),
                              .own = !name.len };

        if (b.why.len && (b.own || leads(r, b.shard, of->name)))
            vec_push(&r->bad, b);
    }
}

static void read_node(struct ring *r, const struct json_val *node)
{
    const struct json_val *shards = json_get(node, "shards", NULL);
    struct ring_node *of = NULL;

    vec_for (i, &r->nodes)
        if (str_eq(r->nodes.ptr[i].name, ask_text(node, "name")))
            of = &r->nodes.ptr[i];
    if (of && of->live)
        of->cold = ask_text(node, "cold");
    if (of && of->live)
        read_bad(r, of, node);
    for (size_t i = 0; of && i < json_len(shards) && r->copies.len < COPIES_MOST; i++) {
        const struct json_val *v = json_at(shards, i);
        struct ring_copy copy = { .shard = number(v, "shard"),
                                  .node = of->name,
                                  .last = number(v, "last"),
                                  .commit = number(v, "commit"),
                                  .leads = ask_truth(v, "leads"),
                                  .lost = ask_truth(v, "lost"),
                                  .why = ask_text(v, "why"),
                                  .timed = json_get(v, "entriesPerSecond", NULL) != NULL,
                                  .per_s = number(v, "entriesPerSecond") };

        copy.coming = read_coming(v, &copy.come);
        of->full |= of->live && !json_get(node, "noRoom", NULL) && ask_truth(v, "full");
        of->lost += of->live && copy.lost;
        vec_push(&r->copies, copy);
    }
}

void ring_copies_read(struct ring *r, const struct json_val *root)
{
    const struct json_val *nodes = json_get(root, "nodes", NULL);

    ring_coming(root, &r->coming);
    for (size_t i = 0; i < json_len(nodes); i++)
        read_node(r, json_at(nodes, i));
    ring_judge(r);
    vec_for (i, &r->shards) {
        struct ring_shard *s = &r->shards.ptr[i];
        struct ring_lag lag;

        if (s->trouble != RING_FINE || json_len(s->peers) || !s->members)
            continue;
        for (size_t k = 0; k < json_len(s->members); k++)
            if (ring_lag(r, s, ring_name(s->members, k), &lag) &&
                (lag.lost || lag.behind > FAR_BEHIND)) {
                r->troubles[RING_FINE]--;
                r->troubles[RING_BEHIND]++;
                s->trouble = RING_BEHIND;
                break;
            }
    }
}

static const struct ring_copy *copy_of(const struct ring *r, uint64_t shard, struct str node)
{
    vec_for (i, &r->copies)
        if (r->copies.ptr[i].shard == shard && str_eq(r->copies.ptr[i].node, node))
            return &r->copies.ptr[i];
    return NULL;
}

bool ring_lag(const struct ring *r, const struct ring_shard *s, struct str node,
              struct ring_lag *ret)
{
    const struct ring_copy *leader = copy_of(r, s->shard, s->leader);
    const struct ring_copy *copy = copy_of(r, s->shard, node);

    if (!leader || !copy || str_eq(node, s->leader))
        return false;
    *ret = (struct ring_lag){ .lost = copy->lost, .copy = copy };
    if (leader->commit > copy->last)
        ret->behind = leader->commit - copy->last;
    if (leader->commit)
        ret->percent = (uint32_t)((leader->commit - ret->behind) * 100 / leader->commit);
    ret->far = ret->lost || ret->behind > FAR_BEHIND;
    ret->timed = leader->timed && copy->timed && !copy->coming && !copy->lost;
    if (ret->timed) /* the leader's log grows, too */
        ret->left_s =
            rate_estimate_left_s(copy->per_s - MIN(copy->per_s, leader->per_s), ret->behind);
    return true;
}
