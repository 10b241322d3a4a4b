/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_run.h: an etcd of our own on loopback, by process id. Its files go when it is freed.
 */
#ifndef TESTS_LIB_NET_ETCD_RUN_H
#define TESTS_LIB_NET_ETCD_RUN_H

#include "common/base/base.h"

struct etcd_run;
/* NULL, and a line "SKIPPED: ...", where no etcd is installed. */
struct etcd_run *etcd_run_new(void);
void etcd_run_free(struct etcd_run *r); /* NULL is fine */
const char *etcd_run_url(const struct etcd_run *r);
void etcd_run_kill(struct etcd_run *r);  /* -9 */
void etcd_run_start(struct etcd_run *r); /* again, same port and files; returns when it answers */
void etcd_run_stop(struct etcd_run *r, bool stop); /* SIGSTOP, SIGCONT */

#endif
