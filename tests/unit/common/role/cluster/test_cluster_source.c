/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process knows of its cluster: by a list, by a file, and by an etcd that is not there; and
 * that a node is its data folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/role/cluster/cluster_source.h"
#include "common/role/core/options.h"
#include "tests/lib/store/kv_dir.h"

struct bed {
    struct loop *loop;
    struct metrics *metrics;
    struct cluster_source c;
    char *dir;
    struct err e;
};

static void open_bed(struct bed *b)
{
    *b = (struct bed){ .loop = loop_new(clock_real()),
                       .metrics = metrics_new(),
                       .dir = kv_dir_new() };
}

static void close_bed(struct bed *b)
{
    cluster_source_deinit(&b->c);
    metrics_free(b->metrics);
    loop_free(b->loop);
    kv_dir_remove(b->dir);
}

/* Starts with these flags; the code. */
static int start(struct bed *b, size_t n, const char *const *flags)
{
    const struct conf_table *tables[] = { &cluster_options };
    char *argv[8] = { (char *)(uintptr_t) "test" };
    struct conf *conf;

    for (size_t i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)flags[i];
    assert_int_equal(conf_load(tables, 1, (int)n + 1, argv, &conf, &b->e), 0);
    cluster_source_deinit(&b->c);
    int code =
        cluster_source_init(&b->c,
                            &(struct cluster_source_opts){ .conf = conf_get(conf, &cluster_options),
                                                           .env = env_real(),
                                                           .loop = b->loop,
                                                           .metrics = b->metrics,
                                                           .data_dir = b->dir },
                            &b->e);
    conf_free(conf);
    return code;
}

static void test_list(void **state)
{
    (void)state;
    const char *const flags[] = { "--cluster.ingesters=tcp://a:1,tcp://b:1", "--cluster.shards=4" };
    struct buf out;
    struct bed b;

    open_bed(&b);
    assert_int_equal(start(&b, 2, flags), 0);
    assert_null(b.c.coord);
    assert_int_equal(view_shards(b.c.view), 4);
    buf_init(&out, MIB);
    metrics_render(b.metrics, &out);
    assert_true(str_contains(buf_str(&out), STR("embertree_cluster_nodes_live 2\n")));
    assert_true(str_contains(buf_str(&out), STR("embertree_cluster_leaderless_shards 0\n")));
    buf_deinit(&out);
    close_bed(&b);
}

static void test_static(void **state)
{
    (void)state;
    char flag[600], path[512];
    const char *flags[] = { "--cluster.coordination=static", "--cluster.node=b", flag };
    struct view_shard s;
    struct bed b;

    open_bed(&b);
    assert_int_equal(start(&b, 2, flags), ERR_CONFIG);
    assert_non_null(strstr(b.e.text, "--cluster.map-file"));
    (void)snprintf(path, sizeof(path), "%s/map.yaml", b.dir);
    (void)snprintf(flag, sizeof(flag), "--cluster.map-file=%s", path);
    assert_int_equal(start(&b, 3, flags), ERR_NOT_FOUND);
    assert_int_equal(fs_real()->write_file(fs_real(), path, STR("nodes: [{nam: a}]"), &b.e), 0);
    assert_int_equal(start(&b, 3, flags), ERR_CONFIG);
    assert_non_null(strstr(b.e.text, "nam"));
    assert_int_equal(fs_real()->write_file(fs_real(), path,
                                           STR("nodes: [{name: b, addr: 'tcp://b:1'}]\n"
                                               "replicas_of: [[b]]\n"),
                                           &b.e),
                     0);
    assert_int_equal(start(&b, 3, flags), 0);
    assert_true(view_shard(b.c.view, 0, &s));
    assert_string_equal(s.leader_addr, "tcp://b:1");
    assert_string_equal(b.c.node, "b");
    close_bed(&b);
}

static void test_etcd(void **state)
{
    (void)state;
    const char *flags[] = { "--cluster.coordination=etcd", "--cluster.etcd=http://127.0.0.1:1",
                            "--cluster.node=n-1" };
    char path[512];
    uint64_t id;
    struct bed b;

    open_bed(&b);
    assert_int_equal(start(&b, 3, flags), 0);
    assert_non_null(b.c.coord);
    assert_false(view_ready(b.c.view));
    id = b.c.node_id;
    assert_true(id != 0);
    /* The same folder is the same node, whatever it is called. */
    flags[2] = "--cluster.node=n-2";
    assert_int_equal(start(&b, 3, flags), 0);
    assert_true(b.c.node_id == id);
    assert_string_equal(b.c.node, "n-2");
    (void)snprintf(path, sizeof(path), "%s/node-id", b.dir);
    assert_int_equal(fs_real()->write_file(fs_real(), path, STR("12"), &b.e), 0);
    assert_int_equal(start(&b, 3, flags), ERR_CORRUPT);
    assert_non_null(strstr(b.e.text, "node-id"));
    close_bed(&b);
}

static void test_bad_options(void **state)
{
    (void)state;
    static const struct {
        const char *flag, *says;
    } rows[] = {
        { "--cluster.node=/a", "cluster.node" },
        { "--cluster.etcd=etcd:2379", "cluster.etcd" },
        { "--cluster.etcd-prefix=a", "cluster.etcd_prefix" },
        { "--cluster.etcd-prefix=/a/", "cluster.etcd_prefix" },
        { "--cluster.etcd-password-file=/nowhere/at/all", "cluster.etcd_password_file" },
    };
    struct bed b;

    open_bed(&b);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *flags[] = { "--cluster.coordination=etcd", rows[i].flag };

        assert_int_not_equal(start(&b, 2, flags), 0);
        if (!strstr(b.e.text, rows[i].says))
            fail_msg("%s: %s", rows[i].flag, b.e.text);
    }
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_etcd),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
