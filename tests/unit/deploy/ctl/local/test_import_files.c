/* SPDX-License-Identifier: Apache-2.0
 *
 * Times in names of files, and the state file of an import.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "deploy/ctl/local/import_files.h"

static void test_times_in_names(void **state)
{
    static const struct {
        const char *path;
        int64_t ms; /* 0: none */
    } rows[] = {
        { "a/1644509272337470000.pb.gz", INT64_C(1644509272337) },
        { "cpu-1644509272.pb.gz", INT64_C(1644509272000) },
        { "x/1644509272337/", 0 },
        { "1644509272337.txt", INT64_C(1644509272337) },
        { "p_1644509272337470.pprof", INT64_C(1644509272337) },
        { "heap-2026-11-21T10:20:30Z.pb.gz", INT64_C(1795256430000) },
        { "heap.20261121-102030.pb.gz", INT64_C(1795256430000) },
        { "heap_2026-11-21_10-20.txt", INT64_C(1795256400000) },
        { "v12-20261121T102030.txt", INT64_C(1795256430000) },
        { "profile-3.pb.gz", 0 },
        { "2026-13-21T10:20:30.txt", 0 },
        { "20261121.txt", 0 }, /* a day says too little */
        { "1700000000/profile.pb.gz", 0 },
        { "", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t ms = 0;
        bool found = import_name_time(rows[i].path, &ms);
        if (found != (rows[i].ms != 0) || (found && ms != rows[i].ms))
            fail_msg("%s: %d, %" PRId64, rows[i].path, found, ms);
    }
}

static void test_state(void **state)
{
    char path[] = "/tmp/import-state-XXXXXX";
    struct import_files f = { 0 };
    struct import_state s;
    struct err e;
    char a[] = "dir/a", b[] = "dir/b", c[] = "dir/c";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    vec_push(&f.at, ((struct import_file){ a, 5, 10 }));
    vec_push(&f.at, ((struct import_file){ b, 6, 11 }));
    vec_push(&f.at, ((struct import_file){ c, 7, 12 }));
    assert_int_equal(import_state_open(&s, path, &e), 0); /* it need not be there */
    assert_false(import_state_has(&s, &f.at.ptr[0]));
    assert_int_equal(import_state_add(&s, &f, 0, 2, &e), 0);
    import_state_close(&s);
    FILE *half = fopen(path, "ae"); /* killed while writing a line */
    assert_non_null(half);
    assert_true(fputs("12 7 dir/c", half) >= 0);
    fclose(half);
    assert_int_equal(import_state_open(&s, path, &e), 0);
    assert_true(import_state_has(&s, &f.at.ptr[0]));
    assert_true(import_state_has(&s, &f.at.ptr[1]));
    assert_false(import_state_has(&s, &f.at.ptr[2]));
    assert_int_equal(import_state_add(&s, &f, 2, 3, &e), 0); /* not behind the half line */
    import_state_close(&s);
    assert_int_equal(import_state_open(&s, path, &e), 0);
    assert_true(import_state_has(&s, &f.at.ptr[2]));
    f.at.ptr[1].bytes++; /* changed: another file */
    assert_false(import_state_has(&s, &f.at.ptr[1]));
    import_state_close(&s);
    unlink(path);
    vec_free(&f.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_in_names),
        cmocka_unit_test(test_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
