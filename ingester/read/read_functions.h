/* SPDX-License-Identifier: Apache-2.0
 *
 * read_functions.h: what functions cost, over the shards of this process.
 */
#ifndef INGESTER_READ_READ_FUNCTIONS_H
#define INGESTER_READ_READ_FUNCTIONS_H

#include "ingester/read/read_run.h"

/* As read_run, of RPC_FUNCTIONS; *out is initialised. */
NODISCARD int read_functions_run(const struct read_msg *m, const struct read_source *src,
                                 struct arena *a, struct buf *out, uint64_t *ret_rows,
                                 struct err *e);

#endif
