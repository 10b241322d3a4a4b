/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as JSON, by the names of each layout. Strings are indexed in one table that is written
 * first and never looked up by the decoder's rules: number = position.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/base64.h"
#include "tests/lib/gen/gen_otlp.h"

struct out {
    const struct gen_otlp *g;
    enum otlp_layout layout;
    unsigned how;
    struct buf *b;
};

/* "name": in the spelling that is asked for. */
static void key(struct out *o, const char *name)
{
    if (o->b->len && !strchr("{[,:", o->b->ptr[o->b->len - 1]))
        buf_add_c(o->b, ',');
    buf_add_c(o->b, '"');
    for (; *name; name++)
        if (*name >= 'A' && *name <= 'Z' && (o->how & GEN_OTLP_SNAKE))
            buf_addf(o->b, "_%c", *name + 32);
        else
            buf_add_c(o->b, *name);
    buf_addf(o->b, "\":");
}
static void comma(struct out *o)
{
    if (!strchr("{[,:", o->b->ptr[o->b->len - 1]))
        buf_addf(o->b, " ,\n");
}
static void number(struct out *o, const char *name, long long v)
{
    key(o, name);
    buf_addf(o->b, "%lld", v);
}
static void wide(struct out *o, const char *name, long long v)
{
    if (o->how & GEN_OTLP_NUMBERS) {
        number(o, name, v);
        return;
    }
    key(o, name);
    buf_addf(o->b, "\"%lld\"", v);
}
static void id(struct out *o, const char *name, const uint8_t *p, size_t n)
{
    key(o, name);
    buf_add_c(o->b, '"');
    if (o->how & GEN_OTLP_NUMBERS)
        CHECK(base64_encode(str_n(p, n), o->b));
    else
        for (size_t i = 0; i < n; i++)
            buf_addf(o->b, "%02X", p[i]);
    buf_add_c(o->b, '"');
}
/* Escapes what it must, and a letter that it need not. */
static void text(struct out *o, const char *s)
{
    buf_add_c(o->b, '"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            buf_addf(o->b, "\\%c", *s);
        else if (*s == 'k')
            buf_addf(o->b, "\\u006B");
        else
            buf_add_c(o->b, *s);
    buf_add_c(o->b, '"');
}
static void list32(struct out *o, const char *name, const uint32_t *v, size_t n, uint32_t plus)
{
    key(o, name);
    buf_add_c(o->b, '[');
    for (size_t i = 0; i < n; i++)
        buf_addf(o->b, "%s%u", i ? "," : "", v[i] + plus);
    buf_add_c(o->b, ']');
}

/* Positions in the string table: fixed words, then functions, mappings, attributes' keys. */
enum { S_EMPTY, S_FILE, S_BUILD_ID, S_OTHER, S_TYPES };
static uint32_t s_function(const struct out *o, uint32_t i)
{
    return S_TYPES + 4 * (uint32_t)o->g->profiles.len + i - 1;
}
static uint32_t s_mapping(const struct out *o, uint32_t i)
{
    return s_function(o, 1) + o->g->functions + i - 1;
}
static uint32_t s_key(const struct out *o, uint32_t i)
{
    return s_mapping(o, 1) + (uint32_t)o->g->mappings.len + i;
}

static void strings(struct out *o)
{
    const struct gen_otlp *g = o->g;

    key(o, "stringTable");
    buf_addf(o->b, "[\"\",\"file.c\",\"process.executable.build_id.gnu\",\"other\"");
    vec_for (i, &g->profiles) {
        const struct gen_otlp_profile *p = &g->profiles.ptr[i];
        buf_addf(o->b, ",\"%s\",\"%s\",\"%s\",\"%s\"", p->type, p->unit,
                 p->period_type ? p->period_type : "", p->period_type ? p->period_unit : "");
    }
    for (uint32_t i = 1; i <= g->functions; i++)
        buf_addf(o->b, ",\"fn%u\"", i);
    for (size_t i = 1; i <= g->mappings.len; i++)
        buf_addf(o->b, ",\"\\/usr\\/lib\\/lib%zu.so\"", i);
    vec_for (i, &g->attrs) {
        comma(o);
        text(o, g->attrs.ptr[i].key);
    }
    buf_add_c(o->b, ']');
}

static void value(struct out *o, const struct gen_otlp_attr *a, bool array)
{
    key(o, "value");
    if (array)
        buf_addf(o->b, "{\"arrayValue\":{\"values\":[");
    buf_add_c(o->b, '{');
    if (a->is_number) {
        wide(o, "intValue", a->number);
    } else {
        key(o, "stringValue");
        text(o, a->text);
    }
    buf_add_c(o->b, '}');
    if (array)
        buf_addf(o->b, "]}}");
}

static void attr_key(struct out *o, uint32_t at, const char *name)
{
    if (o->layout >= OTLP_18) {
        number(o, "keyStrindex", at);
    } else {
        key(o, "key");
        text(o, name);
    }
}

/* The end of the attribute table, with one of each mapping, and the mappings. */
static void mappings(struct out *o)
{
    const struct gen_otlp *g = o->g;

    for (unsigned i = 0; i < (unsigned)g->mappings.len; i++) {
        struct gen_otlp_attr v = { .is_number = false };
        bool has = g->mappings.ptr[i].build_id;
        if (has)
            snprintf(v.text, sizeof(v.text), "id%u", i + 1);
        buf_addf(o->b, ",{");
        attr_key(o, has ? S_BUILD_ID : S_OTHER, has ? "process.executable.build_id.gnu" : "other");
        value(o, &v, false);
        buf_add_c(o->b, '}');
    }
    buf_add_c(o->b, ']');
    key(o, "mappingTable");
    buf_addf(o->b, "[{}");
    vec_for (i, &g->mappings) {
        const struct gen_otlp_mapping *m = &g->mappings.ptr[i];
        uint32_t at = 1 + (uint32_t)(g->attrs.len + i);
        buf_addf(o->b, ",{");
        wide(o, "memoryStart", (long long)m->start);
        wide(o, "memoryLimit", (long long)m->limit);
        wide(o, "fileOffset", (long long)m->offset);
        number(o, "filenameStrindex", s_mapping(o, (uint32_t)i + 1));
        list32(o, "attributeIndices", &at, 1, 0);
        buf_add_c(o->b, '}');
    }
    buf_add_c(o->b, ']');
}

static void locations(struct out *o)
{
    const char *index = o->how & GEN_OTLP_SNAKE ? "function_index" : "functionIndex";

    key(o, "locationTable");
    buf_addf(o->b, "[%s", o->g->literal ? "" : "{}");
    vec_for (i, &o->g->locations) {
        const struct gen_otlp_location *l = &o->g->locations.ptr[i];
        comma(o);
        buf_add_c(o->b, '{');
        if (l->mapping)
            number(o, "mappingIndex", l->mapping);
        wide(o, "address", (long long)l->address);
        key(o, o->layout >= OTLP_19 ? "lines" : "line");
        buf_add_c(o->b, '[');
        for (uint32_t k = 0; k < l->lines; k++)
            buf_addf(o->b, "%s{\"%s\":%u,\"line\":\"7\"}", k ? "," : "", index, l->functions[k]);
        buf_addf(o->b, "]}");
    }
    buf_add_c(o->b, ']');
}

static void tables(struct out *o)
{
    const struct gen_otlp *g = o->g;

    strings(o);
    key(o, "attributeTable");
    buf_addf(o->b, "[{}");
    vec_for (i, &g->attrs) {
        buf_addf(o->b, ",{");
        attr_key(o, s_key(o, (uint32_t)i), g->attrs.ptr[i].key);
        value(o, &g->attrs.ptr[i], i % 2);
        buf_add_c(o->b, '}');
    }
    mappings(o);
    key(o, "functionTable");
    buf_addf(o->b, "[{}");
    for (uint32_t i = 1; i <= g->functions; i++) {
        buf_addf(o->b, ",{");
        number(o, i % 2 ? "systemNameStrindex" : "nameStrindex", s_function(o, i));
        number(o, "filenameStrindex", S_FILE);
        buf_add_c(o->b, '}');
    }
    buf_add_c(o->b, ']');
    locations(o);
    key(o, "linkTable");
    buf_addf(o->b, "[{}");
    vec_for (i, &g->links) {
        buf_addf(o->b, ",{");
        id(o, "traceId", g->links.ptr[i].trace, 16);
        id(o, "spanId", g->links.ptr[i].span, 8);
        buf_add_c(o->b, '}');
    }
    buf_add_c(o->b, ']');
}

static void stack_table(struct out *o)
{
    key(o, "stackTable");
    buf_addf(o->b, "[{}");
    vec_for (i, &o->g->profiles)
        vec_for (k, &o->g->profiles.ptr[i].samples) {
            const struct gen_otlp_sample *s = &o->g->profiles.ptr[i].samples.ptr[k];
            buf_addf(o->b, ",{");
            list32(o, "locationIndices", s->stack, s->depth, o->g->literal ? 0 : 1);
            buf_add_c(o->b, '}');
        }
    buf_add_c(o->b, ']');
}

static void sample(struct out *o, const struct gen_otlp_sample *s, uint32_t stack, uint32_t from)
{
    const char *quote = o->how & GEN_OTLP_NUMBERS ? "" : "\"";

    buf_add_c(o->b, '{');
    if (o->layout <= OTLP_17) {
        number(o, "locationsStartIndex", from);
        number(o, "locationsLength", s->depth);
    } else {
        number(o, "stackIndex", stack);
    }
    key(o, o->layout <= OTLP_17 ? "value" : "values");
    buf_add_c(o->b, '[');
    for (uint32_t i = 0; i < s->values_len; i++)
        buf_addf(o->b, "%s%s%lld%s", i ? "," : "", quote, (long long)s->values[i], quote);
    buf_add_c(o->b, ']');
    list32(o, "attributeIndices", s->attrs, s->attrs_len, 1);
    if (s->link)
        number(o, "linkIndex", s->link);
    key(o, "timestampsUnixNano");
    buf_add_c(o->b, '[');
    for (uint32_t i = 0; i < s->times_len; i++)
        buf_addf(o->b, "%s\"%llu\"", i ? "," : "", (unsigned long long)s->times[i]);
    buf_addf(o->b, "]}");
}

static void profile(struct out *o, uint32_t at, uint32_t *stacks)
{
    const struct gen_otlp_profile *p = &o->g->profiles.ptr[at];
    bool old = o->layout <= OTLP_17, first = true;
    uint32_t from = 0;

    buf_add_c(o->b, '{');
    if (o->layout == OTLP_15)
        tables(o);
    key(o, "sampleType");
    buf_addf(o->b, "%s{", old ? "[" : "");
    number(o, "typeStrindex", S_TYPES + 4 * at);
    number(o, "unitStrindex", S_TYPES + 4 * at + 1);
    buf_addf(o->b, "}%s", old ? "]" : "");
    key(o, o->layout >= OTLP_19 ? "samples" : "sample");
    buf_add_c(o->b, '[');
    vec_for (i, &p->samples) {
        comma(o);
        sample(o, &p->samples.ptr[i], ++*stacks, from);
        from += p->samples.ptr[i].depth;
    }
    buf_add_c(o->b, ']');
    if (old) {
        key(o, "locationIndices");
        buf_add_c(o->b, '[');
        vec_for (i, &p->samples)
            for (uint32_t k = 0; k < p->samples.ptr[i].depth; k++) {
                buf_addf(o->b, "%s%u", first ? "" : ",",
                         p->samples.ptr[i].stack[k] + (o->g->literal ? 0 : 1));
                first = false;
            }
        buf_add_c(o->b, ']');
    }
    wide(o, old ? "timeNanos" : "timeUnixNano", p->time_ns);
    wide(o, old ? "durationNanos" : "durationNano", p->duration_ns);
    if (p->period_type) {
        key(o, "periodType");
        buf_add_c(o->b, '{');
        number(o, "typeStrindex", S_TYPES + 4 * at + 2);
        number(o, "unitStrindex", S_TYPES + 4 * at + 3);
        buf_add_c(o->b, '}');
        wide(o, "period", p->period);
    }
    if (p->has_id)
        id(o, "profileId", p->id, 16);
    buf_addf(o->b, ",\"unknown\":[{\"a\":[null,true,false,-1.5e3,{}]}]}");
}

static void labels(struct out *o, const uint32_t *attrs, uint32_t n, const char *service)
{
    struct gen_otlp_attr name = { .key = "service.name" };

    buf_addf(o->b, "{\"attributes\":[");
    if (service) {
        snprintf(name.text, sizeof(name.text), "%s", service);
        buf_addf(o->b, "{\"key\":\"service.name\"");
        value(o, &name, false);
        buf_add_c(o->b, '}');
    }
    for (uint32_t i = 0; i < n; i++) {
        comma(o);
        buf_add_c(o->b, '{');
        value(o, &o->g->attrs.ptr[attrs[i]], false);
        key(o, "key");
        text(o, o->g->attrs.ptr[attrs[i]].key);
        buf_add_c(o->b, '}');
    }
    buf_addf(o->b, "]}");
}

static void dictionary(struct out *o)
{
    key(o, "dictionary");
    buf_add_c(o->b, '{');
    tables(o);
    if (o->layout >= OTLP_18)
        stack_table(o);
    buf_add_c(o->b, '}');
}

void gen_otlp_json(const struct gen_otlp *g, enum otlp_layout layout, unsigned how, struct buf *out)
{
    struct out o = { .g = g, .layout = layout, .how = how, .b = out };
    uint32_t stacks = 0;

    buf_add_c(out, '{');
    if (layout != OTLP_15 && (how & GEN_OTLP_DICT_FIRST))
        dictionary(&o);
    key(&o, "resourceProfiles");
    buf_add_c(out, '[');
    vec_for (i, &g->profiles) {
        const struct gen_otlp_profile *p = &g->profiles.ptr[i];
        comma(&o);
        buf_add_c(out, '{');
        key(&o, "scopeProfiles");
        buf_addf(out, "[{");
        key(&o, "profiles");
        buf_add_c(out, '[');
        profile(&o, (uint32_t)i, &stacks);
        buf_add_c(out, ']');
        key(&o, "scope");
        labels(&o, p->scope, p->scope_len, NULL);
        buf_addf(out, "}]");
        key(&o, "resource");
        labels(&o, p->resource, p->resource_len, p->service);
        buf_add_c(out, '}');
    }
    buf_add_c(out, ']');
    if (layout != OTLP_15 && !(how & GEN_OTLP_DICT_FIRST))
        dictionary(&o);
    buf_add_c(out, '}');
}
