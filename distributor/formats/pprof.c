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
#include "common/base/wr.h"

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

/* Takes a varint off *p, which does not pass `end`; at least VARINT_MAX bytes are readable. */
static inline bool varint_fast(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    const uint8_t *at = *p;
    uint64_t v = *at++;

    if (v >= 0x80) {
        v &= 0x7f;
        for (unsigned shift = 7;; shift += 7) {
            uint64_t c = *at++;
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
    if (UNLIKELY(at > end))
        return false;
    *p = at;
    *ret = v;
    return true;
}

static inline bool varint(const struct parse *s, struct rd *r, uint64_t *ret)
{
    if (UNLIKELY(s->end - r->p < VARINT_MAX))
        return rd_varint(r, ret);
    return varint_fast(&r->p, r->end, ret);
}

static int field_slow(const struct parse *s, struct rd *r, struct field *f)
{
    uint64_t tag;

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

/* 1 = a field, 0 = end of the message, -1 = malformed. Short messages and lists, which is what
 * nearly everything is, are taken here. */
static inline int field_next(const struct parse *s, struct rd *r, struct field *f)
{
    if (r->p == r->end)
        return 0;
    if (LIKELY(r->end - r->p >= 2 && (r->p[0] & 0x87) == 2 && r->p[0] >= 8 && r->p[1] < 0x80 &&
               r->end - r->p >= 2 + r->p[1])) {
        f->number = r->p[0] >> 3;
        f->wire = 2;
        f->sub = (struct rd){ r->p + 2, r->p + 2 + r->p[1] };
        r->p = f->sub.end;
        return 1;
    }
    return field_slow(s, r, f);
}

/*
 * Most messages of the schema have nothing but varints: they are read into a table by field number.
 * Fields 1 .. known go to v[number], others are skipped and counted; the last of equal ones wins.
 * The tight loop takes one-byte tags of known varint fields, everything else goes the long way.
 */
static bool read_numbers(struct parse *s, struct rd r, uint64_t *v, uint32_t known)
{
    struct field f;

    while (r.p != r.end) {
        uint32_t tag = *r.p;
        if (LIKELY((tag & 0x87) == 0 && tag >> 3 <= known && tag && s->end - r.p > VARINT_MAX)) {
            r.p++;
            if (!varint_fast(&r.p, r.end, &v[tag >> 3]))
                return malformed(s, &r);
            continue;
        }
        if (field_next(s, &r, &f) < 0)
            return malformed(s, &r);
        if (f.number > known)
            s->p->unknown_fields++;
        else if (f.wire != 0)
            return malformed(s, &r);
        else
            v[f.number] = f.u64;
    }
    return true;
}

static inline uint32_t string_index(uint64_t v)
{
    return v < UINT32_MAX ? (uint32_t)v : PPROF_NONE;
}

/* The seven-bit groups of up to eight bytes, pushed together: 8 lanes to 4 to 2 to 1. */
static inline uint64_t squeeze(uint64_t x)
{
    x = (x & 0x007f007f007f007fu) | (x & 0x7f007f007f007f00u) >> 1;
    x = (x & 0x00003fff00003fffu) | (x & 0x3fff00003fff0000u) >> 2;
    return (x & 0x000000000fffffffu) | (x & 0x0fffffff00000000u) >> 4;
}

/*
 * The varints of a packed field, written to `to`, which has room for one per byte. Returns how many,
 * or SIZE_MAX. Lengths of one and two bytes alternate at random in location ids, so a branch per
 * byte would be mispredicted all the time: eight bytes are loaded, and the bytes that end a varint
 * are found by their top bits.
 */
static size_t unpack(const struct parse *s, struct rd r, uint64_t *to)
{
    const uint64_t tops = 0x8080808080808080u;
    uint64_t *at = to;

    while (r.p < r.end) {
        size_t left = (size_t)(r.end - r.p);
        uint64_t word, stops = 0;
        if (LIKELY(s->end - r.p >= 8)) {
            word = get_u64le(r.p);
            stops = ~word & (left < 8 ? tops & ((UINT64_C(1) << 8 * left) - 1) : tops);
        }
        if (UNLIKELY(!stops)) { /* nine or ten bytes, or close to the end of the body */
            if (!varint(s, &r, at++))
                return SIZE_MAX;
            continue;
        }
        if (stops == tops) {
            for (size_t i = 0; i < 8; i++)
                at[i] = r.p[i];
            at += 8;
            r.p += 8;
            continue;
        }
        size_t bits = 0;
        do {
            unsigned n = (unsigned)__builtin_ctzll(stops); /* 7, 15, ... 63 */
            *at++ = squeeze(word & (stops ^ (stops - 1)));
            bits += n + 1;
            word = word >> n >> 1;
            stops = stops >> n >> 1;
        } while (stops);
        r.p += bits / 8;
    }
    return (size_t)(at - to);
}

/* One repeated number field of a sample, packed or not, appended to a column. Room is made for a
 * number per byte: more than is used, but the column goes on to be filled. */
static bool append_numbers(struct parse *s, const struct field *f, struct pprof_numbers *v)
{
    size_t n = f->wire == 0 ? 1 : rd_left(&f->sub);
    bool ok = true;

    ROOM(s, v, n, ok);
    if (!ok)
        return false;
    if (f->wire == 0)
        v->ptr[v->len] = f->u64;
    else
        n = unpack(s, f->sub, v->ptr + v->len);
    if (n == SIZE_MAX)
        return malformed(s, &f->sub);
    v->len += n;
    return true;
}

static bool parse_label(struct parse *s, struct rd r)
{
    uint64_t v[5] = { 0 };
    bool ok = true;

    if (!read_numbers(s, r, v, 4))
        return false;
    ROOM(s, &s->p->labels, 1, ok);
    if (ok)
        s->p->labels.ptr[s->p->labels.len++] =
            (struct pprof_label){ string_index(v[1]), string_index(v[2]), string_index(v[4]),
                                  (int64_t)v[3] };
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
            ok = append_numbers(s, &f, &p->sample_locations);
            if (ok && p->sample_locations.len - locations > s->l->frames)
                return refuse(err_set(s->e, ERR_LIMIT,
                                      "pprof: sample %zu has a stack of more than %" PRIu64
                                      " frames",
                                      p->samples.len, s->l->frames));
        } else if (f.number == 2) {
            ok = append_numbers(s, &f, &p->values);
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
    uint64_t v[4] = { 0 };
    bool ok = true;

    if (!read_numbers(s, r, v, 3))
        return false;
    ROOM(s, &s->p->lines, 1, ok);
    if (ok)
        s->p->lines.ptr[s->p->lines.len++] =
            (struct pprof_line){ v[1], v[2] < UINT32_MAX ? (uint32_t)v[2] : 0 };
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
    uint64_t v[6] = { 0 };
    bool ok = true;

    if (!read_numbers(s, r, v, 5))
        return false;
    ROOM(s, &s->p->functions, 1, ok);
    if (ok)
        s->p->functions.ptr[s->p->functions.len++] =
            (struct pprof_function){ v[1], string_index(v[2]), string_index(v[3]),
                                     string_index(v[4]) };
    return ok;
}

static bool parse_mapping(struct parse *s, struct rd r)
{
    uint64_t v[11] = { 0 };
    bool ok = true;

    if (!read_numbers(s, r, v, 10))
        return false;
    ROOM(s, &s->p->mappings, 1, ok);
    if (ok)
        s->p->mappings.ptr[s->p->mappings.len++] = (struct pprof_mapping){
            v[1], v[2], v[3], v[4], string_index(v[5]), string_index(v[6])
        };
    return ok;
}

/* Fields that are given twice are merged, as protobuf wants it for messages. */
static bool parse_type(struct parse *s, struct rd r, struct pprof_type *t)
{
    uint64_t v[3] = { 0, t->type, t->unit };

    if (!read_numbers(s, r, v, 2))
        return false;
    *t = (struct pprof_type){ string_index(v[1]), string_index(v[2]) };
    return true;
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
