/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks that the Go runtime cut. A case lists whole stacks and how many outer frames each lost;
 * the rows must be those of the same profile with the whole stacks, or with the cut ones where no
 * root is certain. Random call trees check that no stack gets a root that it did not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

#define LOCATIONS 400
#define FRAMES    300

/* frames: root first, "0-11,40-59". */
struct row {
    const char *frames;
    int lost, lost_after; /* outer frames that are missing in the body, and in what is stored */
    int64_t value;
    const char *label;
};
struct form {
    const char *type, *file;
    bool values_first, unpacked;
    int inlined; /* this location has two frames; 0: none */
};

/* Takes a number off *text. */
static int number(const char **text)
{
    char *end;
    int v = (int)strtol(*text, &end, 10);

    *text = end;
    return v;
}

static size_t frames_of(const char *text, int *ret)
{
    size_t n = 0;

    while (*text) {
        int from = number(&text), to = from;
        if (*text == '-') {
            text++;
            to = number(&text);
        }
        for (; from <= to; from++) {
            assert_true(n < FRAMES && from < LOCATIONS);
            ret[n++] = from;
        }
        text += *text == ',';
    }
    return n;
}

static void begin(struct gen_pprof *g, const struct form *form, uint64_t *locations)
{
    gen_pprof_init(g);
    g->values_first = form->values_first;
    g->unpacked = form->unpacked;
    gen_type(g, form->type, "count");
    for (int i = 0; i < LOCATIONS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        uint64_t fn = gen_function(g, name, form->file);
        uint64_t both[] = { gen_function(g, "inner", form->file), fn };
        locations[i] = form->inlined && i == form->inlined ? gen_location_inlined(g, both, 2)
                                                           : gen_location(g, fn, i);
    }
}

static void add(struct gen_pprof *g, const uint64_t *locations, const int *frames, size_t n,
                const struct row *row)
{
    uint64_t ids[FRAMES];

    for (size_t i = 0; i < n; i++)
        ids[i] = locations[frames[n - 1 - i]];
    if (row->label)
        gen_label(g, "label", row->label);
    gen_sample(g, ids, n, &row->value, 1);
}

/* The profile with what is lost in the body, or after. */
static void make(const struct form *form, const struct row *rows, size_t n, bool after,
                 struct buf *ret)
{
    uint64_t locations[LOCATIONS];
    struct gen_pprof g;
    int frames[FRAMES];

    begin(&g, form, locations);
    for (size_t i = 0; i < n; i++) {
        int lost = after ? rows[i].lost_after : rows[i].lost;
        size_t len = frames_of(rows[i].frames, frames);
        add(&g, locations, frames + lost, len - (size_t)lost, &rows[i]);
    }
    if (after) /* deeper than any limit of Go: nothing is changed */
        add(&g, locations, frames, frames_of("0-139", frames), &(struct row){ .value = 1 });
    buf_init(ret, 64 * MIB);
    gen_pprof_finish(&g, ret);
    gen_pprof_deinit(&g);
}

static void rows_of(struct str body, struct buf *ret)
{
    struct limits l = limits_default();
    struct dist_push d;
    struct err e = { 0 };

    if (dist_decode(&d, "app", "pprof", NULL, body, &l, &e))
        fail_msg("%s", e.text);
    dist_check(&d.push, &l);
    dist_rows(&d.push, ret);
    dist_push_free(&d);
}

/* Takes the deep row of make() off again. */
static void drop_row(struct buf *rows)
{
    struct str all = buf_str(rows);
    size_t at = 0;

    for (size_t i = 0; i < all.len; i++) {
        if (i + 6 < all.len && memcmp(all.ptr + i, ";f139\t", 6) == 0) {
            size_t end = i;
            while (at > 0 && rows->ptr[at - 1] != '\n')
                at--;
            while (all.ptr[end] != '\n')
                end++;
            i = end;
            continue;
        }
        rows->ptr[at++] = rows->ptr[i];
    }
    rows->len = at;
}

static void check_form(const char *name, const struct form *form, const struct row *rows, size_t n)
{
    struct buf body, body_after, got, want;

    make(form, rows, n, false, &body);
    make(form, rows, n, true, &body_after);
    rows_of(buf_str(&body), &got);
    rows_of(buf_str(&body_after), &want);
    drop_row(&want);
    if (!str_eq(buf_str(&got), buf_str(&want)))
        fail_msg("%s: got\n%.*swant\n%.*s", name, STR_ARG(buf_str(&got)), STR_ARG(buf_str(&want)));
    buf_deinit(&body);
    buf_deinit(&body_after);
    buf_deinit(&got);
    buf_deinit(&want);
}

static const struct form heap = { .type = "alloc_space", .file = "a.go" };
#define CHECK_FORM(name, form, ...)                                          \
    do {                                                                     \
        const struct row rows_[] = { __VA_ARGS__ };                          \
        check_form((name), (form), rows_, sizeof(rows_) / sizeof(rows_[0])); \
    } while (0)

/* 0-19 is what a complete stack and a cut one share; 31 frames are complete, 32 are the limit. */
#define SHALLOW_ONE          \
    {                        \
        "0,1", 0, 0, 3, NULL \
    }
#define NEIGHBOUR             \
    {                         \
        "0-30", 0, 0, 5, NULL \
    }

static void test_gets_root(void **state)
{
    (void)state;
    const struct form first = { .type = "alloc_space", .file = "a.go", .values_first = true };
    const struct form cpu = { .type = "cpu", .file = "a.go" };
    const struct form mutex = { .type = "contentions", .file = "a.go" };

    CHECK_FORM("heap", &heap, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 0, 7, NULL });
    CHECK_FORM("as the runtime writes it", &first, SHALLOW_ONE, NEIGHBOUR,
               { "0-25,40-50", 5, 0, 7, NULL });
    CHECK_FORM("mutex", &mutex, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 0, 7, NULL });
    CHECK_FORM("cpu", &cpu, SHALLOW_ONE, { "0-60", 0, 0, 5, NULL },
               { "0-50,100-122", 10, 0, 7, NULL });
    CHECK_FORM("from Go 1.23 on", &heap, SHALLOW_ONE, { "0-120", 0, 0, 5, NULL },
               { "0-110,200-226", 10, 0, 7, NULL });
    CHECK_FORM("several samples of a stack", &heap, SHALLOW_ONE, NEIGHBOUR,
               { "0-25,40-50", 5, 0, 7, NULL }, { "0-25,40-50", 5, 0, 8, "a" },
               { "0-25,40-50", 5, 0, 9, "b" });
    CHECK_FORM("the allocator's own frames are missing", &heap, SHALLOW_ONE, NEIGHBOUR,
               { "0-25,40-50", 5, 0, 7, NULL }, { "0-25,60-67", 5, 0, 11, NULL });
}

/* Each stack is the neighbour of the next one only. */
static void test_recursion(void **state)
{
    (void)state;
    CHECK_FORM("three in a row", &heap, SHALLOW_ONE, NEIGHBOUR, { "0-44", 13, 0, 7, NULL },
               { "0-58", 27, 0, 8, NULL }, { "0-72", 41, 0, 9, NULL });
}

static void test_inlined(void **state)
{
    (void)state;
    struct form inlined = heap;

    inlined.inlined = 24;
    CHECK_FORM("31 locations, 32 frames", &inlined, SHALLOW_ONE, { "0-25", 0, 0, 5, NULL },
               { "0-25,40-49", 5, 0, 7, NULL });
    inlined.inlined = 5;
    CHECK_FORM("the outermost location has more than there was room for", &inlined, SHALLOW_ONE,
               { "0-25", 0, 0, 5, NULL }, { "0-25,40-50", 5, 0, 7, NULL });
}

static void test_stays(void **state)
{
    (void)state;
    const struct form python = { .type = "alloc_space", .file = "a.py" };
    const struct form other = { .type = "wall", .file = "a.go" };
    const struct form cpu = { .type = "cpu", .file = "a.go" };
    struct form unpacked = heap;

    unpacked.unpacked = true;
    CHECK_FORM("not Go", &python, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("no such type", &other, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("not as Go writes it", &unpacked, SHALLOW_ONE, NEIGHBOUR,
               { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("below the limit", &heap, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-49", 5, 5, 7, NULL });
    CHECK_FORM("a deeper one", &heap, SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 5, 7, NULL },
               { "0-25,60-69", 0, 0, 9, NULL });
    CHECK_FORM("a window of fewer frames", &heap, SHALLOW_ONE, { "0-19", 0, 0, 5, NULL },
               { "0-19,40-56", 5, 5, 7, NULL });
    CHECK_FORM("no stack has its root", &heap, NEIGHBOUR, { "100-131", 0, 0, 7, NULL });
    CHECK_FORM("its root is a root", &heap, { "5,6", 0, 0, 3, NULL }, SHALLOW_ONE, NEIGHBOUR,
               { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("two roots", &heap, SHALLOW_ONE, { "200,201", 0, 0, 3, NULL }, NEIGHBOUR,
               { "200,2-30", 0, 0, 5, NULL }, { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("a cut stack contradicts", &heap, SHALLOW_ONE, NEIGHBOUR,
               { "300,5-30,350-354", 0, 0, 6, NULL }, { "0-25,40-50", 5, 5, 7, NULL });
    CHECK_FORM("no allocator hides frames of CPU time", &cpu, SHALLOW_ONE,
               { "0-60", 0, 0, 5, NULL }, { "0-50,100-122", 10, 0, 7, NULL },
               { "0-50,130-150", 10, 10, 7, NULL });
}

static void test_frames_keep(void **state)
{
    (void)state;
    const struct row rows[] = { SHALLOW_ONE, NEIGHBOUR, { "0-25,40-50", 5, 5, 7, NULL } };
    struct limits l = limits_default();
    struct buf body, got;
    struct dist_push d;
    struct err e = { 0 };

    l.frames = l.frames_keep = 36; /* it would have 37 */
    make(&heap, rows, 3, false, &body);
    assert_int_equal(dist_decode(&d, "app", "pprof", NULL, buf_str(&body), &l, &e), 0);
    assert_int_equal(d.push.drops[CHANGE_TRUNCATED], 0);
    dist_rows(&d.push, &got);
    assert_true(str_contains(buf_str(&got), STR("\tf5;f6;f7;")));
    dist_push_free(&d);
    buf_deinit(&body);
    buf_deinit(&got);
}

/* ---- random call trees ---------------------------------------------------------------------- */

struct tree {
    int parent[LOCATIONS], depth[LOCATIONS];
};

static void grow(struct tree *t, struct prng *p)
{
    for (int i = 0; i < LOCATIONS; i++) {
        int back = 1 + (int)prng_below(p, 3); /* long and thin */
        t->parent[i] = i < 3 ? -1 : MAX(i - back, 0);
        t->depth[i] = i < 3 ? 1 : t->depth[t->parent[i]] + 1;
    }
}

/* Root first; how many. */
static size_t path_to(const struct tree *t, int leaf, int *ret)
{
    size_t n = (size_t)t->depth[leaf];

    for (size_t i = n; i > 0; leaf = t->parent[leaf])
        ret[--i] = leaf;
    return n;
}

/* Each location has one caller, so a stack that was changed must be the whole one. */
static void check_tree(struct prng *p, size_t *grafted)
{
    uint64_t locations[LOCATIONS];
    int frames[FRAMES], room[64];
    struct gen_pprof g;
    struct tree t;
    struct buf body, rows;
    int64_t total = 0, stored = 0;

    grow(&t, p);
    begin(&g, &heap, locations);
    for (int i = 0; i < 120; i++) {
        int leaf = (int)prng_below(p, LOCATIONS);
        if (t.depth[leaf] > FRAMES)
            continue;
        size_t n = path_to(&t, leaf, frames), lost = n > 32 ? n - 32 : 0;
        struct row row = { .value = 1 + (int64_t)prng_below(p, 100) };
        add(&g, locations, frames + lost, n - lost, &row);
        total += row.value;
    }
    buf_init(&body, 64 * MIB);
    gen_pprof_finish(&g, &body);
    gen_pprof_deinit(&g);
    rows_of(buf_str(&body), &rows);
    struct str all = buf_str(&rows);
    for (const char *at = all.ptr, *end = at + all.len; at < end;) {
        const char *eol = memchr(at, '\n', (size_t)(end - at)), *stack;
        size_t n = 0;
        stack = strchr(strchr(at, '\t') + 1, '\t') + 1;
        for (const char *f = stack; f[0] == 'f'; f = strchr(f, 'f')) {
            f++;
            int id = number(&f);
            assert_true(n < 2 * FRAMES);
            if (n > 0) /* the caller is its parent in the tree */
                assert_int_equal(t.parent[id], room[(n - 1) % ARRAY_LEN(room)]);
            else if (t.parent[id] >= 0)
                assert_true(t.depth[id] > 1);
            room[n++ % ARRAY_LEN(room)] = id;
            if (*f != ';') {
                stored += strtoll(f + 1, NULL, 10);
                break;
            }
        }
        assert_true(n > 0);
        *grafted += n > 32;
        at = eol + 1;
    }
    assert_int_equal(stored, total);
    buf_deinit(&body);
    buf_deinit(&rows);
}

static void test_random(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    size_t grafted = 0;
    struct prng p;

    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 60; round++)
        check_tree(&p, &grafted);
    assert_true(grafted > 100);
}

/* ---- profiles of real programs -------------------------------------------------------------- */

static bool root_is_real(struct str root)
{
    static const char *const roots[] = { "net/http.(*conn).serve", "runtime.main",
                                         "google.golang.org/grpc.(*Server).serveStreams.func1.2" };

    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        if (str_eqc(root, roots[i]))
            return true;
    return false;
}

/* Roots of stacks as deep as the limit: how many there are, and how many nodes are below them. */
static void test_real(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t deeper; /* rows of the type that are deeper than what Go kept */
        const char *type;
    } files[] = { { "pprof/go_heap.pb.gz", 10, "alloc_space\t" },
                  { "pprof/go_heap_delta.pb.gz", 1, "alloc_space\t" },
                  { "pprof/go_heap_large.pb.gz", 300, "alloc_space\t" },
                  { "pprof/go_cpu_truncated.pb.gz", 100, "cpu\t" } };

    if (!testdata_here("stacks that Go cut"))
        return;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        size_t deeper = 0, real = 0, limit = str_eqc(str_c(files[i].type), "cpu\t") ? 64 : 32;
        struct buf body, rows;
        testdata_read(files[i].path, &body);
        rows_of(buf_str(&body), &rows);
        struct str all = buf_str(&rows);
        while (all.len) {
            size_t eol = (size_t)((const char *)memchr(all.ptr, '\n', all.len) - all.ptr), n = 1;
            struct str line = str_n(all.ptr, eol);
            const char *stack = strchr(strchr(line.ptr, '\t') + 1, '\t') + 1, *at = stack;
            for (; *at != '\t'; at++)
                n += *at == ';';
            bool mine = str_starts(line, str_c(files[i].type));
            deeper += mine && n > limit + 1;
            real += mine && n > limit + 1 && root_is_real(str_n(stack, strcspn(stack, ";\t")));
            all = str_n(all.ptr + eol + 1, all.len - eol - 1);
        }
        print_message("%s: %zu grafted, %zu of them to a well-known root\n", files[i].path, deeper,
                      real);
        assert_true(deeper >= files[i].deeper);
        buf_deinit(&body);
        buf_deinit(&rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gets_root),   cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_inlined),     cmocka_unit_test(test_stays),
        cmocka_unit_test(test_frames_keep), cmocka_unit_test(test_random),
        cmocka_unit_test(test_real),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
