/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings as numbers: which go together, and what is said of those that do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/view/config_fingerprint.h"

static uint64_t listed(size_t addrs, uint32_t shards)
{
    static const char *const all[] = { "tcp://a:1", "tcp://b:1", "tcp://c:1" };
    struct view *v = view_new_list(all, addrs, shards);
    uint64_t number = config_fingerprint_number(v);

    view_free(v);
    return number;
}

static uint64_t mapped(const char *more)
{
    char text[1000];
    const struct map *m;
    struct view *v = NULL;
    struct err e;

    (void)snprintf(text, sizeof(text),
                   "nodes: [{name: a, addr: 'tcp://a:1'}]\n%s\nreplicas_of: [[a], [a], [a]]\n",
                   more);
    if (map_parse("m", str_c(text), true, &m, &e) || view_new_static(m, &v, &e))
        fail_msg("%s", e.text);
    uint64_t number = config_fingerprint_number(v);
    view_free(v);
    map_unref(m);
    return number;
}

/* In both directions, with the same word on it. */
static void judge(uint64_t a, uint64_t b, int code, const char *says)
{
    struct err e = { 0 };

    assert_true(a && b);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(config_fingerprint_check(i ? b : a, i ? a : b, &e), code);
        if (code && !strstr(e.text, says))
            fail_msg("%s", e.text);
    }
}

static void test_lists(void **state)
{
    struct err e;

    (void)state;
    judge(listed(1, 3), listed(1, 3), 0, "");
    judge(listed(1, 4096), listed(1, 4096), 0, "");
    judge(listed(1, 1), listed(1, 4096), ERR_CONFIG, "cluster.shards 4096");
    judge(listed(1, 3), listed(1, 1), ERR_CONFIG, "the number that the ingesters' data");
    judge(listed(2, 3), listed(3, 3), ERR_CONFIG, "cluster.ingesters");
    assert_int_equal(config_fingerprint_check(listed(1, 3), listed(1, 1), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "cluster.shards 1 there, cluster.shards 3 here"));
}

static void test_maps(void **state)
{
    const char *wide = "shards: 3\nversion: 4\nservices: [{tenant: t, name: s, spread: 3}]";
    const char *two = "shards: 3\nversion: 4\nservices: [{tenant: t, name: s, spread: 3}, "
                      "{tenant: t, name: r, spread: 2}]";
    const char *turned = "shards: 3\nversion: 4\nservices: [{tenant: t, name: r, spread: 2}, "
                         "{tenant: t, name: s, spread: 3}]";

    (void)state;
    judge(mapped(wide), mapped(wide), 0, "");
    judge(mapped(two), mapped(turned), 0, "");
    judge(mapped(wide), mapped("shards: 3\nversion: 4"), ERR_CONFIG, "the same version");
    judge(mapped(wide), mapped(two), ERR_CONFIG, "the same version");
    judge(mapped(two),
          mapped("shards: 3\nversion: 4\nservices: [{tenant: t, name: s, spread: 2}, "
                 "{tenant: t, name: r, spread: 3}]"),
          ERR_CONFIG, "the same version");
    judge(mapped("shards: 3\ntenants: [{name: t, shards: 2}]"),
          mapped("shards: 3\ntenants: [{name: t, shards: 1}]"), ERR_CONFIG, "the same version");
    judge(mapped("shards: 3\ntenant_shards: 2"), mapped("shards: 3"), ERR_CONFIG, "version");
    /* A new file gets around. */
    judge(mapped(wide), mapped("shards: 3\nversion: 5"), 0, "");
}

static void test_kinds(void **state)
{
    (void)state;
    judge(listed(1, 3), mapped("shards: 3"), 0, "");
    judge(listed(1, 2), mapped("shards: 3"), ERR_CONFIG, "shards of cluster.map_file 3");
    judge(listed(1, 3), mapped("shards: 3\nservices: [{tenant: t, name: s, spread: 3}]"),
          ERR_CONFIG, "only the map says");
    judge(listed(1, 3), UINT64_C(0x1234567890abcdef), ERR_CONFIG, "cluster.coordination is");
    judge(UINT64_C(0x1234567890abcdee), UINT64_C(0x1234567890abcdef), ERR_CONFLICT,
          "another cluster");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
