/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore_bed.h: three processes with keystores on one simulated coordination service (or none),
 * each with a file in memory that stays over its restarts. Thread: one.
 */
#ifndef TESTS_LIB_IDENTITY_KEYSTORE_BED_H
#define TESTS_LIB_IDENTITY_KEYSTORE_BED_H

#include "common/cluster/coord/coord_sim.h"
#include "common/identity/keystore.h"

#define KEYSTORE_PREFIX  STR("/embertree")
#define KEYSTORE_CLUSTER STR("a secret of all processes of the cluster")

enum { KEYSTORE_BED = 3, KEYSTORE_LONG_MS = 20000 };

struct keystore_disk { /* one file; first member: the keystore gets its address */
    struct fs fs;
    struct buf bytes;
    bool there, fails;
    size_t writes;
};
struct keystore_one {          /* a process */
    struct keystore_disk disk; /* stays over a restart */
    struct env_sim env;
    struct registry *registry;
    struct keystore *store;
    struct coord *coord;
};
struct keystore_answer {
    bool ended, away;
    int code;
    char text[ERR_TEXT_MAX];
    bool in_file; /* a block: the file had it when the answer came */
    struct keystore_one *of;
    const char *id;
};
struct keystore_key {
    char text[KEY_TEXT_LEN + 1];
    char id[KEY_ID_LEN + 1];
};
struct keystore_bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct keystore_one at[KEYSTORE_BED];
    struct str cluster; /* its key */
    struct str others[1];
    size_t others_len;
    uint64_t seed;
};

/* `cluster`: the key of the cluster, or empty; coord: with a service. Nothing is started. */
void keystore_bed_open(struct keystore_bed *w, struct str cluster, bool coord);
void keystore_bed_all(struct keystore_bed *w); /* starts all; they know the service then */
void keystore_bed_close(struct keystore_bed *w);
int keystore_bed_try(struct keystore_bed *w, size_t i, struct err *e);
void keystore_bed_start(struct keystore_bed *w, size_t i); /* fails the test if it does not */
void keystore_bed_stop(struct keystore_bed *w, size_t i);
void keystore_bed_run(struct keystore_bed *w, uint64_t ms);

/* The keystore_fn of a struct keystore_answer. */
void keystore_bed_answer(void *cookie, const struct err *e, bool away);
/* The record of a key, which is made if it is empty. */
struct key_record *keystore_bed_record(struct keystore_one *p, struct keystore_key *key,
                                       unsigned roles, int64_t until);
void keystore_bed_add(struct keystore_one *p, struct keystore_key *key, struct keystore_answer *a);
void keystore_bed_block(struct keystore_one *p, const struct keystore_key *key,
                        struct keystore_answer *a);
enum credential_fault keystore_bed_prove(const struct keystore_bed *w, size_t i,
                                         const struct keystore_key *key);
/* All processes say so of the key. */
void keystore_bed_say(const struct keystore_bed *w, const struct keystore_key *key,
                      enum credential_fault want);
/* Adds a key by process i; all know it a second later. */
void keystore_bed_known(struct keystore_bed *w, size_t i, struct keystore_key *key);

#endif
