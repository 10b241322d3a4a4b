/* SPDX-License-Identifier: Apache-2.0
 *
 * The spare: made where there is room for it, kept at a start that finds room. What a full volume
 * does is in tests/cluster/copies/test_disk.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ingester/base/reserve_file.h"

static void test_size(void **state)
{
    (void)state;
    assert_int_equal(reserve_file_bytes(0), 0);
    assert_int_equal(reserve_file_bytes(64 * MIB), 16 * MIB);
    assert_int_equal(reserve_file_bytes(GIB), 32 * MIB);
    assert_int_equal(reserve_file_bytes(UINT64_MAX), 32 * MIB);
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

static void test_kept_where_there_is_room(void **state)
{
    char dir[] = "/tmp/embertree-spare-XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/spare", dir);
    assert_true(reserve_file_keep(dir, 0, GIB)); /* no reserve, no spare */
    assert_int_equal(size_of(path), -1);
    assert_false(reserve_file_keep(dir, 4 * MIB, 6 * MIB - 1)); /* reserve, a quarter of it, the
    spare */
    assert_int_equal(size_of(path), -1);
    assert_true(reserve_file_keep(dir, 4 * MIB, 6 * MIB));
    assert_int_equal(size_of(path), MIB);
    assert_true(reserve_file_keep(dir, 4 * MIB, 0));  /* it is there */
    assert_false(reserve_file_keep(dir, 8 * MIB, 0)); /* the reserve was raised */
    assert_true(reserve_file_keep(dir, 8 * MIB, GIB));
    assert_int_equal(size_of(path), 2 * MIB);
    reserve_file_release(dir); /* this volume has room */
    assert_int_equal(size_of(path), 2 * MIB);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    reserve_file_release(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_kept_where_there_is_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
