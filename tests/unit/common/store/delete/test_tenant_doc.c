/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents of tenants against a list kept here, over reopening, power cuts and kills.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants the ones above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/delete/tenant_doc.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static struct err e;
static const struct doc_limits LIMITS = { .docs = 5, .bytes = 3 * MIB };

static int setup(void **state)
{
    (void)state;
    const struct store_opts o = { .dict_bytes_max = 64 * MIB,
                                  .seal_delay_ms = 60000,
                                  .wid_horizon_ms = 4 * 3600 * 1000 };
    store_bed_init(&bed, &o);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static struct doc_name name(const char *tenant, enum doc_kind kind, const char *id)
{
    return (struct doc_name){ .tenant = str_c(tenant), .kind = kind, .id = str_c(id) };
}

static int put(const char *tenant, enum doc_kind kind, const char *id, struct str body,
               uint64_t seen)
{
    const struct doc_put p = { .name = name(tenant, kind, id),
                               .meta = STR("about"),
                               .body = body,
                               .seen = seen,
                               .limits = LIMITS };
    struct doc d;

    return store_doc_put(bed.s, &p, &d, &e);
}

/* "id:revision:body length" of all of a kind, or "!" for an error. */
static const char *list(const char *tenant, enum doc_kind kind, const char *after, size_t max)
{
    static char text[1000];
    struct store_view *v = store_view_get(bed.s);
    struct arena *a = arena_new(MIB);
    struct doc_name n = name(tenant, kind, after);
    struct doc_list l = { 0 };
    int at = 0;

    text[0] = '\0';
    if (store_doc_list(v, &n, max, a, &l, &e))
        at = snprintf(text, sizeof(text), "!");
    vec_for (i, &l.at) {
        const struct doc *d = &l.at.ptr[i];
        assert_true(str_eqc(d->meta, "about"));
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%.*s:%" PRIu64 ":%" PRIu64 " ",
                       STR_ARG(d->id), d->revision, d->bytes);
    }
    if (l.more)
        snprintf(text + at, sizeof(text) - (size_t)at, "...");
    doc_list_deinit(&l);
    store_view_put(v);
    arena_free(a);
    return text;
}

static int get(const char *tenant, const char *id, size_t arena, struct str want)
{
    struct store_view *v = store_view_get(bed.s);
    struct arena *a = arena_new(arena);
    struct doc_name n = name(tenant, DOC_PROFILE, id);
    struct doc d;
    int rc = store_doc_get(v, &n, a, &d, &e);

    if (!rc)
        assert_true(str_eq(d.body, want) && d.updated_ms >= BED_START_MS);
    store_view_put(v);
    arena_free(a);
    return rc;
}

static void test_life(void **state)
{
    (void)state;
    char *big = xmalloc(2 * DOC_CHUNK + 7);
    const struct str body = str_n(big, 2 * DOC_CHUNK + 7);

    for (size_t i = 0; i < body.len; i++)
        big[i] = (char)(i * 7 >> 3);
    assert_int_equal(put("t", DOC_PROFILE, "b", body, 0), 0);
    assert_int_equal(put("t", DOC_PROFILE, "a", STR("1"), DOC_ANY_REVISION), 0);
    assert_int_equal(put("t", DOC_PROFILE, "ab", STR_NULL, 0), 0);
    assert_int_equal(put("t", DOC_SETTING, "a", STR("x"), 0), 0);
    assert_int_equal(put("t2", DOC_PROFILE, "z", STR("x"), 0), 0);
    assert_string_equal(list("t", DOC_PROFILE, "", 9), "a:1:1 ab:1:0 b:1:524295 ");
    assert_string_equal(list("t", DOC_PROFILE, "a", 1), "ab:1:0 ...");
    assert_string_equal(list("t", DOC_SETTING, "", 9), "a:1:1 ");
    assert_string_equal(list("absent", DOC_PROFILE, "", 9), "");
    assert_int_equal(get("t", "b", MIB, body), 0);
    assert_int_equal(get("t", "b", 64 * KIB, body), ERR_LIMIT);
    assert_int_equal(get("t", "ab", MIB, STR_NULL), 0);
    assert_int_equal(get("t", "c", MIB, STR_NULL), ERR_NOT_FOUND);
    assert_int_equal(get("t2", "b", MIB, STR_NULL), ERR_NOT_FOUND);

    assert_int_equal(put("t", DOC_PROFILE, "b", STR("2"), 0), ERR_CONFLICT);
    assert_int_equal(put("t", DOC_PROFILE, "new", STR("2"), 3), ERR_CONFLICT);
    /* Its answer was lost, and it comes again: it finds its own version, not another writer's. */
    assert_int_equal(put("t", DOC_PROFILE, "b", body, 0), 0);
    big[DOC_CHUNK + 1] ^= 1;
    assert_int_equal(put("t", DOC_PROFILE, "b", body, 0), ERR_CONFLICT);
    big[DOC_CHUNK + 1] ^= 1;
    assert_int_equal(get("t", "b", MIB, body), 0);
    assert_string_equal(list("t", DOC_PROFILE, "a", 9), "ab:1:0 b:1:524295 ");
    assert_int_equal(put("t", DOC_PROFILE, "b", STR("2"), 1), 0); /* shorter: chunks go */
    assert_int_equal(get("t", "b", MIB, STR("2")), 0);
    store_bed_reopen(&bed, KV_MEM_POWER, 0);
    assert_string_equal(list("t", DOC_PROFILE, "", 9), "a:1:1 ab:1:0 b:2:1 ");

    struct doc_name n = name("t", DOC_PROFILE, "b");
    assert_int_equal(store_doc_delete(bed.s, &n, &e), 0);
    assert_int_equal(store_doc_delete(bed.s, &n, &e), ERR_NOT_FOUND);
    assert_int_equal(get("t", "b", MIB, STR_NULL), ERR_NOT_FOUND);
    struct kv_batch *b = kv_batch_new();
    docs_drop(STR("t"), b);
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
    assert_string_equal(list("t", DOC_PROFILE, "", 9), "");
    assert_string_equal(list("t", DOC_SETTING, "", 9), "");
    assert_string_equal(list("t2", DOC_PROFILE, "", 9), "z:1:1 ");
    xfree(big);
}

static void test_refused(void **state)
{
    (void)state;
    char *big = xcalloc(1, DOC_BODY_MAX + 1);
    const int none = DOC_KIND_LAST + 1;
    char id[DOC_ID_MAX + 2];

    memset(id, 'x', sizeof(id));
    id[sizeof(id) - 1] = '\0';
    assert_int_equal(put("t", DOC_PROFILE, "", STR("1"), 0), ERR_INPUT);
    assert_int_equal(put("", DOC_PROFILE, "a", STR("1"), 0), ERR_INPUT);
    assert_int_equal(put("t", (enum doc_kind)none, "a", STR("1"), 0), ERR_INPUT);
    assert_int_equal(put("t", DOC_PROFILE, id, STR("1"), 0), ERR_INPUT);
    assert_int_equal(put("t", DOC_PROFILE, "a", str_n(big, DOC_BODY_MAX + 1), 0), ERR_LIMIT);
    /* 5 documents, 3 MiB: a replaced document does not count twice. */
    assert_int_equal(put("t", DOC_PROFILE, "a", str_n(big, 2 * MIB), 0), 0);
    assert_int_equal(put("t", DOC_PROFILE, "b", str_n(big, 2 * MIB), 0), ERR_RATE);
    assert_int_equal(put("t", DOC_PROFILE, "a", str_n(big, 2 * MIB + 5), 1), 0);
    for (char c = 'b'; c <= 'g'; c++) {
        char one[2] = { c, '\0' };
        assert_int_equal(put("t", DOC_PROFILE, one, STR_NULL, 0), c < 'f' ? 0 : ERR_RATE);
    }
    assert_int_equal(put("t", DOC_SETTING, "a", STR("1"), 0), 0); /* of another kind */
    xfree(big);
}

/* Written is on disk: a kill or power cut at any moment loses nothing that was acked, and an old or
 * a new document is whole. */
static void test_crashes(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct prng p;
    size_t lengths[4] = { 0 };
    char *bytes = xcalloc(1, 2 * DOC_CHUNK);

    prng_init(&p, seed);
    for (int i = 0; i < 300; i++) {
        unsigned pick = (unsigned)prng_below(&p, 4);
        size_t len = 1 + (size_t)prng_below(&p, 2 * DOC_CHUNK - 1);
        char id[2] = { (char)('a' + pick), '\0' };
        memset(bytes, (int)(len % 251), len);
        assert_int_equal(put("t", DOC_PROFILE, id, str_n(bytes, len), DOC_ANY_REVISION), 0);
        lengths[pick] = len;
        if (prng_below(&p, 4) == 0)
            store_bed_reopen(&bed, prng_below(&p, 2) ? KV_MEM_POWER : KV_MEM_KILL, 0);
        for (unsigned k = 0; k < 4; k++) {
            char other[2] = { (char)('a' + k), '\0' };
            memset(bytes, (int)(lengths[k] % 251), lengths[k]);
            assert_int_equal(get("t", other, MIB, str_n(bytes, lengths[k])),
                             lengths[k] ? 0 : ERR_NOT_FOUND);
        }
    }
    xfree(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crashes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
