/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of cluster keys: what it may say, its mode, and when it is read again.
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

#include "common/base/buf.h"
#include "common/rpc/rpc_keys.h"

#define HEX_A "6161616161616161616161616161616161616161616161616161616161616161"
#define HEX_B "6262626262626262626262626262626262626262626262626262626262626262"
#define B64_A "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="

static void keys_are_read_in_both_alphabets(void **state)
{
    static const char text[] = "# ours\n\n new-1 : " HEX_B "  # the new one\r\nold: " B64_A;
    struct rpc_keys *k, *other;
    const struct rpc_key *first;
    struct buf said;
    struct err e;

    (void)state;
    assert_int_equal(rpc_keys_parse(str_c(text), "file", &k, &e), 0);
    first = rpc_keys_first(k);
    assert_string_equal(first->id, "new-1");
    assert_memory_equal(first->secret, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", RPC_KEY_BYTES);
    assert_int_equal(rpc_keys_parse(str_c("x: " HEX_A), "file", &other, &e), 0);
    /* The same key, whatever it is called and however it is written. */
    assert_string_equal(rpc_keys_find(k, rpc_keys_first(other)->mark)->id, "old");
    assert_null(rpc_keys_find(other, first->mark));
    buf_init(&said, KIB);
    rpc_keys_say(k, &said);
    assert_int_equal(said.len, strlen("new-1 (00000000), old (00000000)"));
    assert_true(str_starts(buf_str(&said), STR("new-1 (")));
    buf_deinit(&said);
    rpc_keys_free(k);
    rpc_keys_free(other);
}

static void bad_files_say_what_to_do(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "", "holds no key" },
        { "# nothing\n\n", "holds no key" },
        { HEX_A, "line 1 is not" },
        { "a: " HEX_A "\nb " HEX_B, "line 2 is not" },
        { ": " HEX_A, "bad id" },
        { "a b: " HEX_A, "bad id" },
        { "12345678901234567890123456789012: " HEX_A, "bad id" },
        { "a: ", "openssl rand -hex 32" },
        { "a: " HEX_A "61", "not 32 bytes" },
        { "a: 6161", "not 32 bytes" },
        { "a: zz" HEX_A, "not 32 bytes" },
        { "a: YWFh", "not 32 bytes" },
        { "a: 0000000000000000000000000000000000000000000000000000000000000000", "all zero" },
        { "a: " HEX_A "\na: " HEX_B, "the id a is there twice" },
        { "a: " HEX_A "\nb: " B64_A, "b is the same key as a" },
    };
    struct buf many;
    struct rpc_keys *k;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(rpc_keys_parse(str_c(rows[i].text), "file", &k, &e), ERR_CONFIG);
        if (!strstr(e.text, rows[i].want) || strncmp(e.text, "file", 4) != 0)
            fail_msg("row %zu: %s", i, e.text);
        assert_null(strstr(e.text, "616161")); /* never a key in a message */
    }
    buf_init(&many, 16 * KIB);
    for (int i = 0; i <= RPC_KEYS_MAX; i++)
        buf_addf(&many, "k%d: %064d\n", i, i + 1);
    assert_int_equal(rpc_keys_parse(buf_str(&many), "file", &k, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "line 17 is one key more than 16"));
    buf_deinit(&many);
}

struct file {
    char dir[64], path[96];
};

static void file_init(struct file *f)
{
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/rpc-keys-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/keys", f->dir);
}

static void file_deinit(struct file *f)
{
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
}

static void file_write(const struct file *f, const char *text, mode_t mode)
{
    char fresh[112];
    FILE *out;

    (void)snprintf(fresh, sizeof(fresh), "%s.new", f->path);
    out = fopen(fresh, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(fresh, mode), 0);
    assert_int_equal(rename(fresh, f->path), 0);
}

static void others_may_not_read_it(void **state)
{
    static const struct {
        mode_t mode;
        bool fine;
    } rows[] = {
        { 0600, true },  { 0400, true },  { 0440, true },  { 0640, true },
        { 0700, true },  { 0644, false }, { 0604, false }, { 0660, false },
        { 0602, false }, { 0601, false }, { 0610, false }, { 0666, false },
    };
    struct rpc_keys *k;
    struct file f;
    struct err e;

    (void)state;
    file_init(&f);
    assert_int_not_equal(rpc_keys_load(f.path, &k, &e), 0);
    assert_non_null(strstr(e.text, f.path));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int code;

        file_write(&f, "a: " HEX_A, rows[i].mode);
        code = rpc_keys_load(f.path, &k, &e);
        if ((code == 0) != rows[i].fine)
            fail_msg("mode %o", (unsigned)rows[i].mode);
        if (code == 0)
            rpc_keys_free(k);
        else if (!strstr(e.text, "chmod 0600"))
            fail_msg("%s", e.text);
    }
    assert_int_equal(rpc_keys_load(f.dir, &k, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "not a file"));
    file_deinit(&f);
}

static void changes_are_seen_and_bad_ones_leave_the_old(void **state)
{
    struct rpc_keys *k;
    uint64_t serial;
    bool changed;
    struct file f;
    struct err e;

    (void)state;
    file_init(&f);
    file_write(&f, "a: " HEX_A, 0600);
    assert_int_equal(rpc_keys_load(f.path, &k, &e), 0);
    serial = rpc_keys_serial(k);
    assert_int_equal(rpc_keys_check(k, 5000, &changed, &e), 0);
    assert_false(changed);
    file_write(&f, "b: " HEX_B "\na: " HEX_A, 0600);
    assert_int_equal(rpc_keys_check(k, 5000 + RPC_KEYS_EVERY - 1, &changed, &e), 0);
    assert_false(changed); /* not yet */
    assert_int_equal(rpc_keys_check(k, 5000 + RPC_KEYS_EVERY, &changed, &e), 0);
    assert_true(changed);
    assert_true(rpc_keys_serial(k) != serial);
    assert_string_equal(rpc_keys_first(k)->id, "b");
    /* Broken, readable by all, gone: each is said once, and changes nothing. */
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            file_write(&f, i == 0 ? "c: " : "c: " HEX_A, i == 0 ? 0600 : 0644);
        else
            assert_int_equal(unlink(f.path), 0);
        assert_int_not_equal(rpc_keys_check(k, 10000 + 2000 * (uint64_t)i, &changed, &e), 0);
        assert_int_equal(rpc_keys_check(k, 11000 + 2000 * (uint64_t)i, &changed, &e), 0);
        assert_false(changed);
        assert_string_equal(rpc_keys_first(k)->id, "b");
    }
    file_write(&f, "c: " HEX_A, 0600);
    assert_int_equal(rpc_keys_check(k, 20000, &changed, &e), 0);
    assert_true(changed);
    assert_string_equal(rpc_keys_first(k)->id, "c");
    rpc_keys_free(k);
    file_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_read_in_both_alphabets),
        cmocka_unit_test(bad_files_say_what_to_do),
        cmocka_unit_test(others_may_not_read_it),
        cmocka_unit_test(changes_are_seen_and_bad_ones_leave_the_old),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
