/* SPDX-License-Identifier: Apache-2.0
 *
 * secret_file.h: files that hold what others must not read: keys, tokens, passwords.
 */
#ifndef COMMON_SYS_SECRET_FILE_H
#define COMMON_SYS_SECRET_FILE_H

#include <sys/stat.h>

#include "common/base/err.h"

/* ERR_CONFIG: not a file, or others may read or change it; the text says which chmod. A file that
 * is not there is no error here: its reader says so. Links are followed, as mounts of secrets
 * are. */
NODISCARD int secret_file_check(const char *path, struct err *e);
/* The same of a file that is open. */
NODISCARD int secret_file_check_stat(const char *path, const struct stat *st, struct err *e);

#endif
