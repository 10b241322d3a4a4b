/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels that a key sets are on every series that reaches an ingester, whatever the sender says, by
 * whichever way in, and whatever the rules of the tenant do to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka wants the ones above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/identity/scope.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_bed.h"

#define SET(labels) "[{\"tenants\":[\"anonymous\"],\"roles\":[\"push\"],\"set\":{" labels "}}]"
#define TEAM        SET("\"team\":\"a\"")
#define TIME        "&from=now-10s&until=now"
#define FORGED      "/ingest?name=app%7Bteam%3Db%7D" TIME
#define SILENT      "/ingest?name=app" TIME

static void free_write(Embertree__WriteRequest *m)
{
    embertree__write_request__free_unpacked(m, NULL);
}

static struct str label(const Embertree__WriteSeries *s, const char *name)
{
    for (size_t i = 0; i < s->n_labels; i++)
        if (str_eqc(str_n(s->labels[i]->name.data, s->labels[i]->name.len), name))
            return str_n(s->labels[i]->value.data, s->labels[i]->value.len);
    return STR_NULL;
}

static void canonical(const Embertree__WriteSeries *s)
{
    for (size_t i = 1; i < s->n_labels; i++)
        assert_true(str_cmp(str_n(s->labels[i - 1]->name.data, s->labels[i - 1]->name.len),
                            str_n(s->labels[i]->name.data, s->labels[i]->name.len)) < 0);
}

/* All series that came since write `from`, and their sum. */
static uint64_t expect_team(const struct dist_bed *b, size_t from, const char *team, size_t series)
{
    uint64_t sum = 0;
    size_t n = 0;

    for (size_t i = from; i < b->writes.len; i++) {
        Embertree__WriteRequest *m = dist_bed_write(b, i);
        for (size_t k = 0; k < m->n_series; k++, n++) {
            const Embertree__WriteSeries *s = m->series[k];
            if (!str_eqc(label(s, "team"), team))
                fail_msg("team is \"%.*s\", want %s", STR_ARG(label(s, "team")), team);
            canonical(s);
            for (size_t v = 0; v < s->n_vectors; v++)
                for (size_t x = 0; x < s->vectors[v]->n_value; x++)
                    sum += s->vectors[v]->value[x];
        }
        free_write(m);
    }
    assert_int_equal(n, series);
    return sum;
}

/* A profile with samples of two teams, by the label of samples. */
static void two_teams(struct buf *body)
{
    struct gen_pprof g;

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
    gen_label(&g, "team", "b");
    gen_sample(&g, (uint64_t[]){ leaf }, 1, (int64_t[]){ 10 }, 1);
    gen_label(&g, "team", "c");
    gen_sample(&g, (uint64_t[]){ leaf }, 1, (int64_t[]){ 3 }, 1);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

static void push(struct dist_bed *b, const char *target, struct str body)
{
    const char *reply;

    if (dist_bed_push(b, target, "", body, &reply) != 200)
        fail_msg("%s: %s", target, reply);
}

static void test_pushes(void **state)
{
    (void)state;
    struct key_record *k = fake_identity("aaaaaaaaaaaa", TEAM);
    struct dist_bed b;
    struct buf pprof;

    buf_init(&pprof, MIB);
    two_teams(&pprof);
    dist_bed_init(&b, 1, NULL);
    push(&b, FORGED, STR("x 1\n"));
    (void)expect_team(&b, 0, "b", 1); /* no keys: the sender is believed */
    push(&b, SILENT "&format=pprof", buf_str(&pprof));
    assert_int_equal(b.writes.len, 2);
    b.door.who = k;
    push(&b, FORGED, STR("x 1\n"));
    assert_int_equal(expect_team(&b, 2, "a", 1), 10000000);
    push(&b, SILENT, STR("x 1\n"));
    (void)expect_team(&b, 3, "a", 1);
    /* Series that become equal are one, with the sum of both. */
    push(&b, SILENT "&format=pprof", buf_str(&pprof));
    assert_int_equal(expect_team(&b, 4, "a", 1), 13);
    push(&b, SILENT "&format=pprof", buf_str(&pprof));
    assert_int_equal(expect_team(&b, 5, "a", 1), 13);
    dist_bed_deinit(&b);
    buf_deinit(&pprof);
    record_key_unref(k);
}

/* Rules that drop, rename or replace the label; the sum stays the same. */
static void test_rules_do_not_undo_it(void **state)
{
    (void)state;
    static const char *const rules[] = {
        "defaults: {relabel: [{action: labeldrop, regex: team}]}\n",
        "defaults: {relabel: [{action: replace, target_label: team, replacement: "
        "z}]}\n",
        "defaults: {relabel: [{action: labelmap, regex: team, replacement: crew}, "
        "{action: labeldrop, regex: team}]}\n",
        /* Rules see the label as it will be stored, not the forged value. */
        "defaults: {drop: ['{team=\"b\"}']}\n",
    };
    struct key_record *k = fake_identity("aaaaaaaaaaaa", TEAM);
    char path[] = "/tmp/embertree-set-XXXXXX", flag[128];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    (void)snprintf(flag, sizeof(flag), "--distributor.overrides_file=%s", path);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        const char *const flags[] = { flag, NULL };
        struct dist_bed b;
        size_t n = strlen(rules[i]);
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, rules[i], n, 0), n);
        dist_bed_init(&b, 1, flags);
        b.door.who = k;
        push(&b, FORGED, STR("x 1\n"));
        assert_int_equal(expect_team(&b, 0, "a", 1), 10000000);
        dist_bed_deinit(&b);
    }
    (void)close(fd);
    (void)unlink(path);
    record_key_unref(k);
}

static void frame(struct str message, struct buf *body)
{
    wr_varint(body, message.len);
    buf_add_str(body, message);
}

/* What another server's distributor sent, imported: as it is, and through the rules. */
static void test_imports(void **state)
{
    (void)state;
    struct key_record *k = fake_identity("aaaaaaaaaaaa", TEAM);
    struct buf pprof, body;
    struct dist_bed b;

    buf_init(&pprof, MIB);
    buf_init(&body, MIB);
    two_teams(&pprof);
    dist_bed_init(&b, 1, NULL);
    push(&b, SILENT "&format=pprof", buf_str(&pprof));
    frame(b.writes.ptr[0], &body);
    push(&b, "/api/v1/import", buf_str(&body));
    Embertree__WriteRequest *m = dist_bed_write(&b, 1);
    assert_int_equal(m->n_series, 2);
    assert_true(str_eqc(label(m->series[0], "team"), "b"));
    free_write(m);
    b.door.who = k;
    push(&b, "/api/v1/import", buf_str(&body));
    assert_int_equal(expect_team(&b, 2, "a", 2), 13);
    m = dist_bed_write(&b, 2); /* one id for both would make the second a repeat */
    assert_memory_not_equal(m->series[0]->write_id.data, m->series[1]->write_id.data, 16);
    free_write(m);
    dist_bed_deinit(&b);
    buf_deinit(&pprof);
    buf_deinit(&body);
    record_key_unref(k);
}

/* The service is a label like others, and decides on the place. */
static void test_service(void **state)
{
    (void)state;
    struct key_record *k = fake_identity("aaaaaaaaaaaa", SET("\"service_name\":\"mine\""));
    struct dist_bed b;
    struct buf body;

    buf_init(&body, MIB);
    dist_bed_init(&b, 1, NULL);
    b.door.who = k;
    push(&b, FORGED, STR("x 1\n"));
    frame(b.writes.ptr[0], &body);
    b.door.who = NULL;
    push(&b, "/ingest?name=other" TIME, STR("x 1\n"));
    buf_reset(&body);
    frame(b.writes.ptr[1], &body);
    b.door.who = k;
    push(&b, "/api/v1/import", buf_str(&body));
    for (size_t i = 0; i < 3; i += 2) {
        Embertree__WriteRequest *m = dist_bed_write(&b, i);
        assert_true(str_eqc(str_n(m->service.data, m->service.len), "mine"));
        assert_true(str_eqc(label(m->series[0], "service_name"), "mine"));
        struct str derived = label(m->series[0], "__service_name__");
        assert_true(!derived.ptr || str_eqc(derived, "mine"));
        canonical(m->series[0]);
        free_write(m);
    }
    dist_bed_deinit(&b);
    buf_deinit(&body);
    record_key_unref(k);
}

static void test_without_a_grant(void **state)
{
    (void)state;
    static const char *const grants[] = {
        "[{\"tenants\":[\"anonymous\"],\"roles\":[\"read\"]}]",
        "[{\"tenants\":[\"other\"],\"roles\":[\"push\"]}]",
        "[{\"tenants\":[\"anonymous\"],\"roles\":[\"push\"],\"set\":{\"team\":\"a\"}},"
        "{\"tenants\":[\"*\"],\"roles\":[\"push\"],\"set\":{\"team\":\"b\"}}]",
    };
    struct dist_bed b;

    dist_bed_init(&b, 1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(grants); i++) {
        struct key_record *k = fake_identity("aaaaaaaaaaaa", grants[i]);
        b.door.who = k;
        assert_int_equal(dist_bed_push(&b, SILENT, "", STR("x 1\n"), NULL), 403);
        assert_int_equal(dist_bed_push(&b, "/api/v1/import", "", STR(""), NULL), 403);
        b.door.who = NULL;
        record_key_unref(k);
    }
    assert_int_equal(b.writes.len, 0);
    dist_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pushes),          cmocka_unit_test(test_rules_do_not_undo_it),
        cmocka_unit_test(test_imports),         cmocka_unit_test(test_service),
        cmocka_unit_test(test_without_a_grant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
