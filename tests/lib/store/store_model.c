/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/store_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/catalog/derived.h"

const struct model_type model_types[MODEL_TYPES] = {
    { "process_cpu:cpu:nanoseconds:cpu:nanoseconds", false },
    { "process_cpu:samples:count:cpu:nanoseconds", false },
    { "memory:alloc_space:bytes:space:bytes", false },
    { "memory:inuse_space:bytes::", true },
};

/* ---- the world ---- */

static void *keep(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);

    assert_non_null(p);
    return p;
}

static struct str text(struct arena *a, const char *fmt, ...) PRINTF(2, 3);

static struct str text(struct arena *a, const char *fmt, ...)
{
    char s[256];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(s, sizeof(s), fmt, ap);
    va_end(ap);
    assert_true(n >= 0 && n < (int)sizeof(s));
    return arena_strdup(a, str_n(s, (size_t)n));
}

static uint32_t below(struct model_world *w, uint32_t n)
{
    return (uint32_t)prng_below(&w->prng, n);
}

static uint32_t any_string(struct model_world *w)
{
    return prng_chance(&w->prng, 0.2) ? 0 : below(w, (uint32_t)w->strings.len);
}

static struct str frame_text(const struct model_world *w, struct arena *a, const struct frame *f)
{
    return text(a, "%.*s|%.*s|%.*s|%u|%" PRIu64, STR_ARG(w->strings.ptr[f->func]),
                STR_ARG(w->strings.ptr[f->file]), STR_ARG(w->strings.ptr[f->module]), f->line,
                f->addr);
}

static struct str join(struct arena *a, struct str up, struct str frame)
{
    char *p = keep(a, up.len + frame.len + 1);
    size_t n = 0;

    if (up.len) {
        memcpy(p, up.ptr, up.len);
        n = up.len;
        p[n++] = ';';
    }
    memcpy(p + n, frame.ptr, frame.len);
    return str_n(p, n + frame.len);
}

/* A new stack is the beginning of an old one and some frames, mostly old ones. */
static void add_stack(struct model_world *w)
{
    struct model_stack s = { 0 }, *old;
    uint32_t depth = below(w, 6);

    s.text = STR("");
    if (w->stacks.len) {
        old = &w->stacks.ptr[below(w, (uint32_t)w->stacks.len)];
        for (size_t i = 0; i < old->frames.len && !prng_chance(&w->prng, 0.3); i++)
            vec_push(&s.frames, old->frames.ptr[i]);
    }
    for (uint32_t i = 0; i < depth && s.frames.len < 40; i++) {
        struct frame f = { any_string(w), any_string(w), any_string(w), below(w, 3),
                           prng_chance(&w->prng, 0.1) ? prng_u64(&w->prng) : 0 };
        vec_push(&s.frames, f);
    }
    vec_for (i, &s.frames) {
        s.text = join(w->arena, s.text, frame_text(w, w->arena, &s.frames.ptr[i]));
    }
    for (size_t i = 0; i < w->stacks.len; i++) {
        if (str_eq(w->stacks.ptr[i].text, s.text)) {
            vec_free(&s.frames);
            return;
        }
    }
    vec_push(&w->stacks, s);
}

static void add_series(struct model_world *w)
{
    static const char *const tenants[] = { "anonymous", "acme" };
    static const char *const services[] = { "api", "db", "web" };
    struct model_series s = { tenants[below(w, 2)], services[below(w, 3)], { 0 } };
    struct err e;

    assert_int_equal(labels_set(&s.labels, w->arena, STR("service_name"), str_c(s.service), &e), 0);
    assert_int_equal(
        labels_set(&s.labels, w->arena, STR("pod"), text(w->arena, "pod-%u", below(w, 12)), &e), 0);
    if (prng_chance(&w->prng, 0.6))
        assert_int_equal(labels_set(&s.labels, w->arena, STR("zone"),
                                    text(w->arena, "%c", 'a' + below(w, 3)), &e),
                         0);
    if (prng_chance(&w->prng, 0.1))
        assert_int_equal(labels_set(&s.labels, w->arena, STR("odd.name"), STR("x\0y"), &e), 0);
    for (size_t i = 0; i < w->series.len; i++)
        if (!strcmp(w->series.ptr[i].tenant, s.tenant) &&
            labels_eq(&w->series.ptr[i].labels, &s.labels))
            return;
    vec_push(&w->series, s);
}

void model_world_init(struct model_world *w, uint64_t seed)
{
    *w = (struct model_world){ .arena = arena_new(256 * MIB), .wids = 1 };
    prng_init(&w->prng, seed);
    vec_push(&w->strings, STR(""));
    for (uint32_t i = 0; i < 40; i++)
        vec_push(&w->strings, text(w->arena, "s%u", i));
    for (int i = 0; i < 60; i++)
        add_stack(w);
    for (int i = 0; i < 40; i++)
        add_series(w);
}

void model_world_deinit(struct model_world *w)
{
    vec_for (i, &w->stacks)
        vec_free(&w->stacks.ptr[i].frames);
    vec_free(&w->stacks);
    vec_free(&w->strings);
    vec_free(&w->series);
    arena_free(w->arena);
}

/* ---- requests ---- */

static uint64_t any_value(struct model_world *w)
{
    switch (below(w, 4)) {
    case 0:
        return 1;
    case 1:
        return 10000000 * (uint64_t)(1 + below(w, 9));
    case 2:
        return 1 + below(w, 1000);
    default:
        return 1 + prng_below(&w->prng, UINT64_C(1) << 40);
    }
}

static void add_vector(struct model_world *w, struct model_push *p, uint32_t slot)
{
    struct model_vector v = { .slot = slot };
    uint32_t stacks = (uint32_t)w->stacks.len, at = below(w, stacks), n = below(w, 8);

    for (uint32_t i = 0; i < n && i < stacks; i++) {
        struct model_sample s = { (at + i * 7) % stacks, any_value(w) };
        bool again = false;
        vec_for (j, &v.samples)
            again = again || v.samples.ptr[j].stack == s.stack;
        if (!again)
            vec_push(&v.samples, s);
    }
    vec_push(&p->vectors, v);
}

struct model_request *model_request_new(struct model_world *w, uint32_t slot)
{
    struct model_request *r = XNEW(struct model_request);
    uint32_t first = below(w, (uint32_t)w->series.len), n = 1 + below(w, 4);

    if (prng_chance(&w->prng, 0.2)) { /* a deploy: new stacks, sometimes new pods */
        for (int i = 0; i < 4; i++)
            add_stack(w);
        add_series(w);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = prng_chance(&w->prng, 0.5) ? first : below(w, (uint32_t)w->series.len);
        struct model_push p = { .series = at, .type = below(w, MODEL_TYPES) };
        const struct model_series *a = &w->series.ptr[first], *b = &w->series.ptr[at];
        if (strcmp(a->tenant, b->tenant) || strcmp(a->service, b->service))
            continue;
        memcpy(p.wid, &w->wids, sizeof(w->wids));
        w->wids++;
        uint32_t vectors = prng_chance(&w->prng, 0.2) ? 1 + below(w, 5) : 1, at_slot = slot;
        for (uint32_t j = 0; j < vectors; j++, at_slot += 1 + below(w, 30))
            add_vector(w, &p, at_slot);
        vec_push(&r->pushes, p);
    }
    if (!r->pushes.len) {
        model_request_free(r);
        return model_request_new(w, slot);
    }
    return r;
}

void model_request_free(struct model_request *r)
{
    vec_for (i, &r->pushes) {
        vec_for (j, &r->pushes.ptr[i].vectors)
            vec_free(&r->pushes.ptr[i].vectors.ptr[j].samples);
        vec_free(&r->pushes.ptr[i].vectors);
    }
    vec_free(&r->pushes);
    xfree(r);
}

static uint32_t node_of(struct model_world *w, struct stacks *st, const struct model_stack *s)
{
    uint32_t node = 0;

    vec_for (i, &s->frames) {
        struct frame f = s->frames.ptr[i];
        f.func = stacks_string(st, w->strings.ptr[f.func]);
        f.file = stacks_string(st, w->strings.ptr[f.file]);
        f.module = stacks_string(st, w->strings.ptr[f.module]);
        node = stacks_node(st, node, stacks_frame(st, &f));
    }
    assert_int_not_equal(node, STACKS_FULL);
    return node;
}

struct node_value {
    uint32_t node;
    uint64_t value;
};

static int by_node(const void *a, const void *b)
{
    const struct node_value *x = a, *y = b;
    return x->node < y->node ? -1 : x->node > y->node;
}

static struct store_vector to_vector(struct model_world *w, const struct model_vector *v,
                                     struct stacks *st, struct arena *a)
{
    size_t n = v->samples.len;
    struct node_value *pairs = keep(a, n * sizeof(*pairs) + 1);
    uint32_t *nodes = keep(a, n * sizeof(*nodes) + 1);
    uint64_t *values = keep(a, n * sizeof(*values) + 1);

    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct node_value){ node_of(w, st, &w->stacks.ptr[v->samples.ptr[i].stack]),
                                        v->samples.ptr[i].value };
    qsort(pairs, n, sizeof(*pairs), by_node);
    for (size_t i = 0; i < n; i++) {
        nodes[i] = pairs[i].node;
        values[i] = pairs[i].value;
    }
    return (struct store_vector){ v->slot, nodes, values, n };
}

void model_request_write(struct model_world *w, const struct model_request *r, struct stacks *st,
                         struct arena *a, struct store_write *ret)
{
    struct store_series *series = keep(a, r->pushes.len * sizeof(*series));
    struct stacks_view *view = keep(a, sizeof(*view));
    const struct model_series *first = &w->series.ptr[r->pushes.ptr[0].series];

    for (size_t i = 0; i < r->pushes.len; i++) {
        const struct model_push *p = &r->pushes.ptr[i];
        struct store_vector *vectors = keep(a, p->vectors.len * sizeof(*vectors));
        for (size_t j = 0; j < p->vectors.len; j++)
            vectors[j] = to_vector(w, &p->vectors.ptr[j], st, a);
        series[i] = (struct store_series){
            .labels = p->wid[0] % 2 ? model_labels(w, p->series, p->type, a)
                                    : w->series.ptr[p->series].labels,
            .profile_type = str_c(model_types[p->type].id),
            .gauge = model_types[p->type].gauge,
            .vectors = vectors,
            .len = p->vectors.len,
        };
        memcpy(series[i].wid, p->wid, 16);
    }
    *view = stacks_view(st);
    *ret = (struct store_write){
        str_c(first->tenant), str_c(first->service), view, series, r->pushes.len, NULL, 0, 0, 0
    };
}

void model_add(struct model *m, const struct model_request *r)
{
    vec_for (i, &r->pushes)
        vec_push(&m->pushes, r->pushes.ptr[i]);
}

struct labels model_labels(const struct model_world *w, uint32_t series, uint32_t type,
                           struct arena *a)
{
    const struct model_series *s = &w->series.ptr[series];
    struct labels l = { 0 };
    struct ptype t;
    struct err e;
    struct str id = str_c(model_types[type].id);

    assert_int_equal(ptype_parse(id, &t, &e), 0);
    for (size_t i = 0; i < s->labels.len; i++)
        assert_int_equal(labels_set(&l, a, s->labels.ptr[i].name, s->labels.ptr[i].value, &e), 0);
    const struct {
        const char *name;
        struct str value;
    } more[] = {
        { "__name__", t.name },
        { "__type__", t.sample_type },
        { "__unit__", t.sample_unit },
        { "__period_type__", t.period_type },
        { "__period_unit__", t.period_unit },
        { "__profile_type__", id },
        { "__service_name__", str_c(s->service) },
    };
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (more[i].value.len)
            assert_int_equal(labels_set(&l, a, str_c(more[i].name), more[i].value, &e), 0);
    return l;
}

struct selector model_selector(struct model_world *w, struct arena *a)
{
    static const char *const texts[] = {
        "{}",
        "{}",
        "{service_name=\"api\"}",
        "{service_name=\"db\", zone=\"a\"}",
        "{service_name!=\"web\"}",
        "{__service_name__=~\"api|db\"}",
        "{pod=\"pod-3\"}",
        "{pod=~\"pod-[1-4]\", zone!=\"\"}",
        "{zone=\"\"}",
        "{zone!~\"a|b\"}",
        "{zone=~\"a|\"}",
        "{pod!=\"pod-1\", pod!~\".*2\"}",
        "{nothing=\"x\"}",
        "{nothing!=\"x\", service_name=~\".+\"}",
        "{__type__=~\"cpu|samples\"}",
        "{__name__=\"memory\", zone=\"b\"}",
        "{__unit__!=\"bytes\"}",
        "{__profile_type__=\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"}",
        "{__period_type__=\"\"}",
    };
    struct selector s;
    struct err e;

    const char *t = texts[below(w, ARRAY_LEN(texts))];
    if (selector_parse(str_c(t), SELECTOR_PROMETHEUS, a, &s, &e) || selector_compile(&s, &e))
        fail_msg("%s: %s", t, e.text);
    return s;
}
