/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_impl.h: what file_copy_send.c and file_copy_receive.c share. No other file includes it.
 */
#ifndef COMMON_REPL_COPY_IMPL_H
#define COMMON_REPL_COPY_IMPL_H

#include "common/repl/copy.h"
#include "common/repl/repl_job.h"
#include "common/repl/repl_node_impl.h"

enum {
    COPY_ASK_MS = 25000,        /* a piece may wait 20 s for its share of the rate */
    COPY_ASK_MOST_MS = 200000,  /* ... and longer where the line is that slow */
    COPY_KEEP_MS = 600000,      /* files that no replica asks for are removed */
    COPY_STALL_MS = 20000,      /* without a byte: another source may be taken, at the latest */
    COPY_STALL_LEAST_MS = 3000, /* ... at the earliest */
    COPY_OUT_MAX = 8,           /* copies for others, of a process */
    COPY_IN_MAX = 2,            /* copies coming in, of a process */
    COPY_WINDOW = 6,            /* pieces asked for and not written */
    COPY_SERVE_MAX = 64,        /* questions of others being answered, of a process */
    COPY_ROOM_MIN = 64 << 20,   /* free bytes beyond those of the copy */
};

struct pull;
struct making;
struct repl_copy {
    struct repl_node *n;
    char base[COPY_PATH_BYTES];
    /* giving */
    struct list outs;    /* of struct copy_out, oldest first */
    struct list offers;  /* of struct offer */
    struct list waiting; /* of struct serve: for their share of the rate */
    struct making *making;
    uint64_t ids;
    /* taking */
    struct pull *pull; /* NULL: none */
    bool leftover;     /* base/in holds files that no pull uses */
    bool clearing, emptying;
    uint64_t bad_id;              /* that copy came in, and its checks failed */
    bool tried;                   /* to continue a pull that an earlier process began */
    uint64_t leftover_ms;         /* since */
    char why[ERR_TEXT_MAX + 128]; /* why no copy comes in; "": it comes, or none is needed */
};

static inline uint64_t copy_now(const struct repl_node *n)
{
    return clock_mono_ms(loop_clock(n->loop));
}
/* Bytes copies may take on the volume. */
static inline uint64_t copy_room(const struct repl_node *n)
{
    return n->o.room ? n->o.room(n->o.cookie) : UINT64_MAX;
}
static inline bool copy_can(const struct repl_node *n)
{
    return n->copy && kv_has_files(n->o.db) && n->o.copied;
}

/* file_copy_send.c */
void copy_give_open(struct repl_copy *c);
void copy_give_tick(struct repl_copy *c);
void copy_give_stop(struct repl_copy *c);
void copy_give_free(struct repl_copy *c);
void file_copy_send(struct repl_copy *c, struct rpc_call *call, const struct copy_ask *a);
/* file_copy_receive.c */
void copy_take_open(struct repl_copy *c);
void copy_take_tick(struct repl_copy *c);
void copy_take_stop(struct repl_copy *c);
void copy_take_free(struct repl_copy *c);
/* Answers an offer. */
enum copy_state file_copy_receive(struct repl_copy *c, const struct copy_ask *a);

#endif
