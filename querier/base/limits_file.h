/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_file.h: querier.overrides_file: what queries of tenants may take, read again when it
 * changes.
 *
 *   defaults: {queries: 64}
 *   tenants:
 *     acme: {queries: 8, queue: 64, bytes: 1GiB, read_bytes: 10GiB}
 *
 * What is not said is as the options say. Each querier counts for itself.
 */
#ifndef QUERIER_BASE_LIMITS_FILE_H
#define QUERIER_BASE_LIMITS_FILE_H

#include "common/base/buf.h"
#include "querier/base/tenant_queues.h"

#define LIMITS_FILE_MAX         ((size_t)1024 * 1024)
#define LIMITS_FILE_TENANTS_MAX 10000

struct limits_file;
/* ERR_CONFIG with file and line. */
NODISCARD int limits_file_parse(const char *file, struct str text, struct limits_file **ret,
                                struct err *e);
void limits_file_free(struct limits_file *f); /* NULL is fine */
/* Changes what the file says about the tenant. */
void limits_file_apply(const struct limits_file *f, struct str tenant,
                       struct tenant_queue_limits *l);
/* As YAML, as an entry of `tenants`. */
void turn_limits_format(const struct tenant_queue_limits *l, struct buf *out);

/* The file in force in a querier, on a timer. */
struct querier;
struct limits_watch;
/* *ret is NULL if no file is configured. A wrong file is an error at the start; later the limits
 * that were read before stay. */
NODISCARD int limits_watch_new(struct querier *qr, struct limits_watch **ret, struct err *e);
void limits_watch_free(struct limits_watch *w); /* NULL is fine */

#endif
