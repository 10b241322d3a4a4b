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
 * all entries from there on, a reset drops all. So a suffix is replaced, and a snapshot installed,
 * without a moment in which the log is neither the old nor the new one.
 *
 * Torn or rotten? Each group between two fsyncs begins with a hard record that says up to which
 * byte its file was fsynced then. A record that does not check in the last file is the torn end of
 * what was never fsynced, and is cut, unless a good record behind it says that the place had been
 * fsynced: then bytes changed that were acked, and the log refuses to open. So the last group needs
 * a hard record behind it, too: rlog_seal writes one when the log has been idle for a second. A
 * replica that dies within that second, and whose disk then damages that very group, is shorter
 * than it said; the digest and the other replicas find what differs, not this file. The record that
 * seals needs none itself: without it nothing is missing. Files before the last are fsynced whole
 * before the next one is made, so anything odd in them is rot.
 *
 * A process that died leaves bytes that the kernel has and the disk has not: opening fsyncs, so
 * that what it reports is durable. Where an fsync failed before, the kernel may hold them as clean:
 * it reads them back and never writes them again, and the next fsync says that all is well. So what
 * no hard record says to be fsynced is written once more, the same bytes to the same place.
 */
#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/log/rlog_impl.h"

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
    s.sealed = (!l->group && l->bare) || !rlog_begun(l);
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

void rlog_set_base(struct rlog *l, uint64_t index, uint64_t term)
{
    l->pos.len = l->pos_head = 0;
    l->runs.len = 0;
    vec_push(&l->runs, ((struct run){ index, term }));
    l->st.base_index = l->st.last_index = index;
    l->st.base_term = l->st.last_term = term;
}

/* Drops all entries from `index` on; index is above the base. */
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

void rlog_note_entry(struct rlog *l, uint64_t index, uint64_t term, struct pos pos)
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

int rlog_path(const struct rlog *l, uint64_t number, char ret[PATH_BYTES], struct err *e)
{
    int n = snprintf(ret, PATH_BYTES, "%s/%016" PRIx64 ".rlog", l->dir, number);

    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ERR_CONFIG, "the path of a log below %s is too long", l->dir);
    return 0;
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
int rlog_segment_new(struct rlog *l, uint64_t number, struct err *e)
{
    struct segment s = { .number = number, .size = FILE_HEAD };
    char path[PATH_BYTES], head[FILE_HEAD];
    struct str part = { head, FILE_HEAD };
    uint64_t size;
    int rc = rlog_path(l, number, path, e);

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
    l->bare = false; /* its head has the promise, which no file may have but this one */
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
    struct segment *s = rlog_last(l);
    char record[ENTRY_HEAD];
    struct str part = { record, sizeof(record) };

    control_put(record, mark, a, b, mark == HARD_MARK ? l->synced : 0, s->number);
    int rc = l->fs->write(l->fs, s->file, s->size, &part, 1, e);
    if (!rc)
        s->size += sizeof(record);
    return rc;
}

static int next_file(struct rlog *l, struct err *e)
{
    uint64_t number = rlog_last(l)->number + 1;
    int rc = 0;

    if (l->group)
        rc = l->fs->sync(l->fs, rlog_last(l)->file, e);
    if (!rc)
        rc = rlog_segment_new(l, number, e);
    l->group = false;
    return rc;
}

/* Before each record: room in the last file, and the hard record that opens a group. */
static int begin(struct rlog *l, struct err *e)
{
    int rc = 0;

    if (l->failed)
        return refuse(l, e);
    if (rlog_last(l)->size >= l->segment_bytes)
        rc = next_file(l, e);
    if (!rc && !l->group) {
        rc = write_control(l, HARD_MARK, l->st.promised, l->st.commit, e);
        l->group = l->bare = true;
    }
    return fail(l, rc, e);
}

int rlog_append(struct rlog *l, struct repl_entry *const *entries, size_t n, struct err *e)
{
    static const char zeros[8];
    int rc = begin(l, e);

    if (rc || !n)
        return rc;
    l->bare = false;
    struct segment *s = rlog_last(l);
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
        rlog_note_entry(l, x->index, x->term, (struct pos){ s->number, at, x->len });
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
    l->bare = false;
    l->st.promised = MAX(l->st.promised, promised);
    l->st.commit = MAX(l->st.commit, commit);
    return fail(l, write_control(l, HARD_MARK, l->st.promised, l->st.commit, e), e);
}

int rlog_reset(struct rlog *l, uint64_t index, uint64_t term, struct err *e)
{
    int rc = begin(l, e);

    l->bare = false;
    if (!rc)
        rc = fail(l, write_control(l, RESET_MARK, index, term, e), e);
    if (rc)
        return rc;
    rlog_set_base(l, index, term);
    l->st.commit = MAX(l->st.commit, index);
    return 0;
}

int rlog_seal(struct rlog *l, struct err *e)
{
    if (l->failed)
        return refuse(l, e);
    return l->group || rlog_state(l).sealed ? 0 : begin(l, e);
}

int rlog_roll(struct rlog *l, struct err *e)
{
    if (l->failed)
        return refuse(l, e);
    if (rlog_last(l)->size <= FILE_HEAD)
        return 0;
    return fail(l, next_file(l, e), e);
}

int rlog_sync(struct rlog *l, struct err *e)
{
    if (l->failed)
        return refuse(l, e);
    if (!l->group)
        return 0;
    int rc = fail(l, l->fs->sync(l->fs, rlog_last(l)->file, e), e);
    if (!rc) {
        l->synced = rlog_last(l)->size;
        l->group = false;
    }
    return rc;
}

/* ---- dropping ---- */

/* The highest index of a live entry in the first file or earlier; base_index if none is. */
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
        rc = rlog_path(l, s.number, path, e);
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
        rc = err_set(e, ERR_CORRUPT, "another entry is at this place");
    }
    if (rc)
        err_wrap(e, "entry %" PRIu64 " at byte %" PRIu64 " of %s/%016" PRIx64 ".rlog", index, p->at,
                 l->dir, s->number);
    return rc;
}

int rlog_read(struct rlog *l, const struct rlog_range *r, struct repl_entry **ret, size_t *ret_len,
              struct err *e)
{
    size_t bytes = 0;
    int rc = 0;

    *ret_len = 0;
    if (r->from <= l->st.base_index || r->from > l->st.last_index)
        return err_set(e, ERR_NOT_FOUND,
                       "entry %" PRIu64 " is not in the log, which has %" PRIu64 " to %" PRIu64,
                       r->from, l->st.base_index + 1, l->st.last_index);
    for (uint64_t i = r->from; i <= l->st.last_index && *ret_len < r->max && bytes <= r->bytes_max;
         i++) {
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
