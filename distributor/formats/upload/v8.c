/* SPDX-License-Identifier: Apache-2.0
 *
 * v8: profiles of V8, as the Chrome DevTools Protocol describes them (domain Profiler).
 *
 *   {nodes[{id, callFrame{functionName, url, lineNumber from 0}, hitCount, children[ids] or
 *    parent}],
 *    startTime, endTime (us), samples[node ids], timeDeltas[us]}
 *   old style: {head{functionName, url, lineNumber, id, hitCount, children[]}, startTime, endTime
 *    (s), samples[], timestamps[us]}
 *   .heapprofile: {head{callFrame, selfSize, children[]}}: bytes alive
 *
 * Sample i is at work until sample i + 1, the last one until endTime. Times may run backwards by a
 * little: a sample then ends when the clock is past what was there before, so that no time counts
 * twice. Without samples a hit is worth the average interval. The frame (root) is left out.
 *
 * Nodes are found by id, parents climbed with a bound: a cycle is deeper than any stack, also one
 * of (root) alone.
 */
#include "distributor/formats/upload/v8.h"

#include <math.h>

#include "common/base/hash.h"
#include "common/net/json_in.h"
#include "distributor/formats/gather.h"

#define TIME_MOST 9.0e15 /* us: below 2^63 ns */
#define NOWHERE   UINT32_MAX

struct v8_node {
    uint32_t parent; /* index; NOWHERE: none */
    uint32_t frame;  /* NOWHERE: (root) */
    uint32_t node;   /* of the stacks; NOWHERE: not needed so far */
    uint64_t hits;
};
struct reader {
    struct gather g;
    VEC(struct v8_node) nodes;         /* owned */
    struct map_u64 ids;                /* id -> index */
    VEC(uint32_t) stack;               /* owned; scratch */
    VEC(const struct json_val *) walk; /* owned; old style and heap */
    VEC(uint32_t) walk_parent;
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "cpuprofile: %s", what);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* One to one, so a key is an id; seeded, so that nobody chooses ids that collide. */
static uint64_t id_key(const struct reader *r, int64_t id)
{
    return hash_u64((uint64_t)id ^ r->g.push->stacks.seed);
}

static int frame_of(struct reader *r, const struct json_val *call, uint32_t *ret, struct err *e)
{
    struct str name = STR_NULL, url = STR_NULL;
    int64_t line = -1;

    if (json_take_str(json_get(call, "functionName", NULL), "functionName", &name, e) ||
        json_take_str(json_get(call, "url", NULL), "url", &url, e) ||
        json_take_i64(json_get(call, "lineNumber", NULL), "lineNumber", &line, e))
        return err_wrap(e, "cpuprofile: node %zu", r->nodes.len);
    if (gather_check_name(&r->g, name, "function of node", r->nodes.len, e) ||
        gather_check_name(&r->g, url, "url of node", r->nodes.len, e))
        return e->code;
    if (str_eqc(name, "(root)")) {
        *ret = NOWHERE;
        return 0;
    }
    if (!name.len)
        name = STR("(anonymous)");
    *ret = gather_frame(&r->g, name, url, line >= 0 && line < INT32_MAX ? (uint32_t)line + 1 : 0);
    return *ret == STACKS_FULL ? push_full(r->g.push, e) : 0;
}

static int add_node(struct reader *r, const struct json_val *v, const struct json_val *call,
                    uint32_t parent, struct err *e)
{
    struct v8_node n = { .parent = parent, .node = NOWHERE };
    int64_t id = (int64_t)r->nodes.len, hits = 0;

    if (json_take_i64(json_get(v, "id", NULL), "id", &id, e) ||
        json_take_i64(json_get(v, "hitCount", NULL), "hitCount", &hits, e))
        return err_wrap(e, "cpuprofile: node %zu", r->nodes.len);
    if (id < 0 || hits < 0)
        return bad(e, "a node with a negative id or hitCount");
    if (frame_of(r, call, &n.frame, e))
        return e->code;
    n.hits = (uint64_t)hits;
    if (map_u64_put(&r->ids, id_key(r, id), (uint32_t)r->nodes.len) != MAP_U64_EMPTY)
        return bad(e, "two nodes have one id");
    vec_push(&r->nodes, n);
    return 0;
}

static int find(const struct reader *r, const struct json_val *v, uint32_t *ret, struct err *e)
{
    int64_t id = -1;

    if (!v || json_take_i64(v, "node", &id, e) || id < 0)
        return bad(e, "a reference that is no id of a node");
    *ret = map_u64_get(&r->ids, id_key(r, id));
    return *ret == MAP_U64_EMPTY
               ? err_set(e, ERR_INPUT, "cpuprofile: there is no node %" PRId64, id)
               : 0;
}

static int link_nodes(struct reader *r, const struct json_val *list, struct err *e)
{
    for (uint32_t i = 0; i < r->nodes.len; i++) {
        const struct json_val *v = json_at(list, i);
        const struct json_val *parent = json_get(v, "parent", NULL);
        const struct json_val *children = json_get(v, "children", NULL);
        if (parent && find(r, parent, &r->nodes.ptr[i].parent, e))
            return e->code;
        for (size_t k = 0; k < json_len(children); k++) {
            uint32_t child;
            if (find(r, json_at(children, k), &child, e))
                return e->code;
            r->nodes.ptr[child].parent = i;
        }
    }
    return 0;
}

static int read_list(struct reader *r, const struct json_val *list, struct err *e)
{
    if (!json_is_arr(list))
        return bad(e, "nodes is no list");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json_val *v = json_at(list, i);
        if (!json_is_obj(v))
            return bad(e, "a node that is no object");
        if (add_node(r, v, json_get(v, "callFrame", NULL), NOWHERE, e))
            return e->code;
    }
    return link_nodes(r, list, e);
}

/* A tree by nesting; the objects to look at are a list, for the C stack is not to grow with it. */
static int read_head(struct reader *r, const struct json_val *head, bool heap, struct err *e)
{
    vec_push(&r->walk, head);
    vec_push(&r->walk_parent, NOWHERE);
    while (r->walk.len) {
        const struct json_val *v = r->walk.ptr[--r->walk.len];
        uint32_t parent = r->walk_parent.ptr[--r->walk_parent.len];
        const struct json_val *call = json_get(v, "callFrame", NULL);
        const struct json_val *children = json_get(v, "children", NULL);
        int64_t size = 0;
        if (!json_is_obj(v))
            return bad(e, "a node that is no object");
        if (add_node(r, v, call ? call : v, parent, e))
            return e->code;
        uint32_t self = (uint32_t)r->nodes.len - 1;
        if (heap) {
            if (json_take_i64(json_get(v, "selfSize", NULL), "selfSize", &size, e) || size < 0)
                return bad(e, "a selfSize that is no number of 0 or more");
            r->nodes.ptr[self].hits = (uint64_t)size;
        }
        for (size_t k = 0; k < json_len(children); k++) {
            vec_push(&r->walk, json_at(children, k));
            vec_push(&r->walk_parent, self);
        }
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The frames of a node and of what is above it to r->stack, leaf first. A (root) is no frame, and
 * work like one. */
static int climb(struct reader *r, uint32_t at, struct err *e)
{
    size_t steps = 0;

    r->stack.len = 0;
    for (uint32_t i = at; i != NOWHERE; i = r->nodes.ptr[i].parent) {
        if (steps++ > MIN(r->nodes.len, r->g.l->text_frames))
            return bad(e, "its nodes are their own parents, or too deep");
        if (r->nodes.ptr[i].frame != NOWHERE)
            vec_push(&r->stack, r->nodes.ptr[i].frame);
    }
    r->g.work += GATHER_WORK_STEP * (uint64_t)(steps - r->stack.len);
    return 0;
}

static int node_of(struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    struct v8_node *n = &r->nodes.ptr[at];

    if (n->node == NOWHERE) {
        if (climb(r, at, e))
            return e->code;
        for (size_t i = 0, k = r->stack.len; i + 1 < k; i++, k--) {
            uint32_t swap = r->stack.ptr[i];
            r->stack.ptr[i] = r->stack.ptr[k - 1];
            r->stack.ptr[k - 1] = swap;
        }
        const struct gather_stack s = { .ids = r->stack.ptr, .n = r->stack.len };
        if (gather_node(&r->g, &s, "node", at, &n->node, e))
            return e->code;
    }
    *ret = n->node;
    return 0;
}

static int take_us(const struct json_val *v, const char *what, double scale, double *ret,
                   struct err *e)
{
    double us = 0;

    if (json_take_double(v, what, &us, e))
        return err_wrap(e, "cpuprofile");
    us *= scale;
    if (!(fabs(us) < TIME_MOST))
        return err_set(e, ERR_INPUT, "cpuprofile: %s is no time", what);
    *ret = us;
    return 0;
}

struct times {
    const struct json_val *samples, *deltas, *stamps;
    double start, end; /* us */
};

/* When sample i was taken, and the end of the profile for i = their number. */
static int time_at(const struct times *t, size_t i, double *clock, struct err *e)
{
    double v = 0;

    /* The old style's seconds are whole ones; its last timestamp is the end. */
    if (i == json_len(t->samples) && i >= json_len(t->stamps)) {
        *clock = t->end;
        return 0;
    }
    if (t->stamps)
        return take_us(json_at(t->stamps, i), "a timestamp", 1, clock, e);
    if (take_us(json_at(t->deltas, i), "a time delta", 1, &v, e))
        return e->code;
    *clock += v;
    return fabs(*clock) < TIME_MOST ? 0 : bad(e, "its time deltas add up to no time");
}

static int put_samples(struct reader *r, const struct times *t, bool count, struct err *e)
{
    double clock = t->start, past = 0;
    uint32_t node = 0, at;

    for (size_t i = 0; i <= json_len(t->samples); i++) {
        if (time_at(t, i, &clock, e))
            return e->code;
        if (i == 0)
            past = clock;
        else if (!count && clock > past)
            gather_put(&r->g, node, (uint64_t)llround(clock * 1e3) - (uint64_t)llround(past * 1e3));
        past = MAX(past, clock);
        if (i == json_len(t->samples))
            break;
        if (find(r, json_at(t->samples, i), &at, e) || node_of(r, at, &node, e))
            return e->code;
        if (count)
            gather_put(&r->g, node, 1);
    }
    return 0;
}

/* No samples: hits, each worth the average interval. */
static int put_hits(struct reader *r, double total_us, bool count, struct err *e)
{
    double hits = 0, sum = 0, per;
    uint32_t node;

    for (size_t i = 0; i < r->nodes.len; i++)
        hits += (double)r->nodes.ptr[i].hits;
    per = hits > 0 ? total_us * 1e3 / hits : 0;
    for (uint32_t i = 0; i < r->nodes.len; i++) {
        const uint64_t n = r->nodes.ptr[i].hits;
        if (!n)
            continue;
        if (node_of(r, i, &node, e))
            return e->code;
        uint64_t before = (uint64_t)llround(sum * per);
        sum += (double)n;
        gather_put(&r->g, node, count ? n : (uint64_t)llround(sum * per) - before);
    }
    return 0;
}

static int put_cpu(struct reader *r, const struct times *t, struct err *e)
{
    const struct labels none = { 0 };
    struct ptype type = { .name = STR("process_cpu"),
                          .period_type = STR("cpu"),
                          .period_unit = STR("nanoseconds") };
    const size_t n = json_len(t->samples);
    const bool samples = n > 0 && (t->stamps ? json_len(t->stamps) >= n : json_len(t->deltas) == n);

    if (n > r->g.l->samples)
        return err_set(e, ERR_LIMIT, "cpuprofile: more than %" PRIu64 " samples", r->g.l->samples);
    if (!(t->start >= 0 && t->end >= t->start))
        return bad(e, "endTime before startTime");
    r->g.push->samples += n;
    for (int count = 0; count < 2; count++) {
        type.sample_type = count ? STR("samples") : STR("cpu");
        type.sample_unit = count ? STR("count") : STR("nanoseconds");
        if ((samples ? put_samples(r, t, count, e) : put_hits(r, t->end - t->start, count, e)) ||
            gather_series(&r->g, &type, &none, e))
            return e->code;
    }
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int read_cpu(struct reader *r, const struct json_val *root, struct err *e)
{
    const struct json_val *nodes = json_get(root, "nodes", NULL);
    const struct json_val *head = json_get(root, "head", NULL);
    const double scale = nodes ? 1 : 1e6; /* the old style has seconds */
    struct times t = { .samples = json_get(root, "samples", NULL),
                       .deltas = json_get(root, "timeDeltas", NULL),
                       .stamps = json_get(root, "timestamps", NULL) };

    if (nodes ? read_list(r, nodes, e) : read_head(r, head, false, e))
        return e->code;
    if (take_us(json_get(root, "startTime", NULL), "startTime", scale, &t.start, e) ||
        take_us(json_get(root, "endTime", NULL), "endTime", scale, &t.end, e))
        return e->code;
    return put_cpu(r, &t, e);
}

static int read_heap(struct reader *r, const struct json_val *root, struct err *e)
{
    const struct labels none = { 0 };
    const struct ptype type = { .name = STR("memory"),
                                .sample_type = STR("inuse_space"),
                                .sample_unit = STR("bytes"),
                                .period_type = STR("space"),
                                .period_unit = STR("bytes") };
    uint32_t node;

    if (read_head(r, json_get(root, "head", NULL), true, e))
        return e->code;
    for (uint32_t i = 0; i < r->nodes.len; i++) {
        if (!r->nodes.ptr[i].hits)
            continue;
        if (node_of(r, i, &node, e))
            return e->code;
        gather_put(&r->g, node, r->nodes.ptr[i].hits);
        r->g.push->samples++;
    }
    return gather_series(&r->g, &type, &none, e);
}

static int run(const struct json_val *root, const struct limits *l, struct push *push,
               int (*read)(struct reader *r, const struct json_val *root, struct err *e),
               struct err *e)
{
    struct reader r = { 0 };

    gather_init(&r.g, push, l, 1);
    map_u64_init(&r.ids);
    int rc = read(&r, root, e);
    vec_free(&r.nodes);
    vec_free(&r.stack);
    vec_free(&r.walk);
    vec_free(&r.walk_parent);
    map_u64_deinit(&r.ids);
    gather_deinit(&r.g);
    return rc;
}

int v8_cpuprofile_push(const struct json_val *root, const struct limits *l, struct push *push,
                       struct err *e)
{
    return run(root, l, push, read_cpu, e);
}

int v8_heapprofile_push(const struct json_val *root, const struct limits *l, struct push *push,
                        struct err *e)
{
    return run(root, l, push, read_heap, e);
}
