/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.h: a whole replicated cluster in one process and one thread: ingesters, distributors,
 * queriers and compactors (the roles, as in production), with a coordination service, a network,
 * clocks and disks that are simulated; clients that push, read and delete over HTTP; an oracle that
 * knows what was pushed, acked, deleted and read. A run is a function of its seed: tests/sim.
 */
#ifndef TESTS_LIB_SIM_SIM_H
#define TESTS_LIB_SIM_SIM_H

#include "common/base/base.h"

/* What happened: name, and whether 100 seeds in which it never happens are wrong. */
#define SIM_COUNTS(X)        \
    X(pushes, true)          \
    X(acked, true)           \
    X(late, true)            \
    X(pprof, true)           \
    X(retries, true)         \
    X(not_acked, true)       \
    X(reads, true)           \
    X(reads_failed, true)    \
    X(deletes, true)         \
    X(deletes_in_part, true) \
    X(timelines, true)       \
    X(lists, true)           \
    X(kills, true)           \
    X(power_cuts, true)      \
    X(restart_cuts, true)    \
    X(blackouts, true)       \
    X(all_dark, true)        \
    X(zones_dark, true)      \
    X(zones_lost, true)      \
    X(resized, true)         \
    X(held, true)            \
    X(other_crashes, true)   \
    X(partitions, true)      \
    X(one_way, true)         \
    X(slow_peers, true)      \
    X(storms, true)          \
    X(coord_away, true)      \
    X(coord_faults, true)    \
    X(coord_forgets, true)   \
    X(coord_old, false)      \
    X(recovered, true)       \
    X(left_out, false)       \
    X(skews, true)           \
    X(log_errors, true)      \
    X(kv_errors, true)       \
    X(refusals, true)        \
    X(databases_lost, true)  \
    X(snapshot_parts, true)  \
    X(copies, true)          \
    X(copies_cut, true)      \
    X(copies_damaged, true)  \
    X(copies_full, true)     \
    X(copies_alone, true)    \
    X(copy_errors, true)     \
    X(copy_sources, true)    \
    X(disks_full, true)      \
    X(disks_slow, true)      \
    X(disks_hung, true)      \
    X(hung_moved, true)      \
    X(disks_replaced, true)  \
    X(rots, true)            \
    X(rot_found, true)       \
    X(holes, true)           \
    X(holes_found, true)     \
    X(isolated, true)        \
    X(aimed_acks, true)      \
    X(aimed_votes, true)     \
    X(aimed_changes, true)   \
    X(blinks, true)          \
    X(late_frames, true)     \
    X(missed_records, true)  \
    X(between, true)         \
    X(between_served, true)  \
    X(places_cut, true)      \
    X(places_late, true)     \
    X(joins, true)           \
    X(drains, true)          \
    X(left, true)            \
    X(lost_for_good, true)   \
    X(removed, true)         \
    X(frames, true)          \
    X(frames_lost, true)     \
    X(frames_repeated, true) \
    X(spread, true)          \
    X(seals, true)           \
    X(builds, true)          \
    X(fenced, false)         \
    X(served, true)          \
    X(duplicates, true)      \
    X(forgetful, true)       \
    X(retention, true)       \
    X(cold_worlds, true)     \
    X(cold_faults, true)     \
    X(cold_buckets, true)    \
    X(cold_backups, true)    \
    X(cold_deleted, true)    \
    X(restores, true)        \
    X(objects, true)         \
    X(objects_deleted, true) \
    X(objects_late, true)    \
    X(object_requests, true) \
    X(object_errors, true)   \
    X(rows_equal, true)      \
    X(simulated_s, true)

#define SIM_FIELD(name, must) uint64_t name;
struct sim_stats {
    SIM_COUNTS(SIM_FIELD)
};
#undef SIM_FIELD

/* What is broken on purpose, to see that the oracle notices. The low numbers are switches of the
 * simulated world; from SIM_REPLICA on, those of common/repl (enum replica_mutant) and of places
 * (enum placement_guard_mutant). */
enum sim_mutant {
    SIM_NONE,
    SIM_NEW_KEYS,        /* clients repeat pushes under other keys */
    SIM_NO_WRITE_IDS,    /* write ids are not kept */
    SIM_SYNC_LIES,       /* fsync says that it is done */
    SIM_NO_FENCE,        /* the coordination service changes whatever it is asked to */
    SIM_SWAPPED,         /* one replica applies two entries in the wrong order, at random */
    SIM_SKIPPED,         /* one replica leaves out an entry, at random */
    SIM_HALF_SNAPSHOT,   /* a snapshot comes without one column family */
    SIM_BUCKET_FORGETS,  /* an object of the cold tier is gone some time after it was written */
    SIM_HALF_COPY,       /* a copy by files comes without one */
    SIM_OLD_BACKUP,      /* none is written before all is lost */
    SIM_ONE_ANSWER,      /* a lost coordination service is filled with what one node keeps */
    SIM_LATE_AGAIN,      /* clients repeat pushes when their write ids are forgotten */
    SIM_ZONES_LIE,       /* nodes are not in the zones they say */
    SIM_UNCONFIRMED,     /* a place changes at once, and no node is asked */
    SIM_ROT_TORN,        /* damage in a log is taken for its end */
    SIM_REOPEN_UNSYNCED, /* a database that is opened again does not sync what it finds */
    SIM_HOLE_SERVED,     /* a database with a hole is opened as if it had none */
    SIM_WORLD_MUTANTS,
    SIM_REPLICA = 100, /* + the number of the bit */
    SIM_MUTANTS = 132,
};

struct sim_opts {
    uint64_t seed;
    int mutant;
};
struct sim_result {
    const char *broken; /* NULL: all went right */
    char text[1000];    /* more on it */
    struct sim_stats stats;
};
void sim_run(const struct sim_opts *o, struct sim_result *ret);

void sim_stats_add(struct sim_stats *to, const struct sim_stats *s);
/* "pushes=12 acked=11 ...", without a newline. */
void sim_stats_text(const struct sim_stats *s, char *ret, size_t size);
/* The first event that must happen and did not; NULL: none. */
const char *sim_stats_missing(const struct sim_stats *s);
/* 0 for SIM_NONE's name and unknown ones. */
int sim_mutant_by_name(const char *name);
const char *sim_mutant_name(int mutant);
bool sim_mutant_of_places(int mutant);
/* A whole cluster does not show it: tests/sim/README.md says why. */
bool sim_mutant_unseen(int mutant);

#endif
