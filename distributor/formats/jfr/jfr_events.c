/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_events: the pass over the events of a chunk, behind one over its settings.
 *
 *   event = size | type | fields of the class          sizes lead from one to the next
 *
 * Type numbers are the chunk's own; classes are known by name (`kinds` below). An event is run
 * through its class's steps as far as the last field we want, and added to its row: (family, stack,
 * tag). A trace remembers the row it was counted in last, so that the usual event costs two
 * look-ups: its type, its trace. Nothing is kept per event.
 *
 * What an event says about its request (context, span, trace) is its tag; most have none.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR events").
 */
#include "distributor/formats/jfr/jfr_impl.h"

#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define TAGS_MAX (1u << 28) /* that fit the key of a row */

enum take { TAKE_SETTING, TAKE_CPU, TAKE_WALL, TAKE_COUNT, TAKE_AMOUNT, TAKE_TIME };

static const struct kind {
    const char *event;
    enum take take;
    enum jfr_family family;
    const char *value, *value2; /* fields; the second where the class lacks the first */
} kinds[] = {
    { "jdk.ActiveSetting", TAKE_SETTING, JFR_FAMILIES, "name", NULL },
    { "jdk.ExecutionSample", TAKE_CPU, JFR_CPU, NULL, NULL },
    { "jdk.NativeMethodSample", TAKE_COUNT, JFR_NATIVE, NULL, NULL },
    { "jdk.CPUTimeSample", TAKE_TIME, JFR_CPU_TIME, "samplingPeriod", NULL },
    { "profiler.WallClockSample", TAKE_WALL, JFR_WALL, "samples", NULL },
    { "jdk.ObjectAllocationInNewTLAB", TAKE_AMOUNT, JFR_ALLOC_IN_TLAB, "tlabSize",
      "allocationSize" },
    { "jdk.ObjectAllocationOutsideTLAB", TAKE_AMOUNT, JFR_ALLOC_OUTSIDE_TLAB, "allocationSize",
      NULL },
    { "jdk.ObjectAllocationSample", TAKE_AMOUNT, JFR_ALLOC_SAMPLE, "weight", NULL },
    { "jdk.JavaMonitorEnter", TAKE_TIME, JFR_MUTEX, "duration", NULL },
    { "jdk.ThreadPark", TAKE_TIME, JFR_BLOCK, "duration", NULL },
    { "profiler.NativeLock", TAKE_TIME, JFR_NATIVE_LOCK, "duration", NULL },
    { "profiler.LiveObject", TAKE_COUNT, JFR_LIVE, NULL, NULL },
    { "profiler.Malloc", TAKE_AMOUNT, JFR_MALLOC, "size", NULL },
};

struct plan {
    const struct kind *kind;
    uint64_t type;
    uint32_t from, len; /* of ops, up to the last wanted field */
    struct jfr_bind bind[JFR_SLOTS];
};
struct pass {
    struct jfr *j;
    struct jfr_chunk *c;
    struct plan plans[JFR_PLANS_MAX];
    size_t plans_len;
    uint8_t dense[JFR_TYPES_DENSE]; /* type -> plan + 1 */
    struct err *e;
};

/* ---- which events ----- */

static const struct kind *kind_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eqc(name, kinds[i].event))
            return &kinds[i];
    return NULL;
}

static int add_plan(struct pass *p, uint32_t class, const struct kind *kind)
{
    const struct jfr_want wants[] = {
        { "stackTrace", JFR_SLOT_STACK },
        { "state", JFR_SLOT_STATE },
        { "contextId", JFR_SLOT_CONTEXT },
        { "spanId", JFR_SLOT_SPAN },
        { "spanName", JFR_SLOT_SPAN_NAME },
        { "traceIdHi", JFR_SLOT_TRACE_HI },
        { "traceIdLo", JFR_SLOT_TRACE_LO },
        { "startTime", JFR_SLOT_TIME },
        { kind->take == TAKE_SETTING ? "id" : "", JFR_SLOT_ID },
        { kind->value ? kind->value : "", JFR_SLOT_VALUE },
        { kind->take == TAKE_SETTING ? "value"
          : kind->value2             ? kind->value2
                                     : "",
          JFR_SLOT_VALUE2 },
    };
    struct jfr_chunk *c = p->c;

    if (p->plans_len == JFR_PLANS_MAX)
        return err_set(p->e, ERR_LIMIT, "metadata: more than %d classes of events to read",
                       JFR_PLANS_MAX);
    if (jfr_compile(p->j, class, wants, ARRAY_LEN(wants), p->e))
        return p->e->code;
    const struct jfr_prog *prog = &c->progs.ptr[c->classes.ptr[class].prog];
    struct plan *plan = &p->plans[p->plans_len++];
    *plan = (struct plan){ .kind = kind, .type = c->classes.ptr[class].id };
    memcpy(plan->bind, prog->bind, sizeof(plan->bind));
    for (size_t i = 0; i < prog->len; i++)
        if (c->ops.ptr[prog->from + i].slot)
            plan->len = (uint32_t)i + 1 + c->ops.ptr[prog->from + i].body;
    plan->from = prog->from;
    if (c->classes.ptr[class].id < JFR_TYPES_DENSE)
        p->dense[c->classes.ptr[class].id] = (uint8_t)p->plans_len;
    return 0;
}

static int make_plans(struct pass *p)
{
    struct jfr_chunk *c = p->c;

    vec_for (i, &c->classes) {
        const struct kind *kind = kind_find(c->classes.ptr[i].name);
        if (kind && add_plan(p, (uint32_t)i, kind))
            return p->e->code;
    }
    return 0;
}
static_assert(JFR_PLANS_MAX < UINT8_MAX, "plans fit the dense table");

static const struct plan *plan_find(const struct pass *p, uint64_t type)
{
    if (LIKELY(type < JFR_TYPES_DENSE))
        return p->dense[type] ? &p->plans[p->dense[type] - 1] : NULL;
    for (size_t i = 0; i < p->plans_len; i++)
        if (p->plans[i].type == type)
            return &p->plans[i];
    return NULL;
}

/* ---- tags and rows ----- */

/* False: no room. */
static bool tag_find(struct pass *p, const uint64_t *slots, uint32_t *ret)
{
    struct jfr *j = p->j;
    struct jfr_tag tag = { 0, 0, slots[JFR_SLOT_SPAN], slots[JFR_SLOT_TRACE_HI],
                           slots[JFR_SLOT_TRACE_LO] };

    if (j->labels.strings.len) { /* without a snapshot these numbers say nothing */
        tag.context = slots[JFR_SLOT_CONTEXT];
        tag.span_name = slots[JFR_SLOT_SPAN_NAME];
    }
    if (!(tag.context | tag.span_name | tag.span | tag.trace_hi | tag.trace_lo)) {
        *ret = 0;
        return true;
    }
    if (memcmp(&j->tags.ptr[j->tag_last], &tag, sizeof(tag)) == 0) {
        *ret = j->tag_last;
        return true;
    }
    uint32_t next = (uint32_t)j->tags.len;
    for (uint64_t h = hash64(&tag, sizeof(tag), j->seed);; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&j->tag_ids, h, next);
        if (at == MAP_U64_EMPTY)
            break;
        if (memcmp(&j->tags.ptr[at], &tag, sizeof(tag)) == 0) {
            *ret = j->tag_last = at;
            return true;
        }
    }
    if (!jfr_charge(j, 2 * sizeof(tag) + 6 * sizeof(uint64_t), p->e))
        return false;
    CHECK(next < TAGS_MAX); /* the budget ends long before: options.c */
    vec_push(&j->tags, tag);
    *ret = j->tag_last = next;
    return true;
}

static bool row_find(struct pass *p, enum jfr_family family, uint32_t node, uint32_t tag,
                     uint32_t *ret)
{
    struct jfr *j = p->j;
    uint64_t key = (uint64_t)node << 32 | (uint64_t)tag << 4 | (uint64_t)family;
    struct jfr_row row = { .node = node, .tag = tag, .family = (uint8_t)family };

    *ret = map_u64_get(&j->row_ids, key ^ j->seed);
    if (*ret != MAP_U64_EMPTY)
        return true;
    if (!jfr_charge(j, 2 * sizeof(row) + 6 * sizeof(uint64_t), p->e))
        return false;
    *ret = (uint32_t)j->rows.len;
    map_u64_put(&j->row_ids, key ^ j->seed, *ret);
    vec_push(&j->rows, row);
    return true;
}
static_assert(JFR_FAMILIES <= 16, "a family takes four bits of a row's key");

static struct jfr_entry *trace_find(const struct pass *p, const struct jfr_bind *bind, uint64_t key)
{
    if (!bind->pool || p->c->classes.ptr[bind->class].kind != JFR_TRACE)
        return NULL;
    return jfr_pool_find(p->j, bind->class, key);
}

/* What is the same for all an event is counted in. */
struct seen {
    const struct plan *plan;
    const uint64_t *slots;
    struct jfr_entry *trace;
};

static int add(struct pass *p, const struct seen *s, enum jfr_family family, uint64_t count,
               uint64_t amount)
{
    struct jfr_entry *trace = s->trace;
    struct jfr *j = p->j;
    uint32_t node, tag;

    if (!tag_find(p, s->slots, &tag))
        return p->e->code;
    uint32_t key = tag << 4 | (uint32_t)family;
    if (trace->row_key != key) {
        if (jfr_trace_node(j, s->plan->bind[JFR_SLOT_STACK].class, trace, &node, p->e) ||
            !row_find(p, family, node, tag, &trace->row))
            return p->e->code;
        trace->row_key = key;
    }
    struct jfr_row *row = &j->rows.ptr[trace->row];
    row->count = push_sum(j->push, row->count, count);
    row->amount = push_sum(j->push, row->amount, amount);
    return 0;
}

/* ---- one event ----- */

/* Counts so many samples, each worth `period` nanoseconds. */
static int add_samples(struct pass *p, const struct seen *s, enum jfr_family family, uint64_t count,
                       uint64_t period)
{
    uint64_t *unit = &p->j->units[family], worth;

    *unit = *unit == 0 || *unit == period ? period : 1;
    if (!u64_mul(count, period, &worth) || worth > INT64_MAX) {
        p->j->push->drops[CHANGE_SATURATED]++;
        worth = INT64_MAX;
    }
    return add(p, s, family, count, worth);
}

static enum jfr_state state_of(const struct pass *p, const struct plan *plan, uint64_t key)
{
    const struct jfr_bind *bind = &plan->bind[JFR_SLOT_STATE];
    struct jfr_entry *entry;
    struct buf *name = &p->j->tmp;

    if (!bind->pool)
        return JFR_STATE_UNKNOWN;
    entry = jfr_pool_find(p->j, bind->class, key);
    if (!entry)
        return JFR_STATE_UNKNOWN;
    if (entry->memo == JFR_NONE) {
        buf_reset(name);
        jfr_text(p->j, bind, key, name);
        entry->memo = str_eqc(buf_str(name), "STATE_SLEEPING")   ? JFR_STATE_SLEEPING
                      : str_eqc(buf_str(name), "STATE_RUNNABLE") ? JFR_STATE_RUNNABLE
                                                                 : JFR_STATE_OTHER;
    }
    return (enum jfr_state)entry->memo;
}

/* The period of jdk.ExecutionSample, wherever in the chunk the writer put it. */
static int take_period(struct pass *p, const struct plan *plan, const uint64_t *slots)
{
    const uint32_t class = jfr_class_find(p->j, slots[JFR_SLOT_ID]);
    struct jfr *j = p->j;

    if (class == JFR_NONE || !str_eqc(p->c->classes.ptr[class].name, "jdk.ExecutionSample"))
        return 0;
    buf_reset(&j->name);
    jfr_text(j, &plan->bind[JFR_SLOT_VALUE], slots[JFR_SLOT_VALUE], &j->name);
    if (!str_eqc(buf_str(&j->name), "period"))
        return 0;
    buf_reset(&j->name);
    jfr_text(j, &plan->bind[JFR_SLOT_VALUE2], slots[JFR_SLOT_VALUE2], &j->name);
    return jfr_period_add(j, slots[JFR_SLOT_TIME], buf_str(&j->name), p->e);
}

/* async-profiler writes its options as settings; "event" is what it samples by. */
static void take_setting(struct jfr *j, const struct plan *plan, const uint64_t *slots)
{
    buf_reset(&j->name);
    jfr_text(j, &plan->bind[JFR_SLOT_VALUE], slots[JFR_SLOT_VALUE], &j->name);
    if (!str_eqc(buf_str(&j->name), "event"))
        return;
    buf_reset(&j->event);
    jfr_text(j, &plan->bind[JFR_SLOT_VALUE2], slots[JFR_SLOT_VALUE2], &j->event);
    j->wall = str_eqc(buf_str(&j->event), "wall");
}

/* A span of time in nanoseconds, exactly, rounded down. */
static uint64_t span_ns(const struct pass *p, uint8_t unit, uint64_t v)
{
    static const uint32_t ns[] = {
        [JFR_NS] = 1, [JFR_US] = 1000, [JFR_MS] = 1000000, [JFR_S] = 1000000000
    };
    u128 x = v;

    x = unit == JFR_TICKS ? x * 1000000000u / p->c->ticks_per_s : x * ns[unit];
    if (x <= INT64_MAX)
        return (uint64_t)x;
    p->j->push->drops[CHANGE_SATURATED]++;
    return INT64_MAX;
}

static int take_event(struct pass *p, const struct plan *plan, const uint64_t *slots)
{
    const struct kind *k = plan->kind;
    bool has = plan->bind[JFR_SLOT_VALUE].here;
    uint64_t v = slots[has ? JFR_SLOT_VALUE : JFR_SLOT_VALUE2];
    struct push *push = p->j->push;
    enum jfr_state state;

    if (k->take == TAKE_SETTING) {
        take_setting(p->j, plan, slots);
        return 0;
    }
    push->samples++;
    const struct seen s = { plan, slots,
                            trace_find(p, &plan->bind[JFR_SLOT_STACK], slots[JFR_SLOT_STACK]) };
    push->drops[DROP_NO_STACK] += !s.trace;
    push->drops[DROP_NEGATIVE] += s.trace && (int64_t)v < 0;
    if (!s.trace || (int64_t)v < 0)
        return 0;
    switch (k->take) {
    case TAKE_SETTING:
        break;
    case TAKE_CPU:
        state = state_of(p, plan, slots[JFR_SLOT_STATE]);
        v = jfr_period_at(p->j, slots[JFR_SLOT_TIME]);
        if (state != JFR_STATE_SLEEPING && add_samples(p, &s, JFR_CPU, 1, v))
            return p->e->code;
        return p->j->wall ? add_samples(p, &s, JFR_WALL, 1, v) : 0;
    case TAKE_WALL:
        v = has ? v : 1;
        state = state_of(p, plan, slots[JFR_SLOT_STATE]);
        if (p->j->wall && state == JFR_STATE_RUNNABLE &&
            add_samples(p, &s, JFR_CPU, v, p->j->period))
            return p->e->code;
        return add_samples(p, &s, JFR_WALL, v, p->j->period);
    case TAKE_COUNT:
        return add(p, &s, k->family, 1, 0);
    case TAKE_AMOUNT:
        return add(p, &s, k->family, 1, v);
    case TAKE_TIME:
        return add(p, &s, k->family, 1, span_ns(p, plan->bind[JFR_SLOT_VALUE].unit, v));
    }
    return 0;
}

static int bad_event(const struct pass *p, const uint8_t *at, const char *what)
{
    return err_set(p->e, ERR_INPUT, "event at byte %td of the chunk: %s", at - p->c->base, what);
}

static int read_events(struct pass *p, bool settings)
{
    const uint8_t *at = p->c->base + JFR_HEADER_BYTES, *end = p->c->base + p->c->size;
    uint64_t size, type, slots[JFR_SLOTS];

    for (; at < end; at += size) {
        struct rd r = { at, end };
        pool_slice();
        if (!jfr_varint(&r, &size) || size == 0 || size > (uint64_t)(end - at))
            return bad_event(p, at, "an impossible size");
        if (!jfr_varint(&r, &type) || r.p > at + size)
            return bad_event(p, at, "shorter than its head");
        const struct plan *plan = plan_find(p, type);
        if (!plan || (settings && plan->kind->take != TAKE_SETTING))
            continue;
        /* Read up to the end of the chunk, which is memory, and look afterwards: most events have
         * less than a longest varint behind their last field. */
        memset(slots, 0, sizeof(slots));
        if (!jfr_run(p->c->ops.ptr + plan->from, plan->len, p->c->base, &r, slots) ||
            r.p > at + size)
            return bad_event(p, at, "shorter than its fields");
        if (settings ? take_period(p, plan, slots) : take_event(p, plan, slots))
            return p->e->code;
        if (p->j->read_left == 0)
            return err_set(p->e, ERR_LIMIT,
                           "constants: referred to so often that they have over %d times the bytes "
                           "of the recording together, and over %zu MiB",
                           JFR_READ_TIMES, JFR_READ_LEAST / MIB);
    }
    return 0;
}

int jfr_events_read(struct jfr *j, struct err *e)
{
    struct pass p = { .j = j, .c = &j->chunk, .e = e };

    if (j->tags.len == 0) {
        struct jfr_tag none = { 0 };
        vec_push(&j->tags, none);
    }
    j->periods.len = 0; /* of the chunk before: each chunk says its own */
    if (make_plans(&p) || read_events(&p, true))
        return e->code;
    jfr_periods_sort(j);
    return read_events(&p, false);
}
