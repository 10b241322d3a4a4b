/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes keep, joined (test_cluster_dump.c), is written back into a simulated coordination
 * service that is empty, old, another's, loses requests and answers, or goes away after any number
 * of steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/map/map_pending.h"
#include "common/cluster/rebuild/cluster_dump_merge.h"
#include "common/cluster/rebuild/etcd_rebuild.h"
#include "tests/lib/repl/kept_say.h"

#define PREFIX "/e"

/* ---- writing --------------------------------------------------------------------------------- */

static struct clock_fake clock_;
static struct loop *loop;
static struct coord_site *site;
static struct coord *coord;
static bool ended;
static int result;
static char says[ERR_TEXT_MAX];
static struct etcd_rebuild_found found; /* without its list */
static enum etcd_rebuild_is shards_found[SHARDS];

static void begin(uint64_t seed, double lose)
{
    clock_fake_init(&clock_, 1600000000000);
    loop = loop_sim_new(&clock_);
    site = coord_site_new(loop, seed);
    coord_site_faults(site, &(struct coord_faults){ 1, 5, lose, lose, false });
    coord = coord_sim_new(site);
}

static void end(void)
{
    coord_free(coord);
    coord_site_free(site);
    loop_free(loop);
}

static void on_done(void *cookie, const struct etcd_rebuild_found *f, const struct err *e)
{
    (void)cookie;
    assert_false(ended);
    ended = true;
    result = e ? e->code : 0;
    (void)snprintf(says, sizeof(says), "%s", e ? e->text : "");
    if (f) {
        found = *f;
        memcpy(shards_found, f->shards, sizeof(shards_found));
    }
}

static void start(const struct cluster_dump *all, bool only_look)
{
    struct buf text;
    struct cluster_dump k;
    struct err e;

    buf_init(&text, MIB);
    cluster_dump_write(all, &text);
    assert_int_equal(cluster_dump_parse(buf_str(&text), &k, &e), 0);
    buf_deinit(&text);
    ended = false;
    cluster_recover(&(struct etcd_rebuild_opts){ coord, PREFIX, &k, only_look, on_done, NULL });
    assert_null(k.map);
}

static int recover_(const struct cluster_dump *all, bool only_look)
{
    start(all, only_look);
    while (!ended)
        assert_true(loop_sim_step(loop));
    return result;
}

static const struct coord_kv *get(struct coord_key key)
{
    return coord_site_get(site, key_str(&key));
}

static void put_record(uint32_t shard, struct repl_record r)
{
    struct coord_key key = key_shard(STR(PREFIX), shard);
    struct buf text;

    buf_init(&text, RECORD_BYTES_MAX);
    record_write(&r, &text);
    coord_site_put(site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static struct repl_record get_record(uint32_t shard)
{
    const struct coord_kv *kv = get(key_shard(STR(PREFIX), shard));
    struct repl_record r = { 0 };
    struct err e;

    if (kv)
        assert_int_equal(record_parse(kv->value, &r, &e), 0);
    return r;
}

static void put_map(uint64_t version, uint32_t shards)
{
    struct coord_key key = key_map(STR(PREFIX));
    const struct map *m = kept_say_map(version, shards);
    struct buf text;

    buf_init(&text, MIB);
    map_write(m, &text);
    coord_site_put(site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
    map_unref(m);
}

static uint64_t get_map(void)
{
    const struct coord_kv *kv = get(key_map(STR(PREFIX)));
    const struct map *m;
    struct err e;
    uint64_t version;

    if (!kv)
        return 0;
    assert_int_equal(map_parse("map", kv->value, false, &m, &e), 0);
    version = m->version;
    map_unref(m);
    return version;
}

static void put_id(const char *id)
{
    struct coord_key key = key_cluster(STR(PREFIX));
    struct buf text;

    buf_init(&text, KIB);
    cluster_id_write(id, &text);
    coord_site_put(site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static bool has_id(const char *want)
{
    const struct coord_kv *kv = get(key_cluster(STR(PREFIX)));
    char id[CLUSTER_ID_LEN + 1];
    struct err e;

    return kv && cluster_id_parse(kv->value, id, &e) == 0 && strcmp(id, want) == 0;
}

static bool is_noted(uint32_t shard)
{
    return get(key_begun(STR(PREFIX), shard, "a")) && get(key_begun(STR(PREFIX), shard, "b")) &&
           get(key_begun(STR(PREFIX), shard, "c"));
}

static void check_whole(void)
{
    assert_int_equal(get_map(), 7);
    assert_true(has_id(ID));
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(get_record(i).term, 5);
        assert_true(get_record(i).established);
        assert_true(is_noted(i));
    }
}

static void test_empty(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);
    int64_t rev;

    (void)state;
    begin(1, 0);
    assert_int_equal(recover_(all, true), 0);
    assert_int_equal(coord_site_rev(site), 1); /* it looked */
    assert_true(found.id && found.map == ETCD_REBUILD_ABSENT && found.notes == 3 * SHARDS);
    assert_int_equal(shards_found[7], ETCD_REBUILD_ABSENT);
    assert_int_equal(recover_(all, false), 0);
    check_whole();
    rev = coord_site_rev(site);
    assert_int_equal(recover_(all, false), 0); /* once more: nothing is missing */
    assert_true(!found.id && found.map == ETCD_REBUILD_SAME && found.notes == 0);
    assert_int_equal(coord_site_rev(site), rev);
    end();
    cluster_dump_merge_free(j);
}

/* The cluster's first second: b has not begun two of its logs, which only b can say. */
static void test_fresh(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump k = kept_say("b", 7, 5), other = kept_say("c", 7, 5);
    const struct cluster_dump *all;

    (void)state;
    k.shards[3].promised = k.shards[4].promised = 0;
    assert_true(name_set_add(&k.shards[3].fresh, "b") && name_set_add(&k.shards[4].fresh, "b"));
    assert_true(name_set_add(&k.shards[5].fresh, "b")); /* it has promised something */
    assert_true(name_set_add(&k.shards[6].fresh, "c") && name_set_add(&other.shards[7].fresh, "a"));
    assert_int_equal(kept_say_add(j, kept_say("a", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, k), 0);
    assert_int_equal(kept_say_add(j, other), 0);
    all = kept_say_end(j);
    cluster_dump_merge_lost(j);
    begin(1, 0);
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(found.notes, 3 * SHARDS - 2);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(cluster_dump_merge_why(j, i), KEPT_AS_IS); /* b answered: no later term
        exists */
        assert_true(is_noted(i) == (i != 3 && i != 4));
        assert_true(get(key_begun(STR(PREFIX), i, "a")) && get(key_begun(STR(PREFIX), i, "c")));
    }
    assert_int_equal(recover_(all, false), 0); /* nothing is missing */
    assert_int_equal(found.notes, 0);
    end();
    cluster_dump_merge_free(j);
}

/* An old snapshot: some lower terms, one shard that has moved on, one not yet established. */
static void test_old_snapshot(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);
    struct coord_key key = key_begun(STR(PREFIX), 9, "b");
    const struct coord_kv *kv;

    (void)state;
    begin(1, 0);
    put_id(ID);
    put_map(6, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++)
        put_record(i, kept_say_rec(4, "b", true));
    put_record(3, kept_say_rec(9, "c", true));
    put_record(4, kept_say_rec(5, "a", false));
    coord_site_put(site, key_str(&key), STR("its own"));
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(found.map, ETCD_REBUILD_BEHIND);
    assert_int_equal(found.map_version, 6);
    assert_int_equal(shards_found[3], ETCD_REBUILD_AHEAD);
    assert_int_equal(shards_found[4], ETCD_REBUILD_BEHIND);
    assert_int_equal(get_record(3).term, 9);
    assert_string_equal(get_record(3).leader, "c");
    assert_true(get_record(4).established);
    assert_int_equal(get_record(5).term, 5);
    assert_int_equal(get_map(), 7);
    kv = coord_site_get(site, key_str(&key));
    assert_true(str_eq(kv->value, STR("its own")));
    put_map(8, SHARDS);
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(get_map(), 8);
    end();
    cluster_dump_merge_free(j);
}

static void refused(const struct cluster_dump *all, const char *why)
{
    int64_t rev = coord_site_rev(site);

    assert_int_equal(recover_(all, false), ERR_CONFLICT);
    if (!strstr(says, why))
        fail_msg("\"%s\" is not in \"%s\"", why, says);
    assert_int_equal(coord_site_rev(site), rev);
    end();
    begin(1, 0);
}

static void test_others(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);

    (void)state;
    begin(1, 0);
    put_id(OTHER);
    refused(all, "another cluster");
    put_id(ID);
    put_map(1, SHARDS + 1);
    refused(all, "another cluster");
    put_id(ID);
    put_record(SHARDS, kept_say_rec(1, "a", true));
    refused(all, "another cluster");
    put_map(1, SHARDS); /* by processes that know of no ids; nothing is newer there: an old one */
    assert_int_equal(recover_(all, false), 0);
    check_whole();
    end();
    begin(1, 0);
    put_map(1, SHARDS);
    put_record(2, kept_say_rec(6, "b", true));
    refused(all, "has no id");
    end();
    cluster_dump_merge_free(j);
}

static void test_differs(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);
    struct err e;

    (void)state;
    begin(1, 0);
    put_id(ID);
    put_record(2, kept_say_rec(5, "b", true));
    refused(all, " 2;");
    put_id(ID);
    put_record(2, kept_say_rec(5, "b", true));
    assert_int_equal(recover_(all, true), 0); /* looking is not refused */
    assert_int_equal(shards_found[2], ETCD_REBUILD_DIFFERS);
    assert_int_equal(cluster_dump_merge_differs(j, 2, 0, &e), 0);
    assert_int_equal(cluster_dump_merge_differs(j, CLUSTER_SHARDS_MAX, 7, &e), 0);
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(get_record(2).term, 5 + KEPT_LEAP);
    assert_string_equal(get_record(2).leader, "a");
    assert_int_equal(get_map(), 8);
    end();
    cluster_dump_merge_free(j);
}

/* The map there grew past ours without having come from it. */
static void test_map_differs(void **state)
{
    const struct map_whose w = { STR("t"), STR("s") };
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump k = kept_say("a", 7, 5);
    const struct map *wanted, *told;
    const struct cluster_dump *all;
    struct err e;

    (void)state;
    assert_int_equal(map_pending_request(k.map, &w, 2, &wanted, &e), 0);
    assert_int_equal(map_pending_announce(wanted, &w, INT64_C(1700000000000), STR_NULL, &told, &e),
                     0);
    map_unref(k.map);
    assert_int_equal(map_pending_commit(told, &w, &k.map, &e), 0); /* version 10 */
    map_unref(wanted);
    map_unref(told);
    assert_int_equal(kept_say_add(j, k), 0);
    all = kept_say_end(j);
    begin(1, 0);
    put_id(ID);
    put_map(12, SHARDS);
    refused(all, "map;");
    put_id(ID);
    put_map(12, SHARDS);
    assert_int_equal(recover_(all, true), 0);
    assert_int_equal(found.map, ETCD_REBUILD_DIFFERS);
    assert_int_equal(found.map_version, 12);
    assert_int_equal(cluster_dump_merge_differs(j, CLUSTER_SHARDS_MAX, found.map_version, &e), 0);
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(get_map(), 13);
    end();
    cluster_dump_merge_free(j);
}

/* With new terms: the service's records beyond the known ones still count as newer. */
static void test_new_terms(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    const struct cluster_dump *all;

    (void)state;
    assert_int_equal(kept_say_add(j, kept_say("b", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, kept_say("c", 7, 5)), 0);
    all = kept_say_end(j);
    cluster_dump_merge_lost(j);
    begin(1, 0);
    put_id(ID);
    put_record(1, kept_say_rec(4, "a", true));
    put_record(2, kept_say_rec(5, "a", true));
    put_record(3, kept_say_rec(5, "b", true));
    put_record(4, kept_say_rec(6, "c", true));
    for (int i = 0; i < 2; i++) { /* the second time nothing is done */
        assert_int_equal(recover_(all, false), 0);
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(get_record(k).term, 5 + KEPT_LEAP);
        assert_int_equal(get_record(4).term, 6);
        assert_string_equal(get_record(4).leader, "c");
    }
    assert_int_equal(shards_found[3], ETCD_REBUILD_SAME);
    assert_int_equal(shards_found[4], ETCD_REBUILD_AHEAD);
    end();
    cluster_dump_merge_free(j);
}

/* Away after any number of events: no map before everything else is there, and it can be repeated
 * to its end. */
static void test_cut_off(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);
    bool through = false;

    (void)state;
    for (int steps = 0; !through; steps++) {
        begin(1, 0);
        start(all, false);
        for (int i = 0; i < steps && !ended; i++)
            assert_true(loop_sim_step(loop));
        through = ended;
        coord_sim_cut(coord, true);
        while (!ended)
            assert_true(loop_sim_step(loop));
        assert_true(through ? result == 0 : result != 0);
        for (uint32_t i = 0; i < SHARDS && get_map(); i++)
            assert_true(get_record(i).term == 5 && is_noted(i) && has_id(ID));
        coord_sim_cut(coord, false);
        assert_int_equal(recover_(all, false), 0);
        check_whole();
        end();
    }
    cluster_dump_merge_free(j);
}

static uint32_t count_records(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < SHARDS; i++)
        n += get_record(i).term != 0;
    return n;
}

/* It becomes another one's half way: nothing more is written. */
static void test_another_one_meanwhile(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);
    uint32_t before;

    (void)state;
    begin(1, 0);
    start(all, false);
    while (count_records() == 0)
        assert_true(loop_sim_step(loop));
    before = count_records();
    assert_true(before < SHARDS && !ended);
    put_id(OTHER);
    while (!ended)
        assert_true(loop_sim_step(loop));
    assert_int_equal(result, ERR_CONFLICT);
    assert_int_equal(count_records(), before);
    assert_int_equal(get_map(), 0);
    end();
    cluster_dump_merge_free(j);
}

/* Requests and answers are lost, and meanwhile other nodes take shards over: a higher term in the
 * store is never overwritten. */
static void test_loss(void **state)
{
    struct cluster_dump_join *j = kept_say_three();
    const struct cluster_dump *all = kept_say_end(j);

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t term[SHARDS] = { 0 };

        begin(seed, 0.1);
        do {
            start(all, false);
            for (uint32_t i = 0; !ended; i++) {
                uint32_t shard = (uint32_t)(seed * 7 + i * 13) % SHARDS;

                assert_true(loop_sim_step(loop));
                if (has_id(ID) && i % 9 == 0 && term[shard] == 0 && i < 200) {
                    term[shard] = i % 2 ? 3 : 6 + i;
                    if (get_record(shard).term < term[shard])
                        put_record(shard, kept_say_rec(term[shard], "b", true));
                }
            }
        } while (result == ERR_TIMEOUT || result == ERR_BUSY);
        assert_int_equal(result, 0);
        for (uint32_t i = 0; i < SHARDS; i++)
            assert_int_equal(get_record(i).term, MAX(UINT64_C(5), term[i]));
        end();
    }
    cluster_dump_merge_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),     cmocka_unit_test(test_old_snapshot),
        cmocka_unit_test(test_others),    cmocka_unit_test(test_differs),
        cmocka_unit_test(test_new_terms), cmocka_unit_test(test_another_one_meanwhile),
        cmocka_unit_test(test_cut_off),   cmocka_unit_test(test_loss),
        cmocka_unit_test(test_fresh),     cmocka_unit_test(test_map_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
