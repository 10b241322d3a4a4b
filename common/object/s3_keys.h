/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_keys.h: access key, secret key and session token in a file, a line each. To rotate keys,
 * replace the file; no process has to be restarted.
 */
#ifndef COMMON_OBJECT_S3_KEYS_H
#define COMMON_OBJECT_S3_KEYS_H

#include "common/base/err.h"
#include "common/sys/fs.h"

struct s3_keys {
    char access[257], secret[257], token[3000]; /* token "": none */
};
/* ERR_CONFIG, ERR_NOT_FOUND, ERR_IO; then *ret is unchanged. */
NODISCARD int s3_keys_read(const struct fs *fs, const char *file, struct s3_keys *ret,
                           struct err *e);
void s3_keys_clear(struct s3_keys *k);

#endif
