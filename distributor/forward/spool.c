/* SPDX-License-Identifier: Apache-2.0
 *
 * spool: segments that are only appended to, and a position.
 *
 *   segments   7 [#####.....]  8 [..........]  9 [....]    # finished   . waiting
 *                    ^position    ^cursor          ^end
 *
 * A process that starts never appends to a segment it finds: what is torn at its end stays there,
 * is passed over when read, and goes with the segment. So recovery changes nothing on disk, and may
 * itself be killed. A write that fails half-way is cut off; if that fails too, the segment ends
 * there and the next record opens another.
 *
 * The length of a record has a checksum of its own: where only the bytes of a record are damaged,
 * the ones behind it are still found.
 *
 * Tickets are given in order and finished in any. The position is the end of the last record before
 * which all are finished; it is written at each move, by turns into two slots that carry a number
 * and a checksum, so that there is always a whole one. It is not fsynced: after a power cut records
 * may come again, which receivers that know write ids count once. Segments before the position are
 * removed; the drop of the oldest at the maximum is the only way in which records get lost.
 */
#include "distributor/forward/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/hex.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/sys/thread.h"

#define SEGMENT_MOST     ((uint64_t)16 * MIB)
#define SEGMENT_LEAST    ((uint64_t)64 * KIB)
#define SLOT_BYTES       32
#define SPACE_EACH_BYTES MIB /* appended between two looks at the free space */

static const char MAGIC_BYTES[8] = { 'E', 'M', 'B', 'S', 'P', 'O', 'O', 'L' };

struct segment {
    uint64_t number, len; /* bytes of whole records, with the head */
    uint64_t records;     /* not finished */
};
struct ticket {
    uint64_t number, segment, end; /* where the record ends */
    int64_t at_ms;
    bool finished;
};
struct place {
    uint64_t segment, off;
};

struct spool {
    struct mutex lock;
    struct spool_opts o;
    char *dir; /* owned */
    VEC(struct segment) segments;
    int write_fd; /* of the last segment; -1: the next record opens one */
    uint64_t next_number;
    int read_fd;         /* of cursor.segment; -1: not open */
    struct place cursor; /* the next record to take */
    struct place position;
    int position_fd;
    uint64_t position_seq;
    struct ticket taken[SPOOL_TAKEN_MAX];
    size_t taken_from, taken_len;
    uint64_t tickets;
    uint64_t unseen_bytes; /* appended since the free space was looked at */
    uint64_t dropped, damaged;
};

/* ---- files ---------------------------------------------------------------------------------- */

static ssize_t real_pwrite(void *cookie, int fd, const void *p, size_t n, off_t at)
{
    (void)cookie;
    return pwrite(fd, p, n, at);
}

static int real_fsync(void *cookie, int fd)
{
    (void)cookie;
    return fsync(fd);
}

static int write_all(const struct spool *s, int fd, struct str bytes, uint64_t at)
{
    while (bytes.len) {
        ssize_t n = s->o.io->pwrite(s->o.io->cookie, fd, bytes.ptr, bytes.len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes = str_sub(bytes, (size_t)n, bytes.len);
        at += (uint64_t)n;
    }
    return 0;
}

static bool read_all(int fd, void *to, size_t n, uint64_t at)
{
    char *p = to;

    while (n) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return true;
}

static bool segment_path(const struct spool *s, uint64_t number, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s/%016" PRIx64 ".spool", s->dir, number);

    return n > 0 && n < PATH_MAX;
}

static void segment_unlink(const struct spool *s, uint64_t number)
{
    char path[PATH_MAX];

    if (segment_path(s, number, path))
        (void)unlink(path);
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static uint64_t segment_bytes(const struct spool *s)
{
    uint64_t n = s->o.segment_bytes ? s->o.segment_bytes : MIN(s->o.bytes_max / 16, SEGMENT_MOST);

    return s->o.segment_bytes ? n : MAX(n, SEGMENT_LEAST);
}

/* ---- records -------------------------------------------------------------------------------- */

static uint32_t head_check(const uint8_t head[SPOOL_RECORD_HEAD])
{
    return crc32c(crc32c(0, head, 4), head + 8, 8);
}

static void head_make(uint8_t head[SPOOL_RECORD_HEAD], struct str record, int64_t at_ms)
{
    put_u32le(head, (uint32_t)record.len);
    put_u64le(head + 8, (uint64_t)at_ms);
    put_u64le(head + 16, hash64(record.ptr, record.len, (uint64_t)at_ms));
    put_u32le(head + 4, head_check(head));
}

/* Its length, or 0: there is no record that ends by `end`. */
static uint64_t head_read(const struct spool *s, int fd, uint64_t off, uint64_t end,
                          uint8_t head[SPOOL_RECORD_HEAD])
{
    if (off > end || end - off < SPOOL_RECORD_HEAD || !read_all(fd, head, SPOOL_RECORD_HEAD, off) ||
        get_u32le(head + 4) != head_check(head))
        return 0;
    uint64_t len = get_u32le(head);
    return len && len <= s->o.record_max && len <= end - off - SPOOL_RECORD_HEAD ? len : 0;
}

/* ---- the position --------------------------------------------------------------------------- */

static void position_save(struct spool *s)
{
    uint8_t slot[SLOT_BYTES];

    s->position_seq++;
    put_u64le(slot, s->position_seq);
    put_u64le(slot + 8, s->position.segment);
    put_u64le(slot + 16, s->position.off);
    put_u64le(slot + 24, hash64(slot, 24, 1));
    /* If it cannot be written, records come again after a restart: harmless. */
    (void)!pwrite(s->position_fd, slot, sizeof(slot), (off_t)(s->position_seq % 2 * SLOT_BYTES));
}

static int position_load(struct spool *s, struct err *e)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/position", s->dir);

    if (n < 0 || n >= PATH_MAX)
        return err_set(e, ERR_CONFIG, "the path of the spool is too long");
    s->position_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->position_fd < 0)
        return err_errno(e, errno, "cannot open %s", path);
    for (uint64_t i = 0; i < 2; i++) {
        uint8_t slot[SLOT_BYTES];
        if (!read_all(s->position_fd, slot, sizeof(slot), i * SLOT_BYTES) ||
            get_u64le(slot + 24) != hash64(slot, 24, 1) || get_u64le(slot) <= s->position_seq ||
            get_u64le(slot + 8) > INT64_MAX)
            continue;
        s->position_seq = get_u64le(slot);
        s->position = (struct place){ get_u64le(slot + 8), get_u64le(slot + 16) };
    }
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static int list_segments(struct spool *s, struct err *e)
{
    DIR *dir = opendir(s->dir);

    if (!dir)
        return err_errno(e, errno, "cannot read the folder %s", s->dir);
    for (const struct dirent *at; (at = readdir(dir)) != NULL;) {
        struct str name = str_c(at->d_name);
        uint64_t number = 0;
        bool ok = name.len == 22 && str_ends(name, STR(".spool")) &&
                  hex_u64(str_sub(name, 0, 16), &number);
        if (ok && number <= INT64_MAX)
            vec_push(&s->segments, ((struct segment){ .number = number }));
    }
    (void)closedir(dir);
    if (s->segments.len)
        qsort(s->segments.ptr, s->segments.len, sizeof(*s->segments.ptr), by_number);
    return 0;
}

/* How many whole records there are from the position on, and where they end. */
static void segment_scan(struct spool *s, struct segment *g)
{
    char path[PATH_MAX];
    uint8_t head[SPOOL_HEAD > SPOOL_RECORD_HEAD ? SPOOL_HEAD : SPOOL_RECORD_HEAD];
    struct stat st;
    int fd = segment_path(s, g->number, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    g->len = SPOOL_HEAD;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size > SPOOL_HEAD && read_all(fd, head, SPOOL_HEAD, 0) &&
        memcmp(head, MAGIC_BYTES, 8) == 0 && get_u64le(head + 8) == g->number) {
        uint64_t size = (uint64_t)st.st_size, n;
        while ((n = head_read(s, fd, g->len, size, head)) != 0) {
            g->records += g->number > s->position.segment || g->len >= s->position.off;
            g->len += SPOOL_RECORD_HEAD + n;
        }
        s->damaged += g->len < size;
    }
    (void)close(fd);
}

static void start_at(struct spool *s)
{
    size_t keep = 0;

    vec_for (i, &s->segments) {
        struct segment *g = &s->segments.ptr[i];
        if (g->number < s->position.segment) {
            segment_unlink(s, g->number);
            continue;
        }
        segment_scan(s, g);
        s->segments.ptr[keep++] = *g;
    }
    s->segments.len = keep;
    s->next_number = MAX(s->position.segment, keep ? s->segments.ptr[keep - 1].number : 0) + 1;
    if (keep && s->segments.ptr[0].number != s->position.segment)
        s->position = (struct place){ s->segments.ptr[0].number, SPOOL_HEAD };
    s->cursor = s->position;
}

int spool_open(const struct spool_opts *o, struct spool **ret, struct err *e)
{
    static const struct spool_io real = { real_pwrite, real_fsync, NULL };
    struct spool *s;

    if (o->fs->mkdir_all(o->fs, o->dir, e))
        return e->code;
    s = XNEW(struct spool);
    mutex_init(&s->lock);
    s->o = *o;
    s->o.io = o->io ? o->io : &real;
    s->dir = xstrdup(o->dir);
    s->o.dir = s->dir;
    s->write_fd = s->read_fd = s->position_fd = -1;
    s->unseen_bytes = SPACE_EACH_BYTES;
    if (position_load(s, e) || list_segments(s, e)) {
        spool_close(s);
        return e->code;
    }
    start_at(s);
    *ret = s;
    return 0;
}

void spool_close(struct spool *s)
{
    if (!s)
        return;
    fd_close(&s->write_fd);
    fd_close(&s->read_fd);
    fd_close(&s->position_fd);
    vec_free(&s->segments);
    mutex_deinit(&s->lock);
    xfree(s->dir);
    xfree(s);
}

/* ---- removing ------------------------------------------------------------------------------- */

static uint64_t all_bytes(const struct spool *s)
{
    uint64_t n = 0;

    vec_for (i, &s->segments)
        n += s->segments.ptr[i].len;
    return n;
}

static void remove_first(struct spool *s)
{
    uint64_t number = s->segments.ptr[0].number;

    segment_unlink(s, number);
    memmove(s->segments.ptr, s->segments.ptr + 1, (s->segments.len - 1) * sizeof(*s->segments.ptr));
    s->segments.len--;
    if (s->cursor.segment == number) {
        fd_close(&s->read_fd);
        s->cursor = s->segments.len ? (struct place){ s->segments.ptr[0].number, SPOOL_HEAD }
                                    : (struct place){ s->next_number, SPOOL_HEAD };
    }
}

/* The oldest segment makes room, whatever is in it. What is being sent of it may still arrive, and
 * is not counted as dropped. */
static void drop_first(struct spool *s)
{
    struct segment *g = &s->segments.ptr[0];

    if (s->segments.len == 1)
        fd_close(&s->write_fd);
    s->dropped += g->records;
    for (size_t i = 0; i < s->taken_len; i++) {
        const struct ticket *t = &s->taken[(s->taken_from + i) % SPOOL_TAKEN_MAX];
        s->dropped -= t->segment == g->number && !t->finished;
    }
    remove_first(s);
    if (s->position.segment <= (s->segments.len ? s->segments.ptr[0].number : s->next_number)) {
        s->position = (struct place){ s->segments.len ? s->segments.ptr[0].number : s->next_number,
                                      SPOOL_HEAD };
        position_save(s);
    }
}

/* ---- appending ------------------------------------------------------------------------------ */

static int segment_sync(const struct spool *s, int fd, struct err *e)
{
    return s->o.io->fsync(s->o.io->cookie, fd) ? err_errno(e, errno, "cannot sync %s", s->dir) : 0;
}

static int dir_sync(const struct spool *s, struct err *e)
{
    int fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_errno(e, errno, "cannot open %s", s->dir);
    int rc = segment_sync(s, fd, e);
    (void)close(fd);
    return rc;
}

static int segment_new(struct spool *s, struct err *e)
{
    char path[PATH_MAX];
    uint8_t head[SPOOL_HEAD];
    uint64_t number = s->next_number;

    if (!segment_path(s, number, path))
        return err_set(e, ERR_CONFIG, "the path of the spool is too long");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "cannot create %s", path);
    memcpy(head, MAGIC_BYTES, 8);
    put_u64le(head + 8, number);
    int rc = write_all(s, fd, str_n((const char *)head, SPOOL_HEAD), 0);
    if (rc || dir_sync(s, e)) {
        rc = rc ? err_errno(e, rc, "cannot write %s", path) : e->code;
        (void)close(fd);
        (void)unlink(path);
        return rc;
    }
    s->next_number++;
    s->write_fd = fd;
    if (!s->segments.len) {
        s->position = s->cursor = (struct place){ number, SPOOL_HEAD };
        fd_close(&s->read_fd);
    }
    vec_push(&s->segments, ((struct segment){ .number = number, .len = SPOOL_HEAD }));
    return 0;
}

static int look_at_space(struct spool *s, uint64_t more, struct err *e)
{
    uint64_t room = 0, total = 0;

    s->unseen_bytes += more;
    if (!s->o.reserve_bytes || s->unseen_bytes < SPACE_EACH_BYTES)
        return 0;
    if (s->o.fs->space(s->o.fs, s->dir, &room, &total, e))
        return e->code;
    if (room < s->o.reserve_bytes + more)
        return err_set(e, ERR_NO_SPACE,
                       "disk reserve reached: %" PRIu64 " MiB free, %" PRIu64 " MiB are kept free",
                       room / MIB, s->o.reserve_bytes / MIB);
    s->unseen_bytes = 0;
    return 0;
}

static int append(struct spool *s, struct str record, int64_t at_ms, struct err *e)
{
    uint64_t need = SPOOL_RECORD_HEAD + record.len;
    uint8_t head[SPOOL_RECORD_HEAD];

    if (record.len == 0 || record.len > s->o.record_max || need + SPOOL_HEAD > s->o.bytes_max)
        return err_set(e, ERR_LIMIT, "a record of %zu bytes does not fit the spool", record.len);
    if (look_at_space(s, need, e))
        return e->code;
    while (s->segments.len && all_bytes(s) + need + SPOOL_HEAD > s->o.bytes_max)
        drop_first(s);
    struct segment *last = s->segments.len ? &s->segments.ptr[s->segments.len - 1] : NULL;
    if (s->write_fd >= 0 && last && last->len > SPOOL_HEAD && last->len + need > segment_bytes(s)) {
        if (segment_sync(s, s->write_fd, e))
            return e->code;
        fd_close(&s->write_fd);
    }
    if (s->write_fd < 0 && segment_new(s, e))
        return e->code;
    last = &s->segments.ptr[s->segments.len - 1];
    head_make(head, record, at_ms);
    int rc = write_all(s, s->write_fd, str_n((const char *)head, sizeof(head)), last->len);
    if (!rc)
        rc = write_all(s, s->write_fd, record, last->len + sizeof(head));
    if (rc) {
        if (ftruncate(s->write_fd, (off_t)last->len))
            fd_close(&s->write_fd);
        return err_errno(e, rc, "cannot write below %s", s->dir);
    }
    last->len += need;
    last->records++;
    return 0;
}

int spool_append(struct spool *s, struct str record, int64_t at_ms, struct err *e)
{
    mutex_lock(&s->lock);
    int rc = append(s, record, at_ms, e);
    mutex_unlock(&s->lock);
    return rc;
}

int spool_sync(struct spool *s, struct err *e)
{
    mutex_lock(&s->lock);
    int fd = s->write_fd; /* only the appending thread closes it, and that is ours */
    mutex_unlock(&s->lock);
    return fd >= 0 ? segment_sync(s, fd, e) : 0;
}

void spool_set_max(struct spool *s, uint64_t bytes_max)
{
    mutex_lock(&s->lock);
    s->o.bytes_max = bytes_max;
    mutex_unlock(&s->lock);
}

/* ---- taking --------------------------------------------------------------------------------- */

static struct segment *segment_at(const struct spool *s, uint64_t number)
{
    vec_for (i, &s->segments)
        if (s->segments.ptr[i].number == number)
            return &s->segments.ptr[i];
    return NULL;
}

/* Moves to the start of the segment after the cursor's; false: it was the last. */
static bool next_segment(struct spool *s)
{
    vec_for (i, &s->segments) {
        if (s->segments.ptr[i].number <= s->cursor.segment)
            continue;
        fd_close(&s->read_fd);
        s->cursor = (struct place){ s->segments.ptr[i].number, SPOOL_HEAD };
        return true;
    }
    return false;
}

/* False: not now, since the process has too many files open, say: nothing of it is lost. */
static bool open_segment(struct spool *s, uint64_t number)
{
    char path[PATH_MAX];

    if (s->read_fd < 0 && segment_path(s, number, path))
        s->read_fd = open(path, O_RDONLY | O_CLOEXEC);
    return s->read_fd >= 0 || errno == ENOENT;
}

/* True: the cursor stands at a record of *ret_len bytes in a file that is open. */
static bool find_record(struct spool *s, uint64_t *ret_len, uint8_t head[SPOOL_RECORD_HEAD])
{
    for (;;) {
        const struct segment *g = segment_at(s, s->cursor.segment);
        if (g && s->cursor.off < g->len) {
            if (!open_segment(s, g->number))
                return false;
            *ret_len = s->read_fd >= 0 ? head_read(s, s->read_fd, s->cursor.off, g->len, head) : 0;
            if (*ret_len)
                return true;
            s->damaged++; /* what is behind it cannot be found */
            s->cursor.off = g->len;
        }
        if (!next_segment(s))
            return false;
    }
}

static struct ticket *taken_at(struct spool *s, size_t i)
{
    return &s->taken[(s->taken_from + i) % SPOOL_TAKEN_MAX];
}

static uint64_t ticket_new(struct spool *s, uint64_t len, int64_t at_ms)
{
    struct ticket *t = taken_at(s, s->taken_len++);

    s->cursor.off += SPOOL_RECORD_HEAD + len;
    *t = (struct ticket){
        .number = ++s->tickets, .segment = s->cursor.segment, .end = s->cursor.off, .at_ms = at_ms
    };
    return t->number;
}

static void finish(struct spool *s, uint64_t number)
{
    bool moved = false;

    for (size_t i = 0; i < s->taken_len; i++) {
        struct ticket *t = taken_at(s, i);
        if (t->number != number || t->finished)
            continue;
        struct segment *g = segment_at(s, t->segment);
        t->finished = true;
        if (g)
            g->records--;
    }
    for (; s->taken_len && taken_at(s, 0)->finished; s->taken_len--) {
        const struct ticket *t = taken_at(s, 0);
        s->taken_from = (s->taken_from + 1) % SPOOL_TAKEN_MAX;
        if (!segment_at(s, t->segment))
            continue; /* it was dropped: the position is beyond */
        s->position = (struct place){ t->segment, t->end };
        moved = true;
    }
    if (!moved)
        return;
    position_save(s);
    while (s->segments.len && s->segments.ptr[0].number < s->position.segment)
        remove_first(s);
}

int spool_take(struct spool *s, struct buf *out, int64_t *ret_at_ms, uint64_t *ret_ticket,
               struct err *e)
{
    uint8_t head[SPOOL_RECORD_HEAD];
    uint64_t len;
    int rc = 0;

    buf_reset(out);
    mutex_lock(&s->lock);
    if (s->taken_len < SPOOL_TAKEN_MAX && find_record(s, &len, head)) {
        char *to = buf_room(out, (size_t)len);
        int64_t at_ms = (int64_t)get_u64le(head + 8);
        bool ok = to && read_all(s->read_fd, to, (size_t)len, s->cursor.off + SPOOL_RECORD_HEAD) &&
                  hash64(to, (size_t)len, (uint64_t)at_ms) == get_u64le(head + 16);
        uint64_t ticket = ticket_new(s, len, at_ms);
        rc = 1;
        if (ok) {
            out->len += (size_t)len;
            *ret_at_ms = at_ms;
            *ret_ticket = ticket;
        } else {
            rc = -1;
            s->damaged++;
            (void)err_set(e, ERR_CORRUPT, "a record of %" PRIu64 " bytes below %s is damaged", len,
                          s->dir);
            finish(s, ticket);
        }
    }
    mutex_unlock(&s->lock);
    return rc;
}

void spool_finish(struct spool *s, uint64_t ticket)
{
    mutex_lock(&s->lock);
    finish(s, ticket);
    mutex_unlock(&s->lock);
}

struct spool_stats spool_stats(const struct spool *spool)
{
    struct spool *s = (struct spool *)(uintptr_t)spool; /* only the lock is touched */
    struct spool_stats r = { 0 };

    mutex_lock(&s->lock);
    r.dropped = s->dropped;
    r.damaged = s->damaged;
    vec_for (i, &s->segments) {
        r.bytes += s->segments.ptr[i].len;
        r.records += s->segments.ptr[i].records;
    }
    if (s->segments.len && s->segments.ptr[0].number == s->position.segment)
        r.bytes -= MIN(s->position.off, r.bytes);
    for (size_t i = 0; i < s->taken_len; i++) {
        const struct ticket *t = taken_at(s, i);
        if (t->finished)
            continue;
        r.oldest_ms = r.oldest_ms ? r.oldest_ms : t->at_ms;
        r.records += !segment_at(s, t->segment); /* its segment was dropped, it is still sent */
    }
    mutex_unlock(&s->lock);
    return r;
}
