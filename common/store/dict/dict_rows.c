/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_rows: writes and reads rows of up to 1,024 dictionary entries, in columns (dict_rows.h).
 *
 * Consecutive frames are alike, so columns hold differences to the entry before, as zigzag varints.
 * A reader checks the checksum, the count, each length and that every parent is an older node,
 * before anything is used as an index.
 *
 * Pure: any thread.
 */
#include "common/store/dict/dict_rows.h"

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION 1

static uint64_t zigzag(uint64_t now, uint64_t before)
{
    uint64_t d = now - before;
    return d << 1 ^ (d >> 63 ? UINT64_MAX : 0);
}

static uint64_t unzigzag(uint64_t z, uint64_t before)
{
    return before + (z >> 1 ^ (z & 1 ? UINT64_MAX : 0));
}

static void begin(struct buf *out, size_t n)
{
    CHECK(n >= 1 && n <= DICT_ROW_MAX);
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_varint(out, n);
}

static void end(struct buf *out)
{
    wr_u32le(out, crc32c(0, out->ptr, out->len));
    CHECK(buf_ok(out));
}

void dict_rows_strings(const struct str *s, size_t n, struct buf *out)
{
    begin(out, n);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, s[i].len);
    for (size_t i = 0; i < n; i++)
        buf_add_str(out, s[i]);
    end(out);
}

void dict_rows_frames(const struct frame *f, size_t n, struct buf *out)
{
    begin(out, n);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, zigzag(f[i].func, i ? f[i - 1].func : 0));
    for (size_t i = 0; i < n; i++)
        wr_varint(out, zigzag(f[i].file, i ? f[i - 1].file : 0));
    for (size_t i = 0; i < n; i++)
        wr_varint(out, zigzag(f[i].module, i ? f[i - 1].module : 0));
    for (size_t i = 0; i < n; i++)
        wr_varint(out, f[i].line);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, zigzag(f[i].addr, i ? f[i - 1].addr : 0));
    end(out);
}

void dict_rows_nodes(const struct dict_node *d, size_t n, uint32_t first, struct buf *out)
{
    begin(out, n);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, first + i - d[i].parent);
    for (size_t i = 0; i < n; i++)
        wr_varint(out, zigzag(d[i].frame, i ? d[i - 1].frame : 0));
    end(out);
}

/* ---- reading ---- */

static int corrupt(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "dictionary row: %s", what);
}

static int open_row(struct str row, struct rd *ret, size_t *ret_n, struct err *e)
{
    uint8_t version = 0;
    uint64_t n;

    if (row.len < 6)
        return corrupt(e, "shorter than its frame");
    size_t body = row.len - 4;
    if (get_u32le(row.ptr + body) != crc32c(0, row.ptr, body))
        return corrupt(e, "checksum does not match");
    *ret = rd_of(str_sub(row, 0, body));
    if (!rd_u8(ret, &version) || version != VERSION)
        return err_set(e, ERR_CORRUPT, "dictionary row: version %u, this program reads %d", version,
                       VERSION);
    if (!rd_varint(ret, &n) || n < 1 || n > DICT_ROW_MAX)
        return corrupt(e, "count of entries is not 1..1024");
    *ret_n = (size_t)n;
    return 0;
}

static int close_row(const struct rd *r, struct err *e)
{
    return rd_left(r) ? corrupt(e, "bytes behind the last entry") : 0;
}

static bool read_u32(struct rd *r, uint32_t *ret)
{
    uint64_t v;

    if (!rd_varint(r, &v) || v > UINT32_MAX)
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* The next of a column of differences. */
static bool read_diff(struct rd *r, uint64_t before, uint64_t max, uint64_t *ret)
{
    uint64_t z;

    if (!rd_varint(r, &z))
        return false;
    *ret = unzigzag(z, before);
    return *ret <= max;
}

static bool read_diff_u32(struct rd *r, uint32_t before, uint32_t *ret)
{
    uint64_t v;

    if (!read_diff(r, before, UINT32_MAX, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

int dict_rows_read_strings(struct str row, struct str *ret, size_t *ret_n, struct err *e)
{
    struct rd r;
    size_t n;
    uint64_t len;
    int rc = open_row(row, &r, &n, e);

    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (!rd_varint(&r, &len) || len > row.len)
            return corrupt(e, "a string is longer than the row");
        ret[i].len = (size_t)len;
    }
    for (size_t i = 0; i < n; i++)
        if (!rd_bytes(&r, ret[i].len, &ret[i]))
            return corrupt(e, "strings are longer than the row");
    *ret_n = n;
    return close_row(&r, e);
}

int dict_rows_read_frames(struct str row, struct frame *ret, size_t *ret_n, struct err *e)
{
    struct rd r;
    size_t n;
    bool ok = true;
    int rc = open_row(row, &r, &n, e);

    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        ok = ok && read_diff_u32(&r, i ? ret[i - 1].func : 0, &ret[i].func);
    for (size_t i = 0; i < n; i++)
        ok = ok && read_diff_u32(&r, i ? ret[i - 1].file : 0, &ret[i].file);
    for (size_t i = 0; i < n; i++)
        ok = ok && read_diff_u32(&r, i ? ret[i - 1].module : 0, &ret[i].module);
    for (size_t i = 0; i < n; i++)
        ok = ok && read_u32(&r, &ret[i].line);
    for (size_t i = 0; i < n; i++)
        ok = ok && read_diff(&r, i ? ret[i - 1].addr : 0, UINT64_MAX, &ret[i].addr);
    if (!ok)
        return corrupt(e, "a frame is cut off or out of range");
    *ret_n = n;
    return close_row(&r, e);
}

int dict_rows_read_nodes(struct str row, uint32_t first, struct dict_node *ret, size_t *ret_n,
                         struct err *e)
{
    struct rd r;
    size_t n;
    uint32_t up = 0;
    bool ok = true;
    int rc = open_row(row, &r, &n, e);

    if (rc)
        return rc;
    if (first > UINT32_MAX - n)
        return corrupt(e, "ids pass 32 bits");
    for (size_t i = 0; ok && i < n; i++) {
        ok = read_u32(&r, &up) && up >= 1 && up <= first + i;
        ret[i].parent = (uint32_t)(first + i - up);
    }
    for (size_t i = 0; i < n; i++)
        ok = ok && read_diff_u32(&r, i ? ret[i - 1].frame : 0, &ret[i].frame);
    if (!ok)
        return corrupt(e, "a node is cut off or stands before its parent");
    *ret_n = n;
    return close_row(&r, e);
}
