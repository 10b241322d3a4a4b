/* SPDX-License-Identifier: Apache-2.0
 *
 * A coordination service that lost data, or is another one: a process that keeps shards follows
 * nothing of it, and continues when the service is right again; a process without shards follows it
 * once nodes live in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/view/view.h"
#include "tests/lib/store/kv_dir.h"

#define ID_A   "00112233445566778899aabbccddeeff"
#define ID_B   "ffeeddccbbaa99887766554433221100"
#define ID(id) "{\"id\":\"" id "\"}"
#define MAP(version)        \
    "{\"version\":" version \
    ",\"shards\":2,\"replicas\":1,\"nodes\":[{\"name\":\"a\",\"addr\":\"tcp://a:1\"}]}"
#define RECORD(term, leader, more) \
    "{\"term\":" term ",\"leader\":\"" leader "\",\"members\":[\"a\",\"b\"]" more "}"
#define DONE ",\"established\":true"
#define LIVE "{\"id\":\"00000000000000ab\",\"addr\":\"tcp://b:1\",\"zone\":\"z\"}"

struct bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct coord *coord;
    struct view *view;
    char *dir, file[512];
};

static void pass(struct bed *b, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + ms, due;

    while (loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
    if (clock_mono_ms(&b->clock.clock) < end)
        clock_fake_advance(&b->clock, (int64_t)(end - clock_mono_ms(&b->clock.clock)));
}

static void open_view(struct bed *b, bool keeps)
{
    b->coord = coord_sim_new(b->site);
    b->view = view_new_coord(&(struct view_opts){ .loop = b->loop,
                                                  .coord = b->coord,
                                                  .prefix = "/e",
                                                  .fs = fs_real(),
                                                  .file = b->file,
                                                  .keeps = keeps });
}

static void close_view(struct bed *b)
{
    view_free(b->view);
    coord_free(b->coord);
}

static void put(struct bed *b, const char *key, const char *value)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "/e/%s", key);
    if (value)
        coord_site_put(b->site, str_c(text), str_c(value));
    else
        coord_site_del(b->site, str_c(text));
}

static void put_cluster(struct bed *b, const char *id)
{
    put(b, "ring/cluster", id);
    put(b, "ring/map", MAP("3"));
    put(b, "ring/shard/0000", RECORD("7", "a", DONE));
    put(b, "ring/shard/0001", RECORD("4", "b", DONE));
    put(b, "ring/live/b", LIVE);
}

static void open_bed(struct bed *b, const char *id, bool keeps)
{
    *b = (struct bed){ .dir = kv_dir_new() };
    clock_fake_init(&b->clock, 1700000000000);
    b->loop = loop_sim_new(&b->clock);
    b->site = coord_site_new(b->loop, 1);
    (void)snprintf(b->file, sizeof(b->file), "%s/cluster.json", b->dir);
    put_cluster(b, id);
    open_view(b, keeps);
    assert_false(view_trusts(b->view)); /* the service has not answered yet */
    pass(b, 3000);
    assert_true(view_trusts(b->view) && view_knows_liveness(b->view));
    assert_string_equal(view_stranger(b->view), "");
}

static void close_bed(struct bed *b)
{
    close_view(b);
    coord_site_free(b->site);
    loop_free(b->loop);
    kv_dir_remove(b->dir);
}

static uint64_t term_of(const struct bed *b, uint32_t shard)
{
    const struct repl_record *r = view_record(b->view, shard, NULL);

    return r ? r->term : 0;
}

static void assert_strange(struct bed *b, const char *says)
{
    int64_t rev;

    assert_false(view_trusts(b->view));
    if (!strstr(view_stranger(b->view), says))
        fail_msg("\"%s\" does not say \"%s\"", view_stranger(b->view), says);
    assert_string_equal(view_why(b->view), view_stranger(b->view));
    assert_int_equal(view_map(b->view, &rev)->version, 3);
    assert_int_equal(term_of(b, 0), 7);
    assert_int_equal(term_of(b, 1), 4);
    assert_string_equal(view_record(b->view, 1, &rev)->leader, "b");
}

/* The folder of the service is emptied, and brought back; in between the process starts again. */
static void test_emptied(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b, ID(ID_A), true);
    struct coord_backup *whole = coord_site_backup(b.site);
    uint64_t store = view_store(b.view);
    coord_site_restore(b.site, NULL);
    pass(&b, 10000);
    assert_strange(&b, "has no map of a cluster");
    assert_true(view_age_ms(b.view) > 8000);
    put(&b, "ring/live/x", LIVE); /* a node registers there */
    pass(&b, 3000);
    assert_strange(&b, "has no map of a cluster");
    close_view(&b);
    open_view(&b, true);
    pass(&b, 10000);
    assert_strange(&b, "has no map of a cluster");
    assert_false(view_knows_liveness(b.view));
    assert_true(view_ready(b.view));
    coord_site_restore(b.site, whole);
    pass(&b, 6000);
    assert_true(view_trusts(b.view) && view_knows_liveness(b.view));
    assert_string_equal(view_stranger(b.view), "");
    assert_true(view_store(b.view) > store);
    assert_true(view_age_ms(b.view) < 1000);
    put(&b, "ring/shard/0000", RECORD("8", "b", ""));
    pass(&b, 100);
    assert_int_equal(term_of(&b, 0), 8);
    coord_backup_free(whole);
    close_bed(&b);
}

static const struct {
    const char *key, *value; /* NULL: the key goes */
    const char *says;        /* NULL: that may be */
} changes[] = {
    { "ring/cluster", ID(ID_B), "another cluster (" ID_B ") than this node's (" ID_A ")" },
    { "ring/cluster", NULL, "another cluster (one without an id)" },
    { "ring/map", MAP("2"), "map 2 there, 3 here" },
    { "ring/map", NULL, "has no map" },
    { "ring/shard/0000", RECORD("6", "a", DONE), "shard 0 is of term 6 there, 7 here" },
    { "ring/shard/0000", RECORD("7", "b", DONE), "shard 0 is of another term 7 there" },
    { "ring/shard/0000", RECORD("7", "a", ""), "shard 0 is of another term" },
    { "ring/shard/0000", "{\"term\":7,\"leader\":\"a\",\"members\":[\"a\"],\"established\":true}",
      "shard 0 is of another term" },
    { "ring/shard/0001", NULL, "shard 1 has no record, term 0 there, 4 here" },
    { "ring/cluster", ID(ID_A), NULL },
    { "ring/map", MAP("3"), NULL },
    { "ring/map", "{\"shards\":-1", NULL }, /* unreadable, not less */
    { "ring/shard/0000", RECORD("7", "a", DONE ",\"learners\":[\"c\"]"), NULL },
    { "ring/shard/0001", RECORD("5", "a", ""), NULL },
    { "ring/shard/0001", "{\"term\":1}", NULL },
    { "ring/other", "x", NULL },
};

/* Each of these as a change, in an answer to a doubt, and in what there is at a start. */
static void test_each_of_them(void **state)
{
    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(changes) * 3; i++) {
        const char *says = changes[i / 3].says;
        struct bed b;

        open_bed(&b, ID(ID_A), true);
        if (i % 3 == 1)
            coord_site_mute(b.site, true);
        if (i % 3 == 2)
            close_view(&b);
        put(&b, changes[i / 3].key, changes[i / 3].value);
        if (i % 3 == 2)
            open_view(&b, true);
        if (i % 3 == 1) {
            view_suspect_leader(b.view, 0, 99);
            pass(&b, 1100);
            assert_int_equal(view_trusts(b.view), !says); /* not followed, and read again */
            coord_site_mute(b.site, false);
        }
        pass(&b, 1000);
        assert_int_equal(view_trusts(b.view), !says);
        if (says)
            assert_strange(&b, says);
        close_bed(&b);
    }
}

/* Another one in its place whose revisions are past those seen, while this node was cut off. */
static void test_overtaken(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b, ID(ID_A), true);
    coord_sim_cut(b.coord, true);
    coord_site_restore(b.site, NULL);
    for (int i = 0; i < 50; i++)
        put(&b, "other", "x");
    put(&b, "ring/shard/0001", RECORD("9", "x", DONE));
    pass(&b, 8000);
    coord_sim_cut(b.coord, false);
    pass(&b, 2000);
    assert_strange(&b, "has no map");
    close_bed(&b);
}

/* The same cluster in another store, all revisions lower: followed, and revisions are its. */
static void test_rebuilt(void **state)
{
    (void)state;
    struct bed b;
    int64_t rev;

    open_bed(&b, ID(ID_A), true);
    for (int i = 0; i < 50; i++)
        put(&b, "ring/live/b", LIVE);
    pass(&b, 1000);
    uint64_t store = view_store(b.view);
    coord_site_restore(b.site, NULL);
    put_cluster(&b, ID(ID_A));
    pass(&b, 1000);
    assert_true(view_trusts(b.view));
    assert_true(view_store(b.view) > store);
    (void)view_record(b.view, 1, &rev);
    assert_int_equal(rev, coord_site_get(b.site, STR("/e/ring/shard/0001"))->mod_rev);
    (void)view_map(b.view, &rev);
    assert_int_equal(rev, coord_site_get(b.site, STR("/e/ring/map"))->mod_rev);
    assert_int_equal(view_cluster_rev(b.view),
                     coord_site_get(b.site, STR("/e/ring/cluster"))->mod_rev);
    close_bed(&b);
}

/* A distributor continues with its last view, until nodes live by the other service. */
static void test_who_keeps_nothing(void **state)
{
    (void)state;
    struct view_shard s;
    struct bed b;

    open_bed(&b, ID(ID_A), false);
    coord_site_restore(b.site, NULL);
    pass(&b, 10000);
    assert_strange(&b, "has no map");
    assert_true(view_shard(b.view, 1, &s));
    assert_true(s.leader_live);
    put(&b, "ring/cluster", ID(ID_B));
    put(&b, "ring/map", MAP("1"));
    put(&b, "ring/shard/0000", RECORD("1", "a", DONE));
    pass(&b, 7000);
    assert_strange(&b, "another cluster");
    put(&b, "ring/live/a", LIVE); /* of the backup's time: soon gone */
    pass(&b, 60000);
    put(&b, "ring/live/a", NULL);
    pass(&b, 20000);
    put(&b, "ring/live/a", LIVE);
    pass(&b, 70000);
    assert_strange(&b, "another cluster");
    pass(&b, 14000);
    assert_true(view_trusts(b.view));
    assert_string_equal(view_cluster_id(b.view), ID_B);
    assert_int_equal(term_of(&b, 0), 1);
    assert_int_equal(term_of(&b, 1), 0); /* the other one's */
    close_bed(&b);
}

/* A cluster without an id, and the file of a build without ids, get an id once. */
static void test_gets_an_id(void **state)
{
    (void)state;
    struct bed b;

    open_bed(&b, NULL, true);
    assert_string_equal(view_cluster_id(b.view), "");
    close_view(&b);
    open_view(&b, true);
    pass(&b, 1000);
    put(&b, "ring/cluster", ID(ID_A));
    pass(&b, 3000);
    assert_string_equal(view_cluster_id(b.view), ID_A);
    close_view(&b);
    coord_site_away(b.site, true);
    open_view(&b, true); /* by the file */
    assert_string_equal(view_cluster_id(b.view), ID_A);
    close_bed(&b);
}

static void on_put(void *cookie, const struct coord_reply *r)
{
    (void)cookie;
    assert_true(!r->err && r->done);
}

#define PLACES(version, services)                                                       \
    "{\"version\":" version                                                             \
    ",\"shards\":2,\"replicas\":1,\"nodes\":[{\"name\":\"a\",\"addr\":\"tcp://a:1\"}]," \
    "\"tenant_steps\":[{\"from\":0,\"n\":2},{\"from\":50,\"n\":1}],\"services\":[" services "]}"
#define SERVICE(name, steps) "{\"tenant\":\"t\",\"name\":\"" name "\",\"steps\":[" steps "]}"
#define ONE                  "{\"from\":0,\"n\":1}"
#define TWO                  ONE ",{\"from\":70,\"n\":2,\"version\":3}"

/* A process that knew less used an old backup: the map's version grew past the one known here, but
 * some of its steps are missing. Without these a push would go to its earlier place. */
static void test_grown_past(void **state)
{
    (void)state;
    static const struct {
        const char *map, *says;
    } rows[] = {
        { PLACES("9", SERVICE("s", TWO)), NULL },
        { PLACES("9", SERVICE("s", TWO ",{\"from\":90,\"n\":1}") "," SERVICE("u", ONE)), NULL },
        { PLACES("9", ""), "map 9 there lacks places that map 5 here has (tenant t, service s)" },
        { PLACES("5", SERVICE("s", ONE)), "lacks places that map 5 here has" },
        { PLACES("9", SERVICE("s", ONE ",{\"from\":80,\"n\":2,\"version\":9}")), "lacks places" },
        { PLACES("9", SERVICE("s", ONE ",{\"from\":70,\"n\":1,\"version\":3}")), "lacks places" },
        { MAP("9"), "lacks places that map 5 here has (all tenants)" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bed b;
        int64_t rev;

        open_bed(&b, ID(ID_A), true);
        put(&b, "ring/map", PLACES("5", SERVICE("s", TWO)));
        pass(&b, 1000);
        assert_true(view_trusts(b.view));
        put(&b, "ring/map", rows[i].map);
        pass(&b, 1000);
        assert_int_equal(view_trusts(b.view), !rows[i].says);
        assert_int_equal(view_map(b.view, &rev)->version, rows[i].says ? 5 : 9);
        if (rows[i].says && !strstr(view_stranger(b.view), rows[i].says))
            fail_msg("%zu: %s", i, view_stranger(b.view));
        close_bed(&b);
    }
}

/* Cut off while the service was lost and filled again: its keys come whole, since it compacted, and
 * a later record happens to be at the same revision as the known one. */
static void test_same_revision(void **state)
{
    (void)state;
    struct bed b;
    int64_t had, rev;

    open_bed(&b, ID(ID_A), true);
    assert_int_equal(view_record(b.view, 1, &had)->term, 4);
    coord_sim_cut(b.coord, true);
    coord_site_restore(b.site, NULL);
    put(&b, "ring/cluster", ID(ID_A));
    put(&b, "ring/shard/0000", RECORD("7", "a", DONE));
    while (coord_site_rev(b.site) + 1 < had)
        put(&b, "ring/map", MAP("3"));
    put(&b, "ring/shard/0001", RECORD("5", "a", DONE));
    assert_int_equal(coord_site_rev(b.site), had);
    for (int i = 0; i < 20; i++) /* the other service continues, and is further than the first */
        put(&b, "ring/live/b", LIVE);
    coord_site_compact(b.site);
    pass(&b, 6000);
    coord_sim_cut(b.coord, false);
    pass(&b, 3000);
    assert_true(view_trusts(b.view));
    assert_int_equal(view_record(b.view, 1, &rev)->term, 5);
    assert_int_equal(rev, had);
    close_bed(&b);
}

/* How the cluster came to be there, as seen by one who was there before. */
enum made { BEGUN, REBUILT, MAP_FIRST, PUT_BACK, UNSEEN, MADE_KINDS };

static void make(struct bed *b, enum made how, const struct coord_backup *whole)
{
    struct coord_change both[2] = { { STR("/e/ring/map"), STR(MAP("1")), 0, false },
                                    { STR("/e/ring/cluster"), STR(ID(ID_A)), 0, false } };
    struct coord *c = coord_sim_new(b->site);

    coord_sim_cut(b->coord, how == UNSEEN);
    if (how == BEGUN || how == UNSEEN)
        coord_txn(c, &(struct coord_txn){ .chg = both, .chg_len = 2 }, on_put, NULL);
    for (int i = 0; i < 2 && (how == REBUILT || how == MAP_FIRST); i++)
        coord_site_put(b->site, both[i ^ (how == REBUILT)].key, both[i ^ (how == REBUILT)].value);
    if (how == PUT_BACK)
        coord_site_restore(b->site, whole);
    pass(b, 1000);
    if (how == UNSEEN)
        coord_site_compact(b->site);
    coord_sim_cut(b->coord, false);
    coord_free(c);
}

/* Only who saw it begin knows that it was not in it before: what comes back looks alike. */
static void test_born(void **state)
{
    (void)state;
    struct bed b;

    for (enum made how = BEGUN; how < MADE_KINDS; how++) {
        open_bed(&b, ID(ID_A), true);
        assert_false(view_born(b.view));
        struct coord_backup *whole = coord_site_backup(b.site);
        close_view(&b);
        assert_int_equal(remove(b.file), 0);
        coord_site_restore(b.site, NULL);
        open_view(&b, true);
        pass(&b, 3000);
        assert_true(view_trusts(b.view) && !view_ready(b.view) && !view_born(b.view));
        make(&b, how, whole);
        pass(&b, 10000);
        assert_true(view_trusts(b.view) && view_ready(b.view));
        assert_int_equal(view_born(b.view), how == BEGUN);
        put(&b, "ring/map", MAP("9"));
        pass(&b, 1000);
        assert_int_equal(view_born(b.view), how == BEGUN);
        coord_site_restore(b.site, NULL); /* it stays known while all else is forgotten */
        pass(&b, 10000);
        assert_true(view_stranger(b.view)[0] != '\0');
        assert_int_equal(view_born(b.view), how == BEGUN);
        coord_backup_free(whole);
        close_bed(&b);
    }
}

/* An old backup, and a node whose folder is empty: it has nothing to compare with, except reports
 * of peers that know more. A node that knows the cluster itself need not listen. */
static void test_told(void **state)
{
    (void)state;
    static const struct {
        uint32_t shard;
        uint64_t term, map;
        const char *says; /* NULL: that is no more than is there */
    } rows[] = {
        { 0, 7, 3, NULL },
        { 1, 3, 0, NULL },
        { 0, 8, 3,
          "other nodes, as after a restore of an old backup: shard 0 is of term 7 there, 8" },
        { 1, 4, 4, "map 3 there, 4 as they say" },
        { 2, 99, 0, NULL }, /* there is no such shard */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows) * 2; i++) {
        const char *says = i % 2 ? NULL : rows[i / 2].says;
        struct bed b;

        open_bed(&b, ID(ID_A), true);
        if (i % 2) { /* by its file */
            close_view(&b);
            open_view(&b, true);
            pass(&b, 1000);
        }
        view_note_peer_state(b.view, rows[i / 2].shard, rows[i / 2].term, rows[i / 2].map);
        pass(&b, 3000);
        assert_int_equal(view_trusts(b.view), !says);
        assert_int_equal(view_is_stale_bootstrap(b.view), says != NULL);
        if (says && !strstr(view_stranger(b.view), says))
            fail_msg("%s", view_stranger(b.view));
        if (says) { /* it stays so when it starts again, until others say so once more */
            close_view(&b);
            open_view(&b, true);
            pass(&b, 3000);
            assert_true(view_is_stale_bootstrap(b.view));
            view_note_peer_state(b.view, rows[i / 2].shard, rows[i / 2].term, rows[i / 2].map);
            pass(&b, 3000);
            assert_false(view_trusts(b.view));
            put(&b, "ring/shard/0000", RECORD("8", "b", ""));
            put(&b, "ring/map", MAP("4"));
            pass(&b, 8000);
            assert_true(view_trusts(b.view) && !view_is_stale_bootstrap(b.view));
        }
        close_bed(&b);
    }
    struct bed b;
    open_bed(&b, ID(ID_A), true);
    pass(&b, 700000); /* it has seen for itself */
    view_note_peer_state(b.view, 0, 9, 9);
    pass(&b, 3000);
    assert_true(view_trusts(b.view));
    close_bed(&b);
}

static void test_text(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "7",
        "{}",
        "{\"id\":7}",
        "{\"id\":\"\"}",
        "{\"id\":\"00112233445566778899aabbccddeefF\"}",
        "{\"id\":\"00112233445566778899aabbccddeeff0\"}",
    };
    char id[CLUSTER_ID_LEN + 1];
    struct buf b;
    struct err e;

    buf_init(&b, KIB);
    cluster_id_write(ID_A, &b);
    assert_int_equal(cluster_id_parse(buf_str(&b), id, &e), 0);
    assert_string_equal(id, ID_A);
    assert_int_equal(cluster_id_parse(STR("{\"id\":\"" ID_B "\",\"more\":1}"), id, &e), 0);
    assert_string_equal(id, ID_B);
    buf_deinit(&b);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_not_equal(cluster_id_parse(str_c(bad[i]), id, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emptied),
        cmocka_unit_test(test_each_of_them),
        cmocka_unit_test(test_overtaken),
        cmocka_unit_test(test_rebuilt),
        cmocka_unit_test(test_who_keeps_nothing),
        cmocka_unit_test(test_gets_an_id),
        cmocka_unit_test(test_born),
        cmocka_unit_test(test_grown_past),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_same_revision),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
