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
 * little: a sample then ends when the clock has passed the latest time seen, so that no time counts
 * twice. Without samples a hit is worth the average interval. The frame (root) is left out.
 *
 * Nodes are found by id, parents climbed with a bound: a cycle is deeper than any stack, also one
 * of (root) alone.
 *
 * Format: Chrome DevTools Protocol, Profiler and HeapProfiler (proto/FORMATS.md, "V8 profiles").
 */
#include "distributor/formats/upload/v8.h"

#include <math.h>

#include "common/base/hash.h"
#include "common/net/jpull.h"
#include "distributor/formats/gather.h"

#define TIME_MOST 9.0e15 /* us: below 2^63 ns */
#define NOWHERE   UINT32_MAX
/* A node, with its place among the ids, as vectors and maps grow. */
#define NODE_BYTES (2 * sizeof(struct v8_node) + 6 * sizeof(uint64_t))

struct v8_node {
    uint32_t parent; /* index; NOWHERE: none */
    uint32_t frame;  /* NOWHERE: (root) */
    uint32_t node;   /* of the stacks; NOWHERE: not needed so far */
    uint64_t hits;
};
struct call {
    struct str name, url;
    int64_t line; /* -1: none */
};
/* A node whose members are being read, in the order in which they come. */
struct open {
    struct jpull_obj obj;     /* where it nests */
    struct jpull_it children; /* where `listing` */
    bool nests, listing, has_call, has_id;
    uint32_t at; /* its index */
    int64_t id, hits, size;
    struct call call, own; /* of the callFrame, and of the node itself */
};
struct reader {
    struct gather g;
    VEC(struct v8_node) nodes; /* owned */
    struct map_u64 ids;        /* id -> index */
    VEC(uint32_t) stack;       /* owned; scratch */
    VEC(struct open) open;     /* owned; old style and heap: nodes that are begun, root first */
    struct jpull j;            /* at the beginning of the file */
    bool heap;                 /* values are sizes */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "cpuprofile: %s", what);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* One to one, so a key is an id; seeded, so that no sender can choose ids that collide. */
static uint64_t id_key(const struct reader *r, int64_t id)
{
    return hash_u64((uint64_t)id ^ r->g.push->stacks.seed);
}

static const char *const node_names[] = { "id",       "hitCount",   "callFrame",
                                          "children", "parent",     "functionName",
                                          "url",      "lineNumber", "selfSize" };
enum member {
    MEMBER_ID,
    MEMBER_HITS,
    MEMBER_CALL,
    MEMBER_CHILDREN,
    MEMBER_PARENT,
    MEMBER_NAME, /* from here on of the call; the old style has no callFrame */
    MEMBER_URL,
    MEMBER_LINE,
    MEMBER_SIZE,
};

static bool take_call(struct jpull *j, size_t which, struct call *call)
{
    return which == MEMBER_NAME  ? jpull_string(j, &call->name)
           : which == MEMBER_URL ? jpull_string(j, &call->url)
                                 : jpull_signed(j, "lineNumber", &call->line);
}

/* A member of a node; its children and parent are the caller's. */
static void take_member(struct jpull *j, size_t which, struct open *o)
{
    struct jpull_obj obj;
    size_t inner;

    switch ((enum member)which) {
    case MEMBER_ID:
        o->has_id |= jpull_peek(j) != 'n';
        (void)jpull_signed(j, "id", &o->id);
        return;
    case MEMBER_HITS:
        (void)jpull_signed(j, "hitCount", &o->hits);
        return;
    case MEMBER_CALL:
        if (!jpull_object(j, &obj))
            return;
        o->has_call = true;
        while (jpull_member(j, &obj, node_names + MEMBER_NAME, MEMBER_SIZE - MEMBER_NAME, &inner))
            (void)(inner + MEMBER_NAME < MEMBER_SIZE ? take_call(j, inner + MEMBER_NAME, &o->call)
                                                     : jpull_skip(j));
        return;
    case MEMBER_NAME:
    case MEMBER_URL:
    case MEMBER_LINE:
        if (o->nests)
            (void)take_call(j, which, &o->own);
        else
            (void)jpull_skip(j);
        return;
    case MEMBER_SIZE:
        (void)jpull_signed(j, "selfSize", &o->size);
        return;
    case MEMBER_CHILDREN:
    case MEMBER_PARENT:
        break;
    }
    (void)jpull_skip(j);
}

/* A node begins; it has its index from now on. */
static int open_node(struct reader *r, uint32_t parent, bool nests, struct open *ret, struct err *e)
{
    const struct v8_node n = { .parent = parent, .frame = NOWHERE, .node = NOWHERE };
    const struct call none = { STR_NULL, STR_NULL, -1 };

    if (gather_charge(&r->g, NODE_BYTES, e))
        return e->code;
    *ret = (struct open){ .at = (uint32_t)r->nodes.len,
                          .id = (int64_t)r->nodes.len,
                          .call = none,
                          .own = none,
                          .nests = nests,
                          .has_id = !nests };
    vec_push(&r->nodes, n);
    return 0;
}

static int frame_of(struct reader *r, const struct call *call, size_t at, uint32_t *ret,
                    struct err *e)
{
    struct str name = call->name;

    if (gather_check_name(&r->g, name, "function of node", at, e) ||
        gather_check_name(&r->g, call->url, "url of node", at, e))
        return e->code;
    if (str_eqc(name, "(root)")) {
        *ret = NOWHERE;
        return 0;
    }
    if (!name.len)
        name = STR("(anonymous)");
    *ret = gather_frame(&r->g, name, call->url,
                        call->line >= 0 && call->line < INT32_MAX ? (uint32_t)call->line + 1 : 0);
    return *ret == STACKS_FULL ? push_full(r->g.push, e) : 0;
}

/* All of a node was read. */
static int close_node(struct reader *r, const struct open *o, struct err *e)
{
    struct v8_node *n = &r->nodes.ptr[o->at];

    if (o->id < 0 || o->hits < 0)
        return bad(e, "a node with a negative id or hitCount");
    if (r->heap && o->size < 0)
        return bad(e, "a selfSize that is not a number of 0 or more");
    if (frame_of(r, o->nests && !o->has_call ? &o->own : &o->call, o->at, &n->frame, e))
        return e->code;
    n->hits = (uint64_t)(r->heap ? o->size : o->hits);
    /* In a tree nothing refers to a node that says no id. */
    return o->has_id && map_u64_put(&r->ids, id_key(r, o->id), o->at) != MAP_U64_EMPTY
               ? bad(e, "two nodes have one id")
               : 0;
}

static int read_failed(struct err *e)
{
    return err_wrap(e, "cpuprofile");
}

/* The reference to a node that is next. */
static int find(const struct reader *r, struct jpull *j, uint32_t *ret, struct err *e)
{
    int64_t id = -1;

    if (!jpull_signed(j, "node", &id) || id < 0)
        return bad(e, "a reference that is not the id of a node");
    *ret = map_u64_get(&r->ids, id_key(r, id));
    return *ret == MAP_U64_EMPTY
               ? err_set(e, ERR_INPUT, "cpuprofile: node %" PRId64 " does not exist", id)
               : 0;
}

static int link_children(struct reader *r, struct jpull *j, uint32_t at, struct err *e)
{
    struct jpull_it it;
    uint32_t child;

    if (!jpull_array(j, &it))
        return 0;
    while (jpull_element(j, &it)) {
        if (find(r, j, &child, e))
            return e->code;
        r->nodes.ptr[child].parent = at;
    }
    return 0;
}

/* The second pass over the nodes of a list: now all ids are known. */
static int link_node(struct reader *r, struct jpull *j, uint32_t at, struct err *e)
{
    struct jpull_obj obj;
    size_t which;

    (void)jpull_object(j, &obj);
    while (jpull_member(j, &obj, node_names, ARRAY_LEN(node_names), &which)) {
        if (which == MEMBER_CHILDREN) {
            if (link_children(r, j, at, e))
                return e->code;
        } else if (which == MEMBER_PARENT && jpull_peek(j) != 'n') {
            if (find(r, j, &r->nodes.ptr[at].parent, e))
                return e->code;
        } else {
            (void)jpull_skip(j);
        }
    }
    return 0;
}

static int read_list(struct reader *r, struct str list, struct err *e)
{
    struct jpull_obj obj;
    struct jpull_it it;
    struct open o;
    struct jpull j;
    size_t which;

    if (list.ptr[0] != '[')
        return bad(e, "nodes is not a list");
    jpull_part(&r->j, list, &j);
    (void)jpull_array(&j, &it);
    while (jpull_element(&j, &it)) {
        if (!jpull_object(&j, &obj))
            return bad(e, "a node that is not an object");
        if (open_node(r, NOWHERE, false, &o, e))
            return e->code;
        while (jpull_member(&j, &obj, node_names, ARRAY_LEN(node_names), &which))
            take_member(&j, which, &o);
        if (j.bad)
            return read_failed(e);
        if (close_node(r, &o, e))
            return e->code;
    }
    jpull_part(&r->j, list, &j);
    (void)jpull_array(&j, &it);
    for (uint32_t i = 0; jpull_element(&j, &it); i++)
        if (link_node(r, &j, i, e))
            return e->code;
    return 0;
}

static int open_nested(struct reader *r, struct jpull *j, uint32_t parent, struct err *e)
{
    struct jpull_obj obj;
    struct open o;

    if (!jpull_object(j, &obj))
        return bad(e, "a node that is not an object");
    if (open_node(r, parent, true, &o, e))
        return e->code;
    o.obj = obj;
    vec_push(&r->open, o);
    return 0;
}

/* A tree by nesting, whose members come in any order: nodes that are begun are a list, for the C
 * stack is not to grow with the file. It is as deep as jpull_check let the text be. */
static int read_head(struct reader *r, struct str head, struct err *e)
{
    struct jpull j;
    size_t which;

    if (!head.len)
        return bad(e, "a node that is not an object");
    jpull_part(&r->j, head, &j);
    if (open_nested(r, &j, NOWHERE, e))
        return e->code;
    while (r->open.len) {
        struct open *o = &r->open.ptr[r->open.len - 1];
        if (o->listing) {
            o->listing = jpull_element(&j, &o->children);
            if (o->listing && open_nested(r, &j, o->at, e))
                return e->code;
        } else if (jpull_member(&j, &o->obj, node_names, ARRAY_LEN(node_names), &which)) {
            if (which == MEMBER_CHILDREN)
                o->listing = jpull_array(&j, &o->children);
            else
                take_member(&j, which, o);
        } else if (!j.bad) {
            if (close_node(r, o, e))
                return e->code;
            r->open.len--;
        }
        if (j.bad)
            return read_failed(e);
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

static int check_us(double us, const char *what, struct err *e)
{
    return fabs(us) < TIME_MOST ? 0 : err_set(e, ERR_INPUT, "cpuprofile: %s is not a time", what);
}

struct times {
    struct str samples, clock; /* lists; clock is the timestamps or the deltas */
    bool stamps;
    size_t samples_len, clock_len;
    double start, end; /* us */
};
/* One pass over both lists. */
struct times_pass {
    struct jpull samples, clock;
    struct jpull_it samples_it, clock_it;
};

static size_t list_len(const struct reader *r, struct str list)
{
    struct jpull_it it;
    struct jpull j;
    size_t n = 0;

    jpull_part(&r->j, list, &j);
    if (list.len && jpull_array(&j, &it))
        for (; jpull_element(&j, &it); n++)
            (void)jpull_skip(&j);
    return n;
}

/* When sample i was taken, and the end of the profile for i = their number. */
static int time_at(const struct times *t, struct times_pass *p, size_t i, double *clock,
                   struct err *e)
{
    const char *what = t->stamps ? "a timestamp" : "a time delta";
    double v = 0;

    /* The old style's seconds are whole ones; its last timestamp is the end. */
    if (i == t->samples_len && (!t->stamps || i >= t->clock_len)) {
        *clock = t->end;
        return 0;
    }
    if (!jpull_element(&p->clock, &p->clock_it) || !jpull_real(&p->clock, what, &v))
        return read_failed(e);
    if (check_us(v, what, e))
        return e->code;
    *clock = t->stamps ? v : *clock + v;
    return fabs(*clock) < TIME_MOST ? 0 : bad(e, "its time deltas add up to no time");
}

static int put_samples(struct reader *r, const struct times *t, bool count, struct err *e)
{
    double clock = t->start, past = 0;
    uint32_t node = 0, at;
    struct times_pass p;

    jpull_part(&r->j, t->samples, &p.samples);
    jpull_part(&r->j, t->clock, &p.clock);
    (void)jpull_array(&p.samples, &p.samples_it);
    (void)jpull_array(&p.clock, &p.clock_it);
    for (size_t i = 0; i <= t->samples_len; i++) {
        if (time_at(t, &p, i, &clock, e))
            return e->code;
        if (i == 0)
            past = clock;
        else if (!count && clock > past)
            gather_put(&r->g, node, (uint64_t)llround(clock * 1e3) - (uint64_t)llround(past * 1e3));
        past = MAX(past, clock);
        if (!jpull_element(&p.samples, &p.samples_it))
            break;
        if (find(r, &p.samples, &at, e) || node_of(r, at, &node, e))
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
    const size_t n = t->samples_len;
    const bool samples = n > 0 && (t->stamps ? t->clock_len >= n : t->clock_len == n);

    if (n > r->g.l->samples)
        return err_set(e, ERR_LIMIT,
                       "cpuprofile: more than %" PRIu64
                       " samples: record for a shorter time, or raise distributor.samples",
                       r->g.l->samples);
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

static int read_cpu(struct reader *r, struct err *e)
{
    static const char *const names[] = { "nodes",      "head",      "samples", "timeDeltas",
                                         "timestamps", "startTime", "endTime" };
    struct str parts[5] = { STR_NULL };
    struct times t = { .start = 0 };
    struct jpull j = r->j;
    struct jpull_obj obj;
    size_t which;

    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which < 5    ? jpull_value(&j, &parts[which])
                   : which == 5 ? jpull_real(&j, names[which], &t.start)
                   : which == 6 ? jpull_real(&j, names[which], &t.end)
                                : jpull_skip(&j));
    if (j.bad)
        return read_failed(e);
    const double scale = parts[0].len ? 1 : 1e6; /* the old style has seconds */
    t.start *= scale;
    t.end *= scale;
    t.samples = parts[2];
    t.stamps = parts[4].len > 0;
    t.clock = t.stamps ? parts[4] : parts[3];
    if (parts[0].len ? read_list(r, parts[0], e) : read_head(r, parts[1], e))
        return e->code;
    if (check_us(t.start, "startTime", e) || check_us(t.end, "endTime", e))
        return e->code;
    t.samples_len = list_len(r, t.samples);
    t.clock_len = list_len(r, t.clock);
    return put_cpu(r, &t, e);
}

static int read_heap(struct reader *r, struct err *e)
{
    static const char *const names[] = { "head" };
    const struct labels none = { 0 };
    const struct ptype type = { .name = STR("memory"),
                                .sample_type = STR("inuse_space"),
                                .sample_unit = STR("bytes"),
                                .period_type = STR("space"),
                                .period_unit = STR("bytes") };
    struct str head = STR_NULL;
    struct jpull j = r->j;
    struct jpull_obj obj;
    uint32_t node;
    size_t which;

    r->heap = true;
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0 ? jpull_value(&j, &head) : jpull_skip(&j));
    if (j.bad)
        return read_failed(e);
    if (read_head(r, head, e))
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

static int run(struct str text, const struct limits *l, struct push *push,
               int (*read)(struct reader *r, struct err *e), struct err *e)
{
    struct reader r = { 0 };

    gather_init(&r.g, push, l, 1);
    map_u64_init(&r.ids);
    jpull_init_checked(&r.j, text, push->arena, e);
    int rc = read(&r, e);
    vec_free(&r.nodes);
    vec_free(&r.stack);
    vec_free(&r.open);
    map_u64_deinit(&r.ids);
    gather_deinit(&r.g);
    return rc;
}

int v8_cpuprofile_push(struct str text, const struct limits *l, struct push *push, struct err *e)
{
    return run(text, l, push, read_cpu, e);
}

int v8_heapprofile_push(struct str text, const struct limits *l, struct push *push, struct err *e)
{
    return run(text, l, push, read_heap, e);
}
