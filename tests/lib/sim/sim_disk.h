/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_disk.h: the disk of a simulated ingester: databases that outlive the role, and the files of
 * replication logs. It can fail, be full, lose power, or be taken away. Databases have files where
 * that is asked for: sim_files.h.
 */
#ifndef TESTS_LIB_SIM_SIM_DISK_H
#define TESTS_LIB_SIM_SIM_DISK_H

#include "common/base/vec.h"
#include "common/repl/copy_files.h"
#include "common/repl/log/rlog_fs.h"
#include "common/role/core/role.h"
#include "common/store/kv/kv_impl.h"
#include "tests/lib/repl/rlog_fake.h"
#include "tests/lib/sim/sim.h"
#include "tests/lib/sim/sim_files.h"

#define SIM_SHARDS_MAX 4

struct sim_disk;
struct sim_kv { /* a kv whose close does nothing */
    struct kv kv;
    struct sim_disk *disk;
    struct kv *inner;        /* NULL: no database */
    struct kv *ghost;        /* removed; a power cut may bring it back */
    int failed;              /* a write failed with this: so do all until it is opened again */
    uint64_t fail_writes_in; /* 1: the next; 0: none */
    uint64_t fail_gets_in;
    int fail_code;
    bool holed, ghost_holed; /* rows are missing, and opening it says so */
    uint64_t tick;           /* of mutants */
    struct kv_batch *held;   /* SIM_SWAPPED */
};
#define SIM_KEPT "cluster.json"
struct sim_disk {
    struct kv_source source; /* hand out this */
    struct rlog_fs fs;       /* and this */
    struct fs files;         /* and this */
    struct buf kept;         /* SIM_KEPT as written last: all or nothing, at once durable */
    struct rlog_fake *log;
    struct sim_kv kvs[SIM_SHARDS_MAX];
    struct prng p;
    struct sim_stats *stats;
    int mutant;
    bool odd;  /* mutants that change one replica change this one */
    bool dead; /* nothing changes any more, everything fails */
    bool full;
    bool hung;         /* nothing that is fsynced or applied returns */
    uint64_t unsynced; /* writes to the log since its last fsync */
    uint32_t slow_ms;  /* a group's fsync takes up to so long; 0: a few ms */
    struct {
        char path[100]; /* of a log's file that is damaged; "": none is */
        uint32_t shard;
        bool aside; /* it was found, and that log has gone */
    } rot;
    bool forget; /* databases, not logs, go with the next crash */
    bool holes;  /* databases have holes after the next power cut */
    /* Files, for copies. */
    char dir[SIM_FILES_DIR + 40]; /* "": databases have none */
    struct copy_faults copies;
    uint64_t fail_copy_in;                        /* as fail_writes_in */
    VEC(uint64_t) synced;                         /* paths, by their hashes */
    void (*begins)(void *cookie, uint32_t shard); /* a copy begins to come in; NULL: not needed */
    void *begins_cookie;
};
/* No other disk in this process has this seed. `files`: databases can be copied as files. */
void sim_disk_init(struct sim_disk *d, uint64_t seed, int mutant, bool files,
                   struct sim_stats *stats);
void sim_disk_deinit(struct sim_disk *d);
/* After the role has ended: decides which bytes are left when it starts again. */
void sim_disk_kill(struct sim_disk *d);      /* the process died */
void sim_disk_power_cut(struct sim_disk *d); /* the machine did */
/* `to` becomes the disk of who starts again while the process that had `d`, which is dead, has not
 * ended yet. */
void sim_disk_fork(const struct sim_disk *d, struct sim_disk *to, uint64_t seed, bool power);
/* Everything on it is gone. Nothing is open. */
void sim_disk_wipe(struct sim_disk *d);
/* One error soon: of the log's files, or of a database. */
void sim_disk_fail_log(struct sim_disk *d);
void sim_disk_fail_kv(struct sim_disk *d);
/* Something old in the log of that shard is not what it was; false: it has nothing old. */
bool sim_disk_rot(struct sim_disk *d, uint32_t shard);
/* No error is to come any more. */
void sim_disk_calm(struct sim_disk *d);
bool sim_disk_sound(const struct sim_disk *d); /* and none has come that lasts */
uint32_t sim_disk_number(const char *dir);     /* the shard of "memory/shard-1", "memory/log-1" */

/* ---- sim_copies.c, for sim_disk.c ---- */
void sim_copies_init(struct sim_disk *d, uint64_t seed);
void sim_copies_stand_in(const struct sim_disk *d); /* databases came or went */
/* What was put in place is the database from now on. */
NODISCARD int sim_copies_take(struct sim_disk *d, uint32_t shard, struct err *e);
void sim_copies_crashed(struct sim_disk *d, bool power);
/* Of all rows; 0: there is no such database. */
uint64_t sim_disk_hash(const struct sim_disk *d, uint32_t shard);

#endif
