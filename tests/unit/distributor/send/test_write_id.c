/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/wr.h"
#include "distributor/send/write_id.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

/* From the reference implementation: key 00..0f, input 00 01 02 ..., of the lengths given. */
static void test_siphash(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint8_t want[16];
    } rows[] = {
        { 0,
          { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
            0x02, 0x93 } },
        { 1,
          { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
            0xfc, 0x45 } },
    };
    uint8_t key[16], in[64];
    struct write_secret k;

    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    k.k0 = get_u64le(key);
    k.k1 = get_u64le(key + 8);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct hash128 h = siphash128(&k, in, rows[i].n);
        assert_true(h.lo == get_u64le(rows[i].want) && h.hi == get_u64le(rows[i].want + 8));
    }
}

struct ids {
    size_t n;
    uint8_t id[8][WRITE_ID_BYTES];
    enum write_key kind;
};

/* Decodes and gives each series its id. */
static struct ids ids_of(const struct ingest_raw *raw, struct str body, const char *key,
                         const struct write_secret *secret)
{
    struct limits l = limits_default();
    struct dist_push d;
    struct ids out = { 0 };
    struct err e;

    if (dist_decode_raw(&d, raw, body, &l, &e))
        fail_msg("%s", e.text);
    struct write_base base = write_base_of(secret, &(struct write_sender){ .key = str_c(key) },
                                           &d.in, &d.push, body, env_real());
    out.kind = base.kind;
    out.n = d.push.series_len;
    for (size_t i = 0; i < out.n; i++)
        write_id(secret, &base, &d.push.series[i], out.id[i]);
    dist_push_free(&d);
    return out;
}

static bool same(const struct ids *a, const struct ids *b)
{
    return a->n == b->n && memcmp(a->id, b->id, a->n * WRITE_ID_BYTES) == 0;
}

static void profile(struct buf *b, int64_t time_ns)
{
    struct gen_pprof g;

    gen_pprof_init(&g);
    gen_type(&g, "samples", "count");
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, (int64_t[]){ 1, 2 }, 2);
    g.time_ns = time_ns;
    buf_init(b, MIB);
    gen_pprof_finish(&g, b);
    gen_pprof_deinit(&g);
}

static void test_what_is_the_same(void **state)
{
    (void)state;
    const struct write_secret t1 = write_secret_tenant(&(struct write_secret){ 1, 2 }, STR("t1"));
    const struct write_secret t2 = write_secret_tenant(&(struct write_secret){ 1, 2 }, STR("t2"));
    struct ingest_raw raw = { .name = STR("app"), .format = STR("pprof"), .from = STR("now-10s") };
    struct buf fine, coarse, other;
    struct ids a, b;

    profile(&fine, INT64_C(1789999990123456789));
    profile(&other, INT64_C(1789999990123456790));
    profile(&coarse, INT64_C(1789999990000000000));

    /* A body with its own fine time: a retry is the same push, series by series apart. */
    a = ids_of(&raw, buf_str(&fine), NULL, &t1);
    b = ids_of(&raw, buf_str(&fine), NULL, &t1);
    assert_int_equal(a.kind, WRITE_KEY_BODY);
    assert_int_equal(a.n, 2);
    assert_true(same(&a, &b));
    assert_memory_not_equal(a.id[0], a.id[1], WRITE_ID_BYTES);
    /* Another body, name, time text, rate, or tenant: another push. */
    b = ids_of(&raw, buf_str(&other), NULL, &t1);
    assert_false(same(&a, &b));
    b = ids_of(&raw, buf_str(&fine), NULL, &t2);
    assert_false(same(&a, &b));
    raw.name = STR("app{pod=2}");
    b = ids_of(&raw, buf_str(&fine), NULL, &t1);
    assert_false(same(&a, &b));
    raw.name = STR("app");
    raw.from = STR("now-11s");
    b = ids_of(&raw, buf_str(&fine), NULL, &t1);
    assert_false(same(&a, &b));
    raw.from = STR("now-10s");

    /* Whole seconds, and text, prove nothing: never the same. */
    a = ids_of(&raw, buf_str(&coarse), NULL, &t1);
    b = ids_of(&raw, buf_str(&coarse), NULL, &t1);
    assert_int_equal(a.kind, WRITE_KEY_RANDOM);
    assert_false(same(&a, &b));
    raw.format = STR("folded");
    a = ids_of(&raw, STR("a 1\n"), NULL, &t1);
    b = ids_of(&raw, STR("a 1\n"), NULL, &t1);
    assert_false(same(&a, &b));

    /* A key makes them so, whatever the body; in its own tenant only. */
    a = ids_of(&raw, STR("a 1\n"), "key-1", &t1);
    b = ids_of(&raw, STR("a 2\n"), "key-1", &t1);
    assert_int_equal(a.kind, WRITE_KEY_CLIENT);
    assert_true(same(&a, &b));
    b = ids_of(&raw, STR("a 1\n"), "key-2", &t1);
    assert_false(same(&a, &b));
    b = ids_of(&raw, STR("a 1\n"), "key-1", &t2);
    assert_false(same(&a, &b));
    raw.name = STR("app{pod=2}"); /* other series under one key */
    b = ids_of(&raw, STR("a 1\n"), "key-1", &t1);
    assert_false(same(&a, &b));
    buf_deinit(&fine);
    buf_deinit(&coarse);
    buf_deinit(&other);
}

static void test_multipart_boundary(void **state)
{
    (void)state;
    const struct write_secret s = { 3, 4 };
    struct ids ids[2];
    struct buf body, p;

    profile(&p, INT64_C(1789999990123456789));
    for (int i = 0; i < 2; i++) { /* a client makes up a new boundary for each attempt */
        char type[64];
        struct ingest_raw raw = { .name = STR("app") };
        snprintf(type, sizeof(type), "multipart/form-data; boundary=x%d", i);
        raw.content_type = str_c(type);
        buf_init(&body, MIB);
        buf_addf(
            &body,
            "--x%d\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"f\"\r\n\r\n", i);
        buf_add_str(&body, buf_str(&p));
        buf_addf(&body, "\r\n--x%d--\r\n", i);
        ids[i] = ids_of(&raw, buf_str(&body), NULL, &s);
        buf_deinit(&body);
    }
    assert_int_equal(ids[0].kind, WRITE_KEY_BODY);
    assert_true(same(&ids[0], &ids[1]));
    buf_deinit(&p);
}

static void test_secret(void **state)
{
    (void)state;
    char dir[] = "/tmp/embertree-test-XXXXXX", sub[64], file[96];
    struct write_secret a, b, c;
    struct err e;

    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof(sub), "%s/data", dir);
    snprintf(file, sizeof(file), "%s/write-id-secret", sub);
    assert_int_equal(write_secret_load(&a, "", sub, env_real(), &e), 0); /* made, with the folder */
    assert_int_equal(write_secret_load(&b, "", sub, env_real(), &e), 0); /* found again */
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(write_secret_load(&c, "0123456789abcdef", sub, env_real(), &e), 0);
    assert_memory_not_equal(&a, &c, sizeof(a));
    assert_int_equal(write_secret_load(&c, "short", sub, env_real(), &e), ERR_CONFIG);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(write_secret_load(&c, "", sub, env_real(), &e), 0); /* another one */
    assert_memory_not_equal(&a, &c, sizeof(a));
    FILE *f = fopen(file, "w"); /* emptied by the operator: an error, not a new secret */
    assert_non_null(f);
    fclose(f);
    assert_int_equal(write_secret_load(&c, "", sub, env_real(), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, file));
    unlink(file);
    rmdir(sub);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash),
        cmocka_unit_test(test_what_is_the_same),
        cmocka_unit_test(test_multipart_boundary),
        cmocka_unit_test(test_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
