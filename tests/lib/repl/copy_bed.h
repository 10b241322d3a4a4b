/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_bed.h: three replicas of one shard with RocksDB, over rpc, in one process and with real
 * threads, of which n0 begins with rows. Tests of copies by files have others learn from it, and
 * stop, fail or starve whom they like.
 */
#ifndef TESTS_LIB_REPL_COPY_BED_H
#define TESTS_LIB_REPL_COPY_BED_H

#include "common/repl/copy_files.h"
#include "common/repl/repl_node.h"
#include "tests/lib/net/rpc_bed.h"

enum {
    COPY_BED_NODES = 3,
    COPY_BED_LIMIT_MS = 240000,
    COPY_BED_SHARD = 7,
    COPY_BED_ROWS = 1500,
    COPY_BED_VALUE = 8192
};

struct copy_member {
    int number;
    char name[4], addr[128], db[400], log[400], base[400];
    struct rpc_node *rpc;
    struct repl_hub *hub;
    struct repl_node *node; /* NULL: stopped */
    bool gone, reopen, no_files;
    bool hold, held; /* the making of a copy */
    int opened, calls, fail_at, fail_code;
    uint64_t room;
};
struct copy_bed {
    struct rpc_bed bed;
    char *dir;
    struct copy_member m[COPY_BED_NODES];
    struct repl_record rec;
    bool posted, done;
    uint64_t from, upto, rate;
    struct err err;
};
extern struct copy_bed copy_bed;

/* n0 leads, alone. rate: bytes a second of copies; 0: no limit. */
void copy_bed_begin(uint64_t rate);
void copy_bed_end(void);
void copy_bed_hub_up(struct copy_member *m);
void copy_bed_node_up(struct copy_member *m);
void copy_bed_node_down(struct copy_member *m); /* waits until it is up before */
void copy_bed_tell_soon(void);                  /* all running nodes get copy_bed.rec */
/* n rows of these keys, by a thread, as soon as m leads. */
void copy_bed_writes(struct copy_member *m, uint64_t from, uint64_t n);
void copy_bed_learn(struct copy_member *m); /* it is a learner from now on */
/* Waits until m has what n0 has (n2, where n0 has ended), and compares row by row. */
void copy_bed_same_rows(struct copy_member *m);
uint64_t copy_bed_taken(void);  /* bytes */
uint64_t copy_bed_copies(void); /* that came in */

/* To wait for; the cookie is a member. */
bool copy_bed_leads(void *cookie);
bool copy_bed_caught_up(void *cookie);
bool copy_bed_some_taken(void *cookie); /* copy_bed.from bytes, by any node */

#endif
