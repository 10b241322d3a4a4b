/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof: bytes of a pprof message to flat columns, in one pass.
 *
 * Why not protobuf-c: it makes an object per message (measured 3 to 26 times slower) and has no
 * recursion limit. The schema is flat, so three levels of loops read all of it:
 *
 *   profile ── sample ── label          Each loop takes fields off a cursor bounded by its own
 *           ├─ location ── line         message and appends to a column. A column grows by doubling
 *           ├─ function, mapping        within one budget (pprof.bytes_max), charged by element, so
 *           └─ string                   that a million empty strings cost what they really cost.
 *
 * Fields may come in any order, the string table last: ids and string indexes are stored as they
 * are and looked up later, through pprof_find and pprof_str. Repeated numbers come packed and
 * unpacked, mixed, within one sample.
 *
 * Refused: truncation, varints over 64 bits, groups, field number 0, a known field with another
 * wire type, an id twice or an id 0 (a reference would be ambiguous), samples without sample type,
 * time_nanos twice (two profiles glued together), more than 1 % bad string indexes.
 * Repaired: string 0 that is not "" reads as ""; function ids that are all 0 (.NET) get the id of
 * the location at the same place. Everything else that is odd concerns single samples and is
 * decided in pprof_stacks.c. Ids and
 * references: pprof_ids.c.
 */
#include "distributor/formats/pprof.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/size.h"

#define VARINT_MAX 10

struct parse {
    struct pprof *p;
    const struct limits *l;
    const uint8_t *body;
    const uint8_t *end; /* of the body: inner messages may be read past, but not used past */
    const char *what;   /* the message being read, for the error text */
    struct err *e;
};

struct field {
    uint32_t number;
    uint32_t wire;
    uint64_t u64;  /* wire 0 */
    struct rd sub; /* wire 2 */
};

static bool malformed(const struct parse *s, const struct rd *r)
{
    err_set(s->e, ERR_INPUT, "pprof: malformed %s at byte %zu", s->what, (size_t)(r->p - s->body));
    return false;
}

/* For `return refuse(err_set(...))` in functions that say no by false. */
static bool refuse(int code)
{
    return code == 0;
}

static bool grow(struct parse *s, void **ptr, size_t *cap, size_t need, size_t size)
{
    size_t n = MAX(*cap * 2, MAX(need, 64)), more;

    if (n > UINT32_MAX || !size_mul(n - *cap, size, &more) ||
        more > s->p->bytes_max - s->p->bytes) {
        err_set(s->e, ERR_LIMIT,
                "pprof: decoding takes more than %zu bytes of memory (distributor.decode_bytes)",
                s->p->bytes_max);
        return false;
    }
    s->p->bytes += more;
    *ptr = xreallocarray(*ptr, n, size);
    *cap = n;
    return true;
}

/* Sets ok to false, and the error, if n more elements do not fit the budget. */
#define ROOM(s, v, n, ok)                                                           \
    do {                                                                            \
        if (UNLIKELY((v)->len + (n) > (v)->cap)) {                                  \
            void *room_p_ = (v)->ptr;                                               \
            ok = grow((s), &room_p_, &(v)->cap, (v)->len + (n), sizeof(*(v)->ptr)); \
            (v)->ptr = room_p_;                                                     \
        }                                                                           \
    } while (0)

static inline bool varint(const struct parse *s, struct rd *r, uint64_t *ret)
{
    const uint8_t *p = r->p;

    if (UNLIKELY(s->end - p < VARINT_MAX))
        return rd_varint(r, ret);
    uint64_t v = *p++;
    if (v >= 0x80) {
        v &= 0x7f;
        for (unsigned shift = 7;; shift += 7) {
            uint64_t c = *p++;
            v |= (c & 0x7f) << shift;
            if (c < 0x80) {
                if (shift == 63 && c > 1)
                    return false;
                break;
            }
            if (shift == 63)
                return false;
        }
    }
    if (UNLIKELY(p > r->end))
        return false;
    r->p = p;
    *ret = v;
    return true;
}

/* 1 = a field, 0 = end of the message, -1 = malformed. */
static inline int field_next(const struct parse *s, struct rd *r, struct field *f)
{
    uint64_t tag;

    if (r->p == r->end)
        return 0;
    if (!varint(s, r, &tag) || tag < 8 || tag >> 3 > (1u << 29) - 1)
        return -1;
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7);
    if (f->wire == 0)
        return varint(s, r, &f->u64) ? 1 : -1;
    if (f->wire == 2) {
        if (!varint(s, r, &f->u64) || f->u64 > rd_left(r))
            return -1;
        f->sub = (struct rd){ r->p, r->p + f->u64 };
        r->p = f->sub.end;
        return 1;
    }
    if (f->wire == 1)
        return rd_skip(r, 8) ? 1 : -1;
    if (f->wire == 5)
        return rd_skip(r, 4) ? 1 : -1;
    return -1;
}

static inline uint32_t string_index(uint64_t v)
{
    return v < UINT32_MAX ? (uint32_t)v : PPROF_NONE;
}

/* How many varints stand in the bytes: those without a continuation bit. The loop vectorises. */
static size_t varints(struct rd r)
{
    size_t n = 0;

    for (const uint8_t *p = r.p; p < r.end; p++)
        n += *p < 0x80;
    return n;
}

/* One repeated number field of a sample, packed or not, appended to a column of 64-bit values. */
#define NUMBERS(s, f, v, type, ok)                                   \
    do {                                                             \
        size_t numbers_n_ = (f)->wire == 0 ? 1 : varints((f)->sub);  \
        ROOM(s, v, numbers_n_, ok);                                  \
        if ((f)->wire == 0 && ok)                                    \
            (v)->ptr[(v)->len++] = (type)(f)->u64;                   \
        while (ok && (f)->wire == 2 && (f)->sub.p != (f)->sub.end) { \
            uint64_t numbers_v_;                                     \
            if (UNLIKELY(!varint((s), &(f)->sub, &numbers_v_))) {    \
                malformed((s), &(f)->sub);                           \
                ok = false;                                          \
                break;                                               \
            }                                                        \
            (v)->ptr[(v)->len++] = (type)numbers_v_;                 \
        }                                                            \
    } while (0)

static bool parse_label(struct parse *s, struct rd r)
{
    struct pprof_label label = { 0 };
    struct field f;
    bool ok = true;
    int got;

    while ((got = field_next(s, &r, &f)) > 0) {
        if (f.number > 4) {
            s->p->unknown_fields++;
            continue;
        }
        if (f.wire != 0)
            return malformed(s, &r);
        if (f.number == 1)
            label.key = string_index(f.u64);
        else if (f.number == 2)
            label.str = string_index(f.u64);
        else if (f.number == 3)
            label.num = (int64_t)f.u64;
        else
            label.unit = string_index(f.u64);
    }
    if (got < 0)
        return malformed(s, &r);
    ROOM(s, &s->p->labels, 1, ok);
    if (ok)
        s->p->labels.ptr[s->p->labels.len++] = label;
    return ok;
}

static bool parse_sample(struct parse *s, struct rd r)
{
    struct pprof *p = s->p;
    size_t locations = p->sample_locations.len, labels = p->labels.len;
    struct field f;
    bool ok = true;
    int got;

    while (ok && (got = field_next(s, &r, &f)) > 0) {
        if (f.number > 3) {
            p->unknown_fields++;
        } else if (f.wire != 2 && (f.wire != 0 || f.number == 3)) {
            return malformed(s, &r);
        } else if (f.number == 1) {
            NUMBERS(s, &f, &p->sample_locations, uint64_t, ok);
            if (ok && p->sample_locations.len - locations > s->l->frames)
                return refuse(err_set(s->e, ERR_LIMIT,
                                      "pprof: sample %zu has a stack of more than %" PRIu64
                                      " frames",
                                      p->samples.len, s->l->frames));
        } else if (f.number == 2) {
            NUMBERS(s, &f, &p->values, int64_t, ok);
        } else {
            if (p->labels.len - labels >= s->l->labels_per_sample)
                return refuse(err_set(s->e, ERR_LIMIT,
                                      "pprof: sample %zu has more than %" PRIu64 " labels",
                                      p->samples.len, s->l->labels_per_sample));
            ok = parse_label(s, f.sub);
        }
    }
    if (!ok)
        return false;
    if (got < 0)
        return malformed(s, &r);
    if (p->samples.len >= s->l->samples)
        return refuse(
            err_set(s->e, ERR_LIMIT, "pprof: more than %" PRIu64 " samples", s->l->samples));
    ROOM(s, &p->samples, 1, ok);
    if (ok)
        p->samples.ptr[p->samples.len++] =
            (struct pprof_sample){ (uint32_t)p->sample_locations.len, (uint32_t)p->values.len,
                                   (uint32_t)p->labels.len };
    return ok;
}

static bool parse_line(struct parse *s, struct rd r)
{
    struct pprof_line line = { 0 };
    struct field f;
    bool ok = true;
    int got;

    while ((got = field_next(s, &r, &f)) > 0) {
        if (f.number > 3) {
            s->p->unknown_fields++;
            continue;
        }
        if (f.wire != 0)
            return malformed(s, &r);
        if (f.number == 1)
            line.function_id = f.u64;
        else if (f.number == 2)
            line.line = f.u64 < UINT32_MAX ? (uint32_t)f.u64 : 0;
    }
    if (got < 0)
        return malformed(s, &r);
    ROOM(s, &s->p->lines, 1, ok);
    if (ok)
        s->p->lines.ptr[s->p->lines.len++] = line;
    return ok;
}

static bool parse_location(struct parse *s, struct rd r)
{
    struct pprof *p = s->p;
    struct pprof_location at = { 0 };
    size_t lines = p->lines.len;
    struct field f;
    bool ok = true;
    int got;

    while (ok && (got = field_next(s, &r, &f)) > 0) {
        if (f.number > 5) {
            p->unknown_fields++;
        } else if (f.wire != (f.number == 4 ? 2 : 0)) {
            return malformed(s, &r);
        } else if (f.number == 1) {
            at.id = f.u64;
        } else if (f.number == 2) {
            at.mapping_id = f.u64;
        } else if (f.number == 3) {
            at.address = f.u64;
        } else if (f.number == 4) {
            if (p->lines.len - lines >= s->l->lines_per_location)
                return refuse(err_set(s->e, ERR_LIMIT,
                                      "pprof: location %" PRIu64 " has more than %" PRIu64 " lines",
                                      at.id, s->l->lines_per_location));
            ok = parse_line(s, f.sub);
        }
    }
    if (!ok)
        return false;
    if (got < 0)
        return malformed(s, &r);
    at.lines_end = (uint32_t)p->lines.len;
    ROOM(s, &p->locations, 1, ok);
    if (ok)
        p->locations.ptr[p->locations.len++] = at;
    return ok;
}

static bool parse_function(struct parse *s, struct rd r)
{
    struct pprof_function fn = { 0 };
    struct field f;
    bool ok = true;
    int got;

    while ((got = field_next(s, &r, &f)) > 0) {
        if (f.number > 5) {
            s->p->unknown_fields++;
            continue;
        }
        if (f.wire != 0)
            return malformed(s, &r);
        if (f.number == 1)
            fn.id = f.u64;
        else if (f.number == 2)
            fn.name = string_index(f.u64);
        else if (f.number == 3)
            fn.system_name = string_index(f.u64);
        else if (f.number == 4)
            fn.file = string_index(f.u64);
    }
    if (got < 0)
        return malformed(s, &r);
    ROOM(s, &s->p->functions, 1, ok);
    if (ok)
        s->p->functions.ptr[s->p->functions.len++] = fn;
    return ok;
}

static bool parse_mapping(struct parse *s, struct rd r)
{
    struct pprof_mapping m = { 0 };
    struct field f;
    bool ok = true;
    int got;

    while ((got = field_next(s, &r, &f)) > 0) {
        if (f.number > 10) {
            s->p->unknown_fields++;
            continue;
        }
        if (f.wire != 0)
            return malformed(s, &r);
        if (f.number == 1)
            m.id = f.u64;
        else if (f.number == 2)
            m.start = f.u64;
        else if (f.number == 3)
            m.limit = f.u64;
        else if (f.number == 4)
            m.offset = f.u64;
        else if (f.number == 5)
            m.file = string_index(f.u64);
        else if (f.number == 6)
            m.build_id = string_index(f.u64);
    }
    if (got < 0)
        return malformed(s, &r);
    ROOM(s, &s->p->mappings, 1, ok);
    if (ok)
        s->p->mappings.ptr[s->p->mappings.len++] = m;
    return ok;
}

/* Fields that are given twice are merged, as protobuf wants it for messages. */
static bool parse_type(struct parse *s, struct rd r, struct pprof_type *t)
{
    struct field f;
    int got;

    while ((got = field_next(s, &r, &f)) > 0) {
        if (f.number > 2) {
            s->p->unknown_fields++;
            continue;
        }
        if (f.wire != 0)
            return malformed(s, &r);
        *(f.number == 1 ? &t->type : &t->unit) = string_index(f.u64);
    }
    return got == 0 || malformed(s, &r);
}

static bool parse_string(struct parse *s, struct rd r)
{
    bool ok = true;

    if (rd_left(&r) > s->l->symbol_bytes)
        return refuse(err_set(s->e, ERR_LIMIT, "pprof: string %zu has %zu bytes, at most %" PRIu64,
                              s->p->strings.len, rd_left(&r), s->l->symbol_bytes));
    ROOM(s, &s->p->strings, 1, ok);
    if (ok)
        s->p->strings.ptr[s->p->strings.len++] = str_n(r.p, rd_left(&r));
    return ok;
}

static bool parse_sample_type(struct parse *s, struct rd r)
{
    struct pprof_type t = { 0 };

    if (s->p->types_len == PPROF_TYPES_MAX)
        return refuse(
            err_set(s->e, ERR_LIMIT, "pprof: more than %d sample types", PPROF_TYPES_MAX));
    if (!parse_type(s, r, &t))
        return false;
    s->p->types[s->p->types_len++] = t;
    return true;
}

/* Fields 7 to 10 and 12 to 15: numbers (13, comments, may be packed). Unknown ones are skipped. */
static bool parse_number(struct parse *s, const struct rd *r, const struct field *f)
{
    struct pprof *p = s->p;

    if (f->number > 15) {
        p->unknown_fields++;
        return true;
    }
    if (f->wire != 0 && !(f->number == 13 && f->wire == 2))
        return malformed(s, r);
    if (f->number == 9) {
        if (p->has_time)
            return refuse(err_set(s->e, ERR_INPUT,
                                  "pprof: time_nanos appears twice: two profiles in one body"));
        p->has_time = true;
        p->time_ns = (int64_t)f->u64;
    } else if (f->number == 10) {
        p->duration_ns = (int64_t)f->u64;
    } else if (f->number == 12) {
        p->period = (int64_t)f->u64;
    }
    return true;
}

static bool parse_profile(struct parse *s, struct rd r)
{
    struct field f;
    int got;
    bool ok = true;

    while (ok && (got = field_next(s, &r, &f)) > 0) {
        bool message = (f.number >= 1 && f.number <= 6) || f.number == 11;
        if (message && f.wire != 2)
            return malformed(s, &r);
        switch (f.number) {
        case 1:
            s->what = "sample type";
            ok = parse_sample_type(s, f.sub);
            break;
        case 2:
            s->what = "sample";
            ok = parse_sample(s, f.sub);
            break;
        case 3:
            s->what = "mapping";
            ok = parse_mapping(s, f.sub);
            break;
        case 4:
            s->what = "location";
            ok = parse_location(s, f.sub);
            break;
        case 5:
            s->what = "function";
            ok = parse_function(s, f.sub);
            break;
        case 6:
            ok = parse_string(s, f.sub);
            break;
        case 11:
            s->what = "period type";
            s->p->has_period_type = true;
            ok = parse_type(s, f.sub, &s->p->period_type);
            break;
        default:
            ok = parse_number(s, &r, &f);
        }
        s->what = ok ? "profile" : s->what;
    }
    return ok && (got == 0 || malformed(s, &r));
}

int pprof_parse(struct pprof *p, struct str body, const struct limits *l, struct err *e)
{
    struct rd r = rd_of(body);
    struct parse s = { .p = p, .l = l, .body = r.p, .end = r.end, .what = "profile", .e = e };

    *p = (struct pprof){ .bytes_max = (size_t)l->decode_bytes };
    if (body.len == 0)
        return err_set(e, ERR_INPUT, "pprof: the body is empty");
    if (body.len > UINT32_MAX)
        return err_set(e, ERR_LIMIT, "pprof: a body of %zu bytes is over 4 GiB", body.len);
    if (gzip_sniff(body))
        return err_set(e, ERR_INPUT, "pprof: gzip inside gzip");
    if (!parse_profile(&s, r))
        return e->code;
    if (p->types_len == 0)
        return err_set(e, ERR_INPUT, "pprof: no sample type: this is no pprof profile");
    return pprof_resolve(p, e);
}
