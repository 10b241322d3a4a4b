/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_types.h: types of RocksDB's C interface that are opaque in its header, declared once
 * more, as c.cc of RocksDB has them. For the few C++ files that set what the C interface cannot.
 */
#ifndef COMMON_STORE_KV_KV_ROCKS_TYPES_H
#define COMMON_STORE_KV_KV_ROCKS_TYPES_H

#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include <memory>

/* Another layout would corrupt memory without a word. The name of the shared library holds major
 * and minor, so what is linked is what was compiled against. */
#if ROCKSDB_MAJOR != 7 || ROCKSDB_MINOR != 8
#error "compare the three structs below with db/c.cc of this RocksDB, then allow its version here"
#endif

struct rocksdb_options_t {
    rocksdb::Options rep;
};
struct rocksdb_flushoptions_t {
    rocksdb::FlushOptions rep;
};
struct rocksdb_logger_t {
    std::shared_ptr<rocksdb::Logger> rep;
};

#endif
