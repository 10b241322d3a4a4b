/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/cluster/view/view.h"
#include "common/net/json_in.h"
#include "common/role/admin/admin.h"
#include "common/role/admin/ring_page.h"
#include "common/role/core/options.h"
#include "common/role/core/readiness.h"
#include "common/role/core/usage.h"

static bool always_ready(void *self, const char **ret_why)
{
    (void)self, (void)ret_why;
    return true;
}

/* It serves, and an operator must see to something. */
static bool ready_with_note(void *self, const char **ret_why)
{
    *ret_why = self;
    return true;
}

static bool never_ready(void *self, const char **ret_why)
{
    *ret_why = self;
    return false;
}

static void peers(void *self, struct json *j)
{
    (void)self;
    json_key(j, "peers");
    json_arr(j);
    json_cstr(j, "tcp://a");
    json_arr_end(j);
}

static const struct role fine = { .name = "querier", .ready = always_ready, .ring = peers };
static const struct role stuck = { .name = "ingester", .ready = never_ready };
static const struct role noted = { .name = "ingester", .ready = ready_with_note };
static const struct role plain = { .name = "compactor" };

static const char *const addresses[] = { "tcp://a", "tcp://b" };
static const struct cluster_conf cluster = { .coordination = "none",
                                             .ingesters = { addresses, 2 },
                                             .shards = 5 };

static struct process_core process_of(enum process_state state, bool all_fine)
{
    struct process_core p = { .state = state, .parts_len = 3 };

    p.parts[0] = (struct process_part){ &plain, NULL };
    p.parts[1] = (struct process_part){ &fine, NULL };
    p.parts[2] =
        all_fine ? p.parts[0] : (struct process_part){ &stuck, (void *)(uintptr_t) "no \"disk\"" };
    p.ctx.cluster = &cluster;
    return p;
}

static void test_mask(void **state)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "", "" },
        { "http:\n  listen: \"a:1\"\n", "http:\n  listen: \"a:1\"\n" },
        { "  s3_secret: \"abc:def\"\n", "  s3_secret: \"********\"\n" },
        { "  password: x", "  password: \"********\"" },
        { "token: 'y'\nb: 1\n", "token: \"********\"\nb: 1\n" },
        { "cluster_key:\n  x: 1\n", "cluster_key:\n  x: 1\n" }, /* a section, no value */
        { "keyboard: us\n", "keyboard: us\n" },
        { "# a comment about a key\n", "# a comment about a key\n" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b;

        buf_init(&b, KIB);
        admin_mask(str_c(rows[i].in), &b);
        if (!str_eqc(buf_str(&b), rows[i].want))
            fail_msg("row %zu: %.*s", i, STR_ARG(buf_str(&b)));
        buf_deinit(&b);
    }
}

static void test_ready(void **state)
{
    static const struct {
        enum process_state state;
        bool all_fine, ready;
        const char *message, *ingester;
    } rows[] = {
        { PROCESS_RUNNING, true, true, NULL, NULL },
        { PROCESS_RUNNING, false, false, "no \"disk\"", "no \"disk\"" },
        { PROCESS_STARTING, true, false, "starting", NULL },
        { PROCESS_DRAINING, true, false, "draining", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct process_core p = process_of(rows[i].state, rows[i].all_fine);
        struct str message = STR_NULL, ingester = STR_NULL;
        const struct json_val *root;
        struct json_doc *d;
        struct buf b;
        struct err e;

        buf_init(&b, KIB);
        assert_int_equal(admin_ready(&p, &b), rows[i].ready);
        if (rows[i].ready) {
            assert_true(str_eqc(buf_str(&b), "ready\n"));
            buf_deinit(&b);
            continue;
        }
        assert_int_equal(json_parse(buf_str(&b), &d, &e), 0);
        root = json_root(d);
        assert_int_equal(json_take_str(json_get(root, "message", NULL), "m", &message, &e), 0);
        assert_true(str_eqc(message, rows[i].message));
        assert_int_equal(json_take_str(json_get(json_get(root, "roles", NULL), "ingester", NULL),
                                       "i", &ingester, &e),
                         0);
        assert_true(rows[i].ingester ? str_eqc(ingester, rows[i].ingester) : !ingester.ptr);
        json_doc_free(d);
        buf_deinit(&b);
    }
}

static void test_ring(void **state)
{
    struct process_core p = process_of(PROCESS_RUNNING, false);
    const struct json_val *root, *list, *shards;
    int64_t shard = -1;
    bool ready = true;
    struct json_doc *d;
    struct buf b;
    struct err e;

    (void)state;
    buf_init(&b, 64 * KIB);
    p.ctx.view = options_view(p.ctx.cluster);
    admin_ring(&p, &b);
    view_free(p.ctx.view);
    assert_int_equal(json_parse(buf_str(&b), &d, &e), 0);
    root = json_root(d);
    assert_int_equal(json_take_bool(json_get(root, "ready", NULL), "r", &ready, &e), 0);
    assert_false(ready);
    list = json_get(root, "ingesters", NULL);
    assert_int_equal(json_len(list), 2);
    shards = json_get(json_at(list, 1), "shards", NULL);
    assert_int_equal(json_len(shards), 2); /* 1 and 3 of 0..4 */
    assert_int_equal(json_take_i64(json_at(shards, 1), "s", &shard, &e), 0);
    assert_int_equal(shard, 3);
    list = json_get(json_get(root, "cluster", NULL), "shards", NULL);
    assert_int_equal(json_len(list), 5);
    assert_int_equal(
        json_len(json_get(json_get(json_get(root, "roles", NULL), "querier", NULL), "peers", NULL)),
        1);
    json_doc_free(d);
    buf_deinit(&b);
}

/* For a browser. Any client may have written to the coordination service. */
static void test_ring_page(void **state)
{
    static const char *const odd[] = { "tcp://a", "tcp://<script>alert(1)</script>" };
    const struct cluster_conf conf = { .coordination = "none",
                                       .ingesters = { odd, 2 },
                                       .shards = 3 };
    struct process_core p = process_of(PROCESS_RUNNING, false);
    struct buf b;

    (void)state;
    buf_init(&b, 64 * KIB);
    p.ctx.cluster = &conf;
    p.ctx.view = options_view(p.ctx.cluster);
    ring_page(&p, &b);
    view_free(p.ctx.view);
    assert_true(str_starts(buf_str(&b), STR("<!doctype html>")));
    assert_true(str_contains(buf_str(&b), STR("no &quot;disk&quot;")));
    assert_true(str_contains(buf_str(&b), STR("not ready</b>")));
    assert_true(str_contains(buf_str(&b), STR("<td>ingester-1</td>")));
    assert_true(str_contains(buf_str(&b), STR("tcp://&lt;script&gt;alert(1)")));
    assert_false(str_contains(buf_str(&b), STR("<script")));
    assert_true(str_contains(buf_str(&b), STR("<tr><td>2</td><td>ingester-0</td>")));
    buf_deinit(&b);
}

static void test_usage(void **state)
{
    struct metrics *m = metrics_new();
    struct usage u;
    struct buf text;
    uint64_t before;

    (void)state;
    usage_init(&u, m, NULL, &(struct usage_build){ "0.4.0", "0123abcd" }, 64 * MIB);
    before = u.cpu_us;
    for (volatile uint32_t i = 0; i < 30000000; i++) /* some CPU time */
        ;
    usage_render(&u);
    assert_true(u.rss_bytes > 100 * KIB && u.rss_bytes < 100 * GIB);
    assert_true(u.cpu_us > before);
    assert_true(u.threads >= 1);
    assert_true(u.fds >= 3 && u.fds < u.fds_max);
    buf_init(&text, 64 * KIB);
    metrics_render(m, &text);
    assert_true(buf_add_c(&text, '\0'));
    assert_non_null(strstr(text.ptr, "\nembertree_build_info{version=\"0.4.0\","
                                     "commit=\"0123abcd\"} 1\n"));
    buf_deinit(&text);
    metrics_free(m);
}

/* What an operator must see to stands behind the first line; nothing is no line. */
static void test_ready_with_a_note(void **state)
{
    struct process_core p = process_of(PROCESS_RUNNING, true);
    struct buf b;

    (void)state;
    p.parts[2] = (struct process_part){ &noted, (void *)(uintptr_t) "the bucket is another" };
    buf_init(&b, KIB);
    assert_true(admin_ready(&p, &b));
    assert_true(str_eqc(buf_str(&b), "ready\ningester: the bucket is another\n"));
    buf_reset(&b);
    p.parts[2] = (struct process_part){ &noted, (void *)(uintptr_t) "" };
    assert_true(admin_ready(&p, &b));
    assert_true(str_eqc(buf_str(&b), "ready\n"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_with_a_note),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_ready),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_ring_page),
        cmocka_unit_test(test_usage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
