/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "distributor/send/pack.h"
#include "proto/ingest.pb-c.h"

static void test_what_was_packed_is_read(void **state)
{
    static const uint32_t numbers[] = { 0, 1, 127, 128, 65536, UINT32_MAX };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        for (size_t k = 0; k < ARRAY_LEN(numbers); k++) {
            Embertree__WriteReply m = EMBERTREE__WRITE_REPLY__INIT;
            struct write_reply r;
            uint8_t out[64];
            struct err e;

            m.stored = numbers[i];
            m.duplicates = numbers[k];
            m.exemplars = 5;
            m.exemplars_left_out = 6;
            m.learnt = (i + k) % 2;
            size_t len = embertree__write_reply__pack(&m, out);
            assert_int_equal(pack_reply_read(str_n(out, len), &r, &e), 0);
            assert_int_equal(r.stored, m.stored);
            assert_int_equal(r.duplicates, m.duplicates);
            assert_int_equal(r.learnt, m.learnt != 0);
        }
}

static void test_what_is_no_reply(void **state)
{
    static const struct str bad[] = {
        { "\x08", 1 },                         /* cut */
        { "\x08\xff\xff\xff\xff\xff\x01", 7 }, /* too large */
        { "\x0a\x01x", 3 },                    /* bytes */
        { "\x00", 1 },
    };
    struct write_reply r;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(pack_reply_read(bad[i], &r, &e), ERR_INTERNAL);
    assert_int_equal(pack_reply_read(STR_NULL, &r, &e), 0);
    assert_int_equal(r.stored, 0);
    assert_int_equal(pack_reply_read(STR("\x98\x06\x07\x08\x03"), &r, &e), 0); /* one not known */
    assert_int_equal(r.stored, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_packed_is_read),
        cmocka_unit_test(test_what_is_no_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
