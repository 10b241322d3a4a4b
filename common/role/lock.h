/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h: one process per data folder. The lock is flock(2) on <dir>/LOCK: it goes with the
 * process, however that ends; the file's text says who holds it.
 */
#ifndef COMMON_ROLE_LOCK_H
#define COMMON_ROLE_LOCK_H

#include "common/base/err.h"

/* Creates the folder if needed. ERR_CONFIG names the holder's program and process id. */
NODISCARD int lock_take(const char *dir, const char *program, int *ret_fd, struct err *e);
void lock_drop(int fd); /* -1 is fine */

#endif
