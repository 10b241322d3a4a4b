/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof bodies of all forms, decoded from nothing and with the known samples of their service, mean
 * what a plain slow decoder reads: series, stacks with all parts of their frames, values, left-out
 * profiles. Bodies are as long as their memory, so that a sanitizer sees reads past them. SEED=n is
 * another run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/pprof/symbol_session.h"
#include "tests/lib/gen/pprof_forms.h"
#include "tests/lib/roles/dist_push.h"

enum { ROUNDS = 40, BODIES = 4 };

struct service {
    struct symbol_session *known;
    size_t bytes_max, known_pushes;
};

static struct symbol_session *take(void *cookie, const struct push *push)
{
    static const uint8_t session[SYMBOL_SESSION_BYTES] = "a session";
    struct service *s = cookie;

    (void)push;
    if (s->known && atomic_load(&s->known->dead)) {
        symbol_session_unref(s->known);
        s->known = NULL;
    }
    if (!s->known)
        s->known = symbol_session_new(session, UINT64_C(0x243f6a8885a308d3),
                                      limits_default().symbol_keep_bytes, s->bytes_max);
    return symbol_session_ref(s->known);
}

static void put(void *cookie, struct symbol_session *k)
{
    const struct service *s = cookie;

    assert_ptr_equal(k, s->known);
}

/* s: NULL, nothing is known. */
static void decode(struct service *s, struct str body, struct dist_push *d)
{
    struct ingest_raw raw = { .name = STR("app"), .format = STR("pprof") };
    struct limits l = limits_default();
    struct err e = { 0 };

    *d = (struct dist_push){ .arena = arena_new((size_t)l.decode_bytes) };
    push_init(&d->push, d->arena, &l, UINT64_C(0x5eed));
    if (s)
        d->push.memory = (struct push_memory){ take, put, s };
    if (ingest_parse(&raw, &l, DIST_NOW_MS, d->arena, &d->in, &e) ||
        formats_decode(&(struct decode_job){ &d->in, &l, DIST_NOW_MS, &d->push }, body, &e))
        fail_msg("%s", e.text);
    if (s)
        s->known_pushes += d->push.known != NULL;
    assert_int_equal(push_known_expand(&d->push, &e), 0);
    dist_check(&d->push, &l);
}

/* As the slow decoder writes them. */
static void rows_of(const struct push *p, struct buf *out)
{
    buf_init(out, 512 * MIB);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        for (size_t k = 0; k < s->len; k++) {
            buf_addf(out, "%.*s\t%.*s\t", STR_ARG(labels_get(&s->labels, STR("__type__"))),
                     STR_ARG(labels_get(&s->labels, STR("pod"))));
            dist_stack(&p->stacks, s->nodes[k], out);
            buf_addf(out, "\t%" PRIu64 "\n", s->values[k]);
        }
    }
    (void)pprof_forms_add_up(out);
}

/* Names the first line that differs, and its rest. */
static void same_text(const char *what, const struct buf *got, const struct buf *want)
{
    struct str g = buf_str(got), w = buf_str(want), a, b;
    bool more_a = true, more_b = true;
    size_t n = 0, at = 0;

    if (str_eq(g, w))
        return;
    do {
        n++;
        if (!str_next(&g, '\n', &more_a, &a))
            a = STR("nothing");
        if (!str_next(&w, '\n', &more_b, &b))
            b = STR("nothing");
    } while (str_eq(a, b));
    while (at < a.len && at < b.len && a.ptr[at] == b.ptr[at])
        at++;
    a = str_sub(a, at, at + 200);
    b = str_sub(b, at, at + 200);
    fail_msg("%s, row %zu, byte %zu: got\n%.*s\nwant\n%.*s", what, n, at, STR_ARG(a), STR_ARG(b));
}

static void check(const char *what, const struct push *p, const struct pprof_forms_read *want)
{
    struct buf rows;

    rows_of(p, &rows);
    same_text(what, &rows, &want->rows);
    buf_deinit(&rows);
    assert_int_equal(p->samples, want->samples);
    assert_int_equal(p->drops[DROP_VALUE_COUNT], want->value_count);
    assert_int_equal(p->drops[DROP_NEGATIVE], want->negative);
    assert_int_equal(p->drops[DROP_UNKNOWN_LOCATION], want->unknown_location);
    assert_true(p->drops[CHANGE_SATURATED] || !want->saturated);
}

static void one_body(struct service *s, struct str body, struct pprof_forms_read *sum)
{
    struct pprof_forms_read want;
    struct dist_push plain, known;
    struct buf a, b;

    pprof_forms_read(body, &want);
    decode(NULL, body, &plain);
    check("from nothing", &plain.push, &want);
    dist_whole(&plain.push, &a);
    for (int again = 0; again < 2; again++) {
        decode(s, body, &known);
        check(again ? "known" : "with known samples", &known.push, &want);
        dist_same_drops(&known.push, &plain.push);
        dist_whole(&known.push, &b); /* exemplars too */
        same_text("beside from nothing", &b, &a);
        buf_deinit(&b);
        dist_push_free(&known);
    }
    sum->samples += want.samples;
    sum->value_count += want.value_count;
    sum->negative += want.negative;
    sum->unknown_location += want.unknown_location;
    dist_push_free(&plain);
    buf_deinit(&a);
    buf_deinit(&want.rows);
}

static void test_forms(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 2;
    struct pprof_forms_read sum = { 0 };
    size_t pushes = 0;
    struct prng r;

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&r, seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct service s = { .bytes_max = round % 4 ? 64 * MIB : 48 * KIB };
        for (int i = 0; i < BODIES; i++) {
            struct buf body;
            pprof_forms_body(&r, &body);
            char *exact = xmemdup(body.ptr, body.len);
            one_body(&s, str_n(exact, body.len), &sum);
            xfree(exact);
            buf_deinit(&body);
        }
        pushes += s.known_pushes;
        symbol_session_unref(s.known);
    }
    /* Bodies in which nothing is odd would prove nothing; nor would those that are not walked. */
    assert_true(sum.value_count > 100 && sum.negative > 100 && sum.unknown_location > 100);
    assert_true(sum.samples > 3 * (sum.value_count + sum.negative + sum.unknown_location));
    assert_true(pushes > ROUNDS * BODIES);
    printf("%" PRIu64 " samples, %zu pushes with known samples\n", sum.samples, pushes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
