/* SPDX-License-Identifier: Apache-2.0
 *
 * reopen: lets a store take writes again after a failed write, in the same process.
 *
 * It is unknown what a failed write or fsync has left on disk. So the only way to continue is to
 * drop all state in memory and read it from disk: dictionaries, names, write ids, counters, clocks,
 * the sums of unsealed rows. Opening a store does that. So this closes the store and opens it again
 * in place, since other threads know the address of the store.
 *
 * Those threads are readers, and each holds a view. The gate (reader_gate.c) keeps new ones out and
 * waits for the others.
 *
 * If the database cannot be opened (the disk is still full, or it is damaged) the store stands on a
 * database that answers everything with the reason (kv_none.c), until the next try.
 */
#include "common/store/kv/kv_none.h"
#include "common/store/open.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/reader_gate.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

/* All but the gate, at which readers stand, and what they may read without it. Of that, figures
 * begin at 0 again; the engine time and the reason for being read-only stay until there are newer
 * ones. */
static void wipe(struct store *s)
{
    _Atomic uint64_t *const figures[] = {
        &s->committed,   &s->applied,     &s->rows_built,   &s->marks,       &s->marks_due,
        &s->overflow,    &s->raw_rows,    &s->series_count, &s->dict_nodes,  &s->saturated,
        &s->names_bytes, &s->stage_bytes, &s->stage_wants,  &s->share_dicts, &s->share_names,
        &s->share_hot,   &s->share_stage, &s->shrunk_to,    &s->exm_stored,  &s->exm_over,
        &s->exm_old,
    };

    static_assert(offsetof(struct store, gate) == 0, "the gate stands first");
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        atomic_store(figures[i], 0);
    for (size_t i = 0; i < KEY_LEVELS; i++)
        atomic_store(&s->nodes_built[i], 0);
    atomic_store(&s->build_lag_ms, 0);
    atomic_store(&s->build_lag_coarse_ms, 0);
    atomic_fetch_and(&s->shut, (uint8_t)~STORE_SHUT_READ_ONLY);
    memset((char *)s + offsetof(struct store, o), 0, sizeof(*s) - offsetof(struct store, o));
}

/* A store without a database; reading from it says why. */
static void stand_on_nothing(struct store *s, const struct store_opts *was, struct store_gate *g,
                             const struct err *why)
{
    struct store_opts o = *was;

    o.kv = kv_none_new(why);
    wipe(s);
    store_init(s, &o, g);
    view_open(s);
    store_set_read_only(s, why);
}

int store_reopen(struct store *s, int (*open)(void *cookie, struct kv **ret, struct err *e),
                 void *cookie, struct err *e)
{
    struct store_opts o = s->o;
    struct store_gate *g = s->gate;

    if (!gate_close(g))
        return err_set(e, ERR_BUSY, "shard %u is still being read", o.shard);
    struct retain_policy *policy = retain_policy_ref(s->retain->policy);
    if (store_read_only(s))
        atomic_fetch_or(&s->shut, STORE_SHUT_REOPENING);
    store_deinit(s);
    int rc = open(cookie, &o.kv, e);
    if (!rc) {
        wipe(s);
        store_init(s, &o, g);
        rc = store_load(s, e);
        if (rc)
            store_deinit(s);
    }
    if (rc)
        stand_on_nothing(s, &o, g, e);
    store_set_retention(s, policy); /* what was set after opening */
    retain_policy_unref(policy);
    atomic_fetch_and(&s->shut, (uint8_t)~STORE_SHUT_REOPENING);
    gate_open(g);
    return rc;
}
