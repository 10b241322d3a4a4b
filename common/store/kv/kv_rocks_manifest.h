/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_manifest.h: mends a manifest that a power cut has torn. C++, for rocks_wal.cc.
 */
#ifndef COMMON_STORE_KV_KV_ROCKS_MANIFEST_H
#define COMMON_STORE_KV_KV_ROCKS_MANIFEST_H

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

/* Removes what follows the last whole record of the manifest `name`, if a record is bad and lies
 * behind the first `synced` bytes, which are known to be on the medium (0: not known). *ret_cut:
 * the bytes removed. The database must be closed. */
rocksdb::IOStatus rocks_manifest_cut(rocksdb::FileSystem *fs, const std::string &dir,
                                     const std::string &name, uint64_t synced, uint64_t *ret_cut);

#endif
