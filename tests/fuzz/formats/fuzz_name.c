/* SPDX-License-Identifier: Apache-2.0
 *
 * name=. Holds: what is accepted, printed and read again is the same name.
 */
#include "distributor/formats/appname.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct appname_limits l = { 30, 1024, 2048 };
    struct arena *a = arena_new(8 * MIB);
    struct appname n, again;
    struct buf text;
    struct err e = { 0 };

    buf_init(&text, MIB);
    if (appname_parse(str_n(data, size), &l, a, &n, &e)) {
        CHECK(e.text[0] && str_starts(str_c(e.text), STR("name: ")));
    } else {
        CHECK(n.app.len > 0 && n.labels.len <= l.labels_max);
        appname_format(&n, &text);
        CHECK(appname_parse(buf_str(&text), &l, a, &again, &e) == 0);
        CHECK(str_eq(n.app, again.app) && labels_eq(&n.labels, &again.labels));
    }
    buf_deinit(&text);
    arena_free(a);
    return 0;
}
