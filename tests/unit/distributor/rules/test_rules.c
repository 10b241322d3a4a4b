/* SPDX-License-Identifier: Apache-2.0
 *
 * The overrides file and what it does to a push: tables, and sums of random pushes beside a slow
 * count by final labels and node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/rules/actives.h"
#include "distributor/rules/apply.h"
#include "distributor/rules/rules.h"

#define NODES 40

static const struct distributor_conf conf = { .past_ms = UINT64_C(400) * 86400000,
                                              .future_ms = 600000,
                                              .tenant_rate_bytes = 5,
                                              .tenant_burst_bytes = 64000000 };
static const struct window at = { INT64_C(1790000000000), INT64_C(1790000010000) };

static struct overrides *parse(const char *text)
{
    struct limits l = limits_default();
    struct overrides *o;
    struct err e;

    if (overrides_parse("f", str_c(text), &conf, &l, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

static void test_inherit(void **state)
{
    (void)state;
    struct overrides *o =
        parse("defaults: {max_label_name_length: 100, reject_older_than: 1h,"
              " drop: ['{a=\"b\"}']}\n"
              "tenants:\n"
              "  x: {max_label_name_length: 0, ingestion_rate_mb: 1.5}\n"
              "  y: {drop: [], ingest_limits: {bytes: 1KiB}}\n"
              "  z: {reject_older_than: 0, max_profile_stacktrace_depth: 9000}\n");
    const struct policy *other = overrides_policy(o, STR("other"));
    const struct policy *x = overrides_policy(o, STR("x")), *y = overrides_policy(o, STR("y"));
    const struct policy *z = overrides_policy(o, STR("z"));

    assert_int_equal(other->limits.label_name_bytes, 100);
    assert_int_equal(other->rate_bytes, 5); /* of the options */
    assert_int_equal(other->past_ms, 3600000);
    assert_int_equal(x->limits.label_name_bytes, 64 * KIB); /* 0: no limit of its own */
    assert_int_equal(x->rate_bytes, 1500000);
    assert_ptr_equal(x->rules, other->rules); /* shared */
    assert_int_equal(other->rules->drops_len, 1);
    assert_int_equal(y->rules->drops_len, 0);
    assert_int_equal(y->ingest_bytes, 1024);
    assert_int_equal(y->ingest_ms, 86400000);
    assert_int_equal(y->past_ms, 3600000);
    assert_int_equal(z->past_ms, conf.past_ms);
    assert_int_equal(z->limits.frames, 9000); /* a limit that refuses may not be below it */
    overrides_hold(o);
    overrides_free(o);
    assert_int_equal(overrides_policy(o, STR("x"))->rate_bytes, 1500000);
    overrides_free(o);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "tenant: {}", "f line 1: unknown key \"tenant\"; did you mean \"tenants\"?" },
        { "defaults:\n  ingestion_rate: 4", "line 2: unknown key" },
        { "defaults: {max_label_names_per_series: 1}", "not within 2" },
        { "defaults: {max_series_per_tenant: -1}", "no number" },
        { "defaults: {reject_older_than: 4000d}", "not within" },
        { "defaults: {ingestion_rate_mb: lots}", "not a number" },
        { "defaults: {drop: ['{a=']}", "selector" },
        { "defaults: {drop: ['x{a=\"b\"}']}", "matchers only" },
        { "defaults: {drop: ['{a=~\"(\"}']}", "regex" },
        { "defaults: {sampling: [{match: '{a=\"b\"}', probability: 1.5}]}", "from 0 to 1" },
        { "defaults: {sampling: [{probability: 1}]}", "either match or usage_group" },
        { "defaults: {sampling: [{usage_group: g, probability: 1}]}", "no such usage group" },
        { "defaults: {usage_groups: [a]}", "a map" },
        { "defaults: {relabel: [{action: hashmod, target_label: a}]}", "modulus" },
        { "tenants: {a: {}, a: {}}", "given twice" },
        { "tenants: [a]", "wants a map" },
        { "defaults: {}\ntenants: {ok: {}, a/b: {}}",
          "f line 2: a/b: tenant id has byte 0x2f at position 1; allowed are" },
        { "overrides: {'..': {}}", "f line 1: ..: tenant id is '.' or '..'" },
        { "tenants: {'a|b': {}}", "a|b: tenant id has byte 0x7c" },
        { "tenants: {'': {}}", "tenant id is empty" },
    };
    struct limits l = limits_default();

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct overrides *o;
        struct err e = { 0 };
        assert_int_equal(overrides_parse("f", str_c(rows[i].text), &conf, &l, &o, &e), ERR_CONFIG);
        if (!strstr(e.text, rows[i].why))
            fail_msg("row %zu: %s", i, e.text);
    }
}

/* ---- pushes --------------------------------------------------------------------------------- */

struct bed {
    struct arena *arena;
    struct push push;
};

static void bed_init(struct bed *b, const char *service)
{
    struct limits l = limits_default();
    struct err e;

    b->arena = arena_new(64 * MIB);
    push_init(&b->push, b->arena, &l, 1);
    assert_int_equal(labels_set(&b->push.base, b->arena, STR("service_name"), str_c(service), &e),
                     0);
    b->push.service = str_c(service);
}

static void bed_free(struct bed *b)
{
    push_deinit(&b->push);
    arena_free(b->arena);
}

/* A series of one sample type with one more label, and one sample; node 0: 40 random ones. */
static void add(struct bed *b, const char *type, const char *name, const char *value, uint32_t node,
                uint64_t v, struct prng *p)
{
    struct ptype t = { STR("process_cpu"), str_c(type), STR("ns"), STR("cpu"), STR("ns") };
    struct labels extra = { 0 };
    uint32_t *nodes = arena_calloc(b->arena, NODES, sizeof(*nodes));
    uint64_t *values = arena_calloc(b->arena, NODES, sizeof(*values));
    struct push_series s = { .nodes = nodes, .values = values, .unit = 1 };
    struct err e;

    if (node) {
        nodes[0] = node;
        values[0] = v;
        s.len = 1;
    }
    for (uint32_t n = 1; !node && n <= NODES; n++) {
        if (!prng_chance(p, 0.5))
            continue;
        nodes[s.len] = n;
        values[s.len++] = 1 + prng_below(p, 1000);
    }
    if (name)
        assert_int_equal(labels_set(&extra, b->arena, str_c(name), str_c(value), &e), 0);
    assert_int_equal(push_add(&b->push, &t, &extra, &s, &e), 0);
}

static void exemplar(struct bed *b, size_t series, const char *id)
{
    const struct push_series *s = &b->push.series[series];
    struct push_exemplar x = {
        .kind = EXID_SPAN, .id = str_c(id), .nodes = s->nodes, .values = s->values, .len = s->len
    };

    assert_true(push_exemplar(&b->push, series, &x));
}

static int apply(struct bed *b, const char *text, struct applied *ret, struct err *e)
{
    struct overrides *o = parse(text);
    int rc = rules_apply(overrides_policy(o, STR("t")), &b->push, &at, ret, e);

    overrides_free(o);
    return rc;
}

static void test_merge(void **state)
{
    (void)state;
    struct bed b;
    struct applied a;
    struct err e = { 0 };

    bed_init(&b, "s");
    add(&b, "cpu", "pod", "a", 3, 10, NULL);
    add(&b, "cpu", "pod", "b", 3, INT64_MAX - 1, NULL);
    add(&b, "cpu", "pod", "c", 7, 5, NULL);
    add(&b, "wall", "pod", "a", 3, 1, NULL);
    exemplar(&b, 0, "12345678");
    exemplar(&b, 2, "12345678");
    exemplar(&b, 1, "abcdefgh");
    assert_int_equal(apply(&b, "defaults: {relabel: [{action: labeldrop, regex: pod}]}", &a, &e),
                     0);
    assert_int_equal(b.push.series_len, 2);
    const struct push_series *s = &b.push.series[0];
    assert_true(str_eqc(labels_get(&s->labels, STR("__type__")), "cpu"));
    assert_int_equal(s->len, 2);
    assert_int_equal(s->nodes[0], 3);
    assert_int_equal(s->values[0], INT64_MAX); /* stays there, and is counted */
    assert_true(b.push.drops[CHANGE_SATURATED] > 0);
    assert_int_equal(s->values[1], 5);
    assert_int_equal(s->exemplars_len, 2);
    assert_int_equal(b.push.exemplars, 2);
    for (size_t i = 0; i < 2; i++) {
        bool both = str_eqc(s->exemplars[i].id, "12345678");
        assert_int_equal(s->exemplars[i].len, both ? 2 : 1);
        assert_int_equal(s->exemplars[i].values[0], both ? 10 : INT64_MAX - 1);
    }
    bed_free(&b);
}

static void test_inside_labels(void **state)
{
    (void)state;
    static const struct {
        const char *rules;
        int rc;
        const char *says, *type, *service, *label;
    } rows[] = {
        { "[{target_label: __name__, replacement: wall}]", 0, "", "wall:cpu:ns:cpu:ns", "s", "" },
        { "[{target_label: __type__, replacement: inuse_space}]", 0, "",
          "process_cpu:inuse_space:ns:cpu:ns", "s", "" },
        { "[{target_label: __profile_type__, replacement: x}, {target_label: __service_name__,"
          " replacement: x}]",
          0, "", "process_cpu:cpu:ns:cpu:ns", "s", "" },
        { "[{target_label: service_name, replacement: z}]", 0, "", "process_cpu:cpu:ns:cpu:ns", "z",
          "" },
        { "[{target_label: __tmp, replacement: z}, {source_labels: [__tmp], target_label: l}]", 0,
          "", "process_cpu:cpu:ns:cpu:ns", "s", "z" },
        { "[{target_label: span_id, replacement: z}]", 0, "", "process_cpu:cpu:ns:cpu:ns", "s",
          "" },
        { "[{action: labeldrop, regex: service_name}]", ERR_INPUT, "missing_labels", "", "", "" },
        { "[{action: labeldrop, regex: __name__}]", ERR_INPUT, "invalid_labels", "", "", "" },
        { "[{target_label: __type__, replacement: 'a:b:c:d:e'}]", ERR_INPUT, "invalid_labels", "",
          "", "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct applied a;
        struct err e = { 0 };
        struct bed b;
        char text[512];
        bed_init(&b, "s");
        add(&b, "cpu", NULL, NULL, 3, 10, NULL);
        (void)snprintf(text, sizeof(text), "defaults: {relabel: %s}", rows[i].rules);
        int rc = apply(&b, text, &a, &e);
        if (rc != rows[i].rc || (rc && !strstr(e.text, rows[i].says)))
            fail_msg("row %zu: %d %s", i, rc, e.text);
        const struct push_series *s = &b.push.series[0];
        if (rc == 0 &&
            (!str_eqc(s->profile_type, rows[i].type) ||
             !str_eqc(labels_get(&s->labels, STR("__profile_type__")), rows[i].type) ||
             !str_eqc(rules_service(s), rows[i].service) ||
             !str_eqc(labels_get(&s->labels, STR("__service_name__")), rows[i].service) ||
             !str_eq(labels_get(&s->labels, STR("l")), str_c(rows[i].label)) ||
             labels_get(&s->labels, STR("span_id")).len ||
             labels_get(&s->labels, STR("__tmp")).len))
            fail_msg("row %zu: %.*s", i, STR_ARG(s->profile_type));
        if (rc == 0)
            assert_int_equal(s->gauge, i == 1);
        bed_free(&b);
    }
}

/* All types of one label set are kept or left out together, and the same at every try. */
static void test_sampling(void **state)
{
    (void)state;
    const char *text = "defaults:\n  usage_groups: {all: '{service_name=\"s\"}', no: '{x=\"y\"}'}\n"
                       "  sampling: [{match: '{pod=~\"p.*\"}', probability: 0.3}]\n"
                       "  drop: ['{pod=\"never\"}']\n";
    size_t kept = 0;

    for (int i = 0; i < 400; i++) {
        size_t lens[2];
        char pod[16];
        (void)snprintf(pod, sizeof(pod), "p%d", i);
        for (int k = 0; k < 2; k++) {
            struct applied a;
            struct err e;
            struct bed b;
            bed_init(&b, "s");
            add(&b, "cpu", "pod", pod, 3, 10, NULL);
            add(&b, "wall", "pod", pod, 3, 10, NULL);
            add(&b, "cpu", "pod", "never", 3, 10, NULL);
            add(&b, "cpu", "other", "x", 3, 10, NULL);
            assert_int_equal(apply(&b, text, &a, &e), 0);
            lens[k] = b.push.series_len;
            assert_true(lens[k] == 1 || lens[k] == 3);
            assert_int_equal(a.sampled, 3 - lens[k]);
            assert_int_equal(a.dropped, 1);
            assert_int_equal(a.groups, 1);
            bed_free(&b);
        }
        assert_int_equal(lens[0], lens[1]);
        kept += lens[0] == 3;
    }
    assert_in_range(kept, 80, 160); /* 120 +- 9 */
}

/* Every sample is found again, under the labels it should have. */
static void test_sums(void **state)
{
    (void)state;
    static const char *const pods[] = { "a", "b", "c", "d" };
    const char *text = "defaults: {relabel: [{source_labels: [pod], regex: '[ab]', target_label: "
                       "service_name, replacement: ab}, {action: labeldrop, regex: pod}]}";
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 4711;
    struct prng p;

    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 500; round++) {
        uint64_t want[2][2][NODES + 1] = { 0 }; /* service ab or s; cpu or wall */
        struct applied a;
        struct err e;
        struct bed b;
        bed_init(&b, "s");
        for (size_t n = prng_below(&p, 20); n > 0; n--) {
            size_t pod = prng_below(&p, 4), wall = prng_below(&p, 2);
            add(&b, wall ? "wall" : "cpu", "pod", pods[pod], 0, 0, &p);
            const struct push_series *s = &b.push.series[b.push.series_len - 1];
            for (size_t i = 0; i < s->len; i++)
                want[pod >= 2][wall][s->nodes[i]] += s->values[i];
        }
        assert_int_equal(apply(&b, text, &a, &e), 0);
        assert_true(b.push.series_len <= 4);
        for (size_t k = 0; k < b.push.series_len; k++) {
            const struct push_series *s = &b.push.series[k];
            bool wall = str_eqc(labels_get(&s->labels, STR("__type__")), "wall");
            bool own = str_eqc(rules_service(s), "s");
            uint64_t total = 0;
            assert_true(own || str_eqc(rules_service(s), "ab"));
            assert_true(k == 0 || str_cmp(rules_service(s - 1), rules_service(s)) <= 0);
            for (size_t i = 0; i < s->len; i++) {
                assert_true(i == 0 || s->nodes[i - 1] < s->nodes[i]);
                assert_int_equal(s->values[i], want[own][wall][s->nodes[i]]);
                want[own][wall][s->nodes[i]] = 0;
                total += s->values[i];
            }
            assert_int_equal(s->total, total);
        }
        for (size_t i = 0; i < sizeof(want) / sizeof(uint64_t); i++)
            assert_int_equal(((uint64_t *)want)[i], 0);
        bed_free(&b);
    }
}

static void test_actives(void **state)
{
    (void)state;
    struct actives *a = actives_new(0);
    static const struct {
        const char *pod;
        uint64_t minute;
        bool ok;
    } rows[] = {
        { "a", 0, true },   { "b", 1, true },   { "c", 2, false }, /* two are allowed */
        { "a", 3, true },   { "b", 29, true },                     /* known ones always pass */
        { "c", 31, false }, { "a", 32, true },  { "c", 33, false },
        { "b", 61, true },  { "c", 62, false }, { "a", 63, true },
        { "b", 300, true }, { "d", 301, true }, { "a", 302, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e;
        struct bed b;
        bed_init(&b, "s");
        add(&b, "cpu", "pod", rows[i].pod, 1, 1, NULL);
        int rc = actives_admit(a, &b.push, 2, rows[i].minute * 60000, &e);
        if (rc != (rows[i].ok ? 0 : ERR_RATE))
            fail_msg("row %zu: %d", i, rc);
        if (rc)
            assert_string_equal(rules_reason(&e), "series_limit");
        bed_free(&b);
    }
    actives_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inherit),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_merge),    cmocka_unit_test(test_inside_labels),
        cmocka_unit_test(test_sampling), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_actives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
