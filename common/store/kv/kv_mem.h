/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_mem.h: what the in-memory store can do beyond kv.h: fail on request, crash and come back.
 * For tests and simulation; deterministic.
 */
#ifndef COMMON_STORE_KV_KV_MEM_H
#define COMMON_STORE_KV_KV_MEM_H

#include "common/store/kv/kv.h"

/* Set by the test at any time between calls; counted and counted down by the store. */
struct kv_mem_faults {
    uint64_t fail_in;      /* this many kv_write calls from now fails: 1 = the next; 0 = none */
    int fail_code;         /* ERR_IO or ERR_NO_SPACE; all later writes fail, too, until a reopen */
    bool fail_in_doubt;    /* the failed batch reached the log: a reopen may bring it back */
    uint64_t fail_gets_in; /* the same for kv_get; one call only, ERR_IO */
    uint64_t writes;       /* batches accepted */
    uint64_t syncs;        /* of these, with sync */
};

enum kv_mem_crash {
    KV_MEM_KILL,  /* the process dies: every accepted batch survives, and the next one syncs them */
    KV_MEM_POWER, /* the machine dies: synced batches survive, and the first `keep` after them */
    /* As KV_MEM_KILL, but what was not synced never will be: KV_MEM_POWER takes exactly that, and
     * leaves what came behind it. A defect, for tests that must notice it. */
    KV_MEM_KILL_UNSYNCED,
    /* The machine dies, and the disk lost what it should not: the first `keep` batches behind the
     * synced ones are gone, and all others stay. There must be one more at least. */
    KV_MEM_HOLE,
};
/* Batches a power cut may lose: accepted since the last sync, and one in doubt. */
uint64_t kv_mem_unsynced(struct kv *k);
/* Crashes and reopens. A batch in doubt counts as the last unsynced one: KV_MEM_POWER with a large
 * enough `keep` and kills bring it back. Iterators and snapshots must be gone; continue with
 * the returned database. The fault struct stays attached, fail_in is cleared. */
struct kv *kv_mem_reopen(struct kv *k, enum kv_mem_crash how, uint64_t keep);

/* What kv_mem_reopen would give, as a store of its own without faults; k stays as it is, with its
 * iterators and snapshots. */
struct kv *kv_mem_fork(struct kv *k, enum kv_mem_crash how, uint64_t keep);

#endif
