/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/golden/store-vN: a database written in format N, and its answers. Every later program
 * must open a copy, give the same answers, find nothing wrong, know its write ids, build due nodes,
 * and write more. UPDATE=1 writes the database of the newest format again: only while no release
 * has written that format.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/check/check.h"
#include "common/store/state/store_impl.h"
#include "common/sys/fs.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/store_bed.h"
#include "tests/lib/store/store_model.h"

#define NEWEST   "tests/golden/store-v2"
#define WORLD    20200101
#define REQUESTS 150
#define STEP_MS  216000
#define END_MS   (BED_START_MS + INT64_C(1) * REQUESTS * STEP_MS)

static struct clock_fake wall;
static struct err e;

static struct store *open_store(const char *dir)
{
    struct store_opts o = {
        .clock = &wall.clock,
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 30000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .seed = 1,
        .epoch_nodes_max = 60, /* several epochs in little space */
        .build_all = true,
        .test = { .whole_after = 2,
                  .rolled_members = 3,
                  .delta_bytes = 50 }, /* rows of all forms */
    };
    struct store *s;

    o.kv = kv_dir_open(dir);
    if (store_open(&o, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

/* ---- answers as text ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void node_line(const struct stacks *st, uint32_t node, uint64_t value, char *out, size_t n)
{
    uint32_t up[64];
    size_t depth = 0, at;

    for (; node; node = st->node_parent.ptr[node - 1])
        up[depth++] = st->node_frame.ptr[node - 1];
    at = (size_t)snprintf(out, n, "%" PRIu64, value);
    while (depth) {
        uint32_t f = up[--depth];
        at += (size_t)snprintf(out + at, n - at, " %.*s|%.*s|%.*s|%u|%" PRIx64,
                               STR_ARG(stacks_string_at(st, st->frame_func.ptr[f])),
                               STR_ARG(stacks_string_at(st, st->frame_file.ptr[f])),
                               STR_ARG(stacks_string_at(st, st->frame_module.ptr[f])),
                               st->frame_line.ptr[f], st->frame_addr.ptr[f]);
        assert_true(at < n);
    }
}

static void answer_merge(struct store_view *v, const struct store_query *q, bool lines, bool groups,
                         struct buf *out)
{
    struct store_merge m = { 0 };
    struct stacks st;
    VEC(char *) text = { 0 };

    stacks_init(&st, 64 * MIB, 1);
    m.stacks = &st;
    if (store_merge(v, q, &m, &e))
        fail_msg("%s", e.text);
    buf_addf(out, "total %" PRIu64 " stacks %zu", m.total, m.nodes.len);
    if (!groups) /* else it counts what was read: series or groups */
        buf_addf(out, " series %" PRIu64, m.series);
    buf_addf(out, " leaves %zu\n", m.leaves.len);
    for (size_t i = 0; lines && i < m.nodes.len; i++) {
        char *line = xmalloc(8192);
        node_line(&st, m.nodes.ptr[i], m.values.ptr[i], line, 8192);
        vec_push(&text, line);
    }
    if (text.len)
        qsort(text.ptr, text.len, sizeof(*text.ptr), by_text);
    vec_for (i, &text) {
        buf_addf(out, "  %s\n", text.ptr[i]);
        xfree(text.ptr[i]);
    }
    vec_free(&text);
    store_merge_deinit(&m);
    stacks_deinit(&st);
}

static void answer_timeline(struct store_view *v, const struct store_query *q, struct arena *a,
                            struct buf *out)
{
    const struct str by[] = { STR("service_name") };
    struct store_timeline t;

    if (store_timeline(v,
                       &(struct store_timeline_query){ .q = *q,
                                                       .origin_ms = END_MS - 6 * 3600000,
                                                       .step_ms = 1800000,
                                                       .points = 16,
                                                       .group_by = by,
                                                       .group_by_len = 1 },
                       a, &t, &e))
        fail_msg("%s", e.text);
    vec_for (i, &t.series) {
        const struct store_points *p = &t.series.ptr[i];
        labels_format(&p->labels, out);
        vec_for (k, &p->point)
            buf_addf(out, " %u=%" PRIu64 "/%" PRIu64, p->point.ptr[k], p->value.ptr[k],
                     p->writes.ptr[k]);
        buf_add_c(out, '\n');
    }
    store_timeline_deinit(&t);
}

static void answer_labels(struct store_view *v, struct str tenant, struct arena *a, struct buf *out)
{
    for (int kind = STORE_NAMES; kind <= STORE_TYPES; kind++) {
        struct store_labels_query q = { .tenant = tenant,
                                        .kind = (enum store_labels_kind)kind,
                                        .name = STR("pod") };
        struct store_labels l;
        if (store_labels(v, &q, a, &l, &e))
            fail_msg("%s", e.text);
        vec_for (i, &l.values)
            buf_addf(out, "%.*s ", STR_ARG(l.values.ptr[i]));
        vec_for (i, &l.sets) {
            labels_format(&l.sets.ptr[i], out);
            buf_add_c(out, '\n');
        }
        buf_add_c(out, '\n');
        store_labels_deinit(&l);
    }
}

/* Of the whole time, and of half hours. */
static void answer_functions(struct store_view *v, const struct store_query *q, struct arena *a,
                             struct buf *out)
{
    struct store_functions_query f = {
        .q = *q, .origin_ms = END_MS - INT64_C(4) * 86400000, .step_ms = 86400000, .points = 5
    };
    struct store_functions got;

    if (store_functions(v, &f, a, &got, &e))
        fail_msg("%s", e.text);
    vec_for (i, &got.at) {
        const struct store_function *x = &got.at.ptr[i];
        buf_addf(out, "%.*s", STR_ARG(x->name));
        vec_for (k, &x->point)
            buf_addf(out, " %u=%" PRIu64 "/%" PRIu64, x->point.ptr[k], x->self.ptr[k],
                     x->total.ptr[k]);
        buf_add_c(out, '\n');
    }
    store_functions_deinit(&got);
}

static void answers(struct store *s, bool functions, struct buf *out)
{
    static const char *const tenants[] = { "anonymous", "acme" };
    static const char *const selectors[] = { "{}", "{service_name=\"api\"}", "{zone!=\"\"}",
                                             "{pod=~\"pod-[1-5]\"}" };
    struct arena *a = arena_new(16 * MIB);
    struct store_view *v = store_view_get(s);

    for (size_t t = 0; t < ARRAY_LEN(tenants); t++) {
        for (size_t i = 0; i < MODEL_TYPES * ARRAY_LEN(selectors); i++) {
            struct selector sel;
            const char *text = selectors[i % ARRAY_LEN(selectors)];
            struct store_query q = { .tenant = str_c(tenants[t]),
                                     .selector = &sel,
                                     .profile_type = str_c(model_types[i / 4].id),
                                     .start_ms = END_MS - INT64_C(5) * 86400000,
                                     .end_ms = END_MS + 86400000 };
            assert_int_equal(selector_parse(str_c(text), SELECTOR_PROMETHEUS, a, &sel, &e), 0);
            assert_int_equal(selector_compile(&sel, &e), 0);
            buf_addf(out, "%s %s%s\n", tenants[t], model_types[i / 4].id, text);
            answer_merge(v, &q, i % 4 == 0 && t == 0, functions, out);
            if (i % 4 == 0)
                answer_timeline(v, &q, a, out);
            if (i % 4 == 0 && functions)
                answer_functions(v, &q, a, out);
            selector_deinit(&sel);
        }
        answer_labels(v, str_c(tenants[t]), a, out);
    }
    store_view_put(v);
    arena_free(a);
}

/* ---- writing it ---- */

static struct store_result push(struct store *s, struct model_world *w,
                                const struct model_request *r)
{
    struct store_batch *b = store_batch_new(s);
    struct arena *a = arena_new(16 * MIB);
    struct store_result ret;
    struct store_write write;
    struct stacks st;

    stacks_init(&st, 64 * MIB, 1);
    model_request_write(w, r, &st, a, &write);
    if (store_stage(s, b, &write, &ret, &e) || store_commit(s, b, &e))
        fail_msg("%s", e.text);
    stacks_deinit(&st);
    arena_free(a);
    return ret;
}

/* A push that does not come from the generator: its write id must stay known. */
static struct store_result push_known(struct store *s)
{
    const struct stacks_view none = { 0 };
    const uint32_t root = 0;
    const uint64_t value = 5;
    struct store_vector v = { slot_of_ms(END_MS) - 5, &root, &value, 1 };
    struct store_series r = {
        .profile_type = STR(BED_CPU), .wid = { 0xfe, 0xed }, .vectors = &v, .len = 1
    };
    struct store_write w = { STR("anonymous"), STR("known"), &none, &r, 1, NULL, 0, 0, 0 };
    struct store_batch *b = store_batch_new(s);
    struct store_result ret;

    if (store_stage(s, b, &w, &ret, &e) || store_commit(s, b, &e))
        fail_msg("%s", e.text);
    return ret;
}

static void seal(struct store *s)
{
    bool more = true;

    while (more)
        if (store_seal(s, 100, &more, &e))
            fail_msg("%s", e.text);
}

static void build(struct store *s)
{
    bool more = true;

    while (more)
        if (store_build(s, 100, &more, &e))
            fail_msg("%s", e.text);
}

static void write_database(const char *dir)
{
    struct model_world w;

    clock_fake_init(&wall, BED_START_MS);
    model_world_init(&w, WORLD);
    struct store *s = open_store(dir);
    for (int i = 0; i < REQUESTS; i++) {
        uint32_t now = slot_of_ms(atomic_load(&wall.wall_ms));
        uint32_t slot = i % 10 == 9 ? now - 17280 * 2 - 7 : now - (uint32_t)i % 12; /* some late */
        struct model_request *r = model_request_new(&w, slot);
        (void)push(s, &w, r);
        model_request_free(r);
        clock_fake_advance(&wall, STEP_MS);
        if (i < REQUESTS - 20) {
            seal(s); /* the last ones stay raw */
            build(s);
        }
        if (i == REQUESTS - 5 && kv_flush(s->kv, &e)) /* files, and something in the log */
            fail_msg("%s", e.text);
    }
    assert_int_equal(push_known(s).stored, 1);
    model_world_deinit(&w);
    store_close(s);
}

/* ---- files ---- */

static bool kept(const char *name)
{
    return !strcmp(name, "CURRENT") || !strncmp(name, "MANIFEST-", 9) || strstr(name, ".sst") ||
           (strstr(name, ".log") && name[0] != 'L');
}

static void copy_dir(const char *from, const char *to)
{
    char a[4096], b[4096];
    struct dirent *d;
    struct buf data;
    DIR *dir = opendir(from);

    if (!dir)
        fail_msg("%s: %s (tests run in the root of the repository)", from, strerror(errno));
    while ((d = readdir(dir)) != NULL) {
        if (!kept(d->d_name))
            continue;
        snprintf(a, sizeof(a), "%s/%s", from, d->d_name);
        snprintf(b, sizeof(b), "%s/%s", to, d->d_name);
        buf_init(&data, 16 * MIB);
        if (fs_real()->read_file(fs_real(), a, &data, &e) ||
            fs_real()->write_file(fs_real(), b, buf_str(&data), &e))
            fail_msg("%s", e.text);
        buf_deinit(&data);
    }
    closedir(dir);
}

static void remove_files(const char *path)
{
    char a[4096];
    struct dirent *d;
    DIR *dir = opendir(path);

    while (dir && (d = readdir(dir)) != NULL) {
        snprintf(a, sizeof(a), "%s/%s", path, d->d_name);
        if (d->d_name[0] != '.')
            unlink(a);
    }
    if (dir)
        closedir(dir);
}

static void update(void)
{
    char *dir = kv_dir_new();
    struct buf out;

    write_database(dir);
    if (fs_real()->mkdir_all(fs_real(), NEWEST "/db", &e))
        fail_msg("%s", e.text);
    remove_files(NEWEST "/db");
    copy_dir(dir, NEWEST "/db");
    buf_init(&out, 16 * MIB);
    struct store *s = open_store(dir);
    answers(s, true, &out);
    store_close(s);
    if (fs_real()->write_file(fs_real(), NEWEST "/answers.txt", buf_str(&out), &e))
        fail_msg("%s", e.text);
    buf_deinit(&out);
    kv_dir_remove(dir);
}

/* ---- the test ---- */

static void check(struct store *s, uint64_t raw_rows)
{
    struct check_report report;
    struct store_view *v = store_view_get(s);

    if (store_check(v, &report, &e))
        fail_msg("%s", e.text);
    assert_true(report.leaves > 100 && report.raw_rows >= raw_rows && report.epochs > 6);
    assert_true(report.tenants == 2 && report.wids > 20 && report.timelines > 50);
    store_view_put(v);
}

static void want_answers(struct store *s, const char *golden)
{
    char path[256];
    struct buf want, got;

    snprintf(path, sizeof(path), "%s/answers.txt", golden);

    buf_init(&want, 16 * MIB);
    buf_init(&got, 16 * MIB);
    if (fs_real()->read_file(fs_real(), path, &want, &e))
        fail_msg("%s", e.text);
    answers(s, !strcmp(golden, NEWEST), &got);
    buf_add_c(&want, '\0');
    buf_add_c(&got, '\0');
    assert_string_equal(got.ptr, want.ptr);
    buf_deinit(&want);
    buf_deinit(&got);
}

static void test_golden(void **state)
{
    const char *golden = *state;
    char *dir = kv_dir_new(), path[256];
    struct model_world w;

    if (getenv("UPDATE") && !strcmp(golden, NEWEST))
        update();
    snprintf(path, sizeof(path), "%s/db", golden);
    copy_dir(path, dir);
    clock_fake_init(&wall, END_MS);
    struct store *s = open_store(dir);
    want_answers(s, golden);
    check(s, 5);
    assert_int_equal(push_known(s).duplicates, 1);
    seal(s); /* folds rows that were left raw, or waits; answers stay */
    clock_fake_advance(&wall, 200000);
    seal(s);
    want_answers(s, golden);
    build(s); /* what format 1 did not have */
    assert_true(!strcmp(golden, NEWEST) ||
                (s->nodes_built[2] > 20 && s->nodes_built[3] > 20 && s->nodes_built[4] > 1));
    want_answers(s, golden);
    check(s, 0);
    /* It works like any other: new series, stacks and epochs next to the old ones. */
    model_world_init(&w, WORLD + 1);
    w.wids = 1000000;
    for (int i = 0; i < 30; i++) {
        struct model_request *r = model_request_new(&w, slot_of_ms(atomic_load(&wall.wall_ms)));
        assert_int_equal(push(s, &w, r).stored, r->pushes.len);
        assert_int_equal(push(s, &w, r).duplicates, r->pushes.len);
        model_request_free(r);
    }
    check(s, 5);
    store_close(s);
    s = open_store(dir);
    check(s, 5);
    store_close(s);
    model_world_deinit(&w);
    kv_dir_remove(dir);
}

int main(void)
{
    static char v1[] = "tests/golden/store-v1", v2[] = NEWEST;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_golden, v1),
        cmocka_unit_test_prestate(test_golden, v2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
