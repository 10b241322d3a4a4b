/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_wal_sizes: lengths of synced write-ahead logs, so that a log that was lost, emptied or cut
 * short is noticed before RocksDB replays the next log over the hole. RocksDB keeps such lengths
 * itself (track_and_verify_wals_in_manifest), except for logs that were there when the database
 * was opened, and a log that ends between two records looks whole to it.
 *
 * The file SIZES is text, replaced as a whole:
 *
 *     embertree synced write-ahead logs 1
 *     MANIFEST-000012
 *     000011.log 4711
 *     manifest 815
 *     sum 0123456789abcdef
 *
 * The manifest's bytes are for rocks_manifest.cc, and may be missing. It counts only if the second
 * line is what CURRENT names. Each open of a database begins another manifest, so a version of the
 * program that does not know SIZES leaves a list that does not count: that version deletes logs
 * without taking them from the list.
 *
 * A log is taken from the list, and the list is synced, before the log is deleted. So a log of the
 * list that is not there was not deleted by the database.
 */
#include "common/store/kv/kv_rocks_wal_sizes.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::IOStatus;

namespace
{
const char SIZES[] = "synced-wals";
const char FIRST_LINE[] = "embertree synced write-ahead logs 1\n";
const char MANIFEST[] = "manifest";
const size_t BYTES_MAX = 1 << 20; /* of SIZES: some thousand logs */

uint64_t sum_of(const std::string &text)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

    for (char c : text)
        h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return h;
}

bool read_all(rdb::FileSystem *fs, const std::string &path, std::string *ret)
{
    std::unique_ptr<rdb::FSSequentialFile> f;
    std::string room(BYTES_MAX, '\0');
    rdb::Slice got;

    if (!fs->NewSequentialFile(path, rdb::FileOptions(), &f, nullptr).ok() ||
        !f->Read(BYTES_MAX, rdb::IOOptions(), &got, &room[0], nullptr).ok())
        return false;
    *ret = got.ToString();
    return true;
}

/* The next line of `text`, without its end; false: no whole line is left. */
bool next_line(const std::string &text, size_t *at, std::string *line)
{
    size_t end = text.find('\n', *at);

    if (end == std::string::npos)
        return false;
    *line = text.substr(*at, end - *at);
    *at = end + 1;
    return true;
}

std::string head_of(rdb::FileSystem *fs, const std::string &dir)
{
    std::string current;

    return read_all(fs, dir + "/CURRENT", &current) ? FIRST_LINE + current : "";
}
} // namespace

bool wal_sizes::load(rdb::FileSystem *fs, const std::string &dir)
{
    std::string text, line, head = head_of(fs, dir);
    size_t at = head.size();
    char last[40];

    bytes.clear();
    manifest.clear();
    manifest_bytes = 0;
    if (head.empty() || !read_all(fs, dir + "/" + SIZES, &text) ||
        text.compare(0, head.size(), head) != 0)
        return false;
    size_t end = text.rfind("sum ");
    if (end == std::string::npos || end < at)
        return false;
    (void)snprintf(last, sizeof(last), "sum %016" PRIx64 "\n", sum_of(text.substr(0, end)));
    if (text.substr(end) != last)
        return false;
    while (at < end && next_line(text, &at, &line)) {
        size_t space = line.find(' ');
        if (space == std::string::npos)
            continue;
        uint64_t n = strtoull(line.c_str() + space + 1, nullptr, 10);
        if (line.compare(0, space, MANIFEST) != 0) {
            bytes[line.substr(0, space)] = n;
            continue;
        }
        manifest = head.substr(strlen(FIRST_LINE), head.size() - strlen(FIRST_LINE) - 1);
        manifest_bytes = n;
    }
    return true;
}

IOStatus wal_sizes::save(rdb::FileSystem *fs, const std::string &dir) const
{
    std::string head = head_of(fs, dir), text = head, path = dir + "/" + SIZES,
                part = path + ".tmp";
    std::unique_ptr<rdb::FSWritableFile> f;
    std::unique_ptr<rdb::FSDirectory> d;
    rdb::IOOptions o;
    char last[40];

    for (const auto &[name, n] : bytes)
        text += name + " " + std::to_string(n) + "\n";
    if (!manifest.empty() && head == FIRST_LINE + manifest + "\n")
        text += std::string(MANIFEST) + " " + std::to_string(manifest_bytes) + "\n";
    (void)snprintf(last, sizeof(last), "sum %016" PRIx64 "\n", sum_of(text));
    text += last;
    IOStatus s = fs->NewWritableFile(part, rdb::FileOptions(), &f, nullptr);
    if (s.ok())
        s = f->Append(text, o, nullptr);
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

IOStatus wal_sizes::check(rdb::FileSystem *fs, const std::string &dir) const
{
    for (const auto &[name, n] : bytes) {
        uint64_t now = 0;
        IOStatus s = fs->GetFileSize(dir + "/" + name, rdb::IOOptions(), &now, nullptr);
        bool gone = s.IsNotFound() || s.IsPathNotFound();

        if (!s.ok() && !gone)
            return s;
        if (gone || now < n)
            return IOStatus::Corruption(
                "rows are missing: the write-ahead log " + name +
                (gone ? " is gone" : " has " + std::to_string(now) + " bytes") + ", and " +
                std::to_string(n) + " bytes of it were synced");
    }
    return IOStatus::OK();
}
