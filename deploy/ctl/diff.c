/* SPDX-License-Identifier: Apache-2.0
 *
 * diff: what changed between a base and something new, by function; a gate for CI.
 *
 * The 1,000 most costly functions of each side are asked for, sorted alike. Where a side has more
 * than that, what only the other one listed is asked for by name, so that no function is taken for
 * new only because it fell off a list.
 */
#include <math.h>

#include "common/base/map.h"
#include "deploy/ctl/ask.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/costs.h"
#include "deploy/ctl/what.h"

#define ROWS       25
#define NAMES_SIZE (8 * KIB) /* bytes of names in one question */
#define NAMES_ONCE 200

enum { BASE, NEW, SIDES };

struct diff {
    struct what what[SIDES];
    struct costs f[SIDES];
    struct costs more[SIDES * COSTS_MAX]; /* answers by name: names point into them */
    size_t more_len;
    enum cost_sort sort;
    enum cost_mode mode;
};

/* ---- both sides ---- */

/* The base is the same question of another range, service or selector; without any of them, of the
 * time just before. */
static int read_sides(struct cli *c, struct diff *d, struct err *e)
{
    struct what_in in = what_of_cli(c, 0), base = in;
    const struct cli_opts *o = &c->o;
    int64_t span;

    base.service = o->base ? o->base : in.service;
    base.query = o->base_query ? o->base_query : in.query;
    base.from = o->base_from ? o->base_from : in.from;
    base.until = o->base_until ? o->base_until : in.until;
    if (what_parse(c, &in, &d->what[NEW], e))
        return e->code;
    if (o->base_until && !o->base_from)
        return err_set(e, ERR_CONFIG, "--base-until wants a --base-from");
    if (o->base_from && !o->base_until)
        base.until = "now"; /* checked against now, then made as long as the other one */
    if (what_parse(c, &base, &d->what[BASE], e))
        return err_wrap(e, "base");
    span = d->what[NEW].until_ms - d->what[NEW].from_ms;
    if (o->base_from && !o->base_until)
        d->what[BASE].until_ms = d->what[BASE].from_ms + span;
    if (!o->base && !o->base_query && !o->base_from) {
        d->what[BASE].until_ms = d->what[NEW].from_ms;
        d->what[BASE].from_ms = MAX(d->what[NEW].from_ms - span, 1);
    }
    return what_find_type(c, &d->what[NEW], e) || what_find_type(c, &d->what[BASE], e) ? e->code
                                                                                       : 0;
}

static int ask_side(struct cli *c, struct diff *d, int side, const struct str *names, size_t len,
                    struct costs *ret, struct err *e)
{
    struct costs_ask a = { .query = d->what[side].query,
                           .from_ms = d->what[side].from_ms,
                           .until_ms = d->what[side].until_ms,
                           .sort = d->sort,
                           .top = COSTS_MAX,
                           .names = names,
                           .names_len = len };

    return costs_ask(c, &a, ret, e);
}

/* Asks `side` for names, and adds them to it. */
static int ask_names(struct cli *c, struct diff *d, int side, const struct str *names, size_t len,
                     struct err *e)
{
    struct costs *more = &d->more[d->more_len];

    CHECK(d->more_len < ARRAY_LEN(d->more));
    if (ask_side(c, d, side, names, len, more, e))
        return e->code;
    d->more_len++;
    vec_for (i, &more->at)
        vec_push(&d->f[side].at, more->at.ptr[i]);
    return 0;
}

/* What the other side lists and a full `side` does not. */
static int fill(struct cli *c, struct diff *d, int side, size_t other_len, struct err *e)
{
    struct map_str *has = map_str_new();
    struct str names[NAMES_ONCE];
    size_t n = 0, bytes = 0;
    int rc = 0;

    vec_for (i, &d->f[side].at)
        (void)map_str_put(has, d->f[side].at.ptr[i].name, d);
    for (size_t i = 0; !rc && i < other_len; i++) {
        struct str name = d->f[!side].at.ptr[i].name;
        if (map_str_get(has, name) || name.len > NAMES_SIZE)
            continue;
        if (n == NAMES_ONCE || bytes + name.len > NAMES_SIZE) {
            rc = ask_names(c, d, side, names, n, e);
            n = bytes = 0;
        }
        names[n++] = name;
        bytes += name.len;
    }
    if (!rc && n)
        rc = ask_names(c, d, side, names, n, e);
    map_str_free(has);
    return rc;
}

static int ask_both(struct cli *c, struct diff *d, struct err *e)
{
    size_t len[SIDES];

    for (int s = 0; s < SIDES; s++) {
        if (ask_side(c, d, s, NULL, 0, &d->f[s], e))
            return e->code;
        len[s] = d->f[s].at.len;
    }
    for (int s = 0; s < SIDES; s++)
        if (len[s] >= COSTS_MAX && fill(c, d, s, len[!s], e))
            return e->code;
    return 0;
}

/* ---- out ---- */

static void put_percent(double p, size_t columns, struct buf *out)
{
    struct buf b;

    buf_init(&b, 64);
    if (isinf(p))
        (void)buf_addf(&b, "%s", p > 0 ? "new" : "gone");
    else if (fabs(p) >= 99999)
        (void)buf_addf(&b, "%+.2g %%", p);
    else
        (void)buf_addf(&b, "%+.1f %%", p);
    term_pad(b.len < columns ? columns - b.len : 0, out);
    (void)buf_add_str(out, buf_str(&b));
    buf_deinit(&b);
}

static void put_value(double v, struct str unit, bool share, bool sign, struct buf *out)
{
    if (share)
        (void)buf_addf(out, sign ? "%+10.2f %%" : "%10.2f %%", v);
    else
        term_value_right(v, unit, sign, 12, out);
}

static void put_row(const struct term *t, const struct cost_row *r, struct str unit, bool share,
                    struct buf *out)
{
    enum term_style s = r->growth >= 1 ? TERM_RED : r->growth <= -1 ? TERM_GREEN : TERM_PLAIN;

    put_value(r->value[BASE], unit, share, false, out);
    put_value(r->value[NEW], unit, share, false, out);
    term_style(t, s, out);
    put_value(r->delta, unit, share, true, out);
    put_percent(r->change, 11, out);
    put_percent(r->growth, 10, out);
    term_style(t, TERM_PLAIN, out);
    (void)buf_add_str(out, STR("  "));
    (void)term_name(t, r->name, t->width > 59 + 10 ? t->width - 59 : 10, out);
    (void)buf_add_c(out, '\n');
}

void diff_text(const struct term *t, const struct cost_diff *d, struct str unit, bool share,
               uint64_t rows, struct buf *out)
{
    struct cost_row whole = { .name = STR("(everything)"),
                              .value = { d->whole[BASE], d->whole[NEW] },
                              .delta = d->whole[NEW] - d->whole[BASE],
                              .change = d->whole_growth,
                              .growth = d->whole_growth };
    size_t left = 0;

    term_style(t, TERM_BOLD, out);
    (void)buf_addf(out, "%12s%12s%12s%11s%10s  %s\n", "BASE", "NEW", "DELTA", "CHANGE", "OF BASE",
                   "FUNCTION");
    term_style(t, TERM_PLAIN, out);
    put_row(t, &whole, unit, share, out);
    vec_for (i, &d->rows) {
        if (d->rows.ptr[i].delta == 0)
            continue;
        if (i < rows)
            put_row(t, &d->rows.ptr[i], unit, share, out);
        else
            left++;
    }
    if (left)
        (void)buf_addf(out, "(%zu more changed: --limit)\n", left);
}

static void json_number(struct json *j, const char *key, double v)
{
    json_key(j, key);
    json_double(j, v);
}

static void put_side_json(const struct diff *d, const struct cost_diff *t, int side, struct json *j)
{
    json_key(j, side == BASE ? "base" : "new");
    json_obj(j);
    put_json_what(&d->what[side], j);
    json_number(j, "total", d->f[side].all);
    json_number(j, "value", t->whole[side]);
    json_obj_end(j);
}

static void put_json(struct cli *c, const struct diff *d, const struct cost_diff *t, bool failed,
                     uint64_t rows)
{
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    json_key(&j, "mode");
    json_cstr(&j, c->o.mode);
    json_key(&j, "by");
    json_cstr(&j, d->sort == BY_TOTAL ? "total" : "self");
    for (int s = 0; s < SIDES; s++)
        put_side_json(d, t, s, &j);
    json_number(&j, "growthPercent", t->whole_growth);
    json_number(&j, "worstPercent", t->worst);
    json_key(&j, "worst");
    json_str(&j, t->worst_name);
    json_key(&j, "failed");
    json_bool(&j, failed);
    json_key(&j, "partial");
    json_bool(&j, c->was_partial);
    json_key(&j, "functions");
    json_arr(&j);
    for (size_t i = 0; i < MIN(t->rows.len, rows); i++) {
        const struct cost_row *r = &t->rows.ptr[i];
        json_obj(&j);
        json_key(&j, "name");
        json_str(&j, r->name);
        json_number(&j, "baseSelf", r->self[BASE]);
        json_number(&j, "newSelf", r->self[NEW]);
        json_number(&j, "baseTotal", r->total[BASE]);
        json_number(&j, "newTotal", r->total[NEW]);
        json_number(&j, "base", r->value[BASE]);
        json_number(&j, "new", r->value[NEW]);
        json_number(&j, "delta", r->delta);
        json_number(&j, "changePercent", r->change);
        json_number(&j, "growthPercent", r->growth);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
    cli_json_end(c);
}

static void put_text(struct cli *c, const struct diff *d, const struct cost_diff *t, uint64_t rows)
{
    struct str unit = what_unit(d->what[NEW].type);

    for (int s = 0; s < SIDES; s++) {
        (void)buf_add_str(&c->out, s == BASE ? STR("base  ") : STR("new   "));
        what_title(c, &d->what[s], &c->out);
        (void)buf_add_str(&c->out, STR(": "));
        top_whole(&d->f[s], &d->what[s], &c->out);
        (void)buf_add_c(&c->out, '\n');
    }
    (void)buf_addf(&c->out, "%s of functions, %s\n", d->sort == BY_TOTAL ? "total" : "self",
                   d->mode == COST_ABSOLUTE     ? "as it is"
                   : d->mode == COST_PER_SECOND ? "per second"
                                                : "as a share of the whole");
    diff_text(&c->term, t, unit, d->mode == COST_SHARE, rows, &c->out);
}

static int put(struct cli *c, const struct diff *d)
{
    double seconds[SIDES];
    uint64_t rows = c->o.limit != UINT64_MAX ? c->o.limit : c->o.json ? UINT64_MAX : ROWS;
    struct cost_diff t;

    for (int s = 0; s < SIDES; s++)
        seconds[s] = (double)(d->what[s].until_ms - d->what[s].from_ms) / 1000;
    cost_diff(&d->f[BASE], &d->f[NEW], seconds, d->mode, d->sort, &t);
    bool failed = c->o.fail_over >= 0 && t.worst > c->o.fail_over;
    if (c->o.json)
        put_json(c, d, &t, failed, rows);
    else
        put_text(c, d, &t, rows);
    cli_flush(c);
    struct str name = t.worst_name.len ? t.worst_name : STR("everything");
    if (failed)
        cli_note(c, "%.*s grew by %.1f %% of the base, over --fail-over %g",
                 (int)MIN(name.len, 200), name.ptr, t.worst, c->o.fail_over);
    cost_diff_deinit(&t);
    return failed ? CLI_NO : CLI_DONE;
}

int ctl_diff(struct cli *c)
{
    struct diff *d = XNEW(struct diff);
    struct err e;
    int code;

    c->o.mode = c->o.mode ? c->o.mode : "per-second";
    d->mode = strcmp(c->o.mode, "absolute") == 0 ? COST_ABSOLUTE
              : strcmp(c->o.mode, "share") == 0  ? COST_SHARE
                                                 : COST_PER_SECOND;
    d->sort = c->o.sort && strcmp(c->o.sort, "total") == 0 ? BY_TOTAL : BY_SELF;
    if (read_sides(c, d, &e) || ask_both(c, d, &e)) {
        code = commands_fail(c, &e);
    } else if (d->f[BASE].all == 0 && d->f[NEW].all == 0) {
        code = commands_nothing(c);
    } else {
        code = put(c, d);
        code = code ? code : cli_done(c);
    }
    for (size_t i = 0; i < d->more_len; i++)
        costs_deinit(&d->more[i]);
    costs_deinit(&d->f[BASE]);
    costs_deinit(&d->f[NEW]);
    xfree(d);
    return code;
}
