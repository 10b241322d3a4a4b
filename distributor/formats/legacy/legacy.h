/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy.h: what programs wrote before there was pprof's message, and some still write: CPU
 * profiles of gperftools, heap, contention and thread pages, Go's debug=1 pages, Java's pages,
 * heap dumps of jemalloc. Each becomes a pprof message, so that all else is done once, there.
 */
#ifndef DISTRIBUTOR_FORMATS_LEGACY_LEGACY_H
#define DISTRIBUTOR_FORMATS_LEGACY_LEGACY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "distributor/formats/limits.h"

/* By its first line or words. No pprof message begins like one of them. */
bool legacy_sniff(struct str body);
/* The same as a pprof message, added to *out. *ret_left_out: lines that were none. ERR_INPUT for
 * what cannot be read, ERR_LIMIT over limits.samples or limits.decode_bytes. Pure: any thread. */
NODISCARD int legacy_to_pprof(struct str body, const struct limits *l, struct buf *out,
                              uint64_t *ret_left_out, struct err *e);

#endif
