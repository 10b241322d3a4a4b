/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes back from an object store: parts, rows of the tables of parts, heads of backups. By
 * the first byte: a part of any bytes; a good part with a byte changed (never other rows than it
 * had, without an error); a row; a head.
 */
#include "common/base/mem.h"
#include "common/cold/backup.h"
#include "common/cold/usage.h"
#include "common/store/codec/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fetch(void *cookie, uint64_t at, size_t len, struct buf *out, struct err *e)
{
    const struct str *s = cookie;

    buf_reset(out);
    if (at > s->len || len > s->len - at || !buf_add(out, s->ptr + at, len))
        return err_set(e, ERR_CORRUPT, "beyond the end");
    return 0;
}

/* Rows that could be read; UINT64_MAX after an error. */
static uint64_t read_all(struct str object, uint64_t *ret_sum)
{
    struct part_index *x;
    struct err e = { 0 };
    struct buf block;
    uint64_t rows = 0;
    int got = 0;

    *ret_sum = 0;
    if (part_index_read(object.len, fetch, &object, &x, &e))
        return UINT64_MAX;
    buf_init(&block, PART_BLOCK_MAX + 2 * PART_BLOCK);
    for (size_t i = 0; i < part_blocks(x) && got >= 0; i++) {
        struct part_row row;
        got = part_block_read(x, i, fetch, &object, &block, &e) ? -1 : 0;
        part_row_begin(&row, buf_str(&block));
        while (got >= 0 && (got = part_row_next(&row)) > 0) {
            rows++;
            *ret_sum +=
                hash64(row.key, row.key_len, rows) ^ hash64(row.value.ptr, row.value.len, rows + 1);
        }
    }
    buf_deinit(&block);
    part_index_free(x);
    return got < 0 ? UINT64_MAX : rows;
}

static void damaged(const uint8_t *data, size_t size)
{
    struct part_writer *w = part_writer_new();
    struct part_info info;
    struct str object;
    struct err e = { 0 };
    uint64_t sum, other;

    for (uint32_t i = 0; i < 300; i++) {
        char key[4];
        put_u32be(key, i * 7);
        CHECK(part_add(w, str_n(key, 4), str_n(data, MIN(size, i * 3)), &e) == 0);
    }
    part_finish(w, &info, &object);
    CHECK(read_all(object, &sum) == 300);
    char *copy = xmemdup(object.ptr, object.len);
    size_t at = size > 4 ? (size_t)(data[1] | data[2] << 8) % object.len : 0;
    copy[at] = (char)(copy[at] ^ (char)(size > 4 && data[3] ? data[3] : 1));
    uint64_t rows = read_all(str_n(copy, object.len), &other);
    CHECK(rows == UINT64_MAX || (rows == 300 && other == sum));
    xfree(copy);
    part_writer_free(w);
}

/* A row of owners of the part its hash names gives out no more than the part has. */
static void owners(struct str row)
{
    struct cold_usage o = { 0 };
    struct hash128 hash = { 0 };
    struct err e = { 0 };
    uint64_t sum = 0;

    if (row.len > 17) {
        hash.hi = get_u64be(row.ptr + 1);
        hash.lo = get_u64be(row.ptr + 9);
    }
    if (cold_usage_read(row, hash, 1000000, &o, &e) == 0) {
        vec_for (i, &o.of)
            sum += o.of.ptr[i].bytes;
        CHECK(sum <= 1000000 && o.of.len <= COLD_USAGE_MAX);
    }
    cold_usage_deinit(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct backup_head head;
    struct err e = { 0 };
    uint64_t sum;

    if (size < 2)
        return 0;
    struct str rest = str_n(data + 1, size - 1);
    if (data[0] % 4 == 0) {
        (void)read_all(rest, &sum);
    } else if (data[0] % 4 == 1) {
        damaged(data, size);
    } else if (data[0] % 4 == 2 && size > 40) {
        struct manifest *m = manifest_new(1);
        char key[24] = { (char)(KEY_COLD + (data[0] >> 2) % 2), KV_FINE };
        memcpy(key + 2, data + 1, 20);
        for (size_t i = 22; i + 2 < size; i += 60) {
            key[3] = (char)data[i];
            if (manifest_row(m, str_n(key, 22), str_n(data + i, MIN((size_t)60, size - i)), &e))
                CHECK(e.text[0]);
        }
        manifest_unref(m);
        owners(rest);
    } else if (data[0] % 4 == 3 && backup_head_read(rest, &head, &e) == 0) {
        backup_head_deinit(&head);
    }
    return 0;
}
