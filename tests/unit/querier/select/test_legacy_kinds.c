/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of old application names stand in two roles that may not include each other: the
 * distributor writes by them, the querier finds what was written. Here they are held together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/formats/kinds.h"
#include "querier/select/app_name_types.h"

static const char *const names[] = {
    "s.cpu",
    "s.itimer",
    "s.wall",
    "s.seconds",
    "s.milliseconds",
    "s.microseconds",
    "s.nanoseconds",
    "s.inuse_objects",
    "s.alloc_objects",
    "s.inuse_space",
    "s.alloc_space",
    "s.goroutines",
    "s.mutex_count",
    "s.mutex_duration",
    "s.block_count",
    "s.lock_count",
    "s.block_duration",
    "s.lock_duration",
    "s.alloc_in_new_tlab_objects",
    "s.alloc_outside_tlab_objects",
    "s.alloc_in_new_tlab_bytes",
    "s.alloc_outside_tlab_bytes",
    "s.live",
    "s.exceptions",
    "s.bytes",
    "s",
    "my.service",
};

static void check_name(struct str name, uint64_t sample_rate)
{
    struct kind written = kind_of(name, sample_rate);
    struct app_name_types_app asked = app_name_types_app_of(name);
    struct buf id;

    buf_init(&id, KIB);
    ptype_format(&written.type, &id);
    if (!str_eq(written.app, asked.service) || app_name_types_rank(asked.kind, &written.type) < 0 ||
        (sample_rate && !str_eqc(buf_str(&id), app_name_types_type_id(asked.kind))))
        fail_msg("%.*s at %u Hz is written as %.*s of %.*s and asked for as %s of %.*s",
                 STR_ARG(name), (unsigned)sample_rate, STR_ARG(buf_str(&id)), STR_ARG(written.app),
                 app_name_types_type_id(asked.kind), STR_ARG(asked.service));
    buf_deinit(&id);
}

static void test_what_is_written_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        check_name(str_c(names[i]), 100);
        check_name(str_c(names[i]), 0); /* counts of samples, not scaled to time */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_what_is_written_is_found) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
