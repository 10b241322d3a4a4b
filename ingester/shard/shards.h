/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.h: the shards this ingester may serve, and which of them it serves now. Each has a place
 * that is its own until its copy leaves this node; its `struct shard` comes and goes.
 */
#ifndef INGESTER_SHARD_SHARDS_H
#define INGESTER_SHARD_SHARDS_H

#include "ingester/shard/shard.h"

#define SHARDS_MAX 128        /* places of one process: a RocksDB each */
#define SHARDS_NO  UINT32_MAX /* the number of a place without a shard */

struct shards;

struct shards_opts {
    struct loop *loop;
    bool simulated; /* no threads */
    bool moves;     /* a shard that is not here is somewhere else, not a wrong configuration */
};
struct shards *shards_new(const struct shards_opts *o);
/* Every shard was closed or freed. NULL is fine. */
void shards_free(struct shards *t);

/* ---- any thread ---- */
/* The shard, which is not closed before it was put back; NULL: it is not served here now
 * (ERR_UNAVAILABLE, the caller should ask who does; ERR_INPUT where shards never move). */
struct shard *shards_get(struct shards *t, uint32_t number, struct err *e);
void shards_put(struct shards *t, struct shard *s); /* NULL is fine */
/* Those named, or all that are served if none is; how many, all to be put back. -1: one of those
 * named is not here. */
int shards_get_all(struct shards *t, const uint32_t *numbers, size_t n,
                   struct shard *ret[SHARDS_MAX], struct err *e);
void shards_put_all(struct shards *t, struct shard *const *all, size_t n);

/* ---- loop ---- */
size_t shards_len(const struct shards *t);                 /* places */
struct shard *shards_at(const struct shards *t, size_t i); /* NULL: not served now */
uint32_t shards_number(const struct shards *t, size_t i);  /* of the place; or SHARDS_NO */
size_t shards_serving(const struct shards *t);
/* The place of a shard, a new one if it has none; SHARDS_MAX: there are too many. */
size_t shards_place(struct shards *t, uint32_t number);
/* Its place, if it has one, may become another shard's; it is not served, nor being closed. */
void shards_leave(struct shards *t, uint32_t number);
/* Serves it from now on; its place is free. */
void shards_open(struct shards *t, struct shard *s);
/* shards_get does not find it any more. When no thread holds it, its threads end and its database
 * is closed; then done is called. Work that is under way in the shard ends normally. */
void shards_close(struct shards *t, uint32_t number, void (*done)(void *cookie), void *cookie);

#endif
