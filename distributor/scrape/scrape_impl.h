/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_impl.h: what the files of this folder share; no other folder includes it.
 *
 * Thread: the loop's; scrape_run's body, prev, target and profile are read on the pool meanwhile
 * and do not change until its intake ended.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_IMPL_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_IMPL_H

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/net/client/http_multi.h"
#include "distributor/base/state.h"
#include "distributor/scrape/scrape.h"
#include "distributor/scrape/scrape_k8s.h"
#include "distributor/scrape/scrape_sched.h"
#include "distributor/scrape/scrape_targets.h"

#define SCRAPE_MAGIC       MAGIC('s', 'c', 'r', 'p')
#define SCRAPE_ENTRY_MAGIC MAGIC('s', 'c', 'r', 'e')
#define SCRAPE_ERROR_MAX   400

/* One state of configuration and discovery: what entries and runs point into. */
struct scrape_gen {
    size_t refs;
    struct scrape_conf *conf; /* owned */
    struct arena *arena;      /* owned */
};
void scrape_gen_drop(struct scrape_gen *g); /* NULL is fine */

struct scrape_body {
    struct buf bytes;
    size_t charged;
    int64_t at_ms; /* wall: when it was there */
};
struct scrape_run;
struct scrape_entry { /* one profile of one target */
    uint32_t magic;
    struct sched_entry sched;
    struct scrape *s;
    struct scrape_gen *gen; /* a reference */
    const struct scrape_job *job;
    const struct scrape_profile *profile;
    struct scrape_target target;
    uint64_t id;
    uint64_t seen;           /* number of the last sync that had it */
    struct scrape_body last; /* stored whole: what the next one is subtracted from; or empty */
    int64_t leaf;            /* where the last stored one is */
    struct scrape_run *run;  /* owned: being fetched or stored, or to be stored again */
    bool gone;               /* goes when the run ended */
    /* For people. */
    char error[SCRAPE_ERROR_MAX];
    uint64_t fetches, failures, took_ms, bytes;
    uint64_t left_out[PUSH_DROPS]; /* of the last one stored: distributor/base/left_out.h */
    int64_t tried_ms;
};

struct scrape_file {
    char *path;             /* owned */
    struct buf good;        /* its text when it could be used last */
    uint64_t seen_hash;     /* of the text seen last */
    bool seen, used, taken; /* taken: `good` is one, and be it empty */
    char error[SCRAPE_ERROR_MAX];
};

struct scrape_was {
    uint64_t id;
    struct scrape_body body;
};

struct scrape_metrics {
    struct metric_cell *targets, *running, *bytes, *skipped, *seconds, *memory, *config_ok,
        *left_out;
    struct metric *fetches; /* label outcome */
};

struct scrape {
    uint32_t magic;
    struct distributor *d;
    struct http_multi *client;
    struct sched *sched;
    struct timer *tick;
    struct budget memory;
    struct scrape_file config;
    VEC(struct scrape_file *) files;
    VEC(struct scrape_k8s *) k8s;      /* in the order of the configuration */
    VEC(struct scrape_gen *) k8s_gens; /* references: what each of them was made from */
    VEC(struct scrape_was) was;        /* entries saved before a restart, not claimed yet */
    uint64_t was_until_ms;             /* monotonic: then they go */
    VEC(struct scrape_entry *) entries;
    struct map_u64 by_id; /* their indexes */
    uint64_t syncs;
    uint64_t left_out; /* of the last sync: over the number of targets, or wrong ones */
    bool dirty;        /* discovery changed */
    bool stopped;
    struct scrape_metrics metrics;
};

/* scrape_run.c: begins a run of x; ends with scrape_ended. */
void scrape_run_start(struct scrape_entry *x);
void scrape_run_drop(struct scrape_run *r);     /* it must not be in work; NULL is fine */
void scrape_run_cancel(struct scrape_entry *x); /* if it is being fetched: it ends now */
void scrape_body_drop(struct scrape *s, struct scrape_body *b);
void scrape_ended(struct scrape_entry *x, bool ok);
void scrape_count(struct scrape *s, const char *outcome);
/* scrape_was.c: the file of last profiles, taken at the start and written at the end. */
void scrape_was_load(struct scrape *s);
void scrape_was_give(struct scrape *s, struct scrape_entry *x); /* to a new entry, if it has one */
void scrape_was_tick(struct scrape *s);
void scrape_was_drop(struct scrape *s);
void scrape_was_save(struct scrape *s);
/* scrape_api.c */
void scrape_routes(struct scrape *s);

#endif
