/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in: receives a copy, and installs it.
 *
 * At every moment the folder's files say how far it is. COPYING lists all files of the copy, and
 * which of them are here: a file is noted when all its pieces were checked and it is synced, so a
 * noted file survives a power cut, and any other is fetched again. COMPLETE is written last, when
 * the source has confirmed all sums, and the files were opened as a database that is as of the
 * right entry. The folder is not read before.
 *
 * Installing is two renames: db -> old, in -> db. copy_install runs before the shard is opened, and
 * continues wherever it was interrupted:
 *
 *   in/COMPLETE   db      old
 *      no         yes     -        nothing to do
 *      yes        yes     -        move db to old, continue
 *      yes        no      yes      move in to db, continue
 *      -          yes     yes      remove old
 *
 * A database that is as new as the copy is left alone (log entries may have come from another
 * leader meanwhile), unless its owner said that it counts for nothing.
 */
#include "common/repl/copy_in.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/store/kv/kv.h"
#include "common/sys/fs.h"

#define MAGIC_TEXT    "EMBCOPY1"
#define JOURNAL_BYTES ((size_t)(64 * MIB))
enum { HEAD_BYTES = 8 + 4 + 8, NOTE_BYTES = 4 + 8 + 8 };

/* ---- the journal ----
 *   "EMBCOPY1" | bytes u32 | sum u64 of what follows | id u64, source bytes u32, source, list
 *   then notes: file u32 | sum of it u64 | sum u64 of the 12 bytes before, seed id */

static void put_note(struct buf *out, uint64_t id, size_t file, uint64_t sum)
{
    size_t at = out->len;

    wr_u32le(out, (uint32_t)file);
    wr_u64le(out, sum);
    if (buf_ok(out))
        wr_u64le(out, hash64(out->ptr + at, 12, id));
}

static void put_head(struct buf *out, const struct copy_in *in)
{
    struct buf body;

    buf_init(&body, JOURNAL_BYTES / 2);
    wr_u64le(&body, in->id);
    wr_u32le(&body, (uint32_t)strlen(in->source));
    buf_add_str(&body, str_c(in->source));
    copy_list_write(&in->list, &body);
    buf_add_str(out, STR(MAGIC_TEXT));
    wr_u32le(out, (uint32_t)body.len);
    wr_u64le(out, hash64(body.ptr, body.len, 0));
    buf_add_str(out, buf_str(&body));
    buf_deinit(&body);
}

static void make_room(struct copy_in *in)
{
    size_t n = in->list.len, at = 0;

    in->first = XNEW_ARRAY(size_t, n + 1);
    in->left = XNEW_ARRAY(size_t, n + 1);
    in->sums = XNEW_ARRAY(uint64_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        in->first[i] = at;
        in->left[i] = copy_pieces(in->list.files[i].size);
        in->sums[i] = 0;
        at += in->left[i];
    }
    in->first[n] = at;
    in->pieces = XNEW_ARRAY(uint64_t, at + 1);
    memset(in->pieces, 0, (at + 1) * sizeof(*in->pieces));
    in->files_left = n;
}

static void is_whole(struct copy_in *in, size_t file, uint64_t sum)
{
    if (in->sums[file])
        return;
    in->sums[file] = sum;
    in->files_left--;
}

static int head_read(struct rd *r, struct copy_in *in, struct err *e)
{
    struct str magic, body, source;
    uint32_t len;
    uint64_t sum;

    if (!rd_bytes(r, 8, &magic) || !str_eqc(magic, MAGIC_TEXT) || !rd_u32le(r, &len) ||
        !rd_u64le(r, &sum) || !rd_bytes(r, len, &body) ||
        hash64(body.ptr ? body.ptr : "", body.len, 0) != sum)
        return err_set(e, ERR_NOT_FOUND, "%s says nothing of use", in->dir);
    struct rd b = rd_of(body);
    if (!rd_u64le(&b, &in->id) || !rd_u32le(&b, &len) || len > NODE_NAME_MAX ||
        !rd_bytes(&b, len, &source))
        return err_set(e, ERR_NOT_FOUND, "%s says nothing of use", in->dir);
    if (len)
        memcpy(in->source, source.ptr, len);
    (void)rd_bytes(&b, rd_left(&b), &body);
    if (copy_list_read(body, &in->list, e))
        return e->code = ERR_NOT_FOUND;
    return 0;
}

/* A file that was noted and is not there any more was deleted since. */
static bool is_there(const struct copy_in *in, size_t file)
{
    char path[COPY_PATH_BYTES];
    struct stat st;
    struct err e;

    return copy_path(path, in->dir, in->list.files[file].name, &e) == 0 && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode) && (uint64_t)st.st_size == in->list.files[file].size;
}

/* Returns the bytes of the notes that check. */
static size_t notes_read(struct rd *r, struct copy_in *in)
{
    const uint8_t *p = r->p, *first = p;
    uint64_t sum, check;
    uint32_t file;

    while (rd_u32le(r, &file) && rd_u64le(r, &sum) && rd_u64le(r, &check)) {
        if (check != hash64(p, 12, in->id) || file >= in->list.len || !sum)
            break; /* torn */
        p = r->p;
        if (!in->sums[file] && is_there(in, file))
            is_whole(in, file, sum);
    }
    return (size_t)(p - first);
}

static struct copy_in *in_new(const char *base, const struct copy_faults *faults, struct err *e)
{
    struct copy_in *in = XNEW(struct copy_in);

    in->faults = faults;
    if (copy_path(in->dir, base, "in", e) == 0)
        return in;
    xfree(in);
    return NULL;
}

void copy_in_free(struct copy_in *in)
{
    if (!in)
        return;
    copy_list_free(&in->list);
    xfree(in->first);
    xfree(in->pieces);
    xfree(in->left);
    xfree(in->sums);
    xfree(in);
}

int copy_in_load(const char *base, const struct copy_faults *faults, struct copy_in **ret,
                 struct err *e)
{
    struct copy_in *in = in_new(base, faults, e);
    char path[COPY_PATH_BYTES];
    struct buf bytes;
    int rc;

    if (!in)
        return e->code;
    buf_init(&bytes, JOURNAL_BYTES);
    rc = copy_path(path, in->dir, COPY_JOURNAL, e);
    if (!rc)
        rc = fs_real()->read_file(fs_real(), path, &bytes, e);
    struct rd r = rd_of(buf_str(&bytes));
    if (!rc)
        rc = head_read(&r, in, e);
    if (!rc) {
        make_room(in);
        in->journal_bytes = bytes.len - rd_left(&r);
        in->journal_bytes += notes_read(&r, in);
        *ret = in;
    } else {
        copy_in_free(in);
    }
    buf_deinit(&bytes);
    return rc;
}

/* ---- beginning ---- */

/* Table files are never written again, so a name with the same length and end is the same file,
 * whatever copy it came with. All others are of one copy only. */
static uint64_t known_sum(const struct copy_in *old, const struct copy_in *in, size_t file)
{
    const struct copy_file *f = &in->list.files[file];

    for (size_t i = 0; old && i < old->list.len; i++) {
        const struct copy_file *o = &old->list.files[i];
        if (old->sums[i] && o->size == f->size && o->tail == f->tail && !strcmp(o->name, f->name))
            return old->id == in->id || str_ends(str_c(f->name), STR(".sst")) ? old->sums[i] : 0;
    }
    return 0;
}

static bool stays(const struct copy_in *in, const char *name)
{
    if (!strcmp(name, COPY_JOURNAL))
        return true;
    for (size_t i = 0; i < in->list.len; i++)
        if (in->sums[i] && !strcmp(in->list.files[i].name, name))
            return true;
    return false;
}

static int clear_rest(struct copy_in *in, struct err *e)
{
    DIR *d = opendir(in->dir);
    int rc = 0;

    if (!d)
        return err_errno(e, errno, "cannot read the folder %s", in->dir);
    for (struct dirent *one; !rc && (one = readdir(d));) {
        if (one->d_name[0] == '.' || stays(in, one->d_name))
            continue;
        rc = copy_fault(in->faults, "delete", one->d_name, e);
        if (!rc && unlinkat(dirfd(d), one->d_name, 0) && errno != ENOENT)
            rc = err_errno(e, errno, "cannot delete %s in %s", one->d_name, in->dir);
    }
    (void)closedir(d);
    return rc;
}

static int make_empty(struct copy_in *in, size_t file, struct err *e)
{
    char path[COPY_PATH_BYTES];
    int rc = copy_path(path, in->dir, in->list.files[file].name, e);

    if (!rc)
        rc = copy_fault(in->faults, "create", path, e);
    if (rc)
        return rc;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "cannot create %s", path);
    (void)close(fd);
    is_whole(in, file, copy_file_sum(in->pieces, 0));
    return 0;
}

static int begin(struct copy_in *in, const struct copy_in *old, struct err *e)
{
    char path[COPY_PATH_BYTES];
    struct buf journal;
    int rc = fs_real()->mkdir_all(fs_real(), in->dir, e);

    for (size_t i = 0; !rc && i < in->list.len; i++) {
        uint64_t sum = known_sum(old, in, i);
        if (!sum)
            continue;
        is_whole(in, i, sum);
        in->left[i] = 0;
        in->bytes += in->list.files[i].size;
    }
    in->kept = in->bytes;
    if (!rc)
        rc = clear_rest(in, e);
    for (size_t i = 0; !rc && i < in->list.len; i++)
        if (!in->list.files[i].size)
            rc = make_empty(in, i, e);
    if (!rc)
        rc = copy_path(path, in->dir, COPY_JOURNAL, e);
    if (!rc)
        rc = copy_fault(in->faults, "write", path, e);
    if (rc)
        return rc;
    buf_init(&journal, JOURNAL_BYTES);
    put_head(&journal, in);
    for (size_t i = 0; i < in->list.len; i++)
        if (in->sums[i])
            put_note(&journal, in->id, i, in->sums[i]);
    rc = buf_ok(&journal) ? fs_real()->write_file(fs_real(), path, buf_str(&journal), e)
                          : err_set(e, ERR_LIMIT, "a copy has too many files");
    in->journal_bytes = journal.len;
    buf_deinit(&journal);
    return rc;
}

int copy_in_begin(const char *base, const struct copy_faults *faults, struct copy_offer *offer,
                  struct copy_in **ret, struct err *e)
{
    struct copy_in *in = in_new(base, faults, e), *old = NULL;
    int rc;

    if (!in) {
        copy_list_free(&offer->list);
        return e->code;
    }
    in->list = offer->list;
    offer->list = (struct copy_list){ 0 };
    in->id = offer->id;
    (void)snprintf(in->source, sizeof(in->source), "%s", offer->source);
    make_room(in);
    if (copy_in_load(base, faults, &old, e))
        old = NULL;
    rc = begin(in, old, e);
    copy_in_free(old);
    if (rc)
        copy_in_free(in);
    else
        *ret = in;
    return rc;
}

/* ---- pieces ---- */

static int write_at(int fd, const char *path, struct str bytes, uint64_t at, struct err *e)
{
    while (bytes.len) {
        ssize_t got = pwrite(fd, bytes.ptr, bytes.len, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_errno(e, got ? errno : ENOSPC, "cannot write to %s", path);
        at += (uint64_t)got;
        bytes = str_sub(bytes, (size_t)got, bytes.len);
    }
    return 0;
}

/* All of it is written: to the disk with it, and into the journal. A note that was written in part,
 * or not synced (a full disk), is overwritten by the next one: none would be read behind it. */
static int note_whole(struct copy_in *in, size_t file, int fd, const char *path, struct err *e)
{
    uint64_t sum = copy_file_sum(in->pieces + in->first[file], in->list.files[file].size);
    char journal[COPY_PATH_BYTES];
    struct buf note;
    int rc = copy_fault(in->faults, "sync", path, e);

    if (!rc && fdatasync(fd))
        rc = err_errno(e, errno, "cannot sync %s", path);
    if (!rc)
        rc = copy_path(journal, in->dir, COPY_JOURNAL, e);
    if (!rc)
        rc = copy_fault(in->faults, "append", journal, e);
    if (rc)
        return rc;
    buf_init(&note, KIB);
    put_note(&note, in->id, file, sum);
    CHECK(note.len == NOTE_BYTES);
    int to = open(journal, O_WRONLY | O_CLOEXEC);
    if (to < 0)
        rc = err_errno(e, errno, "cannot open %s", journal);
    else
        rc = write_at(to, journal, buf_str(&note), in->journal_bytes, e);
    if (!rc && fdatasync(to))
        rc = err_errno(e, errno, "cannot sync %s", journal);
    if (!rc)
        in->journal_bytes += note.len;
    if (to >= 0)
        (void)close(to);
    buf_deinit(&note);
    if (!rc)
        is_whole(in, file, sum);
    return rc;
}

/* Where the sum of a piece is kept. */
static uint64_t *piece_at(struct copy_in *in, size_t file, uint64_t offset)
{
    return &in->pieces[in->first[file] + (size_t)(offset / COPY_PIECE_BYTES)];
}

static int put(struct copy_in *in, size_t file, uint64_t offset, struct str bytes, uint64_t sum,
               struct err *e)
{
    char path[COPY_PATH_BYTES];
    uint64_t *piece = piece_at(in, file, offset);
    int rc = copy_path(path, in->dir, in->list.files[file].name, e);

    if (!rc)
        rc = copy_fault(in->faults, "write", path, e);
    if (rc)
        return rc;
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "cannot create %s", path);
    rc = write_at(fd, path, bytes, offset, e);
    /* Begins to write it out, so that the sync at the end has little to wait for. */
    if (!rc)
        (void)sync_file_range(fd, (off_t)offset, (off_t)bytes.len, SYNC_FILE_RANGE_WRITE);
    if (!rc && in->left[file] == 1) {
        *piece = sum;
        rc = note_whole(in, file, fd, path, e);
        if (rc)
            *piece = 0;
    }
    (void)close(fd);
    if (rc)
        return rc;
    *piece = sum;
    in->left[file]--;
    in->bytes += bytes.len;
    return 0;
}

int copy_in_write(struct copy_in *in, size_t file, uint64_t offset, struct str bytes, uint64_t sum,
                  struct err *e)
{
    const struct copy_file *f = &in->list.files[file];

    CHECK(file < in->list.len && offset < f->size && offset % COPY_PIECE_BYTES == 0);
    if (bytes.len != MIN(f->size - offset, (uint64_t)COPY_PIECE_BYTES) ||
        copy_piece_sum(bytes, f->name, offset) != sum)
        return err_set(e, ERR_CORRUPT, "%zu bytes of %s at %" PRIu64 " came in damaged from %s",
                       bytes.len, f->name, offset, in->source);
    if (*piece_at(in, file, offset) || in->sums[file])
        return 0;
    return put(in, file, offset, bytes, sum, e);
}

uint64_t copy_in_total(const struct copy_in *in)
{
    return copy_total(in->sums, in->list.len);
}

/* ---- taking over ---- */

/* The entry that a folder's database is as of; 0: it cannot be opened. */
static int note_of(const struct copy_faults *f, const char *dir, uint64_t *ret_index,
                   uint64_t *ret_term, struct err *e)
{
    struct kv_opts o = { .dir = dir, .block_cache_bytes = 8 * MIB, .read_only = true };
    struct kv *kv;
    int rc = f && f->open ? f->open(f->cookie, dir, &kv, e) : kv_rocks_open(&o, &kv, e);

    *ret_index = *ret_term = 0;
    if (rc)
        return rc;
    rc = apply_read(kv, ret_index, ret_term, e);
    kv_close(kv);
    return rc;
}

int copy_in_complete(struct copy_in *in, bool anyway, struct err *e)
{
    char path[COPY_PATH_BYTES], text[128];
    uint64_t index, term;
    int rc = copy_sync_dir(in->faults, in->dir, e);

    CHECK(in->files_left == 0);
    if (!rc)
        rc = note_of(in->faults, in->dir, &index, &term, e);
    if (!rc && (index != in->list.index || term != in->list.index_term))
        rc = err_set(e, ERR_CORRUPT,
                     "the copy from %s should be as of entry %" PRIu64 ", and is of %" PRIu64,
                     in->source, in->list.index, index);
    if (!rc)
        rc = copy_path(path, in->dir, COPY_COMPLETE, e);
    if (!rc)
        rc = copy_fault(in->faults, "write", path, e);
    if (rc)
        return rc;
    (void)snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %d\n", index, term, anyway);
    return fs_real()->write_file(fs_real(), path, str_c(text), e);
}

static bool exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

static int move(const struct copy_faults *f, const char *from, const char *to, const char *base,
                struct err *e)
{
    char above[COPY_PATH_BYTES];
    int rc = copy_path(above, base, "..", e);

    if (!rc)
        rc = copy_fault(f, "rename", from, e);
    if (!rc && rename(from, to))
        rc = err_errno(e, errno, "cannot move %s to %s", from, to);
    if (!rc)
        rc = copy_sync_dir(f, base, e);
    return rc ? rc : copy_sync_dir(f, above, e);
}

/* True if the copy that COMPLETE describes is newer than the local database. */
static int is_wanted(const struct copy_faults *f, const char *db, const char *complete, bool *ret,
                     struct err *e)
{
    uint64_t index, term, here, here_term;
    struct buf text;
    int anyway;

    buf_init(&text, KIB);
    int rc = fs_real()->read_file(fs_real(), complete, &text, e);
    if (!rc)
        buf_add(&text, "", 1);
    *ret = !rc && buf_ok(&text) &&
           sscanf(text.ptr, "%" SCNu64 " %" SCNu64 " %d", &index, &term, &anyway) == 3;
    buf_deinit(&text);
    if (rc || !*ret || anyway || !exists(db))
        return rc;
    if (note_of(f, db, &here, &here_term, e) == 0)
        *ret = here == APPLY_HALF || here < index;
    return 0;
}

static int clear_marks(const struct copy_faults *f, const char *db, struct err *e)
{
    static const char *const marks[] = { COPY_COMPLETE, COPY_JOURNAL };
    char path[COPY_PATH_BYTES];
    int rc = 0;

    for (size_t i = 0; !rc && i < ARRAY_LEN(marks); i++) {
        rc = copy_path(path, db, marks[i], e);
        if (rc || !exists(path))
            continue;
        rc = copy_fault(f, "delete", path, e);
        if (!rc && unlink(path))
            rc = err_errno(e, errno, "cannot delete %s", path);
    }
    return rc;
}

int copy_install(const char *db, const char *base, const struct copy_faults *faults,
                 bool *ret_installed, struct err *e)
{
    char in[COPY_PATH_BYTES], old[COPY_PATH_BYTES], complete[COPY_PATH_BYTES];
    bool wanted = false;
    int rc = copy_path(in, base, "in", e);

    *ret_installed = false;
    if (!rc)
        rc = copy_path(old, base, "old", e);
    if (!rc)
        rc = copy_path(complete, in, COPY_COMPLETE, e);
    if (!rc && exists(complete)) {
        rc = is_wanted(faults, db, complete, &wanted, e);
        if (!rc && !wanted)
            rc = copy_remove(faults, in, e);
    }
    if (!rc && wanted && exists(db)) {
        rc = copy_remove(faults, old, e);
        if (!rc)
            rc = move(faults, db, old, base, e);
    }
    if (!rc && wanted)
        rc = move(faults, in, db, base, e);
    /* `in` was removed in between: the old database is better than none. */
    if (!rc && !exists(db) && exists(old))
        rc = move(faults, old, db, base, e);
    if (!rc && exists(db))
        rc = clear_marks(faults, db, e);
    if (!rc)
        rc = copy_remove(faults, old, e);
    *ret_installed = !rc && wanted;
    return rc;
}

int copy_forget(const char *base, struct err *e)
{
    DIR *d = opendir(base);
    char path[COPY_PATH_BYTES];
    int rc = 0;

    if (!d)
        return errno == ENOENT ? 0 : err_errno(e, errno, "cannot read the folder %s", base);
    for (struct dirent *one; !rc && (one = readdir(d));) {
        if (one->d_name[0] == '.')
            continue;
        rc = copy_path(path, base, one->d_name, e);
        if (!rc)
            rc = copy_remove(NULL, path, e);
    }
    (void)closedir(d);
    return rc ? rc : copy_remove(NULL, base, e);
}
