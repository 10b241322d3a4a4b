/* SPDX-License-Identifier: Apache-2.0
 *
 * map.h: two hash maps with open addressing and linear probing, load <= 3/4.
 *
 * map_u64: u64 key -> u32 value, no deletion: interning tables ((parent, frame) -> node).
 * map_str: borrowed string key -> pointer, with deletion. Keys must outlive their entry.
 */
#ifndef COMMON_BASE_MAP_H
#define COMMON_BASE_MAP_H

#include "common/base/str.h"

struct map_u64 {
    uint64_t *keys; /* owned; slot is empty where vals is MAP_U64_EMPTY */
    uint32_t *vals; /* owned */
    size_t len;
    size_t mask; /* slots - 1, or 0 while nothing is allocated */
};
#define MAP_U64_EMPTY UINT32_MAX /* may not be stored as a value */

void map_u64_init(struct map_u64 *m);
void map_u64_deinit(struct map_u64 *m);
void map_u64_reset(struct map_u64 *m); /* empties; keeps the memory if of use */
void map_u64_reserve(struct map_u64 *m, size_t n);
/* The value under key, or MAP_U64_EMPTY. */
uint32_t map_u64_get(const struct map_u64 *m, uint64_t key);
/* Returns the value already there, or stores `val` and returns MAP_U64_EMPTY. */
uint32_t map_u64_put(struct map_u64 *m, uint64_t key, uint32_t val);
/* Bytes held. */
size_t map_u64_bytes(const struct map_u64 *m);

struct map_str;
struct map_str *map_str_new(void);
/* Simulation only: all maps made from now on go over their keys in an order that depends on nothing
 * but the keys; it is the address of a map that decides otherwise. 0: as usual. */
void map_str_fix_seed(uint64_t seed);
void map_str_free(struct map_str *m); /* NULL is fine; values are the caller's */
size_t map_str_len(const struct map_str *m);
void *map_str_get(const struct map_str *m, struct str key); /* NULL if absent */
/* Stores; returns the value it replaced (the old key stays in place then), or NULL. */
void *map_str_put(struct map_str *m, struct str key, void *val);
/* For rows that are found by name: the index that was stored for the key; where the key is new,
 * `next`, which is stored. The map holds such indexes alone. */
size_t map_str_index(struct map_str *m, struct str key, size_t next);
void *map_str_del(struct map_str *m, struct str key); /* the value removed, or NULL */
/* Iteration in no particular order: start with *pos = 0; false at the end. No changes meanwhile. */
bool map_str_next(const struct map_str *m, size_t *pos, struct str *ret_key, void **ret_val);

#endif
