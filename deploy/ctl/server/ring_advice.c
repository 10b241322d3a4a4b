/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_advice: what is wrong in a cluster, and what is to be done about it, a sentence each; the
 * worst first. The reader is an operator who was woken up by it.
 */
#include "deploy/ctl/server/ring.h"

#define SHARDS_NAMED 12
#define NODES_NAMED  12

static void put_for(uint64_t ms, struct buf *out)
{
    uint64_t s = ms / 1000;

    if (s < 120)
        (void)buf_addf(out, "%" PRIu64 " s", s);
    else if (s < 7200)
        (void)buf_addf(out, "%" PRIu64 " min", s / 60);
    else
        (void)buf_addf(out, "%" PRIu64 " h", s / 3600);
}

/* "3, 5, 9 and 4 more" */
static void put_shards(const struct ring *r, enum ring_trouble trouble, struct buf *out)
{
    size_t n = 0;

    (void)buf_addf(out, "shard%s ", r->troubles[trouble] == 1 ? "" : "s");
    vec_for (i, &r->shards) {
        if (r->shards.ptr[i].trouble != trouble)
            continue;
        if (n < SHARDS_NAMED)
            (void)buf_addf(out, "%s%" PRIu64, n ? ", " : "", r->shards.ptr[i].shard);
        n++;
    }
    if (n > SHARDS_NAMED)
        (void)buf_addf(out, " and %zu more", n - SHARDS_NAMED);
}

/* "; missing: a, b and 2 more", of all shards with this trouble. */
static void put_missing(const struct ring *r, enum ring_trouble trouble, struct buf *out)
{
    size_t n = 0;

    vec_for (k, &r->nodes) {
        bool missing = false;

        vec_for (i, &r->shards) {
            const struct ring_shard *s = &r->shards.ptr[i];

            for (size_t m = 0; s->trouble == trouble && m < json_len(s->members); m++)
                missing |= str_eq(ring_name(s->members, m), r->nodes.ptr[k].name) &&
                           (!ring_takes(r, s, r->nodes.ptr[k].name) || r->nodes.ptr[k].lost);
        }
        if (missing && n < NODES_NAMED)
            (void)buf_addf(out, "%s%.*s", n ? ", " : "; missing: ", STR_ARG(r->nodes.ptr[k].name));
        n += missing;
    }
    if (n > NODES_NAMED)
        (void)buf_addf(out, " and %zu more", n - NODES_NAMED);
}

static void about_service(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b)
{
    if (r->age_ms <= RING_AGE_MOST_MS && r->shards.len == 0 && r->watched) {
        size_t live = 0;

        vec_for (i, &r->nodes)
            live += r->nodes.ptr[i].live;
        (void)buf_addf(b,
                       "the cluster has no map yet: it is made once as many ingesters live as a "
                       "shard has copies (cluster.replicas), %zu live now; nothing is stored "
                       "before. Start the others, or see in their logs why they are not in",
                       live);
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->age_ms > RING_AGE_MOST_MS) {
        (void)buf_add_str(b, STR("etcd last answered "));
        put_for(r->age_ms, b);
        (void)buf_addf(b,
                       " ago%s%.*s: see to etcd. Pushes and queries continue where a leader "
                       "works; taking over from a leader that dies, moves and drains wait",
                       r->trouble.len ? ", " : "", STR_ARG(str_sub(r->trouble, 0, 200)));
        fn(cookie, buf_str(b));
        buf_reset(b);
    } else if (r->trouble.len) {
        (void)buf_addf(
            b,
            "etcd answers, but not as it should: %.*s. See to etcd: pushes and queries "
            "continue; where it refuses changes, taking over from a leader that dies, moves "
            "and drains wait",
            STR_ARG(str_sub(r->trouble, 0, 300)));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->unreadable)
        fn(cookie, STR("a key in etcd cannot be read, /ring says which; its last value holds: put "
                       "its value right, or remove it if no operator needs it"));
}

static void about_shards(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b)
{
    if (r->troubles[RING_LEADERLESS]) {
        put_shards(r, RING_LEADERLESS, b);
        (void)buf_add_str(
            b, !r->watched ? STR(": no member that lives leads")
               : r->age_ms > RING_AGE_MOST_MS
                   ? STR(": the leader is gone or takes nothing, so pushes and questions there "
                         "wait. Another member takes over when etcd is back")
                   : STR(": the leader is gone or takes nothing, so pushes and questions there "
                         "wait. Another member takes over within seconds, as most of the copies "
                         "are there"));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->troubles[RING_MINORITY]) {
        put_shards(r, RING_MINORITY, b);
        (void)buf_add_str(b, STR(": half or more of the copies are gone or take nothing, so pushes "
                                 "and questions there wait, and get 503: start the nodes that are "
                                 "gone, mend those that take nothing; nothing acked is lost by "
                                 "waiting"));
        put_missing(r, RING_MINORITY, b);
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->troubles[RING_UNNAMED] && r->shards.len) {
        put_shards(r, RING_UNNAMED, b);
        (void)buf_addf(b,
                       ": no member was named yet; as many ingesters as copies (%" PRIu64
                       ") have to live once, in different zones if they have zones",
                       r->replicas);
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->troubles[RING_STARTING]) {
        put_shards(r, RING_STARTING, b);
        (void)buf_add_str(
            b, r->age_ms > RING_AGE_MOST_MS
                   ? STR(": a leader was named when etcd last answered, and whether it began "
                         "is not known here: /readyz of the leader says it")
                   : STR(": the leader begins, which takes seconds as most of the copies are "
                         "there; if it lasts, /readyz of the leader says why"));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->troubles[RING_BEHIND]) {
        put_shards(r, RING_BEHIND, b);
        (void)buf_add_str(b, STR(": a copy is far behind and catches up (PROGRESS); take no other "
                                 "node of these shards away meanwhile"));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
}

/* By the value in force, as the ingesters say it. */
static void put_replaced(const struct ring *r, const struct ring_node *n, struct buf *b)
{
    if (!r->replace_ms) {
        (void)buf_add_str(b, STR("After cluster.replace_after "));
    } else if (!n->gone_ms || n->gone_ms >= r->replace_ms) {
        (void)buf_add_str(b, STR("After cluster.replace_after ("));
        put_for(r->replace_ms, b);
        (void)buf_add_str(b, STR(") "));
    } else {
        (void)buf_add_str(b, STR("In about "));
        put_for(r->replace_ms - n->gone_ms, b);
        (void)buf_add_str(b, STR(" (cluster.replace_after is "));
        put_for(r->replace_ms, b);
        (void)buf_add_str(b, STR(") "));
    }
    (void)buf_add_str(
        b, STR("others get its copies, from those that live; until then take no other node away"));
}

/* Of the same copy, by its node or its leader. */
static bool said_before(const struct ring *r, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (r->bad.ptr[i].shard == r->bad.ptr[at].shard &&
            str_eq(r->bad.ptr[i].node, r->bad.ptr[at].node))
            return true;
    return false;
}

/* A copy that takes nothing, though its node lives. */
static void about_bad(const struct ring *r, const struct ring_node *n, ring_advice_fn fn,
                      void *cookie, struct buf *b)
{
    struct str why = n->trouble;
    size_t shards = 0;
    bool own = why.len > 0;

    vec_for (i, &r->bad) {
        const struct ring_bad *bad = &r->bad.ptr[i];

        if (!str_eq(bad->node, n->name) || !n->live)
            continue;
        if (!why.len || (bad->own && !own))
            why = bad->why;
        own |= bad->own;
        if (said_before(r, i))
            continue;
        if (shards < SHARDS_NAMED)
            (void)buf_addf(b, "%s%" PRIu64, shards ? ", " : "", bad->shard);
        shards++;
    }
    if (!why.len || !n->live)
        return;
    struct buf text;
    buf_init(&text, 4 * KIB);
    (void)buf_addf(&text, "%.*s lives and stores nothing", STR_ARG(n->name));
    if (shards && !n->trouble.len)
        (void)buf_addf(&text, " of shard%s %.*s", shards == 1 ? "" : "s", STR_ARG(buf_str(b)));
    if (shards > SHARDS_NAMED && !n->trouble.len)
        (void)buf_addf(&text, " and %zu more", shards - SHARDS_NAMED);
    (void)buf_addf(&text, ": %.*s. %s; take no other node with copies of its shards away",
                   STR_ARG(str_sub(why, 0, 300)),
                   own ? "See to that disk" : "Its /readyz, log and disk say why");
    fn(cookie, buf_str(&text));
    buf_deinit(&text);
    buf_reset(b);
}

/* A living copy is removed only when enough others live (common/cluster/place/place_step.c). */
static void about_drained(const struct ring *r, const struct ring_node *n, ring_advice_fn fn,
                          void *cookie, struct buf *b)
{
    bool left = str_eq(n->state, STR("left"));
    uint64_t nodes = 0;

    if (!left && !str_eq(n->state, STR("draining")))
        return;
    vec_for (i, &r->nodes)
        nodes += r->nodes.ptr[i].live && str_eq(r->nodes.ptr[i].state, STR("active"));
    if (n->shards && nodes < r->replicas)
        (void)buf_addf(b,
                       "%.*s is drained, and keeps its copies of %" PRIu32
                       " shard%s: each is to have %" PRIu64 " copies, and of the nodes that are "
                       "not drained only %" PRIu64 " live%s. Start those that are gone, let "
                       "another node join, or embertreectl cluster undrain %.*s",
                       STR_ARG(n->name), n->shards, n->shards == 1 ? "" : "s", r->replicas, nodes,
                       nodes == 1 ? "s" : "", STR_ARG(n->name));
    else if (!n->shards && left)
        (void)buf_addf(
            b,
            "%.*s was drained, and is given nothing, also when it is started again: stop "
            "it for good, or embertreectl cluster undrain %.*s",
            STR_ARG(n->name), STR_ARG(n->name));
    else if (!n->shards)
        (void)buf_addf(b,
                       "%.*s has no shard any more, but may count for a shard that is moving: stop "
                       "it once its state is \"left\"",
                       STR_ARG(n->name));
    if (b->len)
        fn(cookie, buf_str(b));
    buf_reset(b);
}

static void about_node(const struct ring *r, const struct ring_node *n, ring_advice_fn fn,
                       void *cookie, struct buf *b)
{
    bool counts = n->shards && !str_eq(n->state, STR("left"));

    if (!n->live && counts) {
        (void)buf_addf(b, n->gone_ms ? "%.*s has been gone for " : "%.*s is gone",
                       STR_ARG(n->name));
        if (n->gone_ms)
            put_for(n->gone_ms, b);
        (void)buf_addf(b, ", and has copies of %" PRIu32 " shard%s: ", n->shards,
                       n->shards == 1 ? "" : "s");
        (void)buf_add_str(
            b, str_eq(n->state, STR("draining"))
                   ? STR("as it is drained, others copy them now from the members that live; until "
                         "then take no other node away")
                   : STR("start it. "));
        if (!str_eq(n->state, STR("draining")))
            put_replaced(r, n, b);
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (n->full) {
        (void)buf_addf(b,
                       "%.*s: its disk is as good as full, it hands its shards over and takes no "
                       "pushes: make room, or a larger volume; embertreectl space says whose bytes "
                       "they are",
                       STR_ARG(n->name));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (n->lost) {
        (void)buf_addf(b,
                       "%.*s lost its log of %" PRIu32
                       " shard%s and fetches them again from the others: leave those running",
                       STR_ARG(n->name), n->lost, n->lost == 1 ? "" : "s");
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (n->live)
        about_drained(r, n, fn, cookie, b);
}

static void about_copies(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b)
{
    vec_for (i, &r->copies) {
        const struct ring_copy *copy = &r->copies.ptr[i];

        if (!copy->why.len)
            continue;
        (void)buf_addf(
            b, "%.*s cannot take its copy of shard %" PRIu64 ": %.*s; then it continues by itself",
            STR_ARG(copy->node), copy->shard, STR_ARG(str_sub(copy->why, 0, 300)));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
}

void ring_advice(const struct ring *r, ring_advice_fn fn, void *cookie)
{
    struct buf b;

    buf_init(&b, 16 * KIB);
    about_service(r, fn, cookie, &b);
    ring_heard_advice(r, fn, cookie, &b);
    about_shards(r, fn, cookie, &b);
    vec_for (i, &r->nodes) {
        if (r->watched)
            about_node(r, &r->nodes.ptr[i], fn, cookie, &b);
        if (r->watched)
            about_bad(r, &r->nodes.ptr[i], fn, cookie, &b);
    }
    about_copies(r, fn, cookie, &b);
    if (!r->watched && !r->ready)
        fn(cookie, STR("the server asked is not ready: its /readyz says why"));
    if (r->moving)
        fn(cookie, STR("shards are on the move: embertreectl cluster rebalance shows which"));
    buf_deinit(&b);
}
