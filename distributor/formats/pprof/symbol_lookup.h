/* SPDX-License-Identifier: Apache-2.0
 *
 * symbol_lookup.h: how names and frames are found in the tables of symbol_session.h; internal to
 * them.
 *
 * Nearly all that a body names was there before. Looked for one by one, as its stacks ask, each
 * waits for memory three or four times, and behind a guess of what comes next that is often wrong.
 * Looked for many at once (symbol_lookup_texts, symbol_lookup_frames), slots and contents of one
 * are fetched while others are hashed and compared.
 *
 * A hash only says where to look, contents are compared. It is seeded, so that no sender can make
 * all of a body fall on one slot. Tables are two thirds empty, so that the first slot nearly always
 * has what is looked for: a second look is a wrong guess of the processor and costs more than room.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_SYMBOL_LOOKUP_H
#define DISTRIBUTOR_FORMATS_PPROF_SYMBOL_LOOKUP_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/base/hash.h"
#include "common/base/wr.h"
#include "distributor/formats/pprof/symbol_session.h"

/* Eight words of a name, which are all of one of up to 64 bytes: where they lie depends on nothing
 * but its length, and they may overlap, so that nothing is read byte by byte. */
struct known_words {
    uint64_t w[8];
};

static inline uint64_t known_short(const char *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | (uint8_t)p[i];
    return v;
}

static inline struct known_words known_words_of(const char *p, size_t n)
{
    struct known_words a = { 0 };

    if (LIKELY(n >= 16)) {
        const char *b = p + MIN(n - 16, (size_t)16), *c = p + MIN(n - 16, (size_t)32);
        const char *d = p + n - 16;
        a = (struct known_words){ { get_u64le(p), get_u64le(p + 8), get_u64le(b), get_u64le(b + 8),
                                    get_u64le(c), get_u64le(c + 8), get_u64le(d),
                                    get_u64le(d + 8) } };
    } else if (n >= 8) {
        a.w[0] = get_u64le(p);
        a.w[1] = get_u64le(p + n - 8);
    } else {
        a.w[0] = known_short(p, n);
    }
    return a;
}

/* Both factors of each product are secret, and so is the relation of any two products. A sender
 * that knew a word that makes a product 0, or words that make two products equal, could choose the
 * other words freely. */
static inline uint32_t symbol_session_text_tag(const struct symbol_session *k, struct str s)
{
    struct known_words a = known_words_of(s.ptr, s.len);
    uint64_t seed = k->stacks.seed;
    uint64_t h = hash_mix(a.w[0] ^ seed, a.w[1] ^ hash_turn(seed, 32)) ^
                 hash_mix(a.w[2] ^ hash_turn(seed, 8), a.w[3] ^ hash_turn(seed, 40));

    h += hash_mix(a.w[4] ^ hash_turn(seed, 16), a.w[5] ^ hash_turn(seed, 48)) ^
         hash_mix(a.w[6] ^ hash_turn(seed, 24), a.w[7] ^ hash_turn(seed, 56));
    for (size_t i = 48; i + 16 < s.len; i += 16) /* what lies between the sixth word and the last */
        h = hash_mix(get_u64le(s.ptr + i) ^ h,
                     get_u64le(s.ptr + i + 8) ^ UINT64_C(0x589965cc75374cc3) ^ hash_turn(h, 32));
    return (uint32_t)(hash_mix(h ^ s.len, seed | 1) >> 16);
}

/* The same 16 bytes at p and q? */
#ifdef __SSE2__
typedef __m128i known_same;
#define KNOWN_SAME _mm_set1_epi8(-1)
static inline known_same known_same_16(known_same d, const char *p, const char *q)
{
    return _mm_and_si128(
        d, _mm_cmpeq_epi8(_mm_loadu_si128((const void *)p), _mm_loadu_si128((const void *)q)));
}
static inline bool known_all_same(known_same d)
{
    return _mm_movemask_epi8(d) == 0xffff;
}
#else
typedef uint64_t known_same;
#define KNOWN_SAME 0
static inline known_same known_same_16(known_same d, const char *p, const char *q)
{
    return d | (get_u64le(p) ^ get_u64le(q)) | (get_u64le(p + 8) ^ get_u64le(q + 8));
}
static inline bool known_all_same(known_same d)
{
    return d == 0;
}
#endif

static inline bool symbol_session_is_text(const struct symbol_session *k, size_t i, struct str s)
{
    const struct symbol_session_text *t = &k->texts.ptr[i];
    const char *p = s.ptr, *q = t->ptr;
    known_same d = KNOWN_SAME;

    if (UNLIKELY(t->len != s.len))
        return false;
    if (UNLIKELY(s.len < 16))
        return memcmp(p, q, s.len) == 0;
    size_t last = s.len - 16, b = MIN(last, (size_t)16), c = MIN(last, (size_t)32);
    d = known_same_16(d, p, q);
    d = known_same_16(d, p + b, q + b);
    d = known_same_16(d, p + c, q + c);
    d = known_same_16(d, p + last, q + last);
    for (size_t n = 48; n < last; n += 16)
        d = known_same_16(d, p + n, q + n);
    return known_all_same(d);
}

static inline uint32_t symbol_session_frame_tag(const struct symbol_session *k,
                                                const struct frame *f)
{
    uint64_t h = hash_mix(((uint64_t)f->func << 32 | f->line) ^ k->stacks.seed,
                          ((uint64_t)f->file << 32 | f->module) ^ UINT64_C(0xa0761d6478bd642f));

    return (uint32_t)(hash_mix(h ^ f->addr, k->stacks.seed | 1) >> 16);
}

static inline bool symbol_session_is_frame(const struct symbol_session *k, size_t i,
                                           const struct frame *f)
{
    const struct frame *a = &k->frames.ptr[i];

    return ((a->func ^ f->func) | (a->file ^ f->file) | (a->module ^ f->module) |
            (a->line ^ f->line) | (a->addr ^ f->addr)) == 0;
}

/* The slot of a text, or the empty one where it would be. The table is there. */
static inline size_t symbol_session_text_slot(const struct symbol_session *k, struct str s,
                                              uint32_t tag)
{
    const struct symbol_session_slots *t = &k->text_slots;
    size_t at = tag & t->mask;

    while (t->slots[at] &&
           (t->slots[at] >> 32 != tag || !symbol_session_is_text(k, (uint32_t)t->slots[at] - 1, s)))
        at = (at + 1) & t->mask;
    return at;
}

static inline size_t symbol_session_frame_slot(const struct symbol_session *k,
                                               const struct frame *f, uint32_t tag)
{
    const struct symbol_session_slots *t = &k->frame_slots;
    size_t at = tag & t->mask;

    while (t->slots[at] && (t->slots[at] >> 32 != tag ||
                            !symbol_session_is_frame(k, (uint32_t)t->slots[at] - 1, f)))
        at = (at + 1) & t->mask;
    return at;
}

#endif
