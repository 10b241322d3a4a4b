/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes keep, told, joined and written back into a simulated coordination service that is
 * empty, old, another's, loses requests and answers, or goes away after any number of steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord_sim.h"
#include "common/cluster/kept_join.h"
#include "common/cluster/recover.h"

#define PREFIX "/e"
#define ID     "0123456789abcdef0123456789abcdef"
#define OTHER  "f123456789abcdef0123456789abcdef"

enum { SHARDS = 40 };

/* ---- what nodes keep ------------------------------------------------------------------------- */

static const struct map *make_map(uint64_t version, uint32_t shards)
{
    struct map_node nodes[4] = { { "a", "tcp://127.0.0.1:1", "", MAP_ACTIVE },
                                 { "b", "tcp://127.0.0.1:2", "", MAP_ACTIVE },
                                 { "c", "tcp://127.0.0.1:3", "", MAP_DRAINING },
                                 { "gone", "tcp://127.0.0.1:4", "", MAP_LEFT } };
    struct map from = { .version = version, .shards = shards, .replicas = 3 };
    const struct map *m;
    struct err e;

    from.nodes = nodes;
    from.nodes_len = 4;
    assert_int_equal(map_new(&from, &m, &e), 0);
    return m;
}

static struct repl_record rec(uint64_t term, const char *leader, bool established)
{
    struct repl_record r = { .term = term, .established = established };

    (void)snprintf(r.leader, sizeof(r.leader), "%s", leader);
    assert_true(name_set_add(&r.members, "a") && name_set_add(&r.members, "b") &&
                name_set_add(&r.members, "c"));
    if (!established)
        r.prev_members = r.members;
    return r;
}

static struct kept say(const char *node, uint64_t version, uint64_t term)
{
    struct kept k;

    kept_init(&k, make_map(version, SHARDS));
    memcpy(k.cluster, ID, sizeof(ID));
    (void)snprintf(k.node, sizeof(k.node), "%s", node);
    k.keeps = true;
    for (uint32_t i = 0; i < SHARDS; i++)
        k.shards[i] = (struct kept_shard){ true, rec(term, "a", true), 0, term };
    return k;
}

static int add(struct kept_join *j, struct kept k)
{
    struct err e;
    int code = kept_join_add(j, &k, k.node, &e);

    kept_deinit(&k);
    return code;
}

static struct kept_join *three(void)
{
    struct kept_join *j = kept_join_new();

    assert_int_equal(add(j, say("a", 7, 5)), 0);
    assert_int_equal(add(j, say("b", 7, 5)), 0);
    assert_int_equal(add(j, say("c", 7, 5)), 0);
    return j;
}

static const struct kept *end_of(struct kept_join *j)
{
    const struct kept *all;
    struct err e;

    assert_int_equal(kept_join_end(j, &all, &e), 0);
    return all;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void test_text(void **state)
{
    struct kept k = say("a", 7, 5), back;
    struct buf one, two;
    struct err e;

    (void)state;
    k.shards[3].known = false;
    k.shards[4].promised = 0;
    (void)snprintf(k.stranger, sizeof(k.stranger), "it is \"empty\"");
    buf_init(&one, MIB);
    buf_init(&two, MIB);
    kept_write(&k, &one);
    assert_int_equal(kept_parse(buf_str(&one), &back, &e), 0);
    kept_write(&back, &two);
    assert_true(str_eq(buf_str(&one), buf_str(&two)));
    assert_string_equal(back.stranger, k.stranger);
    assert_true(back.keeps && !back.shards[3].known && back.shards[5].promised == 5);
    kept_deinit(&back);
    kept_deinit(&k);
    buf_deinit(&one);
    buf_deinit(&two);
}

static void test_bad_texts(void **state)
{
#define MAP_ "\"map\":\"{\\\"version\\\":1,\\\"shards\\\":2,\\\"replicas\\\":1}\""
#define ONE_ "\\\"leader\\\":\\\"a\\\",\\\"members\\\":[\\\"a\\\"]}\"}"
#define REC_ "{\"shard\":0,\"record\":\"{\\\"term\\\":1," ONE_
    static const char *const good[] = { "{}", "{" MAP_ "}", "{" MAP_ ",\"records\":[" REC_ "]}",
                                        "{" MAP_ ",\"logs\":[{\"shard\":1,\"promised\":3}]}" };
    static const char *const bad[] = {
        "",
        "{\"cluster\":\"12\"}",
        "{\"node\":\"a b\"}",
        "{\"map\":\"{\"}",
        "{\"records\":[" REC_ "]}", /* of no map */
        "{" MAP_ ",\"records\":[" REC_ "," REC_ "]}",
        "{" MAP_ ",\"records\":[{\"shard\":2,\"record\":\"x\"}]}",
        "{" MAP_ ",\"records\":[{\"shard\":-1,\"record\":\"x\"}]}",
        "{" MAP_ ",\"records\":[{\"shard\":0,\"record\":\"x\"}]}",
        "{" MAP_ ",\"records\":[{\"shard\":0}]}",
        "{" MAP_ ",\"records\":[{\"shard\":0,\"record\":\"{\\\"term\\\":1099511627777,"
        "\\\"leader\\\":\\\"a\\\",\\\"members\\\":[\\\"a\\\"]}\"}]}",
        "{" MAP_ ",\"records\":[{\"shard\":0,\"seen\":1,\"record\":\"{\\\"term\\\":1," ONE_ "]}",
        "{" MAP_ ",\"logs\":[{\"shard\":2,\"promised\":3}]}",
        "{" MAP_ ",\"logs\":[{\"shard\":1,\"promised\":-3}]}",
        "{" MAP_ ",\"logs\":[{\"shard\":1,\"promised\":1099511627777}]}",
    };
    struct kept k;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(kept_parse(str_c(good[i]), &k, &e), 0);
        kept_deinit(&k);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (kept_parse(str_c(bad[i]), &k, &e) == 0)
            fail_msg("%zu is taken: %s", i, bad[i]);
        assert_null(k.map);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static void test_highest_counts(void **state)
{
    struct kept_join *j = kept_join_new();
    struct kept k = say("b", 8, 5);
    const struct kept *all;

    (void)state;
    k.shards[1].record = rec(6, "b", false);
    k.shards[1].promised = 6;
    k.shards[2].record = rec(5, "a", false); /* the others have seen more of it */
    assert_int_equal(add(j, say("a", 7, 5)), 0);
    assert_int_equal(add(j, k), 0);
    assert_string_equal(kept_join_missing(j, 0), "c");
    assert_null(kept_join_missing(j, 1)); /* who left need not answer */
    assert_int_equal(add(j, say("c", 7, 4)), 0);
    assert_null(kept_join_missing(j, 0));
    assert_int_equal(kept_join_answers(j), 3);
    all = end_of(j);
    assert_int_equal(all->map->version, 8);
    assert_string_equal(all->cluster, ID);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(kept_join_why(j, i), KEPT_AS_IS);
        assert_int_equal(r->term, i == 1 ? 6 : 5);
        assert_true(r->established == (i != 1));
    }
    kept_join_free(j);
}

/* Nobody heard of what a missing node did: its terms are not used again. */
static void test_missing(void **state)
{
    struct kept_join *j = kept_join_new();
    struct kept empty = { .keeps = true, .node = "a" };
    const struct kept *all;
    struct err e;

    (void)state;
    assert_int_equal(kept_join_add(j, &empty, "a", &e), 0); /* a new folder knows nothing */
    assert_int_equal(add(j, say("b", 7, 5)), 0);
    assert_int_equal(add(j, say("c", 7, 5)), 0);
    assert_string_equal(kept_join_missing(j, 0), "a");
    all = end_of(j);
    assert_int_equal(all->shards[0].record.term, 5); /* etcd may have all of it */
    kept_join_lost(j);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(kept_join_why(j, i), KEPT_MISSING);
        assert_int_equal(r->term, 5 + KEPT_LEAP);
        assert_int_equal(all->shards[i].seen, 5);
        assert_string_equal(r->leader, "b"); /* a leads, and is not there */
        assert_false(r->established);
        assert_true(name_set_eq(&r->members, &r->prev_members));
        assert_int_equal(record_check(r, &e), 0);
    }
    kept_join_free(j);
}

/* All processes ended before any had the last record in its file; a log knows there was one. */
static void test_promised(void **state)
{
    struct kept_join *j = kept_join_new();
    struct kept k = say("b", 7, 5), untold = say("c", 7, 5);
    const struct kept *all;

    (void)state;
    k.shards[3].promised = 6;
    untold.shards[4].promised = 0;
    assert_int_equal(add(j, say("a", 7, 5)), 0);
    assert_int_equal(add(j, k), 0);
    assert_int_equal(add(j, untold), 0);
    all = end_of(j);
    assert_int_equal(kept_join_why(j, 3), KEPT_PROMISED);
    assert_int_equal(kept_join_why(j, 4), KEPT_AS_IS);
    kept_join_lost(j);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(kept_join_why(j, i), i == 3   ? KEPT_PROMISED
                                              : i == 4 ? KEPT_UNTOLD
                                                       : KEPT_AS_IS);
        assert_int_equal(r->term, i == 3 ? 7 : i == 4 ? 5 + KEPT_LEAP : 5);
        assert_string_equal(r->leader, "a");
        assert_true(r->established == (i != 3 && i != 4));
    }
    kept_join_free(j);
}

static void test_strangers_are_refused(void **state)
{
    struct kept_join *j = kept_join_new();
    struct kept k = say("b", 7, 5);
    const struct kept *all;
    struct err e;

    (void)state;
    assert_int_equal(kept_join_end(j, &all, &e), ERR_NOT_FOUND);
    assert_int_equal(add(j, say("a", 7, 5)), 0);
    memcpy(k.cluster, OTHER, sizeof(OTHER));
    assert_int_equal(add(j, k), ERR_CONFLICT);
    k = say("b", 7, 5);
    k.cluster[0] = '\0';
    assert_int_equal(add(j, k), ERR_CONFLICT);
    k = say("b", 7, 5);
    k.shards[2].record = rec(5, "b", true); /* two leaders of a term */
    assert_int_equal(add(j, k), ERR_CONFLICT);
    k = say("b", 7, 5);
    map_unref(k.map);
    k.map = make_map(8, SHARDS / 2);
    assert_int_equal(add(j, k), ERR_CONFLICT);
    assert_int_equal(kept_join_answers(j), 1);
    kept_join_free(j);
}

/* ---- writing --------------------------------------------------------------------------------- */

static struct clock_fake clock_;
static struct loop *loop;
static struct coord_site *site;
static struct coord *coord;
static bool ended;
static int result;
static char says[ERR_TEXT_MAX];
static struct recover_found found; /* without its list */
static enum recover_is shards_found[SHARDS];

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

static void on_done(void *cookie, const struct recover_found *f, const struct err *e)
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

static void start(const struct kept *all, bool only_look)
{
    struct buf text;
    struct kept k;
    struct err e;

    buf_init(&text, MIB);
    kept_write(all, &text);
    assert_int_equal(kept_parse(buf_str(&text), &k, &e), 0);
    buf_deinit(&text);
    ended = false;
    cluster_recover(&(struct recover_opts){ coord, PREFIX, &k, only_look, on_done, NULL });
    assert_null(k.map);
}

static int recover_(const struct kept *all, bool only_look)
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
    const struct map *m = make_map(version, shards);
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
    struct kept_join *j = three();
    const struct kept *all = end_of(j);
    int64_t rev;

    (void)state;
    begin(1, 0);
    assert_int_equal(recover_(all, true), 0);
    assert_int_equal(coord_site_rev(site), 1); /* it looked */
    assert_true(found.id && found.map == RECOVER_ABSENT && found.notes == 3 * SHARDS);
    assert_int_equal(shards_found[7], RECOVER_ABSENT);
    assert_int_equal(recover_(all, false), 0);
    check_whole();
    rev = coord_site_rev(site);
    assert_int_equal(recover_(all, false), 0); /* once more: nothing is missing */
    assert_true(!found.id && found.map == RECOVER_SAME && found.notes == 0);
    assert_int_equal(coord_site_rev(site), rev);
    end();
    kept_join_free(j);
}

/* A snapshot of before: some lower terms, one that has moved on, one not yet established. */
static void test_old_snapshot(void **state)
{
    struct kept_join *j = three();
    const struct kept *all = end_of(j);
    struct coord_key key = key_begun(STR(PREFIX), 9, "b");
    const struct coord_kv *kv;

    (void)state;
    begin(1, 0);
    put_id(ID);
    put_map(6, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++)
        put_record(i, rec(4, "b", true));
    put_record(3, rec(9, "c", true));
    put_record(4, rec(5, "a", false));
    coord_site_put(site, key_str(&key), STR("its own"));
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(found.map, RECOVER_BEHIND);
    assert_int_equal(found.map_version, 6);
    assert_int_equal(shards_found[3], RECOVER_AHEAD);
    assert_int_equal(shards_found[4], RECOVER_BEHIND);
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
    kept_join_free(j);
}

static void refused(const struct kept *all, const char *why)
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
    struct kept_join *j = three();
    const struct kept *all = end_of(j);

    (void)state;
    begin(1, 0);
    put_id(OTHER);
    refused(all, "another cluster");
    put_id(ID);
    put_map(1, SHARDS + 1);
    refused(all, "another cluster");
    put_id(ID);
    put_record(SHARDS, rec(1, "a", true));
    refused(all, "another cluster");
    put_map(1, SHARDS); /* by processes that know of no ids; nothing is newer there: an old one */
    assert_int_equal(recover_(all, false), 0);
    check_whole();
    end();
    begin(1, 0);
    put_map(1, SHARDS);
    put_record(2, rec(6, "b", true));
    refused(all, "has no id");
    end();
    kept_join_free(j);
}

static void test_differs(void **state)
{
    struct kept_join *j = three();
    const struct kept *all = end_of(j);
    struct err e;

    (void)state;
    begin(1, 0);
    put_id(ID);
    put_record(2, rec(5, "b", true));
    refused(all, " 2;");
    put_id(ID);
    put_record(2, rec(5, "b", true));
    assert_int_equal(recover_(all, true), 0); /* looking is not refused */
    assert_int_equal(shards_found[2], RECOVER_DIFFERS);
    assert_int_equal(kept_join_differs(j, 2, &e), 0);
    assert_int_equal(kept_join_differs(j, CLUSTER_SHARDS_MAX, &e), 0);
    assert_int_equal(recover_(all, false), 0);
    assert_int_equal(get_record(2).term, 5 + KEPT_LEAP);
    assert_string_equal(get_record(2).leader, "a");
    assert_int_equal(get_map(), 8);
    end();
    kept_join_free(j);
}

/* With new terms: what the service has beyond what was known is newer all the same. */
static void test_new_terms(void **state)
{
    struct kept_join *j = kept_join_new();
    const struct kept *all;

    (void)state;
    assert_int_equal(add(j, say("b", 7, 5)), 0);
    assert_int_equal(add(j, say("c", 7, 5)), 0);
    all = end_of(j);
    kept_join_lost(j);
    begin(1, 0);
    put_id(ID);
    put_record(1, rec(4, "a", true));
    put_record(2, rec(5, "a", true));
    put_record(3, rec(5, "b", true));
    put_record(4, rec(6, "c", true));
    for (int i = 0; i < 2; i++) { /* the second time nothing is done */
        assert_int_equal(recover_(all, false), 0);
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(get_record(k).term, 5 + KEPT_LEAP);
        assert_int_equal(get_record(4).term, 6);
        assert_string_equal(get_record(4).leader, "c");
    }
    assert_int_equal(shards_found[3], RECOVER_SAME);
    assert_int_equal(shards_found[4], RECOVER_AHEAD);
    end();
    kept_join_free(j);
}

/* Away after any number of events: no map before everything else is there, and it can be repeated
 * to its end. */
static void test_cut_off(void **state)
{
    struct kept_join *j = three();
    const struct kept *all = end_of(j);
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
    kept_join_free(j);
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
    struct kept_join *j = three();
    const struct kept *all = end_of(j);
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
    kept_join_free(j);
}

/* Requests and answers are lost, and meanwhile somebody takes shards over: a higher term in the
 * store is never overwritten. */
static void test_loss(void **state)
{
    struct kept_join *j = three();
    const struct kept *all = end_of(j);

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
                        put_record(shard, rec(term[shard], "b", true));
                }
            }
        } while (result == ERR_TIMEOUT || result == ERR_BUSY);
        assert_int_equal(result, 0);
        for (uint32_t i = 0; i < SHARDS; i++)
            assert_int_equal(get_record(i).term, MAX(UINT64_C(5), term[i]));
        end();
    }
    kept_join_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),           cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_highest_counts), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_promised),       cmocka_unit_test(test_strangers_are_refused),
        cmocka_unit_test(test_empty),          cmocka_unit_test(test_old_snapshot),
        cmocka_unit_test(test_others),         cmocka_unit_test(test_differs),
        cmocka_unit_test(test_new_terms),      cmocka_unit_test(test_another_one_meanwhile),
        cmocka_unit_test(test_cut_off),        cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
