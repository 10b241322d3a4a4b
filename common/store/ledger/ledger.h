/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.h: counts what a shard accepted, and what must therefore be stored. LEDGER.md has the
 * whole idea.
 *
 * All rows are in one column family, and are written by the very batches that change the data:
 *
 *   56 tenant scope ptype bucket   accepted     by stage        (in the batch of the writes)
 *   57 tenant scope ptype bucket   left         by seals, deletes, retention
 *   58 tenant scope ptype bucket   found        by the auditor: data that are older than the ledger
 *   59 tenant scope ptype          complete     since when these rows count everything
 *   72 tenant                      past         of services and times whose rows are deleted
 *   73 tenant                      duplicates   that were refused, by stage
 *   74 tenant scope ptype bucket time   accepted differences, each by an operator
 *
 * A bucket is a node of 64 d of the data's time: retention expires whole buckets.
 *
 *   unsealed rows  =  in + found.raw - sealed - deleted_raw
 *   sealed data    =  sealed + found.sealed - deleted - expired
 *
 * The left sides are found by a walk (store_ledger_audit), the right sides by reading these rows in
 * the same snapshot. If they differ, data were lost or doubled, unless the difference was accepted
 * (row 74). An accepted difference is listed permanently and is no longer reported.
 */
#ifndef COMMON_STORE_LEDGER_LEDGER_H
#define COMMON_STORE_LEDGER_LEDGER_H

#include "common/base/buf.h"
#include "common/base/vec.h"
#include "common/store/state/floors.h"
#include "common/store/store.h"

/* Sums of rows; all of them modulo something, so that differences are sums, too. */
struct ledger_sum {
    uint64_t rows;   /* of raw */
    uint64_t writes; /* series-vectors, as heads of vectors count them */
    uint64_t total;  /* of values, modulo 2^64 */
    uint64_t fp;     /* fp.h */
    bool saturated;  /* total and fp say nothing */
};
void ledger_add(struct ledger_sum *to, const struct ledger_sum *more);
void ledger_sub(struct ledger_sum *from, const struct ledger_sum *less);
/* The head of a vector as a sum of one row. */
NODISCARD int ledger_of(struct str vector, struct ledger_sum *ret, struct err *e);

/* ---- what the rows say ---- */

struct ledger_tenant { /* in writes; sums of all services, types and times */
    uint64_t accepted; /* stored for the first time, ever */
    uint64_t duplicates;
    uint64_t sealed; /* ever; those found, too */
    uint64_t raw;    /* waiting to be sealed */
    uint64_t expired, deleted;
    uint64_t stored;   /* must be there now: raw and sealed, without what was accepted as lost */
    int64_t since_ms;  /* engine time from which all of it was counted; 0: from the beginning */
    uint64_t adopting; /* services and types whose older data are not counted yet */
};
/* ERR_NOT_FOUND: no such tenant. Any thread. */
NODISCARD int store_ledger(struct store_view *v, struct str tenant, struct ledger_tenant *ret,
                           struct err *e);
/* fn for each tenant, by name; the name is valid during the call. */
NODISCARD int store_ledger_tenants(struct store_view *v,
                                   int (*fn)(void *cookie, struct str tenant, struct err *e),
                                   void *cookie, struct err *e);

/* ---- the auditor ---- */

enum ledger_where {
    LEDGER_RAW,    /* unsealed rows */
    LEDGER_LEVELS, /* what a query of all time reads */
    LEDGER_BASE,   /* the finest rows that are kept */
};
extern const char *const ledger_where_names[];

struct ledger_finding {
    enum ledger_where where;
    struct member m; /* series unused */
    uint32_t bucket;
    struct ledger_sum want, found;
    char text[ERR_TEXT_MAX];
};
#define LEDGER_FINDINGS_MAX 16 /* of one service */

/* What was found of one service, at one moment. */
struct ledger_audit;
struct ledger_result {
    uint32_t tenant, scope;
    struct str tenant_name, service; /* the audit's */
    bool skipped;                    /* its deletes are being purged */
    bool deep;                       /* the finest rows were walked, too */
    bool adopt;                      /* store_ledger_adopt has something to do */
    uint64_t want, found;            /* writes */
    uint64_t away;                   /* writes of buckets with remote rows */
    uint64_t difference;             /* writes, values or contents that differ: buckets */
    uint64_t lost, doubled;          /* writes */
    int64_t engine_ms;
    VEC(struct ledger_finding) findings;
    uint64_t more; /* that did not fit */
    uint64_t rows; /* walked */
};
/* The next service behind (tenant, scope); *ret NULL: that was the last one. Borrows the view,
 * until the audit is freed. Any thread. */
NODISCARD int store_ledger_next(struct store_view *v, uint32_t tenant, uint32_t scope,
                                struct ledger_audit **ret, struct err *e);
/* About `rows_max` rows more; *ret_done: the result stands. With `deep_max` rows at most,
 * the finest ones are walked, too. Any thread, one at a time. */
NODISCARD int store_ledger_audit(struct ledger_audit *a, size_t rows_max, size_t deep_max,
                                 bool *ret_done, struct err *e);
const struct ledger_result *ledger_audit_result(const struct ledger_audit *a);
void ledger_audit_free(struct ledger_audit *a); /* NULL is fine */
/* The walk of one service; *ret NULL: it does not exist. */
NODISCARD int store_ledger_of(struct store_view *v, uint32_t tenant, uint32_t scope,
                              struct ledger_audit **ret, struct err *e);
/* Makes what the walk found the baseline of services that are older than the ledger. Does nothing
 * if rows of the service were deleted or expired since the walk. Shard thread. */
NODISCARD int store_ledger_adopt(struct store *s, const struct ledger_audit *a, struct err *e);

/* ---- differences that are accepted: ledger_accept.c ---- */

#define LEDGER_WHO_MAX    100
#define LEDGER_REASON_MAX 500

struct ledger_accepted {
    struct member m; /* series unused */
    uint32_t bucket;
    int64_t at_ms; /* engine time */
    uint64_t lost, doubled;
    struct ledger_sum raw, levels, base; /* found less expected */
    struct str service;                  /* "": it was deleted */
    struct str who, reason;
};
struct ledger_accept {
    struct ledger_audit *const *audits; /* finished walks of services; borrowed */
    size_t audits_len;
    struct str who, reason; /* 1 to LEDGER_WHO_MAX, LEDGER_REASON_MAX bytes; borrowed */
};
/* Accepts all differences that the walks found, in one batch. *ret_rows: how many places differed.
 * A row of an accepted difference is deleted only with its tenant. ERR_INPUT: `who` or `reason`
 * is empty or too long; ERR_BUSY: rows were deleted or expired since the walk; ERR_LIMIT: too many
 * places differ. Shard thread. */
NODISCARD int store_ledger_accept(struct store *s, const struct ledger_accept *x, size_t *ret_rows,
                                  struct err *e);
/* fn for each place of the tenant, the strings valid during the call. Any thread. */
NODISCARD int store_ledger_accepted(struct store_view *v, struct str tenant,
                                    int (*fn)(void *cookie, const struct ledger_accepted *x,
                                              struct err *e),
                                    void *cookie, struct err *e);

#endif
