/* SPDX-License-Identifier: Apache-2.0
 *
 * write_secret.h: the secret that keys write ids (send/write_id.c), of a cluster and of its
 * tenants.
 */
#ifndef DISTRIBUTOR_BASE_WRITE_SECRET_H
#define DISTRIBUTOR_BASE_WRITE_SECRET_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/sys/env.h"

#define WRITE_ID_SECRET_LEAST 16 /* characters of a configured secret */

struct write_secret {
    uint64_t k0, k1;
};
/* From the option if it is not empty, else from <data_dir>/write-id-secret, made if missing. All
 * distributors of a cluster must have the same one, or a retry through another one counts twice. */
NODISCARD int write_secret_load(struct write_secret *ret, const char *option, const char *data_dir,
                                struct env *env, struct err *e);
/* Is the option one? Empty is. ERR_CONFIG. */
NODISCARD int write_secret_check(const char *option, struct err *e);
/* The same as text, appended to `out`. *ret_old: it is from a file that was there before. */
NODISCARD int write_secret_text(const char *option, const char *data_dir, struct env *env,
                                struct buf *out, bool *ret_old, struct err *e);
struct write_secret write_secret_of(struct str text);
/* Into the file. */
NODISCARD int write_secret_keep(const char *data_dir, struct env *env, struct str text,
                                struct err *e);
/* The secret of one tenant. */
struct write_secret write_secret_tenant(const struct write_secret *cluster, struct str tenant);

/* SipHash-2-4 with 128 bits out (Aumasson and Bernstein, 2012). */
struct hash128 siphash128(const struct write_secret *key, const void *p, size_t n);

#endif
