/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h: what readers see (view.c).
 */
#ifndef COMMON_STORE_STATE_VIEW_H
#define COMMON_STORE_STATE_VIEW_H

#include "common/store/state/hot.h"
#include "common/store/store.h"

struct dict_cache;
struct shown;
struct store_view {
    struct store *s;
    struct shown *shown; /* referenced */
    struct kv *kv;       /* this and dicts are the store's, and stay while there are views */
    struct dict_cache *dicts;
    struct kv_snap *snap; /* of shown */
    struct hot_state hot;
    int64_t engine_ms; /* no later than what it shows */
};

void view_open(struct store *s);    /* after the high-water marks are read */
void view_close(struct store *s);   /* NULLs are fine */
void view_publish(struct store *s); /* holding `write` */
/* Numbers of the newest snapshot, which shows all that was written, and of the oldest that is still
 * read. view_latest is for the shard's thread. */
uint64_t view_latest(struct store *s);
uint64_t view_oldest(struct store *s);

/* ERR_CANCELED. Lets others go first, too (pool_slice): polled where no lock is held. */
NODISCARD int store_check_canceled(const atomic_bool *cancel, struct err *e);

#endif
