/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_runs: the fields that nearly all of a body is made of: samples, locations, functions and
 * strings, each kind in one run, with the usual fields in the order of their numbers.
 *
 * What is not like that, be it only unusual or wrong, stops a run before it and is left to pprof.c,
 * which knows all forms and says what is wrong. So nothing here needs an error, and a message is
 * taken or it is not.
 */
#include "distributor/formats/pprof/pprof.h"

/* Messages that end so many bytes before the end of the body are read without looking where they
 * end after each field: what was read past it is seen then. */
#define MARGIN 64

/* Numbers of up to two bytes, which most are, all in the same way: which has two cannot be guessed.
 * `more`: 1 if it has two. `odd`: over 0x7f if it has three or more, and v is nothing. */
struct number {
    uint32_t v, more, odd;
};
static inline struct number number_at(const uint8_t *p)
{
    uint32_t first = p[0], second = p[1], more = first >> 7;

    return (struct number){ first + ((0u - more) & ((second << 7) - 0x80)), more, first & second };
}

/* Behind a number of any length at p; behind `end` if it is malformed or does not end there. */
static inline const uint8_t *any_number(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    p = wire_number_any(p, ret);
    return LIKELY(p && p <= end) ? p : end + 1;
}

struct taken {
    const uint8_t *end;
    uint64_t v;
};
static NOINLINE struct taken long_number(const uint8_t *p, const uint8_t *end)
{
    struct taken t = { 0 };

    t.end = any_number(p, end, &t.v);
    return t;
}

/* Takes field `tag`, a number, if it stands at p. */
static inline struct taken take(const uint8_t *p, const uint8_t *end, uint8_t tag)
{
    if (*p != tag)
        return (struct taken){ p, 0 };
    struct number n = number_at(p + 1);
    if (UNLIKELY(n.odd >= 0x80))
        return long_number(p + 1, end);
    return (struct taken){ p + 2 + n.more, n.v };
}

/* The message whose tag is at p, of less than 128 bytes, that ends by `end`. */
static inline bool short_message(const uint8_t *p, const uint8_t *end, struct rd *ret)
{
    *ret = (struct rd){ p + 2, p + 2 + p[1] };
    return LIKELY(p[1] < 0x80 && ret->end <= end);
}

static const uint8_t *take_samples(struct pprof *p, const struct limits *l, const uint8_t *at,
                                   const uint8_t *end)
{
    const uint8_t *body = (const uint8_t *)p->body.ptr;
    size_t n = p->samples.len, most = MIN(p->samples.cap, l->samples);

    while (n < most && end - at >= 3 && *at == 0x12) {
        struct number len = { at[1], 0, 0 };
        if (at[1] >= 0x80)
            len = number_at(at + 1);
        const uint8_t *from = at + 2 + len.more;
        if (len.odd >= 0x80 || len.v > end - from)
            break;
        p->samples.ptr[n++] = (struct pprof_slice){ (uint32_t)(from - body), len.v };
        at = from + len.v;
    }
    p->samples.len = n;
    return at;
}

static const uint8_t *take_strings(struct pprof *p, const struct limits *l, const uint8_t *at,
                                   const uint8_t *end)
{
    size_t n = p->strings.len, most = p->strings.cap;

    while (n < most && end - at >= 3 && *at == 0x32) {
        struct number len = { at[1], 0, 0 };
        if (UNLIKELY(at[1] >= 0x80))
            len = number_at(at + 1);
        const uint8_t *from = at + 2 + len.more;
        if (len.odd >= 0x80 || len.v > end - from || len.v > l->symbol_bytes)
            break;
        p->strings.ptr[n++] = (struct str){ (const char *)from, len.v };
        at = from + len.v;
    }
    p->strings.len = n;
    return at;
}

static const uint8_t *take_functions(struct pprof *p, const uint8_t *at, const uint8_t *end)
{
    size_t n = p->functions.len, most = p->functions.cap;
    struct rd r;

    for (; n < most && *at == 0x2a && short_message(at, end, &r); at = r.end) {
        struct taken id = take(r.p, r.end, 0x08), name = take(id.end, r.end, 0x10);
        struct taken system_name = take(name.end, r.end, 0x18);
        struct taken file = take(system_name.end, r.end, 0x20);
        struct taken start_line = take(file.end, r.end, 0x28);
        if (UNLIKELY(start_line.end != r.end))
            break;
        p->functions.ptr[n++] =
            (struct pprof_function){ id.v, pprof_string_index(name.v),
                                     pprof_string_index(system_name.v), pprof_string_index(file.v),
                                     start_line.v <= INT32_MAX ? (uint32_t)start_line.v : 0 };
    }
    p->functions.len = n;
    return at;
}

/* The line at p: behind it, or behind `end` if it is not a plain one. */
static inline const uint8_t *take_line(const uint8_t *p, const uint8_t *end, struct pprof_line *ret)
{
    struct rd r;

    if (UNLIKELY(!short_message(p, end, &r)))
        return end + 1;
    struct taken fn = take(r.p, r.end, 0x08), line = take(fn.end, r.end, 0x10);
    if (UNLIKELY(line.end < r.end))
        line.end = take(line.end, r.end, 0x18).end; /* the column is not kept */
    *ret = pprof_line_of(fn.v, line.v);
    return line.end == r.end ? r.end : end + 1;
}

static const uint8_t *take_locations(struct pprof *p, const struct limits *l, const uint8_t *at,
                                     const uint8_t *end)
{
    struct pprof_location *to = p->locations.ptr + p->locations.len;
    const struct pprof_location *to_end = p->locations.ptr + p->locations.cap;
    struct pprof_line *line = p->lines.ptr + p->lines.len, *first;
    const struct pprof_line *line_end = p->lines.ptr + p->lines.cap;
    struct rd r;

    for (; to < to_end && *at == 0x22 && short_message(at, end, &r); at = r.end, to++) {
        struct taken id = take(r.p, r.end, 0x08), mapping = take(id.end, r.end, 0x10);
        const uint8_t *next = mapping.end;
        to->address = 0;
        if (*next == 0x18)
            next = any_number(next + 1, r.end, &to->address);
        for (first = line; next < r.end && *next == 0x22 && line < line_end; line++)
            next = take_line(next, r.end, line);
        if (next < r.end && *next == 0x10) { /* where Go itself writes it */
            mapping = take(next, r.end, 0x10);
            next = mapping.end;
        }
        if (UNLIKELY(next != r.end || (size_t)(line - first) > l->lines_per_location)) {
            line = first;
            break;
        }
        to->id = id.v;
        to->mapping_id = mapping.v;
        to->lines_end = (uint32_t)(line - p->lines.ptr);
    }
    p->locations.len = (size_t)(to - p->locations.ptr);
    p->lines.len = (size_t)(line - p->lines.ptr);
    return at;
}

const uint8_t *pprof_runs(struct pprof *p, const struct limits *l, const uint8_t *at,
                          const uint8_t *end)
{
    const uint8_t *from;

    do {
        from = at;
        if (end - at < 3)
            break;
        if (*at == 0x12)
            at = take_samples(p, l, at, end);
        else if (*at == 0x22 && end - at > MARGIN)
            at = take_locations(p, l, at, end - MARGIN);
        else if (*at == 0x2a && end - at > MARGIN)
            at = take_functions(p, at, end - MARGIN);
        else if (*at == 0x32)
            at = take_strings(p, l, at, end);
    } while (at != from);
    return at;
}
