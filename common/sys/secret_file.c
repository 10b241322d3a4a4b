/* SPDX-License-Identifier: Apache-2.0
 *
 * secret_file: the owner may read and write, a group may read (0640, and the 0440 of Kubernetes'
 * secrets with an fsGroup), others may nothing.
 *
 * Files below /run/secrets are the exception: container runtimes mount them there for one container
 * alone, some with mode 0444, others as a token that only root could chmod.
 */
#include "common/sys/secret_file.h"

#include "common/base/str.h"

static bool mounted_for_us(const char *path)
{
    return str_starts(str_c(path), STR("/run/secrets/")) ||
           str_starts(str_c(path), STR("/var/run/secrets/"));
}

int secret_file_check_stat(const char *path, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_CONFIG, "%s is not a file", path);
    if (mounted_for_us(path) || !(st->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
        return 0;
    return err_set(e, ERR_CONFIG,
                   "%s has mode %04o, and holds a secret that others may read or change so: chmod "
                   "0600, or 0640 for a group (in Kubernetes defaultMode 0440 with an fsGroup)",
                   path, (unsigned)(st->st_mode & 07777));
}

int secret_file_check(const char *path, struct err *e)
{
    struct stat st;

    return stat(path, &st) ? 0 : secret_file_check_stat(path, &st, e);
}
