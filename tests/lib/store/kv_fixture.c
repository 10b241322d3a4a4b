/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/kv_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "tests/lib/store/kv_dir.h"

struct kv_fixture kvt;
static struct err e;

static int setup(bool rocks)
{
    memset(&kvt, 0, sizeof(kvt));
    kvt.rocks = rocks;
    kvt.b = kv_batch_new();
    buf_init(&kvt.out, 64 * MIB);
    if (rocks) {
        kvt.dir = kv_dir_new();
        kvt.k = kv_dir_open(kvt.dir);
    } else {
        kvt.k = kv_mem_new(&kvt.faults);
    }
    return 0;
}

int kvt_setup_rocks(void **state)
{
    (void)state;
    return setup(true);
}

int kvt_setup_mem(void **state)
{
    (void)state;
    return setup(false);
}

int kvt_teardown(void **state)
{
    (void)state;
    kv_close(kvt.k);
    kv_batch_free(kvt.b);
    buf_deinit(&kvt.out);
    kv_dir_remove(kvt.dir);
    return 0;
}

void kvt_reopen(void)
{
    if (kvt.rocks) {
        kv_close(kvt.k);
        kvt.k = kv_dir_open(kvt.dir);
    } else {
        kvt.k = kv_mem_reopen(kvt.k, KV_MEM_KILL, 0);
    }
}

void kvt_put(enum kv_cf cf, const char *key, const char *value)
{
    kv_batch_put(kvt.b, cf, str_c(key), str_c(value));
}

void kvt_commit(void)
{
    assert_int_equal(kv_write(kvt.k, kvt.b, false, &e), 0);
    kv_batch_clear(kvt.b);
}

void kvt_want(const struct kv_snap *s, enum kv_cf cf, const char *key, const char *value)
{
    int rc = kv_get(kvt.k, s, cf, str_c(key), &kvt.out, &e);

    if (!value) {
        assert_int_equal(rc, ERR_NOT_FOUND);
        return;
    }
    assert_int_equal(rc, 0);
    if (!str_eqc(buf_str(&kvt.out), value))
        fail_msg("%s is %.*s, not %s", key, STR_ARG(buf_str(&kvt.out)), value);
}

void kvt_want_range(const struct kv_snap *s, enum kv_cf cf, const char *from, const char *to,
                    const char *text)
{
    struct kv_iter *it = kv_iter_new(kvt.k, s, cf, str_c(from), str_c(to));

    buf_reset(&kvt.out);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (kvt.out.len)
            buf_add_c(&kvt.out, ' ');
        buf_add_str(&kvt.out, kv_iter_key(it));
        buf_add_c(&kvt.out, '=');
        buf_add_str(&kvt.out, kv_iter_value(it));
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    if (!str_eqc(buf_str(&kvt.out), text))
        fail_msg("[%s, %s) is '%.*s', not '%s'", from ? from : "", to ? to : "",
                 STR_ARG(buf_str(&kvt.out)), text);
}

void kvt_fill(char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(hash_u64(seed << 32 | i) & 0xff);
}
