/* SPDX-License-Identifier: Apache-2.0
 *
 * Records: the text comes back, each rule is held, and majorities of terms that follow each other
 * always meet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "common/base/prng.h"
#include "common/cluster/map/record.h"

static struct name_set set_of(const char *letters)
{
    struct name_set s = { .len = 0 };
    char name[2] = { 0 };

    for (; *letters; letters++) {
        name[0] = *letters;
        assert_true(name_set_add(&s, name));
    }
    return s;
}

static struct repl_record record_of(uint64_t term, const char *leader, const char *members,
                                    const char *learners, const char *prev, bool established)
{
    struct repl_record r = { .term = term,
                             .members = set_of(members),
                             .learners = set_of(learners),
                             .prev_members = set_of(prev),
                             .established = established };

    r.leader[0] = leader[0];
    return r;
}

static void test_text_comes_back(void **state)
{
    (void)state;
    struct repl_record a = record_of(RECORD_TERM_MAX, "b", "abc", "d", "abe", false), b;
    struct err e;
    struct buf out;

    buf_init(&out, RECORD_BYTES_MAX);
    record_write(&a, &out);
    if (record_parse(buf_str(&out), &b, &e))
        fail_msg("%s", e.text);
    assert_true(record_eq(&a, &b));
    buf_deinit(&out);
    assert_int_equal(
        record_parse(STR("{\"term\":1,\"leader\":\"a\",\"members\":[\"a\"],\"new\":[1]}"), &b, &e),
        0);
    assert_false(b.established);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "{}", "term 0" },
        { "{\"term\":-1}", "term -1" },
        { "{\"term\":1099511627777,\"leader\":\"a\",\"members\":[\"a\"]}", "highest" },
        { "{\"term\":9223372036854775807,\"leader\":\"a\",\"members\":[\"a\"]}", "highest" },
        { "{\"term\":1}", "no name" },
        { "{\"term\":1,\"leader\":\"a\"}", "not a member" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[\"b\"]}", "not a member" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[\"a\",\"a\"]}", "twice" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[\"a\",7]}", "members" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":\"a\"}", "no list" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[\"a\"],\"learners\":[\"a\"]}", "learner" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[\"a\"],\"prev_members\":[\"a\"],"
          "\"established\":true}",
          "established" },
        { "{\"term\":1,\"leader\":\"a\",\"members\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
          "17 members" },
        { "{\"term\":1,\"leader\":\"/a\",\"members\":[\"/a\"]}", "no name" },
        { "[1", "" },
    };
    struct repl_record r;
    struct err e;

    assert_int_equal(
        record_parse(STR("{\"term\":1099511627776,\"leader\":\"a\",\"members\":[\"a\"]}"), &r, &e),
        0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!record_parse(str_c(rows[i].text), &r, &e))
            fail_msg("taken: %s", rows[i].text);
        if (!strstr(e.text, rows[i].says))
            fail_msg("%s: %s", rows[i].text, e.text);
    }
}

static void test_what_may_follow(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t term;
        const char *leader, *members, *learners, *prev;
        bool established, ok;
    } rows[] = {
        /* After term 5, led by a, of abc, established. */
        { "the same", 5, "a", "abc", "", "", true, true },
        { "learner", 5, "a", "abc", "d", "", true, true },
        { "leader in the term", 5, "b", "abc", "", "", true, false },
        { "member in the term", 5, "a", "abcd", "", "", true, false },
        { "no more established", 5, "a", "abc", "", "abc", false, false },
        { "leader", 6, "b", "abc", "", "abc", false, true },
        { "leader, at once", 6, "b", "abc", "", "", true, false },
        { "leader, nothing before", 6, "b", "abc", "", "", false, false },
        { "leader, other before", 6, "b", "abc", "", "abd", false, false },
        { "two terms", 7, "b", "abc", "", "abc", false, false },
        { "back", 4, "b", "abc", "", "abc", false, false },
        { "one more", 6, "a", "abcd", "", "abc", false, true },
        { "one less", 6, "a", "ab", "", "abc", false, true },
        { "one for another", 6, "a", "abd", "", "abc", false, false },
        { "two less", 6, "a", "a", "", "abc", false, false },
        { "leader goes", 6, "b", "bc", "", "abc", false, true },
    };
    struct repl_record old = record_of(5, "a", "abc", "", "", true);
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct repl_record next = record_of(rows[i].term, rows[i].leader, rows[i].members,
                                            rows[i].learners, rows[i].prev, rows[i].established);
        int code = record_may_follow(&old, &next, &e);

        if ((code == 0) != rows[i].ok)
            fail_msg("%s: %s", rows[i].name, code ? e.text : "let through");
    }
}

static void test_not_established(void **state)
{
    (void)state;
    struct repl_record old = record_of(6, "a", "abcd", "", "abc", false), next;
    struct err e;

    record_next_leader(&old, "b", &next);
    assert_int_equal(record_may_follow(&old, &next, &e), 0);
    assert_true(name_set_eq(&next.prev_members, &old.prev_members));
    assert_int_equal(record_next_add(&old, "e", &next, &e), ERR_CONFLICT);
    /* Back to what was before is one change, and allowed. */
    assert_int_equal(record_next_remove(&old, "d", "a", &next, &e), 0);
    assert_true(name_set_eq(&next.members, &next.prev_members));
    assert_int_equal(record_next_remove(&old, "c", "a", &next, &e), ERR_CONFLICT);
    record_established(&old, &next);
    assert_int_equal(record_may_follow(&old, &next, &e), 0);
    assert_int_equal(next.prev_members.len, 0);
}

static void test_taken_back(void **state)
{
    (void)state;
    static const struct {
        const char *members, *learners, *prev, *leader, *ret_members, *ret_learners; /* NULL: no */
        bool established;
    } rows[] = {
        { "abcd", "", "abc", "b", "abc", "d", false },
        { "abcd", "e", "abc", "c", "abc", "ed", false },
        { "ab", "", "abc", "c", "abc", "", false },
        { "ab", "c", "abc", "a", "abc", "", false },
        { "abcd", "", "abc", "d", NULL, NULL, false },
        { "abc", "", "cba", "a", NULL, NULL, false },
        { "abc", "", "", "a", NULL, NULL, false },
        { "abcd", "", "", "a", NULL, NULL, true },
        { "abcde", "", "abc", "a", NULL, NULL, false }, /* breaks a rule already */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct repl_record next, old = record_of(6, "a", rows[i].members, rows[i].learners,
                                                 rows[i].prev, rows[i].established);
        struct err e;

        if (record_undo_member_change(&old, rows[i].leader, &next) != (rows[i].ret_members != NULL))
            fail_msg("row %zu", i);
        if (!rows[i].ret_members)
            continue;
        struct repl_record want = record_of(7, rows[i].leader, rows[i].ret_members,
                                            rows[i].ret_learners, rows[i].prev, false);
        assert_true(record_eq(&next, &want));
        assert_int_equal(record_may_follow(&old, &next, &e), 0);
    }
}

static uint32_t mask_of(const struct name_set *s)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < s->len; i++)
        mask |= 1u << (s->names[i][0] - 'a');
    return mask;
}

static bool majority(uint32_t have, uint32_t of)
{
    return __builtin_popcount(have & of) > __builtin_popcount(of) / 2;
}

/* Random walks over records that are let through. What a leader may commit with (a majority of its
 * members) must meet what the next terms ask before they lead (a majority of members, and of those
 * before), until one of them is established: else something acked could be forgotten. */
static void test_majorities_meet(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t seed = 1;
    struct prng p;

    if (given)
        (void)str_u64(str_c(given), &seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    struct repl_record now = record_of(1, "a", "abc", "", "", true);
    uint32_t committed_by = mask_of(&now.members); /* of the last term that may have committed */
    for (int i = 0; i < 20000; i++) {
        struct repl_record next = now;
        char name[2] = { (char)('a' + prng_below(&p, 7)), '\0' };
        struct err e;

        if (!now.established && prng_chance(&p, 0.3)) {
            record_established(&now, &next);
        } else {
            next.term++;
            next.established = false;
            next.prev_members = now.established ? now.members : now.prev_members;
            if (prng_chance(&p, 0.7) && !name_set_add(&next.members, name))
                (void)name_set_del(&next.members, name);
            if (next.members.len == 0)
                continue;
            uint64_t who = prng_below(&p, next.members.len);
            memcpy(next.leader, next.members.names[who], sizeof(next.leader));
        }
        if (record_may_follow(&now, &next, &e))
            continue;
        if (next.term > now.term) {
            /* Every set of promises that lets the new leader lead meets every such majority. */
            uint32_t prev = mask_of(&next.prev_members), mine = mask_of(&next.members);
            for (uint32_t promised = 0; promised < 128; promised++) {
                if (!majority(promised, mine) || !majority(promised, prev))
                    continue;
                for (uint32_t acked = 0; acked < 128; acked++)
                    if (majority(acked & committed_by, committed_by))
                        assert_true(acked & promised & committed_by);
            }
            committed_by = mine;
        }
        now = next;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_comes_back), cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_what_may_follow), cmocka_unit_test(test_not_established),
        cmocka_unit_test(test_taken_back),      cmocka_unit_test(test_majorities_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
