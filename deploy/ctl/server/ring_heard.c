/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_heard: what other nodes reported to the server asked: clocks that are off, an etcd that
 * refuses their changes; and whether the server asked is a duplicate or stale process.
 *
 * Clocks are compared with the median, since the clock of the server asked may be wrong. Of two
 * clocks it is unknown which is wrong.
 */
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/server/ring.h"

#define SKEW_MS       5000
#define NAMED         12
#define COLD_WHY_MOST 500

static int64_t signed_number(const struct json_val *v, const char *key)
{
    struct err e;
    int64_t n = 0;

    return json_take_i64(json_get(v, key, NULL), key, &n, &e) ? 0 : n;
}

static struct ring_node *node_of(struct ring *r, struct str addr)
{
    vec_for (i, &r->nodes)
        if (str_eq(r->nodes.ptr[i].addr, addr))
            return &r->nodes.ptr[i];
    return NULL;
}

/* What the way of the ping leaves open counts in the clock's favour. */
static int64_t surely(int64_t ahead_ms, int64_t unsure_ms)
{
    if (ahead_ms > unsure_ms)
        return ahead_ms - unsure_ms;
    return ahead_ms < -unsure_ms ? ahead_ms + unsure_ms : 0;
}

static void read_clocks(const struct json_val *clocks, struct ring *r)
{
    for (size_t i = 0; i < json_len(clocks); i++) {
        const struct json_val *v = json_at(clocks, i);
        struct ring_node *n = node_of(r, ask_text(v, "addr"));

        if (!n)
            continue;
        n->clock_known = true;
        n->ahead_ms = surely(signed_number(v, "ahead_ms"), signed_number(v, "unsure_ms"));
    }
}

void ring_heard_read(struct ring *r, const struct json_val *cluster,
                     const struct json_val *ingester)
{
    const struct json_val *refused = json_get(cluster, "refused", NULL);

    read_clocks(json_get(cluster, "clocks", NULL), r);
    r->refused_here = ask_truth(cluster, "refused_here");
    for (size_t i = 0; i < json_len(refused); i++) {
        struct ring_node *n = node_of(r, ring_name(refused, i));

        if (n && !n->refused)
            r->refused++;
        if (n)
            n->refused = true;
    }
    const struct json_val *cold = json_get(ingester, "cold", NULL);
    r->cold = ask_text(cold, "refused");
    if (!r->cold.len && ask_truth(cold, "failing"))
        r->cold = ask_text(cold, "why");
    if (json_get(ingester, "registered", NULL) && !ask_truth(ingester, "registered"))
        r->not_in = ask_text(ingester, "whyNot");
}

bool ring_cold_right(const struct ring *r)
{
    vec_for (i, &r->nodes)
        if (r->nodes.ptr[i].cold.len)
            return false;
    return !r->cold.len;
}

/* ---- advice ---------------------------------------------------------------------------------- */

static void about_refused(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b)
{
    size_t n = 0;

    if (!r->refused || r->trouble.len) /* of ourselves it is said with etcd's own words */
        return;
    (void)buf_add_str(b, STR("etcd answers, and refuses changes of "));
    vec_for (i, &r->nodes) {
        if (!r->nodes.ptr[i].refused)
            continue;
        if (n < NAMED)
            (void)buf_addf(b, "%s%.*s", n ? ", " : "", STR_ARG(r->nodes.ptr[i].name));
        n++;
    }
    if (n > NAMED)
        (void)buf_addf(b, " and %zu more", n - NAMED);
    (void)buf_add_str(b,
                      STR(": their logs and cluster status asked of them say why (no space left: "
                          "etcdctl alarm list; or their user may not write). Pushes and queries "
                          "continue; taking over from a leader that dies, moves and drains wait"));
    fn(cookie, buf_str(b));
    buf_reset(b);
}

/* Of the server asked and the nodes whose clocks are known. */
static int64_t middle(const struct ring *r)
{
    int64_t all[1 + 4096];
    size_t n = 1;

    all[0] = 0;
    vec_for (i, &r->nodes) {
        int64_t ahead = r->nodes.ptr[i].ahead_ms;
        size_t at = n;

        if (!r->nodes.ptr[i].clock_known || n == ARRAY_LEN(all))
            continue;
        for (; at > 0 && all[at - 1] > ahead; at--)
            all[at] = all[at - 1];
        all[at] = ahead;
        n++;
    }
    return all[(n - 1) / 2];
}

static bool off(int64_t ahead_ms, int64_t mid_ms)
{
    return ahead_ms - mid_ms > SKEW_MS || mid_ms - ahead_ms > SKEW_MS;
}

static void about_clock(struct str whose, int64_t ahead_ms, ring_advice_fn fn, void *cookie,
                        struct buf *b)
{
    uint64_t s = (uint64_t)(ahead_ms < 0 ? -ahead_ms : ahead_ms) / 1000;

    (void)buf_addf(b,
                   "the clock of %.*s is %" PRIu64
                   " s %s the others': see to its time service. Profiles without a time of their "
                   "own that come by it stand in the wrong place",
                   STR_ARG(whose), s, ahead_ms < 0 ? "behind" : "ahead of");
    fn(cookie, buf_str(b));
    buf_reset(b);
}

static void about_cold(struct str whose, struct str why, ring_advice_fn fn, void *cookie,
                       struct buf *b)
{
    (void)buf_addf(b, "the cold tier of %.*s: %.*s", STR_ARG(whose),
                   STR_ARG(str_sub(why, 0, COLD_WHY_MOST)));
    fn(cookie, buf_str(b));
    buf_reset(b);
}

void ring_heard_advice(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b)
{
    int64_t mid = middle(r);

    about_refused(r, fn, cookie, b);
    if (r->not_in.len) {
        (void)buf_addf(b, "the server asked is not in the cluster: %.*s",
                       STR_ARG(str_sub(r->not_in, 0, 300)));
        fn(cookie, buf_str(b));
        buf_reset(b);
    }
    if (r->cold.len)
        about_cold(STR("the server asked"), r->cold, fn, cookie, b);
    vec_for (i, &r->nodes)
        if (r->nodes.ptr[i].cold.len && !str_eq(r->nodes.ptr[i].cold, r->cold))
            about_cold(r->nodes.ptr[i].name, r->nodes.ptr[i].cold, fn, cookie, b);
    if (off(0, mid))
        about_clock(STR("the server asked"), -mid, fn, cookie, b);
    vec_for (i, &r->nodes) {
        const struct ring_node *n = &r->nodes.ptr[i];

        if (n->clock_known && off(n->ahead_ms, mid))
            about_clock(n->name, n->ahead_ms - mid, fn, cookie, b);
    }
}
