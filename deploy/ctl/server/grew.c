/* SPDX-License-Identifier: Apache-2.0
 *
 * grew: which functions grew since the time before, over all services or each by itself. The server
 * sorts what the whole fleet has; shown as diff shows it.
 */
#include "common/base/arena.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/server/versus.h"

#define ROUTE     "/api/v1/functions/grew"
#define ROWS      25
#define ROWS_MAX  10000
#define NAMES_MAX (64 * MIB)

static const char *const sides[] = { "before", "after" };

static int put_before(const struct cli *c, const struct what *w, struct buf *target, struct err *e)
{
    int64_t from, until;

    if (!c->o.base_from)
        return c->o.base_until ? err_set(e, ERR_CONFIG, "--base-until wants a --base-from") : 0;
    if (what_range(c, c->o.base_from, c->o.base_until, &from, &until, e))
        return err_wrap(e, "base");
    if (!c->o.base_until)
        until = from + w->until_ms - w->from_ms;
    ask_param_u64(target, "beforeFrom", (uint64_t)from * 1000000);
    ask_param_u64(target, "beforeUntil", (uint64_t)until * 1000000);
    return 0;
}

static int ask_grew(struct cli *c, const struct what *w, struct buf *ret, struct err *e)
{
    struct buf target;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(w->query));
    ask_param_u64(&target, "from", (uint64_t)w->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)w->until_ms * 1000000);
    ask_param(&target, "by", c->o.per_service ? STR("service") : STR("function"));
    ask_param(&target, "sort", str_c(c->o.sort ? c->o.sort : "self"));
    ask_param(&target, "mode", str_c(c->o.mode ? c->o.mode : "second"));
    ask_param_u64(&target, "limit",
                  c->o.limit == UINT64_MAX ? ROWS : MIN(MAX(c->o.limit, 1), ROWS_MAX));
    rc = put_before(c, w, &target, e);
    struct ask a = { .target = buf_str(&target) };
    if (!rc)
        rc = buf_ok(&target) ? ask_do(c, &a, ret, e)
                             : err_set(e, ERR_LIMIT, "the question is too long");
    buf_deinit(&target);
    return rc;
}

/* ---- as two sides ---- */

static int read_side(const struct json_val *root, int side, struct versus *d, struct err *e)
{
    const struct json_val *v = json_get(root, sides[side], NULL);

    if (json_take_double(json_get(v, "all", NULL), "all", &d->all[side], e) ||
        json_take_i64(json_get(v, "startMs", NULL), "startMs", &d->from_ms[side], e) ||
        json_take_i64(json_get(v, "endMs", NULL), "endMs", &d->until_ms[side], e))
        return e->code;
    double seconds = (double)(d->until_ms[side] - d->from_ms[side]) / 1000;
    if (d->share)
        d->whole[side] = d->all[side] > 0 ? 100 : 0;
    else if (str_eqc(d->mode, "second") && !d->gauge && seconds > 0)
        d->whole[side] = d->all[side] / seconds;
    else
        d->whole[side] = d->all[side];
    return 0;
}

static int read_row(const struct cli *c, const struct json_val *v, struct arena *a,
                    struct versus *d, struct err *e)
{
    bool total = c->o.sort && strcmp(c->o.sort, "total") == 0;
    const struct json_val *shown =
        json_get(json_get(v, total ? "total" : "self", NULL), "shown", NULL);
    struct str name = STR(""), service = STR("");
    struct versus_row r = { .name = STR("") };
    struct buf b;

    if (json_take_str(json_get(v, "name", NULL), "name", &name, e) ||
        json_take_str(json_get(v, "service", NULL), "service", &service, e) ||
        json_take_double(json_at(shown, SIDE_BASE), "shown", &r.value[SIDE_BASE], e) ||
        json_take_double(json_at(shown, SIDE_NEW), "shown", &r.value[SIDE_NEW], e))
        return e->code;
    buf_init(&b, MIB);
    (void)buf_addf(&b, "%.*s%s", STR_ARG(service), service.len ? ": " : "");
    (void)buf_add_str(&b, name);
    r.name = arena_strdup(a, buf_str(&b));
    buf_deinit(&b);
    r.delta = r.value[SIDE_NEW] - r.value[SIDE_BASE];
    r.growth = versus_percent(r.delta, d->whole[SIDE_BASE]);
    vec_push(&d->rows, r);
    return 0;
}

static int read_all(const struct cli *c, struct str json, struct arena *a, struct versus *d,
                    struct err *e)
{
    const struct json_val *root, *rows;
    int64_t matching = 0;

    *d = (struct versus){ .mode = STR("") };
    if (json_parse(json, &d->doc, e))
        return ask_strange(c, "no JSON", e);
    root = json_root(d->doc);
    rows = json_get(root, "rows", NULL);
    if (!json_is_arr(rows) || json_take_str(json_get(root, "mode", NULL), "mode", &d->mode, e) ||
        json_take_bool(json_get(root, "gauge", NULL), "gauge", &d->gauge, e) ||
        json_take_i64(json_get(root, "matching", NULL), "matching", &matching, e))
        return ask_strange(c, "no rows", e);
    d->share = str_eqc(d->mode, "relative");
    for (int s = 0; s < SIDES; s++)
        if (read_side(root, s, d, e))
            return ask_strange(c, e->text, e);
    for (size_t i = 0; i < json_len(rows); i++)
        if (read_row(c, json_at(rows, i), a, d, e))
            return ask_strange(c, e->text, e);
    d->functions = (size_t)MAX(matching, (int64_t)d->rows.len) - d->rows.len;
    return 0;
}

int ctl_grew(struct cli *c)
{
    struct arena *a = arena_new(NAMES_MAX);
    struct versus d = { .mode = STR("") };
    bool empty = true;
    struct what w;
    struct buf body;
    struct err e;
    int rc = what_ready(c, &w, &e);

    buf_init(&body, ASK_JSON_MAX);
    if (!rc)
        rc = ask_grew(c, &w, &body, &e);
    if (!rc)
        rc = read_all(c, buf_str(&body), a, &d, &e);
    if (!rc) {
        ask_notice(c, json_root(d.doc));
        empty = d.rows.len == 0;
        if (c->o.json) {
            (void)buf_add_str(&c->out, str_trim(buf_str(&body)));
            cli_json_end(c);
        } else {
            what_title(c, &w, &c->out);
            (void)buf_add_str(&c->out, STR(", against "));
            term_time(d.from_ms[SIDE_BASE], &c->out);
            (void)buf_add_str(&c->out, STR(" to "));
            term_time(d.until_ms[SIDE_BASE], &c->out);
            (void)buf_add_c(&c->out, '\n');
            versus_text(&c->term, &d, what_unit(w.type), ROWS_MAX, &c->out);
        }
    }
    versus_deinit(&d);
    arena_free(a);
    buf_deinit(&body);
    return rc ? commands_fail(c, &e) : empty ? commands_nothing(c) : cli_done(c);
}
