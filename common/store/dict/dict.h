/* SPDX-License-Identifier: Apache-2.0
 *
 * dict.h: one epoch of one scope's dictionary in memory: strings, frames, nodes with dense ids in
 * order of first sight. Readers see an immutable prefix; the shard thread appends behind it.
 *
 * Threads: dict_strings/frames/nodes and the getters below from any thread that holds a reference
 * (dict_cache.h), for ids below a length read before. dict_append_* and dict_intern: see dict.c.
 */
#ifndef COMMON_STORE_DICT_DICT_H
#define COMMON_STORE_DICT_DICT_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"
#include "common/store/dict/dict_rows.h"
#include "common/store/kv/kv.h"
#include "common/sys/thread.h"

#define DICT_PAGE_BITS 8 /* entries per page; small, since most services are */
#define DICT_PAGE      (1u << DICT_PAGE_BITS)

/* An array whose elements never move: pages behind a directory that is replaced when it grows. */
struct dict_pages {
    _Atomic(char **) dir;
    uint32_t pages, cap;  /* of dir: used, room */
    VEC(char **) retired; /* directories readers may still look at */
};

struct dict_id {
    uint32_t tenant, scope, epoch;
};
struct dict_counts {
    uint32_t strings, frames, nodes;
};
struct dict_writer;

struct dict {
    struct dict_id id;
    uint64_t seed;                           /* of content hashes: the tenant's */
    _Atomic uint32_t strings, frames, nodes; /* published lengths; strings and nodes start at 1 */
    struct dict_pages string_at, frame_at, node_at;
    VEC(char *) blocks;    /* of string bytes */
    uint64_t string_bytes; /* in them; asked by the writer */
    size_t block_left;
    char *block_next;
    _Atomic size_t bytes;
    _Atomic size_t *bytes_all;  /* of the cache; counts this one too */
    VEC(uint32_t) tails[3];     /* by kind - 1: first ids of the rows in the last, open chunk */
    struct dict_writer *writer; /* shard thread; NULL unless open for writing */
    struct list sessions;       /* shard thread: dict_known.h; none unless open for writing */
    size_t sessions_len;

    /* The cache's. */
    _Atomic uint32_t refs;
    struct list lru;     /* guarded by the cache's lock */
    bool cached, pinned; /* " pinned: has or may get entries that are not committed */
    uint64_t seq;        /* shard thread: last batch that got entries of this */
    struct mutex load;   /* one loader at a time */
};

struct dict *dict_new(struct dict_id id, uint64_t seed, _Atomic size_t *bytes_all);
void dict_free(struct dict *d);

static inline void *dict_page_at(const struct dict_pages *p, uint32_t i, size_t size)
{
    char **dir = atomic_load_explicit(&p->dir, memory_order_acquire);
    return dir[i >> DICT_PAGE_BITS] + (i & (DICT_PAGE - 1)) * size;
}
static inline struct str dict_string(const struct dict *d, uint32_t id)
{
    return *(const struct str *)dict_page_at(&d->string_at, id, sizeof(struct str));
}
static inline const struct frame *dict_frame(const struct dict *d, uint32_t id)
{
    return dict_page_at(&d->frame_at, id, sizeof(struct frame));
}
static inline const struct dict_node *dict_node(const struct dict *d, uint32_t id)
{
    return dict_page_at(&d->node_at, id, sizeof(struct dict_node));
}
/* What may be read now. Acquire: the entries below are visible. */
static inline struct dict_counts dict_counts(const struct dict *d)
{
    return (struct dict_counts){
        .nodes = atomic_load_explicit(&d->nodes, memory_order_acquire),
        .frames = atomic_load_explicit(&d->frames, memory_order_acquire),
        .strings = atomic_load_explicit(&d->strings, memory_order_acquire),
    };
}

/* Reads the rows behind the loaded ones, up to `want`. Caller holds d->load, or is alone with d. */
NODISCARD int dict_load(struct dict *d, struct kv *kv, const struct kv_snap *snap,
                        struct dict_counts want, struct err *e);

/* For the files of this module: append behind everything, then make it visible. */
void dict_charge(struct dict *d, size_t bytes);
void dict_discharge(struct dict *d, size_t bytes);
void dict_put_string(struct dict *d, uint32_t id, struct str s);
void dict_put_frame(struct dict *d, uint32_t id, const struct frame *f);
void dict_put_node(struct dict *d, uint32_t id, struct dict_node n);
void dict_publish(struct dict *d, struct dict_counts n);
/* Strings and nodes have an entry 0 that is not stored; so their first row begins with 1. */
uint32_t dict_first_stored(enum key_dict kind);
uint32_t dict_chunk_first(enum key_dict kind, uint32_t id);

/* ---- writing: shard thread ---- */

/* Builds the tables that find ids by content. hash_mask cuts hashes (tests); usually all ones. */
void dict_open_writer(struct dict *d, uint64_t hash_mask);
void dict_close_writer(struct dict *d);
static inline bool dict_writable(const struct dict *d)
{
    return d->writer != NULL;
}

/* Memory of one request, kept from one to the next. */
struct dict_scratch {
    VEC(uint32_t) string_map;
    VEC(uint32_t) frame_map;
    VEC(uint32_t) node_map; /* request's node -> id here, where used[] is set */
    VEC(uint8_t) used;      /* nodes of the request to intern; parents are added */
    VEC(uint32_t) string_off;
    struct buf row;
};
void dict_scratch_init(struct dict_scratch *x);
void dict_scratch_deinit(struct dict_scratch *x);
/* Sets x->used to zeros for v. */
void dict_scratch_begin(struct dict_scratch *x, const struct stacks_view *v);
/* Interns the used nodes of v and everything they need; fills x->node_map. Cannot fail. */
void dict_intern(struct dict *d, const struct stacks_view *v, struct dict_scratch *x);
/* The same with at most new_max new nodes, one less for each DICT_NAME_BYTES of new names: a stack
 * that would need more becomes its longest known beginning and a frame DICT_OVERFLOW below; used[]
 * of its node is DICT_OVER then. Returns how many nodes of v lost their name first of their stack.
 * Several nodes of v may become one. */
#define DICT_OVERFLOW   "[overflow]"
#define DICT_OVER       2
#define DICT_NAME_BYTES 64 /* more than nearly all have */
size_t dict_intern_capped(struct dict *d, const struct stacks_view *v, struct dict_scratch *x,
                          uint32_t new_max);
/* One entry, found or appended, of a dictionary that is open for writing; dict_publish_added makes
 * what was appended visible. */
uint32_t dict_add_string(struct dict *d, struct str s);
uint32_t dict_add_frame(struct dict *d, const struct frame *f);
uint32_t dict_add_node(struct dict *d, struct dict_node n);
void dict_publish_added(struct dict *d);
/* Puts rows of the entries the batches before have not, and the epoch row. */
void dict_emit(struct dict *d, struct dict_scratch *x, struct kv_batch *b);
/* The epoch row alone: closed, or that of a new empty epoch. */
void dict_emit_epoch(const struct dict *d, bool closed, struct kv_batch *b);
NODISCARD int dict_epoch_read(struct str row, bool *ret_closed, struct dict_counts *ret,
                              struct err *e);
/* Residue of the content hash of a node, for fingerprints (fp.h). */
uint64_t dict_node_hash(const struct dict *d, uint32_t node);
/* Those of all nodes, by id; until the next one is added. */
const uint64_t *dict_node_hashes(const struct dict *d);

#endif
