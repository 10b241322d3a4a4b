/* SPDX-License-Identifier: Apache-2.0
 *
 * query_spec.c: query text to selectors: `type{matchers}`, plain matchers, or an old application
 * name.
 *
 * Which grammar a text has is decided by its part before the brace: a profile type has four colons
 * or more, everything else is an old name if the route takes those. Old names are turned into
 * matchers of service and type. Regexes are compiled once here, so that a wrong one is the client's
 * error.
 */
#include "querier/select/query_spec.h"

#include "common/base/buf.h"

static int no_room(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the query text needs over %zu bytes", arena_limit(a));
}

/* A regex that does not compile is the client's mistake: reported before any ingester is asked. */
static int try_regexes(struct selector *s, struct err *e)
{
    int code = selector_compile(s, e);

    selector_deinit(s);
    return code;
}

static int add_selector(struct query_spec *s, struct selector sel, struct err *e)
{
    if (s->len == QUERY_SPEC_SELECTORS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d selectors", QUERY_SPEC_SELECTORS_MAX);
    s->selectors[s->len++] = sel;
    return 0;
}

/* One more matcher name="value". */
static int add_equal(struct query_spec *s, const char *name, struct str value, struct arena *a,
                     struct err *e)
{
    struct matcher *m = ARENA_NEW(a, struct matcher);

    if (!m)
        return no_room(a, e);
    *m = (struct matcher){ .op = MATCH_EQ, .name = str_c(name), .value = value };
    return add_selector(s, (struct selector){ .matchers = m, .len = 1 }, e);
}

static size_t colons(struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++)
        n += s.ptr[i] == ':';
    return n;
}

NODISCARD int query_spec_type(struct str text, struct arena *a, struct str *ret, struct err *e)
{
    struct ptype t;
    struct buf b;

    if (ptype_parse(text, &t, e))
        return e->code;
    buf_init(&b, text.len);
    ptype_format(&t, &b);
    *ret = arena_strdup(a, buf_str(&b));
    buf_deinit(&b);
    return ret->ptr ? 0 : no_room(a, e);
}

static struct str before_braces(struct str text)
{
    ptrdiff_t brace = str_find(text, '{');
    return str_trim(brace < 0 ? text : str_sub(text, 0, (size_t)brace));
}

/* Takes the first name="<profile type>" out of the matchers; false: not found. */
static bool take_type(struct selector *s, const char *name, struct str *ret)
{
    for (size_t i = 0; i < s->len; i++) {
        const struct matcher *m = &s->matchers[i];
        if (m->op != MATCH_EQ || !str_eqc(m->name, name) || colons(m->value) < 4)
            continue;
        *ret = m->value;
        s->len--;
        memmove(&s->matchers[i], &s->matchers[i + 1], (s->len - i) * sizeof(*m));
        return true;
    }
    return false;
}

/* An old name: at least an application, and no profile type. */
static bool is_flameql(struct str text)
{
    struct str metric = before_braces(text);
    return metric.len > 0 && colons(metric) == 0;
}

static int parse_flameql(struct str text, struct arena *a, struct query_spec *s, struct err *e)
{
    struct selector sel;

    if (selector_parse(text, SELECTOR_FLAMEQL, a, &sel, e) || try_regexes(&sel, e))
        return e->code;
    s->legacy = true;
    s->app_text = sel.metric;
    s->app = app_name_types_app_of(sel.metric);
    sel.metric = STR_NULL;
    if (add_selector(s, sel, e))
        return e->code;
    return add_equal(s, "service_name", s->app.service, a, e);
}

NODISCARD int query_spec_render(struct str text, bool flameql, struct arena *a,
                                struct query_spec *ret, struct err *e)
{
    struct selector sel;
    struct str type;

    *ret = (struct query_spec){ 0 };
    if (str_trim(text).len == 0)
        return err_set(e, ERR_INPUT, "query is missing; want profile_type{label=\"value\"}");
    if (flameql && is_flameql(text))
        return parse_flameql(text, a, ret, e);
    if (selector_parse(text, SELECTOR_PROMETHEUS, a, &sel, e) || try_regexes(&sel, e))
        return err_wrap(e, "query");
    type = sel.metric;
    if (!type.len && !take_type(&sel, "__name__", &type) &&
        !take_type(&sel, "__profile_type__", &type))
        return err_set(e, ERR_INPUT,
                       "query has no profile type; want for example "
                       "process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name=\"x\"}");
    ret->app_text = type;
    sel.metric = STR_NULL;
    if (query_spec_type(type, a, &ret->profile_type, e))
        return err_wrap(e, "query");
    return add_selector(ret, sel, e);
}

NODISCARD int query_spec_add(struct query_spec *s, struct str text, struct arena *a, struct err *e)
{
    struct selector sel;
    struct str metric, type;
    struct err no_type;

    if (selector_parse(text, SELECTOR_PROMETHEUS, a, &sel, e) || try_regexes(&sel, e))
        return e->code;
    metric = sel.metric;
    sel.metric = STR_NULL;
    if (add_selector(s, sel, e))
        return e->code;
    if (!metric.len)
        return 0;
    if (query_spec_type(metric, a, &type, &no_type) == 0)
        return add_equal(s, "__profile_type__", type, a, e);
    return add_equal(s, "__name__", metric, a, e);
}

NODISCARD int query_spec_labels(struct str text, bool flameql, struct arena *a,
                                struct query_spec *ret, struct err *e)
{
    *ret = (struct query_spec){ 0 };
    if (str_trim(text).len == 0)
        return 0;
    if (flameql && is_flameql(text))
        return parse_flameql(text, a, ret, e);
    return query_spec_add(ret, text, a, e) ? err_wrap(e, "query") : 0;
}
