/* SPDX-License-Identifier: Apache-2.0
 *
 * versus_read: rows of a comparison in and out. The server has made both sides comparable; what is
 * computed here is percentages alone.
 */
#include <math.h>

#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/server/versus.h"

#define ALL_FROM 80 /* a terminal with so many columns has room for the whole table */

double versus_percent(double part, double whole)
{
    if (part == 0)
        return 0;
    return whole != 0 ? 100 * part / whole : part > 0 ? HUGE_VAL : -HUGE_VAL;
}

/* ---- reading ---- */

static int number(const struct json_val *v, const char *key, double *ret, struct err *e)
{
    return json_take_double(json_get(v, key, NULL), key, ret, e);
}

static int read_side(const struct json_val *v, struct versus *d, int side, struct err *e)
{
    double factor = 1;
    bool gauge = false;

    if (!json_is_obj(v))
        return err_set(e, ERR_IO, "a side is missing");
    if (number(v, "total", &d->all[side], e) || number(v, "factor", &factor, e) ||
        json_take_i64(json_get(v, "startMs", NULL), "startMs", &d->from_ms[side], e) ||
        json_take_i64(json_get(v, "endMs", NULL), "endMs", &d->until_ms[side], e) ||
        json_take_bool(json_get(v, "gauge", NULL), "gauge", &gauge, e))
        return e->code;
    d->whole[side] = d->all[side] * factor;
    d->gauge |= gauge;
    return 0;
}

static int read_values(const struct json_val *v, double ret[SIDES], struct err *e)
{
    return number(v, "left", &ret[SIDE_BASE], e) || number(v, "right", &ret[SIDE_NEW], e) ? e->code
                                                                                          : 0;
}

static int read_row(const struct json_val *v, bool by_total, const struct versus *d,
                    struct versus_row *ret, struct err *e)
{
    const struct json_val *self = json_get(v, "self", NULL), *total = json_get(v, "total", NULL);
    const struct json_val *shown = json_get(by_total ? total : self, "shown", NULL);

    *ret = (struct versus_row){ .name = STR("") };
    if (json_len(shown) != SIDES)
        return err_set(e, ERR_IO, "a row without values");
    if (json_take_str(json_get(v, "name", NULL), "name", &ret->name, e) ||
        read_values(self, ret->self, e) || read_values(total, ret->total, e))
        return e->code;
    for (size_t s = 0; s < SIDES; s++)
        if (json_take_double(json_at(shown, s), "shown", &ret->value[s], e))
            return e->code;
    ret->delta = ret->value[SIDE_NEW] - ret->value[SIDE_BASE];
    ret->growth = versus_percent(ret->delta, d->whole[SIDE_BASE]);
    return 0;
}

static int read_all(const struct json_val *root, bool by_total, struct versus *d, struct err *e)
{
    const struct json_val *rows = json_get(root, "rows", NULL);
    int64_t matching = 0;
    struct versus_row row;

    if (!json_is_arr(rows))
        return err_set(e, ERR_IO, "no rows");
    if (json_take_str(json_get(root, "mode", NULL), "mode", &d->mode, e) ||
        json_take_i64(json_get(root, "matching", NULL), "matching", &matching, e) ||
        read_side(json_get(root, "left", NULL), d, SIDE_BASE, e) ||
        read_side(json_get(root, "right", NULL), d, SIDE_NEW, e))
        return e->code;
    for (size_t i = 0; i < json_len(rows); i++) {
        if (read_row(json_at(rows, i), by_total, d, &row, e))
            return e->code;
        vec_push(&d->rows, row);
    }
    d->functions = (size_t)MAX(matching, (int64_t)d->rows.len) - d->rows.len;
    d->share = str_eqc(d->mode, "relative");
    return 0;
}

int versus_read(const struct cli *c, struct str json, bool by_total, struct versus *ret,
                struct err *e)
{
    *ret = (struct versus){ .mode = STR("") };
    if (json_parse(json, &ret->doc, e))
        return ask_strange(c, "no JSON", e);
    if (read_all(json_root(ret->doc), by_total, ret, e)) {
        versus_deinit(ret);
        return ask_strange(c, e->text, e);
    }
    return 0;
}

void versus_deinit(struct versus *d)
{
    vec_free(&d->rows);
    json_doc_free(d->doc);
    d->doc = NULL;
}

const struct versus_row *versus_worst(const struct versus *d)
{
    const struct versus_row *worst = NULL;

    vec_for (i, &d->rows)
        if (d->rows.ptr[i].delta > 0 && (!worst || d->rows.ptr[i].delta > worst->delta))
            worst = &d->rows.ptr[i];
    return worst;
}

/* ---- text ---- */

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

static void put_row(const struct term *t, const struct versus *d, const struct versus_row *r,
                    struct str unit, struct buf *out)
{
    enum term_style s = r->growth >= 1 ? TERM_RED : r->growth <= -1 ? TERM_GREEN : TERM_PLAIN;

    bool all = t->width >= ALL_FROM;

    if (all)
        put_value(r->value[SIDE_BASE], unit, d->share, false, out);
    put_value(r->value[SIDE_NEW], unit, d->share, false, out);
    term_style(t, s, out);
    put_value(r->delta, unit, d->share, true, out);
    if (all)
        put_percent(versus_percent(r->delta, r->value[SIDE_BASE]), 11, out);
    put_percent(r->growth, 10, out);
    term_style(t, TERM_PLAIN, out);
    (void)buf_add_str(out, STR("  "));
    (void)term_name(t, r->name, t->width - (all ? 59 : 36), out);
    (void)buf_add_c(out, '\n');
}

void versus_text(const struct term *t, const struct versus *d, struct str unit, uint64_t rows,
                 struct buf *out)
{
    double delta = d->whole[SIDE_NEW] - d->whole[SIDE_BASE];
    struct versus_row whole = { .name = STR("(everything)"),
                                .value = { d->whole[SIDE_BASE], d->whole[SIDE_NEW] },
                                .delta = delta,
                                .growth = versus_percent(delta, d->whole[SIDE_BASE]) };
    size_t left = d->functions;

    term_style(t, TERM_BOLD, out);
    if (t->width >= ALL_FROM)
        (void)buf_addf(out, "%12s%12s%12s%11s%10s  %s\n", "BASE", "NEW", "DELTA", "CHANGE",
                       "OF BASE", "FUNCTION");
    else
        (void)buf_addf(out, "%12s%12s%10s  %s\n", "NEW", "DELTA", "OF BASE", "FUNCTION");
    term_style(t, TERM_PLAIN, out);
    put_row(t, d, &whole, unit, out);
    vec_for (i, &d->rows) {
        if (i < rows && d->rows.ptr[i].delta != 0)
            put_row(t, d, &d->rows.ptr[i], unit, out);
        left += i >= rows;
    }
    if (left)
        (void)buf_addf(out, "(%zu more functions: --limit)\n", left);
}
