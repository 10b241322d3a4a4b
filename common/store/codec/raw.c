/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/codec/raw.h"

#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION 1

void raw_row_begin(struct buf *out, uint32_t wid_bucket, uint32_t wid_rows)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u32be(out, wid_bucket);
    wr_varint(out, wid_rows);
}

int raw_row_read(struct str row, struct raw_row *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version = 0;
    uint64_t rows = 0;

    if (!rd_u8(&r, &version) || version != VERSION || !rd_u32be(&r, &ret->wid_bucket) ||
        !rd_varint(&r, &rows) || rows < 1 || rows > UINT32_MAX)
        return err_set(e, ERR_CORRUPT, "raw row of %zu bytes is not one of version %d", row.len,
                       VERSION);
    ret->wid_rows = (uint32_t)rows;
    ret->vector = str_sub(row, row.len - rd_left(&r), row.len);
    return 0;
}

/* Index of the first entry with a bucket >= `bucket`. */
static size_t find(const struct raw_counts *c, uint32_t bucket)
{
    size_t low = 0, high = c->at.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (c->at.ptr[mid].bucket < bucket)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void raw_counts_add(struct raw_counts *c, uint32_t bucket, uint32_t rows)
{
    size_t i = find(c, bucket);

    if (i == c->at.len || c->at.ptr[i].bucket != bucket) {
        vec_reserve(&c->at, c->at.len + 1);
        memmove(c->at.ptr + i + 1, c->at.ptr + i, (c->at.len - i) * sizeof(*c->at.ptr));
        c->at.ptr[i] = (struct raw_count){ .bucket = bucket };
        c->at.len++;
    }
    c->at.ptr[i].rows += rows;
    c->rows += rows;
}

void raw_counts_sub(struct raw_counts *c, uint32_t bucket, uint32_t rows)
{
    size_t i = find(c, bucket);

    CHECK(i < c->at.len && c->at.ptr[i].bucket == bucket && c->at.ptr[i].rows >= rows);
    c->rows -= rows;
    c->at.ptr[i].rows -= rows;
    if (c->at.ptr[i].rows)
        return;
    c->at.len--;
    memmove(c->at.ptr + i, c->at.ptr + i + 1, (c->at.len - i) * sizeof(*c->at.ptr));
}

uint32_t raw_counts_at(const struct raw_counts *c, uint32_t bucket)
{
    size_t i = find(c, bucket);

    return i < c->at.len && c->at.ptr[i].bucket == bucket ? c->at.ptr[i].rows : 0;
}

uint32_t raw_counts_low(const struct raw_counts *c)
{
    return c->at.len ? c->at.ptr[0].bucket : UINT32_MAX;
}

uint32_t raw_counts_after(const struct raw_counts *c, uint32_t bucket)
{
    size_t i = bucket == UINT32_MAX ? c->at.len : find(c, bucket + 1);

    return i < c->at.len ? c->at.ptr[i].bucket : UINT32_MAX;
}
