/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/gen_pprof.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"

#define BODY_MAX (512 * MIB)

void gen_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_add_c(b, (char)(0x80 | (v & 0x7f)));
    buf_add_c(b, (char)v);
}

void gen_u64(struct buf *b, uint32_t field, uint64_t v)
{
    gen_varint(b, (uint64_t)field << 3);
    gen_varint(b, v);
}

void gen_bytes(struct buf *b, uint32_t field, struct str v)
{
    gen_varint(b, (uint64_t)field << 3 | 2);
    gen_varint(b, v.len);
    buf_add_str(b, v);
}

void gen_pprof_init(struct gen_pprof *g)
{
    *g = (struct gen_pprof){ .id_mul = 1, .time_ns = INT64_C(1700000000123456789) };
    buf_init(&g->body, BODY_MAX);
    buf_init(&g->strings, BODY_MAX);
    buf_init(&g->labels, BODY_MAX);
    gen_string(g, "");
}

void gen_pprof_deinit(struct gen_pprof *g)
{
    buf_deinit(&g->body);
    buf_deinit(&g->strings);
    buf_deinit(&g->labels);
}

uint64_t gen_string_n(struct gen_pprof *g, struct str s)
{
    gen_bytes(&g->strings, 6, s);
    return g->strings_len++;
}

uint64_t gen_string(struct gen_pprof *g, const char *s)
{
    return gen_string_n(g, str_c(s));
}

static void message(struct gen_pprof *g, uint32_t field, struct buf *m)
{
    gen_bytes(&g->body, field, buf_str(m));
    buf_deinit(m);
}

static struct buf empty(void)
{
    struct buf b;

    buf_init(&b, BODY_MAX);
    return b;
}

static struct buf value_type(struct gen_pprof *g, const char *type, const char *unit)
{
    struct buf m = empty();

    gen_u64(&m, 1, gen_string(g, type));
    gen_u64(&m, 2, gen_string(g, unit));
    return m;
}

void gen_type(struct gen_pprof *g, const char *type, const char *unit)
{
    struct buf m = value_type(g, type, unit);

    message(g, 1, &m);
}

void gen_period(struct gen_pprof *g, const char *type, const char *unit, int64_t period)
{
    struct buf m = value_type(g, type, unit);

    message(g, 11, &m);
    g->period = period;
}

static uint64_t id_of(const struct gen_pprof *g, uint64_t i)
{
    return i * g->id_mul + g->id_add;
}

uint64_t gen_function(struct gen_pprof *g, const char *name, const char *file)
{
    struct buf m = empty();
    uint64_t id = id_of(g, ++g->functions);

    gen_u64(&m, 1, id);
    gen_u64(&m, 2, gen_string(g, name));
    gen_u64(&m, 3, gen_string(g, name));
    gen_u64(&m, 4, gen_string(g, file));
    gen_u64(&m, 5, 1);
    message(g, 5, &m);
    return id;
}

static uint64_t location(struct gen_pprof *g, uint64_t mapping, uint64_t address,
                         const uint64_t *functions, size_t n, int64_t line_no)
{
    struct buf m = empty();
    uint64_t id = id_of(g, ++g->locations);

    gen_u64(&m, 1, id);
    if (mapping)
        gen_u64(&m, 2, mapping);
    gen_u64(&m, 3, address);
    for (size_t i = 0; i < n; i++) {
        struct buf line = empty();
        gen_u64(&line, 1, functions[i]);
        gen_u64(&line, 2, (uint64_t)line_no);
        gen_bytes(&m, 4, buf_str(&line));
        buf_deinit(&line);
    }
    message(g, 4, &m);
    return id;
}

uint64_t gen_location(struct gen_pprof *g, uint64_t function, int64_t line)
{
    return location(g, 0, 0x400000 + g->locations * 16, &function, 1, line);
}

uint64_t gen_location_inlined(struct gen_pprof *g, const uint64_t *functions, size_t n)
{
    return location(g, 0, 0x400000 + g->locations * 16, functions, n, 1);
}

uint64_t gen_location_address(struct gen_pprof *g, uint64_t mapping, uint64_t address)
{
    return location(g, mapping, address, NULL, 0, 0);
}

uint64_t gen_mapping(struct gen_pprof *g, uint64_t start, uint64_t limit, uint64_t offset,
                     const char *file, const char *build_id)
{
    struct buf m = empty();
    uint64_t id = id_of(g, ++g->mappings);

    gen_u64(&m, 1, id);
    gen_u64(&m, 2, start);
    gen_u64(&m, 3, limit);
    gen_u64(&m, 4, offset);
    gen_u64(&m, 5, gen_string(g, file));
    gen_u64(&m, 6, gen_string(g, build_id));
    message(g, 3, &m);
    return id;
}

void gen_label(struct gen_pprof *g, const char *key, const char *value)
{
    struct buf m = empty();

    gen_u64(&m, 1, gen_string(g, key));
    gen_u64(&m, 2, gen_string(g, value));
    gen_bytes(&g->labels, 3, buf_str(&m));
    buf_deinit(&m);
}

void gen_label_num(struct gen_pprof *g, const char *key, int64_t value)
{
    struct buf m = empty();

    gen_u64(&m, 1, gen_string(g, key));
    gen_u64(&m, 3, (uint64_t)value);
    gen_bytes(&g->labels, 3, buf_str(&m));
    buf_deinit(&m);
}

static void numbers(const struct gen_pprof *g, struct buf *m, uint32_t field, const uint64_t *v,
                    size_t n)
{
    struct buf packed = empty();

    for (size_t i = 0; i < n; i++) {
        if (g->unpacked)
            gen_u64(m, field, v[i]);
        else
            gen_varint(&packed, v[i]);
    }
    if (!g->unpacked)
        gen_bytes(m, field, buf_str(&packed));
    buf_deinit(&packed);
}

void gen_sample(struct gen_pprof *g, const uint64_t *locations, size_t n, const int64_t *values,
                size_t values_len)
{
    struct buf m = empty();

    if (!g->values_first)
        numbers(g, &m, 1, locations, n);
    numbers(g, &m, 2, (const uint64_t *)(const void *)values, values_len);
    if (g->values_first)
        numbers(g, &m, 1, locations, n);
    buf_add_str(&m, buf_str(&g->labels));
    buf_reset(&g->labels);
    message(g, 2, &m);
}

void gen_pprof_finish(struct gen_pprof *g, struct buf *body)
{
    if (g->strings_first)
        buf_add_str(body, buf_str(&g->strings));
    buf_add_str(body, buf_str(&g->body));
    if (!g->strings_first)
        buf_add_str(body, buf_str(&g->strings));
    if (g->time_ns)
        gen_u64(body, 9, (uint64_t)g->time_ns);
    if (g->duration_ns)
        gen_u64(body, 10, (uint64_t)g->duration_ns);
    if (g->period)
        gen_u64(body, 12, (uint64_t)g->period);
    CHECK(buf_ok(body));
}

/* ---- random profiles and the slow model -------------------------------------------------------
 * */

static int line_cmp(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

void gen_sort_lines(struct buf *b)
{
    VEC(struct str) lines = { 0 };
    struct str rest = buf_str(b), line;
    struct buf out;
    bool more = true;

    buf_init(&out, b->max);
    while (str_next(&rest, '\n', &more, &line))
        if (line.len)
            vec_push(&lines, line);
    if (lines.len)
        qsort(lines.ptr, lines.len, sizeof(*lines.ptr), line_cmp);
    vec_for (i, &lines) {
        buf_add_str(&out, lines.ptr[i]);
        buf_add_c(&out, '\n');
    }
    vec_free(&lines);
    buf_move(b, &out);
}

/* One (type, labels, stack) and its sum; a list that is searched from the front. */
struct model_row {
    char *key;
    uint64_t sum;
};
struct model {
    VEC(struct model_row) rows;
};

static void model_add(struct model *m, const char *key, uint64_t v)
{
    vec_for (i, &m->rows) {
        if (strcmp(m->rows.ptr[i].key, key) == 0) {
            m->rows.ptr[i].sum += v;
            return;
        }
    }
    struct model_row row = { xstrdup(key), v };
    vec_push(&m->rows, row);
}

#define FUNCTIONS 24
#define LOCATIONS 40
#define TYPES     3

struct random_state {
    struct prng *p;
    struct gen_pprof g;
    char names[FUNCTIONS][32];
    uint64_t functions[FUNCTIONS];
    uint64_t locations[LOCATIONS];
    char text[LOCATIONS][256]; /* frames of a location, outermost first, joined by ';' */
    struct model model;
};

static void random_symbols(struct random_state *s)
{
    for (size_t i = 0; i < FUNCTIONS; i++) {
        /* Some functions share a name and differ by file: still one name to the model. */
        snprintf(s->names[i], sizeof(s->names[i]), "f%zu", i % 4 ? i : i / 4);
        s->functions[i] = gen_function(&s->g, s->names[i], i % 2 ? "a.go" : "b.go");
    }
    for (size_t i = 0; i < LOCATIONS; i++) {
        size_t n = 1 + prng_below(s->p, 3), at = 0;
        size_t pick[3];
        uint64_t ids[3];
        for (size_t k = 0; k < n; k++) {
            pick[k] = prng_below(s->p, FUNCTIONS);
            ids[k] = s->functions[pick[k]];
        }
        for (size_t k = n; k > 0; k--)
            at += (size_t)snprintf(s->text[i] + at, sizeof(s->text[i]) - at, "%s%s",
                                   k == n ? "" : ";", s->names[pick[k - 1]]);
        s->locations[i] = gen_location_inlined(&s->g, ids, n);
    }
}

static void random_sample(struct random_state *s, struct gen_random *ret)
{
    static const char *const pods[] = { "", "p1", "p2" };
    static const char *const types[] = { "samples", "cpu", "alloc_space" };
    uint64_t ids[12];
    int64_t values[TYPES];
    size_t n = 1 + prng_below(s->p, ARRAY_LEN(ids)), pick[12];
    const char *pod = pods[prng_below(s->p, ARRAY_LEN(pods))];
    bool negative = prng_below(s->p, 20) == 0, unknown = prng_below(s->p, 20) == 0;
    char stack[4096], key[8192];
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        pick[i] = prng_below(s->p, LOCATIONS);
        ids[i] = s->locations[pick[i]];
    }
    for (size_t i = n; i > 0; i--)
        at += (size_t)snprintf(stack + at, sizeof(stack) - at, "%s%s", i == n ? "" : ";",
                               s->text[pick[i - 1]]);
    for (size_t t = 0; t < TYPES; t++)
        values[t] = prng_below(s->p, 3) ? (int64_t)prng_below(s->p, 1000000) : 0;
    if (negative)
        values[1] = -1;
    if (unknown)
        ids[prng_below(s->p, n)] = UINT64_C(1) << 62;
    if (*pod)
        gen_label(&s->g, "pod", pod);
    if (prng_below(s->p, 2))
        gen_label_num(&s->g, "bytes", (int64_t)prng_below(s->p, 4096) + 1);
    s->g.unpacked = prng_below(s->p, 2);
    s->g.values_first = prng_below(s->p, 2);
    gen_sample(&s->g, ids, n, values, TYPES);
    ret->samples++;
    if (negative || unknown) {
        ret->dropped += negative || values[0] || values[1] || values[2];
        return;
    }
    for (size_t t = 0; t < TYPES; t++) {
        snprintf(key, sizeof(key), "%s\t{%s%s}\t%s", types[t], *pod ? "pod=" : "", pod, stack);
        if (values[t])
            model_add(&s->model, key, (uint64_t)values[t]);
    }
}

void gen_random_pprof(struct prng *p, size_t samples, struct gen_random *ret)
{
    struct random_state *s = XNEW(struct random_state);

    *ret = (struct gen_random){ 0 };
    buf_init(&ret->body, BODY_MAX);
    buf_init(&ret->rows, BODY_MAX);
    s->p = p;
    gen_pprof_init(&s->g);
    switch (prng_below(p, 4)) { /* dense ids, from 8 in steps, sparse, huge */
    case 1:
        s->g.id_add = 5;
        s->g.id_mul = 3;
        break;
    case 2:
        s->g.id_mul = 1000003;
        break;
    case 3:
        s->g.id_add = UINT64_C(1) << 63;
        break;
    default:
        break;
    }
    s->g.strings_first = prng_below(p, 2);
    gen_type(&s->g, "samples", "count");
    gen_type(&s->g, "cpu", "nanoseconds");
    gen_type(&s->g, "alloc_space", "bytes");
    gen_period(&s->g, "cpu", "nanoseconds", 10000000);
    random_symbols(s);
    for (size_t i = 0; i < samples; i++)
        random_sample(s, ret);
    gen_pprof_finish(&s->g, &ret->body);
    vec_for (i, &s->model.rows) {
        buf_addf(&ret->rows, "%s\t%" PRIu64 "\n", s->model.rows.ptr[i].key,
                 s->model.rows.ptr[i].sum);
        xfree(s->model.rows.ptr[i].key);
    }
    vec_free(&s->model.rows);
    gen_sort_lines(&ret->rows);
    gen_pprof_deinit(&s->g);
    xfree(s);
}

void gen_random_deinit(struct gen_random *r)
{
    buf_deinit(&r->body);
    buf_deinit(&r->rows);
}
