/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_manifest: a manifest whose end was torn by a power cut is cut back to its last whole
 * record.
 *
 * The manifest lists the files of a database, and is appended to while it is open; RocksDB syncs
 * each record before it acts on it. A power cut between the two may leave any part of the record's
 * bytes. RocksDB drops a record that the file ends in, but refuses the whole database if a sum is
 * wrong, e.g. since the file had its new length and not yet all of its bytes.
 *
 * What may be cut. The list of synced bytes (rocks_wal_sizes.cc) has the length that the manifest
 * had when it was synced last before the list was saved, and nothing below that is ever cut. So:
 *
 * - A write-ahead log is deleted after the list was saved, thus after the record of the flush that
 *   made it superfluous is in the list: rows of a flush whose record is cut are still in a log.
 * - Table files are deleted by RocksDB without the list. If the record that replaced them is cut
 *   though it was synced (its bytes have changed since), RocksDB misses the old tables when it
 *   opens the database and refuses it, before it deletes anything.
 *
 * Without a list that counts nothing is cut. The file is replaced as a whole, so a crash here
 * leaves the old one or the new one.
 *
 * Format: blocks of 32 KiB; in them records with a header of crc32c (masked, little endian, over
 * type and payload), length (2 bytes), type (full, first, middle, last). Source: "RocksDB Write
 * Ahead Log File Format" of RocksDB's wiki, release 7.8; the manifest has the same.
 */
#include "common/store/kv/kv_rocks_manifest.h"

#include <memory>

extern "C" uint32_t crc32c(uint32_t crc, const void *p, size_t n); /* common/base/hash.h is for C */

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::IOStatus;

namespace
{
const size_t BLOCK = 32768, HEADER = 7;
const size_t BYTES_MAX = size_t(256) << 20; /* a larger manifest is left to RocksDB */
enum { FULL = 1, FIRST = 2, MIDDLE = 3, LAST = 4 };

uint32_t masked(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

uint32_t u32le(const char *p)
{
    const unsigned char *u = reinterpret_cast<const unsigned char *>(p);

    return u[0] | uint32_t(u[1]) << 8 | uint32_t(u[2]) << 16 | uint32_t(u[3]) << 24;
}

/* The end of the last whole record in front of the first bad one; bytes.size(): none is bad, but
 * the file may end within one. */
size_t good_until(const std::string &bytes)
{
    size_t at = 0, good = 0;

    for (;;) {
        size_t left = BLOCK - at % BLOCK;
        if (left < HEADER) {
            at += left;
            continue;
        }
        if (at + HEADER > bytes.size())
            return bytes.size();
        const char *p = bytes.data() + at;
        size_t len = static_cast<unsigned char>(p[4]) | size_t(static_cast<unsigned char>(p[5]))
                                                            << 8;
        int type = p[6];
        if (type < FULL || type > LAST || HEADER + len > left)
            return good;
        if (at + HEADER + len > bytes.size())
            return bytes.size();
        if (u32le(p) != masked(crc32c(0, p + 6, 1 + len)))
            return good;
        at += HEADER + len;
        if (type == FULL || type == LAST)
            good = at;
    }
}

IOStatus read_all(rdb::FileSystem *fs, const std::string &path, std::string *ret)
{
    std::unique_ptr<rdb::FSSequentialFile> f;
    rdb::IOOptions o;
    uint64_t size = 0;
    rdb::Slice got;
    IOStatus s = fs->GetFileSize(path, o, &size, nullptr);

    if (s.ok() && size > BYTES_MAX)
        return IOStatus::NotSupported("large");
    if (s.ok())
        s = fs->NewSequentialFile(path, rdb::FileOptions(), &f, nullptr);
    std::string room(size, '\0');
    if (s.ok())
        s = f->Read(size, o, &got, &room[0], nullptr);
    if (s.ok())
        *ret = got.ToString();
    return s;
}

IOStatus replace(rdb::FileSystem *fs, const std::string &dir, const std::string &name,
                 const rdb::Slice &bytes)
{
    std::string path = dir + "/" + name, part = dir + "/torn-manifest.tmp";
    std::unique_ptr<rdb::FSWritableFile> f;
    std::unique_ptr<rdb::FSDirectory> d;
    rdb::IOOptions o;
    IOStatus s = fs->NewWritableFile(part, rdb::FileOptions(), &f, nullptr);

    if (s.ok())
        s = f->Append(bytes, o, nullptr);
    if (s.ok())
        s = f->Fsync(o, nullptr);
    if (s.ok())
        s = f->Close(o, nullptr);
    if (s.ok())
        s = fs->RenameFile(part, path, o, nullptr);
    if (s.ok())
        s = fs->NewDirectory(dir, o, &d, nullptr);
    if (s.ok())
        s = d->Fsync(o, nullptr);
    return s;
}
} // namespace

IOStatus rocks_manifest_cut(rdb::FileSystem *fs, const std::string &dir, const std::string &name,
                            uint64_t synced, uint64_t *ret_cut)
{
    std::string bytes;

    *ret_cut = 0;
    if (name.empty() || !synced || !read_all(fs, dir + "/" + name, &bytes).ok())
        return IOStatus::OK(); /* RocksDB says what is wrong, or nothing is */
    size_t good = good_until(bytes);
    if (good == bytes.size() || good < synced)
        return IOStatus::OK();
    IOStatus s = replace(fs, dir, name, rdb::Slice(bytes.data(), good));
    if (s.ok())
        *ret_cut = bytes.size() - good;
    return s;
}
