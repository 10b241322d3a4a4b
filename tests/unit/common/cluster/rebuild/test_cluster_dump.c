/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes keep, as they tell it and read it, and what several of them know together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/rebuild/cluster_dump_merge.h"
#include "tests/lib/repl/kept_say.h"

/* ---- texts ----------------------------------------------------------------------------------- */

static void test_text(void **state)
{
    struct cluster_dump k = kept_say("a", 7, 5), back;
    struct buf one, two;
    struct err e;

    (void)state;
    k.shards[3].known = false;
    k.shards[4].promised = 0;
    assert_true(name_set_add(&k.shards[6].fresh, "a") && name_set_add(&k.shards[6].fresh, "b"));
    (void)snprintf(k.stranger, sizeof(k.stranger), "it is \"empty\"");
    buf_init(&one, MIB);
    buf_init(&two, MIB);
    cluster_dump_write(&k, &one);
    assert_int_equal(cluster_dump_parse(buf_str(&one), &back, &e), 0);
    cluster_dump_write(&back, &two);
    assert_true(str_eq(buf_str(&one), buf_str(&two)));
    assert_string_equal(back.stranger, k.stranger);
    assert_true(back.keeps && !back.shards[3].known && back.shards[5].promised == 5);
    assert_true(name_set_eq(&back.shards[6].fresh, &k.shards[6].fresh));
    cluster_dump_deinit(&back);
    cluster_dump_deinit(&k);
    buf_deinit(&one);
    buf_deinit(&two);
}

static void test_bad_texts(void **state)
{
#define MAP_ "\"map\":\"{\\\"version\\\":1,\\\"shards\\\":2,\\\"replicas\\\":1}\""
#define ONE_ "\\\"leader\\\":\\\"a\\\",\\\"members\\\":[\\\"a\\\"]}\"}"
#define REC_ "{\"shard\":0,\"record\":\"{\\\"term\\\":1," ONE_
    static const char *const good[] = { "{}", "{" MAP_ "}", "{" MAP_ ",\"records\":[" REC_ "]}",
                                        "{" MAP_ ",\"logs\":[{\"shard\":1,\"promised\":3}]}",
                                        "{" MAP_ ",\"logs\":[{\"shard\":1,\"fresh\":[\"a\"]}]}" };
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
        "{" MAP_ ",\"logs\":[{\"shard\":1,\"fresh\":[\"a b\"]}]}",
        "{" MAP_ ",\"logs\":[{\"shard\":1,\"fresh\":[\"a\",\"a\"]}]}",
    };
    struct cluster_dump k;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(cluster_dump_parse(str_c(good[i]), &k, &e), 0);
        cluster_dump_deinit(&k);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (cluster_dump_parse(str_c(bad[i]), &k, &e) == 0)
            fail_msg("%zu is taken: %s", i, bad[i]);
        assert_null(k.map);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static void test_highest_counts(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump k = kept_say("b", 8, 5);
    const struct cluster_dump *all;

    (void)state;
    k.shards[1].record = kept_say_rec(6, "b", false);
    k.shards[1].promised = 6;
    k.shards[2].record = kept_say_rec(5, "a", false); /* the others have seen more of it */
    assert_int_equal(kept_say_add(j, kept_say("a", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, k), 0);
    assert_string_equal(cluster_dump_merge_missing(j, 0), "c");
    assert_null(cluster_dump_merge_missing(j, 1)); /* a node that left need not answer */
    assert_int_equal(kept_say_add(j, kept_say("c", 7, 4)), 0);
    assert_null(cluster_dump_merge_missing(j, 0));
    assert_int_equal(cluster_dump_merge_answers(j), 3);
    all = kept_say_end(j);
    assert_int_equal(all->map->version, 8);
    assert_string_equal(all->cluster, ID);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(cluster_dump_merge_why(j, i), KEPT_AS_IS);
        assert_int_equal(r->term, i == 1 ? 6 : 5);
        assert_true(r->established == (i != 1));
    }
    cluster_dump_merge_free(j);
}

/* It is not known what a missing node did: its terms are not used again. */
static void test_missing(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump empty = { .keeps = true, .node = "a" };
    const struct cluster_dump *all;
    struct err e;

    (void)state;
    assert_int_equal(cluster_dump_merge_add(j, &empty, "a", &e), 0); /* a new folder knows nothing
    */
    assert_int_equal(kept_say_add(j, kept_say("b", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, kept_say("c", 7, 5)), 0);
    assert_string_equal(cluster_dump_merge_missing(j, 0), "a");
    all = kept_say_end(j);
    assert_int_equal(all->shards[0].record.term, 5); /* etcd may have all of it */
    cluster_dump_merge_lost(j);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(cluster_dump_merge_why(j, i), KEPT_MISSING);
        assert_int_equal(r->term, 5 + KEPT_LEAP);
        assert_int_equal(all->shards[i].seen, 5);
        assert_string_equal(r->leader, "b"); /* a leads, and is not there */
        assert_false(r->established);
        assert_true(name_set_eq(&r->members, &r->prev_members));
        assert_int_equal(record_check(r, &e), 0);
    }
    cluster_dump_merge_free(j);
}

/* All processes ended before any had the last record in its file; a log knows there was one. */
static void test_promised(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump k = kept_say("b", 7, 5), untold = kept_say("c", 7, 5);
    const struct cluster_dump *all;

    (void)state;
    k.shards[3].promised = 6;
    untold.shards[4].promised = 0;
    assert_int_equal(kept_say_add(j, kept_say("a", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, k), 0);
    assert_int_equal(kept_say_add(j, untold), 0);
    all = kept_say_end(j);
    assert_int_equal(cluster_dump_merge_why(j, 3), KEPT_PROMISED);
    assert_int_equal(cluster_dump_merge_why(j, 4), KEPT_AS_IS);
    cluster_dump_merge_lost(j);
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = &all->shards[i].record;

        assert_int_equal(cluster_dump_merge_why(j, i), i == 3   ? KEPT_PROMISED
                                                       : i == 4 ? KEPT_UNTOLD
                                                                : KEPT_AS_IS);
        assert_int_equal(r->term, i == 3 ? 7 : i == 4 ? 5 + KEPT_LEAP : 5);
        assert_string_equal(r->leader, "a");
        assert_true(r->established == (i != 3 && i != 4));
    }
    cluster_dump_merge_free(j);
}

static void test_strangers_are_refused(void **state)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();
    struct cluster_dump k = kept_say("b", 7, 5);
    const struct cluster_dump *all;
    struct err e;

    (void)state;
    assert_int_equal(cluster_dump_merge_end(j, &all, &e), ERR_NOT_FOUND);
    assert_int_equal(kept_say_add(j, kept_say("a", 7, 5)), 0);
    memcpy(k.cluster, OTHER, sizeof(OTHER));
    assert_int_equal(kept_say_add(j, k), ERR_CONFLICT);
    k = kept_say("b", 7, 5);
    k.cluster[0] = '\0';
    assert_int_equal(kept_say_add(j, k), ERR_CONFLICT);
    k = kept_say("b", 7, 5);
    k.shards[2].record = kept_say_rec(5, "b", true); /* two leaders of a term */
    assert_int_equal(kept_say_add(j, k), ERR_CONFLICT);
    k = kept_say("b", 7, 5);
    map_unref(k.map);
    k.map = kept_say_map(8, SHARDS / 2);
    assert_int_equal(kept_say_add(j, k), ERR_CONFLICT);
    assert_int_equal(cluster_dump_merge_answers(j), 1);
    cluster_dump_merge_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),           cmocka_unit_test(test_bad_texts),
        cmocka_unit_test(test_highest_counts), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_promised),       cmocka_unit_test(test_strangers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
