/* SPDX-License-Identifier: Apache-2.0
 *
 * stacks.h: a set of call stacks as a parent-pointer tree over interned frames and strings.
 *
 *   string 0 = ""      frame = (function, file, line, module, address)      node 0 = the root
 *   node i = (parent < i, frame); a stack trace is the path from its node to the root
 *
 * The same shape travels in WriteRequest and MergeReply (proto/common.proto, message Stacks) and,
 * with ids of its own, stands in the dictionary of the store. A frame without symbols has function
 * "", module = build id or mapping file name, file = base name of the mapping's file where module
 * is
 * a build id (for people), address = offset in the file (a raw address only where there is no
 * mapping); with symbols module is the mapping's file name, and the address is the line at which
 * the function begins, 0 where that is not known (Go needs it to optimise by a profile).
 */
#ifndef COMMON_MODEL_STACKS_H
#define COMMON_MODEL_STACKS_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/vec.h"

struct frame {
    uint32_t func, file, module; /* string ids */
    uint32_t line;
    uint64_t addr;
};

/* Borrowed columns, as decoded from a message. Node and frame and string counts are separate;
 * columns of nodes start with node 1 (node_parent[0] belongs to node 1). */
struct stacks_view {
    struct str string_data;     /* all strings, one after the other */
    const uint32_t *string_len; /* string i has string_len[i] bytes; string 0 has none */
    size_t strings;
    const uint32_t *frame_func, *frame_file, *frame_line, *frame_module;
    const uint64_t *frame_addr;
    size_t frames;
    const uint32_t *node_parent, *node_frame;
    size_t nodes; /* without the root */
};
/* Every reference in range, parents before children, lengths add up. ERR_INPUT otherwise. */
NODISCARD int stacks_view_check(const struct stacks_view *v, struct err *e);

/* Interning builder. Equal strings, frames and nodes get equal ids, in order of first sight.
 * Budget: an entry that would exceed `bytes_max` is not added and gives STACKS_FULL; entries added
 * earlier are still found, and a builder that was full once stays consistent. A STACKS_FULL given
 * as parent or frame comes back, so that a loop may check at its end. */
struct stacks {
    struct buf string_data;
    VEC(uint32_t) string_len;
    VEC(uint32_t) string_off;
    VEC(uint32_t) frame_func;
    VEC(uint32_t) frame_file;
    VEC(uint32_t) frame_line;
    VEC(uint32_t) frame_module;
    VEC(uint64_t) frame_addr;
    VEC(uint32_t) node_parent;
    VEC(uint32_t) node_frame;
    struct map_u64 string_ids; /* content hash -> id; contents are compared, clashes re-probed */
    struct map_u64 frame_ids;
    struct map_u64 edges; /* (parent << 32 | frame) ^ seed -> node */
    uint64_t seed;
    size_t bytes; /* charged so far */
    size_t bytes_max;
};
#define STACKS_FULL UINT32_MAX

void stacks_init(struct stacks *s, size_t bytes_max, uint64_t seed);
void stacks_deinit(struct stacks *s);
void stacks_reset(struct stacks *s); /* keeps memory and seed */
/* Nothing more is added: frees what only finding needs. Views are made as before. */
void stacks_close(struct stacks *s);
/* Makes room for about so much; it may still become more or less. */
struct stacks_room {
    size_t strings, string_bytes, frames, nodes;
};
void stacks_reserve(struct stacks *s, const struct stacks_room *room);
uint32_t stacks_string(struct stacks *s, struct str v);
uint32_t stacks_frame(struct stacks *s, const struct frame *f);
/* STACKS_FULL: it is not there; nothing is added. */
uint32_t stacks_frame_known(const struct stacks *s, const struct frame *f);
uint32_t stacks_node(struct stacks *s, uint32_t parent, uint32_t frame);
/* The same, but STACKS_FULL for an edge that is not there. */
uint32_t stacks_node_known(const struct stacks *s, uint32_t parent, uint32_t frame);
/* Appends n > 0 nodes below each other without looking whether they are there: frames[n - 1] below
 * parent, frames[0] the last, whose node is returned. For callers that find edges themselves (leaf
 * first, as profiles have them); they must not use stacks_node and stacks_merge on s then. */
uint32_t stacks_chain_new(struct stacks *s, uint32_t parent, const uint32_t *frames, size_t n);
struct str stacks_string_at(const struct stacks *s, uint32_t id);
/* Borrows; valid until the next change. */
struct stacks_view stacks_view(const struct stacks *s);
/* Adds all of v, which was checked; ret_map[i] (v->nodes + 1 entries) = node of node i here.
 * ERR_LIMIT over the budget: entries added until then stay, unused. */
NODISCARD int stacks_merge(struct stacks *s, const struct stacks_view *v, uint32_t *ret_map,
                           struct err *e);
/* Bytes charged against bytes_max: contents plus table slots. Spare capacity of growing arrays can
 * make the memory held up to twice as much. */
size_t stacks_bytes(const struct stacks *s);

#endif
