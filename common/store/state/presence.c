/* SPDX-License-Identifier: Apache-2.0
 *
 * presence: writes and reads the leaves in which a gauge had data (presence.h).
 *
 * Most rows are one run, so the form with runs is a few bytes; the writer takes whichever form is
 * shorter, and readers take both. Readers check the checksum, the order of runs and the end of the
 * day; presence_read unites the rows of a range into one set of leaves for a query.
 *
 * Pure, but for the scan: any thread.
 */
#include "common/store/state/presence.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION   1
#define FORM_RUNS 0
#define FORM_BITS 1
#define BITS_LEN  (PRESENCE_WORDS * 8)
#define RUNS_MAX  (PRESENCE_LEAVES / 2)

/* ---- runs of bits ---- */

struct run {
    uint32_t first, end;
};

/* The first run at or behind `at`; false: none. */
static bool next_run(const struct presence *p, uint32_t at, struct run *ret)
{
    uint32_t end = at;

    while (at < PRESENCE_LEAVES && !presence_has(p, at)) {
        uint64_t rest = p->bits[at / 64] >> (at % 64);
        at = rest ? at + (uint32_t)__builtin_ctzll(rest) : (at / 64 + 1) * 64;
    }
    if (at >= PRESENCE_LEAVES)
        return false;
    for (end = at; end < PRESENCE_LEAVES && presence_has(p, end);) {
        uint64_t gaps = ~p->bits[end / 64] >> (end % 64);
        end = gaps ? end + (uint32_t)__builtin_ctzll(gaps) : (end / 64 + 1) * 64;
    }
    *ret = (struct run){ at, end };
    return true;
}

static void set_run(struct presence *p, struct run r)
{
    for (uint32_t at = r.first; at < r.end;) {
        uint32_t n = MIN(64 - at % 64, r.end - at);
        uint64_t ones = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        p->bits[at / 64] |= ones << (at % 64);
        at += n;
    }
}

/* ---- rows ---- */

/* Bytes of the body in runs, and how many there are. */
static size_t runs_size(const struct presence *p, size_t *ret_n)
{
    size_t size = 0, n = 0;
    uint32_t end = 0;
    struct run r;

    for (uint32_t at = 0; next_run(p, at, &r); at = end = r.end, n++)
        size += varint_len(n ? r.first - end - 1 : r.first) + varint_len(r.end - r.first);
    *ret_n = n;
    return size + varint_len(n);
}

void presence_encode(const struct presence *p, struct buf *out)
{
    size_t n, size = runs_size(p, &n);
    uint32_t end = 0;
    struct run r;

    CHECK(n);
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u8(out, size <= BITS_LEN ? FORM_RUNS : FORM_BITS);
    if (size <= BITS_LEN) {
        wr_varint(out, n);
        for (uint32_t at = 0; next_run(p, at, &r); at = end = r.end) {
            wr_varint(out, at ? r.first - end - 1 : r.first);
            wr_varint(out, r.end - r.first);
        }
    } else {
        buf_add(out, p->bits, BITS_LEN);
    }
    wr_u32le(out, crc32c(0, out->ptr, out->len));
    CHECK(buf_ok(out));
}

static int corrupt(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "presence row: %s", what);
}

static int read_runs(struct rd *r, struct presence *p, struct err *e)
{
    uint64_t n, gap, len, at = 0;

    if (!rd_varint(r, &n) || n < 1 || n > RUNS_MAX)
        return corrupt(e, "number of runs is out of range");
    for (uint64_t i = 0; i < n; i++) {
        if (!rd_varint(r, &gap) || !rd_varint(r, &len))
            return corrupt(e, "a run is cut off");
        if (gap >= PRESENCE_LEAVES || !len || len > PRESENCE_LEAVES)
            return corrupt(e, "a run is outside its day");
        at += gap + (i > 0);
        if (at + len > PRESENCE_LEAVES)
            return corrupt(e, "a run is outside its day");
        set_run(p, (struct run){ (uint32_t)at, (uint32_t)(at + len) });
        at += len;
    }
    return rd_left(r) ? corrupt(e, "bytes behind the last run") : 0;
}

int presence_decode(struct str row, struct presence *ret, struct err *e)
{
    uint8_t version = 0, form = 0;
    uint64_t any = 0;

    memset(ret, 0, sizeof(*ret));
    if (row.len < 7)
        return corrupt(e, "shorter than its frame");
    size_t body = row.len - 4;
    if (get_u32le(row.ptr + body) != crc32c(0, row.ptr, body))
        return corrupt(e, "checksum does not match");
    struct rd r = rd_of(str_sub(row, 0, body));
    if (!rd_u8(&r, &version) || version != VERSION)
        return err_set(e, ERR_CORRUPT, "presence row: version %u, this program reads %d", version,
                       VERSION);
    if (!rd_u8(&r, &form) || form > FORM_BITS)
        return corrupt(e, "unknown form");
    if (form == FORM_RUNS)
        return read_runs(&r, ret, e);
    if (rd_left(&r) != BITS_LEN)
        return corrupt(e, "bits of other than a day");
    memcpy(ret->bits, r.p, BITS_LEN);
    for (size_t i = 0; i < PRESENCE_WORDS; i++)
        any |= ret->bits[i];
    return any ? 0 : corrupt(e, "no leaf at all");
}

/* ---- reading ---- */

struct each {
    const struct timeline_row_scan *c;
    presence_fn fn;
    void *cookie;
};

static int on_each(void *cookie, size_t i, uint32_t day, struct str value, struct err *e)
{
    const struct each *x = cookie;
    struct presence p;
    struct run r;

    if (presence_decode(value, &p, e))
        return e->code;
    for (uint32_t at = 0; next_run(&p, at, &r); at = r.end) {
        uint32_t first = MAX(day + r.first * LEAF_SLOTS, x->c->from);
        uint32_t end = MIN(day + r.end * LEAF_SLOTS, x->c->to);
        int rc = first < end ? x->fn(x->cookie, i, first, end, e) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int scan_days(const struct timeline_row_scan *c, tl_scan_fn fn, void *cookie, struct err *e)
{
    struct timeline_row_scan days = *c;

    days.flags |= KEY_TL_PRESENCE;
    days.level = 0;
    days.fn = fn;
    days.cookie = cookie;
    return timeline_row_scan(&days, e);
}

int presence_each(const struct timeline_row_scan *c, presence_fn fn, void *cookie, struct err *e)
{
    struct each x = { c, fn, cookie };

    return scan_days(c, on_each, &x, e);
}

/* The sum of all ids, day by day: a thousand series cost a few words each. */
struct days {
    uint32_t first;       /* day */
    struct presence **at; /* by day - first; NULL: nothing yet */
};

static int on_sum(void *cookie, size_t i, uint32_t day, struct str value, struct err *e)
{
    struct days *x = cookie;
    struct presence p, **sum = &x->at[day / DAY_SLOTS - x->first];

    (void)i;
    if (presence_decode(value, &p, e))
        return e->code;
    if (!*sum)
        *sum = XNEW(struct presence);
    for (size_t w = 0; w < PRESENCE_WORDS; w++)
        (*sum)->bits[w] |= p.bits[w];
    return 0;
}

static void give_day(const struct timeline_row_scan *c, const struct presence *p, uint32_t day,
                     roaring_bitmap_t *leaves)
{
    uint32_t from = c->from / LEAF_SLOTS, to = (c->to + LEAF_SLOTS - 1) / LEAF_SLOTS;
    struct run r;

    for (uint32_t at = 0; next_run(p, at, &r); at = r.end) {
        uint32_t first = MAX(day * PRESENCE_LEAVES + r.first, from);
        uint32_t end = MIN(day * PRESENCE_LEAVES + r.end, to);
        if (first < end)
            roaring_bitmap_add_range(leaves, first, end);
    }
}

int presence_read(const struct timeline_row_scan *c, roaring_bitmap_t *leaves, struct err *e)
{
    struct days x = { .first = c->from / DAY_SLOTS };

    if (c->from >= c->to)
        return 0;
    uint32_t n = (c->to - 1) / DAY_SLOTS - x.first + 1;
    x.at = xcalloc(n, sizeof(*x.at));
    int rc = scan_days(c, on_sum, &x, e);
    for (uint32_t i = 0; i < n; i++) {
        if (!rc && x.at[i])
            give_day(c, x.at[i], x.first + i, leaves);
        xfree(x.at[i]);
    }
    xfree(x.at);
    return rc;
}
