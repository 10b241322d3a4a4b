/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_file: a file counts from the moment its .meta is there, which is written last and
 * atomically. A crash before that leaves a tmp- file, or data without .meta: both are removed when
 * the process starts.
 */
#include "distributor/parca/debuginfo/debuginfo_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/hex.h"
#include "distributor/parca/debuginfo/debuginfo_elf.h"

#define TEMP_PREFIX "tmp-"
#define META_SUFFIX ".meta"
#define META_MAX    4096
#define JOINED_MAX  (DEBUGINFO_PATH_MAX + 1024)

static const char *const type_names[DEBUGINFO_TYPES] = { "debuginfo", "executable", "sources",
                                                         "sourcemap" };

const char *debuginfo_type_name(enum debuginfo_type t)
{
    return type_names[t];
}

int debuginfo_id_check(struct str id, struct err *e)
{
    if (id.len < 2 || id.len > DEBUGINFO_ID_MAX)
        return err_set(e, ERR_INPUT, "a build id of %zu bytes, want 2 to %d", id.len,
                       DEBUGINFO_ID_MAX);
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] <= ' ' || id.ptr[i] > '~')
            return err_set(e, ERR_INPUT, "a build id with the byte 0x%02x", (uint8_t)id.ptr[i]);
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------
 */

void debuginfo_path(const char *dir, const struct debuginfo_meta *m, struct buf *out)
{
    struct hash128 h = hash128(m->tenant, strlen(m->tenant), 0);
    struct str id = str_c(m->build_id);

    buf_addf(out, "%s/%016" PRIx64 "%016" PRIx64 "/", dir, h.hi, h.lo);
    if (hex_is_lower(id)) {
        buf_add_str(out, id);
    } else {
        buf_add_c(out, 'x');
        hex_add(out, id.ptr, id.len);
    }
    buf_addf(out, ".%s", type_names[m->type]);
}

/* The path with a suffix, as a C string in out. */
static const char *path_of(const char *dir, const struct debuginfo_meta *m, const char *suffix,
                           struct buf *out)
{
    buf_init(out, DEBUGINFO_PATH_MAX);
    debuginfo_path(dir, m, out);
    buf_addf(out, "%s", suffix);
    buf_add_c(out, 0);
    return buf_ok(out) ? out->ptr : "";
}

void debuginfo_meta_write(const struct debuginfo_meta *m, struct buf *out)
{
    buf_addf(out,
             "tenant=%s\nbuild_id=%s\ntype=%s\nsize=%" PRIu64 "\nstarted_ms=%" PRId64
             "\nfinished_ms=%" PRId64 "\nhash=%s\nname=%s\n",
             m->tenant, m->build_id, type_names[m->type], m->size, m->started_ms, m->finished_ms,
             m->hash, m->name);
}

static bool keep_text(struct str v, char *to, size_t size)
{
    if (v.len >= size)
        return false;
    memcpy(to, v.ptr, v.len);
    to[v.len] = 0;
    return true;
}

static bool meta_line(struct str key, struct str v, struct debuginfo_meta *m)
{
    if (str_eqc(key, "tenant"))
        return keep_text(v, m->tenant, sizeof(m->tenant));
    if (str_eqc(key, "build_id"))
        return keep_text(v, m->build_id, sizeof(m->build_id));
    if (str_eqc(key, "hash"))
        return keep_text(v, m->hash, sizeof(m->hash));
    if (str_eqc(key, "name"))
        return keep_text(v, m->name, sizeof(m->name));
    if (str_eqc(key, "size"))
        return str_u64(v, &m->size);
    if (str_eqc(key, "started_ms"))
        return str_i64(v, &m->started_ms);
    if (str_eqc(key, "finished_ms"))
        return str_i64(v, &m->finished_ms);
    for (int i = 0; str_eqc(key, "type") && i < DEBUGINFO_TYPES; i++)
        if (str_eqc(v, type_names[i])) {
            m->type = (enum debuginfo_type)i;
            return true;
        }
    return !str_eqc(key, "type"); /* a line of another version says nothing */
}

int debuginfo_meta_read(struct str text, struct debuginfo_meta *ret, struct err *e)
{
    struct debuginfo_meta m = { 0 };
    struct str line;
    bool more = true;

    while (str_next(&text, '\n', &more, &line)) {
        ptrdiff_t eq = str_find(line, '=');
        if (line.len == 0)
            continue;
        if (eq < 0 ||
            !meta_line(str_sub(line, 0, (size_t)eq), str_sub(line, (size_t)eq + 1, line.len), &m))
            return err_set(e, ERR_CORRUPT, "debuginfo: cannot read \"%.*s\"",
                           STR_ARG(str_sub(line, 0, 64)));
    }
    if (debuginfo_id_check(str_c(m.build_id), e) || m.tenant[0] == 0)
        return err_set(e, ERR_CORRUPT, "debuginfo: no tenant or build id");
    *ret = m;
    return 0;
}

/* ---- one file ---------------------------------------------------------------------------------
 */

int debuginfo_temp_open(const char *dir, uint64_t random, struct debuginfo_temp *t, struct err *e)
{
    *t = (struct debuginfo_temp){ .fd = -1 };
    int n = snprintf(t->path, sizeof(t->path), "%s/" TEMP_PREFIX "%016" PRIx64, dir, random);
    if (n < 0 || (size_t)n >= sizeof(t->path)) {
        t->path[0] = 0;
        return err_set(e, ERR_CONFIG, "data.dir is too long a path");
    }
    t->fd = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->fd >= 0)
        return 0;
    int rc = err_errno(e, errno, "creating %s", t->path);
    t->path[0] = 0;
    return rc;
}

int debuginfo_temp_write(struct debuginfo_temp *t, struct str bytes, struct err *e)
{
    while (bytes.len) {
        ssize_t n = write(t->fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, errno, "writing debug info");
        t->size += (uint64_t)n;
        bytes = str_sub(bytes, (size_t)n, bytes.len);
    }
    return 0;
}

/* A GNU id that the file has must be the one it was announced by. */
static int check_id(const struct debuginfo_temp *t, const struct debuginfo_meta *m, struct err *e)
{
    uint8_t id[DEBUGINFO_ID_BYTES];
    char text[2 * DEBUGINFO_ID_BYTES + 1] = "";
    size_t n = 0;

    if (m->type != DEBUGINFO_DEBUG && m->type != DEBUGINFO_EXECUTABLE)
        return t->size ? 0 : err_set(e, ERR_INPUT, "an empty file");
    if (debuginfo_elf_id(t->fd, t->size, id, &n, e))
        return e->code;
    hex_put_c(id, n, text);
    /* Ids of Go, hashes of files: the agent uses those where it pleases. Same form, same id. */
    if (n && strlen(m->build_id) == 2 * n && hex_is_lower(str_c(m->build_id)) &&
        strcmp(text, m->build_id) != 0)
        return err_set(e, ERR_INPUT, "the file has the build id %s, not %s", text, m->build_id);
    return 0;
}

int debuginfo_temp_finish(struct debuginfo_temp *t, const struct debuginfo_meta *m, struct err *e)
{
    if (check_id(t, m, e))
        return e->code;
    if (fsync(t->fd))
        return err_errno(e, errno, "syncing debug info");
    (void)close(t->fd);
    t->fd = -1;
    return 0;
}

int debuginfo_temp_keep(struct debuginfo_temp *t, const char *dir, const struct debuginfo_meta *m,
                        const struct fs *fs, struct err *e)
{
    struct buf to, meta, text;
    int rc = 0;

    const char *path = path_of(dir, m, "", &to);
    const char *meta_path = path_of(dir, m, META_SUFFIX, &meta);
    buf_init(&text, META_MAX);
    debuginfo_meta_write(m, &text);
    char *slash = strrchr(to.ptr, '/');
    *slash = 0;
    rc = fs->mkdir_all(fs, path, e);
    *slash = '/';
    if (!rc && (!buf_ok(&text) || rename(t->path, path)))
        rc = err_errno(e, errno, "moving debug info to %s", path);
    if (!rc) {
        t->path[0] = 0;
        rc = fs->write_file(fs, meta_path, buf_str(&text), e); /* syncs the folder, too */
    }
    buf_deinit(&to);
    buf_deinit(&meta);
    buf_deinit(&text);
    return rc;
}

void debuginfo_temp_drop(struct debuginfo_temp *t)
{
    if (t->fd >= 0)
        (void)close(t->fd);
    if (t->path[0])
        (void)unlink(t->path);
    t->fd = -1;
    t->path[0] = 0;
}

void debuginfo_remove(const char *dir, const struct debuginfo_meta *m)
{
    static const char *const suffixes[] = { META_SUFFIX, "" };
    struct buf path;

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        (void)unlink(path_of(dir, m, suffixes[i], &path));
        buf_deinit(&path);
    }
}

/* ---- all files --------------------------------------------------------------------------------
 */

struct scan {
    const char *dir; /* of all */
    const struct fs *fs;
    void (*add)(void *cookie, const struct debuginfo_meta *m);
    void *cookie;
};

/* The folder fits DEBUGINFO_PATH_MAX, and with two names behind it this. */
static void join(char path[JOINED_MAX], const char *folder, const char *name, const char *suffix)
{
    struct buf b;

    buf_init(&b, JOINED_MAX - 1);
    buf_addf(&b, "%s/%s%s", folder, name, suffix);
    CHECK(buf_ok(&b));
    memcpy(path, b.ptr, b.len);
    path[b.len] = 0;
    buf_deinit(&b);
}

static bool is_whole(const struct scan *s, const char *folder, const char *name,
                     struct debuginfo_meta *m)
{
    char path[JOINED_MAX];
    struct buf text, want;
    struct stat st;
    struct err e;
    bool ok = false;

    join(path, folder, name, META_SUFFIX);
    buf_init(&text, META_MAX);
    if (s->fs->read_file(s->fs, path, &text, &e) == 0 &&
        debuginfo_meta_read(buf_str(&text), m, &e) == 0) {
        join(path, folder, name, "");
        ok = strcmp(path_of(s->dir, m, "", &want), path) == 0 && stat(path, &st) == 0 &&
             S_ISREG(st.st_mode) && (uint64_t)st.st_size == m->size;
        buf_deinit(&want);
    }
    buf_deinit(&text);
    return ok;
}

static void scan_folder(const struct scan *s, const char *folder)
{
    struct debuginfo_meta m;
    char path[JOINED_MAX];
    DIR *d = opendir(folder);
    struct dirent *f;

    while (d && (f = readdir(d)) != NULL) {
        struct str name = str_c(f->d_name);
        bool meta = str_ends(name, STR(META_SUFFIX));
        if (f->d_name[0] == '.')
            continue;
        join(path, folder, f->d_name, "");
        if (meta)
            f->d_name[name.len - strlen(META_SUFFIX)] = 0;
        if (!is_whole(s, folder, f->d_name, &m))
            (void)unlink(path);
        else if (meta)
            s->add(s->cookie, &m);
    }
    if (d)
        (void)closedir(d);
}

int debuginfo_scan(const char *dir, const struct fs *fs,
                   void (*add)(void *cookie, const struct debuginfo_meta *m), void *cookie,
                   struct err *e)
{
    const struct scan s = { dir, fs, add, cookie };
    char path[JOINED_MAX];
    struct dirent *f;

    if (fs->mkdir_all(fs, dir, e))
        return e->code;
    DIR *d = opendir(dir);
    if (!d)
        return err_errno(e, errno, "opening %s", dir);
    while ((f = readdir(d)) != NULL) {
        if (f->d_name[0] == '.')
            continue;
        join(path, dir, f->d_name, "");
        if (str_starts(str_c(f->d_name), STR(TEMP_PREFIX)))
            (void)unlink(path);
        else
            scan_folder(&s, path);
    }
    (void)closedir(d);
    return 0;
}
