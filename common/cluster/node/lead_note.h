/* SPDX-License-Identifier: Apache-2.0
 *
 * lead_note.h: the log line about a new leader: "a shard has a new leader shard=3 term=12 from=a
 * to=b why=...". The node that changed the record writes it, once the change is done, so that each
 * change of a leader has exactly one line, with its reason (deploy/docs/TROUBLE.md). Thread: the
 * loop's.
 */
#ifndef COMMON_CLUSTER_NODE_LEAD_NOTE_H
#define COMMON_CLUSTER_NODE_LEAD_NOTE_H

#include "common/cluster/map/record.h"

struct lead_note {
    const char *why; /* a constant; NULL: the leader stays, nothing is logged */
    uint64_t term;
    char from[NODE_NAME_MAX + 1], to[NODE_NAME_MAX + 1];
};

/* What `next` changes of `now`. */
void lead_note_set(struct lead_note *n, const struct repl_record *now,
                   const struct repl_record *next, const char *why);
void lead_note_log(const struct lead_note *n, uint32_t shard);

#endif
