/* SPDX-License-Identifier: Apache-2.0
 *
 * formats.h: body in, series out, whatever the format (proto/FORMATS.md). Adding one:
 * distributor/formats/README.md.
 */
#ifndef DISTRIBUTOR_FORMATS_FORMATS_H
#define DISTRIBUTOR_FORMATS_FORMATS_H

#include "distributor/formats/push.h"
#include "distributor/formats/sample_config.h"

/* Decodes `body` as job->in->format. `body` is without its HTTP coding; one layer of gzip is taken
 * off here. No series is a valid outcome. ERR_INPUT: the body cannot be decoded; ERR_LIMIT: it is
 * over a limit. Pure: any thread. */
NODISCARD int formats_decode(const struct decode_job *job, struct str body, struct err *e);

/* Decodes one pprof, gzip'd or not, of a protocol that says itself what it is called. */
NODISCARD int formats_pprof(const struct decode_job *job, struct str body,
                            const struct sample_config *config, struct err *e);
/* The same less the values of `prev`, for types that count since the start of the process; `prev`
 * empty: nothing is subtracted. */
NODISCARD int formats_pprof_since(const struct decode_job *job, struct str body, struct str prev,
                                  const struct sample_config *config, struct err *e);

/* The bytes of the body that a retry repeats: all of it, or of a multipart body the contents of the
 * parts, since each request has another boundary. Calls add(cookie, bytes) for each. */
void formats_identity(const struct ingest *in, struct str body, struct arena *a,
                      void (*add)(void *cookie, struct str bytes), void *cookie);

#endif
