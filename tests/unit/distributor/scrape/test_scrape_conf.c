/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations, groups of targets, and what becomes of them: tables of texts and results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/sys/fs.h"
#include "distributor/scrape/scrape_targets.h"

#define HEAD "scrape_configs:\n- job_name: j\n"

static void refused(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "scrape_configs: 3", "line 1" },
        { "scrapes: []", "scrapes" },
        { "scrape_configs:\n- scheme: http\n", "job_name" },
        { HEAD "  scrape_intervall: 1s\n", "line 3" },
        { HEAD "  scrape_interval: 1ms\n", "line 3: scrape_interval: 1ms is not within 1s and 1d" },
        { HEAD "  scrape_interval: 0s\n", "line 3: scrape_interval: 0s is not within 1s and 1d" },
        { HEAD "  scrape_timeout: 2h\n", "line 3: scrape_timeout: 2h is not within 100ms and 1h" },
        { HEAD "  body_size_limit: 2GiB\n", "body_size_limit: 2GiB is not within 1KiB and 1GiB" },
        { HEAD "  scrape_interval: soon\n", "line 3" },
        { HEAD "  scheme: ftp\n", "line 3" },
        { HEAD "- job_name: j\n", "there already" },
        { HEAD "  profiles: {mine: {}}\n", "path" },
        { HEAD "  profiles: {mine: no-slash}\n", "path" },
        { HEAD "  profiles: {'mi-ne': /x}\n", "letters" },
        { HEAD "  profiles: {memory: {dleta: true}}\n", "dleta" },
        { HEAD "  static_configs: [{targets: ['http://a:1/']}]\n", "host:port" },
        { HEAD "  static_configs: [{target: ['a:1']}]\n", "target" },
        { HEAD "  basic_auth: {password: x}\n", "username" },
        { HEAD "  basic_auth: {username: x}\n  bearer_token: y\n", "exclude" },
        { HEAD "  bearer_token_file: x\n  bearer_token: y\n", "one of them" },
        { HEAD "  authorization: {type: Digest}\n", "Bearer" },
        { HEAD "  tls_config: {ca: x}\n", "ca" },
        { HEAD "  file_sd_configs: [{}]\n", "files" },
        { HEAD "  kubernetes_sd_configs: [{}]\n", "role" },
        { HEAD "  kubernetes_sd_configs: [{role: node}]\n", "line 3" },
        { HEAD "  kubernetes_sd_configs: [{role: pod, api_server: here}]\n", "api_server" },
        { HEAD "  relabel_configs: [{action: jump}]\n", "line 3" },
        { HEAD "  relabel_configs: [{regex: '('}]\n", "line 3" },
    };
    struct scrape_conf *c;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (scrape_conf_parse("f.yaml", str_c(rows[i].text), &c, &e) == 0)
            fail_msg("taken: %s", rows[i].text);
        assert_int_equal(e.code, ERR_CONFIG);
        if (!str_contains(str_c(e.text), str_c(rows[i].why)))
            fail_msg("%s: %s, want %s", rows[i].text, e.text, rows[i].why);
    }
}

static struct scrape_conf *parse(const char *text)
{
    struct scrape_conf *c;
    struct err e;

    if (scrape_conf_parse("f.yaml", str_c(text), &c, &e))
        fail_msg("%s", e.text);
    return c;
}

static const struct scrape_profile *profile(const struct scrape_job *j, const char *path)
{
    for (size_t i = 0; i < j->profiles_len; i++)
        if (str_eqc(j->profiles[i].path, path))
            return &j->profiles[i];
    print_error("no profile %s\n", path);
    abort();
}

static void values(void **state)
{
    struct scrape_conf *c = parse(
        HEAD
        "  scrape_interval: 30s\n  params: {a: [1, 2], b: x}\n  body_size_limit: 1MiB\n"
        "  profiles: {block: {}, memory: {enabled: false}, wall: /w, mine: {path: /m, delta: "
        "true, subtract: true}, mutex: {delta: true}}\n"
        "  static_configs: [{targets: ['a:1', 'b:2'], labels: {z: '1', y: '2'}}]\n"
        "  kubernetes_sd_configs: [{role: pod, namespaces: {names: [n, m]}, selectors: [{role: "
        "pod, label: 'a=b'}]}]\n"
        "- job_name: k\n");
    const struct scrape_job *j = &c->jobs[0];

    (void)state;
    assert_int_equal(c->len, 2);
    assert_int_equal(j->interval_ms, 30000);
    assert_int_equal(j->body_max, MIB);
    assert_int_equal(j->params.len, 3);
    assert_true(str_eqc(j->params.ptr[1].name, "a") && str_eqc(j->params.ptr[1].value, "2"));
    assert_true(profile(j, "/debug/pprof/profile")->enabled);
    assert_true(profile(j, "/debug/pprof/profile")->delta);
    assert_false(profile(j, "/debug/pprof/allocs")->enabled);
    assert_true(profile(j, "/debug/pprof/block")->enabled);
    assert_true(profile(j, "/debug/pprof/block")->subtract);
    assert_false(profile(j, "/debug/pprof/mutex")->subtract); /* the server does */
    assert_false(profile(j, "/debug/pprof/delta_heap")->enabled);
    assert_true(str_eqc(profile(j, "/debug/pprof/delta_heap")->name, "memory"));
    assert_true(profile(j, "/w")->enabled && str_eqc(profile(j, "/w")->name, "wall"));
    assert_true(profile(j, "/m")->delta && profile(j, "/m")->subtract);
    assert_int_equal(j->statics.len, 1);
    assert_int_equal(j->statics.ptr[0].len, 2);
    assert_true(str_eqc(j->statics.ptr[0].labels.ptr[0].name, "y"));
    assert_true(j->k8s[0].pods && j->k8s[0].namespaces_len == 2);
    assert_true(str_eqc(j->k8s[0].label, "a=b"));
    assert_int_equal(c->jobs[1].interval_ms, 15000);
    scrape_conf_free(c);
    c = parse("");
    assert_int_equal(c->len, 0);
    scrape_conf_free(c);
}

/* Of two profiles that are stored under one name, the profile that was not asked for is off. */
static void defaults_give_way(void **state)
{
    static const struct {
        const char *profiles, *on, *off;
    } rows[] = {
        { "{heap: {}}", "/debug/pprof/heap", "/debug/pprof/allocs" },
        { "{godeltaprof_memory: {enabled: true}}", "/debug/pprof/delta_heap",
          "/debug/pprof/allocs" },
        { "{heap: {enabled: false}}", "/debug/pprof/allocs", "/debug/pprof/heap" },
        { "{memory: {}, heap: {}}", "/debug/pprof/allocs", NULL },
        { "{godeltaprof_block: {}, block: {}}", "/debug/pprof/block", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), HEAD "  profiles: %s\n", rows[i].profiles);
        struct scrape_conf *c = parse(text);
        assert_true(profile(&c->jobs[0], rows[i].on)->enabled);
        assert_true(profile(&c->jobs[0], "/debug/pprof/goroutine")->enabled);
        if (rows[i].off)
            assert_false(profile(&c->jobs[0], rows[i].off)->enabled);
        scrape_conf_free(c);
    }
}

/* What is set for one address of a group is not seen by the next one, rules or none. */
static void targets_of_a_group(void **state)
{
    struct scrape_conf *c = parse(
        HEAD "  static_configs: [{targets: ['a:1', 'b:1'], labels: {instance: '', job: ''}}]\n");
    const struct scrape_job *j = &c->jobs[0];
    const struct scrape_group *g = &j->statics.ptr[0];
    struct arena *a = arena_new(MIB);
    struct scrape_target t;
    struct err e;

    (void)state;
    for (size_t i = 0; i < g->len; i++) {
        assert_int_equal(scrape_target_of(j, g->addresses[i], &g->labels, a, &t, &e), 1);
        assert_true(str_eq(labels_get(&t.labels, STR("instance")), g->addresses[i]));
        assert_int_equal(labels_get(&g->labels, STR("instance")).len, 0);
        assert_true(str_eqc(labels_get(&t.labels, STR("job")), "j"));
    }
    arena_free(a);
    scrape_conf_free(c);
}

/* {name, value, ...} of a target to its service. */
static void names_of_services(void **state)
{
#define K "__meta_kubernetes_"
    static const struct {
        const char *labels, *service;
    } rows[] = {
        { "{}", "j" },
        { "{job: other}", "other" },
        { "{service_name: s, job: other}", "s" },
        { "{" K "namespace: n, " K "pod_name: p}", "n/p" },
        { "{" K "namespace: n, " K "pod_name: p, " K "pod_container_name: c}", "n/c" },
        { "{" K "namespace: n, " K "pod_annotation_pyroscope_io_service_name: a}", "a" },
    };
    struct arena *a = arena_new(MIB);
    struct scrape_target t;
    struct buf text;
    struct err e;

    (void)state;
    buf_init(&text, 4096);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&text);
        buf_addf(&text, HEAD "  static_configs: [{targets: ['a:1'], labels: %s}]\n%c",
                 rows[i].labels, 0);
        struct scrape_conf *c = parse(text.ptr);
        assert_int_equal(
            scrape_target_of(&c->jobs[0], STR("a:1"), &c->jobs[0].statics.ptr[0].labels, a, &t, &e),
            1);
        if (!str_eqc(t.service, rows[i].service))
            fail_msg("%s: %.*s, want %s", rows[i].labels, STR_ARG(t.service), rows[i].service);
        for (size_t k = 0; k < t.labels.len; k++)
            assert_false(str_starts(t.labels.ptr[k].name, STR("__")));
        assert_true(str_eqc(labels_get(&t.labels, STR("instance")), "a:1"));
        scrape_conf_free(c);
    }
    buf_deinit(&text);
    arena_free(a);
}

static void urls(void **state)
{
    struct scrape_conf *c =
        parse(HEAD "  scheme: https\n  path_prefix: /base/\n  params: {q: ['a b&c']}\n"
                   "  relabel_configs:\n"
                   "  - {source_labels: [__address__], regex: '(.*):1', target_label: __address__, "
                   "replacement: '$1:9'}\n"
                   "  - {source_labels: [__address__], regex: 'drop.*', action: drop}\n"
                   "  - {source_labels: [__address__], regex: 'evil.*', target_label: __address__, "
                   "replacement: 'a/../b'}\n");
    const struct scrape_job *j = &c->jobs[0];
    const struct labels none = { NULL, 0 };
    struct arena *a = arena_new(MIB);
    struct scrape_target t, again;
    struct err e;

    (void)state;
    assert_int_equal(scrape_target_of(j, STR("[::1]:1"), &none, a, &t, &e), 1);
    assert_true(str_eqc(scrape_url(j, &t, profile(j, "/debug/pprof/profile"), 14, a),
                        "https://[::1]:9/base/debug/pprof/profile?q=a%20b%26c&seconds=14"));
    assert_true(str_eqc(scrape_url(j, &t, profile(j, "/debug/pprof/allocs"), 14, a),
                        "https://[::1]:9/base/debug/pprof/allocs?q=a%20b%26c"));
    assert_int_equal(scrape_target_of(j, STR("[::1]:1"), &none, a, &again, &e), 1);
    assert_true(t.hash == again.hash);
    assert_int_equal(scrape_target_of(j, STR("[::1]:2"), &none, a, &again, &e), 1);
    assert_true(t.hash != again.hash);
    assert_int_equal(scrape_target_of(j, STR("drop:1"), &none, a, &t, &e), 0);
    assert_int_equal(scrape_target_of(j, STR("evil:1"), &none, a, &t, &e), -1);
    assert_int_equal(scrape_target_of(j, STR("two words"), &none, a, &t, &e), -1);
    arena_free(a);
    scrape_conf_free(c);
}

static void example(void **state)
{
    struct scrape_conf *c;
    struct buf text;
    struct err e;

    (void)state;
    buf_init(&text, MIB);
    assert_int_equal(fs_real()->read_file(fs_real(), "deploy/config/scrape.yaml", &text, &e), 0);
    if (scrape_conf_parse("scrape.yaml", buf_str(&text), &c, &e))
        fail_msg("%s", e.text);
    assert_int_equal(c->len, 1);
    scrape_conf_free(c);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),           cmocka_unit_test(values),
        cmocka_unit_test(defaults_give_way), cmocka_unit_test(targets_of_a_group),
        cmocka_unit_test(names_of_services), cmocka_unit_test(urls),
        cmocka_unit_test(example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
