/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog_open: reads the files of a log when it is opened. rlog.c draws the files.
 *
 * Files are read in order, and a newer record of an index replaces the older one and all behind it.
 * A torn end is allowed in the last file only, where a power cut may have left it: it is cut off,
 * unless a good record behind it says that the place had been fsynced. All other damage is
 * ERR_CORRUPT, since the entries may have been acknowledged.
 */
#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/log/rlog_impl.h"

/* ---- names ---- */

struct names {
    VEC(uint64_t) numbers;
};

static void on_name(void *cookie, const char *name)
{
    struct names *n = cookie;
    struct str s = str_c(name);
    uint64_t v;

    if (s.len == 21 && str_ends(s, STR(".rlog")) && hex_u64(str_sub(s, 0, 16), &v))
        vec_push(&n->numbers, v);
}

static void sort_numbers(struct names *n)
{
    for (size_t i = 1; i < n->numbers.len; i++)
        for (size_t k = i; k && n->numbers.ptr[k] < n->numbers.ptr[k - 1]; k--) {
            uint64_t v = n->numbers.ptr[k];
            n->numbers.ptr[k] = n->numbers.ptr[k - 1];
            n->numbers.ptr[k - 1] = v;
        }
}

/* Reads one record at *at of a file, and moves *at behind it; false: no valid record is there. */
static bool replay(struct rlog *l, const struct segment *s, uint64_t *at, int *rc, struct err *e)
{
    char head[ENTRY_HEAD];
    struct entry_head h;

    if (s->size - *at < ENTRY_HEAD)
        return false;
    *rc = l->fs->read(l->fs, s->file, *at, head, ENTRY_HEAD, e);
    if (*rc)
        return false;
    uint32_t mark = get_u32le(head);
    if (mark == HARD_MARK || mark == RESET_MARK) {
        uint64_t a = get_u64le(head + 8), b = get_u64le(head + 16);
        if (get_u64le(head + CONTROL_SUMMED) != hash64(head, CONTROL_SUMMED, s->number))
            return false;
        if (mark == RESET_MARK) {
            rlog_set_base(l, a, b);
            l->st.commit = MAX(l->st.commit, a);
        } else {
            l->st.promised = MAX(l->st.promised, a);
            l->st.commit = MAX(l->st.commit, b);
            l->synced = MAX(l->synced, get_u64le(head + 24));
        }
        l->bare = mark == HARD_MARK && get_u64le(head + 24) == *at;
        *at += ENTRY_HEAD;
        return true;
    }
    if (!entry_head_read(head, s->number, &h) || s->size - *at < entry_bytes(h.len))
        return false;
    struct repl_entry *x;
    struct err bad;
    vec_reserve(&l->heads, entry_bytes(h.len));
    *rc = l->fs->read(l->fs, s->file, *at, l->heads.ptr, entry_bytes(h.len), e);
    struct rd r = rd_of(str_n(l->heads.ptr, entry_bytes(h.len)));
    if (*rc || entry_read(&r, s->number, &x, &bad))
        return false;
    entry_unref(x);
    if (h.index <= l->st.base_index) /* the file that had the entries before is dropped */
        rlog_set_base(l, h.index - 1, h.prev_term);
    if (h.index > l->st.last_index + 1 || rlog_term(l, h.index - 1) != h.prev_term)
        return false;
    rlog_note_entry(l, h.index, h.term, (struct pos){ s->number, *at, h.len });
    l->bare = false;
    *at += entry_bytes(h.len);
    return true;
}

/* Does a good record behind `at` say that `at` had been fsynced? */
static int was_synced(struct rlog *l, const struct segment *s, uint64_t at, bool *ret,
                      struct err *e)
{
    size_t n = (size_t)(s->size - at);
    char *p = xmalloc(n + 1);
    int rc = l->fs->read(l->fs, s->file, at, p, n, e);

    *ret = false;
    for (size_t i = 0; !rc && i + ENTRY_HEAD <= n && !*ret; i += 8)
        *ret = get_u32le(p + i) == HARD_MARK && get_u64le(p + i + 24) > at &&
               get_u64le(p + i + CONTROL_SUMMED) == hash64(p + i, CONTROL_SUMMED, s->number);
    xfree(p);
    return rc;
}

static bool file_head_read(struct rlog *l, const char *p, const struct segment *s, bool first)
{
    if (get_u64le(p) != FILE_MAGIC || get_u64le(p + 16) != s->number ||
        get_u64le(p + FILE_SUMMED) != hash64(p, FILE_SUMMED, s->number))
        return false;
    l->st.promised = MAX(l->st.promised, get_u64le(p + 24));
    l->st.commit = MAX(l->st.commit, get_u64le(p + 32));
    if (first)
        rlog_set_base(l, get_u64le(p + 40), get_u64le(p + 48));
    return true;
}

static int rotten(const struct rlog *l, const struct segment *s, uint64_t at, struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "%s/%016" PRIx64 ".rlog is damaged at byte %" PRIu64
                   ": take this replica out of the shard and let it join again",
                   l->dir, s->number, at);
}

/* Reads one file; *ret_torn: it is the last one, and was not even begun. */
static int segment_read(struct rlog *l, struct segment *s, bool first, bool last, bool *ret_torn,
                        struct err *e)
{
    char head[FILE_HEAD] = { 0 };
    uint64_t at = FILE_HEAD;
    bool synced = !last;
    int rc = 0;

    *ret_torn = false;
    l->synced = 0;
    l->bare = false;
    if (s->size >= FILE_HEAD)
        rc = l->fs->read(l->fs, s->file, 0, head, FILE_HEAD, e);
    if (rc)
        return rc;
    if (s->size < FILE_HEAD || !file_head_read(l, head, s, first)) {
        if (last && s->size > 0)
            rc = was_synced(l, s, 0, &synced, e);
        *ret_torn = !synced;
        return rc ? rc : synced ? rotten(l, s, 0, e) : 0;
    }
    if (get_u32le(head + 8) != VERSION)
        return err_set(e, ERR_CONFIG, "the log in %s is of version %" PRIu32 ", this one reads %d",
                       l->dir, get_u32le(head + 8), VERSION);
    while (replay(l, s, &at, &rc, e))
        ;
    if (rc || at == s->size)
        return rc;
    if (last)
        rc = was_synced(l, s, at, &synced, e);
    if (!rc && synced)
        rc = rotten(l, s, at, e);
    if (!rc)
        rc = l->fs->truncate(l->fs, s->file, at, e);
    s->size = at;
    return rc;
}

static int open_files(struct rlog *l, const struct names *n, struct err *e)
{
    char path[PATH_BYTES];
    int rc = 0;

    for (size_t i = 0; i < n->numbers.len && !rc; i++) {
        struct segment s = { .number = n->numbers.ptr[i] };
        bool torn = false, last = i + 1 == n->numbers.len;
        if (i && s.number != n->numbers.ptr[i - 1] + 1)
            return err_set(e, ERR_CORRUPT, "file %016" PRIx64 ".rlog of %s is missing",
                           n->numbers.ptr[i - 1] + 1, l->dir);
        rc = rlog_path(l, s.number, path, e);
        if (!rc)
            rc = l->fs->open(l->fs, path, false, &s.file, &s.size, e);
        if (rc)
            break;
        vec_push(&l->segments, s);
        rc = segment_read(l, rlog_last(l), i == 0, last, &torn, e);
        if (!rc && torn) {
            l->fs->close(l->fs, s.file);
            l->segments.len--;
            rc = l->fs->unlink(l->fs, path, e);
        }
    }
    return rc;
}

/* Writes again the bytes of the last file that may not have been fsynced. */
static int write_again(struct rlog *l, struct err *e)
{
    const struct segment *s = rlog_last(l);
    size_t room = (size_t)MIN(s->size - MIN(l->synced, s->size), MIB);
    char *p = xmalloc(room + 1);
    int rc = 0;

    for (uint64_t at = l->synced; !rc && at < s->size; at += room) {
        struct str part = { p, (size_t)MIN(room, s->size - at) };
        rc = l->fs->read(l->fs, s->file, at, p, part.len, e);
        if (!rc)
            rc = l->fs->write(l->fs, s->file, at, &part, 1, e);
    }
    xfree(p);
    return rc;
}

int rlog_open(const struct rlog_opts *o, struct rlog **ret, struct err *e)
{
    struct rlog *l = XNEW(struct rlog);
    struct names n = { 0 };

    l->fs = o->fs;
    l->dir = xstrdup(o->dir);
    l->segment_bytes = o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES;
    rlog_set_base(l, 0, 0);
    int rc = l->fs->list(l->fs, l->dir, on_name, &n, e);
    sort_numbers(&n);
    if (!rc && n.numbers.len > SEGMENTS_MAX)
        rc = err_set(e, ERR_LIMIT, "%zu files of a log in %s", n.numbers.len, l->dir);
    if (!rc)
        rc = open_files(l, &n, e);
    if (!rc && l->segments.len == 0)
        rc = rlog_segment_new(l, n.numbers.len ? n.numbers.ptr[n.numbers.len - 1] : 1, e);
    else if (!rc)
        rc = write_again(l, e);
    if (!rc)
        rc = l->fs->sync(l->fs, rlog_last(l)->file, e);
    if (!rc)
        rc = l->fs->sync_dir(l->fs, l->dir, e);
    vec_free(&n.numbers);
    if (rc) {
        err_wrap(e, "cannot open the replication log in %.200s", o->dir);
        rlog_close(l);
        return rc;
    }
    l->synced = rlog_last(l)->size;
    *ret = l;
    return 0;
}
