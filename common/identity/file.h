/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: identity.file: keys in a YAML file, for those who keep a configuration in git.
 *
 *   keys:
 *     - id: k3fT9aQz07Lm
 *       hash: "offline:<64 hex digits>"        # embertreectl key make --offline prints this entry
 *       name: agents of the shop
 *       owner: team-a                          # may be missing, as all below but grants
 *       grants: [{tenants: [shop], roles: [push]}]
 *       until: 2027-01-31                      # or milliseconds since 1970; missing: no end
 *       nets: [10.0.0.0/8]
 *
 * A hash without "offline:" is one by the cluster's pepper. The file is read again when it changes.
 * An invalid new file is reported once, and the keys of the one before stay in force. Thread: the
 * loop's.
 */
#ifndef COMMON_IDENTITY_FILE_H
#define COMMON_IDENTITY_FILE_H

#include "common/identity/registry.h"
#include "common/sys/env.h"

#define IDENTITY_FILE_BYTES_MAX (4 * MIB)
#define IDENTITY_FILE_KEYS_MAX  10000

struct identity_file;

/* Reads the file into the registry: ERR_CONFIG says what is wrong, with its line. Both are
 * borrowed. */
NODISCARD int identity_file_new(struct env *env, const char *path, struct registry *g,
                                struct identity_file **ret, struct err *e);
void identity_file_free(struct identity_file *f); /* NULL is fine; its keys stay */
/* Reads it again if size, time or inode are others. False: it is invalid, and the present keys
 * stay; *e is filled once for each change of the file, else cleared. NULL is fine: true. */
bool identity_file_tick(struct identity_file *f, struct err *e);

/* The keys of a text; the caller unrefs each and frees the array (xfree). ERR_CONFIG. */
NODISCARD int identity_file_parse(const char *file, struct str text, struct key_record ***ret,
                                  size_t *ret_len, struct err *e);

#endif
