/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_seen.c: an open hash table from the bytes of location ids to nodes.
 *
 * Slots have half of the hash and the number of a stack; stacks are a list, so that growing the
 * table only hashes again and moves no stack. The table grows within bytes_max. Once that is full,
 * further stacks are not kept, which costs time but changes no result. Thread: the walk's.
 */
#include "distributor/formats/pprof/pprof_seen.h"

#include "distributor/formats/pprof/pprof.h"

#define SLOTS_LEAST  64
#define STACKS_LEAST 32

const uint8_t pprof_seen_ones[2 * PPROF_SEEN_HEAD] = {
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};
static_assert(PPROF_SEEN_HEAD == 32, "as many ones");

static size_t slots_for(size_t n)
{
    size_t slots = SLOTS_LEAST;

    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

static size_t bytes_of(size_t stacks, size_t slots)
{
    return stacks * sizeof(struct pprof_stack) + slots * sizeof(struct pprof_slot);
}

static void make_slots(struct pprof_seen *s, size_t slots)
{
    s->slots = XNEW_ARRAY(struct pprof_slot, slots);
    s->mask = slots - 1;
}

void pprof_seen_init(struct pprof_seen *s, struct str body, size_t n, size_t bytes_max,
                     uint64_t seed)
{
    *s = (struct pprof_seen){ .end = body.ptr + body.len, .seed = seed, .bytes_max = bytes_max };
    if (bytes_of(n, slots_for(n)) > bytes_max)
        n = 0;
    make_slots(s, slots_for(n));
    if (n)
        vec_reserve(&s->stacks, n);
}

size_t pprof_seen_bytes(const struct pprof_seen *s)
{
    return bytes_of(s->stacks.cap, s->mask + 1);
}

void pprof_seen_deinit(struct pprof_seen *s)
{
    vec_free(&s->stacks);
    xfree(s->slots);
    s->slots = NULL;
}

static void put(struct pprof_seen *s, uint64_t hash, size_t at)
{
    size_t i = hash & s->mask;

    while (s->slots[i].at)
        i = (i + 1) & s->mask;
    s->slots[i] = (struct pprof_slot){ (uint32_t)(hash >> 32), (uint32_t)at + 1 };
}

static void grow(struct pprof_seen *s, size_t slots)
{
    xfree(s->slots);
    make_slots(s, slots);
    vec_for (i, &s->stacks) {
        const struct pprof_stack *at = &s->stacks.ptr[i];
        bool tagged = at->len & PPROF_SEEN_TAGGED;
        struct str ids = str_n(at->ids, at->len & ~PPROF_SEEN_TAGGED);
        put(s, pprof_seen_hash(s, ids, tagged, at->head), i);
    }
}

void pprof_seen_key_last(const struct pprof_seen *s, struct str ids, bool tagged,
                         struct pprof_seen_key *ret)
{
    char last[PPROF_SEEN_HEAD] = { 0 };

    memcpy(last, ids.ptr, ids.len); /* of the rest of the body */
    pprof_seen_key_near(s, (struct str){ last, ids.len }, tagged, ret);
    ret->ids = ids;
}

/* Makes room for one more. */
static bool room(struct pprof_seen *s)
{
    size_t len = s->stacks.len, cap = s->stacks.cap, slots = s->mask + 1;
    bool list = len == cap, table = len >= slots / 4 * 3;

    if (LIKELY(!list && !table))
        return true;
    cap = list ? MAX(2 * cap, (size_t)STACKS_LEAST) : cap;
    slots = table ? slots_for(4 * len) : slots;
    if (bytes_of(cap, slots) > s->bytes_max)
        return false;
    if (list)
        vec_reserve(&s->stacks, cap);
    if (table)
        grow(s, slots);
    return true;
}

void pprof_seen_add(struct pprof_seen *s, const struct pprof_seen_key *k, uint32_t node)
{
    struct pprof_stack new = { .ids = k->ids.ptr, .len = k->len, .node = node };

    CHECK(k->ids.len && k->ids.len < PPROF_SEEN_TAGGED);
    if (UNLIKELY(!room(s)))
        return;
    memcpy(new.head, k->head, sizeof(new.head));
    put(s, k->hash, s->stacks.len);
    s->stacks.ptr[s->stacks.len++] = new;
}
