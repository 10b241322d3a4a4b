/* SPDX-License-Identifier: Apache-2.0
 *
 * services, types, labels, series: what there is to ask about.
 *
 * Each command asks one RPC of querier.v1.QuerierService (proto/WIRE.md) and prints its list: as
 * columns for people, or as JSON. Label sets are read into an arena, since a server may answer with
 * hundreds of thousands. Matchers come from the service, --type and --query, which
 * what.h puts together.
 */
#include <stdlib.h>

#include "common/base/vec.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

/* ---- asking ---- */

/* A field of a request: a list of texts, or the text values[0] if it is "name". */
struct field {
    const char *key;
    const char *const *values;
    size_t n;
};

/* Writes {"matchers":[..],"start":..,"end":..} with the field `more` (NULL: no more fields). */
static void put_message(const struct what *w, const struct field *more, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_key(&j, "matchers");
    json_arr(&j);
    json_cstr(&j, w->selector);
    json_arr_end(&j);
    if (more && strcmp(more->key, "name") == 0) {
        json_put_cstr(&j, more->key, more->values[0]);
    } else if (more) {
        json_key(&j, more->key);
        json_arr(&j);
        for (size_t i = 0; i < more->n; i++)
            json_cstr(&j, more->values[i]);
        json_arr_end(&j);
    }
    json_put_i64(&j, "start", w->from_ms);
    json_put_i64(&j, "end", w->until_ms - 1);
    json_obj_end(&j);
}

static int call(struct cli *c, const char *method, const struct what *w, const struct field *more,
                struct json_doc **ret, struct err *e)
{
    struct buf b;
    int rc;

    buf_init(&b, 64 * KIB);
    put_message(w, more, &b);
    rc = ask_call(c, method, buf_str(&b), ret, e);
    buf_deinit(&b);
    return rc;
}

/* Options and, where service_at is 0, the service. A type in --type narrows by its matcher. */
static int what(struct cli *c, size_t service_at, struct what *ret, struct err *e)
{
    struct what_in in = what_of_cli(c, service_at);

    in.type = NULL;
    return what_parse(c, &in, ret, e);
}

static int finish(struct cli *c, bool empty)
{
    return empty ? commands_nothing(c) : cli_done(c);
}

/* ---- lists of texts ---- */

static int put_list(struct cli *c, const struct json_doc *doc, const char *key, const char *name,
                    size_t *ret_len, struct err *e)
{
    const struct json_val *all = json_get(json_root(doc), "names", NULL);
    struct json j;

    json_init(&j, &c->out);
    if (c->o.json) {
        json_obj(&j);
        if (name)
            json_put_cstr(&j, "name", name);
        json_key(&j, key);
        json_arr(&j);
    }
    *ret_len = json_len(all);
    for (size_t i = 0; i < json_len(all); i++) {
        struct str s = STR("");
        if (json_take_str(json_at(all, i), "a name", &s, e))
            return ask_strange(c, e->text, e);
        if (c->o.json) {
            json_str(&j, s);
        } else {
            (void)term_name(&c->term, s, TERM_WIDTH_MAX * 4, &c->out);
            (void)buf_add_c(&c->out, '\n');
        }
    }
    if (c->o.json) {
        json_arr_end(&j);
        json_obj_end(&j);
        cli_json_end(c);
    }
    return 0;
}

int ctl_labels(struct cli *c)
{
    const char *name = c->args_len ? c->args[0] : NULL;
    struct json_doc *doc = NULL;
    struct what w;
    struct err e;
    size_t n = 0;
    int rc = what(c, 1, &w, &e);

    if (!rc)
        rc = name ? call(c, "LabelValues", &w, &(struct field){ "name", &name, 1 }, &doc, &e)
                  : call(c, "LabelNames", &w, NULL, &doc, &e);
    if (!rc)
        rc = put_list(c, doc, name ? "values" : "names", name, &n, &e);
    json_doc_free(doc);
    return rc ? commands_fail(c, &e) : finish(c, n == 0);
}

/* ---- label sets ---- */

struct pair {
    struct str name, value;
};
struct set {
    VEC(struct pair) at;
};

static int read_set(const struct cli *c, const struct json_val *v, struct set *ret, struct err *e)
{
    const struct json_val *all = json_get(v, "labels", NULL);

    ret->at.len = 0;
    for (size_t i = 0; i < json_len(all); i++) {
        struct pair p = { STR(""), STR("") };
        if (json_take_str(json_get(json_at(all, i), "name", NULL), "name", &p.name, e) ||
            json_take_str(json_get(json_at(all, i), "value", NULL), "value", &p.value, e))
            return ask_strange(c, e->text, e);
        vec_push(&ret->at, p);
    }
    return 0;
}

static struct str value_of(const struct set *s, const char *name)
{
    vec_for (i, &s->at)
        if (str_eqc(s->at.ptr[i].name, name))
            return s->at.ptr[i].value;
    return STR("");
}

/* name="value" in braces, one set a line. */
static void put_set(struct cli *c, const struct set *s)
{
    (void)buf_add_c(&c->out, '{');
    vec_for (i, &s->at) {
        (void)buf_add_str(&c->out, i ? STR(", ") : STR(""));
        (void)term_name(&c->term, s->at.ptr[i].name, TERM_WIDTH_MAX, &c->out);
        (void)buf_add_str(&c->out, STR("=\""));
        (void)term_name(&c->term, s->at.ptr[i].value, TERM_WIDTH_MAX * 4, &c->out);
        (void)buf_add_c(&c->out, '"');
    }
    (void)buf_add_str(&c->out, STR("}\n"));
}

static void put_set_json(const struct set *s, struct json *j)
{
    json_obj(j);
    vec_for (i, &s->at) {
        json_key_str(j, s->at.ptr[i].name);
        json_str(j, s->at.ptr[i].value);
    }
    json_obj_end(j);
}

static int put_sets(struct cli *c, const struct json_val *all, struct err *e)
{
    struct set s = { 0 };
    struct json j;
    int rc = 0;

    json_init(&j, &c->out);
    if (c->o.json) {
        json_obj(&j);
        json_key(&j, "series");
        json_arr(&j);
    }
    for (size_t i = 0; !rc && i < MIN(json_len(all), c->o.limit); i++) {
        rc = read_set(c, json_at(all, i), &s, e);
        if (!rc && c->o.json)
            put_set_json(&s, &j);
        else if (!rc)
            put_set(c, &s);
    }
    vec_free(&s.at);
    if (c->o.json && !rc) {
        json_arr_end(&j);
        json_obj_end(&j);
        cli_json_end(c);
    }
    return rc;
}

/* "a,b" to names; at most n. */
static size_t split(char *text, const char **ret, size_t n)
{
    size_t len = 0;
    char *save = NULL;

    for (char *one = strtok_r(text, ",", &save); one && len < n; one = strtok_r(NULL, ",", &save))
        ret[len++] = one;
    return len;
}

#define BY_MAX 64

int ctl_series(struct cli *c)
{
    char by[2048] = "";
    const char *names[BY_MAX];
    struct json_doc *doc = NULL;
    struct what w;
    struct err e;
    int rc = what(c, 0, &w, &e);

    if (!rc && c->o.by && strlen(c->o.by) >= sizeof(by))
        rc = err_set(&e, ERR_CONFIG, "--by is too long");
    else if (!rc && c->o.by)
        memcpy(by, c->o.by, strlen(c->o.by) + 1);
    const struct field labels = { "labelNames", names, split(by, names, BY_MAX) };
    if (!rc)
        rc = call(c, "Series", &w, &labels, &doc, &e);
    const struct json_val *all = rc ? NULL : json_get(json_root(doc), "labelsSet", "labels_set");
    if (!rc)
        rc = put_sets(c, all, &e);
    bool empty = json_len(all) == 0;
    json_doc_free(doc);
    return rc ? commands_fail(c, &e) : finish(c, empty);
}

/* ---- services and types ---- */

static int by_pair(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int c = str_cmp(x->name, y->name);

    return c ? c : str_cmp(x->value, y->value);
}

/* (service, type) of everything, in order. */
static int read_pairs(struct cli *c, const struct json_doc *doc, struct set *ret, struct err *e)
{
    const struct json_val *all = json_get(json_root(doc), "labelsSet", "labels_set");
    struct set s = { 0 };
    int rc = 0;

    for (size_t i = 0; !rc && i < json_len(all); i++) {
        rc = read_set(c, json_at(all, i), &s, e);
        vec_push(&ret->at,
                 ((struct pair){ value_of(&s, "service_name"), value_of(&s, "__profile_type__") }));
    }
    vec_free(&s.at);
    if (ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), by_pair);
    return rc;
}

static void put_services(struct cli *c, const struct set *s)
{
    struct json j;

    json_init(&j, &c->out);
    if (c->o.json) {
        json_obj(&j);
        json_key(&j, "services");
        json_arr(&j);
    }
    for (size_t i = 0, end; i < s->at.len; i = end) {
        struct str name = s->at.ptr[i].name;
        for (end = i; end < s->at.len && str_eq(s->at.ptr[end].name, name); end++)
            ;
        if (!c->o.json) {
            size_t used = term_name(&c->term, name, 400, &c->out);
            if (!c->o.names) {
                term_pad(used < 40 ? 40 - used : 1, &c->out);
                (void)buf_addf(&c->out, "%zu %s", end - i, end - i == 1 ? "type" : "types");
            }
            (void)buf_add_c(&c->out, '\n');
            continue;
        }
        json_obj(&j);
        json_put_str(&j, "name", name);
        json_key(&j, "types");
        json_arr(&j);
        for (size_t k = i; k < end; k++)
            json_str(&j, s->at.ptr[k].value);
        json_arr_end(&j);
        json_obj_end(&j);
    }
    if (c->o.json) {
        json_arr_end(&j);
        json_obj_end(&j);
        cli_json_end(c);
    }
}

int ctl_services(struct cli *c)
{
    static const char *const names[] = { "service_name", "__profile_type__" };
    struct json_doc *doc = NULL;
    struct set s = { 0 };
    struct what w;
    struct err e;
    int rc = what(c, 1, &w, &e);

    if (!rc)
        rc = call(c, "Series", &w, &(struct field){ "labelNames", names, ARRAY_LEN(names) }, &doc,
                  &e);
    if (!rc)
        rc = read_pairs(c, doc, &s, &e);
    if (!rc)
        put_services(c, &s);
    bool empty = s.at.len == 0;
    vec_free(&s.at);
    json_doc_free(doc);
    return rc ? commands_fail(c, &e) : finish(c, empty);
}

static void put_types(struct cli *c, const struct set *s)
{
    struct str last = STR_NULL;
    struct json j;

    json_init(&j, &c->out);
    if (c->o.json) {
        json_obj(&j);
        json_key(&j, "types");
        json_arr(&j);
    }
    vec_for (i, &s->at) {
        struct str id = s->at.ptr[i].value;
        if (i && str_eq(id, last))
            continue;
        last = id;
        if (c->o.json) {
            json_str(&j, id);
        } else {
            (void)term_name(&c->term, id, TERM_WIDTH_MAX, &c->out);
            (void)buf_add_c(&c->out, '\n');
        }
    }
    if (c->o.json) {
        json_arr_end(&j);
        json_obj_end(&j);
        cli_json_end(c);
    }
}

int ctl_types(struct cli *c)
{
    static const char *const names[] = { "__profile_type__" };
    struct json_doc *doc = NULL;
    struct set s = { 0 };
    struct what w;
    struct err e;
    int rc = what(c, 0, &w, &e);

    if (!rc)
        rc = call(c, "Series", &w, &(struct field){ "labelNames", names, ARRAY_LEN(names) }, &doc,
                  &e);
    if (!rc)
        rc = read_pairs(c, doc, &s, &e);
    if (!rc)
        put_types(c, &s);
    bool empty = s.at.len == 0;
    vec_free(&s.at);
    json_doc_free(doc);
    return rc ? commands_fail(c, &e) : finish(c, empty);
}
