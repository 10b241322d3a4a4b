/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline_row: writes and reads the row that timeline_row.h draws.
 *
 * Totals of a timeline are often multiples of one period, so all of them are divided by their
 * greatest common divisor before they become varints. A reader checks the checksum first and each
 * number against its bound, so that a damaged row is an error and never a wrong point.
 *
 * Pure: any thread.
 */
#include "common/store/codec/timeline_row.h"

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"

#define VERSION 1

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

void tl_encode(const struct tl_point *p, size_t n, struct buf *out)
{
    uint64_t scale = 0;

    CHECK(n >= 1 && n <= TL_POINTS_MAX);
    for (size_t i = 0; i < n; i++)
        scale = gcd(scale, p[i].total);
    if (!scale)
        scale = 1;
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_varint(out, n);
    wr_varint(out, scale);
    for (size_t i = 0; i < n; i++) {
        CHECK(!i || p[i].point > p[i - 1].point);
        CHECK(p[i].writes);
        wr_varint(out, i ? p[i].point - p[i - 1].point - 1 : p[i].point);
    }
    for (size_t i = 0; i < n; i++)
        wr_varint(out, p[i].total / scale);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, p[i].writes);
    wr_u32le(out, crc32c(0, out->ptr, out->len));
    CHECK(buf_ok(out));
}

static int corrupt(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "timeline row: %s", what);
}

static int read_columns(struct rd *r, size_t n, uint64_t scale, uint32_t limit, struct tl_point *p,
                        struct err *e)
{
    uint64_t v = 0, next = 0;

    for (size_t i = 0; i < n; i++) {
        if (!rd_varint(r, &v) || v >= limit || next + v >= limit)
            return corrupt(e, "a point is outside its chunk");
        p[i].point = (uint32_t)(next + v);
        next += v + 1;
    }
    for (size_t i = 0; i < n; i++)
        if (!rd_varint(r, &v) || !u64_mul(v, scale, &p[i].total))
            return corrupt(e, "a total is cut off or too large");
    for (size_t i = 0; i < n; i++)
        if (!rd_varint(r, &p[i].writes) || !p[i].writes)
            return corrupt(e, "a write count is cut off or 0");
    return rd_left(r) ? corrupt(e, "bytes behind the last point") : 0;
}

int timeline_row_decode(struct str row, uint32_t limit, struct tl *ret, struct err *e)
{
    uint8_t version = 0;
    uint64_t n, scale;

    ret->points.len = 0;
    if (row.len < 7)
        return corrupt(e, "shorter than its frame");
    size_t body = row.len - 4;
    if (get_u32le(row.ptr + body) != crc32c(0, row.ptr, body))
        return corrupt(e, "checksum does not match");
    struct rd r = rd_of(str_sub(row, 0, body));
    if (!rd_u8(&r, &version) || version != VERSION)
        return err_set(e, ERR_CORRUPT, "timeline row: version %u, this program reads %d", version,
                       VERSION);
    if (!rd_varint(&r, &n) || n < 1 || n > TL_POINTS_MAX || !rd_varint(&r, &scale) || !scale)
        return corrupt(e, "count or scale is out of range");
    vec_reserve(&ret->points, (size_t)n);
    int rc = read_columns(&r, (size_t)n, scale, limit, ret->points.ptr, e);
    if (!rc)
        ret->points.len = (size_t)n;
    return rc;
}

void tl_add(struct tl *t, uint32_t point, uint64_t total, uint64_t writes)
{
    size_t at = t->points.len;

    while (at && t->points.ptr[at - 1].point > point)
        at--;
    if (!at || t->points.ptr[at - 1].point != point) {
        vec_reserve(&t->points, t->points.len + 1);
        memmove(t->points.ptr + at + 1, t->points.ptr + at,
                (t->points.len - at) * sizeof(*t->points.ptr));
        t->points.ptr[at++] = (struct tl_point){ .point = point };
        t->points.len++;
    }
    struct tl_point *p = &t->points.ptr[at - 1];
    p->total = u64_add_sat(p->total, total);
    p->writes = u64_add_sat(p->writes, writes);
}
