/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_cache: which pieces are on disk is known in memory; the files are written beside and
 * renamed, and never synced: a piece that a crash tore is found by the hashes of what is inside
 * it (part.h), forgotten, and read again.
 *
 *   cold_cache_read: piece there? ─yes─> pread of its file (gone meanwhile: as "no")
 *                         └─no─> a handle of the object store ─> the piece ─> a file
 *                                                                        └──> the caller
 *
 * The lock is never held over a read or a write. Two threads that miss the same piece at once both
 * fetch it: simpler than waiting for each other, and no wrong bytes can come of it. Over the
 * maximum the piece that was not used for longest goes.
 */
#include "common/cold/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/store/kv/cold_read.h"
#include "common/sys/thread.h"

#define FILE_LEN    41 /* 32 hex, '-', 8 hex */
#define HANDLES_MAX 8

struct piece {
    struct list link; /* in used: least recently used first */
    char file[FILE_LEN + 1];
    size_t len;
};
struct cold_cache {
    struct cold_cache_opts o;
    char *dir;
    struct mutex lock; /* guards the fields below */
    struct cond freed; /* a handle */
    struct map_str *pieces;
    struct list used;
    struct cold_cache_stats stats;
    VEC(struct object_store *) idle;
    size_t opened;
    uint64_t temp; /* numbers files being written */
};

static void file_of(struct str name, uint64_t piece, char ret[FILE_LEN + 1])
{
    struct hash128 h = hash128(name.ptr, name.len, 0);

    (void)snprintf(ret, FILE_LEN + 1, "%016" PRIx64 "%016" PRIx64 "-%08" PRIx32, h.hi, h.lo,
                   (uint32_t)piece);
}

static void remove_file(const struct cold_cache *c, const char *file)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%s", c->dir, file) < (int)sizeof(path))
        (void)unlink(path);
}

/* ---- the list; locked ----------------------------------------------------------------------- */

static void drop(struct cold_cache *c, struct piece *p)
{
    list_del(&p->link);
    (void)map_str_del(c->pieces, str_n(p->file, FILE_LEN));
    c->stats.bytes -= p->len;
    c->stats.pieces--;
    remove_file(c, p->file);
    xfree(p);
}

static void add(struct cold_cache *c, const char *file, size_t len)
{
    struct piece *p = map_str_get(c->pieces, str_n(file, FILE_LEN));

    if (p)
        return; /* another thread fetched it, too */
    p = XNEW(struct piece);
    memcpy(p->file, file, FILE_LEN + 1);
    p->len = len;
    (void)map_str_put(c->pieces, str_n(p->file, FILE_LEN), p);
    list_add_tail(&c->used, &p->link);
    c->stats.bytes += len;
    c->stats.pieces++;
    while (c->stats.bytes > c->o.bytes_max && c->used.next != &p->link) {
        c->stats.evicted++;
        drop(c, container_of(c->used.next, struct piece, link));
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

/* False: not there, or not whole. */
static bool read_file(const struct cold_cache *c, const char *file, size_t from, size_t len,
                      struct buf *out)
{
    char path[PATH_MAX], *to = buf_room(out, len);
    int fd, n = snprintf(path, sizeof(path), "%s/%s", c->dir, file);
    bool ok = false;

    if (!to || n < 0 || (size_t)n >= sizeof(path))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ok = pread(fd, to, len, (off_t)from) == (ssize_t)len;
        (void)close(fd);
    }
    if (ok)
        out->len += len;
    return ok;
}

/* Best effort: a cache that cannot be written costs time, not answers. */
static bool write_file(struct cold_cache *c, const char *file, struct str data)
{
    char temp[PATH_MAX], path[PATH_MAX];
    uint64_t number;
    bool ok;
    int fd;

    mutex_lock(&c->lock);
    number = c->temp++;
    mutex_unlock(&c->lock);
    if (snprintf(temp, sizeof(temp), "%s/new-%" PRIu64, c->dir, number) >= (int)sizeof(temp) ||
        snprintf(path, sizeof(path), "%s/%s", c->dir, file) >= (int)sizeof(path))
        return false;
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ok = fd >= 0 && write(fd, data.ptr, data.len) == (ssize_t)data.len;
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && rename(temp, path) == 0;
    if (!ok)
        (void)unlink(temp);
    return ok;
}

/* ---- handles -------------------------------------------------------------------------------- */

/* Locked. False: none was given back in time. */
static bool wait_handle(struct cold_cache *c, uint64_t deadline_ms)
{
    while (!c->idle.len && c->opened >= c->o.handles_max)
        if (!cond_wait_until(&c->freed, &c->lock, deadline_ms ? deadline_ms : UINT64_MAX))
            return false;
    return true;
}

static int take_handle(struct cold_cache *c, uint64_t deadline_ms, struct object_store **ret,
                       struct err *e)
{
    int rc = 0;

    mutex_lock(&c->lock);
    if (!wait_handle(c, deadline_ms)) {
        mutex_unlock(&c->lock);
        return err_set(e, ERR_TIMEOUT, "all %zu connections to the cold tier are waited for",
                       c->o.handles_max);
    }
    if (c->idle.len) {
        *ret = c->idle.ptr[--c->idle.len];
        mutex_unlock(&c->lock);
        return 0;
    }
    c->opened++;
    mutex_unlock(&c->lock);
    rc = c->o.open(c->o.cookie, ret, e);
    if (rc) {
        mutex_lock(&c->lock);
        c->opened--;
        cond_wake_one(&c->freed);
        mutex_unlock(&c->lock);
    }
    return rc;
}

static void give_handle(struct cold_cache *c, struct object_store *o)
{
    mutex_lock(&c->lock);
    vec_push(&c->idle, o);
    cond_wake_one(&c->freed);
    mutex_unlock(&c->lock);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* May this thread wait for the object store? */
static int enter(struct cold_read *r, struct err *e)
{
    if (!r || r->entered || !r->enter)
        return 0;
    r->entered = r->enter(r->cookie);
    r->refused = !r->entered;
    return r->entered ? 0 : err_set(e, ERR_BUSY, "others wait for the cold tier already");
}

static int fetch(struct cold_cache *c, struct str name, uint64_t from, size_t len, struct buf *out,
                 struct err *e)
{
    struct cold_read *r = cold_read();
    struct object_store *o;

    if (enter(r, e) || take_handle(c, r ? r->deadline_ms : 0, &o, e))
        return e->code;
    object_deadline(o, r ? r->deadline_ms : 0);
    int rc = object_read(o, name, from, len, out, e);
    object_deadline(o, 0);
    give_handle(c, o);
    /* This process ends (object.h), and the caller still waits: another process may answer it. */
    if (rc == ERR_CANCELED) {
        e->code = ERR_UNAVAILABLE;
        return err_wrap(e, "this process is ending");
    }
    return rc;
}

/* Appends bytes [at, end) of the object that r names; they are of one piece. */
static int read_piece(struct cold_cache *c, const struct cold_range *r, uint64_t at, uint64_t end,
                      struct buf *out, struct err *e)
{
    char file[FILE_LEN + 1];
    uint64_t k = at / COLD_PIECE, begin = k * COLD_PIECE;
    size_t len = (size_t)MIN((uint64_t)COLD_PIECE, r->size - begin);
    size_t from = (size_t)(at - begin), to = (size_t)(end - begin);
    struct piece *p;
    struct buf whole;
    int rc;

    file_of(r->name, k, file);
    mutex_lock(&c->lock);
    p = map_str_get(c->pieces, str_n(file, FILE_LEN));
    if (p) {
        list_del(&p->link);
        list_add_tail(&c->used, &p->link);
    }
    mutex_unlock(&c->lock);
    bool hit = p && read_file(c, file, from, to - from, out);
    mutex_lock(&c->lock);
    if (hit)
        c->stats.hits++;
    else
        c->stats.misses++;
    mutex_unlock(&c->lock);
    if (hit)
        return 0;
    buf_init(&whole, COLD_PIECE);
    rc = fetch(c, r->name, begin, len, &whole, e);
    if (!rc) {
        bool kept = c->dir && write_file(c, file, buf_str(&whole));
        mutex_lock(&c->lock);
        if (kept)
            add(c, file, len);
        else
            c->stats.failed += c->dir != NULL;
        mutex_unlock(&c->lock);
        CHECK(buf_add(out, whole.ptr + from, to - from));
    }
    buf_deinit(&whole);
    return rc;
}

int cold_cache_read(struct cold_cache *c, const struct cold_range *r, struct buf *out,
                    struct err *e)
{
    int rc = 0;

    buf_reset(out);
    if (r->len > out->max || r->at > r->size || r->len > r->size - r->at)
        return err_set(e, ERR_CORRUPT, "bytes beyond the end of %.*s", STR_ARG(r->name));
    for (uint64_t at = r->at, end = at + r->len; !rc && at < end;) {
        uint64_t next = MIN(end, (at / COLD_PIECE + 1) * COLD_PIECE);

        rc = read_piece(c, r, at, next, out, e);
        at = next;
    }
    return rc;
}

void cold_cache_forget(struct cold_cache *c, struct str name, uint64_t at, size_t len)
{
    for (uint64_t k = at / COLD_PIECE; len && k <= (at + len - 1) / COLD_PIECE; k++) {
        char file[FILE_LEN + 1];
        struct piece *p;

        file_of(name, k, file);
        mutex_lock(&c->lock);
        p = map_str_get(c->pieces, str_n(file, FILE_LEN));
        if (p)
            drop(c, p);
        mutex_unlock(&c->lock);
    }
}

void cold_cache_stats(struct cold_cache *c, struct cold_cache_stats *ret)
{
    mutex_lock(&c->lock);
    *ret = c->stats;
    mutex_unlock(&c->lock);
}

/* ---- life ----------------------------------------------------------------------------------- */

static bool is_piece(const char *name)
{
    if (strlen(name) != FILE_LEN || name[32] != '-')
        return false;
    for (size_t i = 0; i < FILE_LEN; i++)
        if (i != 32 && !strchr("0123456789abcdef", name[i]))
            return false;
    return true;
}

static int load(struct cold_cache *c, struct err *e)
{
    DIR *d = opendir(c->dir);
    struct dirent *entry;

    if (!d)
        return err_errno(e, errno, "cannot list %s", c->dir);
    while ((entry = readdir(d)) != NULL) {
        struct stat st;

        if (fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (is_piece(entry->d_name) && st.st_size > 0 && (size_t)st.st_size <= COLD_PIECE)
            add(c, entry->d_name, (size_t)st.st_size);
        else
            remove_file(c, entry->d_name);
    }
    (void)closedir(d);
    return 0;
}

int cold_cache_new(const struct cold_cache_opts *o, struct cold_cache **ret, struct err *e)
{
    struct cold_cache *c = XNEW(struct cold_cache);
    int rc = o->dir ? fs_real()->mkdir_all(fs_real(), o->dir, e) : 0;

    c->o = *o;
    c->o.handles_max = o->handles_max ? o->handles_max : HANDLES_MAX;
    c->dir = o->dir ? xstrdup(o->dir) : NULL;
    mutex_init(&c->lock);
    cond_init(&c->freed);
    c->pieces = map_str_new();
    list_init(&c->used);
    if (!rc && c->dir)
        rc = load(c, e);
    if (rc) {
        cold_cache_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void cold_cache_free(struct cold_cache *c)
{
    if (!c)
        return;
    CHECK(c->idle.len == c->opened);
    vec_for (i, &c->idle)
        object_close(c->idle.ptr[i]);
    vec_free(&c->idle);
    list_for (it, &c->used) { /* the files stay */
        list_del(it);
        xfree(container_of(it, struct piece, link));
    }
    map_str_free(c->pieces);
    cond_deinit(&c->freed);
    mutex_deinit(&c->lock);
    xfree(c->dir);
    xfree(c);
}
