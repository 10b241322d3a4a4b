/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h: that something is going on, on standard error, and only where a person looks at it.
 */
#ifndef DEPLOY_CTL_PROGRESS_H
#define DEPLOY_CTL_PROGRESS_H

#include "deploy/ctl/cli.h"

struct progress;
/* While one thing takes time: "waiting for `what`, 3 s" from the first second on. NULL where nobody
 * looks. `what` is borrowed until the stop, which wipes the line. */
struct progress *progress_start(const struct cli *c, const char *what);
void progress_stop(struct progress *p); /* NULL is fine */
/* `done` of `all` things as a bar, drawn over the last one; done = all ends the line. */
void progress_bar(const struct cli *c, const char *what, uint64_t done, uint64_t all);

#endif
