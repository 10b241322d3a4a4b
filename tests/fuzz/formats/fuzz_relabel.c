/* SPDX-License-Identifier: Apache-2.0
 *
 * Relabelling: any bytes as a YAML list of rules; what is taken prints to text that reads back to
 * the same rules, and runs over labels made of the same bytes within its limits.
 */
#include <stdlib.h>

#include "common/base/buf.h"
#include "distributor/rules/relabel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const struct relabel *r, struct str text, struct arena *a)
{
    struct labels l = { 0 };
    struct err e;

    CHECK(labels_set(&l, a, STR("service_name"), STR("checkout"), &e) == 0);
    CHECK(labels_set(&l, a, STR("__name__"), STR("process_cpu"), &e) == 0);
    for (size_t i = 0; i + 8 <= MIN(text.len, 80); i += 8)
        CHECK(labels_set(&l, a, str_sub(text, i, i + 2), str_sub(text, i + 2, i + 8), &e) == 0);
    int rc = relabel_apply(r, &l, a, &e);
    CHECK(rc >= -1 && rc <= 1 && (rc != -1 || e.code == ERR_LIMIT || e.code == ERR_INPUT));
    for (size_t i = 0; rc == 1 && i < l.len; i++)
        CHECK(l.ptr[i].name.len && l.ptr[i].value.len &&
              (i == 0 || str_cmp(l.ptr[i - 1].name, l.ptr[i].name) < 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(16 * MIB);
    struct str text = str_n(data, size);
    struct conf_node *root;
    struct relabel *r, *back;
    struct buf one, two;
    struct err e;

    if (conf_tree_parse("f", text, a, &root, &e) == 0 && relabel_conf(root, "f", &r, &e) == 0) {
        buf_init(&one, 16 * MIB);
        buf_init(&two, 16 * MIB);
        run(r, text, a);
        relabel_format(r, 0, &one);
        CHECK(conf_tree_parse("f", buf_str(&one), a, &root, &e) == 0 || one.len > MIB);
        if (relabel_conf(root, "f", &back, &e) == 0) {
            relabel_format(back, 0, &two);
            CHECK(str_eq(buf_str(&one), buf_str(&two)));
            relabel_free(back);
        } else {
            CHECK(one.len > 64 * KIB || relabel_len(r) == 0); /* only sizes may be refused now */
        }
        relabel_free(r);
        buf_deinit(&one);
        buf_deinit(&two);
    }
    arena_free(a);
    return 0;
}
