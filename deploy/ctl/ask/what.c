/* SPDX-License-Identifier: Apache-2.0
 *
 * what: people say "cpu of shop"; the server wants
 * process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="shop"}.
 *
 * A short name is looked up among the types that the services in question really have, so that it
 * needs no table of all agents' habits: the sample type counts most, then the profile's name. Only
 * where several types fit alike is one asked for by its id.
 */
#include "deploy/ctl/ask/what.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/vec.h"
#include "common/model/attime.h"
#include "common/model/ptype.h"
#include "common/model/selector.h"
#include "deploy/ctl/ask/ask.h"

#define HOUR_MS   INT64_C(3600000)
#define ARENA_MAX (4 * MIB)
#define LISTED    12 /* types and services named in an error */

/* ---- range ---- */

int what_range(const struct cli *c, const char *from, const char *until, int64_t *ret_from,
               int64_t *ret_until, struct err *e)
{
    int64_t b = c->now_ms, a;

    if (until && attime_parse(str_c(until), c->now_ms, &b, e))
        return err_wrap(e, "--until");
    a = b - HOUR_MS;
    if (from && attime_parse(str_c(from), c->now_ms, &a, e))
        return err_wrap(e, "--from");
    if (a < 1 || b < 1)
        return err_set(e, ERR_CONFIG, "--from and --until want times after 1970");
    if (a >= b)
        return err_set(e, ERR_CONFIG,
                       "--from is not before --until: %" PRId64 " >= %" PRId64 " (milliseconds)", a,
                       b);
    *ret_from = a;
    *ret_until = b;
    return 0;
}

/* ---- selector ---- */

struct what_in what_of_cli(const struct cli *c, size_t service_at)
{
    return (struct what_in){ .service =
                                 c->args_len > service_at ? c->args[service_at] : c->o.service,
                             .query = c->o.query,
                             .type = c->o.type,
                             .from = c->o.from,
                             .until = c->o.until };
}

static int copy(char *to, size_t size, struct str s, const char *what, struct err *e)
{
    if (s.len >= size)
        return err_set(e, ERR_CONFIG, "%s is over %zu bytes", what, size - 1);
    if (s.len)
        memcpy(to, s.ptr, s.len);
    to[s.len] = '\0';
    return 0;
}

/* a="b" without braces: what follows the first word is neither '{' nor the end. */
static bool is_bare(struct str s)
{
    size_t i = 0;

    while (i < s.len &&
           (s.ptr[i] == '_' || s.ptr[i] == ':' || s.ptr[i] == '.' ||
            (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'z') ||
            (s.ptr[i] >= 'A' && s.ptr[i] <= 'Z')))
        i++;
    s = str_trim(str_sub(s, i, s.len));
    return s.len && s.ptr[0] != '{';
}

/* The matchers of --query, and the service as one more. */
static int put_selector(const struct what_in *in, struct arena *a, struct str *ret_type,
                        struct buf *out, struct err *e)
{
    struct str text = str_trim(str_c(in->query));
    struct selector s = { 0 };
    struct buf braces;
    int rc = 0;

    buf_init(&braces, 64 * KIB);
    if (text.len) {
        bool bare = is_bare(text);
        (void)buf_addf(&braces, "%s%.*s%s", bare ? "{" : "", STR_ARG(text), bare ? "}" : "");
        rc = selector_parse(buf_str(&braces), SELECTOR_PROMETHEUS, a, &s, e);
    }
    if (!rc) {
        struct matcher *all = ARENA_ARRAY(a, struct matcher, s.len + 1);
        if (!all) {
            buf_deinit(&braces);
            return err_set(e, ERR_LIMIT, "--query is too long");
        }
        size_t n = 0;
        if (in->service)
            all[n++] = (struct matcher){ .op = MATCH_EQ,
                                         .name = STR("service_name"),
                                         .value = str_c(in->service) };
        for (size_t i = 0; i < s.len; i++)
            all[n++] = s.matchers[i];
        struct selector with = { .metric = STR(""), .matchers = all, .len = n };
        selector_format(&with, out);
        *ret_type = s.metric;
    }
    buf_deinit(&braces);
    return rc ? err_wrap(e, "--query") : 0;
}

/* A type that is given as an id is taken as it is. */
static int given_type(struct what *w, const char *type, struct str metric, struct err *e)
{
    struct ptype parsed;
    struct str id = metric.len ? metric : str_c(type);

    if (metric.len && type)
        return err_set(e, ERR_CONFIG, "--query names a profile type, and --type another");
    if (metric.len && ptype_parse(metric, &parsed, e))
        return err_wrap(e, "--query: %.*s", (int)MIN(metric.len, 100), metric.ptr);
    if (id.len && !ptype_parse(id, &parsed, e)) {
        w->wanted = NULL;
        return copy(w->type, sizeof(w->type), id, "--type", e);
    }
    w->wanted = type ? type : "cpu";
    return 0;
}

static int join(struct what *w, struct err *e)
{
    int n = snprintf(w->query, sizeof(w->query), "%s%s", w->type, w->selector);

    return n < (int)sizeof(w->query) ? 0 : err_set(e, ERR_CONFIG, "--query is too long");
}

int what_parse(const struct cli *c, const struct what_in *in, struct what *ret, struct err *e)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct str metric = STR_NULL;
    struct buf b;
    int rc;

    *ret = (struct what){ .service = in->service };
    buf_init(&b, 64 * KIB);
    rc = what_range(c, in->from, in->until, &ret->from_ms, &ret->until_ms, e);
    if (!rc)
        rc = put_selector(in, a, &metric, &b, e);
    if (!rc)
        rc = copy(ret->selector, sizeof(ret->selector), buf_str(&b), "--query", e);
    if (!rc)
        rc = given_type(ret, in->type, metric, e);
    if (!rc)
        rc = join(ret, e);
    buf_deinit(&b);
    arena_free(a);
    return rc;
}

/* ---- type ---- */

/* How well a type fits a short name; 0: not at all. */
static int fit(struct str wanted, struct str id)
{
    static const char *const cpu[] = { "process_cpu", "cpu" };
    char text[300];
    struct ptype t;
    struct err e;
    int score = 0;

    if (ptype_parse(id, &t, &e))
        return 0;
    int n = snprintf(text, sizeof(text), "%.*s:%.*s", STR_ARG(t.name), STR_ARG(t.sample_type));
    if (str_eq(wanted, id))
        return 9;
    if (n > 0 && n < (int)sizeof(text) && str_eqc(wanted, text))
        return 8;
    if (str_eq(wanted, t.sample_type))
        score = 6;
    else if (str_eq(wanted, t.name))
        score = 3;
    /* Time is what a profile of the CPU is asked for, not how often it was looked at. */
    for (size_t i = 0; score && i < ARRAY_LEN(cpu); i++)
        if (str_eqc(t.name, cpu[i]) && str_eqc(t.sample_unit, "nanoseconds"))
            return score + 1;
    return score;
}

ptrdiff_t what_best_type(struct str wanted, const struct str *ids, size_t len)
{
    ptrdiff_t best = -1;
    int most = 0;

    for (size_t i = 0; i < len; i++) {
        int score = fit(wanted, ids[i]);
        if (score > most) {
            most = score;
            best = (ptrdiff_t)i;
        } else if (score && score == most) {
            best = -2;
        }
    }
    return best;
}

struct ids {
    VEC(struct str) at; /* into the doc */
};

static int ids_of(const struct cli *c, const struct json_val *root, struct ids *ids, struct err *e)
{
    const struct json_val *all = json_get(root, "labelsSet", "labels_set");

    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *labels = json_get(json_at(all, i), "labels", NULL);
        for (size_t k = 0; k < json_len(labels); k++) {
            struct str id = STR_NULL;
            if (json_take_str(json_get(json_at(labels, k), "value", NULL), "value", &id, e))
                return ask_strange(c, e->text, e);
            bool known = !id.len;
            for (size_t n = 0; n < ids->at.len && !known; n++)
                known = str_eq(ids->at.ptr[n], id);
            if (!known)
                vec_push(&ids->at, id);
        }
    }
    return 0;
}

static int none_fits(const struct what *w, const struct ids *ids, bool several, struct err *e)
{
    struct buf b;

    buf_init(&b, 400);
    for (size_t i = 0; i < MIN(ids->at.len, LISTED); i++)
        (void)buf_addf(&b, "%s%.*s", i ? ", " : "", STR_ARG(ids->at.ptr[i]));
    if (!ids->at.len)
        (void)err_set(e, ERR_NOT_FOUND,
                      "no profiles of %.200s in this range; `services` lists what there is, --from "
                      "looks further back",
                      w->selector);
    else if (several)
        (void)err_set(e, ERR_CONFIG, "--type %.60s fits several, name one: %.*s", w->wanted,
                      STR_ARG(buf_str(&b)));
    else
        (void)err_set(e, ERR_NOT_FOUND, "no type \"%.60s\" here; there is: %.*s", w->wanted,
                      STR_ARG(buf_str(&b)));
    buf_deinit(&b);
    return e->code;
}

static int choose(const struct cli *c, struct what *w, const struct json_doc *doc, struct err *e)
{
    struct ids ids = { 0 };
    int rc = ids_of(c, json_root(doc), &ids, e);

    if (!rc) {
        ptrdiff_t i = what_best_type(str_c(w->wanted), ids.at.ptr, ids.at.len);
        rc = i < 0 ? none_fits(w, &ids, i == -2, e)
                   : copy(w->type, sizeof(w->type), ids.at.ptr[i], "the profile type", e);
    }
    vec_free(&ids.at);
    return rc ? rc : join(w, e);
}

int what_find_type(struct cli *c, struct what *w, struct err *e)
{
    struct json_doc *doc = NULL;
    struct json j;
    struct buf b;
    int rc;

    if (!w->wanted)
        return 0;
    buf_init(&b, 64 * KIB);
    json_init(&j, &b);
    json_obj(&j);
    json_key(&j, "matchers");
    json_arr(&j);
    json_cstr(&j, w->selector);
    json_arr_end(&j);
    json_key(&j, "labelNames");
    json_arr(&j);
    json_cstr(&j, "__profile_type__");
    json_arr_end(&j);
    json_put_i64(&j, "start", w->from_ms);
    json_put_i64(&j, "end", w->until_ms - 1);
    json_obj_end(&j);
    rc = ask_call(c, "Series", buf_str(&b), &doc, e);
    if (!rc)
        rc = choose(c, w, doc, e);
    json_doc_free(doc);
    buf_deinit(&b);
    return rc;
}

int what_ready(struct cli *c, struct what *ret, struct err *e)
{
    struct what_in in = what_of_cli(c, 0);

    return what_parse(c, &in, ret, e) ? e->code : what_find_type(c, ret, e);
}

/* ---- for people ---- */

struct str what_unit(const char *type)
{
    struct ptype t;
    struct err e;

    return ptype_parse(str_c(type), &t, &e) ? STR("") : t.sample_unit;
}

void what_title(const struct cli *c, const struct what *w, struct buf *out)
{
    struct ptype t;
    struct err e;

    if (!ptype_parse(str_c(w->type), &t, &e)) {
        (void)term_name(&c->term, t.name, 40, out);
        (void)buf_add_c(out, ':');
        (void)term_name(&c->term, t.sample_type, 40, out);
    }
    (void)buf_add_str(out, STR(" of "));
    if (w->service && strlen(w->selector) == strlen(w->service) + strlen("{service_name=\"\"}"))
        (void)term_name(&c->term, str_c(w->service), 80, out);
    else
        (void)term_name(&c->term, str_c(w->selector), 120, out);
    (void)buf_add_str(out, STR(", "));
    term_time(w->from_ms, out);
    (void)buf_add_str(out, STR(" to "));
    term_time(w->until_ms, out);
    (void)buf_add_str(out, STR(" UTC ("));
    term_duration(w->until_ms - w->from_ms, out);
    (void)buf_add_c(out, ')');
}
