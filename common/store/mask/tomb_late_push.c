/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_late_push: copies of a push that were under way while it was deleted.
 *
 * A sender that heard nothing sends again, a distributor sends a second copy where an answer is
 * late, and a network delivers late or twice. So after a delete was acked there may still come what
 * was acked before it. Nothing in such a copy says so: it is, to the last bit, what somebody sends
 * who wants the deleted data back. Time alone tells them apart, so for a while (the guard) both are
 * refused with ERR_BUSY, "try again": nobody waits for the answer to a late copy, and who sends on
 * purpose is told, tries again, and is taken behind the guard. To call it a duplicate would lose
 * the data of the latter without a word.
 *
 * How long. The copies of one request are sent before its `ack_timeout` is over (10 s), each with
 * the time that is left to it, and a relay passes that on. A client's earlier attempt under the
 * same key began before the one that was acked, and it gave that up after its own patience. So
 * ack_timeout + the clients' patience + the time on the network; the default is a minute.
 *
 * Whose clock. The monotonic one of who leads, from the delete on; a new leader, or a restart,
 * begins anew for deletes of the last hour: wall clocks may differ by more than the guard, and to
 * refuse for longer does no harm. Nothing of this is in the database: followers apply what the
 * leader wrote, so replicas stay equal, and a leader of the version before reads the same rows and
 * has no guard.
 *
 * What is remembered. The rows of `wid` themselves: of sealed data they stand anyway, of unsealed
 * data the delete leaves them (tomb_delete.c), for the horizon. Those of a deleted tenant stand
 * under its old number, until purging takes them behind the guard; here they are looked for by the
 * tenant's name, only while such a guard lasts.
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
