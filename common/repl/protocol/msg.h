/* SPDX-License-Identifier: Apache-2.0
 *
 * msg.h: the messages between the replicas of a shard (proto/repl.proto), and their bytes. They are
 * protobuf, written and read by hand: entries go from the log's memory into the payload by one copy
 * and not through a tree of objects.
 */
#ifndef COMMON_REPL_PROTOCOL_MSG_H
#define COMMON_REPL_PROTOCOL_MSG_H

#include "common/cluster/map/record.h"
#include "common/repl/log/entry.h"

enum repl_msg_kind {
    REPL_PREPARE =
        1, /* term: promise to take nothing of a lower one, and say how long your log is */
    REPL_PREPARED = 2,
    REPL_APPEND = 3, /* entries behind prev; none: a heartbeat */
    REPL_APPENDED = 4,
    REPL_FETCH = 5, /* what do you have behind prev? */
    REPL_FETCHED = 6,
};
struct repl_msg {
    enum repl_msg_kind kind;
    uint32_t shard;
    char from[NODE_NAME_MAX + 1];
    uint64_t ref; /* a reply has that of its request; never on the wire */
    uint64_t term;
    bool ok;                        /* replies; refused: term is what was promised */
    uint64_t prev_index, prev_term; /* append, fetch, fetched; a refusal: try behind this */
    uint64_t last_index, last_term; /* prepared: the log's end; appended: fsynced up to, matching */
    uint64_t commit;
    uint64_t round;      /* append: echoed */
    uint64_t seq;        /* append: echoed; the sender's count for this peer */
    uint64_t base;       /* prepared, fetched: the entry before the first one here */
    bool wants_snapshot; /* appended: the sender has no database */
    bool no_room;        /* appended: the sender's disk is as good as full */
    uint64_t reclaimed;  /* appended: replica_reclaimed; 0: nothing, or an older version */
    uint64_t all_have;   /* append: replica_all_have of the leader; 0: it is of an older version */
    /* If the sender does not trust its coordination service: the term of the record it knows,
     * and the version of its map. Else 0. */
    uint64_t known_term, known_map;
    struct repl_entry *const *entries;
    size_t entries_len;
};

#define REPL_ENTRIES_MAX 4096 /* in one message */
void repl_msg_write(const struct repl_msg *m, struct buf *out);
/* Reads a message; repl_msg_free drops its references of entries. ERR_INPUT, ERR_CORRUPT,
 * ERR_LIMIT. */
NODISCARD int repl_msg_read(struct str bytes, struct repl_msg *ret, struct err *e);
void repl_msg_free(struct repl_msg *m); /* of repl_msg_read or repl_msg_copy */
/* References to the entries in an array of its own. */
void repl_msg_copy(struct repl_msg *to, const struct repl_msg *from);

#endif
