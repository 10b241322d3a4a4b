/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_seen.h: stacks that were walked, by the bytes of their location ids; internal to the walk.
 *
 * Half of the samples of a Go heap, and nearly all of a JVM, have the stack of a sample before. The
 * ids of one are a dozen bytes, so that finding it must cost less than calling a general hash: they
 * are read in words, mixed by one multiplication for sixteen bytes, and compared in words. A hash
 * decides nothing, contents are compared; it is seeded, so that nobody can aim at one slot.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_SEEN_H
#define DISTRIBUTOR_FORMATS_PPROF_SEEN_H

#include "common/base/hash.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/base/wr.h"

#define PPROF_SEEN_TAGGED (1u << 31) /* of len: one field per id, else they are packed */

struct pprof_stack {
    uint64_t first, last; /* bytes of ids, up to eight: see pprof_seen_ends */
    const char *ids;      /* in the body */
    uint32_t len;         /* bytes, and PPROF_SEEN_TAGGED */
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
    const char *end; /* of the body */
};

/* For about n stacks; there may be more. */
void pprof_seen_init(struct pprof_seen *s, struct str body, size_t n, uint64_t seed);
void pprof_seen_deinit(struct pprof_seen *s);
/* Appends a stack to the list and puts it into the table. Node: PPROF_NONE. */
struct pprof_stack *pprof_seen_add(struct pprof_seen *s, struct str ids, bool tagged,
                                   uint64_t hash);

/* The first and the last eight bytes of ids, or all of them twice: of up to 16 bytes that is
 * everything. `end` says how far may be read. */
static inline void pprof_seen_ends(struct str ids, const char *end, uint64_t *first, uint64_t *last)
{
    size_t n = MIN(ids.len, (size_t)8);

    if (UNLIKELY(end - ids.ptr < 8)) {
        *first = 0;
        memcpy(first, ids.ptr, n);
        *last = *first;
        return;
    }
    uint64_t mask = ~UINT64_C(0) >> (64 - 8 * n);
    *first = get_u64le(ids.ptr) & mask;
    *last = get_u64le(ids.ptr + (ids.len > 8 ? ids.len - 8 : 0)) & mask;
}

static inline uint64_t pprof_seen_hash(const struct pprof_seen *s, struct str ids, bool tagged,
                                       uint64_t first, uint64_t last)
{
    uint64_t h = s->seed + (tagged ? UINT64_C(0x9e3779b97f4a7c15) : 0) + ids.len;

    for (size_t i = 8; i + 8 < ids.len; i += 16)
        h = hash_mix(get_u64le(ids.ptr + i) ^ h, get_u64le(ids.ptr + MIN(i + 8, ids.len - 8)) ^
                                                     UINT64_C(0xa0761d6478bd642f) ^
                                                     (h << 32 | h >> 32));
    return hash_mix(first ^ h, last ^ h ^ UINT64_C(0xe7037ed1a0b428db));
}

/* What lies between the first and the last eight bytes. */
static inline bool pprof_seen_equal(const char *a, const char *b, size_t n)
{
    uint64_t d = 0;

    for (size_t i = 8; i + 8 < n; i += 8)
        d |= get_u64le(a + i) ^ get_u64le(b + i);
    return d == 0;
}

/* ids.len > 0. NULL: not seen before. The hash is for pprof_seen_add. */
static inline struct pprof_stack *pprof_seen_find(const struct pprof_seen *s, struct str ids,
                                                  bool tagged, uint64_t *ret_hash)
{
    uint32_t len = (uint32_t)ids.len | (tagged ? PPROF_SEEN_TAGGED : 0);
    uint64_t first, last;

    pprof_seen_ends(ids, s->end, &first, &last);
    uint64_t h = *ret_hash = pprof_seen_hash(s, ids, tagged, first, last);
    for (size_t i = h & s->mask; s->slots[i].at; i = (i + 1) & s->mask) {
        struct pprof_stack *at = &s->stacks.ptr[s->slots[i].at - 1];
        if (s->slots[i].tag == (uint32_t)(h >> 32) && at->len == len && at->first == first &&
            at->last == last && pprof_seen_equal(at->ids, ids.ptr, ids.len))
            return at;
    }
    return NULL;
}

#endif
