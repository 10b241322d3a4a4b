/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of nodes on their replicas, as text and back; their meaning for a shard; and whether all
 * nodes that must know a map do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/size.h"
#include "common/cluster/place/step_confirm.h"
#include "common/cluster/view/view_impl.h"

static struct view *make_view(void)
{
    const struct map *m;
    struct view *v;
    struct err e;

    assert_int_equal(
        map_parse("f",
                  STR("version: 9\nshards: 2\nreplicas: 3\nnodes:\n"
                      "  - {name: a, addr: 'tcp://a:1'}\n  - {name: b, addr: 'tcp://b:1'}\n"
                      "  - {name: c, addr: 'tcp://c:1'}\nreplicas_of: [[a, b, c], [b, c, a]]\n"),
                  true, &m, &e),
        0);
    assert_int_equal(view_new_static(m, &v, &e), 0);
    map_unref(m);
    return v;
}

static void tell(struct reports *r, const char *node, uint64_t map,
                 const struct progress_shard *shards, size_t n)
{
    struct progress p = { .shards = shards, .shards_len = n, .map = map };
    struct buf text;
    struct err e;

    buf_init(&text, MIB);
    progress_write(&p, &text);
    if (reports_take(r, node, buf_str(&text), &e))
        fail_msg("%s", e.text);
    buf_deinit(&text);
}

/* What a node says of itself and of copies that take nothing comes back, and is cut to bounds. */
static void test_bad_copies(void **state)
{
    static struct progress_bad bad[PROGRESS_BAD_MAX + 5];
    struct reports *r = reports_new();
    const struct progress *p;
    char lengthy[2 * PROGRESS_WHY_MAX];
    struct buf text;
    struct err e;

    (void)state;
    memset(lengthy, 'x', sizeof(lengthy));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = (struct progress_bad){ (uint32_t)i, STR("b\""), str_n(lengthy, sizeof(lengthy)) };
    bad[0] = (struct progress_bad){ 3, STR(""), STR("Read-only file system") };
    struct progress said = { .bad = bad,
                             .bad_len = ARRAY_LEN(bad),
                             .trouble = STR("its disk hangs"),
                             .room = PROGRESS_NO_ROOM,
                             .replace_ms = 90000 };
    buf_init(&text, MIB);
    progress_write(&said, &text);
    assert_int_equal(reports_take(r, "a", buf_str(&text), &e), 0);
    p = reports_of(r, "a");
    assert_int_equal(p->bad_len, PROGRESS_BAD_MAX);
    assert_true(p->bad[0].shard == 3 && !p->bad[0].node.len);
    assert_true(str_eqc(p->bad[0].why, "Read-only file system"));
    assert_true(str_eqc(p->bad[7].node, "b\"") && p->bad[7].why.len == PROGRESS_WHY_MAX);
    assert_true(str_eqc(p->trouble, "its disk hangs"));
    assert_true(p->room == PROGRESS_NO_ROOM && p->replace_ms == 90000);
    /* An older node, and a node that reports nonsense. */
    assert_int_equal(reports_take(r, "a", STR("{\"shards\":[],\"services\":[]}"), &e), 0);
    p = reports_of(r, "a");
    assert_true(!p->bad_len && !p->trouble.len && p->room == PROGRESS_ROOM_UNSAID);
    assert_int_not_equal(reports_take(r, "a", STR("{\"shards\":[],\"bad\":[{\"shard\":-1}]}"), &e),
                         0);
    buf_deinit(&text);
    reports_free(r);
}

static void test_told_and_forgotten(void **state)
{
    (void)state;
    struct reports *r = reports_new();
    const struct progress_shard *s;
    size_t pos = 0;
    struct err e;

    tell(r, "a", 7,
         (struct progress_shard[]){
             { .shard = 4, .term = 3, .last = 90, .commit = 80, .leads = true, .newest_ms = 12345 },
             { .shard = 9,
               .lost = true,
               .full = true,
               .rate = 5,
               .bytes = 6,
               .timed = true,
               .per_s = 11,
               .coming = { .files = true, .bytes = 7, .total = 8, .timed = true, .per_s = 9 } },
             { .shard = 10, .why = STR("no \"room\""), .coming = { .rows = true, .bytes = 7 } } },
         3);
    tell(r, "b", 0, NULL, 0);
    assert_int_equal(reports_of(r, "a")->map, 7);
    assert_int_equal(reports_of(r, "b")->map, 0);
    assert_null(reports_of(r, "c"));
    s = reports_shard(r, "a", 4);
    assert_true(s && s->leads && s->term == 3 && s->last == 90 && s->commit == 80);
    assert_int_equal(s->newest_ms, 12345);
    s = reports_shard(r, "a", 9);
    assert_true(s && s->lost && s->full && !s->leads && s->rate == 5 && s->bytes == 6);
    assert_true(s->timed && s->per_s == 11);
    assert_true(s->coming.files && !s->coming.rows && s->coming.timed);
    assert_true(s->coming.bytes == 7 && s->coming.total == 8 && s->coming.per_s == 9);
    s = reports_shard(r, "a", 10);
    assert_true(s->coming.rows && !s->coming.files && !s->coming.timed && !s->timed);
    assert_true(s->coming.bytes == 7 && s->coming.total == 0);
    assert_true(str_eqc(s->why, "no \"room\""));
    assert_int_equal(reports_shard(r, "a", 9)->why.len, 0);
    assert_null(reports_shard(r, "a", 5));
    assert_null(reports_shard(r, "b", 4));
    assert_true(reports_next(r, &pos) && reports_next(r, &pos) && !reports_next(r, &pos));
    /* Said by an older version. */
    assert_int_equal(reports_take(r, "a", STR("{\"shards\":[[4,3,90,80,1]]}"), &e), 0);
    assert_int_equal(reports_of(r, "a")->map, 0);
    assert_int_equal(reports_shard(r, "a", 4)->newest_ms, 0);
    assert_false(reports_shard(r, "a", 4)->coming.files);
    /* And by a later one. */
    assert_int_equal(
        reports_take(r, "a", STR("{\"shards\":[[4,3,90,80,1,0,0,1,2,3,16,5,6,7,8,-9]]}"), &e), 0);
    s = reports_shard(r, "a", 4);
    assert_true(s && !s->coming.files && !s->coming.rows && !s->timed);
    /* What cannot be read takes what was said before with it. */
    assert_int_not_equal(reports_take(r, "a", STR("{\"shards\":[[4,3]]}"), &e), 0);
    assert_null(reports_of(r, "a"));
    reports_forget(r, "b");
    reports_forget(r, "b");
    assert_null(reports_of(r, "b"));
    reports_clear(r);
    reports_free(r);
}

static void test_place(void **state)
{
    (void)state;
    struct reports *r = reports_new();
    struct view *v = make_view();
    struct place_shard s;

    reports_place(r, v, 0, &s);
    assert_true(s.now && s.able == 0 && s.rate == 0 && s.bytes == 0);
    reports_place(r, v, 7, &s); /* not in the view */
    assert_null(s.now);
    tell(r, "a", 9,
         &(struct progress_shard){
             .shard = 0, .last = 1000, .commit = 1000, .leads = true, .rate = 10, .bytes = 100 },
         1);
    tell(r, "b", 9, &(struct progress_shard){ .shard = 0, .last = 744, .rate = 30, .bytes = 900 },
         1);
    tell(r, "c", 9, &(struct progress_shard){ .shard = 0, .last = 743, .rate = 20, .bytes = 200 },
         1);
    reports_place(r, v, 0, &s);
    assert_int_equal(s.able, 3); /* c is too far behind */
    assert_int_equal(s.rate, 20);
    assert_int_equal(s.bytes, 200);
    tell(r, "b", 9, &(struct progress_shard){ .shard = 0, .last = 1000, .full = true }, 1);
    tell(r, "c", 9, &(struct progress_shard){ .shard = 0, .last = 1000, .lost = true }, 1);
    reports_place(r, v, 0, &s);
    assert_int_equal(s.able, 1);
    tell(r, "a", 9, &(struct progress_shard){ .shard = 0, .last = 1000, .commit = 1000 }, 1);
    reports_place(r, v, 0, &s);
    assert_int_equal(s.able, 0); /* its leader says that it does not lead */
    reports_free(r);
    view_free(v);
}

/* ---- do they know? --------------------------------------------------------------------------- */

static const struct map_whose ALL = { { NULL, 0 }, { NULL, 0 } };

static void all_know(struct reports *r)
{
    struct progress_shard a = { .shard = 0, .term = 1, .leads = true, .newest_ms = 500 };
    struct progress_shard b = { .shard = 1, .term = 1, .leads = true, .newest_ms = 700 };

    tell(r, "a", 9, &a, 1);
    tell(r, "b", 9, &b, 1);
    tell(r, "c", 9, NULL, 0);
}

static void waits(struct reports *r, const struct view *v, uint64_t version, const char *why)
{
    struct confirmed got;

    step_confirm_check(v, r, &ALL, version, &got);
    assert_false(got.all);
    if (!strstr(got.why, why))
        fail_msg("%s", got.why);
}

static void test_confirmed(void **state)
{
    (void)state;
    struct reports *r = reports_new();
    struct view *v = make_view();
    struct progress_shard s = { .shard = 0, .term = 1, .leads = true, .newest_ms = 500 };
    struct repl_record rec = *view_record(v, 1, NULL);
    struct confirmed got;

    waits(r, v, 9, "a (shard 0) has not said yet");
    all_know(r);
    step_confirm_check(v, r, &ALL, 9, &got);
    assert_true(got.all);
    assert_int_equal(got.newest_ms, 700);
    waits(r, v, 10, "a (shard 0) has map 9, not yet 10");
    tell(r, "c", 8, NULL, 0); /* follows only */
    waits(r, v, 9, "c (shard 0) has map 8");
    tell(r, "c", 0, NULL, 0);
    waits(r, v, 9, "older version");
    view_peer(v, "c")->live = false; /* a dead node is not asked */
    step_confirm_check(v, r, &ALL, 9, &got);
    assert_true(got.all);
    view_peer(v, "a")->live = false; /* but as a leader */
    reports_forget(r, "a");
    waits(r, v, 9, "a (shard 0) has not said yet");

    s.leads = false;
    tell(r, "a", 9, &s, 1);
    waits(r, v, 9, "a does not serve shard 0");
    s.leads = true;
    s.term = 2; /* of a record that is not seen yet */
    tell(r, "a", 9, &s, 1);
    waits(r, v, 9, "a does not serve shard 0");
    s.term = 1;
    s.newest_ms = 0;
    tell(r, "a", 9, &s, 1);
    waits(r, v, 9, "a does not serve shard 0");
    all_know(r);
    rec.established = false;
    view_set_record(v, 1, &rec, 0);
    waits(r, v, 9, "shard 1 has no leader yet");
    reports_free(r);
    view_free(v);
}

/* Only the places of what is to change are asked. */
static void test_only_its_places(void **state)
{
    (void)state;
    struct reports *r = reports_new();
    struct view *v = make_view();
    struct map_whose w = { STR("t"), STR("s") };
    struct confirmed got;
    int64_t rev;
    uint32_t shard = map_shard(view_map(v, &rev), STR("t"), STR("s"), 0, 0);

    for (int both = 0; both < 2; both++) {
        all_know(r);
        /* The leader of the other shard, or of this one, says nothing of what it leads. */
        tell(r, (shard == 0) == !both ? "b" : "a", 9, NULL, 0);
        step_confirm_check(v, r, &w, 9, &got);
        assert_int_equal(got.all, !both);
    }
    reports_free(r);
    view_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told_and_forgotten),
        cmocka_unit_test(test_bad_copies),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_confirmed),
        cmocka_unit_test(test_only_its_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
