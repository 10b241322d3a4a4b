/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: values over time, of everything or of one function, and by the values of labels: a bar
 * of characters each, or all points as JSON. Exact at any range: points come from the function
 * index.
 */
#include <math.h>

#include "common/base/vec.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE      "/api/v1/functions"
#define POINTS     60
#define GROUPS     20
#define GROUPS_MAX 200
#define NUMBERS    26 /* columns before the bar */
#define BAR_MIN    10

/* ---- asking ---- */

static int plan(const struct cli *c, const struct what *w, uint64_t *ret_step_s, struct err *e)
{
    uint64_t span = (uint64_t)(w->until_ms - w->from_ms), step;

    if (!c->o.step) {
        step = MAX(span / POINTS, 10000);
        *ret_step_s = (step + 9999) / 10000 * 10; /* whole leaves */
        return 0;
    }
    if (!str_duration_ms(str_c(c->o.step), &step) || step < 1000)
        return err_set(e, ERR_CONFIG, "--step %.40s: want 10s, 1m, ...", c->o.step);
    *ret_step_s = step / 1000;
    return 0;
}

static void put_groups(const struct cli *c, struct buf *target)
{
    struct str rest = str_c(c->o.by), name;
    bool more = true;

    while (rest.len && str_next(&rest, ',', &more, &name))
        ask_param(target, "groupBy", str_trim(name));
    if (c->o.by)
        ask_param_u64(target, "groups",
                      c->o.limit == UINT64_MAX ? GROUPS : MIN(MAX(c->o.limit, 1), GROUPS_MAX));
}

static int ask_points(struct cli *c, const struct what *w, uint64_t step_s, struct json_doc **ret,
                      struct err *e)
{
    struct buf target;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(w->query));
    ask_param_u64(&target, "from", (uint64_t)w->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)w->until_ms * 1000000);
    ask_param_u64(&target, "step", step_s);
    if (c->o.function)
        ask_param(&target, "name", str_c(c->o.function));
    else
        ask_param(&target, "top", STR("1"));
    put_groups(c, &target);
    rc = buf_ok(&target) ? ask_json(c, buf_str(&target), ret, e)
                         : err_set(e, ERR_LIMIT, "the question is too long");
    buf_deinit(&target);
    return rc;
}

/* ---- reading ---- */

struct line {
    const struct json_val *labels; /* NULL: of all together */
    VEC(double) at;
    double sum, most;
};

/* Points of an object that has "all", "allAt" and "functions". */
static int read_line(const struct cli *c, const struct json_val *v, struct line *ret, struct err *e)
{
    const struct json_val *f = json_at(json_get(v, "functions", NULL), 0), *at;
    bool total = c->o.sort && strcmp(c->o.sort, "total") == 0;

    if (!c->o.function)
        at = json_get(v, "allAt", NULL);
    else
        at = json_get(f, total ? "totalAt" : "selfAt", NULL);
    ret->labels = json_get(v, "labels", NULL);
    ret->at.len = 0;
    ret->sum = ret->most = 0;
    for (size_t i = 0; i < json_len(at); i++) {
        double value = 0;
        if (json_take_double(json_at(at, i), "a point", &value, e))
            return ask_strange(c, e->text, e);
        vec_push(&ret->at, value);
        ret->sum += value;
        ret->most = MAX(ret->most, value);
    }
    return ret->at.len ? 0 : ask_strange(c, "no points", e);
}

/* ---- text ---- */

/* `columns` characters: each the largest of its points, in eighths of the line's largest. */
static void put_bar(const struct term *t, const struct line *l, size_t columns, struct buf *out)
{
    static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const letters[] = { " ", ".", ":", "-", "=", "+", "*", "#", "@" };
    size_t n = MIN(l->at.len, columns);

    for (size_t i = 0; i < n; i++) {
        double most = 0;
        for (size_t k = i * l->at.len / n; k < (i + 1) * l->at.len / n; k++)
            most = MAX(most, l->at.ptr[k]);
        size_t step = l->most > 0 ? (size_t)ceil(8 * most / l->most) : 0;
        (void)buf_add_str(out, str_c((t->utf8 ? blocks : letters)[MIN(step, 8)]));
    }
    term_pad(columns - n, out);
}

static void put_labels(const struct term *t, const struct json_val *labels, size_t columns,
                       struct buf *out)
{
    const struct json_val *v;
    struct str name, value;
    void *pos = NULL;
    struct buf b;
    struct err e;

    buf_init(&b, 64 * KIB);
    while (json_each(labels, &pos, &name, &v)) {
        value = STR("");
        if (json_take_str(v, "a label", &value, &e))
            continue;
        (void)buf_addf(&b, "%s%.*s=\"%.*s\"", b.len ? ", " : "", STR_ARG(name), STR_ARG(value));
    }
    (void)term_name(t, labels ? buf_str(&b) : STR("(everything)"), columns, out);
    buf_deinit(&b);
}

static void put_line(const struct term *t, const struct line *l, struct str unit, struct buf *out)
{
    size_t room = t->width - NUMBERS, bar = MAX(MIN(room * 2 / 3, POINTS), BAR_MIN);

    term_value_right(l->sum, unit, false, 11, out);
    term_value_right(l->most, unit, false, 12, out);
    (void)buf_add_str(out, STR("  "));
    put_bar(t, l, MIN(bar, MAX(l->at.len, BAR_MIN)), out);
    (void)buf_add_c(out, ' ');
    put_labels(t, l->labels, room - bar, out);
    (void)buf_add_c(out, '\n');
}

/* ---- JSON ---- */

static void put_line_json(const struct line *l, struct json *j)
{
    const struct json_val *v;
    struct str name, value;
    void *pos = NULL;
    struct err e;

    json_obj(j);
    json_key(j, "labels");
    json_obj(j);
    while (l->labels && json_each(l->labels, &pos, &name, &v)) {
        value = STR("");
        if (json_take_str(v, "a label", &value, &e))
            continue;
        json_key_str(j, name);
        json_str(j, value);
    }
    json_obj_end(j);
    json_put_double(j, "sum", l->sum);
    json_key(j, "values");
    json_arr(j);
    vec_for (i, &l->at)
        json_double(j, l->at.ptr[i]);
    json_arr_end(j);
    json_obj_end(j);
}

static void begin_json(struct cli *c, const struct what *w, uint64_t step_s, struct json *j)
{
    json_init(j, &c->out);
    json_obj(j);
    put_json_what(w, j);
    json_put_u64(j, "stepMs", step_s * 1000);
    if (c->o.function)
        json_put_cstr(j, "function", c->o.function);
    json_put_bool(j, "partial", c->was_partial);
    json_key(j, "series");
    json_arr(j);
}

static void begin_text(struct cli *c, const struct what *w, uint64_t step_s)
{
    struct buf *out = &c->out;

    if (c->o.function) {
        (void)term_name(&c->term, str_c(c->o.function), 80, out);
        (void)buf_addf(out, " (%s) in ", c->o.sort ? c->o.sort : "self");
    }
    what_title(c, w, out);
    (void)buf_add_str(out, STR(", points of "));
    term_duration((int64_t)step_s * 1000, out);
    term_style(&c->term, TERM_BOLD, out);
    (void)buf_addf(out, "\n%11s%12s\n", "SUM", "MOST");
    term_style(&c->term, TERM_PLAIN, out);
}

/* ---- the command ---- */

static int put_all(struct cli *c, const struct what *w, uint64_t step_s, const struct json_doc *doc,
                   bool *ret_empty, struct err *e)
{
    const struct json_val *root = json_root(doc), *groups = json_get(root, "groups", NULL);
    size_t n = json_len(groups);
    struct line l = { .labels = NULL };
    struct json j;
    int rc = 0;

    if (c->o.json)
        begin_json(c, w, step_s, &j);
    else
        begin_text(c, w, step_s);
    for (size_t i = 0; !rc && i < (c->o.by ? n : 1); i++) {
        rc = read_line(c, c->o.by ? json_at(groups, i) : root, &l, e);
        *ret_empty &= l.sum == 0;
        if (!rc && c->o.json)
            put_line_json(&l, &j);
        else if (!rc)
            put_line(&c->term, &l, what_unit(w->type), &c->out);
    }
    if (!rc && c->o.json) {
        json_arr_end(&j);
        json_obj_end(&j);
        cli_json_end(c);
    }
    vec_free(&l.at);
    return rc;
}

int ctl_timeline(struct cli *c)
{
    struct json_doc *doc = NULL;
    bool empty = true;
    uint64_t step_s = 0;
    struct what w;
    struct err e;
    int rc;

    if (what_ready(c, &w, &e) || plan(c, &w, &step_s, &e))
        return commands_fail(c, &e);
    rc = ask_points(c, &w, step_s, &doc, &e);
    if (!rc) {
        ask_notice(c, json_root(doc));
        rc = put_all(c, &w, step_s, doc, &empty, &e);
    }
    if (rc)
        buf_reset(&c->out); /* half an answer must not be printed */
    json_doc_free(doc);
    return rc ? commands_fail(c, &e) : empty ? commands_nothing(c) : cli_done(c);
}
