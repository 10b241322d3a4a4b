/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/tomb_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "common/model/slot.h"
#include "common/store/check/check.h"
#include "common/store/codec/keys.h"
#include "common/store/state/store_impl.h"

uint32_t tomb_bed_init(struct store_bed *b, uint32_t guard_ms)
{
    struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 30000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .delete_guard_ms = guard_ms,
        .seed = 42,
    };

    store_bed_init(b, &o);
    return store_bed_slot(b) / 12 * 12;
}

void tomb_bed_check(struct store_bed *b)
{
    struct store_view *v = store_view_get(b->s);
    struct check_report report;
    struct err e;

    if (store_check(v, &report, &e))
        fail_msg("check: %s", e.text);
    store_view_put(v);
}

int tomb_bed_try(struct store_bed *b, const char *tenant, const char *selector, uint32_t from,
                 uint32_t to, const char *id, struct tomb_result *ret, struct err *e)
{
    static unsigned last;
    struct arena *a = arena_new(MIB);
    struct selector s = { 0 };
    char own[32];

    (void)snprintf(own, sizeof(own), "d%u", ++last);
    if (selector && *selector &&
        (selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, e) || selector_compile(&s, e)))
        fail_msg("selector: %s", e->text);
    struct tomb_request r = {
        .tenant = str_c(tenant ? tenant : "t"),
        .id = str_c(id ? id : own),
        .what = str_c(selector ? selector : ""),
        .selector = &s,
        .from_ms = from ? slot_to_ms(from) : 0,
        .to_ms = to ? slot_to_ms(to) : 0,
    };
    int rc = store_delete(b->s, &r, ret, e);
    selector_deinit(&s);
    arena_free(a);
    return rc;
}

struct tomb_result tomb_bed_delete(struct store_bed *b, const char *tenant, const char *selector,
                                   uint32_t from, uint32_t to, const char *id)
{
    struct tomb_result ret;
    struct err e;

    if (tomb_bed_try(b, tenant, selector, from, to, id, &ret, &e))
        fail_msg("delete: %s", e.text);
    return ret;
}

size_t tomb_bed_purge(struct store_bed *b, size_t rows)
{
    struct tomb_stats st;
    struct err e;
    bool more = true;
    size_t n = 0;

    while (more) {
        if (store_purge(b->s, rows, &more, &e))
            fail_msg("purge: %s", e.text);
        assert_true(++n < 100000);
    }
    store_delete_stats(b->s, &st);
    assert_int_equal(st.pending, 0);
    return n;
}

/* Where tenant and service stand in the keys of a column family. */
static bool names_it(enum kv_cf cf, struct str key, uint32_t tenant, uint32_t scope,
                     uint64_t series)
{
    size_t at =
        cf == KV_FINE || cf == KV_COARSE || cf == KV_RU || cf == KV_TL || cf == KV_FN ? 5 : 4;
    bool group = cf == KV_RU || cf == KV_FN || (cf == KV_TL && key.ptr[0] & KEY_TL_GROUP);
    size_t series_at = cf == KV_RAW ? 18 : cf == KV_EXM ? 15 : at + 10;

    if (key.len < at + 8 || get_u32be(key.ptr + at) != tenant)
        return false;
    if (cf == KV_WID)
        return !scope && !series;
    if (scope && get_u32be(key.ptr + at + 4) != scope)
        return false;
    return !series ||
           (!group && key.len >= series_at + 8 && get_u64be(key.ptr + series_at) == series);
}

/* The log, and the list of deletes itself, stay. */
static bool names_it_meta(struct str key, uint32_t tenant, uint32_t scope)
{
    static const uint8_t by_scope[] = { 0x13, 0x20, 0x21, 0x22, 0x30, 0x50, 0x56, 0x57,
                                        0x58, 0x59, 0x51, 0x52, 0x53, 0x54, 0x55 };
    uint8_t table = (uint8_t)key.ptr[0];

    if (table < 0x11 || (table >= 0x40 && table < 0x50) || table == KEY_TOMB ||
        table == KEY_TOMB_AT || table == KEY_TOMB_SPAN || key.len < 5 ||
        get_u32be(key.ptr + 1) != tenant)
        return false;
    if (!scope)
        return true;
    return memchr(by_scope, table, sizeof(by_scope)) && key.len >= 9 &&
           get_u32be(key.ptr + 5) == scope;
}

size_t tomb_bed_keys(struct store_bed *b, uint32_t tenant, uint32_t scope, uint64_t series)
{
    size_t n = 0;
    struct err e;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(b->s->kv, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            if (cf == KV_META)
                n += !series && names_it_meta(kv_iter_key(it), tenant, scope);
            else
                n += names_it((enum kv_cf)cf, kv_iter_key(it), tenant, scope, series);
        }
        assert_int_equal(kv_iter_status(it, &e), 0);
        kv_iter_free(it);
    }
    return n;
}

const char *tomb_bed_values(struct store_bed *b, const char *tenant, const char *label,
                            const char *selector)
{
    static char text[4096];
    struct arena *a = arena_new(16 * MIB);
    struct selector s = { 0 };
    struct store_labels l;
    size_t n = 0;
    struct err e;

    if (selector && (selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e) ||
                     selector_compile(&s, &e)))
        fail_msg("selector: %s", e.text);
    struct store_labels_query q = {
        .tenant = str_c(tenant ? tenant : "t"),
        .kind = STORE_VALUES,
        .name = str_c(label),
        .selector = &s,
    };
    struct store_view *v = store_view_get(b->s);
    if (store_labels(v, &q, a, &l, &e))
        fail_msg("labels: %s", e.text);
    store_view_put(v);
    text[0] = '\0';
    vec_for (i, &l.values)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s", i ? "," : "",
                              STR_ARG(l.values.ptr[i]));
    store_labels_deinit(&l);
    selector_deinit(&s);
    arena_free(a);
    return text;
}
