/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_wal: no write-ahead log of a database begins before all older ones are on the medium.
 *
 * Recovery replays the logs in order. It does not notice that the end of an older log is missing if
 * that log ends between two records: it applies the records of the next log over the hole. So a
 * prefix of the writes survives a power cut only if a whole log is on the medium before the next
 * log gets its first record. RocksDB does not ensure that:
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
 * and a power cut loses them. So an fsync proves nothing about bytes that another fsync may have
 * failed on. Each database keeps a list of the bytes of each log that were synced without an error
 * (rocks_wal_sizes.cc). An open writes all other bytes of logs once more, the same bytes to the
 * same places, before it syncs them. No note of the failure is needed for that, and none that could
 * not be written is missed. An orderly close lists all bytes, so that the next open writes none.
 * In the process that saw an fsync fail the folder is noted in memory, and its logs are written
 * once more before the list names them. The file MARKER is for versions without the list.
 *
 * The list also finds a log that was synced and then lost or cut short: the open fails with
 * "Corruption", and nothing in the folder is changed.
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

#include "common/store/kv/kv_rocks_env.h"
#include "common/store/kv/kv_rocks_manifest.h"
#include "common/store/kv/kv_rocks_types.h"
#include "common/store/kv/kv_rocks_wal_sizes.h"

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::IOStatus;

namespace
{
const char MARKER[] = "sync-failed";
const size_t PIECE = 1 << 20;

/* Folders where a sync failed since the process began. */
std::mutex failed_lock;
std::set<std::string> failed_folders;

bool is_wal(const std::string &name)
{
    size_t dot = name.size() < 4 ? 0 : name.size() - 4;

    return dot && name.compare(dot, 4, ".log") == 0 && name.find_first_not_of("0123456789") == dot;
}

bool is_manifest(const std::string &name)
{
    return name.compare(0, 9, "MANIFEST-") == 0;
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

bool failed_here(const std::string &dir)
{
    std::lock_guard<std::mutex> hold(failed_lock);

    return failed_folders.count(dir) != 0;
}

void forget_failed(const std::string &dir)
{
    std::lock_guard<std::mutex> hold(failed_lock);

    failed_folders.erase(dir);
}

/* The same bytes to the same places, from `at` on. */
IOStatus write_again(rdb::FSRandomRWFile *f, uint64_t at)
{
    std::string room(PIECE, '\0');
    rdb::IOOptions o;
    rdb::Slice got;
    IOStatus s;

    for (; s.ok(); at += got.size()) {
        s = f->Read(at, PIECE, o, &got, &room[0], nullptr);
        if (!s.ok() || got.empty())
            break;
        s = f->Write(at, got, o, nullptr);
    }
    return s;
}

/* *ret: bytes that are on the medium then. False in *there: RocksDB deleted the file meanwhile. */
IOStatus sync_one(rdb::FileSystem *fs, const std::string &path, uint64_t again_from, bool *there,
                  uint64_t *ret)
{
    std::unique_ptr<rdb::FSRandomRWFile> f;
    rdb::IOOptions o;
    /* Does not create the file. */
    IOStatus s = fs->NewRandomRWFile(path, rdb::FileOptions(), &f, nullptr);

    *there = !s.IsPathNotFound() && !s.IsNotFound();
    if (!*there)
        return IOStatus::OK();
    if (s.ok())
        s = fs->GetFileSize(path, o, ret, nullptr);
    if (s.ok() && again_from < *ret)
        s = write_again(f.get(), again_from);
    if (s.ok())
        s = f->Fsync(o, nullptr);
    return s;
}

/* All logs of the folder, then its names. again: the bytes that `sizes` does not list are written
 * once more before. `sizes` lists all bytes then. */
IOStatus sync_all(rdb::FileSystem *fs, const std::string &dir, bool again, wal_sizes *sizes)
{
    std::unique_ptr<rdb::FSDirectory> d;
    std::vector<std::string> names;
    wal_sizes now;
    rdb::IOOptions o;
    IOStatus s = fs->GetChildren(dir, o, &names, nullptr);

    for (const std::string &name : names) {
        uint64_t bytes = 0, from = again ? sizes->of(name) : UINT64_MAX;
        bool there = false;
        if (!s.ok() || !is_wal(name))
            continue;
        s = sync_one(fs, dir + "/" + name, from, &there, &bytes);
        if (there)
            now.bytes[name] = bytes;
    }
    if (!s.ok())
        note_failed(fs, dir);
    if (s.ok())
        s = fs->NewDirectory(dir, o, &d, nullptr);
    if (s.ok())
        s = d->Fsync(o, nullptr);
    if (s.ok())
        sizes->bytes = now.bytes;
    return s;
}

/* A log at work: its failed syncs are noted. */
class wal_file : public rdb::FSWritableFileOwnerWrapper
{
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

/* How much of each manifest was synced: RocksDB begins another one when a database is opened, and
 * when it has become long. */
class manifests
{
  public:
    void synced(const std::string &name, uint64_t bytes)
    {
        std::lock_guard<std::mutex> hold(lock);

        newest = name;
        newest_bytes = bytes;
    }
    void tell(wal_sizes *ret)
    {
        std::lock_guard<std::mutex> hold(lock);

        ret->manifest = newest;
        ret->manifest_bytes = newest_bytes;
    }

  private:
    std::mutex lock;
    std::string newest;
    uint64_t newest_bytes = 0;
};

/* A manifest at work: what was synced of it is noted. */
class manifest_file : public rdb::FSWritableFileOwnerWrapper
{
  public:
    manifest_file(rdb::FileSystem *f, const std::string &p,
                  std::unique_ptr<rdb::FSWritableFile> &&t, manifests *a)
        : rdb::FSWritableFileOwnerWrapper(std::move(t)), fs(f), path(p), all(a)
    {
    }
    IOStatus Sync(const rdb::IOOptions &o, rdb::IODebugContext *d) override
    {
        return noted(target()->Sync(o, d), o, d);
    }
    IOStatus Fsync(const rdb::IOOptions &o, rdb::IODebugContext *d) override
    {
        return noted(target()->Fsync(o, d), o, d);
    }

  private:
    IOStatus noted(IOStatus s, const rdb::IOOptions &o, rdb::IODebugContext *d)
    {
        uint64_t bytes = 0;

        if (s.ok() && fs->GetFileSize(path, o, &bytes, d).ok())
            all->synced(path.substr(path.rfind('/') + 1), bytes);
        return s;
    }
    rdb::FileSystem *fs;
    std::string path;
    manifests *all;
};

class ordered_files : public rdb::FileSystemWrapper
{
  public:
    ordered_files(const std::shared_ptr<rdb::FileSystem> &t, const std::string &d)
        : rdb::FileSystemWrapper(t), dir(d)
    {
        while (dir.size() > 1 && dir.back() == '/')
            dir.pop_back();
    }
    const char *Name() const override
    {
        return "embertree.ordered";
    }
    IOStatus NewWritableFile(const std::string &path, const rdb::FileOptions &o,
                             std::unique_ptr<rdb::FSWritableFile> *ret,
                             rdb::IODebugContext *d) override
    {
        bool wal = is_wal(name_of(path));
        std::unique_ptr<rdb::FSWritableFile> file;
        IOStatus s = wal ? before_wal(folder_of(path)) : IOStatus::OK();

        if (s.ok())
            s = target()->NewWritableFile(path, o, &file, d);
        if (s.ok() && wal)
            ret->reset(new wal_file(target(), path, std::move(file)));
        else if (s.ok() && is_manifest(name_of(path)) && folder_of(path) == dir)
            ret->reset(new manifest_file(target(), path, std::move(file), &listed));
        else if (s.ok())
            *ret = std::move(file);
        return s;
    }
    IOStatus DeleteFile(const std::string &path, const rdb::IOOptions &o,
                        rdb::IODebugContext *d) override
    {
        std::lock_guard<std::mutex> hold(lock); /* the list is not made while a name goes */
        IOStatus s = unlist(path);

        return s.ok() ? target()->DeleteFile(path, o, d) : s;
    }
    IOStatus RenameFile(const std::string &from, const std::string &to, const rdb::IOOptions &o,
                        rdb::IODebugContext *d) override
    {
        std::lock_guard<std::mutex> hold(lock);
        IOStatus s = unlist(from);

        return s.ok() ? target()->RenameFile(from, to, o, d) : s;
    }

    /* Before RocksDB opens the database: what was synced must be there, and all is synced now.
     * *ret_cut: bytes of the manifest that were removed. */
    IOStatus prepare(uint64_t *ret_cut)
    {
        std::lock_guard<std::mutex> hold(lock);
        bool marked = target()->FileExists(marker(), rdb::IOOptions(), nullptr).ok();
        IOStatus s = sizes.load(target(), dir) ? sizes.check(target(), dir) : IOStatus::OK();

        *ret_cut = 0;
        if (s.ok())
            s = rocks_manifest_cut(target(), dir, sizes.manifest, sizes.manifest_bytes, ret_cut);
        if (s.ok())
            s = sync_all(target(), dir, true, &sizes);
        if (s.ok() && marked) /* if it stays, the next open does too much */
            target()->DeleteFile(marker(), rdb::IOOptions(), nullptr).PermitUncheckedError();
        if (s.ok())
            forget_failed(dir);
        return s;
    }
    bool check(IOStatus *ret) const
    {
        wal_sizes now;
        bool counts = now.load(target(), dir);

        *ret = counts ? now.check(target(), dir) : IOStatus::OK();
        return counts;
    }
    /* Behind that: CURRENT names the manifest of this open. The logs have their synced bytes. */
    IOStatus opened()
    {
        std::lock_guard<std::mutex> hold(lock);

        lists = true;
        return save(&sizes);
    }
    /* The database was closed: all bytes of its logs are listed, unless that fails. */
    void closed()
    {
        std::lock_guard<std::mutex> hold(lock);

        if (lists && sync_all(target(), dir, failed_here(dir), &sizes).ok())
            save(&sizes).PermitUncheckedError();
        lists = false;
    }

  private:
    IOStatus save(wal_sizes *list)
    {
        listed.tell(list);
        return list->save(target(), dir);
    }
    static std::string name_of(const std::string &path)
    {
        return path.substr(path.rfind('/') + 1);
    }
    std::string marker() const
    {
        return dir + "/" + MARKER;
    }
    /* RocksDB is to begin a log: of the database, or of a copy of it in another folder. */
    IOStatus before_wal(const std::string &where)
    {
        std::lock_guard<std::mutex> hold(lock);
        wal_sizes others;
        IOStatus s = sync_all(target(), where, failed_here(where), where == dir ? &sizes : &others);

        return s.ok() && lists && where == dir ? save(&sizes) : s;
    }
    /* Before a log is deleted; under the lock. */
    IOStatus unlist(const std::string &path)
    {
        wal_sizes rest = sizes;

        if (folder_of(path) != dir || !rest.bytes.erase(name_of(path)))
            return IOStatus::OK();
        IOStatus s = save(&rest);
        if (s.ok())
            sizes = rest;
        return s;
    }
    std::mutex lock;
    std::string dir; /* of the database */
    wal_sizes sizes;
    manifests listed;
    bool lists = false; /* the list on the medium is kept up to date: the database is open */
};

void *test_env;
} // namespace

extern "C" void kv_rocks_env_set(void *env)
{
    test_env = env;
}

extern "C" void kv_rocks_env_forget(void)
{
    std::lock_guard<std::mutex> hold(failed_lock);

    failed_folders.clear();
}

struct rocks_files {
    std::shared_ptr<ordered_files> fs;
    std::unique_ptr<rdb::Env> env;
};

extern "C" rocks_files *rocks_files_new(rocksdb_options_t *o, const char *dir)
{
    auto *base = test_env ? static_cast<rdb::Env *>(test_env) : o->rep.env;
    auto fs = std::make_shared<ordered_files>(base->GetFileSystem(), dir);
    auto *f = new rocks_files{ fs, rdb::NewCompositeEnv(fs) };

    o->rep.env = f->env.get();
    return f;
}

extern "C" void rocks_files_free(rocks_files *f)
{
    delete f;
}

static void say(const IOStatus &s, char **message)
{
    if (!s.ok())
        *message = strdup(s.ToString().c_str());
}

extern "C" uint64_t rocks_files_prepare(rocks_files *f, char **message)
{
    uint64_t cut;

    say(f->fs->prepare(&cut), message);
    return cut;
}

extern "C" void rocks_files_opened(rocks_files *f, char **message)
{
    say(f->fs->opened(), message);
}

extern "C" bool rocks_files_check(rocks_files *f, char **message)
{
    IOStatus s;
    bool counts = f->fs->check(&s);

    say(s, message);
    return counts;
}

extern "C" void rocks_files_closed(rocks_files *f)
{
    f->fs->closed();
}
