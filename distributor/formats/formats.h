/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.h: body in, series out, whatever the format (proto/FORMATS.md). Adding one:
 * distributor/formats/README.md.
 */
#ifndef DISTRIBUTOR_FORMATS_FORMATS_H
#define DISTRIBUTOR_FORMATS_FORMATS_H

#include "distributor/formats/push.h"
#include "distributor/formats/sample_config.h"

/* `body` without its HTTP coding; one layer of gzip is taken off here. `push` is initialised
 * (push_init) and keeps nothing of the body. No series is a valid outcome. ERR_INPUT for what
 * cannot be decoded, ERR_LIMIT over a limit. Pure: any thread. */
NODISCARD int formats_decode(const struct ingest *in, struct str body, const struct limits *l,
                             int64_t now_ms, struct push *push, struct err *e);

/* One pprof, gzip'd or not, of a protocol that says itself what it is called. */
NODISCARD int formats_pprof(const struct ingest *in, struct str body,
                            const struct sample_config *config, const struct limits *l,
                            int64_t now_ms, struct push *push, struct err *e);
/* The same less the values of `prev`, for types that count since the start of the process; `prev`
 * empty: nothing is subtracted. */
NODISCARD int formats_pprof_since(const struct ingest *in, struct str body, struct str prev,
                                  const struct sample_config *config, const struct limits *l,
                                  int64_t now_ms, struct push *push, struct err *e);

/* The bytes of the body that a retry repeats: all of it, or of a multipart body the contents of the
 * parts, since each request has another boundary. Calls add(cookie, bytes) for each. */
void formats_identity(const struct ingest *in, struct str body, struct arena *a,
                      void (*add)(void *cookie, struct str bytes), void *cookie);

#endif
