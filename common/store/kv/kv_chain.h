/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_chain.h: is a database whose batches are numbered a prefix of them?
 */
#ifndef COMMON_STORE_KV_KV_CHAIN_H
#define COMMON_STORE_KV_KV_CHAIN_H

#include "common/store/kv/kv.h"

#define KV_CHAIN_ANY UINT64_MAX /* a number that any other may follow, and that may follow any */

/* Each batch puts the row `key`, whose value begins with the number of the batch, u64be, one more
 * than the one before; the first is 1. Reads the write-ahead logs of the database in dir, which is
 * not open, and changes nothing. ERR_CORRUPT: a log lacks bytes that were synced, or numbers are
 * missing. Missing numbers are looked for only where no list says what was synced
 * (rocks_wal_sizes.cc). 0 also where no database exists, or where no batch has the row. Thread:
 * any. */
NODISCARD int kv_rocks_check_chain(const char *dir, enum kv_cf cf, struct str key, struct err *e);

#endif
