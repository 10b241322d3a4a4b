/* SPDX-License-Identifier: Apache-2.0
 *
 * querier.overrides_file: what it may say, what holds then, and that a change holds without a
 * restart, a wrong one not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "querier/base/limits_file.h"
#include "querier/base/state.h"
#include "tests/lib/roles/querier_bed.h"

static void holds(const char *text, const char *tenant, const char *want)
{
    struct tenant_queue_limits l = { 64, 256, MIB, 7 };
    struct limits_file *f;
    struct buf out;
    struct err e;

    assert_int_equal(limits_file_parse("o.yaml", str_c(text), &f, &e), 0);
    limits_file_apply(f, str_c(tenant), &l);
    limits_file_free(f);
    buf_init(&out, KIB);
    turn_limits_format(&l, &out);
    assert_true(str_eqc(buf_str(&out), want));
    buf_deinit(&out);
}

static void test_what_holds(void **state)
{
    static const char text[] = "defaults: {queries: 32, read_bytes: 1GiB}\n"
                               "tenants:\n"
                               "  acme: {queries: 8, queue: 0, bytes: 2MiB, read_bytes: 0}\n"
                               "  small:\n"
                               "    queries: 1\n";

    (void)state;
    holds("", "acme", "queries: 64\nqueue: 256\nbytes: 1048576\nread_bytes: 7\n");
    holds("tenants:\n", "acme", "queries: 64\nqueue: 256\nbytes: 1048576\nread_bytes: 7\n");
    holds(text, "acme", "queries: 8\nqueue: 0\nbytes: 2097152\nread_bytes: 0\n");
    holds(text, "small", "queries: 1\nqueue: 256\nbytes: 1048576\nread_bytes: 1073741824\n");
    holds(text, "other", "queries: 32\nqueue: 256\nbytes: 1048576\nread_bytes: 1073741824\n");
}

static void wrong(const char *text, const char *says)
{
    struct limits_file *f;
    struct err e;

    assert_int_equal(limits_file_parse("o.yaml", str_c(text), &f, &e), ERR_CONFIG);
    if (!strstr(e.text, says))
        fail_msg("%s: %s", text, e.text);
}

static void test_what_is_wrong(void **state)
{
    (void)state;
    wrong("tenants:\n  a: {querys: 1}\n", "line 2");
    wrong("tenants:\n  a: {queries: 0}\n", "line 2");
    wrong("tenants:\n  a: {queries: 1000001}\n", "line 2");
    wrong("tenants:\n  a: {bytes: 0}\n", "line 2");
    wrong("tenants:\n  a: {bytes: many}\n", "many");
    wrong("tenants:\n  a: 5\n", "line 2");
    wrong("tenants: [a]\n", "line 1");
    wrong("tenants:\n  a/b: {}\n", "o.yaml line 2: a/b: tenant id has byte 0x2f");
    wrong("limits: {}\n", "limits");
    wrong("- a\n", "o.yaml");
    wrong("a: {\n", "o.yaml");
}

/* ---- in a querier ----------------------------------------------------------------------------*/

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static size_t queries_of(struct qbed *b)
{
    const struct querier *qr = b->self;

    return tenant_queues_limits_of(qr->turns, STR("acme")).running;
}

static void test_a_change_holds(void **state)
{
    char path[] = "/tmp/embertree-limits-XXXXXX", flag[80];
    const char *flags[] = { flag, "--querier.tenants=acme=queries:9",
                            "--querier.overrides-interval=1s", NULL };
    int fd = mkstemp(path);
    struct qbed b;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(flag, sizeof(flag), "--querier.overrides-file=%s", path);
    put(path, "tenants: {other: {queries: 3}}\n");
    qbed_init(&b, 1, flags);
    assert_int_equal(queries_of(&b), 9);
    put(path, "tenants: {acme: {queries: 2}}\n");
    net_pass(&b.world, 1500);
    assert_int_equal(queries_of(&b), 2);
    assert_int_equal(
        qbed_metric(&b, "embertree_querier_overrides_reloads_total{result=\"loaded\"}"), 1);
    put(path, "tenants: {acme: {queries: 0}}\n");
    net_pass(&b.world, 3500);
    assert_int_equal(queries_of(&b), 2);
    assert_int_equal(
        qbed_metric(&b, "embertree_querier_overrides_reloads_total{result=\"failed\"}"), 1);
    put(path, "");
    net_pass(&b.world, 1500);
    assert_int_equal(queries_of(&b), 9);
    unlink(path);
    net_pass(&b.world, 1500);
    assert_int_equal(queries_of(&b), 9); /* gone: what held holds */
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_holds),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_a_change_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
