/* SPDX-License-Identifier: Apache-2.0
 *
 * import_files: lists, times, and the state file that makes an import resumable: a line per file
 * that a 200 was received for, "<bytes> <mtime ms> <path>". A file that changed is another file.
 */
#include "deploy/ctl/local/import_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/fs.h"

#define FOLDERS_MAX 100000
#define STATE_MAX   (1 * GIB)

/* ---- files ---- */

static void add_file(struct import_files *f, const char *path, const struct stat *st)
{
    struct import_file file = { xstrdup(path),
                                (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
                                (uint64_t)st->st_size };

    vec_push(&f->at, file);
}

typedef VEC(char *) paths;

static int read_folder(struct import_files *f, const char *path, paths *folders, struct err *e)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    struct stat st;
    char full[4096];

    if (!d)
        return err_errno(e, errno, "%s", path);
    while ((entry = readdir(d))) {
        if (entry->d_name[0] == '.')
            continue;
        int n = snprintf(full, sizeof(full), "%s/%s", path, entry->d_name);
        if (n < 0 || (size_t)n >= sizeof(full) || lstat(full, &st))
            continue;
        if (S_ISREG(st.st_mode))
            add_file(f, full, &st);
        else if (S_ISDIR(st.st_mode) && folders->len < FOLDERS_MAX)
            vec_push(folders, xstrdup(full));
    }
    (void)closedir(d);
    return 0;
}

int import_files_add(struct import_files *f, const char *path, struct err *e)
{
    struct stat st;
    paths folders = { 0 };
    int rc = 0;

    if (stat(path, &st))
        return err_errno(e, errno, "%s", path);
    if (!S_ISDIR(st.st_mode)) {
        add_file(f, path, &st);
        return 0;
    }
    vec_push(&folders, xstrdup(path));
    for (size_t i = 0; !rc && i < folders.len; i++)
        rc = read_folder(f, folders.ptr[i], &folders, e);
    vec_for (i, &folders)
        xfree(folders.ptr[i]);
    vec_free(&folders);
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct import_file *)a)->path, ((const struct import_file *)b)->path);
}

void import_files_sort(struct import_files *f)
{
    if (f->at.len)
        qsort(f->at.ptr, f->at.len, sizeof(*f->at.ptr), by_path);
}

void import_files_deinit(struct import_files *f)
{
    vec_for (i, &f->at)
        xfree(f->at.ptr[i].path);
    vec_free(&f->at);
}

/* ---- times ---- */

/* Digits of s from *at on, n of them; then a separator is skipped. */
static bool number(struct str s, size_t *at, size_t n, int *ret)
{
    uint64_t v;

    if (!str_u64(str_sub(s, *at, *at + n), &v) || *at + n > s.len)
        return false;
    *at += n;
    if (*at < s.len && strchr("-_:T. ", s.ptr[*at]))
        (*at)++;
    *ret = (int)v;
    return true;
}

static bool calendar(struct str s, int64_t *ret_ms)
{
    struct tm t = { 0 };
    size_t at = 0;

    if (!number(s, &at, 4, &t.tm_year) || !number(s, &at, 2, &t.tm_mon) ||
        !number(s, &at, 2, &t.tm_mday) || t.tm_year < 1990 || t.tm_year > 2200 || t.tm_mon < 1 ||
        t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31)
        return false;
    if (!number(s, &at, 2, &t.tm_hour) || !number(s, &at, 2, &t.tm_min) || t.tm_hour > 23 ||
        t.tm_min > 59)
        return false;
    if (!number(s, &at, 2, &t.tm_sec) || t.tm_sec > 59)
        t.tm_sec = 0;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    *ret_ms = (int64_t)timegm(&t) * 1000;
    return true;
}

static bool epoch(struct str digits, int64_t *ret_ms)
{
    uint64_t v;

    if (!str_u64(digits, &v))
        return false;
    switch (digits.len) {
    case 10:
        *ret_ms = (int64_t)v * 1000;
        return true;
    case 13:
        *ret_ms = (int64_t)v;
        return true;
    case 16:
        *ret_ms = (int64_t)(v / 1000);
        return true;
    case 19:
        *ret_ms = (int64_t)(v / 1000000);
        return true;
    default:
        return false;
    }
}

bool import_name_time(const char *path, int64_t *ret_ms)
{
    const char *slash = strrchr(path, '/');
    struct str s = str_c(slash ? slash + 1 : path);

    for (size_t i = 0, end; i < s.len; i = end + 1) {
        for (end = i; end < s.len && s.ptr[end] >= '0' && s.ptr[end] <= '9'; end++)
            ;
        if (end == i)
            continue;
        if (epoch(str_sub(s, i, end), ret_ms) || calendar(str_sub(s, i, s.len), ret_ms))
            return true;
    }
    return false;
}

/* ---- state ---- */

static void line_of(const struct import_file *f, struct buf *out)
{
    buf_addf(out, "%" PRIu64 " %" PRId64 " %s", f->bytes, f->mtime_ms, f->path);
}

int import_state_open(struct import_state *s, const char *path, struct err *e)
{
    struct str rest, line;
    struct buf text;
    bool more = true;

    *s = (struct import_state){ .path = path, .done = map_str_new() };
    if (!path)
        return 0;
    buf_init(&text, STATE_MAX);
    int rc = fs_real()->read_file(fs_real(), path, &text, e);
    for (rest = buf_str(&text); !rc && str_next(&rest, '\n', &more, &line);) {
        s->torn = line.len && !more; /* the last line of a run that was killed may be cut */
        if (!line.len || s->torn)
            continue;
        struct str key = str_n(xmemdup(line.ptr, line.len), line.len);
        if (map_str_put(s->done, key, s))
            xfree((void *)(uintptr_t)key.ptr);
    }
    buf_deinit(&text);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

bool import_state_has(const struct import_state *s, const struct import_file *f)
{
    struct buf line;

    buf_init(&line, 64 * KIB);
    line_of(f, &line);
    bool has = map_str_get(s->done, buf_str(&line)) != NULL;
    buf_deinit(&line);
    return has;
}

int import_state_add(struct import_state *s, const struct import_files *f, size_t from, size_t to,
                     struct err *e)
{
    struct buf text;
    int rc = 0;

    if (!s->path)
        return 0;
    buf_init(&text, STATE_MAX);
    if (s->torn)
        buf_add_c(&text, '\n');
    for (size_t i = from; i < to; i++)
        if (!import_state_has(s, &f->at.ptr[i])) {
            line_of(&f->at.ptr[i], &text);
            buf_add_c(&text, '\n');
        }
    FILE *out = fopen(s->path, "ae");
    if (!out || fwrite(text.ptr, 1, text.len, out) != text.len || fflush(out) || fsync(fileno(out)))
        rc = err_errno(e, errno, "%s", s->path);
    if (out && fclose(out) && !rc)
        rc = err_errno(e, errno, "%s", s->path);
    s->torn = s->torn && rc;
    buf_deinit(&text);
    return rc;
}

void import_state_close(struct import_state *s)
{
    struct str key;
    size_t pos = 0;
    void *val;

    while (map_str_next(s->done, &pos, &key, &val))
        xfree((void *)(uintptr_t)key.ptr);
    map_str_free(s->done);
}
