/* SPDX-License-Identifier: Apache-2.0
 *
 * retain.h: how long rows of each level are kept, per tenant, service and profile type, and the
 * step that deletes older ones (TREE.md section 3).
 *
 * A policy is a default per level and rules, one per line:
 *
 *   # the data it is for           how long they are kept: names of levels = days, hours ...
 *   tenant=acme service=shop-*   10s=2d 1m=14d
 *   type=memory:*                1h=30d 6h=30d 1d=30d 8d=30d 64d=30d
 *
 * `tenant`, `service` and `type` (id of the profile type) may each be missing: any. A * matches any
 * text. All lines that match apply, each to the levels it names; later ones win. A coarser level is
 * kept at least as long as a finer one, whatever the lines say.
 */
#ifndef COMMON_STORE_RETAIN_RETAIN_H
#define COMMON_STORE_RETAIN_RETAIN_H

#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/state/floors.h"

struct store;

#define RETAIN_RULES_MAX 4096
#define RETAIN_TEXT_MAX  MIB

struct retain_keep {
    uint64_t ms[KEY_LEVELS];
};
/* 10 s 7 d, 1 m 30 d, 10 m 90 d, from 1 h up 400 d. */
struct retain_keep retain_keep_default(void);
/* "10s", "1m", ... "64d". */
const char *retain_level_name(uint32_t level);

/* Immutable; shared by reference. */
struct retain_policy;
struct retain_policy_opts {
    struct retain_keep keep;
    uint64_t interval_ms; /* between rounds over all services */
    struct str rules;     /* copied; empty: none */
    const char *file;     /* the rules' name in error texts */
};
/* ERR_CONFIG names the line and what is wrong with it. */
NODISCARD int retain_policy_new(const struct retain_policy_opts *o, struct retain_policy **ret,
                                struct err *e);
struct retain_policy *retain_policy_ref(struct retain_policy *p); /* NULL is fine, as below */
void retain_policy_unref(struct retain_policy *p);
size_t retain_policy_rules(const struct retain_policy *p);
/* Coarser levels at least as long as finer ones. */
struct retain_keep retain_policy_keep(const struct retain_policy *p, struct str tenant,
                                      struct str service, struct str type);
struct retain_keep retain_policy_default(const struct retain_policy *p);
uint64_t retain_policy_interval_ms(const struct retain_policy *p);
/* Computes the floors that a service and type with this policy should have now. If a bucket is at
 * most a quarter of the kept time, floors move bucket by bucket; else by at least a sixteenth of
 * the kept time. Rows may be kept that much longer. */
void retain_floors(const struct retain_keep *keep, int64_t engine_ms, struct floors *ret);
/* The slot before which nothing is answered: the age of the coarsest level, back to a multiple of a
 * 64th of it, so that it is written 64 times as time passes it once. Not below the floor of the
 * finest level that is kept as long: it can be cut there only at a node of that level. */
uint32_t retain_end(const struct retain_keep *keep, int64_t engine_ms);

/* ---- stage: shard thread ---- */

/* A service and type as a push names it. */
struct retain_of {
    struct member m; /* series unused */
    struct str tenant, service, type;
    bool fresh;     /* it has no rows at all yet: it will begin with the floors of its policy */
    bool committed; /* its first batch is */
};
/* ERR_INPUT not_in_ingestion_window: slot `low` is older than the kept time. */
NODISCARD int retain_admit(struct store *s, const struct retain_of *of, uint32_t low,
                           int64_t engine_ms, struct err *e);
/* Puts the floors of a fresh service and type into the batch of its first push. */
void retain_begin(struct store *s, const struct retain_of *of, int64_t engine_ms,
                  struct kv_batch *b);

/* ---- the step: shard thread ---- */

/* Takes a reference of its own; NULL: everything is kept. Goes to work at the next step. */
void store_set_retention(struct store *s, struct retain_policy *p);
/* A bounded step: moves floors that are due and deletes what is below them, purges what
 * whole-bucket deletes cannot reach, drops files and dictionary epochs nothing names any more.
 * *ret_more: call again soon. Does nothing while the clock is held. */
NODISCARD int store_retain(struct store *s, size_t rows_max, bool *ret_more, struct err *e);
uint64_t store_retain_wait_ms(const struct store *s);

struct retain_stats {
    uint64_t steps, floors_moved, held_back; /* held back: by marks of the next level */
    uint64_t ranges_deleted, rows_purged, epochs_dropped, file_drops;
    int64_t round_ms; /* engine time the last whole round ended; 0: none yet */
};
void store_retain_stats(struct store *s, struct retain_stats *ret); /* any thread */

#endif
