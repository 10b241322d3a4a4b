/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects in a folder: names, puts that meet, ranges, order of listings, what a crash leaves.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/object/object.h"

struct bed {
    char dir[64];
    struct object_store *o;
};

static int setup(void **state)
{
    struct bed *b = XNEW(struct bed);
    struct err e = { 0 };

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-object-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    assert_int_equal(object_dir_open(b->dir, &b->o, &e), 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    char command[128];

    object_close(b->o);
    (void)snprintf(command, sizeof(command), "rm -rf %s", b->dir);
    assert_int_equal(system(command), 0);
    xfree(b);
    return 0;
}

static void test_names(void **state)
{
    static const char *const good[] = { "a", "a/b/c", "shard-0/1.et", "A_z-9..x", "...", "a/.b" };
    static const char *const bad[] = { "",     "/",    "a/",  "/a",  "a//b", ".",
                                       "a/..", "../a", "a b", "a%b", "a\\b", "\xc3\xa4" };
    char longest[OBJECT_NAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(object_name_ok(str_c(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(object_name_ok(str_c(bad[i])));
    memset(longest, 'x', sizeof(longest));
    assert_true(object_name_ok(str_n(longest, OBJECT_NAME_MAX)));
    assert_false(object_name_ok(str_n(longest, OBJECT_NAME_MAX + 1)));
}

static void test_put_and_read(void **state)
{
    struct bed *b = *state;
    struct err e = { 0 };
    uint64_t size = 0;
    struct buf out;

    buf_init(&out, KIB);
    assert_int_equal(object_put(b->o, STR("x/y/z"), STR("0123456789"), &e), 0);
    assert_int_equal(object_put(b->o, STR("x/y/z"), STR("0123456789"), &e), 0); /* again */
    assert_int_equal(object_put(b->o, STR("x/y/z"), STR("012345678"), &e), ERR_CONFLICT);
    assert_int_equal(object_put(b->o, STR("x/y/z"), STR("0123456780"), &e), ERR_CONFLICT);
    assert_int_equal(object_put(b->o, STR("../z"), STR("0"), &e), ERR_INPUT);
    assert_int_equal(object_put(b->o, STR("x/y"), STR("0"), &e), ERR_NOT_FOUND); /* a folder */
    assert_int_equal(object_size(b->o, STR("x/y/z"), &size, &e), 0);
    assert_int_equal(size, 10);
    assert_int_equal(object_read(b->o, STR("x/y/z"), 3, 4, &out, &e), 0);
    assert_memory_equal(out.ptr, "3456", 4);
    assert_int_equal(object_read(b->o, STR("x/y/z"), 8, 4, &out, &e), ERR_CORRUPT);
    assert_int_equal(out.len, 4); /* the earlier bytes stay, nothing is added */
    assert_int_equal(object_read(b->o, STR("x/y/w"), 0, 4, &out, &e), ERR_NOT_FOUND);
    assert_int_equal(object_read(b->o, STR("x/y/z"), 0, 2 * KIB, &out, &e), ERR_LIMIT);
    assert_int_equal(object_size(b->o, STR("x/y/z/w"), &size, &e), ERR_NOT_FOUND);
    assert_int_equal(object_delete(b->o, STR("x/y/z"), &e), 0);
    assert_int_equal(object_delete(b->o, STR("x/y/z"), &e), 0);
    assert_int_equal(object_size(b->o, STR("x/y/z"), &size, &e), ERR_NOT_FOUND);
    assert_int_equal(object_put(b->o, STR("empty"), STR_NULL, &e), 0);
    assert_int_equal(object_size(b->o, STR("empty"), &size, &e), 0);
    assert_int_equal(size, 0);
    buf_deinit(&out);
}

struct found {
    VEC(char *) names;
    size_t most;
};

static bool on_name(void *cookie, struct str name, uint64_t size)
{
    struct found *f = cookie;
    char *copy = XNEW_ARRAY(char, name.len + 1);

    assert_int_equal(size, name.len); /* each object holds its name */
    memcpy(copy, name.ptr, name.len);
    vec_push(&f->names, copy);
    return f->names.len < f->most;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Random names, some below others' folders, listed from everywhere: as a sorted list says. */
static void test_list(void **state)
{
    static const char *const parts[] = { "a", "a-", "a.b", "ab", "b", "z0" };
    struct bed *b = *state;
    struct prng rng;
    struct err e = { 0 };
    char names[60][32], *sorted[60];
    size_t n = 0;

    prng_init(&rng, 7);
    while (n < ARRAY_LEN(names)) {
        int len = 0, depth = (int)prng_below(&rng, 3) + 1;
        for (int i = 0; i < depth; i++)
            len += snprintf(names[n] + len, sizeof(names[n]) - (size_t)len, "%s%s", i ? "/" : "",
                            parts[prng_below(&rng, ARRAY_LEN(parts))]);
        (void)snprintf(names[n] + len, sizeof(names[n]) - (size_t)len, ".%zu", n);
        assert_int_equal(object_put(b->o, str_c(names[n]), str_c(names[n]), &e), 0);
        sorted[n] = names[n];
        n++;
    }
    qsort(sorted, n, sizeof(*sorted), by_name);
    static const char *const prefixes[] = {
        "", "a", "a/", "a/a", "a.", "b/", "zz", "a-/b/", "a/."
    };
    for (size_t p = 0; p < ARRAY_LEN(prefixes); p++) {
        for (size_t after = 0; after <= n; after++) {
            struct found f = { .most = 5 };
            size_t k = 0;
            assert_int_equal(object_list(b->o, str_c(prefixes[p]),
                                         after < n ? str_c(sorted[after]) : STR_NULL, on_name, &f,
                                         &e),
                             0);
            for (size_t i = after < n ? after + 1 : 0; i < n && k < f.most; i++) {
                if (!str_starts(str_c(sorted[i]), str_c(prefixes[p])))
                    continue;
                assert_true(k < f.names.len);
                assert_string_equal(f.names.ptr[k], sorted[i]);
                k++;
            }
            assert_int_equal(k, f.names.len);
            vec_for (i, &f.names)
                xfree(f.names.ptr[i]);
            vec_free(&f.names);
        }
    }
    assert_int_equal(object_list(b->o, STR("../"), STR_NULL, on_name, NULL, &e), ERR_INPUT);
    assert_int_equal(object_list(b->o, STR("/etc"), STR_NULL, on_name, NULL, &e), ERR_INPUT);
}

static bool nothing(void *cookie, struct str name, uint64_t size)
{
    (void)cookie;
    (void)size;
    fail_msg("%.*s is listed", STR_ARG(name));
    return true;
}

static bool ignore(void *cookie, struct str name, uint64_t size)
{
    (void)cookie, (void)name, (void)size;
    return true;
}

/* A listing has all there is, or says why not: what it lacks would be taken for nothing. */
static void test_list_or_error(void **state)
{
    struct bed *b = *state;
    struct err e = { 0 };
    char path[128], other[128];

    assert_int_equal(object_put(b->o, STR("a/b"), STR("1"), &e), 0);
    (void)snprintf(path, sizeof(path), "%s/a/c", b->dir);
    (void)snprintf(other, sizeof(other), "%s/nothing", b->dir);
    assert_int_equal(symlink(other, path), 0); /* to what is not there: nor is it */
    assert_int_equal(object_list(b->o, STR(""), STR_NULL, ignore, NULL, &e), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path, path), 0);
    assert_int_not_equal(object_list(b->o, STR(""), STR_NULL, ignore, NULL, &e), 0);
    assert_non_null(strstr(e.text, "a/c"));
}

static void test_what_a_crash_leaves(void **state)
{
    struct bed *b = *state;
    struct err e = { 0 };
    char path[128];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/.new-1-x", b->dir);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(object_list(b->o, STR(""), STR_NULL, nothing, NULL, &e), 0);
}

static void test_wrong_options(void **state)
{
    static const struct object_s3_opts good = { .endpoint = "http://127.0.0.1:1",
                                                .bucket = "b",
                                                .prefix = "",
                                                .region = "",
                                                .access_key = "k",
                                                .secret_key = "s",
                                                .tries = 1 };
    struct object_s3_opts o = good;
    struct object_store *s;
    struct err e = { 0 };

    (void)state;
    o.env = env_real();
    assert_int_equal(object_s3_open(&o, &s, &e), 0);
    assert_int_equal(object_put(s, STR("x"), STR("y"), &e), ERR_UNAVAILABLE);
    object_close(s);
    o.bucket = "a/b";
    assert_int_equal(object_s3_open(&o, &s, &e), ERR_CONFIG);
    o = good, o.prefix = "x";
    assert_int_equal(object_s3_open(&o, &s, &e), ERR_CONFIG);
    o = good, o.endpoint = "s3.amazonaws.com";
    assert_int_equal(object_s3_open(&o, &s, &e), ERR_CONFIG);
    o = good, o.secret_key = "";
    assert_int_equal(object_s3_open(&o, &s, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_put_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_or_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_crash_leaves, setup, teardown),
        cmocka_unit_test(test_wrong_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
