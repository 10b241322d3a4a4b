/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof: bytes of a pprof message to flat columns, in one pass.
 *
 * Why not protobuf-c: it makes an object per message (measured 3 to 26 times slower) and has no
 * recursion limit. The schema is flat, so three levels of loops read all of it:
 *
 *   profile ── location ── line         Each loop takes fields off a cursor bounded by its own
 *           ├─ function, mapping        message and appends to a column. A column grows by doubling
 *           ├─ string                   within one budget (pprof.bytes_max), charged by element, so
 *           └─ sample ── label          that a million empty strings cost what they really cost.
 *
 * Samples, the bulk of a profile, are only noted here and read once, when they are walked
 * (pprof_sample.c). Fields may come in any order, the string table last: ids and string indexes are
 * stored unchanged and looked up later, through pprof_find and pprof_str. Repeated numbers come
 * packed and unpacked, mixed, within one sample.
 *
 * Refused: truncation, varints over 64 bits, groups, field number 0, a known field with another
 * wire type, an id twice or an id 0 (a reference would be ambiguous), samples without sample type,
 * time_nanos twice (two profiles glued together), more than 1 % bad string indexes.
 * Repaired: string 0 that is not "" reads as ""; function ids that are all 0 (.NET) get the id of
 * the location at the same place. Everything else that is odd concerns single samples and is
 * decided in pprof_walk.c. Ids and references: pprof_ids.c.
 *
 * Format: proto/profile.proto of google/pprof at b9395ee17fa0 (proto/FORMATS.md, "pprof message",
 * "pprof repairs").
 */
#include "distributor/formats/pprof/pprof.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

struct parse {
    struct wire w;
    struct pprof *p;
    const struct limits *l;
};

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
        err_set(s->w.e, ERR_LIMIT,
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

static bool parse_line(struct parse *s, struct rd r)
{
    uint64_t v[4] = { 0 };
    bool ok = true;

    if (!wire_numbers(&s->w, r, v, 3))
        return false;
    ROOM(s, &s->p->lines, 1, ok);
    if (ok)
        s->p->lines.ptr[s->p->lines.len++] = pprof_line_of(v[1], v[2]);
    return ok;
}

static bool parse_location(struct parse *s, struct rd r)
{
    struct pprof *p = s->p;
    struct pprof_location at = { 0 };
    size_t lines = p->lines.len;
    struct wire_field f;
    bool ok = true;
    int got = 0;

    while (ok && (got = wire_field(&s->w, &r, &f)) > 0) {
        if (f.number > 5) {
            s->w.unknown_fields++;
        } else if (f.wire != (f.number == 4 ? 2 : 0)) {
            return wire_malformed(&s->w, &r);
        } else if (f.number == 1) {
            at.id = f.u64;
        } else if (f.number == 2) {
            at.mapping_id = f.u64;
        } else if (f.number == 3) {
            at.address = f.u64;
        } else if (f.number == 4) {
            if (p->lines.len - lines >= s->l->lines_per_location)
                return refuse(err_set(s->w.e, ERR_LIMIT,
                                      "pprof: location %" PRIu64 " has more than %" PRIu64 " lines",
                                      at.id, s->l->lines_per_location));
            ok = parse_line(s, f.sub);
        }
    }
    if (!ok)
        return false;
    if (got < 0)
        return wire_malformed(&s->w, &r);
    at.lines_end = (uint32_t)p->lines.len;
    ROOM(s, &p->locations, 1, ok);
    if (ok)
        p->locations.ptr[p->locations.len++] = at;
    return ok;
}

static inline struct pprof_function function_of(const uint64_t *v)
{
    return (struct pprof_function){ v[1], pprof_string_index(v[2]), pprof_string_index(v[3]),
                                    pprof_string_index(v[4]),
                                    v[5] <= INT32_MAX ? (uint32_t)v[5] : 0 };
}

static bool parse_function(struct parse *s, struct rd r)
{
    uint64_t v[6] = { 0 };
    bool ok = true;

    if (!wire_numbers(&s->w, r, v, 5))
        return false;
    ROOM(s, &s->p->functions, 1, ok);
    if (ok)
        s->p->functions.ptr[s->p->functions.len++] = function_of(v);
    return ok;
}

static bool parse_mapping(struct parse *s, struct rd r)
{
    uint64_t v[11] = { 0 };
    bool ok = true;

    if (!wire_numbers(&s->w, r, v, 10))
        return false;
    ROOM(s, &s->p->mappings, 1, ok);
    if (ok)
        s->p->mappings.ptr[s->p->mappings.len++] = (struct pprof_mapping){
            v[1], v[2], v[3], v[4], pprof_string_index(v[5]), pprof_string_index(v[6])
        };
    return ok;
}

/* Fields that are given twice are merged, as protobuf wants it for messages. */
static bool parse_type(struct parse *s, struct rd r, struct pprof_type *t)
{
    uint64_t v[3] = { 0, t->type, t->unit };

    if (!wire_numbers(&s->w, r, v, 2))
        return false;
    *t = (struct pprof_type){ pprof_string_index(v[1]), pprof_string_index(v[2]) };
    return true;
}

static bool parse_string(struct parse *s, struct rd r)
{
    bool ok = true;

    if (rd_left(&r) > s->l->symbol_bytes)
        return refuse(err_set(s->w.e, ERR_LIMIT,
                              "pprof: string %zu has %zu bytes, at most %" PRIu64,
                              s->p->strings.len, rd_left(&r), s->l->symbol_bytes));
    ROOM(s, &s->p->strings, 1, ok);
    if (ok)
        s->p->strings.ptr[s->p->strings.len++] = str_n(r.p, rd_left(&r));
    return ok;
}

/* Read later, once locations and functions are there: pprof_sample.c. */
static bool keep_sample(struct parse *s, struct rd r)
{
    bool ok = true;

    if (s->p->samples.len >= s->l->samples)
        return refuse(
            err_set(s->w.e, ERR_LIMIT, "pprof: more than %" PRIu64 " samples", s->l->samples));
    ROOM(s, &s->p->samples, 1, ok);
    if (ok)
        s->p->samples.ptr[s->p->samples.len++] =
            (struct pprof_slice){ (uint32_t)(r.p - s->w.body), (uint32_t)rd_left(&r) };
    return ok;
}

static bool parse_sample_type(struct parse *s, struct rd r)
{
    struct pprof_type t = { 0 };

    if (s->p->types_len == PPROF_TYPES_MAX)
        return refuse(
            err_set(s->w.e, ERR_LIMIT, "pprof: more than %d sample types", PPROF_TYPES_MAX));
    if (!parse_type(s, r, &t))
        return false;
    s->p->types[s->p->types_len++] = t;
    return true;
}

/* Fields 7 to 10 and 12 to 15: numbers (13, comments, may be packed). Unknown ones are skipped. */
static bool parse_number(struct parse *s, const struct rd *r, const struct wire_field *f)
{
    struct pprof *p = s->p;

    if (f->number > 15) {
        s->w.unknown_fields++;
        return true;
    }
    if (f->wire != 0 && !(f->number == 13 && f->wire == 2))
        return wire_malformed(&s->w, r);
    if (f->number == 9) {
        if (p->has_time)
            return refuse(err_set(s->w.e, ERR_INPUT,
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
    struct wire_field f;
    int got;
    bool ok = true;

    for (size_t turn = 0; ok; turn++) {
        if ((turn & 63) == 0)
            pool_slice();
        r.p = pprof_runs(s->p, s->l, r.p, r.end);
        if ((got = wire_field(&s->w, &r, &f)) <= 0)
            break;
        bool message = (f.number >= 1 && f.number <= 6) || f.number == 11;
        if (message && f.wire != 2)
            return wire_malformed(&s->w, &r);
        switch (f.number) {
        case 1:
            s->w.what = "sample type";
            ok = parse_sample_type(s, f.sub);
            break;
        case 2:
            ok = keep_sample(s, f.sub);
            break;
        case 3:
            s->w.what = "mapping";
            ok = parse_mapping(s, f.sub);
            break;
        case 4:
            s->w.what = "location";
            ok = parse_location(s, f.sub);
            break;
        case 5:
            s->w.what = "function";
            ok = parse_function(s, f.sub);
            break;
        case 6:
            ok = parse_string(s, f.sub);
            break;
        case 11:
            s->w.what = "period type";
            s->p->has_period_type = true;
            ok = parse_type(s, f.sub, &s->p->period_type);
            break;
        default:
            ok = parse_number(s, &r, &f);
        }
        s->w.what = ok ? "profile" : s->w.what;
    }
    return ok && (got == 0 || wire_malformed(&s->w, &r));
}

/* First guesses, so that columns of an ordinary profile do not grow more than once or twice. */
static void guess_sizes(struct parse *s)
{
    size_t n = s->w.end > s->w.body ? (size_t)(s->w.end - s->w.body) : 0;
    bool ok = true;

    n = MIN(n, MIB);
    ROOM(s, &s->p->samples, n / 32, ok);
    ROOM(s, &s->p->strings, n / 64, ok);
    ROOM(s, &s->p->locations, n / 64, ok);
    ROOM(s, &s->p->lines, n / 64, ok);
    ROOM(s, &s->p->functions, n / 96, ok);
    (void)ok; /* what does not fit now will say so when it is needed */
}

int pprof_parse(struct pprof *p, struct str body, const struct limits *l, struct err *e)
{
    struct rd r = rd_of(body);
    struct parse s = { .w = { .body = r.p, .end = r.end, .what = "profile", .e = e },
                       .p = p,
                       .l = l };

    *p = (struct pprof){ .body = body, .bytes_max = (size_t)l->decode_bytes };
    if (body.len == 0)
        return err_set(e, ERR_INPUT, "pprof: the body is empty");
    if (body.len > UINT32_MAX)
        return err_set(e, ERR_LIMIT, "pprof: a body of %zu bytes is over 4 GiB", body.len);
    if (gzip_sniff(body))
        return err_set(e, ERR_INPUT, "pprof: gzip inside gzip");
    guess_sizes(&s);
    if (!parse_profile(&s, r))
        return e->code;
    p->unknown_fields = s.w.unknown_fields;
    if (p->types_len == 0)
        return err_set(e, ERR_INPUT, "pprof: no sample type: this is no pprof profile");
    return pprof_resolve(p, e);
}
