/* SPDX-License-Identifier: Apache-2.0
 *
 * The model, and what must come out of it. Writers: gen_otlp_proto.c, gen_otlp_json.c.
 */
#include "tests/lib/gen/gen_otlp.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/gen/gen_pprof.h"

#define TIME_NS (INT64_C(1790000000) * 1000000000)

static const char *const types[][4] = {
    { "samples", "count", "cpu", "nanoseconds" },     { "off_cpu", "nanoseconds", NULL, NULL },
    { "wall", "nanoseconds", "wall", "ns" },          { "alloc_space", "bytes", NULL, NULL },
    { "otlp_test", "count", "otlp_test", "samples" },
};
static const char *const keys[] = { "thread.name", "thread.id", "http.route", "k", "k2", "zone" };

static void random_tables(struct gen_otlp *g, struct prng *p)
{
    g->functions = 1 + (uint32_t)prng_below(p, 20);
    for (size_t i = 0, n = 1 + prng_below(p, 8); i < n; i++) {
        struct gen_otlp_attr a = { .is_number = prng_chance(p, 0.3),
                                   .number = (int64_t)prng_below(p, 50) - 10 };
        snprintf(a.key, sizeof(a.key), "%s", keys[prng_below(p, ARRAY_LEN(keys))]);
        snprintf(a.text, sizeof(a.text), "v%u\"", (unsigned)prng_below(p, 4));
        vec_push(&g->attrs, a);
    }
    for (size_t i = 0, n = 1 + prng_below(p, 3); i < n; i++) {
        struct gen_otlp_mapping m = { .build_id = prng_chance(p, 0.5) };
        m.start = prng_chance(p, 0.5) ? 0x1000 * (1 + prng_below(p, 9)) : 0;
        m.limit = m.start ? m.start + 0x10000 : 0;
        m.offset = m.start ? prng_below(p, 3) * 0x1000 : 0;
        vec_push(&g->mappings, m);
    }
    for (size_t i = 0, n = 1 + prng_below(p, 20); i < n; i++) {
        struct gen_otlp_location l = { .mapping = (uint32_t)prng_below(p, g->mappings.len + 1) };
        l.lines = prng_chance(p, 0.7) ? 1 + (uint32_t)prng_below(p, 3) : 0;
        for (uint32_t k = 0; k < l.lines; k++)
            l.functions[k] = 1 + (uint32_t)prng_below(p, g->functions);
        l.address = l.lines ? 0 : 1 + prng_below(p, 0x20000);
        vec_push(&g->locations, l);
    }
    for (size_t i = 0, n = prng_below(p, 3); i < n; i++) {
        struct gen_otlp_link l;
        for (size_t k = 0; k < 16; k++)
            l.trace[k] = (uint8_t)(1 + prng_below(p, 255));
        for (size_t k = 0; k < 8; k++)
            l.span[k] = (uint8_t)(1 + prng_below(p, 255));
        vec_push(&g->links, l);
    }
}

/* Attributes of different keys. */
static uint32_t random_attrs(const struct gen_otlp *g, struct prng *p, uint32_t *ret)
{
    uint32_t n = 0;

    for (size_t i = prng_below(p, GEN_OTLP_ATTRS + 1); i > 0; i--) {
        uint32_t a = (uint32_t)prng_below(p, g->attrs.len);
        bool again = false;
        for (uint32_t k = 0; k < n; k++)
            again |= strcmp(g->attrs.ptr[ret[k]].key, g->attrs.ptr[a].key) == 0;
        if (!again)
            ret[n++] = a;
    }
    return n;
}

static void random_sample(const struct gen_otlp *g, struct prng *p, struct gen_otlp_sample *s)
{
    *s = (struct gen_otlp_sample){ .depth = (uint32_t)prng_below(p, GEN_OTLP_STACK + 1) };
    for (uint32_t i = 0; i < s->depth; i++)
        s->stack[i] = (uint32_t)prng_below(p, g->locations.len);
    s->attrs_len = random_attrs(g, p, s->attrs);
    s->link = (uint32_t)prng_below(p, g->links.len + 1);
    s->values_len = prng_chance(p, 0.7) ? 1 : 0;
    s->times_len = s->values_len == 0 || prng_chance(p, 0.4)
                       ? 1 + (uint32_t)prng_below(p, GEN_OTLP_VALUES)
                       : 0;
    if (s->times_len && s->values_len)
        s->values_len = s->times_len;
    for (uint32_t i = 0; i < s->values_len; i++)
        s->values[i] = (int64_t)(1 + prng_below(p, 1000));
    for (uint32_t i = 0; i < s->times_len; i++)
        s->times[i] = (uint64_t)TIME_NS + prng_below(p, 1000000000);
}

void gen_otlp_random(struct gen_otlp *g, struct prng *p)
{
    static const char *const services[] = { "shop", "cart", NULL };

    *g = (struct gen_otlp){ .literal = prng_chance(p, 0.1) };
    random_tables(g, p);
    for (size_t i = 0, n = 1 + prng_below(p, 4); i < n; i++) {
        const char *const *t = types[prng_below(p, ARRAY_LEN(types))];
        struct gen_otlp_profile out = { .type = t[0],
                                        .unit = t[1],
                                        .period_type = t[2],
                                        .period_unit = t[3],
                                        .period = (int64_t)(1 + prng_below(p, 100)),
                                        .time_ns = TIME_NS + (int64_t)prng_below(p, 1000000000),
                                        .duration_ns = (int64_t)prng_below(p, 5000000000),
                                        .has_id = prng_chance(p, 0.5),
                                        .service = services[prng_below(p, 3)] };
        for (size_t k = 0; k < 16; k++)
            out.id[k] = (uint8_t)(1 + prng_below(p, 255));
        out.resource_len = random_attrs(g, p, out.resource);
        out.scope_len = random_attrs(g, p, out.scope);
        for (size_t k = 1 + prng_below(p, 12); k > 0; k--) {
            struct gen_otlp_sample s;
            random_sample(g, p, &s);
            vec_push(&out.samples, s);
        }
        vec_push(&g->profiles, out);
    }
}

void gen_otlp_canary(struct gen_otlp *g, uint64_t time_ns)
{
    struct gen_otlp_location l = { .lines = 1, .functions = { 1 } };
    struct gen_otlp_sample s = { .depth = 1, .values = { GEN_OTLP_CANARY }, .values_len = 1 };
    struct gen_otlp_profile p = { .type = "otlp_test",
                                  .unit = "count",
                                  .period_type = "otlp_test",
                                  .period_unit = "samples",
                                  .period = 1,
                                  .time_ns = (int64_t)time_ns,
                                  .duration_ns = 1000000000,
                                  .service = "canary" };

    *g = (struct gen_otlp){ .literal = true, .functions = 1 };
    vec_push(&g->locations, l);
    vec_push(&p.samples, s);
    vec_push(&g->profiles, p);
}

struct gen_otlp_profile *gen_otlp_copy(struct gen_otlp *g, size_t at)
{
    struct gen_otlp_profile p = g->profiles.ptr[at];
    size_t n = p.samples.len;

    p.samples.ptr = NULL;
    p.samples.len = p.samples.cap = 0;
    for (size_t i = 0; i < n; i++)
        vec_push(&p.samples, g->profiles.ptr[at].samples.ptr[i]);
    vec_push(&g->profiles, p);
    return &g->profiles.ptr[g->profiles.len - 1];
}

void gen_otlp_free(struct gen_otlp *g)
{
    vec_for (i, &g->profiles)
        vec_free(&g->profiles.ptr[i].samples);
    vec_free(&g->profiles);
    vec_free(&g->attrs);
    vec_free(&g->mappings);
    vec_free(&g->locations);
    vec_free(&g->links);
}

/* ---- the rows ------------------------------------------------------------------------------- */

struct pair {
    char key[24], value[24];
};
struct pairs {
    struct pair at[4 * GEN_OTLP_ATTRS];
    size_t len;
};

/* The first of equal keys; sorted. */
static void add_pair(struct pairs *p, const char *key, const char *value)
{
    struct pair pair;
    size_t i = 0;

    for (i = 0; i < p->len; i++)
        if (strcmp(p->at[i].key, key) == 0)
            return;
    snprintf(pair.key, sizeof(pair.key), "%s", key);
    snprintf(pair.value, sizeof(pair.value), "%s", value);
    for (i = p->len; i > 0 && strcmp(p->at[i - 1].key, key) > 0; i--)
        p->at[i] = p->at[i - 1];
    p->at[i] = pair;
    p->len++;
}

static void add_attrs(const struct gen_otlp *g, const uint32_t *list, uint32_t n, bool sample,
                      struct pairs *p)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct gen_otlp_attr *a = &g->attrs.ptr[list[i]];
        char value[24];
        if (sample && strcmp(a->key, "thread.id") == 0)
            continue;
        if (a->is_number)
            snprintf(value, sizeof(value), "%lld", (long long)a->number);
        else
            snprintf(value, sizeof(value), "%s", a->text);
        add_pair(p, a->key, value);
    }
}

static void add_stack(const struct gen_otlp *g, const struct gen_otlp_sample *s, struct buf *out)
{
    size_t from = out->len;

    for (uint32_t i = s->depth; i > 0; i--) {
        const struct gen_otlp_location *l = &g->locations.ptr[s->stack[i - 1]];
        for (uint32_t k = l->lines; k > 0; k--)
            buf_addf(out, "fn%u;", l->functions[k - 1]);
        if (l->lines)
            continue;
        const struct gen_otlp_mapping *m = l->mapping ? &g->mappings.ptr[l->mapping - 1] : NULL;
        bool within = m && m->start && l->address >= m->start && l->address < m->limit;
        uint64_t addr = within ? l->address - m->start + m->offset : l->address;
        if (m)
            buf_addf(out, "lib%u.so!0x%llx;", l->mapping, (unsigned long long)addr);
        else
            buf_addf(out, "unknown!0x%llx;", (unsigned long long)addr);
    }
    if (out->len == from)
        buf_addf(out, "[unknown];");
    out->len--;
}

static void add_row(const struct gen_otlp *g, const struct gen_otlp_profile *p,
                    const struct gen_otlp_sample *s, struct buf *out)
{
    bool cpu = strcmp(p->type, "samples") == 0;
    uint64_t value = s->values_len ? 0 : s->times_len;
    struct pairs base = { .len = 0 };

    for (uint32_t i = 0; i < s->values_len; i++)
        value += (uint64_t)s->values[i];
    if (p->service)
        add_pair(&base, "service.name", p->service);
    add_attrs(g, p->resource, p->resource_len, false, &base);
    add_attrs(g, p->scope, p->scope_len, false, &base);
    add_attrs(g, s->attrs, s->attrs_len, true, &base);
    buf_addf(out, "%s\t{", cpu ? "cpu" : p->type);
    for (size_t i = 0; i < base.len; i++)
        buf_addf(out, "%s%s=%s", i ? "," : "", base.at[i].key, base.at[i].value);
    buf_addf(out, "}\t");
    add_stack(g, s, out);
    buf_addf(out, "\t%llu\n", (unsigned long long)(value * (cpu ? (uint64_t)p->period : 1)));
}

/* Equal rows are added up. */
static void add_sorted(struct buf *rows, struct buf *out)
{
    struct str rest, line, last = STR_NULL;
    uint64_t sum = 0, v;
    bool more = true;

    gen_sort_lines(rows);
    rest = buf_str(rows);
    while (str_next(&rest, '\n', &more, &line)) {
        ptrdiff_t tab = str_rfind(line, '\t');
        struct str key = str_sub(line, 0, tab < 0 ? 0 : (size_t)tab);
        if (last.len && !str_eq(key, last)) {
            buf_addf(out, "%.*s\t%llu\n", STR_ARG(last), (unsigned long long)sum);
            sum = 0;
        }
        last = key;
        if (key.len) {
            CHECK(str_u64(str_sub(line, (size_t)tab + 1, line.len), &v));
            sum += v;
        }
    }
}

void gen_otlp_rows(const struct gen_otlp *g, struct buf *out)
{
    struct buf rows, sums;

    vec_for (i, &g->profiles) {
        const struct gen_otlp_profile *p = &g->profiles.ptr[i];
        buf_init(&rows, 16 * MIB);
        buf_init(&sums, 16 * MIB);
        vec_for (k, &p->samples)
            add_row(g, p, &p->samples.ptr[k], &rows);
        add_sorted(&rows, &sums);
        gen_sort_lines(&sums);
        buf_addf(out, "%s\n", p->service ? p->service : "unknown_service");
        buf_add_str(out, buf_str(&sums));
        buf_deinit(&rows);
        buf_deinit(&sums);
    }
}
