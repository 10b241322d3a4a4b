/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_sample: one sample message.
 *
 * The usual ones are taken by read_fast: fields with one-byte tags and lengths. What it does not
 * like is read again from its start, by functions that know all forms and say what is wrong; so the
 * fast ones need no errors. Location ids are not decoded here if they stand in one piece, be it a
 * packed field or a run of single fields: the walk knows a stack it has seen by these bytes.
 *
 * Format: proto/FORMATS.md, "pprof message".
 */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/base/mem.h"
#include "distributor/formats/pprof/pprof.h"

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
    if (r.end[-1] >= 0x80) /* cut: an error even if the ids are not decoded */
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

/* The end of the location_id fields of one number that start at r; r.p: no such field. */
static const uint8_t *find_run(struct rd r)
{
    const uint8_t *end = r.p;

    while (r.p < r.end && *r.p == PPROF_TAG_LOCATION) {
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

static inline struct pprof_label label_of(const uint64_t *v)
{
    return (struct pprof_label){ pprof_string_index(v[1]), pprof_string_index(v[2]),
                                 pprof_string_index(v[4]), (int64_t)v[3] };
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
    vec_push(&s->labels, label_of(v));
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

/* Of the 32 bytes at p: which are followed by more of the same number, and which could be the tag
 * of an id. */
static inline void look_at(const uint8_t *p, uint32_t *ret_more, uint32_t *ret_tags)
{
#ifdef __SSE2__
    __m128i a = _mm_loadu_si128((const void *)p), b = _mm_loadu_si128((const void *)(p + 16));
    __m128i tag = _mm_set1_epi8(PPROF_TAG_LOCATION);

    *ret_more = (uint32_t)_mm_movemask_epi8(a) | (uint32_t)_mm_movemask_epi8(b) << 16;
    *ret_tags = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, tag)) |
                (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(b, tag)) << 16;
#else
    *ret_more = *ret_tags = 0;
    for (unsigned i = 0; i < 32; i++) {
        *ret_more |= (uint32_t)(p[i] >> 7) << i;
        *ret_tags |= (uint32_t)(p[i] == PPROF_TAG_LOCATION) << i;
    }
#endif
}

/* Where tags of a run of ids begin that starts there: behind the end of every other number. */
static inline uint32_t tags_of_run(uint32_t more)
{
    uint32_t odd = ~more; /* of the numbers that end here or before, an odd count */

    odd ^= odd << 1;
    odd ^= odd << 2;
    odd ^= odd << 4;
    odd ^= odd << 8;
    odd ^= odd << 16;
    return (~more << 1 | 1) & ~(odd << 1);
}

/* As find_run, by 32 bytes, which are readable: where an id ends cannot be guessed. */
static inline const uint8_t *find_run_fast(struct rd r, const uint8_t *body_end)
{
    while (body_end - r.p >= 32) {
        size_t left = (size_t)(r.end - r.p);
        uint32_t more, tags;
        look_at(r.p, &more, &tags);
        uint32_t begins = tags_of_run(more), stop = begins & ~tags;
        uint32_t last = left < 32 ? UINT32_C(1) << left : 0;
        /* The usual end is that of the message, which is known without waiting for the rest. */
        if (last & begins && !(stop & (last - 1)))
            return r.end;
        if (stop & (last - 1))
            return r.p + __builtin_ctz(stop);
        if (last)
            break; /* cut */
        if (UNLIKELY(begins == 1))
            break;
        r.p += 31 - __builtin_clz(begins);
    }
    return find_run(r);
}

/* A packed list of values. False: too many, or malformed. */
static inline bool values_fast(const uint8_t *p, const uint8_t *end, struct pprof_sample *s)
{
    size_t n = s->values_len;
    uint64_t v;

    while (p < end && n < PPROF_TYPES_MAX) {
        p = wire_number_any(p, &v);
        if (UNLIKELY(!p))
            return false;
        s->values[n++] = (int64_t)v;
    }
    s->values_len = n;
    return p == end;
}

static inline bool label_fast(const uint8_t *p, const uint8_t *end, const struct limits *l,
                              struct pprof_sample *s)
{
    uint64_t v[5] = { 0 };
    const uint8_t *at = p;

    for (uint8_t i = 1; i <= 4; i++) /* as agents write them: by number */
        if (at && at < end && *at == i << 3)
            at = i == 3 ? wire_number_any(at + 1, &v[i]) : wire_number(at + 1, &v[i]);
    if (s->labels.len >= l->labels_per_sample || (at != end && !wire_numbers_fast(p, end, v, 4)))
        return false;
    vec_push(&s->labels, label_of(v));
    return true;
}

/* The ids whose tag is at p: behind them, or NULL if they are not of an ordinary form. */
static inline const uint8_t *ids_fast(const uint8_t *p, const uint8_t *end, const uint8_t *body_end,
                                      struct pprof_sample *s)
{
    size_t len = p[1];

    if (*p == PPROF_TAG_LOCATION) {
        const uint8_t *run = find_run_fast((struct rd){ p, end }, body_end);
        s->ids = (struct str){ (const char *)p, (size_t)(run - p) };
        s->tagged = true;
        return run == p ? NULL : run;
    }
    p += 2;
    if (len >= 0x80) {
        if (*p >= 0x80)
            return NULL;
        len = (len & 0x7f) | (size_t)*p++ << 7;
    }
    if (p > end || len > (size_t)(end - p) || !len || p[len - 1] >= 0x80)
        return NULL;
    s->ids = (struct str){ (const char *)p, len };
    s->tagged = false;
    return p + len;
}

/* A sample as nearly all are: its ids in one piece, known fields with lengths of one byte, and not
 * close to the end of the body. False: it has to be looked at again. */
static inline bool read_fast(const uint8_t *p, const uint8_t *end, const uint8_t *body_end,
                             const struct limits *l, struct pprof_sample *s)
{
    uint64_t v;

    if (body_end - end < WIRE_VARINT_MAX)
        return false;
    while (p < end) {
        uint8_t tag = *p, len = p[1];
        if (tag == PPROF_TAG_LOCATION || tag == PPROF_TAG_LOCATIONS) {
            if (s->ids.len || !(p = ids_fast(p, end, body_end, s)))
                return false;
            continue;
        }
        if (tag == PPROF_TAG_VALUE) {
            p = wire_number_any(p + 1, &v);
            if (!p || s->values_len == PPROF_TYPES_MAX)
                return false;
            s->values[s->values_len++] = (int64_t)v;
            continue;
        }
        p += 2;
        if (len >= 0x80 || len > end - p)
            return false;
        if (tag == PPROF_TAG_VALUES ? !values_fast(p, p + len, s)
                                    : tag != PPROF_TAG_LABEL || !label_fast(p, p + len, l, s))
            return false;
        p += len;
    }
    return p == end;
}

static void sample_empty(struct pprof_sample *s)
{
    s->ids = STR_NULL;
    s->locations.len = s->values_len = s->labels.len = 0;
}

static int read_any(struct wire *w, struct rd r, const struct limits *l, struct pprof_sample *s)
{
    for (;;) {
        if (r.p < r.end && *r.p == PPROF_TAG_LOCATION) {
            struct rd run = { r.p, find_run(r) };
            r.p = run.end;
            if (!take_ids(w, run, true, l, s))
                return w->e->code;
        }
        int got = take_field(w, &r, l, s);
        if (got <= 0)
            return got ? w->e->code : 0;
    }
}

int pprof_sample_read(const struct pprof *p, size_t i, const struct limits *l,
                      struct pprof_sample *s, struct err *e)
{
    const uint8_t *body = (const uint8_t *)p->body.ptr, *end = body + p->body.len;
    struct pprof_slice slice = p->samples.ptr[i];
    struct rd r = { body + slice.from, body + slice.from + slice.len };

    sample_empty(s);
    if (LIKELY(read_fast(r.p, r.end, end, l, s)))
        return 0;
    struct wire w = wire_of(p, e);
    sample_empty(s);
    return read_any(&w, r, l, s);
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
