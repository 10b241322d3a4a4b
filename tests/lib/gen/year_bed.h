/* SPDX-License-Identifier: Apache-2.0
 *
 * year_bed.h: a store over RocksDB that lives through a simulated year: time is faked, work that
 * the shard thread and the compactor do is done as soon as it is due.
 */
#ifndef TESTS_LIB_GEN_YEAR_BED_H
#define TESTS_LIB_GEN_YEAR_BED_H

#include "common/store/build/build.h"
#include "common/sys/clock.h"
#include "tests/lib/gen/year.h"

struct year_bed_opts {
    const char *dir; /* its parent exists; NULL: a scratch folder, removed at the end */
    uint32_t slot;   /* engine time */
    uint64_t memory; /* shares as in the ingester; 0: 1 GiB */
    bool retention;  /* the default policy */
    bool reopen;     /* dir holds a database: open it */
};
struct year_bed {
    struct year_bed_opts o;
    char *dir;        /* owned */
    char shard[4096]; /* the database in it, where an ingester looks for it */
    struct clock_fake clock;
    struct kv *kv; /* the store's */
    struct store *s;
    uint64_t profiles, values;
    double stage_s, commit_s, seal_s, build_s, retain_s; /* CPU of this thread; commit: wall */
};
void year_bed_open(struct year_bed *b, const struct year_bed_opts *o);
void year_bed_close(struct year_bed *b);
void year_bed_remove(struct year_bed *b); /* closes, and removes a scratch folder */
uint32_t year_bed_slot(const struct year_bed *b);
/* Advances time to this slot and runs all work that is due. */
void year_bed_advance(struct year_bed *b, uint32_t slot);
/* Seals, builds and retention until nothing is due. */
void year_bed_work(struct year_bed *b);

/* 20 pods as they push, every `slots`, in [from, to): engine time goes along. */
void year_bed_live(struct year_bed *b, struct year *y, uint32_t from, uint32_t to, uint32_t pods);
/* The same as old data, at one engine time: packed as messages of an import, checked as the
 * distributor checks them, decoded as the ingester decodes them; 1 minute each. A second thread
 * makes the messages. */
void year_bed_import(struct year_bed *b, struct year *y, uint32_t from, uint32_t to, uint32_t pods);

/* Old data again, but thin: `n` rounds of one minute from `from` on, `every` slots apart. */
void year_bed_import_at(struct year_bed *b, struct year *y, uint32_t from, uint32_t n,
                        uint32_t every, uint32_t pods);

struct year_answer {
    double ms; /* median CPU of this thread */
    uint64_t rows, series, total;
    size_t stacks, nodes;
};
/* store_merge of a Prometheus selector, `times` times. */
struct year_answer year_bed_merge(struct year_bed *b, const char *selector, uint32_t from,
                                  uint32_t to, uint32_t times);
/* One merge; *m with its stacks set, and to be deinitialised. */
void year_bed_ask(struct year_bed *b, const char *selector, uint32_t from, uint32_t to,
                  struct store_merge *m);
/* store_timeline with this step; points of all series. */
struct year_answer year_bed_timeline(struct year_bed *b, const char *selector, uint32_t from,
                                     uint32_t to, uint32_t step_slots, const char *group_by,
                                     uint32_t times);

/* Memtables to files, and waits until compactions are quiet. */
void year_bed_settle(struct year_bed *b);
/* Files in use by column family; returns the sum. */
uint64_t year_bed_bytes(struct year_bed *b, uint64_t ret[KV_CFS]);
const char *year_bed_family(enum kv_cf cf);
/* Prints bytes by column family and by level, with bytes per profile. */
void year_bed_print_bytes(struct year_bed *b, uint64_t profiles);

double year_wall_s(void);
double year_cpu_s(void); /* of this thread */
uint64_t year_rss(void); /* of this process now, bytes */

#endif
