/* SPDX-License-Identifier: Apache-2.0
 *
 * push.c: what all formats need to fill a push: labels that all series share, series, exemplars,
 * and names in their stored form.
 *
 * Invariants: labels are sorted and unique; names that begin with __ come from here only; a value
 * never passes INT64_MAX, and CHANGE_SATURATED counts the sums that would. Everything but the
 * stacks is in the push's arena; when the arena is full, push_full says whether it or the stacks
 * hit the limit. Thread: one at a time.
 */
#include "distributor/formats/push.h"

#include "distributor/formats/normalize.h"
#include "distributor/formats/pprof/symbol_session.h"

#define SERIES_FIRST 4
#define WORD_MAX     255 /* bytes of each part of a profile type id */
#define NS_PER_S     INT64_C(1000000000)
#define YEAR_1971_S  INT64_C(31536000)
#define YEAR_1990_S  INT64_C(631152000)
#define AHEAD_S      INT64_C(86400)

const char *push_drop_name(enum push_drop d)
{
    static const char *const names[PUSH_DROPS] = {
        [DROP_LINE] = "line_without_count",       [DROP_UNKNOWN_LOCATION] = "unknown_location",
        [DROP_VALUE_COUNT] = "value_count",       [DROP_NEGATIVE] = "negative_value",
        [DROP_DELTA_NEGATIVE] = "negative_delta", [DROP_LABEL] = "sample_label",
        [CHANGE_OVERFLOW] = "label_overflow",     [CHANGE_TRUNCATED] = "stack_truncated",
        [CHANGE_STACKS] = "stack_overflow",       [CHANGE_SYMBOL] = "symbol_cut",
        [CHANGE_SATURATED] = "value_saturated",   [CHANGE_STRING] = "string_index",
        [CHANGE_EXEMPLAR] = "exemplar",           [DROP_NO_STACK] = "no_stack",
        [DROP_UNFINISHED] = "unfinished_bytes",   [CHANGE_RATE] = "sample_rate",
    };
    return names[d];
}

void push_init(struct push *p, struct arena *a, const struct limits *l, uint64_t seed)
{
    *p = (struct push){ .arena = a };
    stacks_init(&p->stacks, (size_t)l->decode_bytes, seed);
}

void push_deinit(struct push *p)
{
    if (p->known_taken && p->known_grew) /* nothing of it was sent, or will be */
        atomic_store_explicit(&p->known->dead, true, memory_order_relaxed);
    push_known_put(p);
    symbol_session_unref(p->known);
    p->known = NULL;
    stacks_deinit(&p->stacks);
}

int push_full(const struct push *p, struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "decoding takes more than %zu bytes of memory: push smaller profiles or raise "
                   "distributor.decode_bytes",
                   arena_limit(p->arena));
}

bool push_label_hidden(struct str name)
{
    return str_starts(name, STR("__")) || exid_label(name) != EXID_NONE;
}

/* Ids that the name gives to the whole push. There profile_id is what it says; in a sample it is
 * how older agents call the span. */
static void push_ids(struct push *p, const struct labels *given)
{
    for (size_t i = 0; i < given->len; i++) {
        enum exid_kind kind = exid_label(given->ptr[i].name);
        if (kind == EXID_NONE || given->ptr[i].value.len == 0)
            continue;
        if (str_eqc(given->ptr[i].name, "profile_id"))
            kind = EXID_PROFILE;
        if (!exid_parse(given->ptr[i].value, &p->ids[kind])) {
            p->ids[kind].len = 0;
            p->drops[CHANGE_EXEMPLAR]++;
        }
    }
}

/* Copied: what decodes a request may be gone before the push is stored. */
static int set_label(struct push *p, struct labels *out, struct str name, struct str value,
                     struct err *e)
{
    name = arena_strdup(p->arena, name);
    value = arena_strdup(p->arena, value);
    return name.ptr && value.ptr ? labels_set(out, p->arena, name, value, e) : push_full(p, e);
}

int push_base(struct push *p, const struct ingest *in, struct str app, const struct limits *l,
              struct err *e)
{
    struct labels out = { 0 };
    const struct labels *given = &in->name.labels;
    struct str service = labels_get(given, STR("service_name"));

    push_ids(p, given);
    for (size_t i = 0; i < given->len; i++)
        if (!push_label_hidden(given->ptr[i].name) &&
            set_label(p, &out, given->ptr[i].name, given->ptr[i].value, e))
            return e->code;
    if (service.len == 0)
        service = app;
    else if (labels_get(given, STR("app_name")).len == 0 &&
             set_label(p, &out, STR("app_name"), app, e))
        return e->code;
    if (set_label(p, &out, STR("service_name"), service, e) ||
        (in->spy.len && set_label(p, &out, STR("pyroscope_spy"), in->spy, e)))
        return e->code;
    if (out.len > l->label_names)
        return err_set(e, ERR_LIMIT,
                       "name: %zu labels with service_name and pyroscope_spy, at most "
                       "%" PRIu64,
                       out.len, l->label_names);
    if (service.len > l->label_value_bytes)
        return err_set(e, ERR_LIMIT, "name: a service name of %zu bytes, at most %" PRIu64,
                       service.len, l->label_value_bytes);
    p->base = out;
    p->service = labels_get(&out, STR("service_name"));
    return 0;
}

int push_time(struct push *p, int64_t time_ns, int64_t duration_ns, int64_t now_ms, struct err *e)
{
    int64_t s = time_ns / NS_PER_S;

    if (time_ns < 0 || (s >= YEAR_1971_S && s < YEAR_1990_S) || s > now_ms / 1000 + AHEAD_S)
        return err_set(e, ERR_INPUT,
                       "a profile of time %" PRId64
                       " ns: that is before 1990 or more than a day ahead",
                       time_ns);
    if (s < YEAR_1971_S)
        return 0;
    p->has_time = true;
    p->has_identity = time_ns % NS_PER_S != 0;
    p->time_ns = time_ns;
    p->duration_ns = MAX(duration_ns, 0);
    return 0;
}

/* A part of a profile type id must survive in `a:b:c:d:e{...}`: what is no word becomes '_'. */
static int word(struct push *p, struct str s, const char *empty, struct str *ret, struct err *e)
{
    if (s.len == 0) {
        *ret = str_c(empty);
        return 0;
    }
    if (s.len > WORD_MAX)
        return err_set(e, ERR_LIMIT, "a sample type or unit has %zu bytes, at most %d", s.len,
                       WORD_MAX);
    char *w = arena_alloc(p->arena, s.len);
    if (!w)
        return push_full(p, e);
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        w[i] = plain ? c : '_';
    }
    *ret = str_n(w, s.len);
    return 0;
}

static bool series_room(struct push *p)
{
    if (p->series_len < p->series_cap)
        return true;
    size_t cap = p->series_cap ? p->series_cap * 2 : SERIES_FIRST;
    struct push_series *s = ARENA_ARRAY(p->arena, struct push_series, cap);
    if (!s)
        return false;
    if (p->series_len)
        memcpy(s, p->series, p->series_len * sizeof(*s));
    p->series = s;
    p->series_cap = cap;
    return true;
}

/* Sorted merge of base, extra and the type's labels; base wins over extra, the type over both. */
static int series_labels(struct push *p, const struct ptype *t, struct str id,
                         const struct labels *extra, struct labels *ret, struct err *e)
{
    const struct label own[] = {
        { STR("__name__"), t->name },
        { STR("__period_type__"), t->period_type },
        { STR("__period_unit__"), t->period_unit },
        { STR("__profile_type__"), id },
        { STR("__service_name__"), p->service },
        { STR("__type__"), t->sample_type },
        { STR("__unit__"), t->sample_unit },
    };
    size_t most = ARRAY_LEN(own) + p->base.len + extra->len;
    struct labels out = { ARENA_ARRAY(p->arena, struct label, most), 0 };

    if (!out.ptr)
        return push_full(p, e);
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (own[i].value.len)
            out.ptr[out.len++] = own[i];
    for (size_t i = 0; i < p->base.len; i++)
        out.ptr[out.len++] = p->base.ptr[i];
    for (size_t i = 0; i < extra->len; i++)
        if (labels_get(&p->base, extra->ptr[i].name).ptr == NULL)
            out.ptr[out.len++] = extra->ptr[i];
    if (labels_sort(&out, e))
        return err_wrap(e, "labels of one series");
    *ret = out;
    return 0;
}

bool push_exemplar(struct push *p, size_t series, const struct push_exemplar *x)
{
    struct push_series *s = &p->series[series];

    if (s->exemplars_len == s->exemplars_cap) {
        size_t cap = s->exemplars_cap ? s->exemplars_cap * 2 : 4;
        struct push_exemplar *list = ARENA_ARRAY(p->arena, struct push_exemplar, cap);
        if (!list)
            return false;
        if (s->exemplars_len)
            memcpy(list, s->exemplars, s->exemplars_len * sizeof(*list));
        s->exemplars = list;
        s->exemplars_cap = cap;
    }
    s->exemplars[s->exemplars_len++] = *x;
    p->exemplars++;
    return true;
}

/* The whole series under the ids of the push. */
static bool add_ids(struct push *p, const struct push_series *s)
{
    for (int kind = EXID_SPAN; kind < EXID_KINDS; kind++) {
        struct push_exemplar x = { .kind = (enum exid_kind)kind,
                                   .id = exid_str(&p->ids[kind]),
                                   .nodes = s->nodes,
                                   .values = s->values,
                                   .len = s->len };
        if (x.id.len && s->len && !push_exemplar(p, p->series_len - 1, &x))
            return false;
    }
    return true;
}

int push_add(struct push *p, const struct ptype *t, const struct labels *extra,
             const struct push_series *values, struct err *e)
{
    struct push_series s = *values;
    struct ptype clean;
    struct buf id;

    if (word(p, t->name, "unknown", &clean.name, e) ||
        word(p, t->sample_type, "unknown", &clean.sample_type, e) ||
        word(p, t->sample_unit, "", &clean.sample_unit, e) ||
        word(p, t->period_type, "", &clean.period_type, e) ||
        word(p, t->period_unit, "", &clean.period_unit, e))
        return e->code;
    /* Peers do so by default: CPU time that came beside wall time is found as any other. */
    if (str_eqc(clean.name, "wall") && str_eqc(clean.sample_type, "cpu"))
        clean.name = STR("process_cpu");
    if (!series_room(p))
        return push_full(p, e);
    buf_init(&id, 5 * (WORD_MAX + 1));
    ptype_format(&clean, &id);
    s.profile_type = arena_strdup(p->arena, buf_str(&id));
    buf_deinit(&id);
    if (!s.profile_type.ptr)
        return push_full(p, e);
    if (series_labels(p, &clean, s.profile_type, extra, &s.labels, e))
        return e->code;
    s.gauge = ptype_is_gauge(&clean);
    s.total = 0;
    for (size_t i = 0; i < s.len; i++)
        s.total = push_sum(p, s.total, s.values[i]);
    p->series[p->series_len++] = s;
    return add_ids(p, &s) ? 0 : push_full(p, e);
}

struct str str_tail(struct str s, size_t keep)
{
    if (s.len <= keep)
        return s;
    size_t from = s.len - keep;
    while (from < s.len && ((unsigned char)s.ptr[from] & 0xc0) == 0x80)
        from++;
    return str_sub(s, from, s.len);
}

static struct str cut_symbol(struct push *p, struct str s, size_t keep)
{
    if (LIKELY(s.len <= keep))
        return s;
    p->drops[CHANGE_SYMBOL]++;
    return str_tail(s, keep);
}

struct str push_symbol(struct push *p, struct str name, size_t keep, struct buf *tmp)
{
    return normalize_name(cut_symbol(p, name, keep), tmp);
}

struct str push_path(struct push *p, struct str path, size_t keep, struct buf *tmp)
{
    return normalize_path(cut_symbol(p, path, keep), tmp);
}
