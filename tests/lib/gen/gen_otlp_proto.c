/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as protobuf, in each layout. Written after the .proto files of the releases.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/lib/gen/gen_otlp.h"

#define MESSAGE_MAX (16 * MIB)
#define STRINGS_MAX 4096

struct out {
    const struct gen_otlp *g;
    enum otlp_layout layout;
    unsigned how;
    char (*strings)[32];
    uint32_t strings_len;
    struct buf dict;   /* tables of the request; of the profile in 1.5 */
    struct buf stacks; /* 1.8: entries of the stack table; 1.7: the list of locations */
    uint32_t stacks_len;
};

static void varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_add_c(b, (char)(v | 0x80));
    buf_add_c(b, (char)v);
}
static void number(struct buf *b, uint32_t field, uint64_t v)
{
    if (v == 0)
        return;
    varint(b, field << 3);
    varint(b, v);
}
static void fixed(struct buf *b, uint32_t field, uint64_t v)
{
    varint(b, field << 3 | 1);
    for (int i = 0; i < 8; i++)
        buf_add_c(b, (char)(v >> (8 * i)));
}
static void bytes(struct buf *b, uint32_t field, const void *p, size_t n)
{
    varint(b, field << 3 | 2);
    varint(b, n);
    buf_add(b, p, n);
}
/* Frees m. */
static void message(struct buf *b, uint32_t field, struct buf *m)
{
    bytes(b, field, m->ptr, m->len);
    buf_deinit(m);
}
static void list(const struct out *o, struct buf *b, uint32_t field, const uint64_t *v, size_t n)
{
    struct buf m;

    if (o->how & GEN_OTLP_UNPACKED) {
        for (size_t i = 0; i < n; i++) {
            varint(b, field << 3);
            varint(b, v[i]);
        }
        return;
    }
    buf_init(&m, MESSAGE_MAX);
    for (size_t i = 0; i < n; i++)
        varint(&m, v[i]);
    if (n)
        message(b, field, &m);
}

static uint32_t string(struct out *o, const char *s)
{
    for (uint32_t i = 0; i < o->strings_len; i++)
        if (strcmp(o->strings[i], s) == 0)
            return i;
    CHECK(o->strings_len < STRINGS_MAX && strlen(s) < sizeof(o->strings[0]));
    snprintf(o->strings[o->strings_len], sizeof(o->strings[0]), "%s", s);
    return o->strings_len++;
}

static void value(const struct gen_otlp_attr *a, struct buf *b)
{
    struct buf m;

    buf_init(&m, KIB);
    if (a->is_number) {
        varint(&m, 3 << 3);
        varint(&m, (uint64_t)a->number);
    } else {
        bytes(&m, 1, a->text, strlen(a->text));
    }
    message(b, 2, &m);
}

/* Each has an attribute of its own, behind the others: a build id, or an invalid one. */
static void mappings(struct out *o, const uint32_t *t)
{
    bytes(&o->dict, t[1], "", 0);
    for (unsigned i = 0; i < (unsigned)o->g->mappings.len; i++) {
        const struct gen_otlp_mapping *p = &o->g->mappings.ptr[i];
        const char *key = p->build_id ? "process.executable.build_id.gnu" : "other";
        uint64_t at = 1 + o->g->attrs.len + i;
        struct gen_otlp_attr id = { .is_number = false };
        char name[32];
        struct buf m;
        if (p->build_id)
            snprintf(id.text, sizeof(id.text), "id%u", i + 1);
        buf_init(&m, KIB);
        if (o->layout <= OTLP_17)
            bytes(&m, 1, key, strlen(key));
        else
            number(&m, 1, string(o, key));
        value(&id, &m);
        message(&o->dict, t[6], &m);
        buf_init(&m, KIB);
        number(&m, 1, p->start);
        number(&m, 2, p->limit);
        number(&m, 3, p->offset);
        snprintf(name, sizeof(name), "/usr/lib/lib%u.so", i + 1);
        number(&m, 4, string(o, name));
        list(o, &m, 5, &at, 1);
        message(&o->dict, t[1], &m);
    }
}

/* Tables that come before anything refers to them; each begins with its zero value. */
static void tables(struct out *o, const uint32_t *t)
{
    bool old = o->layout <= OTLP_17;
    struct buf m, line;

    bytes(&o->dict, t[6], "", 0);
    vec_for (i, &o->g->attrs) {
        const struct gen_otlp_attr *a = &o->g->attrs.ptr[i];
        buf_init(&m, KIB);
        if (old)
            bytes(&m, 1, a->key, strlen(a->key));
        else
            number(&m, 1, string(o, a->key));
        value(a, &m);
        message(&o->dict, t[6], &m);
    }
    mappings(o, t);
    bytes(&o->dict, t[3], "", 0);
    for (uint32_t i = 1; i <= o->g->functions; i++) {
        char name[32];
        snprintf(name, sizeof(name), "fn%u", i);
        buf_init(&m, KIB);
        number(&m, 1 + i % 2, string(o, name)); /* some have a system name only */
        number(&m, 3, string(o, "file.c"));
        message(&o->dict, t[3], &m);
    }
    if (!o->g->literal)
        bytes(&o->dict, t[2], "", 0);
    vec_for (i, &o->g->locations) {
        const struct gen_otlp_location *p = &o->g->locations.ptr[i];
        buf_init(&m, KIB);
        number(&m, 1, p->mapping);
        number(&m, 2, p->address);
        for (uint32_t k = 0; k < p->lines; k++) {
            buf_init(&line, KIB);
            number(&line, 1, p->functions[k]);
            number(&line, 2, 7);
            message(&m, 3, &line);
        }
        message(&o->dict, t[2], &m);
    }
    bytes(&o->dict, t[4], "", 0);
    vec_for (i, &o->g->links) {
        buf_init(&m, KIB);
        bytes(&m, 1, o->g->links.ptr[i].trace, 16);
        bytes(&m, 2, o->g->links.ptr[i].span, 8);
        message(&o->dict, t[4], &m);
    }
}

static void strings(struct out *o, uint32_t field)
{
    for (uint32_t i = 0; i < o->strings_len; i++)
        bytes(&o->dict, field, o->strings[i], strlen(o->strings[i]));
}

static void sample(struct out *o, const struct gen_otlp_sample *s, struct buf *profile)
{
    /* stack, values, attributes, link, timestamps */
    static const uint32_t fields[OTLP_LAYOUTS][5] = { [OTLP_15] = { 1, 3, 4, 5, 6 },
                                                      [OTLP_17] = { 1, 3, 4, 5, 6 },
                                                      [OTLP_18] = { 1, 2, 3, 4, 5 },
                                                      [OTLP_19] = { 1, 2, 3, 4, 5 },
                                                      [OTLP_110] = { 1, 4, 2, 3, 5 } };
    const uint32_t *f = fields[o->layout];
    uint64_t locations[GEN_OTLP_STACK], values[GEN_OTLP_VALUES], attrs[GEN_OTLP_ATTRS];
    bool old = o->layout <= OTLP_17;
    struct buf m, times, stack;

    for (uint32_t i = 0; i < s->depth; i++)
        locations[i] = s->stack[i] + (o->g->literal ? 0 : 1);
    for (uint32_t i = 0; i < s->values_len; i++)
        values[i] = (uint64_t)s->values[i];
    for (uint32_t i = 0; i < s->attrs_len; i++)
        attrs[i] = s->attrs[i] + 1;
    buf_init(&m, MIB);
    if (old) {
        number(&m, 1, o->stacks_len);
        number(&m, 2, s->depth);
        for (uint32_t i = 0; i < s->depth; i++)
            varint(&o->stacks, locations[i]);
        o->stacks_len += s->depth;
    } else {
        buf_init(&stack, MIB);
        list(o, &stack, 1, locations, s->depth);
        message(&o->stacks, 7, &stack);
        number(&m, f[0], ++o->stacks_len);
    }
    list(o, &m, f[1], values, s->values_len);
    list(o, &m, f[2], attrs, s->attrs_len);
    number(&m, f[3], s->link);
    buf_init(&times, MIB);
    for (uint32_t i = 0; i < s->times_len; i++)
        if (old)
            varint(&times, s->times[i]);
        else
            for (int k = 0; k < 8; k++)
                buf_add_c(&times, (char)(s->times[i] >> (8 * k)));
    if (s->times_len)
        message(&m, f[4], &times);
    buf_deinit(&times);
    message(profile, 2, &m);
}

static void type(struct out *o, uint32_t field, const char *t, const char *u, struct buf *b)
{
    struct buf m;

    buf_init(&m, KIB);
    number(&m, 1, string(o, t));
    number(&m, 2, string(o, u));
    message(b, field, &m);
}

static void profile(struct out *o, const struct gen_otlp_profile *p, struct buf *ret)
{
    /* time, duration, period type, period, id */
    static const uint32_t fields[OTLP_LAYOUTS][5] = { [OTLP_15] = { 11, 12, 13, 14, 17 },
                                                      [OTLP_17] = { 4, 5, 6, 7, 10 },
                                                      [OTLP_18] = { 3, 4, 5, 6, 8 },
                                                      [OTLP_19] = { 3, 4, 5, 6, 7 },
                                                      [OTLP_110] = { 3, 4, 5, 6, 7 } };
    static const uint32_t tables_15[] = { 0, 3, 4, 6, 9, 10, 7 };
    const uint32_t *f = fields[o->layout];

    if (o->layout == OTLP_15) {
        buf_reset(&o->dict);
        o->strings_len = 1;
        tables(o, tables_15);
    }
    if (o->layout <= OTLP_17) {
        buf_reset(&o->stacks);
        o->stacks_len = 0;
    }
    type(o, 1, p->type, p->unit, ret);
    vec_for (i, &p->samples)
        sample(o, &p->samples.ptr[i], ret);
    if (o->layout <= OTLP_17 && o->stacks.len)
        bytes(ret, o->layout == OTLP_15 ? 5 : 3, o->stacks.ptr, o->stacks.len);
    if (o->layout <= OTLP_17)
        number(ret, f[0], (uint64_t)p->time_ns);
    else
        fixed(ret, f[0], (uint64_t)p->time_ns);
    number(ret, f[1], (uint64_t)p->duration_ns);
    if (p->period_type) {
        type(o, f[2], p->period_type, p->period_unit, ret);
        number(ret, f[3], (uint64_t)p->period);
    }
    if (p->has_id)
        bytes(ret, f[4], p->id, 16);
    if (o->layout == OTLP_15) {
        strings(o, 10);
        buf_add_str(ret, buf_str(&o->dict));
    }
}

/* KeyValue lists of a resource or scope. */
static void labels(struct out *o, const uint32_t *attrs, uint32_t n, const char *service,
                   uint32_t field, struct buf *ret)
{
    struct gen_otlp_attr name = { .key = "service.name" };
    struct buf m;

    for (uint32_t i = 0; i < n + (service ? 1 : 0); i++) {
        const struct gen_otlp_attr *a = &name;
        if (service && i == 0)
            snprintf(name.text, sizeof(name.text), "%s", service);
        else
            a = &o->g->attrs.ptr[attrs[i - (service ? 1 : 0)]];
        buf_init(&m, KIB);
        if (o->layout == OTLP_110 && i % 2)
            number(&m, 3, string(o, a->key));
        else
            bytes(&m, 1, a->key, strlen(a->key));
        value(a, &m);
        message(ret, field, &m);
    }
}

void gen_otlp_proto(const struct gen_otlp *g, enum otlp_layout layout, unsigned how,
                    struct buf *out)
{
    static const uint32_t fields[] = { 0, 1, 2, 3, 4, 5, 6 };
    struct out o = { .g = g, .layout = layout, .how = how, .strings_len = 1 };
    struct buf all, resource, scope, m;

    o.strings = xcalloc(STRINGS_MAX, sizeof(*o.strings));
    buf_init(&o.dict, MESSAGE_MAX);
    buf_init(&o.stacks, MESSAGE_MAX);
    buf_init(&all, MESSAGE_MAX);
    if (layout >= OTLP_18)
        bytes(&o.stacks, 7, "", 0);
    if (layout != OTLP_15)
        tables(&o, fields);
    vec_for (i, &g->profiles) {
        const struct gen_otlp_profile *p = &g->profiles.ptr[i];
        buf_init(&resource, MESSAGE_MAX);
        buf_init(&scope, MESSAGE_MAX);
        buf_init(&m, MESSAGE_MAX);
        labels(&o, p->resource, p->resource_len, p->service, 1, &m);
        message(&resource, 1, &m);
        buf_init(&m, MESSAGE_MAX);
        bytes(&m, 1, "scope", 5);
        labels(&o, p->scope, p->scope_len, NULL, 3, &m);
        message(&scope, 1, &m);
        buf_init(&m, MESSAGE_MAX);
        profile(&o, p, &m);
        message(&scope, 2, &m);
        message(&resource, 2, &scope);
        message(&all, 1, &resource);
    }
    if (layout != OTLP_15) {
        strings(&o, 5);
        if (layout >= OTLP_18)
            buf_add_str(&o.dict, buf_str(&o.stacks));
    }
    if (layout != OTLP_15 && (how & GEN_OTLP_DICT_FIRST))
        bytes(out, 2, o.dict.ptr, o.dict.len);
    buf_add_str(out, buf_str(&all));
    if (layout != OTLP_15 && !(how & GEN_OTLP_DICT_FIRST))
        bytes(out, 2, o.dict.ptr, o.dict.len);
    buf_deinit(&o.dict);
    buf_deinit(&o.stacks);
    buf_deinit(&all);
    xfree(o.strings);
}
