/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_text: attributes to labels.
 *
 * Only scalars become labels: text, numbers, truth values, and arrays of one of them. Names keep
 * their dots (`k8s.pod.name`), other bytes that a label name cannot have become '_'. A resource may
 * have dozens of attributes, more than a series may have labels, and some that are whole command
 * lines: those that do not fit are left out and counted, in the order in which they came, since a
 * profile with fewer labels is worth more than none.
 *
 * Names: OpenTelemetry semantic conventions (proto/FORMATS.md, "OTLP semantics").
 */
#include "distributor/otlp/otlp_text.h"

#include <stdio.h>

#include "common/model/exid.h"
#include "distributor/formats/push.h"
#include "distributor/otlp/otlp_model.h"

#define LOOK_MAX 256 /* attributes of a resource, scope or profile that are looked at */
#define OWN_MAX  2   /* labels that every push gets in addition */
#define UNKNOWN  "unknown_service"

int otlp_texts_init(struct otlp_texts *t, struct otlp *o, struct err *e)
{
    size_t cap = 0;
    void *table = NULL;

    *t = (struct otlp_texts){ .o = o };
    if (o->attrs.len == 0)
        return 0;
    if (!otlp_grow(o, &table, &cap, o->attrs.len, sizeof(*t->table), e))
        return e->code;
    memset(table, 0, cap * sizeof(*t->table));
    t->table = table;
    return 0;
}

void otlp_texts_deinit(struct otlp_texts *t)
{
    xfree(t->table);
}

static struct str string_at(const struct otlp *o, uint32_t at)
{
    return at == OTLP_NONE ? STR("") : o->strings.ptr[at];
}

static struct str number_text(const struct otlp_attr *a, char *buf, size_t size)
{
    double d;
    int n;

    if (a->kind == OTLP_BOOL)
        return a->number ? STR("true") : STR("false");
    memcpy(&d, &a->number, sizeof(d));
    n = a->kind == OTLP_INT ? snprintf(buf, size, "%" PRId64, a->number)
                            : snprintf(buf, size, "%.15g", d);
    return str_n(buf, (size_t)n);
}

/* False: the arena is full. */
static bool text_of(const struct otlp *o, const struct otlp_attr *a, struct otlp_text *ret)
{
    char buf[64];

    *ret = (struct otlp_text){ .key = a->key.ptr ? a->key : string_at(o, a->key_index),
                               .known = true };
    switch (a->kind) {
    case OTLP_EMPTY:
        return true;
    case OTLP_STRING:
        ret->value = a->text.ptr ? a->text : STR("");
        return true;
    case OTLP_STRING_INDEX:
        ret->value = string_at(o, (uint32_t)a->number);
        return true;
    case OTLP_BOOL:
    case OTLP_INT:
    case OTLP_DOUBLE:
        break;
    }
    ret->value = arena_strdup(o->arena, number_text(a, buf, sizeof(buf)));
    return ret->value.ptr != NULL;
}

const struct otlp_text *otlp_text(struct otlp_texts *t, uint32_t attr)
{
    struct otlp_text *at = &t->table[attr];

    return at->known || text_of(t->o, &t->o->attrs.ptr[attr], at) ? at : NULL;
}

struct str otlp_clean(struct str s, struct arena *a)
{
    struct str copy = arena_strdup(a, s);
    char *at = copy.ptr ? arena_alloc(a, s.len + 1) : NULL;

    if (!at || str_utf8_valid(s))
        return at ? copy : STR_NULL;
    for (size_t i = 0; i < s.len; i++)
        at[i] = (unsigned char)s.ptr[i] < 0x80 ? s.ptr[i] : '?';
    return str_n(at, s.len);
}

/* ---- labels of a profile -------------------------------------------------------------------- */

struct basing {
    struct otlp_texts *t;
    const struct limits *l;
    struct arena *a;
    struct labels *labels;
    struct str service, service_plain, executable; /* service.name, service_name */
    uint64_t left_out;
    struct err *e;
};

/* Fit for a label name; {NULL, 0}: none can be made, or the arena is full. */
static struct str name_of(const struct basing *b, struct str key)
{
    if (key.len == 0 || key.len > b->l->label_name_bytes)
        return STR_NULL;
    char *name = arena_alloc(b->a, key.len);
    for (size_t i = 0; name && i < key.len; i++) {
        char c = key.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        name[i] = plain || c == '.' ? c : '_';
    }
    return str_n(name, name ? key.len : 0);
}

/* False: an error. */
static bool no_memory(struct basing *b)
{
    (void)err_set(b->e, ERR_LIMIT, "otlp: the attributes of a profile take too much memory");
    return false;
}

static bool add_label(struct basing *b, const struct otlp_text *text)
{
    size_t most = (size_t)MAX(b->l->label_names, OWN_MAX + 1) - OWN_MAX;
    struct str name, value;

    if (!text->value.ptr || text->value.len == 0)
        return true; /* no value is no label */
    if (str_eqc(text->key, "service_name")) {
        b->service_plain = b->service_plain.len ? b->service_plain : text->value;
        return true;
    }
    if (str_eqc(text->key, OTLP_SERVICE) && !b->service.len)
        b->service = text->value;
    if (str_eqc(text->key, "process.executable.name") && !b->executable.len)
        b->executable = text->value;
    name = name_of(b, text->key);
    if (!name.len || push_label_hidden(name) || str_eqc(name, "service_name") ||
        text->value.len > b->l->label_value_bytes) {
        b->left_out++;
        return true;
    }
    if (labels_get(b->labels, name).ptr)
        return true; /* the first one wins */
    if (b->labels->len >= most) {
        b->left_out++;
        return true;
    }
    value = otlp_clean(text->value, b->a);
    if (!value.ptr)
        return no_memory(b);
    return labels_set(b->labels, b->a, name, value, b->e) == 0;
}

static bool add_range(struct basing *b, struct otlp_range r)
{
    char buf[64];
    struct otlp_text text;

    for (uint32_t i = r.from; i < r.from + MIN(r.len, LOOK_MAX); i++) {
        const struct otlp_attr *a = &b->t->o->labels.ptr[i];
        bool number = a->kind == OTLP_BOOL || a->kind == OTLP_INT || a->kind == OTLP_DOUBLE;
        struct otlp_attr plain = *a;
        if (number) {
            plain.text = arena_strdup(b->a, number_text(a, buf, sizeof(buf)));
            plain.kind = OTLP_STRING;
            if (!plain.text.ptr)
                return no_memory(b);
        }
        if (!text_of(b->t->o, &plain, &text) || !add_label(b, &text))
            return false;
    }
    b->left_out += r.len - MIN(r.len, LOOK_MAX);
    return true;
}

int otlp_base_labels(struct otlp_texts *t, const struct otlp_profile *p, const struct limits *l,
                     struct arena *a, struct otlp_base *ret, struct err *e)
{
    struct otlp_base out = { 0 };
    struct basing b = { .t = t, .l = l, .a = a, .labels = &out.labels, .e = e };
    const struct otlp_scope *scope = &t->o->scopes.ptr[p->scope];
    struct str unknown = STR(UNKNOWN ":");
    char *joined;

    if (!add_range(&b, scope->resource) || !add_range(&b, scope->scope))
        return e->code;
    for (uint32_t i = 0; i < MIN(p->attrs.len, LOOK_MAX); i++) {
        uint32_t attr = t->o->indices.ptr[p->attrs.from + i];
        if (attr == OTLP_NONE)
            continue;
        const struct otlp_text *text = otlp_text(t, attr);
        if (text ? !add_label(&b, text) : !no_memory(&b))
            return e->code;
    }
    b.left_out += p->attrs.len - MIN(p->attrs.len, LOOK_MAX);
    out.left_out = b.left_out;
    out.service = b.service.len ? b.service : b.service_plain;
    if (out.service.len)
        out.service = otlp_clean(out.service, a);
    else if (b.executable.len && (joined = arena_alloc(a, unknown.len + b.executable.len))) {
        memcpy(joined, unknown.ptr, unknown.len);
        memcpy(joined + unknown.len, b.executable.ptr, b.executable.len);
        out.service = otlp_clean(str_n(joined, unknown.len + b.executable.len), a);
    }
    if (!out.service.len)
        out.service = STR(UNKNOWN);
    *ret = out;
    return 0;
}
