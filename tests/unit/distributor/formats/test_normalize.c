/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "distributor/formats/normalize.h"

static const struct {
    const char *name, *want; /* want NULL: unchanged */
} rows[] = {
    { "", NULL },
    { "main.main", NULL },
    /* Go: shapes of type arguments, with brackets inside */
    { "slices.Sort[go.shape.[]string,go.shape.string]", "slices.Sort" },
    { "a.(*B[go.shape.interface {}]).Flush", "a.(*B).Flush" },
    { "b.(*T[go.shape.interface { Less(x.Item) bool }]).Ascend", "b.(*T).Ascend" },
    { "m.Copy[go.shape.map[string]int,go.shape.string].func1", "m.Copy.func1" },
    { "f[go.shape.int].g[go.shape.int]", "f.g" },
    { "f[go.shape.int", NULL }, /* cut off by its sender: left alone */
    { "f[...]", NULL },
    { "a[b]", NULL },
    /* JVM: lambdas, hidden classes, proxies, accessors, CGLIB */
    { "com.foo.Bar$$Lambda$14/0x0000000800066840.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda/0x00007f1234567890.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda+0x00007f1234567890.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda$14.0x0000000800066840.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda$14/1234567.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda$14.run", "com.foo.Bar$$Lambda_.run" },
    { "com.foo.Bar$$Lambda.run", NULL },
    { "java.lang.invoke.LambdaForm$MH/0x0000000800c04400.invoke",
      "java.lang.invoke.LambdaForm$MH_.invoke" },
    { "a.B$$InjectedInvoker/0x0000000800c04400.x", "a.B$$InjectedInvoker_.x" },
    { "[libc.so.6+0x0000000800c04400]", NULL }, /* an address of no class */
    { "x$y+0x12ab", NULL },                     /* too short for an address */
    { "jdk.proxy2.$Proxy123.get", "jdk.proxy.$Proxy.get" },
    { "jdk/proxy11/$Proxy5.invoke", "jdk/proxy/$Proxy.invoke" },
    { "jdk.proxy2.Other", NULL },
    { "com.sun.proxy.$Proxy.get", NULL },
    { "jdk.internal.reflect.GeneratedMethodAccessor12.invoke",
      "jdk.internal.reflect.GeneratedMethodAccessor_.invoke" },
    { "x.GeneratedMethodAccessor5.invoke", "x.GeneratedMethodAccessor_.invoke" }, /* same length */
    { "x.GeneratedConstructorAccessor7.newInstance",
      "x.GeneratedConstructorAccessor_.newInstance" },
    { "x.GeneratedSerializationConstructorAccessor1.n",
      "x.GeneratedSerializationConstructorAccessor_.n" },
    { "GoGenerated.MyGeneratedCode5", NULL },
    { "c.Foo$$EnhancerBySpringCGLIB$$1a2b3c4d.handle", "c.Foo$$EnhancerBySpringCGLIB.handle" },
    { "c.Foo$$FastClassBySpringCGLIB$$deadbeef.invoke", "c.Foo$$FastClassBySpringCGLIB.invoke" },
    { "c.Foo$$SpringCGLIB$$0.handle", NULL }, /* a stable number */
    /* libraries unpacked to a temporary file */
    { "libzstd-jni-1.5.1-16931311898282279136.so.Java_com_x", "libzstd-jni_.so.Java_com_x" },
    { "/tmp/libasyncProfiler-linux-arm64-17b9a1d8156277.so", "/tmp/libasyncProfiler_.so" },
    { "/tmp/libamazonCorrettoCryptoProvider109b39cf33c563eb.so",
      "/tmp/libamazonCorrettoCryptoProvider_.so" },
    { "/usr/lib/libzstd-jni.so", NULL },
    { "my.libzstd-jni-5.so", NULL },
    /* Rust: the hash behind a symbol; perf: maps of processes */
    { "core::ops::function::FnOnce::call_once::h0123456789abcdef",
      "core::ops::function::FnOnce::call_once" },
    { "<T as core::fmt::Debug>::fmt::hfedcba9876543210", "<T as core::fmt::Debug>::fmt" },
    { "a::h0123456789abcde", NULL },   /* 15 digits */
    { "a::h0123456789abcdefg", NULL }, /* not to the end */
    { "a::h0123456789abcdeX", NULL },
    { "::h0123456789abcdef", NULL }, /* nothing would be left */
    /* gperftools' pprof and jeprof, --collapsed */
    { "main<00000000000010c0>", "main" },
    { "std::sort(int*, int*)<00000000000a0a67>", "std::sort(int*, int*)" },
    { "core::f::h0123456789abcdef<00000000000010c0>", "core::f" },
    { "main<00000000000010c>", NULL }, /* 15 digits */
    { "main<0000000000001370>.part", NULL },
    { "X<00000000000010cg>", NULL },
    { "<00000000000010c0>", NULL }, /* nothing would be left */
    { "[perf-26421.map]", "[perf-_.map]" },
    { "/tmp/perf-7.map", "/tmp/perf-_.map" },
    { "my-perf-7.map", NULL },
    { "perf-a.map", NULL },
    /* several at once */
    { "a$$Lambda$1/0x0000000800066840.b[go.shape.int].$Proxy9", "a$$Lambda_.b.$Proxy" },
};

static void test_table(void **state)
{
    (void)state;
    struct buf tmp;

    buf_init(&tmp, MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str got = normalize_name(str_c(rows[i].name), &tmp);
        const char *want = rows[i].want ? rows[i].want : rows[i].name;
        if (!str_eqc(got, want))
            fail_msg("%s: %.*s, want %s", rows[i].name, STR_ARG(got), want);
        if (!rows[i].want)
            assert_ptr_equal(got.ptr, rows[i].name); /* nothing was copied */
    }
    buf_deinit(&tmp);
}

/* Names of 64 KiB of one thing: what follows a needle is not looked at for each of them. */
static void test_repeated(void **state)
{
    static const struct {
        const char *front, *again, *end;
        const char *want, *want_again; /* want_again NULL: unchanged */
    } long_rows[] = {
        { "f", "[go.shape.", "", NULL, NULL },
        { "f", "[go.shape.", "]", NULL, NULL }, /* the last one goes: below */
        { "f", "[go.shape.x].", "", "f", "." },
        { "C$x", ".0x12345678", "y", "C$x", "_" },
        { "", "/libzstd-jni", "", NULL, NULL },
        { "", "/libzstd-jni-1.so", "", "", "/libzstd-jni_.so" },
        { "f", "::h0123456789abcdef", "", "f", "" },
        { "f", "::h0123456789abcdef", "::h0123456789abcdeX", NULL, NULL },
        { "", "$Proxy1", "", "", "$Proxy" },
    };
    struct buf name, want, tmp;

    (void)state;
    buf_init(&tmp, MIB);
    buf_init(&name, MIB);
    buf_init(&want, MIB);
    for (size_t i = 0; i < ARRAY_LEN(long_rows); i++) {
        const char *again = long_rows[i].again, *want_again = long_rows[i].want_again;
        size_t n = 64 * KIB / strlen(again);
        buf_reset(&name);
        buf_reset(&want);
        buf_add_str(&name, str_c(long_rows[i].front));
        buf_add_str(&want, str_c(want_again ? long_rows[i].want : long_rows[i].front));
        for (size_t k = 0; k < n; k++) {
            buf_add_str(&name, str_c(again));
            if (i != 1 || k + 1 < n)
                buf_add_str(&want, str_c(want_again ? want_again : again));
        }
        buf_add_str(&name, str_c(long_rows[i].end));
        if (i != 1)
            buf_add_str(&want, str_c(long_rows[i].end));
        if (!str_eq(normalize_name(buf_str(&name), &tmp), buf_str(&want)))
            fail_msg("row %zu: %s, %zu times", i, again, n);
    }
    buf_deinit(&name);
    buf_deinit(&want);
    buf_deinit(&tmp);
}

static void test_paths(void **state)
{
    static const char *const paths[][2] = {
        { "/usr/lib/libc.so.6", NULL },
        { "main.go", NULL },
        { "", NULL },
        { "/", NULL },
        { "/proc/1234/root/app/x.py", "/proc/_/root/app/x.py" },
        { "/proc/self/exe", NULL },
        { "/proc/12ab/x", NULL },
        { "/srv/proc/12/x", NULL },
        { "/tmp/tmpk3v_9x2a/main.py", "/tmp/tmp_/main.py" },
        { "/tmp/tmpfiles.d/main.py", NULL },
        { "/tmp/_MEIx7Yq2b/lib.so", "/tmp/_MEI_/lib.so" },
        { "/tmp/jna-812/jna6712340.tmp", "/tmp/jna-_/jna_.tmp" },
        { "/run/user/1000/app-9f86d081/a", "/run/user/_/app-_/a" },
        { "/tmp/v2/deadbeef/a12.py", NULL }, /* letters only; too few digits */
        { "/home/x/v1234567/9f86d081884c/a.py", NULL },
        { "/var/lib/docker/overlay2/"
          "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08/merged/app",
          "/var/lib/docker/overlay2/_/merged/app" },
        { "/tmp/perf-1234.map", "/tmp/perf-_.map" },
        { "/tmp/libasyncProfiler-linux-arm64-17b9a1d8156277.so", "/tmp/libasyncProfiler_.so" },
    };
    struct buf tmp, again;

    (void)state;
    buf_init(&tmp, MIB);
    buf_init(&again, MIB);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct str got = normalize_path(str_c(paths[i][0]), &tmp);
        const char *want = paths[i][1] ? paths[i][1] : paths[i][0];
        if (!str_eqc(got, want))
            fail_msg("%s: %.*s, want %s", paths[i][0], STR_ARG(got), want);
        assert_true(str_eqc(normalize_path(got, &again), want));
    }
    buf_deinit(&tmp);
    buf_deinit(&again);
}

/* Once is enough, and never longer: over names glued from pieces of the table. */
static void test_idempotent(void **state)
{
    (void)state;
    struct buf one, two, name;
    struct prng p;

    prng_init(&p, 5);
    buf_init(&one, MIB);
    buf_init(&two, MIB);
    buf_init(&name, MIB);
    for (int i = 0; i < 20000; i++) {
        buf_reset(&name);
        for (uint64_t n = 1 + prng_below(&p, 4); n > 0; n--) {
            struct str s = str_c(rows[prng_below(&p, ARRAY_LEN(rows))].name);
            size_t from = (size_t)prng_below(&p, s.len + 1);
            buf_add_str(&name, str_sub(s, from, from + (size_t)prng_below(&p, 40)));
        }
        struct str first = normalize_name(buf_str(&name), &one);
        struct str again = normalize_name(first, &two);
        assert_true(first.len <= name.len);
        if (!str_eq(first, again) && !str_contains(buf_str(&name), STR("[go.shape.")))
            fail_msg("%.*s: %.*s, then %.*s", STR_ARG(buf_str(&name)), STR_ARG(first),
                     STR_ARG(again));
    }
    buf_deinit(&one);
    buf_deinit(&two);
    buf_deinit(&name);
}

/* Ids of machines wherever they stand, and all that is one digit short of one. */
static void test_ids(void **state)
{
    static const char hex[] = "0123456789abcdefABCDEF", other[] = "xyz/.Z-";
    struct buf path, want, tmp;
    struct prng p;

    (void)state;
    prng_init(&p, 11);
    buf_init(&path, MIB);
    buf_init(&want, MIB);
    buf_init(&tmp, MIB);
    for (int i = 0; i < 20000; i++) {
        buf_reset(&path);
        buf_reset(&want);
        buf_addf(&path, "/");
        buf_addf(&want, "/");
        for (uint64_t pieces = 1 + prng_below(&p, 4); pieces > 0; pieces--) {
            size_t at = path.len, n = 26 + (size_t)prng_below(&p, 12);
            for (uint64_t k = prng_below(&p, 70); k > 0; k--)
                buf_add_c(&path, other[prng_below(&p, sizeof(other) - 1)]);
            buf_add_c(&path, '-');
            buf_add(&want, path.ptr + at, path.len - at);
            at = path.len;
            for (size_t k = 0; k < n; k++)
                buf_add_c(&path, hex[prng_below(&p, sizeof(hex) - 1)]);
            if (n < 32)
                buf_add(&want, path.ptr + at, path.len - at);
            else
                buf_add_c(&want, '_');
        }
        assert_true(str_eq(normalize_path(buf_str(&path), &tmp), buf_str(&want)));
    }
    buf_deinit(&path);
    buf_deinit(&want);
    buf_deinit(&tmp);
}

/* A rule is found wherever in a name it applies, and never by bytes behind it. */
static void test_places(void **state)
{
    static const struct {
        const char *piece, *put;
    } pieces[] = {
        { "$$Lambda$14/0x0000000800066840", "$$Lambda_" },
        { "[go.shape.int]", "" },
        { "GeneratedMethodAccessor12", "GeneratedMethodAccessor_" },
        { "/libzstd-jni-1.5.so", "/libzstd-jni_.so" },
    };
    struct buf name, want, tmp;

    (void)state;
    buf_init(&name, MIB);
    buf_init(&want, MIB);
    buf_init(&tmp, MIB);
    for (size_t k = 0; k < ARRAY_LEN(pieces); k++)
        for (size_t before = 0; before < 40; before++)
            for (size_t after = 0; after < 40; after++) {
                buf_reset(&name);
                buf_reset(&want);
                buf_addf(&name, "/%.*s%s%.*s", (int)before,
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", pieces[k].piece, (int)after,
                         ".bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
                buf_addf(&want, "/%.*s%s%.*s", (int)before,
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", pieces[k].put, (int)after,
                         ".bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
                char *exact = test_malloc(name.len); /* a byte read behind it is seen */
                memcpy(exact, name.ptr, name.len);
                assert_true(str_eq(normalize_name(str_n(exact, name.len), &tmp), buf_str(&want)));
                assert_true(str_eq(normalize_name(str_n(exact, 0), &tmp), STR("")));
                test_free(exact);
            }
    buf_deinit(&name);
    buf_deinit(&want);
    buf_deinit(&tmp);
}

/* What is said to be left alone is left alone, wherever in the text it stands. */
static void test_look(void **state)
{
    static const char *const bits[] = { "$$Lambda$1/0x1234567890",
                                        "[go.shape.int]",
                                        "a",
                                        "lib",
                                        "b.c",
                                        "GeneratedMethodAccessor12",
                                        "/liblz4-java123.so",
                                        "Ge",
                                        "/",
                                        "::h0123456789abcdef",
                                        "<00000000000010c0>",
                                        "perf-12.map",
                                        "main.(*T).Run",
                                        "0123456789abcdef0123456789abcdef",
                                        "$Proxy12",
                                        "/tmp/jna-812" };
    uint64_t seed = (uint64_t)time(NULL), left = 0;
    const char *given = getenv("SEED");
    struct normalize_look look;
    struct prng r;
    struct buf text, tmp;

    (void)state;
    seed = given ? strtoull(given, NULL, 10) : seed;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&r, seed);
    buf_init(&text, MIB);
    buf_init(&tmp, MIB);
    for (int round = 0; round < 300; round++) {
        struct arena *a = arena_new(MIB);
        buf_reset(&text);
        for (uint64_t n = prng_below(&r, 60); n; n--)
            buf_add_str(&text, prng_below(&r, 3) ? STR("runtime.goexit")
                                                 : str_c(bits[prng_below(&r, ARRAY_LEN(bits))]));
        assert_true(normalize_look(&look, buf_str(&text), a));
        for (int i = 0; i < 200 && text.len; i++) {
            size_t from = prng_below(&r, text.len), most = MIN(text.len - from, 90u);
            struct str name = str_sub(buf_str(&text), from, from + 1 + prng_below(&r, most));
            if (normalize_leaves(&look, name))
                assert_ptr_equal(normalize_name(name, &tmp).ptr, name.ptr);
            if (normalize_leaves_path(&look, name))
                assert_ptr_equal(normalize_path(name, &tmp).ptr, name.ptr);
            left += normalize_leaves(&look, name);
        }
        arena_free(a);
    }
    assert_true(left > 1000);
    assert_false(normalize_leaves(&look, STR("of another text")));
    buf_deinit(&text);
    buf_deinit(&tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_paths), cmocka_unit_test(test_idempotent),
        cmocka_unit_test(test_ids),   cmocka_unit_test(test_places),
        cmocka_unit_test(test_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
