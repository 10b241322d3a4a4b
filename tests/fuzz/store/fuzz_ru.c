/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a stored roll-up row or a row of groups (the first byte chooses; the checksum of a
 * list is put behind bytes that need one): refused, or what was read is written the same again.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/store/catalog/group.h"
#include "common/store/state/rollup_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct err e;

static void on_rollup(struct str row, struct buf *out)
{
    struct vec_meta meta;
    struct rollup_row_sum s;
    struct rollup_row r;

    if (rollup_row_read(row, &r, &e))
        return;
    CHECK(r.ids || r.vector.ptr);
    CHECK(r.len <= ROLLUP_ROW_LIST_MAX);
    rollup_row_sum_init(&s);
    if (!rollup_row_merge(&s, &row, 1, out, &meta, &e)) {
        CHECK(meta.total == r.meta.total && meta.writes == r.meta.writes);
        CHECK(!rollup_row_read(buf_str(out), &r, &e));
    }
    rollup_row_sum_deinit(&s);
}

static void on_group(struct str row, struct buf *out)
{
    struct group_service g;
    struct group_rule *r = XNEW(struct group_rule);
    struct group_row group;
    struct group_of of[GROUP_RULES_MAX];
    size_t n;

    if (!group_service_read(row, &g, &e)) {
        group_service_put(&g, out);
        CHECK(str_eq(row, buf_str(out)));
    }
    if (!group_rule_read(row, r, &e)) {
        struct group_rule *again = XNEW(struct group_rule);
        group_rule_put(r, out);
        CHECK(!group_rule_read(buf_str(out), again, &e) && again->len == r->len);
        for (size_t i = 0; i < r->len; i++)
            CHECK(str_eq(r->names[i], again->names[i]) && r->flags[i] == again->flags[i]);
        (void)group_rule_drops(r, STR("k8s.pod.name"));
        xfree(again);
    }
    if (!group_of_read(row, of, &n, &e)) {
        group_of_put(of, n, out);
        CHECK(!group_of_read(buf_str(out), of, &n, &e));
    }
    (void)group_row_read(row, &group, &e);
    xfree(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf row, out;

    if (size < 1)
        return 0;
    buf_init(&row, GIB);
    buf_init(&out, GIB);
    buf_add(&row, data + 1, size - 1);
    if (data[0] % 3 == 0)
        wr_u32le(&row, crc32c(0, row.ptr ? row.ptr : "", row.len));
    if (data[0] % 3 < 2)
        on_rollup(buf_str(&row), &out);
    else
        on_group(buf_str(&row), &out);
    buf_deinit(&row);
    buf_deinit(&out);
    return 0;
}
