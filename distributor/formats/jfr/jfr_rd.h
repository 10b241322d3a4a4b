/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_rd.h: the primitives of a chunk: varints and strings, over struct rd.
 *
 *   varint   7 bits a byte, lowest first, bit 7 = more; at most nine bytes, the ninth has 8 bits
 *   string   0 null | 1 empty | 2 varint key of the pool of java.lang.String
 *            3 varint length, UTF-8 | 4 varint count, a varint per UTF-16 unit | 5 length, Latin-1
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR values").
 */
#ifndef DISTRIBUTOR_FORMATS_JFR_JFR_RD_H
#define DISTRIBUTOR_FORMATS_JFR_JFR_RD_H

#include "common/base/buf.h"
#include "common/base/rd.h"

enum jfr_encoding { JFR_NULL, JFR_EMPTY, JFR_KEY, JFR_UTF8, JFR_UTF16, JFR_LATIN1 };
struct jfr_string {
    enum jfr_encoding encoding;
    uint64_t key;     /* JFR_KEY */
    struct str bytes; /* as encoded, without the length */
};
/* False: no such encoding, or past the end. */
bool jfr_string_read(struct rd *r, struct jfr_string *ret);
/* Appends the text as UTF-8 (what was no UTF-8 before stays as it is); nothing for the first three
 * encodings. Surrogates that stand alone become '?', Java's own UTF-8 becomes plain UTF-8. */
void jfr_string_append(const struct jfr_string *s, struct buf *out);

bool jfr_varint_end(struct rd *r, uint64_t *ret); /* in the last eight bytes */

/* Seven bits of each of up to eight bytes, pulled together. */
static inline uint64_t jfr_pack7(uint64_t x)
{
    x &= UINT64_C(0x7f7f7f7f7f7f7f7f);
    x = (x & UINT64_C(0x7f007f007f007f00)) >> 1 | (x & UINT64_C(0x007f007f007f007f));
    x = (x & UINT64_C(0x3fff00003fff0000)) >> 2 | (x & UINT64_C(0x00003fff00003fff));
    return (x >> 32) << 28 | (x & UINT64_C(0x0fffffff));
}

static inline uint64_t jfr_load8(const uint8_t *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
           (uint64_t)p[7] << 56;
}

static inline bool jfr_varint(struct rd *r, uint64_t *ret)
{
    const uint8_t *p = r->p;

    if (LIKELY(p != r->end && *p < 0x80)) {
        *ret = *p;
        r->p = p + 1;
        return true;
    }
    if (UNLIKELY(r->end - p < 9))
        return jfr_varint_end(r, ret);
    uint64_t x = jfr_load8(p), stop = ~x & UINT64_C(0x8080808080808080);
    if (LIKELY(stop)) {
        unsigned bits = (unsigned)__builtin_ctzll(stop) + 1; /* 8 * bytes */
        *ret = jfr_pack7(x & UINT64_MAX >> (64 - bits));
        r->p = p + bits / 8;
        return true;
    }
    *ret = jfr_pack7(x) | (uint64_t)p[8] << 56;
    r->p = p + 9;
    return true;
}

#endif
