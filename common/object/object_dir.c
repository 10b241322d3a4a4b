/* SPDX-License-Identifier: Apache-2.0
 *
 * object_dir: objects as files below a directory, for one machine, an NFS mount, and tests.
 *
 * An object is written beside its place, fsynced, and linked to its name: link(2) fails where the
 * name is taken, so two writers cannot both win. A crash leaves at most a file whose name begins
 * with ".new-", which no listing shows. Then the folder is fsynced, and new ones above it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/object/object_impl.h"

#define ENTRIES_MAX 1000000 /* of one folder */
#define DEPTH_MAX   32

struct dir_store {
    struct object_store base;
    char dir[PATH_MAX];
};

static struct dir_store *dir_of(struct object_store *o)
{
    return container_of(o, struct dir_store, base);
}

static int path_of(const struct dir_store *d, struct str name, char out[PATH_MAX], struct err *e)
{
    size_t dir = strlen(d->dir);

    if (dir + 1 + name.len >= PATH_MAX)
        return err_set(e, ERR_INPUT, "the path of %.*s is too long", STR_ARG(name));
    memcpy(out, d->dir, dir);
    out[dir] = '/';
    if (name.len)
        memcpy(out + dir + 1, name.ptr, name.len);
    out[dir + 1 + name.len] = '\0';
    return 0;
}

static int sync_folder(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 ? errno : 0;

    if (!failed && fsync(fd))
        failed = errno;
    if (fd >= 0)
        (void)close(fd);
    return failed ? err_errno(e, failed, "cannot sync the folder %s", path) : 0;
}

/* Makes the folders of `path` behind its first `root` bytes; syncs new ones in their parents. */
static int make_folders(char *path, size_t root, struct err *e)
{
    int rc = 0;

    for (size_t i = root + 1; !rc && path[i]; i++) {
        size_t parent;

        if (path[i] != '/')
            continue;
        path[i] = '\0';
        if (mkdir(path, 0700) == 0) {
            for (parent = i; parent > root && path[parent] != '/';)
                parent--;
            path[parent] = '\0';
            rc = sync_folder(path, e);
            path[parent] = '/';
        } else if (errno != EEXIST) {
            rc = err_errno(e, errno, "cannot create the folder %s", path);
        }
        path[i] = '/';
    }
    return rc;
}

static int write_new(const char *path, struct str data, struct err *e)
{
    (void)unlink(path); /* of a process of this number that was killed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int failed = fd < 0 ? errno : 0;

    while (!failed && data.len) {
        ssize_t n = write(fd, data.ptr, data.len);

        if (n < 0 && errno != EINTR)
            failed = errno;
        else if (n > 0)
            data = str_sub(data, (size_t)n, data.len);
    }
    if (!failed && fsync(fd))
        failed = errno;
    if (fd >= 0 && close(fd) && !failed)
        failed = errno;
    return failed ? err_errno(e, failed, "cannot write %s", path) : 0;
}

static int dir_put(struct object_store *o, struct str name, struct str data, struct err *e)
{
    struct dir_store *d = dir_of(o);
    char path[PATH_MAX], temp[PATH_MAX + 64], folder[PATH_MAX];
    int rc = path_of(d, name, path, e);

    if (rc)
        return rc;
    memcpy(folder, path, strlen(path) + 1);
    *strrchr(folder, '/') = '\0';
    (void)snprintf(temp, sizeof(temp), "%s/.new-%ld-%p", folder, (long)getpid(), (void *)d);
    rc = make_folders(path, strlen(d->dir), e);
    if (!rc)
        rc = write_new(temp, data, e);
    if (!rc && link(temp, path)) {
        rc = errno == EEXIST ? err_set(e, ERR_CONFLICT, "%.*s is there already", STR_ARG(name))
                             : err_errno(e, errno, "cannot link %s", path);
    }
    (void)unlink(temp);
    return rc ? rc : sync_folder(folder, e);
}

static int open_object(struct object_store *o, struct str name, int *ret_fd, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_of(dir_of(o), name, path, e);

    if (rc)
        return rc;
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*ret_fd >= 0)
        return 0;
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(e, ERR_NOT_FOUND, "there is no object %.*s", STR_ARG(name));
    return err_errno(e, errno, "cannot open %s", path);
}

static int dir_read(struct object_store *o, struct str name, uint64_t from, size_t len,
                    struct buf *out, struct err *e)
{
    int fd, rc = open_object(o, name, &fd, e);
    char *to;

    if (rc)
        return rc;
    to = buf_room(out, len);
    CHECK(to); /* object_read looked */
    while (len) {
        ssize_t n = pread(fd, to, len, (off_t)from);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno(e, errno, "cannot read %.*s", STR_ARG(name));
        if (n <= 0)
            break;
        to += n;
        out->len += (size_t)n;
        from += (uint64_t)n;
        len -= (size_t)n;
    }
    (void)close(fd);
    return rc;
}

static int dir_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e)
{
    struct stat st;
    int fd, rc = open_object(o, name, &fd, e);

    if (rc)
        return rc;
    if (fstat(fd, &st))
        rc = err_errno(e, errno, "cannot look at %.*s", STR_ARG(name));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_NOT_FOUND, "%.*s is a folder", STR_ARG(name));
    else
        *ret = (uint64_t)st.st_size;
    (void)close(fd);
    return rc;
}

static int dir_del(struct object_store *o, struct str name, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_of(dir_of(o), name, path, e);

    if (rc)
        return rc;
    if (unlink(path) && errno != ENOENT && errno != ENOTDIR)
        return err_errno(e, errno, "cannot delete %s", path);
    return 0;
}

/* ---- listing -------------------------------------------------------------------------------- */

struct walk {
    struct dir_store *d;
    struct str prefix, after;
    object_list_fn fn;
    void *cookie;
    bool ended;
};
struct entry {
    char *name; /* of a folder: with '/' behind it, which is how its objects sort */
    uint64_t size;
};
struct entries {
    VEC(struct entry) at;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void entries_free(struct entries *all)
{
    vec_for (i, &all->at)
        xfree(all->at.ptr[i].name);
    vec_free(&all->at);
}

/* NULL: the end, or errno is set. */
static struct dirent *next_entry(DIR *d)
{
    errno = 0;
    return readdir(d);
}

/* Folder "" or "a/b/". */
static int read_folder(struct walk *w, const char *folder, struct entries *ret, struct err *e)
{
    char path[PATH_MAX];
    struct dirent *entry;
    int rc = path_of(w->d, str_c(folder), path, e);
    DIR *d = rc ? NULL : opendir(path);

    if (!d)
        return rc || errno == ENOENT ? rc : err_errno(e, errno, "cannot list %s", path);
    while (!rc && (entry = next_entry(d)) != NULL) {
        struct stat st;
        struct buf name;

        if (!object_name_ok(str_c(entry->d_name)) || entry->d_name[0] == '.')
            continue;
        if (fstatat(dirfd(d), entry->d_name, &st, 0)) {
            if (errno != ENOENT) /* else it has just gone */
                rc = err_errno(e, errno, "cannot look at %s%s in %s", folder, entry->d_name,
                               w->d->dir);
            continue;
        }
        buf_init(&name, PATH_MAX);
        if (!buf_addf(&name, "%s%s%s", folder, entry->d_name, S_ISDIR(st.st_mode) ? "/" : "") ||
            !buf_add_c(&name, '\0') || ret->at.len >= ENTRIES_MAX)
            rc = err_set(e, ERR_LIMIT, "%s has names that are too long, or over %d", path,
                         ENTRIES_MAX);
        else
            vec_push(&ret->at, ((struct entry){ .name = (char *)(uintptr_t)buf_take(&name).ptr,
                                                .size = (uint64_t)st.st_size }));
        buf_deinit(&name);
    }
    if (!rc && errno) /* a listing that lacks something would have it deleted, or not found */
        rc = err_errno(e, errno, "cannot list %s", path);
    (void)closedir(d);
    if (!rc && ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), by_name);
    return rc;
}

/* Could a name that begins with `folder` be asked for? */
static bool wants_folder(const struct walk *w, struct str folder)
{
    size_t n = MIN(folder.len, w->prefix.len), a = MIN(folder.len, w->after.len);

    if (n && memcmp(folder.ptr, w->prefix.ptr, n) != 0)
        return false;
    return !a || memcmp(folder.ptr, w->after.ptr, a) >= 0;
}

static bool wants_object(const struct walk *w, struct str name)
{
    return str_starts(name, w->prefix) && (!w->after.len || str_cmp(name, w->after) > 0) &&
           object_name_ok(name);
}

/* Folders that are begun and not finished are kept on a stack: no recursion on what is found. */
static int walk_all(struct walk *w, struct err *e)
{
    struct level {
        struct entries all;
        size_t next;
    } stack[DEPTH_MAX] = { 0 };
    size_t depth = 1;
    int rc = read_folder(w, "", &stack[0].all, e);

    while (!rc && depth && !w->ended) {
        struct level *top = &stack[depth - 1];
        struct entry *it;
        struct str name;

        if (top->next == top->all.at.len) {
            entries_free(&top->all);
            top->next = 0;
            depth--;
            continue;
        }
        it = &top->all.at.ptr[top->next++];
        name = str_c(it->name);
        if (!str_ends(name, STR("/"))) {
            if (wants_object(w, name))
                w->ended = !w->fn(w->cookie, name, it->size);
        } else if (wants_folder(w, name) && depth < DEPTH_MAX) {
            rc = read_folder(w, it->name, &stack[depth].all, e);
            depth++;
        }
    }
    for (size_t i = 0; i < DEPTH_MAX; i++)
        entries_free(&stack[i].all);
    return rc;
}

static int dir_list(struct object_store *o, struct str prefix, struct str after, object_list_fn fn,
                    void *cookie, struct err *e)
{
    struct walk w = { dir_of(o), prefix, after, fn, cookie, false };

    return walk_all(&w, e);
}

static void dir_close(struct object_store *o)
{
    xfree(dir_of(o));
}

int object_dir_check(const char *dir, struct err *e)
{
    size_t len = strlen(dir);
    struct stat st;

    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (len == 0 || len >= PATH_MAX - OBJECT_NAME_MAX - 2)
        return err_set(e, ERR_CONFIG, "folder name of %zu bytes is empty or too long", len);
    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_CONFIG, "%s exists and is not a folder", dir);
    return 0;
}

int object_dir_open(const char *dir, struct object_store **ret, struct err *e)
{
    static const struct object_ops ops = {
        dir_put, dir_read, dir_size, dir_list, dir_del, dir_close
    };
    struct dir_store *d = XNEW(struct dir_store);
    size_t len = strlen(dir);
    int rc = object_dir_check(dir, e);

    d->base.ops = &ops;
    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (!rc) {
        memcpy(d->dir, dir, len);
        rc = fs_real()->mkdir_all(fs_real(), d->dir, e);
        (void)snprintf(d->base.where, sizeof(d->base.where), "folder %.200s", d->dir);
    }
    if (rc) {
        xfree(d);
        return rc;
    }
    *ret = &d->base;
    return 0;
}
