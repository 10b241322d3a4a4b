/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_model: pools under one budget, and references to positions.
 *
 * While a body is read its references are what the sender wrote: numbers within a dictionary that
 * may come after everything that refers to it. otlp_resolve checks every reference once, so that
 * users of the columns need no check: a request with a reference that points nowhere is refused as
 * a whole, since that is what a body of another layout looks like.
 *
 * Absent is 0 on the wire, and element 0 of a table is its zero value. Where a sender put something
 * there it is taken literally (a canary of a peer has its location there), but string 0 is "", link
 * 0 means no link, and an empty mapping or function 0 means no mapping or function.
 *
 * Rules of indexes: opentelemetry-proto v1.11.0 (proto/FORMATS.md, "OTLP semantics").
 */
#include "distributor/otlp/otlp_model.h"

#include "common/base/map.h"
#include "common/base/size.h"

static const char *const layout_names[OTLP_LAYOUTS] = {
    [OTLP_AUTO] = "auto", [OTLP_15] = "1.5", [OTLP_17] = "1.7",
    [OTLP_18] = "1.8",    [OTLP_19] = "1.9", [OTLP_110] = "1.10",
};

const char *otlp_layout_name(enum otlp_layout l)
{
    return layout_names[l];
}

bool otlp_layout_parse(struct str name, enum otlp_layout *ret)
{
    for (int i = 0; i < OTLP_LAYOUTS; i++)
        if (str_eqc(name, layout_names[i])) {
            *ret = (enum otlp_layout)i;
            return true;
        }
    return false;
}

void otlp_init(struct otlp *o, const struct limits *l, struct arena *a)
{
    *o = (struct otlp){ .arena = a, .bytes_max = (size_t)l->decode_bytes, .limits = l };
}

void otlp_deinit(struct otlp *o)
{
    vec_free(&o->strings);
    vec_free(&o->mappings);
    vec_free(&o->locations);
    vec_free(&o->lines);
    vec_free(&o->functions);
    vec_free(&o->links);
    vec_free(&o->attrs);
    vec_free(&o->stacks);
    vec_free(&o->dicts);
    vec_free(&o->labels);
    vec_free(&o->scopes);
    vec_free(&o->types);
    vec_free(&o->profiles);
    vec_free(&o->samples);
    vec_free(&o->indices);
    vec_free(&o->values);
}

bool otlp_grow(struct otlp *o, void **ptr, size_t *cap, size_t need, size_t size, struct err *e)
{
    size_t n = MAX(*cap * 2, MAX(need, 16)), more;

    if (n >= OTLP_NONE || !size_mul(n - *cap, size, &more) || more > o->bytes_max - o->bytes) {
        err_set(e, ERR_LIMIT,
                "otlp: decoding takes more than %zu bytes of memory (distributor.decode_bytes)",
                o->bytes_max);
        return false;
    }
    o->bytes += more;
    *ptr = xreallocarray(*ptr, n, size);
    *cap = n;
    return true;
}

struct otlp_dict otlp_dict_begin(const struct otlp *o)
{
    return (struct otlp_dict){
        .strings = { (uint32_t)o->strings.len, 0 },
        .mappings = { (uint32_t)o->mappings.len, 0 },
        .locations = { (uint32_t)o->locations.len, 0 },
        .lines = { (uint32_t)o->lines.len, 0 },
        .functions = { (uint32_t)o->functions.len, 0 },
        .links = { (uint32_t)o->links.len, 0 },
        .attrs = { (uint32_t)o->attrs.len, 0 },
        .stacks = { (uint32_t)o->stacks.len, 0 },
    };
}

void otlp_dict_end(const struct otlp *o, struct otlp_dict *d)
{
    d->strings.len = (uint32_t)o->strings.len - d->strings.from;
    d->mappings.len = (uint32_t)o->mappings.len - d->mappings.from;
    d->locations.len = (uint32_t)o->locations.len - d->locations.from;
    d->lines.len = (uint32_t)o->lines.len - d->lines.from;
    d->functions.len = (uint32_t)o->functions.len - d->functions.from;
    d->links.len = (uint32_t)o->links.len - d->links.from;
    d->attrs.len = (uint32_t)o->attrs.len - d->attrs.from;
    d->stacks.len = (uint32_t)o->stacks.len - d->stacks.from;
}

/* ---- references ----------------------------------------------------------------------------- */

struct resolving {
    struct otlp *o;
    const struct otlp_dict *d;
    struct err *e;
};

static bool out_of(const struct resolving *r, const char *what, uint32_t at, uint32_t len)
{
    err_set(r->e, ERR_INPUT,
            "otlp: %s index %" PRIu32 " of a table with %" PRIu32
            " entries (body read as layout %s)",
            what, at, len, otlp_layout_name(r->o->layout));
    return false;
}

/* An absolute position; 0 into an empty table means no entry. */
static bool take(const struct resolving *r, const char *what, const struct otlp_range *table,
                 uint32_t *at)
{
    if (*at == OTLP_NONE || (*at == 0 && table->len == 0)) {
        *at = OTLP_NONE;
        return true;
    }
    if (*at >= table->len)
        return out_of(r, what, *at, table->len);
    *at += table->from;
    return true;
}

static bool take_string(const struct resolving *r, const char *what, uint32_t *at)
{
    bool empty = *at == 0;

    if (!take(r, what, &r->d->strings, at))
        return false;
    if (empty)
        *at = OTLP_NONE;
    return true;
}

static bool take_attrs(const struct resolving *r, const struct otlp_range *list)
{
    for (uint32_t i = list->from; i < list->from + list->len; i++)
        if (!take(r, "attribute", &r->d->attrs, &r->o->indices.ptr[i]))
            return false;
    return true;
}

static bool take_attr(const struct resolving *r, struct otlp_attr *a)
{
    uint32_t at;

    if (!a->key.ptr && !take_string(r, "attribute key", &a->key_index))
        return false;
    if (a->key.ptr)
        a->key_index = OTLP_NONE;
    if (a->kind != OTLP_STRING_INDEX)
        return true;
    at = (uint32_t)a->number;
    if (!take_string(r, "attribute value", &at))
        return false;
    a->number = at;
    return true;
}

static bool mapping_empty(const struct otlp_mapping *m)
{
    return m->start == 0 && m->limit == 0 && m->offset == 0 && m->file == OTLP_NONE &&
           m->attrs.len == 0;
}

static bool take_location(const struct resolving *r, struct otlp_location *at)
{
    struct otlp *o = r->o;

    if (!take(r, "mapping", &r->d->mappings, &at->mapping))
        return false;
    if (at->mapping != OTLP_NONE && mapping_empty(&o->mappings.ptr[at->mapping]))
        at->mapping = OTLP_NONE;
    for (uint32_t i = at->lines.from; i < at->lines.from + at->lines.len; i++) {
        uint32_t *fn = &o->lines.ptr[i].function;
        bool zero = *fn == 0;
        if (!take(r, "function", &r->d->functions, fn))
            return false;
        const struct otlp_function *f = *fn == OTLP_NONE ? NULL : &o->functions.ptr[*fn];
        if (zero && f && f->name == OTLP_NONE && f->system_name == OTLP_NONE)
            *fn = OTLP_NONE;
    }
    return true;
}

/* Tables first that others look into. */
static bool resolve_dict(const struct resolving *r)
{
    const struct otlp_dict *d = r->d;
    struct otlp *o = r->o;

    for (uint32_t i = d->attrs.from; i < d->attrs.from + d->attrs.len; i++)
        if (!take_attr(r, &o->attrs.ptr[i]))
            return false;
    for (uint32_t i = d->functions.from; i < d->functions.from + d->functions.len; i++) {
        struct otlp_function *f = &o->functions.ptr[i];
        if (!take_string(r, "function name", &f->name) ||
            !take_string(r, "function system name", &f->system_name) ||
            !take_string(r, "function file", &f->file))
            return false;
    }
    for (uint32_t i = d->mappings.from; i < d->mappings.from + d->mappings.len; i++) {
        struct otlp_mapping *m = &o->mappings.ptr[i];
        if (!take_string(r, "mapping file", &m->file) || !take_attrs(r, &m->attrs))
            return false;
    }
    for (uint32_t i = d->locations.from; i < d->locations.from + d->locations.len; i++)
        if (!take_location(r, &o->locations.ptr[i]))
            return false;
    for (uint32_t i = d->stacks.from; i < d->stacks.from + d->stacks.len; i++) {
        struct otlp_range list = o->stacks.ptr[i];
        for (uint32_t k = list.from; k < list.from + list.len; k++)
            if (!take(r, "location", &d->locations, &o->indices.ptr[k]))
                return false;
    }
    return true;
}

/* Layouts up to 1.7: (start, length) in the profile's list of locations becomes a stack, each once.
 */
static bool cut_stacks(const struct resolving *r, const struct otlp_profile *p)
{
    struct otlp *o = r->o;
    struct map_u64 known;
    bool ok = true;

    for (uint32_t k = p->list.from; k < p->list.from + p->list.len; k++)
        if (!take(r, "location", &r->d->locations, &o->indices.ptr[k]))
            return false;
    map_u64_init(&known);
    for (uint32_t i = p->samples.from; ok && i < p->samples.from + p->samples.len; i++) {
        struct otlp_sample *s = &o->samples.ptr[i];
        struct otlp_range cut = { s->stack, s->stack_len };
        uint64_t key = (uint64_t)s->stack << 32 | s->stack_len;
        if (cut.from > p->list.len || cut.len > p->list.len - cut.from) {
            ok = out_of(r, "sample's last location", cut.from + cut.len, p->list.len);
            break;
        }
        s->stack = map_u64_put(&known, key, (uint32_t)o->stacks.len);
        if (s->stack != MAP_U64_EMPTY)
            continue;
        s->stack = (uint32_t)o->stacks.len;
        cut.from += p->list.from;
        ok = OTLP_PUSH(o, stacks, cut, r->e);
    }
    map_u64_deinit(&known);
    return ok;
}

static bool resolve_profile(const struct resolving *r, struct otlp_profile *p)
{
    struct otlp *o = r->o;
    bool old = o->layout <= OTLP_17;

    for (uint32_t i = p->types.from; i < p->types.from + p->types.len; i++)
        /* async-profiler 4.1 and 4.2 have no empty string in front: 0 is the type there. */
        if (!take(r, "sample type", &r->d->strings, &o->types.ptr[i].type) ||
            !take_string(r, "sample unit", &o->types.ptr[i].unit))
            return false;
    if (!take_string(r, "period type", &p->period_type.type) ||
        !take_string(r, "period unit", &p->period_type.unit) || !take_attrs(r, &p->attrs))
        return false;
    if (old && !cut_stacks(r, p))
        return false;
    for (uint32_t i = p->samples.from; i < p->samples.from + p->samples.len; i++) {
        struct otlp_sample *s = &o->samples.ptr[i];
        if (!old && s->link == 0)
            s->link = OTLP_NONE;
        if ((!old && !take(r, "stack", &r->d->stacks, &s->stack)) ||
            !take(r, "link", &r->d->links, &s->link) || !take_attrs(r, &s->attrs))
            return false;
    }
    return true;
}

int otlp_resolve(struct otlp *o, struct err *e)
{
    const struct otlp_dict none = { 0 };
    struct resolving r = { o, &none, e };

    for (size_t i = 0; i < o->dicts.len; i++) {
        r.d = &o->dicts.ptr[i];
        if (!resolve_dict(&r))
            return e->code;
    }
    if (o->dicts.len == 0 || o->layout != OTLP_15)
        r.d = o->dicts.len ? &o->dicts.ptr[0] : &none;
    for (size_t i = 0; i < o->profiles.len; i++) {
        struct otlp_profile *p = &o->profiles.ptr[i];
        if (o->layout == OTLP_15)
            r.d = &o->dicts.ptr[p->dict];
        if (!resolve_profile(&r, p))
            return e->code;
    }
    if (o->layout == OTLP_15)
        r.d = &none; /* these refer to no table there */
    for (size_t i = 0; i < o->labels.len; i++)
        if (!take_attr(&r, &o->labels.ptr[i]))
            return e->code;
    return 0;
}
