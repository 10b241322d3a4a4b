/* SPDX-License-Identifier: Apache-2.0
 *
 * tail: what a service costs now: a line every interval, with the costly functions of the last
 * window. A window ends a little before now, since agents push what the last ten seconds were.
 */
#include <stdio.h>
#include <time.h>

#include "common/sys/clock.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/costs.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define TOP       3
#define TOP_MOST  20
#define LEAF_MS   10000
#define AGAIN_MAX 5 /* failures in a row */

static void put_json(struct cli *c, const struct what *w, const struct costs *f)
{
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    put_json_what(w, &j);
    json_put_double(&j, "total", f->all);
    costs_put_json(f, &j);
    json_obj_end(&j);
    cli_json_end(c);
}

static void put_text(struct cli *c, const struct what *w, const struct costs *f)
{
    struct buf *out = &c->out;
    struct str unit = what_unit(w->type);
    size_t room = c->term.width > 40 ? c->term.width - 35 : 20, used;

    term_time(w->until_ms, out);
    term_value_right(f->all, unit, false, 11, out);
    (void)buf_add_str(out, STR("  "));
    vec_for (i, &f->at) {
        const struct cost *one = &f->at.ptr[i];
        double share = f->all != 0 ? 100 * one->self / f->all : 0;
        if (room < 16)
            break;
        term_style(&c->term, share >= 20 ? TERM_RED : share >= 5 ? TERM_YELLOW : TERM_PLAIN, out);
        (void)buf_addf(out, "%3.0f %% ", share);
        term_style(&c->term, TERM_PLAIN, out);
        used = term_name(&c->term, one->name, MIN(room - 8, 40), out) + 8;
        (void)buf_add_str(out, STR("  "));
        room -= MIN(room, used);
    }
    (void)buf_add_c(out, '\n');
}

/* The last whole leaves. */
static void window(const struct cli *c, struct what *w)
{
    int64_t now = clock_wall_ms(clock_real());
    int64_t length = (int64_t)(c->o.window_ms ? c->o.window_ms : c->o.interval_ms);

    length = MAX((length + LEAF_MS - 1) / LEAF_MS * LEAF_MS, LEAF_MS);
    w->until_ms = now / LEAF_MS * LEAF_MS;
    w->from_ms = w->until_ms - length;
}

static int one(struct cli *c, struct what *w, struct err *e)
{
    struct costs f;

    window(c, w);
    struct costs_ask a = { .query = w->query,
                           .from_ms = w->from_ms,
                           .until_ms = w->until_ms,
                           .top = c->o.limit == UINT64_MAX ? TOP : MIN(c->o.limit, TOP_MOST),
                           .sort = BY_SELF };
    if (costs_ask(c, &a, &f, e))
        return e->code;
    if (c->o.json)
        put_json(c, w, &f);
    else
        put_text(c, w, &f);
    cli_flush(c);
    costs_deinit(&f);
    return 0;
}

static void pause_ms(uint64_t ms)
{
    struct timespec t = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };

    while (nanosleep(&t, &t))
        ;
}

int ctl_tail(struct cli *c)
{
    struct what w;
    struct err e;
    unsigned failures = 0;

    if (what_ready(c, &w, &e))
        return commands_fail(c, &e);
    for (uint64_t i = 0; !c->out_ended && (!c->o.count || i < c->o.count); i++) {
        if (i)
            pause_ms(c->o.interval_ms);
        if (!one(c, &w, &e)) {
            failures = 0;
            continue;
        }
        /* Waits for a server that restarts, but not for one with another error. */
        if ((e.code != ERR_UNAVAILABLE && e.code != ERR_BUSY && e.code != ERR_TIMEOUT) || i == 0 ||
            ++failures == AGAIN_MAX)
            return commands_fail(c, &e);
        cli_note(c, "%s", e.text);
    }
    return cli_done(c);
}
