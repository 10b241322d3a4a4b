/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h: one process per data folder. The lock is flock(2) on <dir>/LOCK: it goes with the
 * process, however that ends; the file's text says who holds it.
 *
 * lock_take makes the folder private as well: mode 0700, and a umask of 077 for the process, so
 * that files of libraries are private, too. A symbolic link in the folder is refused: a write
 * through it would reach another place, maybe the file of another user.
 */
#ifndef COMMON_ROLE_HOST_LOCK_H
#define COMMON_ROLE_HOST_LOCK_H

#include "common/base/err.h"

/* ERR_CONFIG if no process has locked this folder before: it is missing, or empty (data.create). */
NODISCARD int lock_was_taken(const char *dir, struct err *e);
/* Creates the folder if needed; `dir` itself may be a link. ERR_CONFIG names the holder's program
 * and process id, or the link. */
NODISCARD int lock_take(const char *dir, const char *program, int *ret_fd, struct err *e);
void lock_drop(int fd); /* -1 is fine */

#endif
