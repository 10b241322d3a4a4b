/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_counts.h: what the engine tells the ledger, and what its files share.
 *
 *   stage      ledger_in_*     gathered by batch: one row for each (part, bucket) of a group
 *   seal       ledger_sealed
 *   deletes    ledger_outs     gathered, then put in the batch that deletes
 *   retention  ledger_expire
 *
 * Rows of 56 are stage's alone, all others those of the other steps: a batch that is staged and not
 * committed never meets theirs over a key (seal.c). So what is read of 57 to 59 and 72 from the
 * database is what stands, and 56 is remembered until it is committed.
 */
#ifndef COMMON_STORE_LEDGER_LEDGER_COUNTS_H
#define COMMON_STORE_LEDGER_LEDGER_COUNTS_H

#include "common/store/ledger/ledger.h"
#include "common/store/store.h"

#define LEDGER_BUCKET (LEVELS[KEY_LEVELS - 1].node)
static inline uint32_t ledger_bucket(uint32_t slot)
{
    return slot / LEDGER_BUCKET;
}

struct ledger_out { /* 57 */
    struct ledger_sum sealed, deleted_raw, deleted, expired;
    bool closed; /* retention took all of it, or is about to: what comes is gone at once */
};
struct ledger_found { /* 58 */
    struct ledger_sum raw, sealed;
};
struct ledger_whole { /* 59 */
    uint32_t generation;
    int64_t since_ms; /* 0: from the first row on */
};
struct ledger_past { /* 72: writes */
    uint64_t accepted, sealed, expired, deleted;
};
#define LEDGER_IN_LEN    34
#define LEDGER_OUT_LEN   134
#define LEDGER_FOUND_LEN 67
#define LEDGER_WHOLE_LEN 13
#define LEDGER_PAST_LEN  33
#define LEDGER_KEY_LEN   15 /* of 56, 57, 58 */
#define LEDGER_PART_LEN  11 /* of 59; what leads the others */

void ledger_key(struct key *k, enum key_table table, const struct member *m, uint32_t bucket);
void ledger_part_key(struct key *k, enum key_table table, const struct member *m);
/* False: not a key of 56 to 58. */
bool ledger_key_read(struct str key, struct member *ret_m, uint32_t *ret_bucket);
void ledger_in_put(const struct ledger_sum *r, char out[LEDGER_IN_LEN]);
NODISCARD int ledger_in_read(struct str row, struct ledger_sum *ret, struct err *e);
void ledger_out_put(const struct ledger_out *r, char out[LEDGER_OUT_LEN]);
NODISCARD int ledger_out_read(struct str row, struct ledger_out *ret, struct err *e);
void ledger_found_put(const struct ledger_found *r, char out[LEDGER_FOUND_LEN]);
NODISCARD int ledger_found_read(struct str row, struct ledger_found *ret, struct err *e);
NODISCARD int ledger_whole_read(struct str row, struct ledger_whole *ret, struct err *e);
NODISCARD int ledger_past_read(struct str row, struct ledger_past *ret, struct err *e);

/* Reads one row of 56, 57, 58; zeros if there is no such row. snap NULL: now. */
NODISCARD int ledger_get_in(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                            uint32_t bucket, struct ledger_sum *ret, struct err *e);
NODISCARD int ledger_get_out(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                             uint32_t bucket, struct ledger_out *ret, struct err *e);
NODISCARD int ledger_get_found(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                               uint32_t bucket, struct ledger_found *ret, struct err *e);
NODISCARD int ledger_get_past(struct kv *kv, const struct kv_snap *snap, uint32_t tenant,
                              struct ledger_past *ret, struct err *e);

/* ---- the whole: ledger.c ---- */

struct ledger;
struct ledger *ledger_new(void);
void ledger_free(struct ledger *l);
/* At open, when the clock of the last writer is known (-1: none): was the ledger kept since? */
NODISCARD int ledger_open(struct store *s, int64_t clock_ms, struct err *e);
/* Call with each write of the clock. A program that is older than the ledger does not write this
 * row. */
void ledger_put_clock(struct store *s, int64_t engine_ms, struct kv_batch *b);
uint32_t ledger_generation(const struct store *s);

/* Sums as rows hold them. */
#define LEDGER_SUM_LEN 33
void ledger_sum_put(const struct ledger_sum *x, char out[LEDGER_SUM_LEN]);
bool ledger_sum_read(const char row[LEDGER_SUM_LEN], struct ledger_sum *ret);

/* ---- stage: ledger_in.c ---- */

/* A service and type has its first data: are its rows complete from here on? Then they say so. */
NODISCARD int ledger_birth_plan(struct store *s, const struct member *m, bool *ret_born,
                                struct err *e);
void ledger_birth(struct store *s, const struct member *m, struct kv_batch *b);
/* Stage: reads what it does not remember, so that ledger_in_add cannot fail. */
NODISCARD int ledger_in_plan(struct store *s, const struct member *m, uint32_t slot, struct err *e);
void ledger_in_add(struct store *s, struct store_batch *b, const struct member *m, uint32_t slot,
                   struct str vector);
/* Of one request: series that were known already. b: NULL if nothing of it is stored; they are
 * written with what comes next. */
void ledger_in_duplicates(struct store *s, uint32_t tenant, uint32_t n, struct store_batch *b);
/* The same for acks.h: before and after a series of w is staged. */
NODISCARD int ledger_acks_plan(struct store *s, const struct store_write *w, uint32_t tenant,
                               struct err *e);
void ledger_acks_add(struct store *s, struct store_batch *b, const struct store_write *w,
                     uint32_t tenant, const uint8_t wid[16], int64_t engine_ms);
void ledger_in_commit(struct store_batch *b); /* into its rows; committer */
void ledger_trim(struct store *s, uint64_t committed);
void ledger_forget(struct store *s); /* all is committed: deletes */
/* Is nothing of it staged and not committed? Then it is forgotten. */
bool ledger_in_settled(struct store *s, const struct member *m, uint32_t bucket);

/* ---- what went on: ledger_out.c ---- */

/* n rows of one service and type become sealed, in b. */
struct seal_row;
NODISCARD int ledger_sealed(struct store *s, const struct seal_row *rows, size_t n,
                            const struct floors *f, struct kv_batch *b, struct err *e);

struct ledger_gone {
    struct member m;
    uint32_t bucket;
    struct ledger_sum raw, sealed;
};
struct ledger_outs {
    VEC(struct ledger_gone) at;
    size_t last; /* of them, found last */
};
NODISCARD int ledger_outs_add(struct ledger_outs *o, const struct member *m, uint32_t slot,
                              bool raw, struct str vector, struct err *e);
NODISCARD int ledger_outs_put(struct store *s, const struct ledger_outs *o, struct kv_batch *b,
                              struct err *e);
void ledger_outs_deinit(struct ledger_outs *o);
/* A sealed row of a member that a delete takes: counted where it is the truth of its time. */
NODISCARD int ledger_purged(struct store *s, struct ledger_outs *o, struct str key,
                            struct str value, struct err *e);
/* All of a service is deleted in b, and added to the past; of a tenant (scope 0) nothing stays, nor
 * is added. Quiet. */
NODISCARD int ledger_drop(struct store *s, uint32_t tenant, uint32_t scope, struct ledger_past *p,
                          struct kv_batch *b, struct err *e);
void ledger_put_past(struct kv_batch *b, uint32_t tenant, const struct ledger_past *p);
/* In the batch that moves floors of m up to *to, on the way to `wanted`. */
NODISCARD int ledger_expire(struct store *s, const struct member *m, const struct floors *to,
                            uint32_t wanted, struct kv_batch *b, struct err *e);

#endif
