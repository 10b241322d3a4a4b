/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.h: pieces of remote objects, kept in files of a folder up to so many bytes. One per
 * process; any thread. Its files may be deleted at any time by the cache, and by hand while no
 * process runs.
 */
#ifndef COMMON_COLD_CACHE_H
#define COMMON_COLD_CACHE_H

#include "common/object/object.h"

#define COLD_PIECE ((size_t)MIB) /* pieces of an object: read and kept whole */

struct cold_cache_opts {
    const char *dir;    /* made; holds nothing else. NULL: nothing is kept */
    uint64_t bytes_max; /* of all pieces */
    size_t handles_max; /* requests at once; 0: 8 */
    /* Opens one more handle of the object store, from any thread. */
    int (*open)(void *cookie, struct object_store **ret, struct err *e);
    void *cookie;
};
struct cold_cache;
struct cold_cache_stats {
    uint64_t bytes, pieces, hits, misses, evicted, failed;
};

/* Uses the pieces that an earlier process left in `dir`. */
NODISCARD int cold_cache_new(const struct cold_cache_opts *o, struct cold_cache **ret,
                             struct err *e);
void cold_cache_free(struct cold_cache *c); /* no thread may read any more; NULL is fine */
/* Bytes [at, at + len) of object `name`, which has `size` bytes. */
struct cold_range {
    struct str name; /* borrowed */
    uint64_t size, at;
    size_t len;
};
/* Reads the range to *out (replaced). Blocks while the object store answers: as long as cold_read.h
 * says. Errors of object_read; ERR_CORRUPT: the range passes the end of the object, or out->max. */
NODISCARD int cold_cache_read(struct cold_cache *c, const struct cold_range *r, struct buf *out,
                              struct err *e);
/* The bytes turned out to be wrong: the pieces are fetched again next time. */
void cold_cache_forget(struct cold_cache *c, struct str name, uint64_t at, size_t len);
void cold_cache_stats(struct cold_cache *c, struct cold_cache_stats *ret);

#endif
