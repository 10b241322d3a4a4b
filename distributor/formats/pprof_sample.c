/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_sample: one sample message.
 *
 * The usual ones are taken by the first loop: fields with one-byte tags and lengths. Location ids
 * are not decoded here if they stand in one piece, be it a packed field or a run of single fields:
 * the walk knows a stack it has seen by these bytes.
 */
#include "common/base/mem.h"
#include "distributor/formats/pprof.h"

#define TAG_LOCATION  0x08 /* field 1, a number */
#define TAG_LOCATIONS 0x0a /* field 1, packed */
#define TAG_VALUES    0x12

static struct wire wire_of(const struct pprof *p, struct err *e)
{
    const uint8_t *body = (const uint8_t *)p->body.ptr;

    return (struct wire){ .body = body, .end = body + p->body.len, .what = "sample", .e = e };
}

static bool too_deep(const struct wire *w, const struct limits *l)
{
    err_set(w->e, ERR_LIMIT, "pprof: a sample has a stack of more than %" PRIu64 " frames",
            l->frames);
    return false;
}

static bool add_location(struct wire *w, uint64_t id, const struct limits *l,
                         struct pprof_sample *s)
{
    if (s->locations.len >= l->frames)
        return too_deep(w, l);
    vec_push(&s->locations, id);
    return true;
}

/* Ids that stand in several pieces go to s->locations, one by one: rare, and bounded. */
static bool add_locations(struct wire *w, struct rd r, bool tagged, const struct limits *l,
                          struct pprof_sample *s)
{
    uint64_t id;

    while (r.p < r.end) {
        r.p += tagged;
        if (!wire_varint(w, &r, &id))
            return wire_malformed(w, &r);
        if (!add_location(w, id, l, s))
            return false;
    }
    return true;
}

/* A piece of ids: kept as it is while it is the only one. */
static bool take_ids(struct wire *w, struct rd r, bool tagged, const struct limits *l,
                     struct pprof_sample *s)
{
    if (r.p == r.end)
        return true;
    if (r.end[-1] >= 0x80) /* cut: seen even if nobody decodes the ids */
        return wire_malformed(w, &r);
    if (!s->ids.len && !s->locations.len) {
        s->ids = str_n(r.p, rd_left(&r));
        s->tagged = tagged;
        return true;
    }
    if (s->ids.len && !add_locations(w, rd_of(s->ids), s->tagged, l, s))
        return false;
    s->ids = STR_NULL;
    return add_locations(w, r, tagged, l, s);
}

/* Behind the location_id fields of one number that start at r; r.p if there is none. */
static const uint8_t *find_run(struct rd r)
{
    const uint8_t *end = r.p;

    while (r.p < r.end && *r.p == TAG_LOCATION) {
        for (r.p++; r.p < r.end && *r.p >= 0x80;)
            r.p++;
        if (r.p == r.end)
            break; /* cut: left to the ordinary reader, which says so */
        end = ++r.p;
    }
    return end;
}

static void add_value(struct pprof_sample *s, uint64_t v)
{
    if (s->values_len < PPROF_TYPES_MAX)
        s->values[s->values_len] = (int64_t)v;
    s->values_len += s->values_len <= PPROF_TYPES_MAX; /* stays one above: too many is too many */
}

static bool add_values(struct wire *w, struct rd r, struct pprof_sample *s)
{
    uint64_t v;

    while (r.p < r.end) {
        if (!wire_varint(w, &r, &v))
            return wire_malformed(w, &r);
        add_value(s, v);
    }
    return true;
}

static bool add_label(struct wire *w, struct rd r, const struct limits *l, struct pprof_sample *s)
{
    uint64_t v[5] = { 0 };

    if (s->labels.len >= l->labels_per_sample) {
        err_set(w->e, ERR_LIMIT, "pprof: a sample has more than %" PRIu64 " labels",
                l->labels_per_sample);
        return false;
    }
    if (!wire_numbers(w, r, v, 4))
        return false;
    struct pprof_label label = { pprof_string_index(v[1]), pprof_string_index(v[2]),
                                 pprof_string_index(v[4]), (int64_t)v[3] };
    vec_push(&s->labels, label);
    return true;
}

/* One field of any form. 1, 0 at the end, -1 with the error set. */
static int take_field(struct wire *w, struct rd *r, const struct limits *l, struct pprof_sample *s)
{
    struct wire_field f;
    int got = wire_field(w, r, &f);
    bool ok = true;

    if (got == 0)
        return 0;
    if (got < 0 || (f.number <= 3 && f.wire != 2 && (f.wire != 0 || f.number == 3)))
        ok = wire_malformed(w, r);
    else if (f.number == 1 && f.wire == 2)
        ok = take_ids(w, f.sub, false, l, s);
    else if (f.number == 2 && f.wire == 2)
        ok = add_values(w, f.sub, s);
    else if (f.number == 2)
        add_value(s, f.u64);
    else if (f.number == 3)
        ok = add_label(w, f.sub, l, s);
    else if (f.number == 1) /* a run would have been found: the number is odd in some way */
        ok = (!s->ids.len || add_locations(w, rd_of(s->ids), s->tagged, l, s)) &&
             add_location(w, f.u64, l, s);
    if (f.number == 1 && f.wire == 0)
        s->ids = STR_NULL;
    return ok ? 1 : -1;
}

/* add_values for a list that does not end close to the end of the body. */
static inline bool add_values_fast(struct rd r, struct pprof_sample *s)
{
    size_t n = s->values_len;
    uint64_t v;

    while (r.p < r.end && n < PPROF_TYPES_MAX) {
        if (!wire_varint_fast(&r.p, r.end, &v))
            return false;
        s->values[n++] = (int64_t)v;
    }
    s->values_len = n + (r.p < r.end); /* one more than fit: too many */
    return true;
}

/* A field with one-byte tag and length that is not close to the end of the body. False for anything
 * else, which take_field has to look at. */
static inline bool take_usual(const struct wire *w, struct rd *r, struct pprof_sample *s)
{
    if (r->end - r->p < 2 || r->p[1] >= 0x80)
        return false;
    struct rd sub = { r->p + 2, r->p + 2 + r->p[1] };
    if (sub.end > r->end || w->end - sub.end < WIRE_VARINT_MAX)
        return false;
    if (*r->p == TAG_LOCATIONS && !s->ids.len && !s->locations.len && sub.end[-1] < 0x80) {
        s->ids = str_n(sub.p, (size_t)(sub.end - sub.p));
        s->tagged = false;
    } else if (*r->p != TAG_VALUES || !add_values_fast(sub, s)) {
        return false;
    }
    r->p = sub.end;
    return true;
}

int pprof_sample_read(const struct pprof *p, size_t i, const struct limits *l,
                      struct pprof_sample *s, struct err *e)
{
    struct pprof_slice slice = p->samples.ptr[i];
    struct wire w = wire_of(p, e);
    struct rd r = { w.body + slice.from, w.body + slice.from + slice.len };

    s->ids = STR_NULL;
    s->locations.len = s->values_len = s->labels.len = 0;
    for (;;) {
        if (LIKELY(take_usual(&w, &r, s)))
            continue;
        if (r.p < r.end && *r.p == TAG_LOCATION) {
            struct rd run = { r.p, find_run(r) };
            r.p = run.end;
            if (!take_ids(&w, run, true, l, s))
                return e->code;
        }
        int got = take_field(&w, &r, l, s);
        if (got <= 0)
            return got ? e->code : 0;
    }
}

int pprof_sample_unpack(const struct pprof *p, const struct limits *l, struct pprof_sample *s,
                        struct err *e)
{
    struct wire w = wire_of(p, e);

    if (s->ids.len && !add_locations(&w, rd_of(s->ids), s->tagged, l, s))
        return e->code;
    s->ids = STR_NULL;
    return 0;
}

void pprof_sample_deinit(struct pprof_sample *s)
{
    vec_free(&s->locations);
    vec_free(&s->labels);
}
