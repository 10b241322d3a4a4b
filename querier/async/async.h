/* SPDX-License-Identifier: Apache-2.0
 *
 * async.h: queries whose answer is fetched later (async of SelectMergeStacktraces: proto/WIRE.md,
 * "querier.v1 merges"). They continue after their request was answered with an id, and their result
 * is kept for ten minutes, or one after it was fetched.
 *
 * Thread: the loop's, but the steps.
 */
#ifndef QUERIER_ASYNC_ASYNC_H
#define QUERIER_ASYNC_ASYNC_H

#include "querier/query/query.h"

#define ASYNC_RUNNING_MAX 5 /* of one tenant */

enum async_status { ASYNC_UNKNOWN, ASYNC_IN_PROGRESS, ASYNC_SUCCESS, ASYNC_FAILURE };

const char *async_status_name(enum async_status s);

struct asyncs;
struct asyncs *asyncs_new(struct querier *qr);
void asyncs_drop(struct asyncs *s); /* all results; no query runs */
void asyncs_free(struct asyncs *s); /* no query runs; NULL is fine */

/* ---- for steps ---- */

/* From here on the query works for callers that fetch its id. Its questions and the step it has set
 * continue; they may refer to nothing of the request. */
void async_detach(struct query *q);
/* The query's answer is what another one with this id has, or how far it is. ERR_NOT_FOUND later.
 */
void async_fetch(struct query *q, struct str id);

#endif
