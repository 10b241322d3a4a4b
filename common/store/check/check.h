/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: checks that a database keeps its own rules. The check reads every row of a view once.
 * Its memory grows with the dictionaries and the unsealed rows. `embertree fsck` and tests call it.
 *
 * A finding is one sentence and has a kind. After a row that cannot be decoded the check continues
 * with the next row. So one damaged row may be found twice: as damaged, and as missing where
 * another rule needs it.
 */
#ifndef COMMON_STORE_CHECK_CHECK_H
#define COMMON_STORE_CHECK_CHECK_H

#include <stdatomic.h>

#include "common/store/store.h"

/* What is looked at, in this order: name, and the table or column family. */
#define CHECK_KINDS(X)                                             \
    X(CHECK_FORMAT, "format", "format and control rows")           \
    X(CHECK_NAMES, "names", "tenants, services, profile types")    \
    X(CHECK_DICTS, "dictionaries", "strings, frames, stack nodes") \
    X(CHECK_SERIES, "series", "ids, labels, days with data")       \
    X(CHECK_POSTINGS, "postings", "which series have a label")     \
    X(CHECK_LOG, "seal log", "entries")                            \
    X(CHECK_GROUPS, "groups", "groups of series")                  \
    X(CHECK_MARKS, "marks", "floors and dirty nodes")              \
    X(CHECK_DELETES, "deletes", "deletes and their masks")         \
    X(CHECK_FINE, "leaves", "vectors of 10 s")                     \
    X(CHECK_COARSE, "levels", "vectors of 10 m and up")            \
    X(CHECK_ROLLUPS, "roll-ups", "vectors of groups")              \
    X(CHECK_TL, "timelines", "points beside vectors")              \
    X(CHECK_PRESENCE, "presence", "when gauges had data")          \
    X(CHECK_FN, "functions", "values of functions")                \
    X(CHECK_RAW, "raw rows", "unsealed vectors")                   \
    X(CHECK_WIDS, "write ids", "which pushes are stored")          \
    X(CHECK_EXM, "exemplars", "single profiles")                   \
    X(CHECK_DOCS, "documents", "other data of tenants")            \
    X(CHECK_LEDGER, "ledger", "accepted writes against stored rows")

#define CHECK_KIND_ID(id, name, help) id,
enum check_kind { CHECK_KINDS(CHECK_KIND_ID) CHECK_KINDS_LEN };
extern const char *const check_kind_names[CHECK_KINDS_LEN];

struct check_report {
    uint64_t tenants, scopes, types, series, pairs;
    uint64_t epochs, nodes;
    uint64_t raw_rows, leaves, timelines, wids;
    uint64_t rows[CHECK_KINDS_LEN];     /* looked at */
    uint64_t findings[CHECK_KINDS_LEN]; /* all of them, also those not shown */
    /* Rules that were not checked: some of their rows are remote, and the reader of this thread
     * skips remote rows (cold_read.h). */
    uint64_t left_out;
};
/* Stops at the first finding: ERR_CORRUPT says what is wrong and where. */
NODISCARD int store_check(struct store_view *v, struct check_report *ret, struct err *e);

struct check_opts {
    uint64_t shown_max; /* findings of one kind that are handed out; the rest is only counted */
    /* `text` ends where it is called. Either may be NULL. */
    void (*found)(void *cookie, enum check_kind kind, const char *text);
    /* Called when a kind begins, and every 65,536 rows. */
    void (*progress)(void *cookie, enum check_kind kind, uint64_t rows);
    void *cookie;
    const atomic_bool *cancel; /* may be NULL; polled */
};
/* Goes through all of it. 0 also with findings; ERR_IO, ERR_CANCELED: it could not. */
NODISCARD int store_check_all(struct store_view *v, const struct check_opts *o,
                              struct check_report *ret, struct err *e);
uint64_t check_findings(const struct check_report *r); /* of all kinds */

#endif
