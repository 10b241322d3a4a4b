/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_late_push: refuses copies of a push that were under way while it was deleted.
 *
 * A client that gets no answer sends again, a distributor sends a second copy if an answer is late,
 * and a network delivers late or twice. So after a delete was acked, a copy of a push that was
 * acked before the delete may still arrive. Such a copy is, bit by bit, the same as the push of a
 * client that wants the deleted data back. Only time tells them apart. So for a limited time (the
 * guard) both are refused with ERR_BUSY, "try again". For a late copy no client waits for the
 * answer. A client that sends on purpose gets the error, tries again, and its push is stored after
 * the guard. Answering "duplicate" instead would lose the data of that client silently.
 *
 * How long. The copies of one request are sent before its `ack_timeout` (10 s) ends, each with the
 * remaining time as its deadline, which a relay passes on. An earlier attempt of a client under the
 * same key began before the attempt that was acked, and the client ended it after its own timeout.
 * So the guard must be at least ack_timeout + the timeout of clients + the time on the network; the
 * default is a minute.
 *
 * Which clock. The guard is measured by the leader's monotonic clock, from the delete on. A new
 * leader, or a restarted one, starts the guard again for the deletes of the last hour: wall clocks
 * may differ by more than the guard, and refusing for longer does no harm. The guard is not in the
 * database. Followers apply what the leader wrote, so replicas stay equal, and a leader of the
 * previous version reads the same rows and has no guard.
 *
 * What is remembered. Only the rows of `wid` themselves: those of sealed data are kept anyway, and
 * the delete keeps those of unsealed data (tomb_delete.c), for the horizon. Those of a deleted
 * tenant are stored under its old number until purging deletes them after the guard. This module
 * finds them by the tenant's name, and only during a guard.
 *
 * Thread: the shard's.
 */
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define OLD_MS (INT64_C(3600) * 1000) /* engine time: no clock is that wrong */

static uint64_t mono_ms(const struct store *s)
{
    return clock_mono_ms(s->o.clock);
}

void tomb_guard(struct store *s, struct tomb *t, bool found)
{
    if (found && t->created_ms < store_now(s) - OLD_MS)
        return;
    if (!s->o.delete_guard_ms)
        return;
    t->guard_until_ms = mono_ms(s) + s->o.delete_guard_ms;
    if (t->kind == TOMB_TENANT)
        s->tombs->tenants_until_ms = t->guard_until_ms;
}

bool tomb_guarded(const struct store *s, const struct tomb *t)
{
    return t->guard_until_ms && mono_ms(s) < t->guard_until_ms;
}

int tombs_late(const struct store *s, const struct tomb *t, struct err *e)
{
    uint32_t left_s;

    if (!tomb_guarded(s, t))
        return 0;
    left_s = (uint32_t)((t->guard_until_ms - mono_ms(s) + 999) / 1000);
    return err_set_again(
        e, ERR_BUSY, left_s,
        "this was stored and has been deleted: it may be a late copy; from %" PRIu32
        " s on it is taken as new",
        left_s);
}

int tombs_late_tenant(struct store *s, struct str tenant, const uint8_t wid[16], int64_t engine_ms,
                      struct err *e)
{
    struct tombs *all = s->tombs;
    struct wid_row row;
    bool known = false;
    int rc = 0;

    if (!all->tenants_until_ms)
        return 0;
    if (mono_ms(s) >= all->tenants_until_ms) {
        all->tenants_until_ms = 0;
        return 0;
    }
    for (size_t i = all->at.len; !rc && i > 0; i--) {
        const struct tomb *t = all->at.ptr[i - 1];
        if (t->kind != TOMB_TENANT || !str_eq(t->name, tenant) || !tomb_guarded(s, t))
            continue;
        rc = wids_known(s->wids, &(struct wid_arrival){ t->tenant, wid, engine_ms }, &known, &row,
                        e);
        if (!rc && known)
            rc = tombs_late(s, t, e);
    }
    return rc;
}
