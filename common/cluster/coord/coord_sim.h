/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_sim.h: a coordination service in memory, for tests and simulated clusters: one site, many
 * clients, on one loop. It has the rules of etcd: revisions, transactions, leases, watches that
 * catch up or begin from the start. It can be given faults: delay, loss of requests and of answers,
 * a client cut off, the whole site away, history compacted, an old backup or nothing in its place.
 * Seeded: a run depends on its inputs alone.
 */
#ifndef COMMON_CLUSTER_COORD_COORD_SIM_H
#define COMMON_CLUSTER_COORD_COORD_SIM_H

#include "common/base/prng.h"
#include "common/cluster/coord/coord.h"
#include "common/sys/loop.h"

struct coord_site;
struct coord_faults {
    uint64_t delay_min_ms, delay_max_ms; /* each way */
    double lose_request, lose_reply;     /* probabilities; the caller sees ERR_TIMEOUT */
    bool no_fence; /* records of shards change without comparing: to see that tests notice */
};

struct coord_site *coord_site_new(struct loop *loop, uint64_t seed);
void coord_site_free(struct coord_site *s); /* its clients are freed; NULL is fine */
void coord_site_faults(struct coord_site *s, const struct coord_faults *f);
/* While away nothing is answered and no lease ends; afterwards all leases have their full time. */
void coord_site_away(struct coord_site *s, bool away);
/* Watches say nothing, all else is answered. */
void coord_site_mute(struct coord_site *s, bool mute);
/* Forgets what changed before now: watches that are behind get everything again. */
void coord_site_compact(struct coord_site *s);
/* A backup of all keys and leases. */
struct coord_backup;
struct coord_backup *coord_site_backup(const struct coord_site *s);
void coord_backup_free(struct coord_backup *b); /* NULL is fine */
/* Replaces the site's data by those of the backup, or (NULL) by none. Watches that have seen later
 * revisions get all keys; a watch that has seen just as many gets no event, as with etcd. */
void coord_site_restore(struct coord_site *s, const struct coord_backup *b);
/* The key's value now: NULL, or borrowed until the next change. */
const struct coord_kv *coord_site_get(const struct coord_site *s, struct str key);
int64_t coord_site_rev(const struct coord_site *s);
/* As another client would put it, at once. */
void coord_site_put(struct coord_site *s, struct str key, struct str value);
void coord_site_del(struct coord_site *s, struct str key);

struct coord *coord_sim_new(struct coord_site *s);
/* Cut off: its requests and answers are lost, its watches wait. */
void coord_sim_cut(struct coord *c, bool cut);

#endif
