/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof_send.h: the pushes that are still to be sent. Thread: the profiler's.
 */
#ifndef COMMON_OBS_SELFPROF_SEND_H
#define COMMON_OBS_SELFPROF_SEND_H

#include "common/obs/selfprof.h"

struct selfprof_sender;

/* Checks url, service, labels and tenant (ERR_CONFIG). Keeps `o`, which must outlive it. */
NODISCARD int selfprof_sender_new(const struct selfprof_opts *o, struct selfprof_sender **ret,
                                  struct err *e);
void selfprof_sender_free(struct selfprof_sender *s); /* NULL is fine */
/* Copies the push; the oldest pushes are dropped when there are too many. */
void selfprof_sender_add(struct selfprof_sender *s, const struct selfprof_push *p);
/* Sends pushes that are due. Returns early when stop_fd turns readable (-1: never). */
void selfprof_sender_run(struct selfprof_sender *s, int stop_fd);
size_t selfprof_sender_waiting(const struct selfprof_sender *s);

#endif
