/* SPDX-License-Identifier: Apache-2.0
 *
 * top: the most costly functions of a range, exact: from the function index, not from a cut flame
 * graph. A function that recurs on a stack counts once in `total`.
 */
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/costs.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROWS        20
#define SHARES_FROM 70 /* columns of a terminal that has room for them */

static void put_share(double v, double all, struct buf *out)
{
    (void)buf_addf(out, " %6.1f %%", all != 0 ? 100 * v / all : 0.0);
}

void top_table(const struct term *t, const struct costs *f, struct str unit, struct buf *out)
{
    bool shares = t->width >= SHARES_FROM;
    size_t used = shares ? 42 : 24;

    term_style(t, TERM_BOLD, out);
    if (shares)
        (void)buf_addf(out, "%10s %8s %10s %8s  %s\n", "SELF", "%", "TOTAL", "%", "FUNCTION");
    else
        (void)buf_addf(out, "%10s %10s  %s\n", "SELF", "TOTAL", "FUNCTION");
    term_style(t, TERM_PLAIN, out);
    vec_for (i, &f->at) {
        const struct cost *one = &f->at.ptr[i];

        term_value_right(one->self, unit, false, 10, out);
        if (shares)
            put_share(one->self, f->all, out);
        term_value_right(one->total, unit, false, 11, out);
        if (shares)
            put_share(one->total, f->all, out);
        (void)buf_add_str(out, STR("  "));
        (void)term_name(t, one->name, t->width - used, out);
        (void)buf_add_c(out, '\n');
    }
}

/* "total 1.2 h, 3.4 cores on average". */
void top_whole(const struct costs *f, const struct what *w, struct buf *out)
{
    struct str unit = what_unit(w->type);

    (void)buf_add_str(out, f->gauge ? STR("mean ") : STR("total "));
    term_value(f->all, unit, out);
    if (str_eqc(unit, "nanoseconds") && !f->gauge)
        (void)buf_addf(out, ", %.3g cores on average",
                       f->all / 1e6 / (double)(w->until_ms - w->from_ms));
}

void put_json_what(const struct what *w, struct json *j)
{
    json_put_cstr(j, "query", w->query);
    json_put_cstr(j, "profileType", w->type);
    json_put_str(j, "unit", what_unit(w->type));
    json_put_i64(j, "fromMs", w->from_ms);
    json_put_i64(j, "untilMs", w->until_ms);
}

static void put_json(struct cli *c, const struct what *w, const struct costs *f)
{
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    put_json_what(w, &j);
    json_put_double(&j, "total", f->all);
    json_put_bool(&j, "partial", c->was_partial);
    costs_put_json(f, &j);
    json_obj_end(&j);
    cli_json_end(c);
}

int ctl_top(struct cli *c)
{
    struct costs f;
    struct what w;
    struct err e;

    if (what_ready(c, &w, &e))
        return commands_fail(c, &e);
    struct costs_ask a = { .query = w.query,
                           .from_ms = w.from_ms,
                           .until_ms = w.until_ms,
                           .top = c->o.limit == UINT64_MAX ? ROWS : c->o.limit,
                           .sort = strcmp(c->o.sort ? c->o.sort : "self", "total") == 0 ? BY_TOTAL
                                                                                        : BY_SELF };
    if (costs_ask(c, &a, &f, &e))
        return commands_fail(c, &e);
    if (c->o.json) {
        put_json(c, &w, &f);
    } else {
        what_title(c, &w, &c->out);
        (void)buf_add_str(&c->out, STR(": "));
        top_whole(&f, &w, &c->out);
        (void)buf_add_c(&c->out, '\n');
        top_table(&c->term, &f, what_unit(w.type), &c->out);
    }
    bool empty = f.at.len == 0;
    costs_deinit(&f);
    return empty ? commands_nothing(c) : cli_done(c);
}
