/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_stream.h: JSON whose long part is a flame graph or a comparison, in pieces: memory holds
 * the bars, never the text.
 *
 *      {head.. {"names":[..],"levels":[..],numbers} ..tail}
 *
 * Everything that may fail is done before it begins: once the first piece is sent only the client's
 * leaving ends it early. Pool thread.
 */
#ifndef QUERIER_OUTPUT_FLAME_STREAM_H
#define QUERIER_OUTPUT_FLAME_STREAM_H

#include "common/render/diff.h"
#include "querier/merge/merged.h"

struct flame_stream {
    bool message; /* of an RPC: {"flamegraph":{..}}, no head, no tail */
    bool two;     /* diff, not flame */
    struct flame flame;
    struct diff diff;
    struct merged trees[DIFF_SIDES]; /* names of bars are theirs; zeroed ones are fine */
    /* What stands before the graph's object, up to its key; and behind it, to the end: in steps of
     * about `want` bytes, true while there is more. */
    void (*head)(void *cookie, struct json *j);
    bool (*tail)(struct query *q, void *cookie, size_t want, struct json *j);
    void (*free)(void *cookie); /* may be NULL */
    void *cookie;
};
/* Moves all of *s, also where it fails. Last thing of the last step. */
NODISCARD int flame_stream(struct query *q, const struct flame_stream *s, struct err *e);

/* A tree laid out and cut, as s->flame. Moves *m. The memory for it is taken. */
NODISCARD int flame_stream_tree(struct query *q, struct merged *m, size_t max_nodes,
                                struct flame_stream *s, struct err *e);
/* Two trees, as s->diff. Moves both. */
NODISCARD int flame_stream_diff(struct query *q, struct merged m[DIFF_SIDES], size_t max_nodes,
                                struct flame_stream *s, struct err *e);

#endif
