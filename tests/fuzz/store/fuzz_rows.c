/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a stored row or key of the engine (the first byte chooses which; where a checksum
 * stands, the right one is put behind them): refused, or what was read is in range and gives the
 * same contents when it is written and read again.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/catalog/names.h"
#include "common/store/catalog/series.h"
#include "common/store/codec/function_cost.h"
#include "common/store/codec/raw.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/dict/dict.h"
#include "common/store/seal/seal.h"
#include "common/store/state/presence.h"
#include "common/store/state/wid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str strings[2][DICT_ROW_MAX];
static struct frame frames[2][DICT_ROW_MAX];
static struct dict_node nodes[2][DICT_ROW_MAX];
static struct err e;

static void on_strings(struct str row, struct buf *out)
{
    size_t n, n2;

    if (dict_rows_read_strings(row, strings[0], &n, &e))
        return;
    dict_rows_strings(strings[0], n, out);
    CHECK(!dict_rows_read_strings(buf_str(out), strings[1], &n2, &e) && n == n2);
    for (size_t i = 0; i < n; i++)
        CHECK(str_eq(strings[0][i], strings[1][i]));
}

static void on_frames(struct str row, struct buf *out)
{
    size_t n, n2;

    if (dict_rows_read_frames(row, frames[0], &n, &e))
        return;
    dict_rows_frames(frames[0], n, out);
    CHECK(!dict_rows_read_frames(buf_str(out), frames[1], &n2, &e) && n == n2);
    CHECK(!memcmp(frames[0], frames[1], n * sizeof(frames[0][0])));
}

static void on_nodes(struct str row, struct buf *out)
{
    size_t n, n2;

    if (dict_rows_read_nodes(row, 9, nodes[0], &n, &e))
        return;
    for (size_t i = 0; i < n; i++)
        CHECK(nodes[0][i].parent < 9 + i);
    dict_rows_nodes(nodes[0], n, 9, out);
    CHECK(!dict_rows_read_nodes(buf_str(out), 9, nodes[1], &n2, &e) && n == n2);
    CHECK(!memcmp(nodes[0], nodes[1], n * sizeof(nodes[0][0])));
}

static void on_timeline(struct str row, struct buf *out)
{
    struct tl a = { 0 }, b = { 0 };

    if (!timeline_row_decode(row, 120, &a, &e)) {
        tl_encode(a.points.ptr, a.points.len, out);
        CHECK(!timeline_row_decode(buf_str(out), 120, &b, &e) && a.points.len == b.points.len);
        for (size_t i = 0; i < a.points.len; i++) {
            CHECK(a.points.ptr[i].point == b.points.ptr[i].point);
            CHECK(a.points.ptr[i].total == b.points.ptr[i].total);
            CHECK(a.points.ptr[i].writes == b.points.ptr[i].writes && b.points.ptr[i].writes);
        }
    }
    vec_free(&a.points);
    vec_free(&b.points);
}

static void on_presence(struct str row, struct buf *out)
{
    static struct presence a, b;

    if (presence_decode(row, &a, &e))
        return;
    presence_encode(&a, out);
    CHECK(out->len <= row.len);
    CHECK(!presence_decode(buf_str(out), &b, &e) && !memcmp(&a, &b, sizeof(a)));
}

/* A row alone, and its sum with itself: twice the values. */
static void on_functions(struct str row, struct buf *out)
{
    struct str twice[] = { row, row };
    struct vec_reader r, sum;
    struct function_cost_row a, b;

    if (fn_read(row, &a, &e))
        return;
    CHECK(!fn_put(a.self, a.total, out, &e) && !fn_read(buf_str(out), &b, &e));
    CHECK(str_eq(a.self, b.self) && str_eq(a.total, b.total));
    if (function_cost_merge(twice, 2, out, &e))
        return;
    CHECK(!fn_read(buf_str(out), &b, &e));
    CHECK(!vec_open(a.total, &r, &e) && !vec_open(b.total, &sum, &e));
    CHECK(sum.meta.saturated || sum.meta.total == 2 * r.meta.total);
}

static void on_small(struct str row)
{
    char out[SEAL_ROW_LEN];
    struct wid_row w, w2;
    struct raw_row raw;
    struct seal_entry n;
    struct series_row s;
    struct series_type t;
    struct tenant_row tenant;
    struct dict_counts counts;
    struct str text;
    uint32_t number;
    bool flag;

    if (!wid_row_read(row, &w, &e)) {
        size_t len = wid_row_put(&w, out);
        CHECK(!wid_row_read(str_n(out, len), &w2, &e) && w.folded <= w.rows);
        CHECK(w.t == w2.t && w.rows == w2.rows && w.folded == w2.folded && w.entry == w2.entry);
    }
    if (!raw_row_read(row, &raw, &e))
        CHECK(raw.wid_rows > 0 && raw.vector.len <= row.len);
    if (!seal_row_read(1, row, &n, &e)) {
        seal_row_put(&n, out);
        CHECK(!memcmp(out, row.ptr, SEAL_ROW_LEN));
    }
    (void)(series_row_read(row, &s, &e) || tenant_row_read(row, &tenant, &e));
    (void)(scope_row_read(row, &number, &text, &e) || ptype_row_read(row, &flag, &text, &e));
    (void)(dict_epoch_read(row, &flag, &counts, &e) || series_type_read(row, row, &t, &e));
}

static void on_key(struct str key, struct buf *out)
{
    struct member m;
    struct buf name;
    struct str value;
    const uint8_t *wid;
    uint32_t level, t;
    struct key k;

    if (key_member_read(key, &level, &m, &t)) {
        key_member(&k, level, &m, t);
        CHECK(str_eq(key_str(&k), key));
    }
    if (key_raw_read(key, &m, &t, &wid)) {
        key_raw(&k, &m, t, wid);
        CHECK(str_eq(key_str(&k), key));
    }
    buf_init(&name, MIB);
    if (key.len >= 5 && key_pair_read(key, &name, &value)) {
        CHECK(key_pair(out, get_u32be(key.ptr + 1), buf_str(&name), value));
        CHECK(str_eq(str_sub(buf_str(out), 1, out->len), str_sub(key, 1, key.len)));
    }
    buf_deinit(&name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf row, out;

    if (size < 1)
        return 0;
    buf_init(&row, GIB);
    buf_init(&out, GIB);
    buf_add(&row, data + 1, size - 1);
    if (data[0] % 8 < 4 || data[0] % 8 > 5)
        wr_u32le(&row, crc32c(0, row.ptr, row.len));
    switch (data[0] % 8) {
    case 0:
        on_strings(buf_str(&row), &out);
        break;
    case 1:
        on_frames(buf_str(&row), &out);
        break;
    case 2:
        on_nodes(buf_str(&row), &out);
        break;
    case 3:
        on_timeline(buf_str(&row), &out);
        break;
    case 4:
        on_small(buf_str(&row));
        break;
    case 6:
        on_presence(buf_str(&row), &out);
        break;
    case 7:
        on_functions(buf_str(&row), &out);
        break;
    default:
        on_key(buf_str(&row), &out);
    }
    buf_deinit(&row);
    buf_deinit(&out);
    return 0;
}
