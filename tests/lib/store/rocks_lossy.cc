/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_lossy: the files are real ones, and are always as the page cache would show them. Beside
 * them stands what of each is on the medium: how many bytes, which ranges a failed fsync left out,
 * and the changes of names since the last fsync of the folder, in order, each with what undoes it.
 * A deleted file is moved to the scratch folder until its deletion is synced. A power cut undoes
 * names from the last one backwards, then cuts files to what is on the medium.
 *
 * Files are append-only for RocksDB, but for bytes that are written once more.
 */
#include "tests/lib/store/rocks_lossy.h"

#include <fcntl.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/store/kv/kv_rocks_env.h"

namespace rdb = ROCKSDB_NAMESPACE;
using rdb::IOStatus;

namespace {
const char MARKER[] = "/sync-failed"; /* rocks_wal.cc */

struct range {
    uint64_t from, to;
};
struct node {
    uint64_t size = 0, synced = 0;
    unsigned boot = 0;         /* it was made in */
    std::vector<range> ghosts; /* taken for written, and not on the medium */
};
enum change_kind { MADE, DELETED, RENAMED };
struct change {
    change_kind kind;
    std::string from, to, grave; /* MADE: to; DELETED: from; grave: what stood at `to`, or from */
    std::shared_ptr<node> old;   /* of the grave */
};

void must(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

std::string folder_of(const std::string &path)
{
    return path.substr(0, path.rfind('/'));
}

bool is_log(const std::string &path)
{
    return path.size() > 4 && path.compare(path.size() - 4, 4, ".log") == 0;
}

bool is_folder(const std::string &path)
{
    struct stat st;

    return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

class lossy : public rdb::FileSystemWrapper {
  public:
    lossy(const std::string &scratch, uint64_t seed)
        : rdb::FileSystemWrapper(rdb::FileSystem::Default()), grave_dir(scratch), random(seed)
    {
    }
    static const char *kClassName()
    {
        return "lossy";
    }
    const char *Name() const override
    {
        return kClassName();
    }

    /* ---- files ---- */
    IOStatus NewWritableFile(const std::string &f, const rdb::FileOptions &o,
                             std::unique_ptr<rdb::FSWritableFile> *r,
                             rdb::IODebugContext *d) override;
    IOStatus ReopenWritableFile(const std::string &f, const rdb::FileOptions &o,
                                std::unique_ptr<rdb::FSWritableFile> *r,
                                rdb::IODebugContext *d) override;
    IOStatus NewRandomRWFile(const std::string &f, const rdb::FileOptions &o,
                             std::unique_ptr<rdb::FSRandomRWFile> *r,
                             rdb::IODebugContext *d) override;
    IOStatus NewDirectory(const std::string &name, const rdb::IOOptions &o,
                          std::unique_ptr<rdb::FSDirectory> *r, rdb::IODebugContext *d) override;
    IOStatus DeleteFile(const std::string &f, const rdb::IOOptions &o,
                        rdb::IODebugContext *d) override;
    IOStatus RenameFile(const std::string &s, const std::string &t, const rdb::IOOptions &o,
                        rdb::IODebugContext *d) override;
    IOStatus LinkFile(const std::string &s, const std::string &t, const rdb::IOOptions &o,
                      rdb::IODebugContext *d) override;

    /* ---- what handles do; `boot` is theirs ---- */
    IOStatus begin(unsigned boot)
    {
        if (off || boot != now)
            return IOStatus::IOError("the power is off");
        if (left && !--left) {
            off = true;
            return IOStatus::IOError("the power is off");
        }
        count++;
        return IOStatus::OK();
    }
    IOStatus sync(unsigned boot, node *n, const std::string &path, bool writer)
    {
        std::lock_guard<std::mutex> hold(lock);
        IOStatus s = begin(boot);
        if (!s.ok())
            return s;
        if (failing && is_log(path) && n->size > n->synced) {
            failing = false;
            n->ghosts.push_back({ n->synced, n->size });
            n->synced = n->size;
            return IOStatus::IOError("the fsync failed");
        }
        if ((deaf & LOSSY_DEAF_RECOVERED) && n->boot != now)
            return s;
        if ((deaf & LOSSY_DEAF_CLOSED) && !writer && n->boot == now)
            return s;
        n->synced = n->size;
        return s;
    }
    void sync_names(const std::string &dir);
    std::shared_ptr<node> find(const std::string &path);
    void undo(const change &c);
    void rename_folder(const std::string &from, const std::string &to);
    void cut(rocks_lossy_keep keep);
    uint64_t below(uint64_t n) /* xorshift: a test repeats itself */
    {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return n ? random % n : 0;
    }
    /* Often none or all: then the file ends between two records, which looks whole. */
    uint64_t some_of(uint64_t n)
    {
        uint64_t how = below(3);

        return how == 0 ? 0 : how == 1 ? n : below(n + 1);
    }
    std::string grave()
    {
        return grave_dir + "/" + std::to_string(graves++);
    }

    std::mutex lock;
    std::map<std::string, std::shared_ptr<node>> live;
    std::vector<change> changes; /* of names, since the folder was synced */
    std::string grave_dir;
    uint64_t random, graves = 0, left = 0, count = 0;
    unsigned now = 1, deaf = 0;
    bool off = false, failing = false;
};

class writable : public rdb::FSWritableFileOwnerWrapper {
  public:
    writable(lossy *o, std::shared_ptr<node> n, const std::string &p,
             std::unique_ptr<rdb::FSWritableFile> &&t)
        : rdb::FSWritableFileOwnerWrapper(std::move(t)), owner(o), of(std::move(n)), path(p),
          boot(o->now)
    {
    }
    IOStatus Append(const rdb::Slice &data, const rdb::IOOptions &o,
                    rdb::IODebugContext *d) override
    {
        std::lock_guard<std::mutex> hold(owner->lock);
        IOStatus s = owner->begin(boot);
        if (s.ok())
            s = target()->Append(data, o, d);
        if (s.ok())
            of->size += data.size();
        return s;
    }
    IOStatus Append(const rdb::Slice &data, const rdb::IOOptions &o,
                    const rdb::DataVerificationInfo &, rdb::IODebugContext *d) override
    {
        return Append(data, o, d);
    }
    IOStatus Truncate(uint64_t size, const rdb::IOOptions &o, rdb::IODebugContext *d) override
    {
        std::lock_guard<std::mutex> hold(owner->lock);
        IOStatus s = owner->begin(boot);
        if (s.ok())
            s = target()->Truncate(size, o, d);
        if (s.ok())
            of->size = size;
        return s;
    }
    /* The file's length is kept by fallocate beyond its end: closing would cut that. */
    IOStatus Allocate(uint64_t, uint64_t, const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return IOStatus::OK();
    }
    void PrepareWrite(size_t, size_t, const rdb::IOOptions &, rdb::IODebugContext *) override
    {
    }
    IOStatus Sync(const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return owner->sync(boot, of.get(), path, true);
    }
    IOStatus Fsync(const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return owner->sync(boot, of.get(), path, true);
    }
    IOStatus RangeSync(uint64_t, uint64_t, const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return IOStatus::OK(); /* sync_file_range promises nothing */
    }

  private:
    lossy *owner;
    std::shared_ptr<node> of;
    std::string path;
    unsigned boot;
};

class random_rw : public rdb::FSRandomRWFileWrapper {
  public:
    random_rw(lossy *o, std::shared_ptr<node> n, const std::string &p,
              std::unique_ptr<rdb::FSRandomRWFile> &&t)
        : rdb::FSRandomRWFileWrapper(t.get()), guard(std::move(t)), owner(o), of(std::move(n)),
          path(p), boot(o->now)
    {
    }
    IOStatus Write(uint64_t at, const rdb::Slice &data, const rdb::IOOptions &o,
                   rdb::IODebugContext *d) override
    {
        std::lock_guard<std::mutex> hold(owner->lock);
        IOStatus s = owner->begin(boot);
        if (s.ok())
            s = target()->Write(at, data, o, d);
        if (!s.ok() || (owner->deaf & LOSSY_DEAF_REWRITE))
            return s;
        /* What is written once more is dirty again. */
        uint64_t end = at + data.size();
        std::vector<range> rest;
        for (const range &g : of->ghosts) {
            if (g.from < at)
                rest.push_back({ g.from, std::min(g.to, at) });
            if (g.to > end)
                rest.push_back({ std::max(g.from, end), g.to });
        }
        of->synced = std::min(of->synced, at);
        of->ghosts = rest;
        return s;
    }
    IOStatus Sync(const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return owner->sync(boot, of.get(), path, false);
    }
    IOStatus Fsync(const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        return owner->sync(boot, of.get(), path, false);
    }

  private:
    std::unique_ptr<rdb::FSRandomRWFile> guard;
    lossy *owner;
    std::shared_ptr<node> of;
    std::string path;
    unsigned boot;
};

class directory : public rdb::FSDirectoryWrapper {
  public:
    directory(lossy *o, const std::string &p, std::unique_ptr<rdb::FSDirectory> &&t)
        : rdb::FSDirectoryWrapper(std::move(t)), owner(o), path(p), boot(o->now)
    {
        while (path.size() > 1 && path.back() == '/')
            path.pop_back();
    }
    IOStatus Fsync(const rdb::IOOptions &, rdb::IODebugContext *) override
    {
        std::lock_guard<std::mutex> hold(owner->lock);
        IOStatus s = owner->begin(boot);
        if (s.ok())
            owner->sync_names(path);
        return s;
    }
    IOStatus FsyncWithDirOptions(const rdb::IOOptions &o, rdb::IODebugContext *d,
                                 const rdb::DirFsyncOptions &) override
    {
        return Fsync(o, d);
    }

  private:
    lossy *owner;
    std::string path;
    unsigned boot;
};

/* A file that was there before counts as synced. */
std::shared_ptr<node> lossy::find(const std::string &path)
{
    auto it = live.find(path);
    if (it != live.end())
        return it->second;
    auto n = std::make_shared<node>();
    rdb::IODebugContext d;
    if (target()->GetFileSize(path, rdb::IOOptions(), &n->size, &d).ok())
        n->synced = n->size;
    live[path] = n;
    return n;
}

IOStatus lossy::NewWritableFile(const std::string &f, const rdb::FileOptions &o,
                                std::unique_ptr<rdb::FSWritableFile> *r, rdb::IODebugContext *d)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = begin(now);
    std::unique_ptr<rdb::FSWritableFile> real;

    if (s.ok() && f.size() > sizeof(MARKER) &&
        f.compare(f.size() - sizeof(MARKER) + 1, std::string::npos, MARKER) == 0)
        s = IOStatus::IOError("the disk that fails an fsync takes no note of it");
    if (!s.ok())
        return s;
    change c{ MADE, "", f, "", nullptr };
    if (access(f.c_str(), F_OK) == 0) { /* truncated: the old one comes back if this is undone */
        c.grave = grave();
        c.old = find(f);
        must(rename(f.c_str(), c.grave.c_str()) == 0, "rename");
    }
    s = target()->NewWritableFile(f, o, &real, d);
    if (!s.ok())
        return s;
    auto n = std::make_shared<node>();
    n->boot = now;
    live[f] = n;
    changes.push_back(c);
    r->reset(new writable(this, n, f, std::move(real)));
    return s;
}

IOStatus lossy::ReopenWritableFile(const std::string &f, const rdb::FileOptions &o,
                                   std::unique_ptr<rdb::FSWritableFile> *r, rdb::IODebugContext *d)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = begin(now);
    std::unique_ptr<rdb::FSWritableFile> real;
    bool there = access(f.c_str(), F_OK) == 0;

    if (s.ok())
        s = target()->ReopenWritableFile(f, o, &real, d);
    if (!s.ok())
        return s;
    if (!there)
        changes.push_back({ MADE, "", f, "", nullptr });
    r->reset(new writable(this, find(f), f, std::move(real)));
    return s;
}

IOStatus lossy::NewRandomRWFile(const std::string &f, const rdb::FileOptions &o,
                                std::unique_ptr<rdb::FSRandomRWFile> *r, rdb::IODebugContext *d)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = off ? IOStatus::IOError("the power is off") : IOStatus::OK();
    std::unique_ptr<rdb::FSRandomRWFile> real;

    if (s.ok())
        s = target()->NewRandomRWFile(f, o, &real, d);
    if (s.ok())
        r->reset(new random_rw(this, find(f), f, std::move(real)));
    return s;
}

IOStatus lossy::NewDirectory(const std::string &name, const rdb::IOOptions &o,
                             std::unique_ptr<rdb::FSDirectory> *r, rdb::IODebugContext *d)
{
    std::lock_guard<std::mutex> hold(lock);
    std::unique_ptr<rdb::FSDirectory> real;
    IOStatus s = target()->NewDirectory(name, o, &real, d);

    if (s.ok())
        r->reset(new directory(this, name, std::move(real)));
    return s;
}

IOStatus lossy::DeleteFile(const std::string &f, const rdb::IOOptions &, rdb::IODebugContext *)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = begin(now);

    if (!s.ok())
        return s;
    if (access(f.c_str(), F_OK))
        return IOStatus::PathNotFound(f);
    change c{ DELETED, f, "", grave(), find(f) };
    must(rename(f.c_str(), c.grave.c_str()) == 0, "rename");
    live.erase(f);
    changes.push_back(c);
    return s;
}

/* Of a checkpoint: on the medium at once, with the changes of names in it. */
void lossy::rename_folder(const std::string &from, const std::string &to)
{
    std::map<std::string, std::shared_ptr<node>> moved;

    sync_names(from);
    must(rename(from.c_str(), to.c_str()) == 0, "rename");
    for (auto &[path, n] : live)
        moved[folder_of(path) == from ? to + path.substr(from.size()) : path] = n;
    live = moved;
}

IOStatus lossy::RenameFile(const std::string &from, const std::string &to, const rdb::IOOptions &,
                           rdb::IODebugContext *)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = begin(now);

    if (!s.ok())
        return s;
    if (is_folder(from)) {
        rename_folder(from, to);
        return s;
    }
    change c{ RENAMED, from, to, "", nullptr };
    if (access(to.c_str(), F_OK) == 0) {
        c.grave = grave();
        c.old = find(to);
        must(rename(to.c_str(), c.grave.c_str()) == 0, "rename");
    }
    live[to] = find(from);
    live.erase(from);
    must(rename(from.c_str(), to.c_str()) == 0, "rename");
    changes.push_back(c);
    return s;
}

IOStatus lossy::LinkFile(const std::string &from, const std::string &to, const rdb::IOOptions &o,
                         rdb::IODebugContext *d)
{
    std::lock_guard<std::mutex> hold(lock);
    IOStatus s = begin(now);

    if (s.ok())
        s = target()->LinkFile(from, to, o, d);
    if (!s.ok())
        return s;
    live[to] = find(from);
    changes.push_back({ MADE, "", to, "", nullptr });
    return s;
}

void lossy::sync_names(const std::string &dir)
{
    std::vector<change> rest;

    for (const change &c : changes)
        if (folder_of(c.kind == DELETED ? c.from : c.to) == dir) {
            if (!c.grave.empty())
                must(unlink(c.grave.c_str()) == 0, "unlink");
        } else {
            rest.push_back(c);
        }
    changes = rest;
}

void lossy::undo(const change &c)
{
    if (c.kind == MADE) {
        must(unlink(c.to.c_str()) == 0, "unlink");
        live.erase(c.to);
    } else if (c.kind == RENAMED) {
        must(rename(c.to.c_str(), c.from.c_str()) == 0, "rename");
        live[c.from] = live[c.to];
        live.erase(c.to);
    }
    if (!c.grave.empty()) {
        const std::string &back = c.kind == DELETED ? c.from : c.to;
        must(rename(c.grave.c_str(), back.c_str()) == 0, "rename");
        live[back] = c.old;
    }
}

void zeros(const std::string &path, uint64_t from, uint64_t to)
{
    std::string nothing(to - from, '\0');
    int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);

    must(fd >= 0, "open");
    must(pwrite(fd, nothing.data(), nothing.size(), (off_t)from) == (ssize_t)nothing.size(),
         "pwrite");
    close(fd);
}

void lossy::cut(rocks_lossy_keep keep)
{
    size_t stay = keep == LOSSY_NOTHING ? 0 : below(changes.size() + 1);

    for (size_t i = changes.size(); i > stay; i--)
        undo(changes[i - 1]);
    for (size_t i = 0; i < stay; i++)
        if (!changes[i].grave.empty())
            must(unlink(changes[i].grave.c_str()) == 0, "unlink");
    changes.clear();
    for (auto &[path, n] : live) {
        uint64_t more = n->size - n->synced;
        uint64_t some = keep == LOSSY_NOTHING ? 0 : some_of(more);
        n->size = n->synced + some;
        must(truncate(path.c_str(), (off_t)n->size) == 0, "truncate");
        for (const range &g : n->ghosts)
            if (g.from < n->size)
                zeros(path, g.from, std::min(g.to, n->size));
        if (keep == LOSSY_TORN && some)
            zeros(path, n->size - below(some + 1), n->size);
        n->ghosts.clear();
        n->synced = n->size;
    }
}
} // namespace

struct rocks_lossy {
    std::shared_ptr<lossy> fs;
    std::unique_ptr<rdb::Env> env;
};

extern "C" struct rocks_lossy *rocks_lossy_new(const char *scratch, uint64_t seed)
{
    auto *l = new rocks_lossy;

    l->fs = std::make_shared<lossy>(scratch, seed * 2 + 1);
    l->env = rdb::NewCompositeEnv(l->fs);
    kv_rocks_env_set(l->env.get());
    return l;
}

extern "C" void rocks_lossy_free(struct rocks_lossy *l)
{
    kv_rocks_env_set(nullptr);
    delete l;
}

extern "C" void rocks_lossy_deaf(struct rocks_lossy *l, unsigned deaf)
{
    l->fs->deaf = deaf;
}

extern "C" void rocks_lossy_kill(struct rocks_lossy *l)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    l->fs->off = true;
}

extern "C" void rocks_lossy_kill_after(struct rocks_lossy *l, uint64_t operations)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    l->fs->left = operations;
}

extern "C" bool rocks_lossy_killed(const struct rocks_lossy *l)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    return l->fs->off;
}

extern "C" void rocks_lossy_cut(struct rocks_lossy *l, enum rocks_lossy_keep keep)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    l->fs->off = true;
    l->fs->cut(keep);
}

extern "C" void rocks_lossy_start(struct rocks_lossy *l)
{
    kv_rocks_env_forget(); /* another process */
    std::lock_guard<std::mutex> hold(l->fs->lock);

    l->fs->off = l->fs->failing = false;
    l->fs->left = 0;
    l->fs->now++;
}

extern "C" void rocks_lossy_fail_sync(struct rocks_lossy *l)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    l->fs->failing = true;
}

extern "C" uint64_t rocks_lossy_operations(const struct rocks_lossy *l)
{
    std::lock_guard<std::mutex> hold(l->fs->lock);

    return l->fs->count;
}
