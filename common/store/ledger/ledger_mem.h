/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_mem.h: what the shard thread remembers of the ledger, and rows that only its files use.
 */
#ifndef COMMON_STORE_LEDGER_LEDGER_MEM_H
#define COMMON_STORE_LEDGER_LEDGER_MEM_H

#include "common/base/map.h"
#include "common/store/ledger/acks.h"
#include "common/store/ledger/ledger_counts.h"

struct ledger_entry; /* ledger_in.c */
struct ledger {
    struct map_str *at;        /* struct ledger_entry, owned, by its key */
    struct ledger_entry *last; /* looked up last; NULL: none */
    uint32_t generation;
    int64_t since_ms;       /* engine time at which it began; 0: with the database */
    struct key drop;        /* acks: where deleting continues; empty: at the start */
    uint64_t drop_after_ms; /* monotonic */
};
struct ledger_acks {
    struct acks sum;
    int64_t last_ms;
};
#define LEDGER_ACKS_LEN 33
void ledger_acks_key(struct key *k, uint64_t distributor, uint32_t epoch, uint32_t tenant);
NODISCARD int ledger_acks_read(struct str row, struct ledger_acks *ret, struct err *e);
void ledger_in_clear(struct ledger *l);
/* 0 with *ret 0: there is no such tenant. */
NODISCARD int ledger_tenant_number(struct store_view *v, struct str tenant, uint32_t *ret,
                                   struct err *e);

struct ledger_control {
    uint32_t generation;
    int64_t since_ms, clock_ms;
};
NODISCARD int ledger_control_get(struct kv *kv, const struct kv_snap *snap,
                                 struct ledger_control *ret, bool *ret_found, struct err *e);
NODISCARD int ledger_get_whole(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                               struct ledger_whole *ret, bool *ret_found, struct err *e);
void ledger_whole_put(const struct ledger_whole *w, char out[LEDGER_WHOLE_LEN]);
void ledger_past_put(const struct ledger_past *r, char out[LEDGER_PAST_LEN]);

#endif
