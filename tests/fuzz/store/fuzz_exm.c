/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a key or value of an exemplar, and as the text of an id: refused, or what was read
 * gives the same bytes again.
 */
#include "common/store/exemplar/exm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_key(struct str bytes)
{
    struct exm_key k;
    struct exm_ref x;
    bool index;

    if (!exm_key_read(bytes, &index, &x))
        return;
    if (index)
        exm_index_key(&k, &x);
    else
        exm_row_key(&k, &x);
    CHECK(str_eq(exm_key_str(&k), bytes));
}

static void on_value(struct str bytes)
{
    struct exm_mark mark, again;
    struct exm_row row;
    struct buf out;
    struct err e;

    buf_init(&out, MIB);
    if (!exm_row_read(bytes, &row, &e))
        CHECK(row.vector.ptr + row.vector.len == bytes.ptr + bytes.len);
    if (!exm_mark_read(bytes, &mark, &e)) {
        exm_mark_put(&out, &mark);
        CHECK(!exm_mark_read(buf_str(&out), &again, &e));
        CHECK(mark.total == again.total && mark.duration_ms == again.duration_ms);
    }
    buf_deinit(&out);
}

static void on_id(struct str bytes)
{
    char text[EXID_BYTES_MAX];
    struct exid id, again;

    if (exid_parse(bytes, &id)) {
        CHECK(exid_valid(exid_str(&id)));
        size_t n = exid_text(exid_str(&id), text);
        CHECK(exid_parse(str_n(text, n), &again) && str_eq(exid_str(&id), exid_str(&again)));
    }
    if (exid_valid(bytes)) {
        size_t n = exid_text(bytes, text);
        CHECK(exid_parse(str_n(text, n), &again) && str_eq(bytes, exid_str(&again)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes = size ? str_n(data + 1, size - 1) : STR_NULL;

    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        on_key(bytes);
    else if (data[0] % 3 == 1)
        on_value(bytes);
    else
        on_id(bytes);
    return 0;
}
