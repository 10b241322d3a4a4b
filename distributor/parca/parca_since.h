/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_since.h: the last profile of each series of Parca's scraper, from which the next one is
 * subtracted. Memory is bounded; the series that were not used for longest are forgotten.
 *
 * Thread: any. Between parca_turn_enter and parca_turn_end a series belongs to one request.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_SINCE_H
#define DISTRIBUTOR_PARCA_PARCA_SINCE_H

#include "common/base/vec.h"
#include "common/sys/thread.h"
#include "distributor/intake/intake.h"

#define PARCA_NO_ROW SIZE_MAX

struct parca_body {
    char *bytes; /* owned, unchanged; NULL: no body */
    size_t len;
    int64_t at_ms;
    int64_t leaf;  /* of its gauges, counted from 1970 */
    bool has_time; /* a copy of it is stored once: it says to the nanosecond when it was taken */
};
struct parca_series; /* of parca_since.c */

struct parca_since;
struct parca_since *parca_since_new(size_t bytes_max);
void parca_since_free(struct parca_since *s); /* NULL is fine; no turn may be open */
size_t parca_since_bytes(struct parca_since *s);
void parca_since_shrink(struct parca_since *s, unsigned percent); /* of its bound */

/* The profiles of one request. `tenant` must live until the end. */
struct parca_step {
    struct parca_series *series;
    struct parca_body body; /* owned; bytes NULL: it is not remembered */
    size_t row;             /* of the intake's result: where it went */
    size_t doubt_row;       /* where the doubtful one went again; PARCA_NO_ROW: it did not */
    bool again;             /* it is the doubtful one, sent again by its sender */
};
struct parca_turn {
    struct parca_since *since; /* borrowed */
    struct str tenant;
    bool alone;  /* no other distributor can have counted growth of these series */
    size_t rows; /* that the decoder made so far */
    VEC(struct parca_step) steps;
    VEC(struct parca_series *) held;
};
/* Sets *ret to the series of that key. ERR_BUSY: another request has it. ERR_LIMIT: there is no
 * memory to remember it. */
NODISCARD int parca_turn_enter(struct parca_turn *t, struct str key, struct parca_series **ret,
                               struct err *e);
/* Returns the profile to subtract: an earlier profile of this request, else the profile that was
 * stored last. NULL: there is no such profile, or it is too old for a profile of `at_ms`. */
const struct parca_body *parca_turn_last(const struct parca_turn *t, struct parca_series *x,
                                         int64_t at_ms);
/* Returns a newer profile, of which it is not known whether it was stored; NULL: no profile is in
 * doubt. */
const struct parca_body *parca_turn_doubt(const struct parca_series *x);
/* True: this request has had a profile of the series before. */
bool parca_turn_began(const struct parca_turn *t, const struct parca_series *x);
/* A profile of that time came. */
void parca_turn_seen(struct parca_series *x, int64_t at_ms);
/* What is remembered of it cannot be used: the next profile is a first one. */
void parca_turn_forget(struct parca_series *x);
/* The body moves. */
void parca_turn_add(struct parca_turn *t, const struct parca_step *step);
/* Remembers what was stored, and gives the series back. r NULL: the request never began. */
void parca_turn_end(struct parca_turn *t, const struct intake_result *r);

#endif
