/* SPDX-License-Identifier: Apache-2.0
 *
 * Which modes of a file with a secret are taken: what its owner and a reading group may do, nothing
 * for others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/secret_file.h"

static void test_modes(void **state)
{
    static const struct {
        unsigned mode;
        int code;
    } rows[] = {
        { 0400, 0 },          { 0600, 0 },          { 0440, 0 },          { 0640, 0 },
        { 0644, ERR_CONFIG }, { 0604, ERR_CONFIG }, { 0602, ERR_CONFIG }, { 0660, ERR_CONFIG },
        { 0601, ERR_CONFIG }, { 0777, ERR_CONFIG },
    };
    char path[] = "/tmp/embertree-secret-XXXXXX", mode[16];
    int fd = mkstemp(path);
    struct err e = { 0 };

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(fchmod(fd, rows[i].mode), 0);
        assert_int_equal(secret_file_check(path, &e), rows[i].code);
        if (!rows[i].code)
            continue;
        (void)snprintf(mode, sizeof(mode), "%04o", rows[i].mode);
        assert_non_null(strstr(e.text, mode));
        assert_non_null(strstr(e.text, "chmod 0600"));
        assert_non_null(strstr(e.text, path));
    }
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(secret_file_check(path, &e), 0); /* its reader says that it is not there */
    assert_int_equal(secret_file_check("/tmp", &e), ERR_CONFIG);
}

/* What a container runtime mounts for one container. */
static void test_mounted(void **state)
{
    struct stat st = { .st_mode = S_IFREG | 0444 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(secret_file_check_stat("/run/secrets/token", &st, &e), 0);
    assert_int_equal(
        secret_file_check_stat("/var/run/secrets/kubernetes.io/serviceaccount/token", &st, &e), 0);
    assert_int_equal(secret_file_check_stat("/run/other/token", &st, &e), ERR_CONFIG);
    st.st_mode = S_IFIFO | 0600;
    assert_int_equal(secret_file_check_stat("/run/secrets/token", &st, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_mounted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
