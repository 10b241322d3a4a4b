/* SPDX-License-Identifier: Apache-2.0
 *
 * diff: what changed between a base and something new, by function; a gate for CI.
 *
 * The server compares all functions of both sides, and sends the largest differences. If the first
 * one did not grow and there are more than were sent, what grew most is asked for by itself: the
 * gate looks at every function.
 *
 * Exit: with --fail-over 1 means that something grew over it, and nothing else. Where a side has no
 * profiles, say for a misspelt service, the gate cannot judge: that is 2, as any failure.
 */
#include "deploy/ctl/server/versus.h"

#include <math.h>

#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE    "/api/v1/diff"
#define ROWS     25
#define ROWS_MAX 10000 /* the server gives so many at once */

struct gate {
    double worst; /* percent of the base's whole */
    struct buf name;
    bool failed;
};

/* ---- both sides ---- */

/* The base is the same question of another range, service or selector; without any of them, of the
 * time just before. */
static int read_sides(struct cli *c, struct what sides[SIDES], struct err *e)
{
    struct what_in in = what_of_cli(c, 0), base = in;
    const struct cli_opts *o = &c->o;
    struct what *b = &sides[SIDE_BASE], *n = &sides[SIDE_NEW];

    base.service = o->base ? o->base : in.service;
    base.query = o->base_query ? o->base_query : in.query;
    base.from = o->base_from ? o->base_from : in.from;
    base.until = o->base_until ? o->base_until : in.until;
    if (what_parse(c, &in, n, e))
        return e->code;
    if (o->base_until && !o->base_from)
        return err_set(e, ERR_CONFIG, "--base-until wants a --base-from");
    if (o->base_from && !o->base_until)
        base.until = "now"; /* checked against now, then made as long as the other one */
    if (what_parse(c, &base, b, e))
        return err_wrap(e, "base");
    int64_t span = n->until_ms - n->from_ms;
    if (o->base_from && !o->base_until)
        b->until_ms = b->from_ms + span;
    if (!o->base && !o->base_query && !o->base_from) {
        b->until_ms = n->from_ms;
        b->from_ms = MAX(n->from_ms - span, 1);
    }
    return what_find_type(c, n, e) || what_find_type(c, b, e) ? e->code : 0;
}

static void put_side(const struct what *w, const char *query, const char *from, const char *until,
                     struct buf *target)
{
    ask_param(target, query, str_c(w->query));
    ask_param_u64(target, from, (uint64_t)w->from_ms * 1000000);
    ask_param_u64(target, until, (uint64_t)w->until_ms * 1000000);
}

static int ask_diff(struct cli *c, const struct what sides[SIDES], uint64_t rows,
                    const char *direction, struct versus *ret, struct err *e)
{
    const char *sort = c->o.sort ? c->o.sort : "self";
    struct buf target, body;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&body, ASK_JSON_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    put_side(&sides[SIDE_BASE], "leftQuery", "leftFrom", "leftUntil", &target);
    put_side(&sides[SIDE_NEW], "rightQuery", "rightFrom", "rightUntil", &target);
    ask_param(&target, "mode", str_c(c->o.mode ? c->o.mode : "second"));
    ask_param(&target, "sort", str_c(sort));
    ask_param_u64(&target, "limit", rows);
    if (direction)
        ask_param(&target, "dir", str_c(direction));
    struct ask a = { .target = buf_str(&target) };
    rc = buf_ok(&target) ? ask_do(c, &a, &body, e)
                         : err_set(e, ERR_LIMIT, "the question is too long");
    if (!rc)
        rc = versus_read(c, buf_str(&body), strcmp(sort, "total") == 0, ret, e);
    if (!rc)
        ask_notice(c, json_root(ret->doc));
    buf_deinit(&target);
    buf_deinit(&body);
    return rc;
}

/* ---- the gate ---- */

static void set_worst(struct gate *g, const struct versus_row *r)
{
    if (!r || r->growth <= g->worst)
        return;
    g->worst = r->growth;
    buf_reset(&g->name);
    (void)buf_add_str(&g->name, r->name);
}

/* What grew most: the whole, or a function, whether it was sent or not. */
static int measure(struct cli *c, const struct what sides[SIDES], const struct versus *d,
                   struct gate *g, struct err *e)
{
    struct versus more;

    g->worst = versus_percent(d->whole[SIDE_NEW] - d->whole[SIDE_BASE], d->whole[SIDE_BASE]);
    set_worst(g, versus_worst(d));
    if (d->functions && !(d->rows.len && d->rows.ptr[0].delta > 0)) {
        if (ask_diff(c, sides, 1, "grew", &more, e))
            return e->code;
        set_worst(g, versus_worst(&more));
        versus_deinit(&more);
    }
    g->failed = c->o.fail_over >= 0 && g->worst > c->o.fail_over;
    return 0;
}

/* ---- out ---- */

static void put_side_json(const struct versus *d, const struct what *w, int side, struct json *j)
{
    struct what real = *w;

    real.from_ms = d->from_ms[side];
    real.until_ms = d->until_ms[side];
    json_key(j, side == SIDE_BASE ? "base" : "new");
    json_obj(j);
    put_json_what(&real, j);
    json_put_double(j, "total", d->all[side]);
    json_put_double(j, "value", d->whole[side]);
    json_obj_end(j);
}

static void put_row_json(const struct versus_row *r, struct json *j)
{
    json_obj(j);
    json_put_str(j, "name", r->name);
    json_put_double(j, "baseSelf", r->self[SIDE_BASE]);
    json_put_double(j, "newSelf", r->self[SIDE_NEW]);
    json_put_double(j, "baseTotal", r->total[SIDE_BASE]);
    json_put_double(j, "newTotal", r->total[SIDE_NEW]);
    json_put_double(j, "base", r->value[SIDE_BASE]);
    json_put_double(j, "new", r->value[SIDE_NEW]);
    json_put_double(j, "delta", r->delta);
    json_put_double(j, "changePercent", versus_percent(r->delta, r->value[SIDE_BASE]));
    json_put_double(j, "growthPercent", r->growth);
    json_obj_end(j);
}

static void put_json(struct cli *c, const struct versus *d, const struct what sides[SIDES],
                     const struct gate *g)
{
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    json_put_str(&j, "mode", d->mode);
    json_put_cstr(&j, "by", c->o.sort ? c->o.sort : "self");
    for (int s = 0; s < SIDES; s++)
        put_side_json(d, &sides[s], s, &j);
    json_put_double(&j, "growthPercent",
                    versus_percent(d->whole[SIDE_NEW] - d->whole[SIDE_BASE], d->whole[SIDE_BASE]));
    json_put_double(&j, "worstPercent", g->worst);
    json_key(&j, "worst"); /* empty: everything */
    json_str(&j, buf_str(&g->name));
    json_put_bool(&j, "failed", g->failed);
    json_put_bool(&j, "partial", c->was_partial);
    json_key(&j, "functions");
    json_arr(&j);
    vec_for (i, &d->rows)
        put_row_json(&d->rows.ptr[i], &j);
    json_arr_end(&j);
    json_obj_end(&j);
    cli_json_end(c);
}

static void put_text(struct cli *c, const struct versus *d, const struct what sides[SIDES],
                     uint64_t rows)
{
    struct str unit = what_unit(sides[SIDE_NEW].type);

    for (int s = 0; s < SIDES; s++) {
        struct what real = sides[s];
        real.from_ms = d->from_ms[s] ? d->from_ms[s] : real.from_ms;
        real.until_ms = d->until_ms[s] ? d->until_ms[s] : real.until_ms;
        (void)buf_add_str(&c->out, s == SIDE_BASE ? STR("base  ") : STR("new   "));
        what_title(c, &real, &c->out);
        (void)buf_add_str(&c->out, d->gauge ? STR(": mean ") : STR(": total "));
        term_value(d->all[s], unit, &c->out);
        (void)buf_add_c(&c->out, '\n');
    }
    (void)buf_addf(&c->out, "%s of functions, mode %s\n", c->o.sort ? c->o.sort : "self",
                   c->o.mode ? c->o.mode : "second");
    versus_text(&c->term, d, unit, rows, &c->out);
}

static int no_gate(const struct cli *c, const char *which)
{
    struct err e;

    (void)err_set(
        &e, ERR_NOT_FOUND,
        "%s no profiles, so --fail-over has nothing to compare: `services` and `types` list "
        "what there is, --from and --base-from look further back",
        which);
    return cli_fail(c, &e);
}

static int put(struct cli *c, const struct versus *d, const struct what sides[SIDES], uint64_t rows)
{
    struct gate g = { .worst = 0 };
    struct err e;
    int code = CLI_DONE;

    buf_init(&g.name, MIB);
    if (measure(c, sides, d, &g, &e)) {
        code = commands_fail(c, &e);
    } else {
        if (c->o.json)
            put_json(c, d, sides, &g);
        else
            put_text(c, d, sides, rows);
        cli_flush(c);
    }
    if (!code && c->o.fail_over >= 0 && (d->all[SIDE_BASE] == 0 || d->all[SIDE_NEW] == 0)) {
        code = no_gate(c, d->all[SIDE_BASE] == 0 ? "the base has" : "the new side has");
    } else if (!code && g.failed) {
        struct str name = g.name.len ? str_sub(buf_str(&g.name), 0, 200) : STR("everything");
        cli_note(c, "%.*s grew by %.1f %% of the base, over --fail-over %g", STR_ARG(name), g.worst,
                 c->o.fail_over);
        code = CLI_NO;
    }
    buf_deinit(&g.name);
    return code;
}

int ctl_diff(struct cli *c)
{
    uint64_t rows = c->o.limit != UINT64_MAX ? c->o.limit : c->o.json ? ROWS_MAX : ROWS;
    struct what sides[SIDES];
    struct versus d;
    struct err e;
    int code;

    rows = MIN(MAX(rows, 1), ROWS_MAX);
    if (read_sides(c, sides, &e) || ask_diff(c, sides, rows, NULL, &d, &e))
        return c->o.fail_over >= 0 ? cli_fail(c, &e) : commands_fail(c, &e);
    if (d.all[SIDE_BASE] == 0 && d.all[SIDE_NEW] == 0) {
        code = c->o.fail_over >= 0 ? no_gate(c, "both sides have") : commands_nothing(c);
    } else {
        code = put(c, &d, sides, rows);
        code = code ? code : cli_done(c);
    }
    versus_deinit(&d);
    return code;
}
