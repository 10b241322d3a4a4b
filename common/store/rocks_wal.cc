/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_wal: no write-ahead log of a database begins before all older ones are on the medium.
 *
 * Recovery replays the logs one after the other, and does not see that the end of an older one is
 * missing if that one ends between two records: the records of the next log are applied over the
 * hole. So what survives a power cut is a prefix of the writes only if a log is on the medium as a
 * whole before the next one has its first record. RocksDB does not see to that:
 *
 * - A log that was recovered when the database was opened is synced by nothing, ever: RocksDB syncs
 *   the logs that it writes itself. With avoid_flush_during_recovery that log stays the only place
 *   of its rows. A process that was killed, or closed without a sync, leaves most of it in the page
 *   cache; the next one begins another log, which is synced.
 * - At a memtable switch the full log is not synced. RocksDB makes up for that when a later write
 *   is synced, or when a flush ends; before that, the kernel may write the newer log first.
 *
 * Therefore rocks_files_sync syncs all logs, and the folder, before RocksDB opens the database, and
 * the file system given to RocksDB does the same before each new log. fsync is of the file,
 * whichever handle asks.
 *
 * After a failed fsync Linux takes the pages for clean: they are read back, later fsyncs return 0,
 * and a power cut loses them. Where a sync of a log failed, the folder is noted, in memory and by a
 * file MARKER in it; the next open writes all logs once more, the same bytes to the same places,
 * before it syncs them. If the note cannot be written, and the process ends, and the machine goes
 * on, and loses power later, then a hole is possible.
 *
 * Thread: any.
 */
#include <rocksdb/c.h>
#include <rocksdb/file_system.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/store/kv_rocks_env.h"
#include "common/store/kv_rocks_types.h"

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::IOStatus;

namespace {
const char MARKER[] = "sync-failed";
const size_t PIECE = 1 << 20;

/* Folders where a sync failed since the process began. */
std::mutex failed_lock;
std::set<std::string> failed_folders;

bool is_wal(const std::string &name)
{
    size_t dot = name.size() < 4 ? 0 : name.size() - 4;

    return dot && name.compare(dot, 4, ".log") == 0 &&
           name.find_first_not_of("0123456789") == dot;
}

std::string folder_of(const std::string &path)
{
    size_t slash = path.rfind('/');

    return slash == std::string::npos ? "." : path.substr(0, slash);
}

void note_failed(rdb::FileSystem *fs, const std::string &dir)
{
    std::unique_ptr<rdb::FSWritableFile> f;
    rdb::IOOptions o;

    {
        std::lock_guard<std::mutex> hold(failed_lock);
        failed_folders.insert(dir);
    }
    if (fs->NewWritableFile(dir + "/" + MARKER, rdb::FileOptions(), &f, nullptr).ok()) {
        f->Fsync(o, nullptr).PermitUncheckedError();
        f->Close(o, nullptr).PermitUncheckedError();
    }
}

bool was_noted(rdb::FileSystem *fs, const std::string &dir)
{
    std::lock_guard<std::mutex> hold(failed_lock);

    return failed_folders.count(dir) ||
           fs->FileExists(dir + "/" + MARKER, rdb::IOOptions(), nullptr).ok();
}

/* The same bytes to the same places. */
IOStatus write_again(rdb::FSRandomRWFile *f)
{
    std::string room(PIECE, '\0');
    rdb::IOOptions o;
    rdb::Slice got;
    IOStatus s;

    for (uint64_t at = 0; s.ok(); at += got.size()) {
        s = f->Read(at, PIECE, o, &got, &room[0], nullptr);
        if (!s.ok() || got.empty())
            break;
        s = f->Write(at, got, o, nullptr);
    }
    return s;
}

IOStatus sync_one(rdb::FileSystem *fs, const std::string &path, bool again)
{
    std::unique_ptr<rdb::FSRandomRWFile> f;
    rdb::IOOptions o;
    /* Does not create a file that RocksDB deleted meanwhile. */
    IOStatus s = fs->NewRandomRWFile(path, rdb::FileOptions(), &f, nullptr);

    if (s.IsPathNotFound() || s.IsNotFound())
        return IOStatus::OK();
    if (s.ok() && again)
        s = write_again(f.get());
    if (s.ok())
        s = f->Fsync(o, nullptr);
    return s;
}

/* All logs of the folder, then its names. */
IOStatus sync_all(rdb::FileSystem *fs, const std::string &dir, bool again)
{
    std::unique_ptr<rdb::FSDirectory> d;
    std::vector<std::string> names;
    rdb::IOOptions o;
    IOStatus s = fs->GetChildren(dir, o, &names, nullptr);

    for (const std::string &name : names)
        if (s.ok() && is_wal(name))
            s = sync_one(fs, dir + "/" + name, again);
    if (!s.ok())
        note_failed(fs, dir);
    if (s.ok())
        s = fs->NewDirectory(dir, o, &d, nullptr);
    if (s.ok())
        s = d->Fsync(o, nullptr);
    return s;
}

/* A log at work: its failed syncs are noted. */
class wal_file : public rdb::FSWritableFileOwnerWrapper {
  public:
    wal_file(rdb::FileSystem *f, const std::string &path, std::unique_ptr<rdb::FSWritableFile> &&t)
        : rdb::FSWritableFileOwnerWrapper(std::move(t)), fs(f), dir(folder_of(path))
    {
    }
    IOStatus Sync(const rdb::IOOptions &o, rdb::IODebugContext *d) override
    {
        return noted(target()->Sync(o, d));
    }
    IOStatus Fsync(const rdb::IOOptions &o, rdb::IODebugContext *d) override
    {
        return noted(target()->Fsync(o, d));
    }
    IOStatus RangeSync(uint64_t at, uint64_t n, const rdb::IOOptions &o,
                       rdb::IODebugContext *d) override
    {
        return noted(target()->RangeSync(at, n, o, d));
    }

  private:
    IOStatus noted(IOStatus s)
    {
        if (!s.ok())
            note_failed(fs, dir);
        return s;
    }
    rdb::FileSystem *fs;
    std::string dir;
};

class ordered_files : public rdb::FileSystemWrapper {
  public:
    explicit ordered_files(const std::shared_ptr<rdb::FileSystem> &t) : rdb::FileSystemWrapper(t)
    {
    }
    const char *Name() const override
    {
        return "embertree.ordered";
    }
    IOStatus NewWritableFile(const std::string &path, const rdb::FileOptions &o,
                             std::unique_ptr<rdb::FSWritableFile> *ret,
                             rdb::IODebugContext *d) override
    {
        bool wal = is_wal(path.substr(path.rfind('/') + 1));
        std::unique_ptr<rdb::FSWritableFile> file;
        IOStatus s = wal ? sync_all(target(), folder_of(path), false) : IOStatus::OK();

        if (s.ok())
            s = target()->NewWritableFile(path, o, &file, d);
        if (s.ok() && wal)
            ret->reset(new wal_file(target(), path, std::move(file)));
        else if (s.ok())
            *ret = std::move(file);
        return s;
    }
};

void *test_env;
} // namespace

extern "C" void kv_rocks_env_set(void *env)
{
    test_env = env;
}

struct rocks_files {
    std::shared_ptr<rdb::FileSystem> fs;
    std::unique_ptr<rdb::Env> env;
};

extern "C" rocks_files *rocks_files_new(rocksdb_options_t *o)
{
    auto *base = test_env ? static_cast<rdb::Env *>(test_env) : o->rep.env;
    auto fs = std::make_shared<ordered_files>(base->GetFileSystem());
    auto *f = new rocks_files{ fs, rdb::NewCompositeEnv(fs) };

    o->rep.env = f->env.get();
    return f;
}

extern "C" void rocks_files_free(rocks_files *f)
{
    delete f;
}

extern "C" void rocks_files_sync(rocks_files *f, const char *dir, char **message)
{
    rdb::FileSystem *fs = f->fs.get();
    bool again = was_noted(fs, dir);
    IOStatus s = sync_all(fs, dir, again);

    if (s.ok() && again) {
        fs->DeleteFile(std::string(dir) + "/" + MARKER, rdb::IOOptions(), nullptr)
            .PermitUncheckedError(); /* if it stays, the next open does too much */
        std::lock_guard<std::mutex> hold(failed_lock);
        failed_folders.erase(dir);
    }
    if (!s.ok())
        *message = strdup(s.ToString().c_str());
}
