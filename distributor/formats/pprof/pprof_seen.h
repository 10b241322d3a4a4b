/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_seen.h: stacks that were walked, by the bytes of their location ids; internal to the walk.
 *
 * Half of the samples of a Go heap, and nearly all of a JVM, have the stack of a sample before. The
 * ids of one are a dozen bytes, and how many cannot be guessed: so the first 32 bytes, without
 * those that are not ids, are read, mixed and compared as four words whatever their length is; no
 * branch depends on it. A hash decides nothing, contents are compared; it is seeded, so that no
 * sender can aim at one slot.
 *
 * It has what the columns left of decode_bytes. When that is full, further stacks are not kept:
 * they are walked each time they come.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_SEEN_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_SEEN_H

#include "common/base/hash.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/base/wr.h"

#define PPROF_SEEN_TAGGED (1u << 31) /* of len: one field per id, else they are packed */
#define PPROF_SEEN_HEAD   32
/* 32 bytes of ones, then of zeros */
extern const uint8_t pprof_seen_ones[2 * PPROF_SEEN_HEAD];

struct pprof_stack {
    uint64_t head[PPROF_SEEN_HEAD / 8]; /* the first bytes of ids; 0 behind their end */
    const char *ids;                    /* in the body */
    uint32_t len;                       /* bytes, and PPROF_SEEN_TAGGED */
    uint32_t node;
};
struct pprof_slot {
    uint32_t tag, at; /* upper half of the hash; position in stacks + 1, 0: empty */
};
struct pprof_seen {
    VEC(struct pprof_stack) stacks; /* owned; in order of first sight */
    struct pprof_slot *slots;       /* owned */
    size_t mask;
    uint64_t seed;
    size_t bytes_max;
    const char *end; /* of the body */
};

/* For about n stacks; there may be more, or fewer where they would take more than bytes_max. */
void pprof_seen_init(struct pprof_seen *s, struct str body, size_t n, size_t bytes_max,
                     uint64_t seed);
void pprof_seen_deinit(struct pprof_seen *s);
struct pprof_seen_key;
/* Appends a stack to the list and puts it into the table, if there is room for it. */
void pprof_seen_add(struct pprof_seen *s, const struct pprof_seen_key *k, uint32_t node);
size_t pprof_seen_bytes(const struct pprof_seen *s);

/* The head of ids, of which PPROF_SEEN_HEAD bytes are readable. */
static inline void pprof_seen_head(struct str ids, uint64_t *head)
{
    size_t n = MIN(ids.len, (size_t)PPROF_SEEN_HEAD);

    for (size_t i = 0; i < PPROF_SEEN_HEAD; i += 8)
        head[i / 8] = get_u64le(ids.ptr + i) & get_u64le(pprof_seen_ones + PPROF_SEEN_HEAD - n + i);
}

/* The two halves of the head do not wait for each other. Each factor is secret: see hash_mix. */
static inline uint64_t pprof_seen_hash(const struct pprof_seen *s, struct str ids, bool tagged,
                                       const uint64_t *head)
{
    uint64_t seed = s->seed + (tagged ? UINT64_C(0x9e3779b97f4a7c15) : 0) + ids.len;
    uint64_t a = hash_mix(head[0] ^ seed, head[1] ^ hash_turn(seed, 32));
    uint64_t b = hash_mix(head[2] ^ hash_turn(seed, 16), head[3] ^ hash_turn(seed, 48));
    uint64_t h = a ^ hash_turn(b, 29);

    for (size_t i = PPROF_SEEN_HEAD; i < ids.len; i += 16)
        h = hash_mix(get_u64le(ids.ptr + MIN(i, ids.len - 8)) ^ h,
                     get_u64le(ids.ptr + MIN(i + 8, ids.len - 8)) ^ UINT64_C(0xa0761d6478bd642f) ^
                         hash_turn(h, 32));
    return h;
}

/* What is behind the heads. */
static inline bool pprof_seen_equal(const char *a, const char *b, size_t n)
{
    uint64_t d = 0;

    for (size_t i = PPROF_SEEN_HEAD; i < n; i += 8)
        d |= get_u64le(a + MIN(i, n - 8)) ^ get_u64le(b + MIN(i, n - 8));
    return d == 0;
}

/* What is looked for: made once, for finding and for adding. */
struct pprof_seen_key {
    struct str ids; /* not empty */
    uint64_t head[PPROF_SEEN_HEAD / 8], hash;
    uint32_t len; /* as in struct pprof_stack */
};

/* PPROF_SEEN_HEAD bytes of ids are readable. */
static inline void pprof_seen_key_near(const struct pprof_seen *s, struct str ids, bool tagged,
                                       struct pprof_seen_key *ret)
{
    ret->ids = ids;
    ret->len = (uint32_t)ids.len | (tagged ? PPROF_SEEN_TAGGED : 0);
    pprof_seen_head(ids, ret->head);
    ret->hash = pprof_seen_hash(s, ids, tagged, ret->head);
}
/* They are not: the body ends there. */
void pprof_seen_key_last(const struct pprof_seen *s, struct str ids, bool tagged,
                         struct pprof_seen_key *ret);
static inline void pprof_seen_key(const struct pprof_seen *s, struct str ids, bool tagged,
                                  struct pprof_seen_key *ret)
{
    if (LIKELY(s->end - ids.ptr >= PPROF_SEEN_HEAD))
        pprof_seen_key_near(s, ids, tagged, ret);
    else
        pprof_seen_key_last(s, ids, tagged, ret);
}

/* NULL: not seen before. */
static inline struct pprof_stack *pprof_seen_find(const struct pprof_seen *s,
                                                  const struct pprof_seen_key *k)
{
    for (size_t i = k->hash & s->mask; s->slots[i].at; i = (i + 1) & s->mask) {
        struct pprof_stack *at = &s->stacks.ptr[s->slots[i].at - 1];
        uint64_t d = (at->len ^ k->len) | (at->head[0] ^ k->head[0]) | (at->head[1] ^ k->head[1]) |
                     (at->head[2] ^ k->head[2]) | (at->head[3] ^ k->head[3]);
        if (!d && pprof_seen_equal(at->ids, k->ids.ptr, k->ids.len))
            return at;
    }
    return NULL;
}

#endif
