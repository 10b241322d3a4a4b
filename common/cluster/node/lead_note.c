/* SPDX-License-Identifier: Apache-2.0
 *
 * lead_note: keeps what the line says until the change is known to be done. Names are copied,
 * because the record they come from is gone by then.
 */
#include "common/cluster/node/lead_note.h"

#include "common/obs/log.h"

static void copy_name(char to[NODE_NAME_MAX + 1], const char *name)
{
    memset(to, 0, NODE_NAME_MAX + 1);
    memcpy(to, name, MIN(strlen(name), (size_t)NODE_NAME_MAX));
}

void lead_note_set(struct lead_note *n, const struct repl_record *now,
                   const struct repl_record *next, const char *why)
{
    n->why = why;
    n->term = next->term;
    copy_name(n->from, now->leader);
    copy_name(n->to, next->leader);
}

void lead_note_log(const struct lead_note *n, uint32_t shard)
{
    if (n->why)
        log_info("a shard has a new leader", KV_U64("shard", shard), KV_U64("term", n->term),
                 KV_CSTR("from", n->from), KV_CSTR("to", n->to), KV_CSTR("why", n->why));
}
