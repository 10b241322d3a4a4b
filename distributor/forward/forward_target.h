/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_target.h: one server that gets pushes: its spool and the threads that empty it.
 */
#ifndef DISTRIBUTOR_FORWARD_FORWARD_TARGET_H
#define DISTRIBUTOR_FORWARD_FORWARD_TARGET_H

#include "common/base/json.h"
#include "common/obs/metrics.h"
#include "common/sys/env.h"
#include "distributor/forward/forward_conf.h"
#include "distributor/forward/spool.h"

struct forward_target_opts {
    struct env *env;
    struct metrics *metrics;
    const char *dir; /* its spool goes to <dir>/<name> */
    uint64_t reserve_bytes;
    size_t record_max;
};
struct forward_target;

/* Opens the spool and begins to send what is in it. conf is referenced, not taken. */
NODISCARD int forward_target_new(const struct forward_target_opts *o,
                                 struct forward_target_conf *conf, struct forward_target **ret,
                                 struct err *e);
struct forward_target *forward_target_ref(struct forward_target *t); /* any thread */
void forward_target_unref(struct forward_target *t);                 /* any thread */
const char *forward_target_name(const struct forward_target *t);
/* The conf in use: give its owner back by forward_conf_unref. Any thread. */
struct forward_target_conf *forward_target_conf(struct forward_target *t);
/* Rules of the target left out so many profiles. Any thread. */
void forward_target_left_out(struct forward_target *t, uint64_t profiles);
/* The push could not be made into requests, and stays here. Any thread. */
void forward_target_unmade(struct forward_target *t, const struct err *why);

/* The rest is called by one thread, which writes the spools. */
void forward_target_set_conf(struct forward_target *t, struct forward_target_conf *conf);
/* What cannot be spooled is counted and logged: the push itself is stored here. */
void forward_target_append(struct forward_target *t, struct str record, int64_t at_ms);
void forward_target_sync(struct forward_target *t);
/* Each second: syncs where that is the policy, sets gauges. */
void forward_target_tick(struct forward_target *t);
/* Joins its threads, which cancel their requests; the spool stays on disk. */
void forward_target_stop(struct forward_target *t);
/* Any thread. */
void forward_target_status(struct forward_target *t, int64_t now_ms, struct json *j);

#endif
