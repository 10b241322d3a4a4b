/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_json: the JSON of proto3 to columns.
 *
 * Names do not move between revisions as field numbers do, so one reader takes all of them, and the
 * names say which one it was where that matters: `stringTable` in a profile is 1.5, cut lists of
 * locations are 1.7, `sample` is 1.8, `samples` later. Both spellings of a name are taken, numbers
 * may be strings, null is absent, unknown keys are skipped; ids are hex as OTLP wants them, or
 * base64 as other writers of proto3 JSON do it.
 *
 * Format: opentelemetry-proto v1.11.0, docs/specification.md (proto/FORMATS.md, "OTLP JSON").
 */
#include "distributor/otlp/otlp_json_impl.h"
#include "distributor/otlp/otlp_push.h"

/* Appends the attributes of {"attributes": [...]} to labels. */
static bool add_labels(struct otlp_json *s, struct otlp_range *ret)
{
    struct jpull_it it, list;
    struct otlp_attr attr;
    struct str key;

    *ret = (struct otlp_range){ (uint32_t)s->o->labels.len, 0 };
    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (!IS("attributes")) {
            jpull_skip(&s->j);
        } else if (jpull_open(&s->j, '[', &list)) {
            while (jpull_element(&s->j, &list))
                if (!otlp_json_attr(s, &attr) || !ADD(s, labels, attr))
                    return false;
        }
    }
    ret->len = (uint32_t)s->o->labels.len - ret->from;
    return !s->j.bad;
}

/* ---- profiles ------------------------------------------------------------------------------- */

static bool take_type(struct otlp_json *s, struct otlp_type *t)
{
    struct jpull_it it;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("typeStrindex"))
            otlp_json_index(s, "typeStrindex", &t->type);
        else if (IS("unitStrindex"))
            otlp_json_index(s, "unitStrindex", &t->unit);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad;
}

/* One, or a list of them in layouts up to 1.7. */
static bool add_types(struct otlp_json *s, struct otlp_profile *p)
{
    bool list = jpull_peek(&s->j) == '[';
    struct otlp_type t;
    struct jpull_it it;

    p->types = (struct otlp_range){ (uint32_t)s->o->types.len, 0 };
    s->is_17 |= list;
    if (jpull_peek(&s->j) == 'n')
        return jpull_skip(&s->j);
    if (list && !jpull_open(&s->j, '[', &it))
        return false;
    while (!list || jpull_element(&s->j, &it)) {
        t = (struct otlp_type){ 0 };
        if (!take_type(s, &t))
            return false;
        if (p->types.len == OTLP_TYPES_MAX)
            return otlp_json_over(s, "sample types", OTLP_TYPES_MAX);
        if (!ADD(s, types, t))
            return false;
        p->types.len++;
        if (!list)
            break;
    }
    return !s->j.bad;
}

static bool take_values(struct otlp_json *s, struct otlp_range *ret)
{
    struct jpull_it it;
    int64_t v;

    *ret = (struct otlp_range){ (uint32_t)s->o->values.len, 0 };
    if (!jpull_open(&s->j, '[', &it))
        return !s->j.bad;
    while (jpull_element(&s->j, &it)) {
        v = 0;
        if (!jpull_signed(&s->j, "a value", &v) || !ADD(s, values, v))
            return false;
        ret->len++;
    }
    return !s->j.bad;
}

static bool take_times(struct otlp_json *s, struct otlp_profile *p, uint32_t *n)
{
    struct jpull_it it;
    uint64_t v;

    *n = 0;
    if (!jpull_open(&s->j, '[', &it))
        return !s->j.bad;
    while (jpull_element(&s->j, &it)) {
        v = 0;
        if (!jpull_number(&s->j, "a timestamp", &v))
            return false;
        p->first_ns = p->has_times ? MIN(p->first_ns, v) : v;
        p->last_ns = p->has_times ? MAX(p->last_ns, v) : v;
        p->has_times = true;
        ++*n;
    }
    return !s->j.bad;
}

static bool add_sample(struct otlp_json *s, struct otlp_profile *p)
{
    struct otlp_sample out = { .link = OTLP_NONE };
    struct jpull_it it;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("stackIndex")) {
            otlp_json_index(s, "stackIndex", &out.stack);
        } else if (IS("values") || IS("value")) {
            take_values(s, &out.values);
        } else if (IS("attributeIndices")) {
            otlp_json_list(s, "attributeIndices", &out.attrs);
        } else if (IS("linkIndex")) {
            otlp_json_index(s, "linkIndex", &out.link);
        } else if (IS("timestampsUnixNano")) {
            take_times(s, p, &out.timestamps);
        } else if (IS("locationsStartIndex")) {
            s->is_17 = true;
            otlp_json_index(s, "locationsStartIndex", &out.stack);
        } else if (IS("locationsLength")) {
            s->is_17 = true;
            otlp_json_index(s, "locationsLength", &out.stack_len);
        } else {
            jpull_skip(&s->j);
        }
    }
    if (s->j.bad)
        return false;
    if (out.attrs.len > s->o->limits->labels_per_sample)
        return otlp_json_over(s, "attributes in a sample", s->o->limits->labels_per_sample);
    if (s->o->samples.len >= s->o->limits->samples)
        return otlp_json_over(s, "samples", s->o->limits->samples);
    p->samples.len++;
    return ADD(s, samples, out);
}

static bool add_samples(struct otlp_json *s, struct otlp_profile *p)
{
    struct jpull_it it;

    if (!jpull_open(&s->j, '[', &it))
        return !s->j.bad;
    while (jpull_element(&s->j, &it))
        if (!add_sample(s, p))
            return false;
    return !s->j.bad;
}

static bool take_duration(struct otlp_json *s, int64_t *ret)
{
    uint64_t v = 0;
    bool ok = jpull_number(&s->j, "durationNano", &v);

    *ret = v <= INT64_MAX ? (int64_t)v : INT64_MAX;
    return ok;
}

/* Members that are no list of the profile's own. */
static bool take_member(struct otlp_json *s, struct str key, struct otlp_profile *p)
{
    uint64_t v = 0;

    s->is_17 |= IS("timeNanos") || IS("durationNanos");
    if (IS("timeUnixNano") || IS("timeNanos"))
        return jpull_number(&s->j, "timeUnixNano", &p->time_ns);
    if (IS("durationNano") || IS("durationNanos"))
        return take_duration(s, &p->duration_ns);
    if (IS("profileId"))
        return otlp_json_id(s, "a profileId is 16 bytes in hex or base64", 16, &p->id);
    if (IS("periodType")) {
        p->has_period_type = jpull_peek(&s->j) == '{';
        return take_type(s, &p->period_type);
    }
    if (IS("period")) {
        bool ok = jpull_number(&s->j, "period", &v);
        p->period = (int64_t)v;
        return ok;
    }
    return jpull_skip(&s->j);
}

static bool add_profile(struct otlp_json *s, uint32_t scope)
{
    struct otlp_profile p = { .scope = scope, .samples = { (uint32_t)s->o->samples.len, 0 } };
    struct otlp_dict dict = otlp_dict_begin(s->o);
    otlp_json_add add;
    bool tables = false;
    (void)jpull_peek(&s->j);
    const char *from = s->j.p;
    struct jpull_it it;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("samples") || IS("sample")) {
            s->is_18 |= IS("sample");
            add_samples(s, &p);
        } else if (IS("sampleType")) {
            add_types(s, &p);
        } else if (IS("attributeIndices")) {
            otlp_json_list(s, "attributeIndices", &p.attrs);
        } else if (IS("locationIndices")) {
            s->is_17 = true;
            otlp_json_list(s, "locationIndices", &p.list);
        } else if (otlp_json_table(key, &add)) {
            tables = true;
            otlp_json_read_table(s, add);
        } else {
            take_member(s, key, &p);
        }
    }
    if (s->j.bad)
        return false;
    p.text = str_n(from, (size_t)(s->j.p - from));
    s->is_15 |= tables;
    if (tables) {
        otlp_dict_end(s->o, &dict);
        p.dict = (uint32_t)s->o->dicts.len;
        if (!ADD(s, dicts, dict))
            return false;
    } else {
        p.dict = OTLP_NONE;
    }
    return ADD(s, profiles, p);
}

/* The keys may stand in any order: what scopes refer to is put in at the end. */
static bool add_scope(struct otlp_json *s)
{
    uint32_t at = (uint32_t)s->o->scopes.len;
    struct otlp_scope scope = { 0 };
    struct jpull_it it, list;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    if (!ADD(s, scopes, scope))
        return false;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("scope")) {
            add_labels(s, &scope.scope);
        } else if (!IS("profiles")) {
            jpull_skip(&s->j);
        } else if (jpull_open(&s->j, '[', &list)) {
            while (jpull_element(&s->j, &list))
                if (!add_profile(s, at))
                    return false;
        }
    }
    s->o->scopes.ptr[at] = scope;
    return !s->j.bad;
}

static bool add_resource(struct otlp_json *s)
{
    size_t first = s->o->scopes.len;
    struct otlp_range resource = { 0 };
    struct jpull_it it, list;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("resource")) {
            add_labels(s, &resource);
        } else if (!IS("scopeProfiles")) {
            jpull_skip(&s->j);
        } else if (jpull_open(&s->j, '[', &list)) {
            while (jpull_element(&s->j, &list))
                if (!add_scope(s))
                    return false;
        }
    }
    for (size_t i = first; i < s->o->scopes.len; i++)
        s->o->scopes.ptr[i].resource = resource;
    return !s->j.bad;
}

static bool read_dictionary(struct otlp_json *s)
{
    otlp_json_add add;
    struct jpull_it it;
    struct str key;

    if (s->dictionary)
        return jpull_fault(&s->j, "a second dictionary");
    s->dict = otlp_dict_begin(s->o);
    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    s->dictionary = true;
    while (jpull_key(&s->j, &it, &key)) {
        if (otlp_json_table(key, &add))
            otlp_json_read_table(s, add);
        else
            jpull_skip(&s->j);
    }
    otlp_dict_end(s->o, &s->dict);
    return !s->j.bad;
}

static bool read_request(struct otlp_json *s)
{
    struct jpull_it it, list;
    struct str key;

    if (jpull_peek(&s->j) != '{' || !jpull_open(&s->j, '{', &it))
        return jpull_fault(&s->j, "want an object: a request to export profiles");
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("dictionary")) {
            read_dictionary(s);
        } else if (!IS("resourceProfiles")) {
            jpull_skip(&s->j);
        } else if (jpull_open(&s->j, '[', &list)) {
            while (jpull_element(&s->j, &list))
                if (!add_resource(s))
                    return false;
        }
    }
    return jpull_end(&s->j);
}

/* Absent is 0 in most layouts; where it is not, it stays none. */
static void fill_absent(struct otlp_json *s)
{
    struct otlp *o = s->o;

    for (size_t i = 0; i < o->locations.len && o->layout != OTLP_17; i++)
        if (o->locations.ptr[i].mapping == OTLP_NONE)
            o->locations.ptr[i].mapping = 0;
}

static int set_layout(struct otlp_json *s)
{
    struct otlp *o = s->o;

    o->layout = s->is_15 ? OTLP_15 : s->is_17 ? OTLP_17 : s->is_18 ? OTLP_18 : OTLP_110;
    fill_absent(s);
    for (size_t i = 0; i < o->profiles.len; i++) {
        struct otlp_profile *p = &o->profiles.ptr[i];
        if (p->dict == OTLP_NONE ? !s->dictionary : s->dictionary)
            return err_set(s->j.e, ERR_INPUT,
                           s->dictionary ? "otlp: tables both in the request and in its profiles"
                                         : "otlp: the request has profiles but no dictionary");
        if (p->dict == OTLP_NONE && s->is_15)
            return err_set(s->j.e, ERR_INPUT, "otlp: a profile without tables among others");
    }
    if (s->dictionary && !ADD(s, dicts, s->dict))
        return s->j.e->code;
    return 0;
}

int otlp_parse_json(struct otlp *o, struct str body, const struct limits *l, struct arena *a,
                    struct err *e)
{
    struct otlp_json s = { .o = o };

    otlp_init(o, l, a);
    if (body.len == 0)
        return err_set(e, ERR_INPUT, "otlp: the body is empty");
    if (body.len >= OTLP_NONE)
        return err_set(e, ERR_LIMIT, "otlp: a body of %zu bytes is over 4 GiB", body.len);
    jpull_init(&s.j, body, a, e);
    if (!read_request(&s) || set_layout(&s))
        return e->code;
    return otlp_resolve(o, e);
}

int otlp_decode_json(struct str body, const struct batch_sink *sink, struct err *e)
{
    struct arena *a = arena_new((size_t)sink->limits->decode_bytes);
    struct otlp o;
    int rc = otlp_parse_json(&o, body, sink->limits, a, e);

    if (!rc)
        rc = otlp_push(&o, sink, e);
    otlp_deinit(&o);
    arena_free(a);
    return rc;
}
