/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/codec/function_cost.h"

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/store/codec/vecsum.h"

#define VERSION 1

/* ---- rows ---- */

int fn_put(struct str self, struct str total, struct buf *out, struct err *e)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_varint(out, self.len);
    buf_add_str(out, self);
    buf_add_str(out, total);
    if (buf_ok(out))
        wr_u32le(out, crc32c(0, out->ptr, out->len));
    return buf_ok(out)
               ? 0
               : err_set(e, ERR_LIMIT, "a row of functions has more than %zu bytes", out->max);
}

int fn_read(struct str row, struct function_cost_row *ret, struct err *e)
{
    uint8_t version = 0;
    uint64_t n = 0;

    if (row.len < 6)
        return err_set(e, ERR_CORRUPT, "row of functions: shorter than its frame");
    size_t body = row.len - 4;
    if (get_u32le(row.ptr + body) != crc32c(0, row.ptr, body))
        return err_set(e, ERR_CORRUPT, "row of functions: checksum does not match");
    struct rd r = rd_of(str_sub(row, 0, body));
    if (!rd_u8(&r, &version) || version != VERSION)
        return err_set(e, ERR_CORRUPT, "row of functions: version %u, this program reads %d",
                       version, VERSION);
    struct function_cost_row got;
    if (!rd_varint(&r, &n) || n > rd_left(&r) || !rd_bytes(&r, (size_t)n, &got.self))
        return err_set(e, ERR_CORRUPT, "row of functions: self values are cut off");
    if (!rd_bytes(&r, rd_left(&r), &got.total))
        return err_set(e, ERR_CORRUPT, "row of functions: total values are cut off");
    *ret = got;
    return 0;
}

/* ---- sums of rows ---- */

static int sum_column(struct vecsum *sum, const struct str *rows, size_t n, bool total,
                      struct buf *out, struct err *e)
{
    struct function_cost_row row;

    vecsum_begin(sum);
    for (size_t i = 0; i < n; i++)
        if (fn_read(rows[i], &row, e) || vecsum_add(sum, total ? row.total : row.self, e))
            return e->code;
    return vecsum_end(sum, out, e);
}

int function_cost_merge(const struct str *rows, size_t n, struct buf *out, struct err *e)
{
    struct vecsum sum;
    struct buf self, total;

    vecsum_init(&sum);
    buf_init(&self, out->max);
    buf_init(&total, out->max);
    int rc = sum_column(&sum, rows, n, false, &self, e);
    if (!rc)
        rc = sum_column(&sum, rows, n, true, &total, e);
    if (!rc)
        rc = fn_put(buf_str(&self), buf_str(&total), out, e);
    buf_deinit(&self);
    buf_deinit(&total);
    vecsum_deinit(&sum);
    return rc ? err_wrap(e, "functions") : 0;
}
