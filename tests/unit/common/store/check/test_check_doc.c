/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents are broken in one place after the other; the check must say what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/store/check/check.h"
#include "common/store/delete/tenant_doc.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static struct err e;
static char text[ERR_TEXT_MAX];

static void put(const char *id, size_t bytes)
{
    char *body = xcalloc(bytes + 1, 1);
    const struct doc_put p = {
        .name = { .tenant = STR("t"), .kind = DOC_PROFILE, .id = str_c(id) },
        .meta = STR("about"),
        .body = str_n(body, bytes),
        .limits = { .docs = 9, .bytes = 9 * MIB },
    };
    struct doc d;

    assert_int_equal(store_doc_put(bed.s, &p, &d, &e), 0);
    xfree(body);
}

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000 };

    (void)state;
    store_bed_init(&bed, &o);
    put("big", 2 * DOC_CHUNK + 7);
    put("none", 0);
    put("one", 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void on_found(void *cookie, enum check_kind kind, const char *what)
{
    (void)cookie;
    if (kind == CHECK_DOCS)
        memcpy(text, what, strlen(what) + 1);
}

/* Findings about documents; there must be no other ones. */
static uint64_t check(uint64_t *ret_rows)
{
    struct check_opts o = { .shown_max = 9, .found = on_found };
    struct check_report r;

    text[0] = '\0';
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_check_all(v, &o, &r, &e), 0);
    store_view_put(v);
    assert_int_equal(check_findings(&r), r.findings[CHECK_DOCS]);
    *ret_rows = r.rows[CHECK_DOCS];
    return r.findings[CHECK_DOCS];
}

/* Puts (value NULL: deletes) a row; so many findings, the last of them with this text. */
static void broken(struct str key, const char *value, size_t len, uint64_t want, const char *said)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t rows;

    if (value)
        kv_batch_put(b, KV_META, key, str_n(value, len));
    else
        kv_batch_del(b, KV_META, key);
    assert_int_equal(kv_write(bed.s->kv, b, true, &e), 0);
    kv_batch_free(b);
    assert_int_equal(check(&rows), want);
    if (!strstr(text, said))
        fail_msg("want \"%s\", got \"%s\"", said, text);
}

static void test_sound(void **state)
{
    uint64_t rows;

    (void)state;
    assert_int_equal(check(&rows), 0);
    assert_int_equal(rows, 3 + 4); /* documents and their parts */
}

static void test_part_missing(void **state)
{
    (void)state;
    broken(STR("\x71t\0\1big\0\0\0\0\1"), NULL, 0, 1, "part of a document");
}

static void test_part_short(void **state)
{
    (void)state;
    broken(STR("\x71t\0\1one\0\0\0\0\0"), "", 0, 1, "another length");
}

static void test_part_too_many(void **state)
{
    (void)state;
    broken(STR("\x71t\0\1big\0\0\0\0\3"), "x", 1, 1, "a part too many");
}

static void test_orphan(void **state)
{
    (void)state;
    broken(STR("\x71t\0\1gone\0\0\0\0\0"), "x", 1, 1, "document of a part");
    broken(STR("\x71other\0\1big\0\0\0\0\0"), "x", 1, 2, "document of a part");
}

static void test_document_missing(void **state)
{
    (void)state;
    broken(STR("\x70t\0\1big"), NULL, 0, 3, "document of a part");
}

static void test_rows(void **state)
{
    (void)state;
    broken(STR("\x70t\0\1none"), "\2", 1, 1, "its row is damaged");
    broken(STR("\x70t\0\7none"), "\1", 1, 2, "its key is damaged");
    broken(STR("\x71t\0\1one\1\0\0\0\0"), "x", 1, 3, "the key of a part");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_part_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_part_short, setup, teardown),
        cmocka_unit_test_setup_teardown(test_part_too_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_document_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
