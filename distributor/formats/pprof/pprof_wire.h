/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_wire.h: reading protobuf messages of the pprof schema; internal to the pprof decoder.
 *
 * A cursor (struct rd) is bounded by its own message; struct wire knows where the whole body ends,
 * so that short reads need no check byte by byte: what was read past a message is refused then.
 *
 * Format: the wire encoding of Protocol Buffers (proto/FORMATS.md, "Protobuf").
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_WIRE_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_WIRE_H

#include "common/base/err.h"
#include "common/base/rd.h"
#include "common/base/str.h"
#include "common/base/wr.h"

#define WIRE_VARINT_MAX 10

struct wire {
    const uint8_t *body, *end;
    const char *what; /* the message being read, for the error text */
    uint64_t unknown_fields;
    struct err *e;
};
/* Number and wire type stand apart: side by side they are compared by one load of eight bytes,
 * which has to wait until both stores of four have left the processor. */
struct wire_field {
    uint32_t number;
    uint64_t u64; /* wire 0 */
    uint32_t wire;
    struct rd sub; /* wire 2 */
};

/* Sets ERR_INPUT with the place; returns false. */
bool wire_malformed(const struct wire *w, const struct rd *r);
int wire_field_slow(const struct wire *w, struct rd *r, struct wire_field *f);
/* Most messages of the schema have nothing but varints: read into a table by field number. Fields 1
 * .. known go to v[number], others are skipped and counted; the last of equal ones wins. */
bool wire_numbers(struct wire *w, struct rd r, uint64_t *v, uint32_t known);
/* Takes a varint off *p, which does not pass `end`; WIRE_VARINT_MAX bytes are readable. */
static inline bool wire_varint_fast(const uint8_t **p, const uint8_t *end, uint64_t *ret)
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

/* A varint at p, WIRE_VARINT_MAX bytes of which are readable; behind it, NULL if it is malformed.
 * Up to eight bytes all lengths cost the same: nothing is guessed, as where one ends often cannot
 * be. */
static inline const uint8_t *wire_number_any(const uint8_t *p, uint64_t *ret)
{
    uint64_t v = get_u64le(p), stops = ~v & UINT64_C(0x8080808080808080);

    if (UNLIKELY(!stops))
        return wire_varint_fast(&p, p + WIRE_VARINT_MAX, ret) ? p : NULL;
    v &= stops ^ (stops - 1);
    v = (v & UINT64_C(0x007f007f007f007f)) | (v & UINT64_C(0x7f007f007f007f00)) >> 1;
    v = (v & UINT64_C(0x00003fff00003fff)) | (v & UINT64_C(0x3fff00003fff0000)) >> 2;
    *ret = (v & UINT64_C(0x0fffffff)) | (v & UINT64_C(0x0fffffff00000000)) >> 4;
    return p + (__builtin_ctzll(stops) + 1) / 8;
}

/* The same where lengths are mostly equal: each has a branch, which the processor learns. */
static inline const uint8_t *wire_number(const uint8_t *p, uint64_t *ret)
{
    uint64_t v = p[0];

    if (LIKELY(v < 0x80)) {
        *ret = v;
        return p + 1;
    }
    v = (v & 0x7f) | (uint64_t)p[1] << 7;
    if (LIKELY(p[1] < 0x80)) {
        *ret = v;
        return p + 2;
    }
    return wire_number_any(p, ret);
}

/* wire_numbers for a message that ends WIRE_VARINT_MAX bytes before the end of the body and has
 * nothing but known fields. False: it has not, or is malformed; v may have changed. */
static inline bool wire_numbers_fast(const uint8_t *p, const uint8_t *end, uint64_t *v,
                                     uint32_t known)
{
    while (p < end) {
        uint32_t tag = *p;
        if ((tag & 0x87) || tag < 8 || tag >> 3 > known)
            return false;
        p = wire_number(p + 1, &v[tag >> 3]);
        if (!p)
            return false;
    }
    return p == end;
}

static inline bool wire_varint(const struct wire *w, struct rd *r, uint64_t *ret)
{
    if (UNLIKELY(w->end - r->p < WIRE_VARINT_MAX))
        return rd_varint(r, ret);
    return wire_varint_fast(&r->p, r->end, ret);
}

/* 1 = a field, 0 = end of the message, -1 = malformed. Numbers, short messages and lists, which is
 * nearly everything, are taken here. */
static inline int wire_field(const struct wire *w, struct rd *r, struct wire_field *f)
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
    if (LIKELY((r->p[0] & 0x87) == 0 && r->p[0] >= 8 && w->end - r->p > WIRE_VARINT_MAX)) {
        f->number = r->p[0] >> 3;
        f->wire = 0;
        r->p++;
        return wire_varint_fast(&r->p, r->end, &f->u64) ? 1 : -1;
    }
    return wire_field_slow(w, r, f);
}

#endif
