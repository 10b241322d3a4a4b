/* SPDX-License-Identifier: Apache-2.0
 *
 * OTLP requests that are asked to cost much, or that cannot be told apart: bounded, and refused by
 * name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "distributor/otlp/otlp_push.h"
#include "tests/lib/gen/gen_otlp.h"
#include "tests/lib/roles/batch_keep.h"

#define NOW_MS INT64_C(1790000000000)
#define BODY   (64 * MIB)

static void varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_add_c(b, (char)(v | 0x80));
    buf_add_c(b, (char)v);
}

static void bytes(struct buf *b, uint32_t field, struct str s)
{
    varint(b, field << 3 | 2);
    varint(b, s.len);
    buf_add_str(b, s);
}

static void message(struct buf *b, uint32_t field, struct buf *m)
{
    bytes(b, field, buf_str(m));
    buf_deinit(m);
}

static struct buf fresh(void)
{
    struct buf b;

    buf_init(&b, BODY);
    return b;
}

/* A dictionary whose stack 1 has `depth` times the location 1, which has the functions 1 .. n, all
 * called `name`; type "cpu". */
static void dictionary(size_t depth, size_t n, struct str name, struct buf *out)
{
    struct buf d = fresh(), stack = fresh(), list = fresh(), location = fresh();

    for (size_t i = 0; i < depth; i++)
        varint(&list, 1);
    message(&stack, 1, &list);
    bytes(&d, 2, STR(""));
    for (size_t i = 1; i <= n; i++) {
        struct buf line = fresh();
        varint(&line, 1 << 3);
        varint(&line, i);
        message(&location, 3, &line);
    }
    message(&d, 2, &location);
    bytes(&d, 3, STR(""));
    for (size_t i = 1; i <= n; i++)
        bytes(&d, 3, STR("\x08\x02"));
    bytes(&d, 5, STR(""));
    bytes(&d, 5, STR("cpu"));
    bytes(&d, 5, name);
    bytes(&d, 7, STR(""));
    message(&d, 7, &stack);
    message(out, 2, &d);
}

/* `profiles` of `samples` each, of layout 1.10: stack 1, value 1. */
static void request_of(size_t profiles, size_t samples, struct buf *out)
{
    struct buf resource = fresh(), scope = fresh(), p = fresh();

    bytes(&p, 1, STR("\x08\x01"));
    for (size_t i = 0; i < samples; i++)
        bytes(&p, 2, STR("\x08\x01\x22\x01\x01"));
    for (size_t i = 0; i < profiles; i++)
        bytes(&scope, 2, buf_str(&p));
    buf_deinit(&p);
    message(&resource, 2, &scope);
    message(out, 1, &resource);
}

static void request(size_t depth, size_t profiles, size_t samples, struct buf *out)
{
    request_of(profiles, samples, out);
    dictionary(depth, 1, STR("fn"), out);
}

static int decode(struct str body, struct batch_keep *k, struct err *e)
{
    return otlp_decode_proto(body, OTLP_AUTO, &k->sink, e);
}

/* 100,000 samples of one stack of 1,000 frames: 10^8 frames if each were walked. */
static void test_amplified(void **state)
{
    (void)state;
    struct limits l;
    struct batch_keep k;
    struct buf b = fresh();
    struct err e;

    batch_keep_init(&k, NULL, NOW_MS);
    l = k.limits;
    l.decode_bytes = 24 * MIB; /* everything that is allocated counts against it */
    batch_keep_init(&k, &l, NOW_MS);
    request(1000, 1, 100000, &b);
    if (decode(buf_str(&b), &k, &e))
        fail_msg("%s", e.text);
    assert_int_equal(batch_keep_total(&k, NULL), 100000);
    const struct batch_kept *p = k.pushes.ptr[0];
    assert_true(arena_used(p->arena) + stacks_bytes(&p->push.stacks) < 8 * MIB);
    batch_keep_free(&k);
    l.decode_bytes = MIB;
    batch_keep_init(&k, &l, NOW_MS);
    assert_int_equal(decode(buf_str(&b), &k, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "decode_bytes"));
    assert_int_equal(k.pushes.len, 0);
    batch_keep_free(&k);
    buf_deinit(&b);
}

/* ---- a sink that keeps nothing -------------------------------------------------------------- */

static struct arena *arena;
static struct push push;
static size_t begun, rejected;

static struct push *drop_begin(void *cookie, const struct ingest *in, struct err *e)
{
    const struct limits *l = cookie;

    (void)in;
    (void)e;
    arena_reset(arena);
    push_init(&push, arena, l, 7);
    begun++;
    return &push;
}
static int drop_end(void *cookie, struct push *p, struct str identity, struct str id, struct err *e)
{
    (void)cookie;
    (void)identity;
    (void)id;
    (void)e;
    push_deinit(p);
    return 0;
}
static void drop_reject(void *cookie, struct push *p, uint64_t profiles, const struct err *why)
{
    (void)cookie;
    (void)why;
    rejected += profiles;
    if (p)
        push_deinit(p);
}

/* Each profile costs ten bytes and would walk 8,000 frames. */
static void test_work(void **state)
{
    (void)state;
    struct batch_keep k;
    struct batch_sink sink;
    struct buf b = fresh();
    struct err e = { 0 };

    batch_keep_init(&k, NULL, NOW_MS);
    sink =
        (struct batch_sink){ drop_begin, drop_end, drop_reject, &k.limits, NOW_MS, 0, &k.limits };
    arena = arena_new(256 * MIB);
    begun = rejected = 0;
    request(8000, 30000, 1, &b);
    assert_int_equal(otlp_decode_proto(buf_str(&b), OTLP_AUTO, &sink, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "several requests"));
    assert_true(begun > 10000 && begun < 20000 && rejected == 1);
    arena_free(arena);
    buf_deinit(&b);
    batch_keep_free(&k);
}

/* Any number of functions may have one long name: looked at once per push, and that is work. */
static void test_long_names(void **state)
{
    (void)state;
    struct batch_keep k;
    struct batch_sink sink;
    struct buf b = fresh(), name = fresh();
    struct err e = { 0 };

    for (size_t i = 0; i < 100000; i++)
        buf_add_c(&name, 'n');
    batch_keep_init(&k, NULL, NOW_MS);
    request_of(1, 1, &b);
    dictionary(1, 200, buf_str(&name), &b);
    assert_int_equal(decode(buf_str(&b), &k, &e), 0);
    assert_int_equal(k.pushes.ptr[0]->push.drops[CHANGE_SYMBOL], 1);
    assert_int_equal(k.pushes.ptr[0]->push.stacks.frame_func.len, 1);
    batch_keep_free(&k);

    batch_keep_init(&k, NULL, NOW_MS);
    sink =
        (struct batch_sink){ drop_begin, drop_end, drop_reject, &k.limits, NOW_MS, 0, &k.limits };
    arena = arena_new(256 * MIB);
    begun = rejected = 0;
    buf_reset(&b);
    request_of(60000, 1, &b);
    dictionary(1, 1, buf_str(&name), &b);
    assert_int_equal(otlp_decode_proto(buf_str(&b), OTLP_AUTO, &sink, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "bytes of names"));
    assert_true(begun > 40000 && begun < 45000 && rejected == 1);
    arena_free(arena);
    buf_deinit(&b);
    buf_deinit(&name);
    batch_keep_free(&k);
}

static void test_deep_values(void **state)
{
    (void)state;
    struct buf json = fresh();
    struct batch_keep k;
    struct err e;

    batch_keep_init(&k, NULL, NOW_MS);
    buf_addf(&json, "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"key\":\"k\","
                    "\"value\":{\"kvlistValue\":");
    for (int i = 0; i < 200; i++)
        buf_addf(&json, "{\"values\":[");
    assert_int_equal(otlp_decode_json(buf_str(&json), &k.sink, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "nested"));
    batch_keep_free(&k);
    buf_deinit(&json);
}

static void refused(struct str body, const char *words)
{
    struct batch_keep k;
    struct err e = { 0 };

    batch_keep_init(&k, NULL, NOW_MS);
    assert_int_equal(decode(body, &k, &e), ERR_INPUT);
    if (!strstr(e.text, words))
        fail_msg("%s, want %s", e.text, words);
    assert_int_equal(k.pushes.len, 0);
    batch_keep_free(&k);
}

static void test_layouts_by_name(void **state)
{
    (void)state;
    struct buf b = fresh(), profile = fresh(), scope = fresh(), resource = fresh();

    /* 1.3: a container with its times in eight bytes. */
    refused(STR("\x0a\x0d\x12\x0b\x12\x09\x11\x01\x02\x03\x04\x05\x06\x07\x08"), "1.3 or older");
    /* 1.6: tables beside the resources. */
    refused(STR("\x0a\x06\x12\x04\x12\x02\x08\x01\x1a\x00"), "1.6");
    refused(STR("\x0a\x06\x12\x04\x12\x02\x0a\x00"), "no dictionary");
    /* 1.9 with values 1 and 2 at two times, or 1.10 with attributes 1 and 2: one of them is also
     * referred to by a mapping, the other is not. */
    bytes(&profile, 2,
          STR("\x08\x01\x12\x02\x01\x02\x2a\x10"
              "aaaaaaaabbbbbbbb"));
    bytes(&profile, 1, STR("\x08\x01"));
    message(&scope, 2, &profile);
    message(&resource, 2, &scope);
    message(&b, 1, &resource);
    bytes(&b, 2,
          STR("\x0a\x03\x2a\x01\x01\x12\x00\x2a\x00\x2a\x03"
              "cpu\x32\x00\x32\x02\x08\x01\x32\x02\x08\x01\x3a\x00\x3a\x03\x0a\x01\x00"));
    refused(buf_str(&b), "cannot tell which revision");
    buf_deinit(&b);
}

/* As async-profiler 4.1 and 4.2 write it (1.7): the first string is the type, none is empty; one
 * sample of two ticks and 20 ns. */
static void test_type_is_first_string(void **state)
{
    (void)state;
    struct buf b = fresh(), profile = fresh(), scope = fresh(), resource = fresh();
    struct batch_keep k;
    struct err e;

    bytes(&profile, 1, STR("\x08\x00\x10\x01\x18\x02"));
    bytes(&profile, 1, STR("\x08\x00\x10\x02\x18\x02"));
    bytes(&profile, 2, STR("\x08\x00\x10\x01\x1a\x02\x02\x14"));
    bytes(&profile, 3, STR("\x00"));
    message(&scope, 2, &profile);
    message(&resource, 2, &scope);
    message(&b, 1, &resource);
    bytes(&b, 2,
          STR("\x0a\x00\x12\x06\x08\x00\x1a\x02\x08\x00\x1a\x02\x08\x03"
              "*\x06itimer*\x05"
              "count*\x02ns*\x04main"));
    batch_keep_init(&k, NULL, NOW_MS);
    if (decode(buf_str(&b), &k, &e))
        fail_msg("%s", e.text);
    assert_int_equal(batch_keep_total(&k, "itimer"), 22);
    assert_int_equal(batch_keep_total(&k, NULL), 22);
    batch_keep_free(&k);
    buf_deinit(&b);
}

/* Profiles that cannot be told apart are two profiles still, and a retry repeats their ids. */
static void test_twins(void **state)
{
    (void)state;
    struct batch_keep k[2];
    struct gen_otlp g;
    struct buf b = fresh();
    struct err e;

    gen_otlp_canary(&g, UINT64_C(1790000000) * 1000000000 + 17);
    gen_otlp_copy(&g, 0);
    gen_otlp_copy(&g, 0)->has_id = true;
    memset(g.profiles.ptr[2].id, 7, 16);
    gen_otlp_copy(&g, 2);
    gen_otlp_proto(&g, OTLP_110, 0, &b);
    for (size_t i = 0; i < 2; i++) {
        batch_keep_init(&k[i], NULL, NOW_MS);
        assert_int_equal(decode(buf_str(&b), &k[i], &e), 0);
        assert_int_equal(k[i].pushes.len, 4);
    }
    for (size_t i = 0; i < 4; i++) {
        const struct batch_kept *a = k[0].pushes.ptr[i], *c = k[1].pushes.ptr[i];
        assert_true(
            str_eq(str_n(a->identity, a->identity_len), str_n(c->identity, c->identity_len)));
        assert_true(str_eq(str_n(a->id, a->id_len), str_n(c->id, c->id_len)));
        assert_true((a->id != NULL) == (i >= 2));
    }
    const struct batch_kept *const *p = (const struct batch_kept *const *)k[0].pushes.ptr;
    assert_false(str_eq(str_n(p[0]->identity, p[0]->identity_len),
                        str_n(p[1]->identity, p[1]->identity_len)));
    assert_false(str_eq(str_n(p[2]->id, p[2]->id_len), str_n(p[3]->id, p[3]->id_len)));
    batch_keep_free(&k[0]);
    batch_keep_free(&k[1]);
    gen_otlp_free(&g);
    buf_deinit(&b);
}

/* Values over the limit and groups over the limit are both [overflow]: one series, nothing lost. */
static void test_overflow_is_one_series(void **state)
{
    (void)state;
    struct gen_otlp_attr attrs[] = { { .key = "k", .text = "longer than it may be" },
                                     { .key = "k", .text = "a" },
                                     { .key = "k", .text = "b" },
                                     { .key = "k", .text = "c" } };
    struct batch_keep k;
    struct limits l;
    struct gen_otlp g;
    struct buf b = fresh(), rows = fresh();
    struct err e;

    batch_keep_init(&k, NULL, NOW_MS);
    l = k.limits;
    l.series = 3;
    l.label_value_bytes = 20;
    gen_otlp_canary(&g, UINT64_C(1790000000) * 1000000000 + 17);
    for (uint32_t i = 0; i < 4; i++) {
        struct gen_otlp_sample s = g.profiles.ptr[0].samples.ptr[0];
        s.attrs[0] = i;
        s.attrs_len = 1;
        vec_push(&g.attrs, attrs[i]);
        vec_push(&g.profiles.ptr[0].samples, s);
    }
    gen_otlp_proto(&g, OTLP_110, 0, &b);
    batch_keep_init(&k, &l, NOW_MS);
    assert_int_equal(decode(buf_str(&b), &k, &e), 0);
    batch_keep_rows(&k, &rows); /* checks that no two series have equal labels */
    buf_add_c(&rows, '\0');
    assert_non_null(strstr(rows.ptr, "{k=[overflow],service.name=canary}\tfn1\t12\n"));
    assert_int_equal(batch_keep_total(&k, NULL), 5 * GEN_OTLP_CANARY);
    batch_keep_free(&k);
    gen_otlp_free(&g);
    buf_deinit(&b);
    buf_deinit(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amplified),       cmocka_unit_test(test_work),
        cmocka_unit_test(test_long_names),      cmocka_unit_test(test_deep_values),
        cmocka_unit_test(test_layouts_by_name), cmocka_unit_test(test_type_is_first_string),
        cmocka_unit_test(test_twins),           cmocka_unit_test(test_overflow_is_one_series),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
