/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of Parca's scraper: what is stored of successive profiles of a process, while stores
 * succeed, fail, or end unknown; beside a model that knows what the process counted. The bed here
 * keeps what was stored by its write id, as the store does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/parca/parca_raw.h"
#include "distributor/parca/parca_since.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

#define NOW_NS (DIST_NOW_MS * 1000000)
#define SECOND INT64_C(1000000000)
#define ROWS   16
#define BODIES 4096

/* Ends of a push, as the ingester has them. */
enum end { OK, REFUSED, LOST, LOST_STORED };

struct stored {
    uint64_t body; /* hash of what a retry repeats */
    int64_t alloc, inuse;
    bool counters, gauges; /* each series has a write id of its own */
};
struct bed {
    struct limits limits;
    struct batch_sink sink;
    struct arena *arena;
    struct push push;
    bool open;
    struct parca_since *since;
    bool alone;
    /* of the request */
    struct intake_row rows[ROWS];
    struct err errs[ROWS];
    size_t rows_len;
    struct stored pending[ROWS];
    enum end ends[ROWS]; /* wanted, by row */
    /* in the store */
    struct stored *stored;
    size_t stored_len;
    int64_t alloc, inuse; /* sums */
};

static struct push *on_begin(void *cookie, const struct ingest *in, struct err *e)
{
    struct bed *b = cookie;

    (void)in, (void)e;
    assert_false(b->open);
    assert_true(b->rows_len < ROWS);
    arena_reset(b->arena);
    push_init(&b->push, b->arena, &b->limits, UINT64_C(0x5eed));
    b->open = true;
    b->rows[b->rows_len++] = (struct intake_row){ .profiles = 1 };
    return &b->push;
}

static int64_t sum_of(const struct push *p, const char *type)
{
    struct dist_summary s;

    dist_summarise(p, type, &s);
    int64_t v = (int64_t)s.total;
    dist_summary_deinit(&s);
    return v;
}

static int on_end(void *cookie, struct push *p, struct str identity, struct str id, struct err *e)
{
    struct bed *b = cookie;
    size_t row = b->rows_len - 1;

    (void)id, (void)e;
    b->pending[row] = (struct stored){ .body = hash64(identity.ptr, identity.len, 1),
                                       .alloc = sum_of(p, "alloc_space"),
                                       .inuse = sum_of(p, "inuse_space"),
                                       .counters = true,
                                       .gauges = true };
    push_deinit(&b->push);
    b->open = false;
    return 0;
}

static void on_reject(void *cookie, struct push *p, uint64_t profiles, const struct err *why)
{
    struct bed *b = cookie;

    if (p)
        push_deinit(&b->push);
    else
        b->rows_len++;
    b->open = false;
    size_t row = b->rows_len - 1;
    b->errs[row] = *why;
    b->rows[row] = (struct intake_row){ INTAKE_REJECTED, profiles, STR_NULL, &b->errs[row] };
}

static void bed_init(struct bed *b, bool alone)
{
    *b = (struct bed){ .limits = limits_default(), .alone = alone };
    b->arena = arena_new(64 * MIB);
    b->since = parca_since_new(MIB);
    b->stored = xcalloc(BODIES, sizeof(*b->stored));
    b->sink = (struct batch_sink){ .begin = on_begin,
                                   .end = on_end,
                                   .reject = on_reject,
                                   .limits = &b->limits,
                                   .now_ms = DIST_NOW_MS,
                                   .oldest_ms = DIST_NOW_MS - 86400000,
                                   .cookie = b };
}

static void bed_free(struct bed *b)
{
    parca_since_free(b->since);
    arena_free(b->arena);
    xfree(b->stored);
}

/* The store takes each series of a body once. */
static void store(struct bed *b, const struct stored *s)
{
    struct stored *at = NULL;

    for (size_t i = 0; i < b->stored_len && !at; i++)
        at = b->stored[i].body == s->body ? &b->stored[i] : NULL;
    if (!at) {
        assert_true(b->stored_len < BODIES);
        at = &b->stored[b->stored_len++];
        *at = (struct stored){ .body = s->body };
    }
    b->alloc += at->counters || !s->alloc ? 0 : s->alloc;
    b->inuse += at->gauges || !s->inuse ? 0 : s->inuse;
    at->counters |= s->alloc > 0;
    at->gauges |= s->inuse > 0;
}

static void finish_rows(struct bed *b)
{
    for (size_t i = 0; i < b->rows_len; i++) {
        if (b->rows[i].outcome == INTAKE_REJECTED)
            continue;
        if (b->ends[i] == OK || b->ends[i] == LOST_STORED)
            store(b, &b->pending[i]);
        b->rows[i].outcome = b->ends[i] == OK ? INTAKE_STORED : INTAKE_REJECTED;
        (void)err_set(&b->errs[i], b->ends[i] == REFUSED ? ERR_INPUT : ERR_UNAVAILABLE, "made up");
        b->rows[i].err = &b->errs[i];
    }
}

/* What one process has counted. */
struct process {
    int64_t alloc, inuse, at_ns, duration_ns;
};

static void heap(const struct process *p, struct buf *out)
{
    struct gen_pprof g;

    gen_pprof_init(&g);
    gen_type(&g, "alloc_space", "bytes");
    gen_type(&g, "inuse_space", "bytes");
    g.time_ns = p->at_ns;
    g.duration_ns = p->duration_ns;
    uint64_t one = gen_location(&g, gen_function(&g, "one", "a.go"), 1);
    uint64_t two = gen_location(&g, gen_function(&g, "two", "a.go"), 2);
    gen_sample(&g, &one, 1, (int64_t[]){ p->alloc / 3, p->inuse }, 2);
    gen_sample(&g, &two, 1, (int64_t[]){ p->alloc - p->alloc / 3, 0 }, 2);
    gen_pprof_finish(&g, out);
    gen_pprof_deinit(&g);
}

static void request(const struct process *p, size_t n, const char *instance, struct buf *out)
{
    struct buf labels, series, sample, body;

    buf_init(&labels, KIB);
    buf_init(&series, MIB);
    const char *const pairs[][2] = { { "__name__", "memory" },
                                     { "job", "j" },
                                     { "instance", instance } };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct buf pair;
        buf_init(&pair, KIB);
        gen_bytes(&pair, 1, str_c(pairs[i][0]));
        gen_bytes(&pair, 2, str_c(pairs[i][1]));
        gen_bytes(&labels, 1, buf_str(&pair));
        buf_deinit(&pair);
    }
    gen_bytes(&series, 1, buf_str(&labels));
    for (size_t i = 0; i < n; i++) {
        buf_init(&sample, MIB);
        buf_init(&body, MIB);
        heap(&p[i], &body);
        gen_bytes(&sample, 1, buf_str(&body));
        gen_bytes(&series, 2, buf_str(&sample));
        buf_deinit(&sample);
        buf_deinit(&body);
    }
    buf_init(out, MIB);
    gen_bytes(out, 2, buf_str(&series));
    buf_deinit(&series);
    buf_deinit(&labels);
}

static void turn_begin(struct bed *b, struct parca_turn *t)
{
    *t = (struct parca_turn){ .since = b->since, .tenant = STR("tenant"), .alone = b->alone };
    b->rows_len = 0;
}

static void decode(struct bed *b, struct parca_turn *t, struct str message)
{
    const struct parca_opts o = { .drop_labels = "", .seed = 1, .turn = t };
    struct err e = { 0 };

    if (parca_raw_push(message, &o, &b->sink, &e))
        fail_msg("%s", e.text);
}

/* One request with n profiles; the ends of its rows are in b->ends. */
static void send_all(struct bed *b, const struct process *p, size_t n, const char *instance)
{
    struct parca_turn t;
    struct buf message;

    request(p, n, instance, &message);
    turn_begin(b, &t);
    decode(b, &t, buf_str(&message));
    assert_int_equal(t.rows, b->rows_len);
    finish_rows(b);
    parca_turn_end(&t, &(struct intake_result){ .rows = b->rows, .rows_len = b->rows_len });
    buf_deinit(&message);
}

static void send_one(struct bed *b, int64_t alloc, int64_t seconds, enum end end)
{
    const struct process p = { alloc, 100, NOW_NS - 3600 * SECOND + seconds * SECOND, 0 };

    for (size_t i = 0; i < ROWS; i++)
        b->ends[i] = end;
    send_all(b, &p, 1, "one");
}

/* ---- cases ---------------------------------------------------------------------------------- */

struct step {
    int64_t alloc, seconds;
    enum end end;
    int64_t want; /* sum of alloc_space that is stored afterwards */
};

static void check_steps(const char *name, bool alone, const struct step *s, size_t n)
{
    struct bed b;

    bed_init(&b, alone);
    for (size_t i = 0; i < n; i++) {
        send_one(&b, s[i].alloc, s[i].seconds, s[i].end);
        if (b.alloc != s[i].want)
            fail_msg("%s, step %zu: %" PRId64 " stored, want %" PRId64, name, i, b.alloc,
                     s[i].want);
    }
    bed_free(&b);
}
#define CHECK_STEPS(name, alone, ...)                                             \
    do {                                                                          \
        const struct step steps_[] = { __VA_ARGS__ };                             \
        check_steps((name), (alone), steps_, sizeof(steps_) / sizeof(steps_[0])); \
    } while (0)

static void test_growth(void **state)
{
    (void)state;
    CHECK_STEPS("the first counts nothing", true, { 1000, 0, OK, 0 }, { 1100, 10, OK, 100 },
                { 1150, 20, OK, 150 }, { 1150, 30, OK, 150 });
    CHECK_STEPS("a process that was started again", true, { 1000, 0, OK, 0 }, { 1100, 10, OK, 100 },
                { 30, 20, OK, 130 }, { 50, 30, OK, 150 });
    CHECK_STEPS("the same one again", true, { 1000, 0, OK, 0 }, { 1100, 10, OK, 100 },
                { 1100, 10, OK, 100 }, { 1200, 20, OK, 200 });
    CHECK_STEPS("an older one", true, { 1000, 0, OK, 0 }, { 1100, 20, OK, 100 },
                { 1050, 10, OK, 100 }, { 1200, 30, OK, 200 });
    CHECK_STEPS("a gap", true, { 1000, 0, OK, 0 }, { 1100, 10, OK, 100 }, { 1900, 600, OK, 900 });
    CHECK_STEPS("too long ago", true, { 1000, -4000, OK, 0 }, { 1900, 0, OK, 0 },
                { 1950, 10, OK, 50 });
}

static void test_not_stored(void **state)
{
    (void)state;
    CHECK_STEPS("refused", true, { 1000, 0, OK, 0 }, { 1100, 10, REFUSED, 0 },
                { 1150, 20, OK, 150 });
    CHECK_STEPS("the first refused", true, { 1000, 0, REFUSED, 0 }, { 1100, 10, OK, 0 },
                { 1150, 20, OK, 50 });
    CHECK_STEPS("lost", true, { 1000, 0, OK, 0 }, { 1100, 10, LOST, 0 }, { 1150, 20, OK, 100 },
                { 1200, 30, OK, 200 });
    CHECK_STEPS("lost, but stored", true, { 1000, 0, OK, 0 }, { 1100, 10, LOST_STORED, 100 },
                { 1150, 20, OK, 100 }, { 1200, 30, OK, 200 });
    CHECK_STEPS("sent again by its sender", true, { 1000, 0, OK, 0 },
                { 1100, 10, LOST_STORED, 100 }, { 1100, 10, OK, 100 }, { 1200, 20, OK, 200 });
    CHECK_STEPS("lost for long", true, { 1000, 0, OK, 0 }, { 1100, 10, LOST, 0 },
                { 1150, 20, LOST, 0 }, { 1200, 30, LOST_STORED, 100 }, { 1250, 40, LOST, 100 },
                { 1300, 50, OK, 100 }, { 1400, 60, OK, 400 });
}

/* Elsewhere another distributor counted 1000 to 1500 meanwhile. */
static void test_several_distributors(void **state)
{
    (void)state;
    CHECK_STEPS("back after one", false, { 900, 0, OK, 0 }, { 1000, 10, OK, 100 },
                { 1500, 30, OK, 100 }, { 1600, 50, OK, 200 });
    CHECK_STEPS("a failed store is no gap", false, { 900, 0, OK, 0 }, { 1000, 10, OK, 100 },
                { 1100, 20, LOST, 100 }, { 1200, 30, LOST, 100 }, { 1300, 40, OK, 200 },
                { 1400, 50, OK, 500 });
}

static void test_series_are_apart(void **state)
{
    (void)state;
    struct process a = { 1000, 5, NOW_NS - 100 * SECOND, 0 }, z = a;
    struct bed b;

    z.alloc = 50000;
    bed_init(&b, true);
    memset(b.ends, 0, sizeof(b.ends));
    send_all(&b, &a, 1, "a");
    send_all(&b, &z, 1, "z");
    a.at_ns += 10 * SECOND;
    z.at_ns += 10 * SECOND;
    a.alloc += 7;
    z.alloc += 70;
    send_all(&b, &a, 1, "a");
    send_all(&b, &z, 1, "z");
    assert_int_equal(b.alloc, 77);
    assert_int_equal(b.inuse, 20); /* gauges are stored unchanged */
    bed_free(&b);
}

static void test_delta_is_left_alone(void **state)
{
    (void)state;
    struct process p = { 1000, 5, NOW_NS - 100 * SECOND, 10 * SECOND };
    struct bed b;

    bed_init(&b, true);
    memset(b.ends, 0, sizeof(b.ends));
    send_all(&b, &p, 1, "a");
    p.at_ns += 10 * SECOND;
    p.alloc = 1200;
    send_all(&b, &p, 1, "a");
    assert_int_equal(b.alloc, 2200);
    assert_int_equal(parca_since_bytes(b.since), 0);
    bed_free(&b);
}

static void test_several_of_one_request(void **state)
{
    (void)state;
    struct process p[3];
    struct bed b;

    for (int i = 0; i < 3; i++)
        p[i] = (struct process){ 1000 + 10 * i, 5, NOW_NS - (100 - 10 * i) * SECOND, 0 };
    bed_init(&b, true);
    memset(b.ends, 0, sizeof(b.ends));
    send_all(&b, p, 3, "a");
    assert_int_equal(b.alloc, 20);
    p[0] = (struct process){ 1100, 5, NOW_NS - 60 * SECOND, 0 };
    send_all(&b, p, 1, "a");
    assert_int_equal(b.alloc, 100);
    bed_free(&b);
}

static void test_two_requests_at_once(void **state)
{
    (void)state;
    struct process p = { 1000, 5, NOW_NS - 100 * SECOND, 0 }, q = { 1100, 5, NOW_NS, 0 };
    struct parca_turn t, u;
    struct buf first, second;
    struct bed b;

    bed_init(&b, true);
    memset(b.ends, 0, sizeof(b.ends));
    request(&p, 1, "a", &first);
    request(&q, 1, "a", &second);
    turn_begin(&b, &t);
    decode(&b, &t, buf_str(&first));
    turn_begin(&b, &u);
    decode(&b, &u, buf_str(&second));
    assert_int_equal(b.rows_len, 1);
    assert_int_equal(b.rows[0].outcome, INTAKE_REJECTED);
    assert_int_equal(b.errs[0].code, ERR_BUSY);
    parca_turn_end(&u, &(struct intake_result){ .rows = b.rows, .rows_len = 1 });
    b.rows[0].outcome = INTAKE_STORED;
    parca_turn_end(&t, &(struct intake_result){ .rows = b.rows, .rows_len = 1 });
    turn_begin(&b, &u);
    decode(&b, &u, buf_str(&second));
    assert_int_equal(b.pending[0].alloc, 100);
    parca_turn_end(&u, NULL);
    buf_deinit(&first);
    buf_deinit(&second);
    bed_free(&b);
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    struct process p = { 1000, 5, NOW_NS - 1000 * SECOND, 0 };
    char name[16];
    struct bed b;

    bed_init(&b, true);
    parca_since_free(b.since);
    b.since = parca_since_new(20 * KIB);
    memset(b.ends, 0, sizeof(b.ends));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof(name), "i%d", i);
            send_all(&b, &p, 1, name);
            assert_true(parca_since_bytes(b.since) <= 20 * KIB);
            b.stored_len = 0;
        }
        p.at_ns += 10 * SECOND;
        p.alloc += 10;
    }
    assert_int_equal(b.alloc, 0); /* each was forgotten before it came again */
    send_all(&b, &p, 1, "i999");
    assert_int_equal(b.alloc, 10); /* the newest was not */
    parca_since_shrink(b.since, 0);
    assert_int_equal(parca_since_bytes(b.since), 0);
    p.alloc += 10;
    p.at_ns += 10 * SECOND;
    send_all(&b, &p, 1, "i999");
    assert_int_equal(b.alloc, 10);
    bed_free(&b);
}

/* Stores that fail as they like: nothing counts twice, and once stores succeed, nothing is lost.
 * What a doubtful profile brought may be lost only if it is refused later. */
static void test_random(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    struct prng r;

    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&r, seed);
    for (int round = 0; round < 100; round++) {
        int64_t alloc = 1000, grown = 0, at = 0;
        struct bed b;
        bed_init(&b, true);
        send_one(&b, alloc, at, OK);
        for (int i = 0; i < 60; i++) {
            static const enum end ends[] = { OK, LOST, LOST_STORED, REFUSED };
            enum end end = ends[prng_below(&r, round % 2 ? 3 : 4)];
            int64_t more = 1 + (int64_t)prng_below(&r, 50);
            alloc += more;
            grown += more;
            at += 5 + (int64_t)prng_below(&r, 30);
            send_one(&b, alloc, at, end);
            assert_true(b.alloc <= grown);
            if (end == OK && prng_below(&r, 2)) { /* its sender got no answer */
                send_one(&b, alloc, at, OK);
                assert_true(b.alloc <= grown);
            }
        }
        for (int i = 0; i < 2; i++)
            send_one(&b, ++alloc, at += 10, OK);
        assert_true(b.alloc <= grown + 2 && b.alloc > 0);
        if (round % 2)
            assert_int_equal(b.alloc, grown + 2);
        bed_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_not_stored),
        cmocka_unit_test(test_several_distributors),
        cmocka_unit_test(test_series_are_apart),
        cmocka_unit_test(test_delta_is_left_alone),
        cmocka_unit_test(test_several_of_one_request),
        cmocka_unit_test(test_two_requests_at_once),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
