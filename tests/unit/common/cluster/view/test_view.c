/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: of a list, of a static map, and of a coordination service: with values that cannot be
 * read, away at the start, restored from a backup.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/view/view.h"
#include "common/model/shard.h"
#include "common/sys/pool.h"
#include "tests/lib/store/kv_dir.h"

static void test_list(void **state)
{
    (void)state;
    const char *const addrs[] = { "tcp://a:1", "tcp://b:1", "tcp://c:1" };
    struct view *v = view_new_list(addrs, 3, 7);
    struct view_shard s;
    struct view_node n;
    uint32_t place;

    assert_true(view_ready(v) && view_knows_liveness(v));
    assert_int_equal(view_shards(v), 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_true(view_shard(v, i, &s));
        assert_string_equal(s.leader_addr, addrs[i % 3]);
        assert_int_equal(s.term, 0);
        assert_int_equal(s.members_len, 1);
        assert_string_equal(s.members[0], s.leader);
        assert_true(s.leader_live);
    }
    assert_false(view_shard(v, 7, &s));
    assert_true(view_node_find(v, "ingester-2", &n));
    assert_string_equal(n.addr, "tcp://c:1");
    assert_false(view_node_find(v, "ingester-3", &n));
    assert_int_equal(view_place(v, STR("t"), STR("s"), 9, 0), shard_of(STR("t"), STR("s"), 7));
    assert_int_equal(view_places(v, STR("t"), STR("s"), &place, 1), 1);
    assert_int_equal(view_age_ms(v), 0);
    view_suspect_leader(v, 1, 0);
    view_free(v);
}

static void test_static(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "nodes: [{name: a, addr: 'tcp://a:1'}]", "replicas_of" },
        { "nodes: [{name: a}]\nreplicas_of: [[a]]", "no addr" },
    };
    const struct map *m;
    struct view_shard s;
    struct view *v;
    struct err e;

    assert_int_equal(map_parse("f",
                               STR("shards: 2\nreplicas: 2\n"
                                   "nodes:\n  - {name: a, addr: 'tcp://a:1', zone: x}\n"
                                   "  - {name: b, addr: 'tcp://b:1'}\n"
                                   "replicas_of: [[a, b], [b, a]]\n"),
                               true, &m, &e),
                     0);
    assert_int_equal(view_new_static(m, &v, &e), 0);
    map_unref(m);
    assert_true(view_shard(v, 1, &s));
    assert_int_equal(s.term, 1);
    assert_string_equal(s.leader, "b");
    assert_string_equal(s.members[1], "a");
    view_free(v);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(map_parse("f", str_c(bad[i].text), true, &m, &e), 0);
        assert_int_equal(view_new_static(m, &v, &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, bad[i].says));
        map_unref(m);
    }
}

/* ---- with a service -------------------------------------------------------------------------- */

struct bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct coord *coord;
    struct view *view;
    char *dir, file[512];
    uint32_t told;
};

static void on_view(void *cookie)
{
    ((struct bed *)cookie)->told++;
}

static void open_view(struct bed *b)
{
    b->coord = coord_sim_new(b->site);
    b->view = view_new_coord(&(struct view_opts){
        .loop = b->loop, .coord = b->coord, .prefix = "/e", .fs = fs_real(), .file = b->file });
    view_watch(b->view, on_view, b);
}

static void close_view(struct bed *b)
{
    view_unwatch(b->view, on_view, b);
    view_free(b->view);
    coord_free(b->coord);
}

static void pass(struct bed *b, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + ms, due;

    while (loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
    if (clock_mono_ms(&b->clock.clock) < end)
        clock_fake_advance(&b->clock, (int64_t)(end - clock_mono_ms(&b->clock.clock)));
}

static void open_bed(struct bed *b)
{
    *b = (struct bed){ .told = 0 };
    clock_fake_init(&b->clock, 1700000000000);
    b->loop = loop_sim_new(&b->clock);
    b->site = coord_site_new(b->loop, 1);
    b->dir = kv_dir_new();
    (void)snprintf(b->file, sizeof(b->file), "%s/cluster.json", b->dir);
    coord_site_put(b->site, STR("/e/ring/map"),
                   STR("{\"version\":3,\"shards\":2,\"replicas\":1,\"nodes\":[{\"name\":\"a\","
                       "\"addr\":\"tcp://a:1\"},{\"name\":\"b\",\"addr\":\"tcp://b:1\"}]}"));
    coord_site_put(b->site, STR("/e/ring/shard/0001"),
                   STR("{\"term\":4,\"leader\":\"b\",\"members\":[\"b\"],\"established\":true}"));
    coord_site_put(b->site, STR("/e/ring/live/b"),
                   STR("{\"id\":\"00000000000000ab\",\"addr\":\"tcp://moved:1\",\"zone\":\"z\"}"));
    open_view(b);
}

static void close_bed(struct bed *b)
{
    close_view(b);
    coord_site_free(b->site);
    loop_free(b->loop);
    kv_dir_remove(b->dir);
}

static void test_follows(void **state)
{
    (void)state;
    struct view_shard s;
    struct view_node n;
    struct bed b;

    open_bed(&b);
    assert_false(view_ready(b.view));
    assert_false(view_shard(b.view, 1, &s));
    pass(&b, 100);
    assert_int_equal(b.told, 1); /* once for all that came together */
    assert_true(view_ready(b.view) && view_knows_liveness(b.view));
    assert_false(view_shard(b.view, 0, &s));
    assert_true(view_shard(b.view, 1, &s));
    assert_string_equal(s.leader_addr, "tcp://moved:1"); /* where it lives, not where it was */
    assert_true(s.leader_live);
    assert_true(view_node_find(b.view, "a", &n));
    assert_false(n.live);
    assert_int_equal(n.gone_ms, 0); /* it is not known since when */
    assert_true(view_node_find(b.view, "b", &n));
    assert_int_equal(n.gone_ms, 0);
    coord_site_del(b.site, STR("/e/ring/live/b"));
    pass(&b, 100);
    assert_true(view_node_find(b.view, "b", &n));
    assert_false(n.live);
    assert_true(n.gone_ms > 0);
    uint64_t gone_ms = n.gone_ms;
    coord_site_put(b.site, STR("/e/ring/live/x"), STR("{\"node_id\":\"9\"}")); /* other news */
    pass(&b, 1000);
    assert_true(view_node_find(b.view, "b", &n));
    assert_int_equal(n.gone_ms, gone_ms);
    assert_true(view_shard(b.view, 1, &s));
    assert_false(s.leader_live);
    assert_string_equal(s.leader_addr, "tcp://b:1");
    close_bed(&b);
}

/* One value that cannot be read removes nothing, and is shown. */
static void test_unreadable(void **state)
{
    (void)state;
    struct view_shard s;
    struct buf out;
    struct json j;
    struct bed b;

    open_bed(&b);
    pass(&b, 100);
    coord_site_put(b.site, STR("/e/ring/map"), STR("{\"shards\":-1"));
    coord_site_put(b.site, STR("/e/ring/shard/0001"), STR("{\"term\":5}"));
    coord_site_put(b.site, STR("/e/ring/live/c"), STR("7"));
    coord_site_put(b.site, STR("/e/ring/shard/9999"), STR("{}"));
    coord_site_put(b.site, STR("/e/ring/other"), STR("{}"));
    pass(&b, 100);
    assert_int_equal(view_shards(b.view), 2);
    assert_true(view_shard(b.view, 1, &s));
    assert_int_equal(s.term, 4);
    buf_init(&out, MIB);
    json_init(&j, &out);
    json_obj(&j);
    view_json(b.view, &j);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&out), STR("/e/ring/live/c")));
    buf_deinit(&out);
    close_bed(&b);
}

/* The service is away when a process starts: it continues with its last view. */
static void test_starts_alone(void **state)
{
    (void)state;
    struct view_shard s;
    struct bed b;

    open_bed(&b);
    pass(&b, 3000);
    close_view(&b);
    coord_site_away(b.site, true);
    open_view(&b);
    pass(&b, 5000);
    assert_true(view_ready(b.view));
    assert_false(view_knows_liveness(b.view));
    assert_true(view_age_ms(b.view) >= 5000);
    assert_true(view_shard(b.view, 1, &s));
    assert_int_equal(s.term, 4);
    assert_string_equal(s.leader_addr, "tcp://b:1");
    assert_true(s.leader_live);
    /* And what the service says later counts. */
    coord_site_away(b.site, false);
    coord_site_del(b.site, STR("/e/ring/live/b"));
    pass(&b, 1000);
    assert_true(view_knows_liveness(b.view));
    assert_true(view_shard(b.view, 1, &s));
    assert_false(s.leader_live);
    close_bed(&b);
}

static void test_broken_file(void **state)
{
    (void)state;
    struct err e;
    struct bed b;

    open_bed(&b);
    pass(&b, 3000);
    close_view(&b);
    assert_int_equal(fs_real()->write_file(fs_real(), b.file, STR("{\"map\":\"{\"}"), &e), 0);
    open_view(&b);
    assert_false(view_ready(b.view));
    pass(&b, 100);
    assert_true(view_ready(b.view));
    close_bed(&b);
}

/* ---- when it is saved ---- */

static uint32_t writes;

static int counted_write(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    writes++;
    return fs_real()->write_file(fs, path, data, e);
}

static bool saved_has(struct bed *b, const char *text)
{
    struct buf in;
    struct err e;

    buf_init(&in, MIB);
    assert_int_equal(fs_real()->read_file(fs_real(), b->file, &in, &e), 0);
    bool has = str_contains(buf_str(&in), str_c(text));
    buf_deinit(&in);
    return has;
}

/* However much happens, the file is a second or two behind, and is written once a second at most;
 * the list of live nodes is not in it and no reason to write. By the pool, where there is one. */
static void saves(struct pool *(*pool_of)(void))
{
    struct pool *pool = pool_of();
    struct fs fs = *fs_real();
    char text[128];
    struct bed b;

    fs.write_file = counted_write;
    open_bed(&b);
    close_view(&b);
    b.coord = coord_sim_new(b.site);
    b.view = view_new_coord(&(struct view_opts){ .loop = b.loop,
                                                 .coord = b.coord,
                                                 .prefix = "/e",
                                                 .fs = &fs,
                                                 .file = b.file,
                                                 .pool = pool });
    view_watch(b.view, on_view, &b);
    pass(&b, 3000);
    writes = 0;
    for (int i = 0; i < 20; i++) {
        (void)snprintf(text, sizeof(text), "{\"term\":%d,\"leader\":\"b\",\"members\":[\"b\"]}",
                       10 + i);
        coord_site_put(b.site, STR("/e/ring/shard/0001"), str_c(text));
        pass(&b, 300);
    }
    assert_in_range(writes, 3, 6);
    assert_false(saved_has(&b, "\\\"term\\\":10,"));
    pass(&b, 2500);
    assert_true(saved_has(&b, "\\\"term\\\":29,"));
    writes = 0;
    coord_site_del(b.site, STR("/e/ring/live/b"));
    pass(&b, 3000);
    assert_int_equal(writes, 0);
    coord_site_put(b.site, STR("/e/ring/shard/0001"),
                   STR("{\"term\":40,\"leader\":\"b\",\"members\":[\"b\"]}"));
    pass(&b, 1005); /* the view goes while it is being written, maybe: to its end */
    close_view(&b);
    pass(&b, 100);
    assert_true(saved_has(&b, "\\\"term\\\":40,"));
    coord_site_free(b.site);
    pool_free(pool);
    loop_free(b.loop);
    kv_dir_remove(b.dir);
}

static struct pool *no_pool(void)
{
    return NULL;
}

static struct pool *inline_pool(void)
{
    return pool_new("test", 0, 8);
}

static void test_saved(void **state)
{
    (void)state;
    saves(no_pool);
    saves(inline_pool);
}

static bool full;

static int full_write(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    return full ? err_set(e, ERR_IO, "no space") : fs_real()->write_file(fs, path, data, e);
}

static void name_leader(struct bed *b, int term, const char *leader)
{
    char text[128];

    (void)snprintf(text, sizeof(text), "{\"term\":%d,\"leader\":\"%s\",\"members\":[\"b\",\"c\"]}",
                   term, leader);
    coord_site_put(b->site, STR("/e/ring/shard/0001"), str_c(text));
}

/* A leader that restarts while etcd is away leads again by the record in its file: so a record that
 * names it is saved at once, though another write has just been planned for later; and where the
 * disk is full, a second after it has room again. */
static void test_saved_at_once(void **state)
{
    struct fs fs = *fs_real();
    struct bed b;

    (void)state;
    fs.write_file = full_write;
    open_bed(&b);
    close_view(&b);
    b.coord = coord_sim_new(b.site);
    b.view = view_new_coord(&(struct view_opts){ .loop = b.loop,
                                                 .coord = b.coord,
                                                 .prefix = "/e",
                                                 .fs = &fs,
                                                 .file = b.file,
                                                 .keeps = true,
                                                 .node = "b" });
    view_watch(b.view, on_view, &b);
    pass(&b, 3000);
    name_leader(&b, 50, "c");
    pass(&b, 300);
    assert_false(saved_has(&b, "\\\"term\\\":50,"));
    name_leader(&b, 51, "b");
    pass(&b, 300);
    assert_true(saved_has(&b, "\\\"term\\\":51,"));
    full = true;
    name_leader(&b, 52, "b");
    pass(&b, 3300);
    assert_false(saved_has(&b, "\\\"term\\\":52,"));
    full = false;
    pass(&b, 1300);
    assert_true(saved_has(&b, "\\\"term\\\":52,"));
    close_bed(&b);
}

/* Lists name the nodes of each shard, not those that live: only the watch does, and while it is
 * silent the view's age grows. */
static void test_doubts_are_no_watch(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b);
    pass(&b, 1000);
    coord_site_mute(b.site, true);
    uint64_t before = view_age_ms(b.view);
    for (int i = 0; i < 8; i++) {
        view_suspect_leader(b.view, 1, 100);
        pass(&b, 1000);
    }
    assert_true(view_age_ms(b.view) >= before + 8000);
    close_bed(&b);
}

/* A map counts as kept once it is in the file, however many changes follow each other. */
static void test_kept(void **state)
{
    (void)state;
    char text[160];
    struct bed b;

    open_bed(&b);
    pass(&b, 500);
    assert_int_equal(view_kept(b.view), 0);
    for (int i = 4; i < 30; i++) {
        (void)snprintf(text, sizeof(text), "{\"version\":%d,\"shards\":2,\"replicas\":1}", i);
        coord_site_put(b.site, STR("/e/ring/map"), str_c(text));
        pass(&b, 200);
    }
    assert_in_range(view_kept(b.view), 20, 28);
    close_view(&b); /* what is not in it yet is not known any more */
    coord_site_away(b.site, true);
    uint64_t kept = 0;
    open_view(&b);
    kept = view_kept(b.view);
    assert_in_range(kept, 20, 28);
    coord_site_away(b.site, false);
    pass(&b, 1500);
    assert_int_equal(view_kept(b.view), 29);
    close_bed(&b);
}

/* Nor does a record come without the map of its time. */
static void test_doubt_brings_the_map(void **state)
{
    (void)state;
    struct view_shard s;
    struct bed b;
    int64_t rev;

    open_bed(&b);
    pass(&b, 100);
    coord_site_mute(b.site, true); /* only answers arrive from now on */
    coord_site_put(b.site, STR("/e/ring/map"),
                   STR("{\"version\":8,\"shards\":2,\"replicas\":1,\"nodes\":[{\"name\":\"n\","
                       "\"addr\":\"tcp://n:1\"}]}"));
    coord_site_put(b.site, STR("/e/ring/shard/0001"),
                   STR("{\"term\":5,\"leader\":\"n\",\"members\":[\"n\"]}"));
    view_suspect_leader(b.view, 1, 4);
    for (int i = 0; i < 400 && (!view_shard(b.view, 1, &s) || s.term < 5); i++)
        pass(&b, 1);
    assert_int_equal(s.term, 5);
    assert_int_equal(view_map(b.view, &rev)->version, 8);
    assert_string_equal(s.leader_addr, "tcp://n:1");
    close_bed(&b);
}

/* A doubt asks the service itself: the answer may come before the watch's. */
static void test_doubt(void **state)
{
    (void)state;
    struct view_shard s;
    struct bed b;

    open_bed(&b);
    pass(&b, 100);
    coord_site_put(b.site, STR("/e/ring/shard/0001"),
                   STR("{\"term\":5,\"leader\":\"a\",\"members\":[\"a\"]}"));
    view_suspect_leader(b.view, 1, 4);
    view_suspect_leader(b.view, 1, 4);
    pass(&b, 2000);
    assert_true(view_shard(b.view, 1, &s));
    assert_int_equal(s.term, 5);
    assert_string_equal(s.leader, "a");
    view_suspect_leader(b.view, 1, 4); /* known to be over */
    close_view(&b);
    open_view(&b); /* freed with a question open: nothing comes */
    view_suspect_leader(b.view, 0, 1);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),          cmocka_unit_test(test_static),
        cmocka_unit_test(test_follows),       cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_starts_alone),  cmocka_unit_test(test_broken_file),
        cmocka_unit_test(test_doubt),         cmocka_unit_test(test_saved),
        cmocka_unit_test(test_saved_at_once), cmocka_unit_test(test_doubts_are_no_watch),
        cmocka_unit_test(test_kept),          cmocka_unit_test(test_doubt_brings_the_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
