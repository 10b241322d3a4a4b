/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h: that something is going on, on standard error, and only where a person looks at it.
 */
#ifndef DEPLOY_CTL_ASK_PROGRESS_H
#define DEPLOY_CTL_ASK_PROGRESS_H

#include "deploy/ctl/cli/cli.h"

struct progress;
/* While one thing takes time: "waiting for `what`, 3 s" from the first second on. NULL if standard
 * error is not a terminal. `what` is borrowed until the stop, which wipes the line. */
struct progress *progress_start(const struct cli *c, const char *what);
void progress_stop(struct progress *p); /* NULL is fine */
/* `done` of `all` things as a bar, drawn over the last one; done = all ends the line. */
void progress_bar(const struct cli *c, const char *what, uint64_t done, uint64_t all);

/* How far something is that is copied. */
struct progress_now {
    uint64_t done, total; /* bytes; total 0: not known */
    bool timed;           /* per_s is known */
    uint64_t per_s;
};
/* "12.3 of 40.1 GiB, 310 MiB/s, 1 m 32 s left"; what is not known is not guessed. */
void progress_words(const struct progress_now *p, struct buf *out);
/* ", 310 MiB/s, 1 m 32 s left", of `left` bytes. */
void progress_speed(const struct progress_now *p, uint64_t left, struct buf *out);
void progress_left(uint64_t s, struct buf *out); /* "1 m 32 s left" */

#endif
