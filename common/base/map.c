/* SPDX-License-Identifier: Apache-2.0
 *
 * map: hash tables with open addressing and linear probing, at most three quarters full.
 *
 * map_u64 has keys and values in two arrays; the value MAP_U64_EMPTY marks an empty slot, so any
 * key is allowed. Single entries are not deleted. map_str keeps the hash of each key, compares it
 * before the key, and deletes by shifting later entries back, so it has no tombstones and does not
 * slow down.
 *
 * Both mix keys with a number that no sender knows: otherwise crafted keys could all fall on one
 * slot. Tables double and do not shrink; a resize of a large map_u64 calls pause_step in its loop.
 * Thread: one at a time per map.
 */
#include "common/base/map.h"

#include <stdatomic.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/pause.h"
#include "common/base/secret.h"

void map_u64_init(struct map_u64 *m)
{
    *m = (struct map_u64){ 0 };
}

void map_u64_deinit(struct map_u64 *m)
{
    xfree(m->keys);
    xfree(m->vals);
    *m = (struct map_u64){ 0 };
}

#define KEEP_SLOTS 1024 /* of as many it does not matter how many were used */
#define KEEP_SHARE 16   /* slots for each one used */

void map_u64_reset(struct map_u64 *m)
{
    if (m->len && m->mask >= KEEP_SLOTS && m->len < m->mask / KEEP_SHARE)
        map_u64_deinit(m);
    else if (m->len)
        memset(m->vals, 0xff, (m->mask + 1) * sizeof(*m->vals));
    m->len = 0;
}

/* Keys come from outside. A sender that knew the slot of a key could make all keys collide. */
static _Atomic uint64_t secret; /* set before anything is in any table */

static inline size_t slot_of(const struct map_u64 *m, uint64_t key)
{
    return hash_u64(key ^ atomic_load_explicit(&secret, memory_order_relaxed)) & m->mask;
}

static void map_u64_resize(struct map_u64 *m, size_t slots)
{
    struct map_u64 old = *m;

    m->keys = xreallocarray(NULL, slots, sizeof(*m->keys));
    m->vals = xreallocarray(NULL, slots, sizeof(*m->vals));
    memset(m->vals, 0xff, slots * sizeof(*m->vals));
    m->mask = slots - 1;
    if (UNLIKELY(!atomic_load_explicit(&secret, memory_order_relaxed)))
        atomic_store_explicit(&secret, secret_word(), memory_order_relaxed);
    for (size_t i = 0; old.vals && i <= old.mask; i++) {
        pause_step(i);
        if (old.vals[i] == MAP_U64_EMPTY)
            continue;
        size_t at = slot_of(m, old.keys[i]);
        while (m->vals[at] != MAP_U64_EMPTY)
            at = (at + 1) & m->mask;
        m->keys[at] = old.keys[i];
        m->vals[at] = old.vals[i];
    }
    xfree(old.keys);
    xfree(old.vals);
}

void map_u64_reserve(struct map_u64 *m, size_t n)
{
    size_t slots = 16;

    while (slots / 4 * 3 < n)
        slots *= 2;
    if (!m->vals || slots > m->mask + 1)
        map_u64_resize(m, slots);
}

uint32_t map_u64_get(const struct map_u64 *m, uint64_t key)
{
    if (!m->vals)
        return MAP_U64_EMPTY;
    for (size_t at = slot_of(m, key);; at = (at + 1) & m->mask)
        if (m->vals[at] == MAP_U64_EMPTY || m->keys[at] == key)
            return m->vals[at];
}

uint32_t map_u64_put(struct map_u64 *m, uint64_t key, uint32_t val)
{
    DCHECK(val != MAP_U64_EMPTY);
    if (UNLIKELY(!m->vals || m->len + 1 > (m->mask + 1) / 4 * 3))
        map_u64_reserve(m, m->len + 1);
    size_t at = slot_of(m, key);
    while (m->vals[at] != MAP_U64_EMPTY) {
        if (m->keys[at] == key)
            return m->vals[at];
        at = (at + 1) & m->mask;
    }
    m->keys[at] = key;
    m->vals[at] = val;
    m->len++;
    return MAP_U64_EMPTY;
}

size_t map_u64_bytes(const struct map_u64 *m)
{
    return m->vals ? (m->mask + 1) * (sizeof(*m->keys) + sizeof(*m->vals)) : 0;
}

struct map_str_slot {
    uint64_t hash;
    struct str key; /* borrowed */
    void *val;      /* NULL = empty slot */
};
struct map_str {
    struct map_str_slot *slots; /* owned */
    size_t len;
    size_t mask;
    uint64_t seed;
};

static _Atomic uint64_t fixed_seed; /* 0: none */

void map_str_fix_seed(uint64_t seed)
{
    fixed_seed = seed;
}

struct map_str *map_str_new(void)
{
    struct map_str *m = XNEW(struct map_str);

    m->mask = 15;
    m->slots = XNEW_ARRAY(struct map_str_slot, 16);
    /* Differs per process: no crafted clashes. */
    m->seed = hash_u64(fixed_seed ? fixed_seed : (uint64_t)(uintptr_t)m);
    return m;
}

void map_str_free(struct map_str *m)
{
    if (!m)
        return;
    xfree(m->slots);
    xfree(m);
}

size_t map_str_len(const struct map_str *m)
{
    return m->len;
}

/* The slot that holds key, or the empty one where it belongs. */
static size_t map_str_find(const struct map_str *m, struct str key, uint64_t hash)
{
    size_t at = hash & m->mask;

    while (m->slots[at].val && !(m->slots[at].hash == hash && str_eq(m->slots[at].key, key)))
        at = (at + 1) & m->mask;
    return at;
}

void *map_str_get(const struct map_str *m, struct str key)
{
    return m->slots[map_str_find(m, key, hash64(key.ptr, key.len, m->seed))].val;
}

static void map_str_double(struct map_str *m)
{
    struct map_str_slot *old = m->slots;
    size_t n = m->mask + 1;

    m->slots = XNEW_ARRAY(struct map_str_slot, n * 2);
    m->mask = n * 2 - 1;
    for (size_t i = 0; i < n; i++)
        if (old[i].val)
            m->slots[map_str_find(m, old[i].key, old[i].hash)] = old[i];
    xfree(old);
}

void *map_str_put(struct map_str *m, struct str key, void *val)
{
    CHECK(val);
    uint64_t hash = hash64(key.ptr, key.len, m->seed);
    size_t at = map_str_find(m, key, hash);
    void *was = m->slots[at].val;

    if (was) {
        m->slots[at].val = val;
        return was;
    }
    if (m->len + 1 > (m->mask + 1) / 4 * 3) {
        map_str_double(m);
        at = map_str_find(m, key, hash);
    }
    m->slots[at] = (struct map_str_slot){ hash, key, val };
    m->len++;
    return NULL;
}

size_t map_str_index(struct map_str *m, struct str key, size_t next)
{
    uintptr_t known = (uintptr_t)map_str_get(m, key);

    if (known)
        return known - 1;
    (void)map_str_put(m, key, (void *)(next + 1)); /* NULL would be no value */
    return next;
}

void *map_str_del(struct map_str *m, struct str key)
{
    size_t at = map_str_find(m, key, hash64(key.ptr, key.len, m->seed));
    void *was = m->slots[at].val;

    if (!was)
        return NULL;
    m->len--;
    /* Backward shift: close the gap so that no later entry becomes unreachable. */
    for (size_t next = (at + 1) & m->mask; m->slots[next].val; next = (next + 1) & m->mask) {
        size_t home = m->slots[next].hash & m->mask;
        if (((next - home) & m->mask) >= ((next - at) & m->mask)) {
            m->slots[at] = m->slots[next];
            at = next;
        }
    }
    m->slots[at] = (struct map_str_slot){ 0 };
    return was;
}

bool map_str_next(const struct map_str *m, size_t *pos, struct str *ret_key, void **ret_val)
{
    for (; *pos <= m->mask; ++*pos) {
        const struct map_str_slot *s = &m->slots[*pos];
        if (!s->val)
            continue;
        *ret_key = s->key;
        *ret_val = s->val;
        ++*pos;
        return true;
    }
    return false;
}
