/* SPDX-License-Identifier: Apache-2.0
 *
 * From which node a replica takes its copy while the lead changes: a source that leads no more
 * still serves it, and a source that has ended is replaced by the next leader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/repl/copy.h"
#include "tests/lib/repl/copy_bed.h"

static void add_member(const char *name)
{
    struct repl_record next;
    struct err e;

    assert_int_equal(record_next_add(&copy_bed.rec, name, &next, &e), 0);
    copy_bed.rec = next;
    copy_bed_tell_soon();
}

static bool is_established(void *cookie)
{
    (void)cookie;
    return copy_bed.rec.established;
}

/* n0 gives n1 a copy, at a rate; n2 has everything, too. */
static void learn_of_two(bool member)
{
    copy_bed_begin(0);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[2]);
    copy_bed_learn(&copy_bed.m[2]);
    copy_bed_same_rows(&copy_bed.m[2]);
    assert_int_equal(copy_bed_copies(), 1);
    assert_true(copy_bed.rec.established);
    copy_bed.rec.learners.len = 0;
    add_member("n2");
    copy_bed_writes(&copy_bed.m[0], 100000, 10);
    for (int i = 0; i < COPY_BED_NODES; i++)
        if (i != 1)
            copy_bed_node_down(&copy_bed.m[i]);
    for (int i = 0; i < COPY_BED_NODES; i++) {
        repl_hub_free(copy_bed.m[i].hub);
        copy_bed.rate = 3 * MIB;
        copy_bed_hub_up(&copy_bed.m[i]);
    }
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[2]);
    copy_bed_node_up(&copy_bed.m[1]);
    if (member) {
        assert_true(rpc_bed_run(&copy_bed.bed, is_established, NULL, COPY_BED_LIMIT_MS));
        add_member("n1");
    } else
        copy_bed_learn(&copy_bed.m[1]);
    copy_bed.from = copy_bed_taken() + 2 * MIB;
    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_some_taken, NULL, COPY_BED_LIMIT_MS));
    assert_true(rpc_bed_run(&copy_bed.bed, is_established, NULL, COPY_BED_LIMIT_MS));
    assert_string_equal(repl_node_copy(copy_bed.m[1].node).from, "n0");
}

static void now_leads_n2(void)
{
    struct repl_record next;

    record_next_leader(&copy_bed.rec, "n2", &next);
    copy_bed.rec = next;
    copy_bed_tell_soon();
}

/* The source loses its lead in the middle, to a node without a copy of its own: it still serves. */
static void test_new_leader(void **state)
{
    (void)state;
    learn_of_two(false);
    now_leads_n2();
    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_leads, &copy_bed.m[2], COPY_BED_LIMIT_MS));
    copy_bed.from = copy_bed_taken() + 2 * MIB;
    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_some_taken, NULL, COPY_BED_LIMIT_MS));
    assert_string_equal(repl_node_copy(copy_bed.m[1].node).from, "n0");
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 2);
    copy_bed_end();
}

/* Another one than n0 gives the copy. A question to n0 that begins from nothing is noted. */
static bool other_source(void *cookie)
{
    struct repl_copy_state st = repl_node_copy(copy_bed.m[1].node);
    bool n0 = st.from && !strcmp(st.from, "n0");

    (void)cookie;
    copy_bed.done |= n0 && st.bytes < copy_bed.from;
    copy_bed.from = n0 ? st.bytes : copy_bed.from;
    return st.from && !n0;
}

/* The source ends in the middle and never comes back. The rest of its copy is no reason to ask it
 * once more, when another member offers its own. */
static void test_dead_source(void **state)
{
    (void)state;
    learn_of_two(true);
    copy_bed_node_down(&copy_bed.m[0]);
    now_leads_n2();
    copy_bed.done = false;
    copy_bed.from = 0;
    assert_true(rpc_bed_run(&copy_bed.bed, other_source, NULL, COPY_BED_LIMIT_MS));
    assert_string_equal(repl_node_copy(copy_bed.m[1].node).from, "n2");
    assert_false(copy_bed.done);
    copy_bed_same_rows(&copy_bed.m[1]);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_leader),
        cmocka_unit_test(test_dead_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
