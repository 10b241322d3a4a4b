/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_wal_sizes.h: how many bytes of each write-ahead log of a database, and of its manifest,
 * are known to be on the medium, in a file of the database's folder. C++, for rocks_wal.cc.
 *
 * Thread: the caller's lock.
 */
#ifndef COMMON_STORE_KV_KV_ROCKS_WAL_SIZES_H
#define COMMON_STORE_KV_KV_ROCKS_WAL_SIZES_H

#include <rocksdb/file_system.h>

#include <cstdint>
#include <map>
#include <string>

struct wal_sizes {
    std::map<std::string, uint64_t> bytes; /* by name of the log */
    std::string manifest;                  /* its name; "": nothing is known of it */
    uint64_t manifest_bytes = 0;           /* synced */

    /* Reads the file. False: no file is about the database in its present state, and nothing is
     * known. */
    bool load(rocksdb::FileSystem *fs, const std::string &dir);
    /* Replaces the file, and syncs it and the folder. */
    rocksdb::IOStatus save(rocksdb::FileSystem *fs, const std::string &dir) const;
    /* Corruption: a log is missing, or shorter than it was when it was synced. */
    rocksdb::IOStatus check(rocksdb::FileSystem *fs, const std::string &dir) const;
    uint64_t of(const std::string &name) const
    {
        auto it = bytes.find(name);

        return it == bytes.end() ? 0 : it->second;
    }
};

#endif
