/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog: the log of one replica, in append-only files.
 *
 * Nothing written is ever changed. A file ("segment") is a head and records, one behind the other:
 *
 *   head     "EMBRLOG1" | version u32 | 0 u32 | segment u64 | promised u64 | commit u64 |
 *            last index u64 | last term u64 | sum u64 of the 56 bytes before
 *   entry    entry.h, head sum seeded with the number of the segment
 *   hard     mark u32 | 0 u32 | promised u64 | commit u64 | synced u64 | 0 u64 | sum u64
 *   reset    mark u32 | 0 u32 | index u64 | term u64 | 0 u64 | 0 u64 | sum u64
 *
 * Reading all of it in order gives the state: an entry whose index is not above the last one drops
 * what stands from there on, a reset drops everything. So a suffix is replaced, and a snapshot
 * taken over, without a moment in which the log is neither the old nor the new one.
 *
 * Torn or rotten? Each group between two fsyncs begins with a hard record that says up to which
 * byte its file was fsynced then. A record that does not check in the last file is the torn end of
 * what was never fsynced, and is cut, unless a good record behind it says that the place had been
 * fsynced: then bytes changed that were acked, and the log refuses to open. (Rot within the very
 * last group cannot be told from a tear; the replica then is shorter than it said. The digest and
 * the other replicas find what differs, not this file.) Files before the last are fsynced whole
 * before the next one is made, so anything odd in them is rot.
 *
 * A process that died leaves bytes that the kernel has and the disk has not: opening fsyncs, so
 * that what it reports is durable.
 */
#include "common/repl/rlog.h"

#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/base/wr.h"

enum { FILE_HEAD = 64, FILE_SUMMED = 56, CONTROL_SUMMED = 40, VERSION = 1, PATH_BYTES = 4096 };
#define FILE_MAGIC    UINT64_C(0x31474f4c52424d45) /* "EMBRLOG1" */
#define HARD_MARK     UINT32_C(0x45e70200)
#define RESET_MARK    UINT32_C(0x45e70300)
#define SEGMENT_BYTES (64 * MIB)
#define SEGMENTS_MAX  65536

struct segment {
    uint64_t number;
    struct rlog_file *file; /* owned */
    uint64_t size;
};
/* Where a live entry stands. In order of index they are in order of (segment, offset), too. */
struct pos {
    uint64_t segment, at;
    size_t len;
};
struct run {
    uint64_t from, term;
};

struct rlog {
    const struct rlog_fs *fs;
    char *dir; /* owned */
    uint64_t segment_bytes;
    VEC(struct segment) segments;
    VEC(struct pos) pos; /* of base_index + 1, ..., from pos_head on */
    size_t pos_head;
    VEC(struct run) runs; /* the first is of the base */
    struct rlog_state st;
    uint64_t synced; /* bytes of the last segment */
    bool group;      /* something was written since the last sync */
    int failed;
    struct err why;
    VEC(char) heads; /* scratch */
    VEC(struct str) parts;
};

/* ---- what is in memory ---- */

uint64_t rlog_term(const struct rlog *l, uint64_t index)
{
    size_t lo = 0, hi = l->runs.len;

    if (index < l->st.base_index || index > l->st.last_index)
        return 0;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (l->runs.ptr[mid].from <= index)
            lo = mid;
        else
            hi = mid;
    }
    return l->runs.ptr[lo].term;
}

void rlog_terms(const struct rlog *l, void (*run)(void *cookie, uint64_t from, uint64_t term),
                void *cookie)
{
    vec_for (i, &l->runs)
        run(cookie, l->runs.ptr[i].from, l->runs.ptr[i].term);
}

struct rlog_state rlog_state(const struct rlog *l)
{
    struct rlog_state s = l->st;

    s.bytes = 0;
    vec_for (i, &l->segments)
        s.bytes += l->segments.ptr[i].size;
    return s;
}

bool rlog_begun(const struct rlog *l)
{
    return l->st.promised > 0 || l->st.last_index > 0;
}

static size_t live(const struct rlog *l)
{
    return l->pos.len - l->pos_head;
}

static void set_base(struct rlog *l, uint64_t index, uint64_t term)
{
    l->pos.len = l->pos_head = 0;
    l->runs.len = 0;
    vec_push(&l->runs, ((struct run){ index, term }));
    l->st.base_index = l->st.last_index = index;
    l->st.base_term = l->st.last_term = term;
}

/* What stands from `index` on goes; index is above the base. */
static void cut_suffix(struct rlog *l, uint64_t index)
{
    if (index > l->st.last_index)
        return;
    l->pos.len = l->pos_head + (size_t)(index - l->st.base_index - 1);
    while (l->runs.len > 1 && l->runs.ptr[l->runs.len - 1].from >= index)
        l->runs.len--;
    l->st.last_index = index - 1;
    l->st.last_term = l->runs.ptr[l->runs.len - 1].term;
}

static void note_entry(struct rlog *l, uint64_t index, uint64_t term, struct pos pos)
{
    cut_suffix(l, index);
    CHECK(index == l->st.last_index + 1);
    vec_push(&l->pos, pos);
    if (l->runs.ptr[l->runs.len - 1].term != term)
        vec_push(&l->runs, ((struct run){ index, term }));
    l->st.last_index = index;
    l->st.last_term = term;
}

/* ---- files ---- */

static int path_of(const struct rlog *l, uint64_t number, char ret[PATH_BYTES], struct err *e)
{
    int n = snprintf(ret, PATH_BYTES, "%s/%016" PRIx64 ".rlog", l->dir, number);

    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ERR_CONFIG, "the path of a log below %s is too long", l->dir);
    return 0;
}

static struct segment *last_segment(struct rlog *l)
{
    return &l->segments.ptr[l->segments.len - 1];
}

static void file_head_put(const struct rlog *l, uint64_t number, char *p)
{
    memset(p, 0, FILE_HEAD);
    put_u64le(p, FILE_MAGIC);
    put_u32le(p + 8, VERSION);
    put_u64le(p + 16, number);
    put_u64le(p + 24, l->st.promised);
    put_u64le(p + 32, l->st.commit);
    put_u64le(p + 40, l->st.last_index);
    put_u64le(p + 48, l->st.last_term);
    put_u64le(p + FILE_SUMMED, hash64(p, FILE_SUMMED, number));
}

/* A new last file; the one before is whole and synced. */
static int segment_new(struct rlog *l, uint64_t number, struct err *e)
{
    struct segment s = { .number = number, .size = FILE_HEAD };
    char path[PATH_BYTES], head[FILE_HEAD];
    struct str part = { head, FILE_HEAD };
    uint64_t size;
    int rc = path_of(l, number, path, e);

    if (!rc && l->segments.len >= SEGMENTS_MAX)
        rc = err_set(e, ERR_LIMIT, "the log in %s has %d files", l->dir, SEGMENTS_MAX);
    if (!rc)
        rc = l->fs->open(l->fs, path, true, &s.file, &size, e);
    if (rc)
        return rc;
    vec_push(&l->segments, s);
    file_head_put(l, number, head);
    rc = l->fs->write(l->fs, s.file, 0, &part, 1, e);
    if (!rc)
        rc = l->fs->sync(l->fs, s.file, e);
    if (!rc)
        rc = l->fs->sync_dir(l->fs, l->dir, e);
    l->synced = FILE_HEAD;
    return rc;
}

static int fail(struct rlog *l, int rc, const struct err *e)
{
    if (rc) {
        l->failed = rc;
        l->why = *e;
    }
    return rc;
}

static int refuse(const struct rlog *l, struct err *e)
{
    return err_set(e, l->failed, "the log takes nothing since a write failed: %.400s", l->why.text);
}

/* ---- writing ---- */

static void control_put(char *p, uint32_t mark, uint64_t a, uint64_t b, uint64_t c, uint64_t seed)
{
    memset(p, 0, ENTRY_HEAD);
    put_u32le(p, mark);
    put_u64le(p + 8, a);
    put_u64le(p + 16, b);
    put_u64le(p + 24, c);
    put_u64le(p + CONTROL_SUMMED, hash64(p, CONTROL_SUMMED, seed));
}

static int write_control(struct rlog *l, uint32_t mark, uint64_t a, uint64_t b, struct err *e)
{
    struct segment *s = last_segment(l);
    char record[ENTRY_HEAD];
    struct str part = { record, sizeof(record) };

    control_put(record, mark, a, b, mark == HARD_MARK ? l->synced : 0, s->number);
    int rc = l->fs->write(l->fs, s->file, s->size, &part, 1, e);
    if (!rc)
        s->size += sizeof(record);
    return rc;
}

/* Before each record: room in the last file, and the hard record that opens a group. */
static int begin(struct rlog *l, struct err *e)
{
    int rc = 0;

    if (l->failed)
        return refuse(l, e);
    if (last_segment(l)->size >= l->segment_bytes) {
        uint64_t number = last_segment(l)->number + 1;
        if (l->group)
            rc = l->fs->sync(l->fs, last_segment(l)->file, e);
        if (!rc)
            rc = segment_new(l, number, e);
        l->group = false;
    }
    if (!rc && !l->group) {
        rc = write_control(l, HARD_MARK, l->st.promised, l->st.commit, e);
        l->group = true;
    }
    return fail(l, rc, e);
}

int rlog_append(struct rlog *l, struct repl_entry *const *entries, size_t n, struct err *e)
{
    static const char zeros[8];
    int rc = begin(l, e);

    if (rc || !n)
        return rc;
    struct segment *s = last_segment(l);
    uint64_t at = s->size;
    vec_reserve(&l->heads, n * ENTRY_HEAD);
    vec_reserve(&l->parts, n * 3);
    for (size_t i = 0; i < n; i++) {
        const struct repl_entry *x = entries[i];
        char *head = l->heads.ptr + i * ENTRY_HEAD;
        entry_head_put(x, s->number, head);
        l->parts.ptr[3 * i] = str_n(head, ENTRY_HEAD);
        l->parts.ptr[3 * i + 1] = str_n(x->data, x->len);
        l->parts.ptr[3 * i + 2] = str_n(zeros, entry_bytes(x->len) - ENTRY_HEAD - x->len);
    }
    rc = l->fs->write(l->fs, s->file, at, l->parts.ptr, n * 3, e);
    if (rc)
        return fail(l, rc, e);
    for (size_t i = 0; i < n; i++) {
        const struct repl_entry *x = entries[i];
        CHECK(x->index > l->st.base_index && x->index <= l->st.last_index + 1);
        CHECK(x->prev_term == rlog_term(l, x->index - 1));
        note_entry(l, x->index, x->term, (struct pos){ s->number, at, x->len });
        at += entry_bytes(x->len);
    }
    l->st.appended += at - s->size;
    s->size = at;
    return 0;
}

int rlog_hard(struct rlog *l, uint64_t promised, uint64_t commit, struct err *e)
{
    int rc = begin(l, e);

    if (rc)
        return rc;
    l->st.promised = MAX(l->st.promised, promised);
    l->st.commit = MAX(l->st.commit, commit);
    return fail(l, write_control(l, HARD_MARK, l->st.promised, l->st.commit, e), e);
}

int rlog_reset(struct rlog *l, uint64_t index, uint64_t term, struct err *e)
{
    int rc = begin(l, e);

    if (!rc)
        rc = fail(l, write_control(l, RESET_MARK, index, term, e), e);
    if (rc)
        return rc;
    set_base(l, index, term);
    l->st.commit = MAX(l->st.commit, index);
    return 0;
}

int rlog_sync(struct rlog *l, struct err *e)
{
    if (l->failed)
        return refuse(l, e);
    if (!l->group)
        return 0;
    int rc = fail(l, l->fs->sync(l->fs, last_segment(l)->file, e), e);
    if (!rc) {
        l->synced = last_segment(l)->size;
        l->group = false;
    }
    return rc;
}

/* ---- dropping ---- */

/* The highest index of a live entry in the first file or before; base_index if there is none. */
static uint64_t first_file_ends(const struct rlog *l)
{
    uint64_t number = l->segments.ptr[0].number;
    size_t lo = l->pos_head, hi = l->pos.len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (l->pos.ptr[mid].segment <= number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return l->st.base_index + (lo - l->pos_head);
}

static void raise_base(struct rlog *l, uint64_t index)
{
    uint64_t term = rlog_term(l, index);
    size_t gone = 0;

    l->pos_head += (size_t)(index - l->st.base_index);
    l->st.base_index = index;
    l->st.base_term = term;
    while (gone + 1 < l->runs.len && l->runs.ptr[gone + 1].from <= index)
        gone++;
    l->runs.len -= gone;
    memmove(l->runs.ptr, l->runs.ptr + gone, l->runs.len * sizeof(*l->runs.ptr));
    l->runs.ptr[0].from = index;
    if (l->pos_head > 1024 && l->pos_head > l->pos.len / 2) {
        memmove(l->pos.ptr, l->pos.ptr + l->pos_head, live(l) * sizeof(*l->pos.ptr));
        l->pos.len -= l->pos_head;
        l->pos_head = 0;
    }
}

int rlog_drop(struct rlog *l, uint64_t index, struct err *e)
{
    char path[PATH_BYTES];
    int rc = 0;

    while (!rc && l->segments.len > 1) {
        struct segment s = l->segments.ptr[0];
        uint64_t ends = first_file_ends(l);
        if (ends > index)
            break;
        rc = path_of(l, s.number, path, e);
        if (!rc)
            rc = l->fs->unlink(l->fs, path, e);
        if (!rc) /* one by one, in this order: a gap would look like a lost file */
            rc = l->fs->sync_dir(l->fs, l->dir, e);
        if (rc)
            break;
        l->fs->close(l->fs, s.file);
        l->segments.len--;
        memmove(l->segments.ptr, l->segments.ptr + 1, l->segments.len * sizeof(s));
        raise_base(l, ends);
    }
    return rc;
}

/* ---- reading ---- */

static const struct segment *segment_of(const struct rlog *l, uint64_t number)
{
    const struct segment *first = l->segments.ptr;

    CHECK(number >= first->number && number - first->number < l->segments.len);
    return first + (number - first->number);
}

static int read_one(struct rlog *l, uint64_t index, struct repl_entry **ret, struct err *e)
{
    const struct pos *p = &l->pos.ptr[l->pos_head + (size_t)(index - l->st.base_index - 1)];
    const struct segment *s = segment_of(l, p->segment);
    size_t n = entry_bytes(p->len);

    vec_reserve(&l->heads, n);
    int rc = l->fs->read(l->fs, s->file, p->at, l->heads.ptr, n, e);
    struct rd r = rd_of(str_n(l->heads.ptr, n));
    if (!rc)
        rc = entry_read(&r, s->number, ret, e);
    if (!rc && ((*ret)->index != index || (*ret)->term != rlog_term(l, index))) {
        entry_unref(*ret);
        rc = err_set(e, ERR_CORRUPT, "another entry stands there");
    }
    if (rc)
        err_wrap(e, "entry %" PRIu64 " at byte %" PRIu64 " of %s/%016" PRIx64 ".rlog", index, p->at,
                 l->dir, s->number);
    return rc;
}

int rlog_read(struct rlog *l, uint64_t from, size_t bytes_max, struct repl_entry **ret, size_t max,
              size_t *ret_len, struct err *e)
{
    size_t bytes = 0;
    int rc = 0;

    *ret_len = 0;
    if (from <= l->st.base_index || from > l->st.last_index)
        return err_set(e, ERR_NOT_FOUND,
                       "entry %" PRIu64 " is not in the log, which has %" PRIu64 " to %" PRIu64,
                       from, l->st.base_index + 1, l->st.last_index);
    for (uint64_t i = from; i <= l->st.last_index && *ret_len < max && bytes <= bytes_max; i++) {
        rc = read_one(l, i, &ret[*ret_len], e);
        if (rc)
            break;
        bytes += entry_bytes(ret[*ret_len]->len);
        (*ret_len)++;
    }
    if (rc)
        for (; *ret_len; (*ret_len)--)
            entry_unref(ret[*ret_len - 1]);
    return rc;
}

void rlog_close(struct rlog *l)
{
    if (!l)
        return;
    vec_for (i, &l->segments)
        l->fs->close(l->fs, l->segments.ptr[i].file);
    vec_free(&l->segments);
    vec_free(&l->pos);
    vec_free(&l->runs);
    vec_free(&l->heads);
    vec_free(&l->parts);
    xfree(l->dir);
    xfree(l);
}

/* ---- opening ---- */

struct names {
    VEC(uint64_t) numbers;
};

static void on_name(void *cookie, const char *name)
{
    struct names *n = cookie;
    uint64_t v = 0;
    size_t i;

    for (i = 0; i < 16 && name[i]; i++) {
        char c = name[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return;
        v = v << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (i == 16 && !strcmp(name + 16, ".rlog"))
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

/* One record at *at of a file; false: none that checks begins here. Moves *at behind it. */
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
            set_base(l, a, b);
            l->st.commit = MAX(l->st.commit, a);
        } else {
            l->st.promised = MAX(l->st.promised, a);
            l->st.commit = MAX(l->st.commit, b);
        }
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
        set_base(l, h.index - 1, h.prev_term);
    if (h.index > l->st.last_index + 1 || rlog_term(l, h.index - 1) != h.prev_term)
        return false;
    note_entry(l, h.index, h.term, (struct pos){ s->number, *at, h.len });
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
        set_base(l, get_u64le(p + 40), get_u64le(p + 48));
    return true;
}

static int rotten(const struct rlog *l, const struct segment *s, uint64_t at, struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "%s/%016" PRIx64 ".rlog is damaged at byte %" PRIu64
                   ": take this replica out of the shard and let it join anew",
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
        rc = path_of(l, s.number, path, e);
        if (!rc)
            rc = l->fs->open(l->fs, path, false, &s.file, &s.size, e);
        if (rc)
            break;
        vec_push(&l->segments, s);
        rc = segment_read(l, last_segment(l), i == 0, last, &torn, e);
        if (!rc && torn) {
            l->fs->close(l->fs, s.file);
            l->segments.len--;
            rc = l->fs->unlink(l->fs, path, e);
        }
    }
    return rc;
}

int rlog_open(const struct rlog_opts *o, struct rlog **ret, struct err *e)
{
    struct rlog *l = XNEW(struct rlog);
    struct names n = { 0 };

    l->fs = o->fs;
    l->dir = xstrdup(o->dir);
    l->segment_bytes = o->segment_bytes ? o->segment_bytes : SEGMENT_BYTES;
    set_base(l, 0, 0);
    int rc = l->fs->list(l->fs, l->dir, on_name, &n, e);
    sort_numbers(&n);
    if (!rc && n.numbers.len > SEGMENTS_MAX)
        rc = err_set(e, ERR_LIMIT, "%zu files of a log in %s", n.numbers.len, l->dir);
    if (!rc)
        rc = open_files(l, &n, e);
    if (!rc && l->segments.len == 0)
        rc = segment_new(l, n.numbers.len ? n.numbers.ptr[n.numbers.len - 1] : 1, e);
    if (!rc)
        rc = l->fs->sync(l->fs, last_segment(l)->file, e);
    if (!rc)
        rc = l->fs->sync_dir(l->fs, l->dir, e);
    vec_free(&n.numbers);
    if (rc) {
        err_wrap(e, "cannot open the replication log in %.200s", o->dir);
        rlog_close(l);
        return rc;
    }
    l->synced = last_segment(l)->size;
    *ret = l;
    return 0;
}
