/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_trim: care of a log: drops its old files, seals an idle log, and measures for how long log
 * and database have finished nothing.
 *
 * The log's prefix is dropped when the database was synced past it and all peers have it, while
 * leading; in any case when it passes log_bytes_max. When deleted data are gone from the database's
 * files (repl_node_shed), all of the log is dropped in the same way, however short it is: the next
 * entry begins a file, and older files are dropped once all members have their entries.
 *
 * Sealed: see rlog.c, "Torn or rotten?".
 */
#include "common/base/mem.h"
#include "common/repl/copy.h"
#include "common/repl/repl_node_impl.h"

#define SYNC_TICKS    80         /* two seconds */
#define SEAL_MS       1000       /* the log was idle for so long */
#define CALL_SLOWER   4          /* a checkpoint or a sync may take so much longer than an entry */
#define LOG_KEPT      (64 * MIB) /* of the log, even if all members have it */
#define LOG_BYTES_MAX GIB
#define GIVING        4 /* so much more while a copy is on its way to another node */

static void drop_upto(struct repl_node *n, uint64_t index)
{
    n->dropping = true;
    disk_log_op(n, LOG_DROP, index);
}

/* Entries have the bytes of what was deleted since. */
static void shed(struct repl_node *n, const struct replica_state *st)
{
    if (!n->rolled) {
        if (!n->rolling)
            disk_log_op(n, LOG_ROLL, 0);
        n->rolling = true;
        return;
    }
    if (n->applied >= n->rolled && n->synced < n->rolled)
        disk_sync_soon(n);
    if (n->dropping || n->synced < n->rolled || st->all_have < n->rolled)
        return;
    n->shed = false;
    if (n->rolled > st->base_index)
        drop_upto(n, n->rolled);
}

/* Once per group of writes that is followed by silence: what seals is not sealed itself. */
static void seal_idle(struct repl_node *n)
{
    if (!n->log_sealed && !n->log_out && node_now_ms(n) >= n->log_moved_ms + SEAL_MS)
        disk_log_op(n, LOG_SEAL, 0);
}

void disk_tick(struct repl_node *n)
{
    struct replica_state st = replica_state(n->r);
    uint64_t most = n->o.log_bytes_max ? n->o.log_bytes_max : LOG_BYTES_MAX;
    uint64_t upto = n->synced;

    seal_idle(n);
    if (repl_copy_giving(n)) /* else the log may not go back to what was copied, in the end */
        most *= GIVING;
    if (n->ticks % SYNC_TICKS)
        return;
    if (n->shed)
        shed(n, &st);
    if (n->applied > n->synced && n->log_bytes > MIN(LOG_KEPT, most) / 2)
        disk_sync_soon(n);
    if (n->dropping || n->log_bytes <= MIN(LOG_KEPT, most))
        return;
    if (n->log_bytes <= most)
        upto = st.role == REPLICA_LEADING ? MIN(upto, replica_all_have(n->r)) : 0;
    if (upto > st.base_index)
        drop_upto(n, upto);
}

struct repl_stall repl_node_stall(const struct repl_node *n)
{
    uint64_t now = node_now_ms(n);

    return (struct repl_stall){
        .log_ms = n->log_out ? now - n->log_moved_ms : 0,
        .apply_ms =
            n->apply_out ? (now - n->apply_moved_ms) / (n->apply_slow ? CALL_SLOWER : 1) : 0,
    };
}
