/* SPDX-License-Identifier: Apache-2.0
 *
 * What Grafana's data source and Profiles Drilldown send, byte by byte, and what they get: requests
 * of tests/lib/grafana.py in tests/golden/grafana/NAME.req, replies beside them in NAME.http: the
 * head without Date and request id, the body without its compression. UPDATE=1 writes replies
 * again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/sys/fs.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s) (QBED_NOW + (s)*INT64_C(1000))

static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", QBED_CPU, T(-60), "main;serve;pay", 30, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", QBED_CPU, T(-50), "main;serve;list", 20, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "env=dev,pod=c", QBED_CPU, T(-45), "main;idle", 7, false, NULL },
    { QBED_BY_SERVICE, "shop", "env=dev,pod=c", QBED_CPU, T(-45), "main", 1, false, NULL },
    { QBED_BY_SERVICE, "cart", "k8s.pod=x", QBED_CPU, T(-40), "loop", 9, false, NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", "memory:inuse_space:bytes:space:bytes", T(-60),
      "main;alloc", 100, true, NULL },
};

static const char *const names[] = {
    "ds_health",           "ds_types",         "ds_types_gzip",
    "ds_label_names",      "ds_label_values",  "ds_series",
    "ds_series_limit",     "ds_stacktraces",   "ds_no_type",
    "app_services",        "app_label_names",  "app_label_values",
    "app_mixed",           "app_profile",      "app_analyze",
    "app_stats",           "app_settings_set", "app_settings_get",
    "app_flags",           "app_github",       "app_download",
    "ds_stacktraces_gzip",
};

static void put_head(struct str head, struct buf *out, bool *ret_zipped)
{
    struct str line;
    bool more = true;

    *ret_zipped = false;
    while (str_next(&head, '\n', &more, &line)) {
        *ret_zipped |= str_starts(line, STR("Content-Encoding: gzip"));
        if (line.len == 0 || str_starts(line, STR("Date: ")) ||
            str_starts(line, STR("X-Request-Id: ")) || str_starts(line, STR("Content-Length: ")))
            continue; /* how well it is compressed is the library's matter */
        buf_add_str(out, str_trim(line));
        buf_add_c(out, '\n');
    }
}

static void put_reply(struct qbed *b, struct buf *out)
{
    const struct buf *raw = &b->client->out;
    const char *blank = memmem(raw->ptr, raw->len, "\r\n\r\n", 4);
    const struct inflate_limits limits = { .bytes_max = MIB, .ratio_max = 1000 };
    bool zipped;
    struct err e;

    assert_non_null(blank);
    size_t head = (size_t)(blank - raw->ptr);
    struct str body = str_n(blank + 4, raw->len - head - 4);
    put_head(str_n(raw->ptr, head), out, &zipped);
    buf_add_c(out, '\n');
    if (zipped)
        assert_int_equal(gunzip(body, &limits, out, &e), 0);
    else
        buf_add_str(out, body);
    assert_true(buf_ok(out));
}

static bool one(struct qbed *b, const char *name, bool update)
{
    const struct fs *fs = fs_real();
    struct buf request, got, want;
    char path[128];
    struct err e;
    bool same = true;

    buf_init(&request, MIB);
    buf_init(&got, 2 * MIB);
    buf_init(&want, MIB);
    (void)snprintf(path, sizeof(path), "tests/golden/grafana/%s.req", name);
    assert_int_equal(fs->read_file(fs, path, &request, &e), 0);
    qbed_hang_up(b);
    net_send(b->client, buf_str(&request));
    net_pass(&b->world, 0);
    put_reply(b, &got);
    (void)snprintf(path, sizeof(path), "tests/golden/grafana/%s.http", name);
    if (update)
        assert_int_equal(fs->write_file(fs, path, buf_str(&got), &e), 0);
    else if (fs->read_file(fs, path, &want, &e) || !str_eq(buf_str(&got), buf_str(&want)))
        same = false;
    if (!same)
        print_error("%s: got\n%.*s\n", path, STR_ARG(buf_str(&got)));
    buf_deinit(&request);
    buf_deinit(&got);
    buf_deinit(&want);
    return same;
}

static void test_recorded_requests(void **state)
{
    (void)state;
    struct qbed b;
    int bad = 0;

    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        bad += !one(&b, names[i], getenv("UPDATE") != NULL);
    qbed_deinit(&b);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
