/* SPDX-License-Identifier: Apache-2.0
 *
 * sandwich: one function, its callers and its callees. The server makes both halves from the
 * whole tree; a stack counts once, at the function's outermost call.
 */
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/graph.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE "/api/v1/sandwich"

enum { CALLERS, CALLEES, HALVES };

static const char *const keys[] = { "callers", "callees" };

struct sandwich {
    struct json_doc *doc;
    struct str name; /* into the doc */
    double self, total, all;
    struct graph half[HALVES];
};

static int ask_sandwich(struct cli *c, const struct what *w, const char *function, struct buf *ret,
                        struct err *e)
{
    struct buf target;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(w->query));
    ask_param(&target, "function", str_c(function));
    ask_param_u64(&target, "from", (uint64_t)w->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)w->until_ms * 1000000);
    if (c->o.max_nodes)
        ask_param_u64(&target, "max-nodes", c->o.max_nodes);
    struct ask a = { .target = buf_str(&target) };
    rc =
        buf_ok(&target) ? ask_do(c, &a, ret, e) : err_set(e, ERR_LIMIT, "the question is too long");
    buf_deinit(&target);
    return rc;
}

static int read_sums(const struct cli *c, struct str json, struct sandwich *s, struct err *e)
{
    const struct json_val *root, *f;

    if (json_parse(json, &s->doc, e))
        return ask_strange(c, "no JSON", e);
    root = json_root(s->doc);
    f = json_get(root, "function", NULL);
    if (json_take_double(json_get(root, "total", NULL), "total", &s->all, e) ||
        json_take_str(json_get(f, "name", NULL), "name", &s->name, e) ||
        json_take_double(json_get(f, "self", NULL), "self", &s->self, e) ||
        json_take_double(json_get(f, "total", NULL), "total", &s->total, e))
        return ask_strange(c, e->text, e);
    return 0;
}

static int read_all(const struct cli *c, struct str json, struct sandwich *s, struct err *e)
{
    if (read_sums(c, json, s, e))
        return e->code;
    for (size_t i = 0; i < HALVES; i++)
        if (graph_read(c, json, keys[i], &s->half[i], e))
            return e->code;
    return 0;
}

static void put_json(struct cli *c, const struct what *w, const struct sandwich *s)
{
    struct graph_show show = graph_show_of(c, w);
    struct json j;

    json_init(&j, &c->out);
    json_obj(&j);
    put_json_what(w, &j);
    json_put_str(&j, "function", s->name);
    json_put_double(&j, "self", s->self);
    json_put_double(&j, "total", s->total);
    json_put_double(&j, "all", s->all);
    json_put_bool(&j, "partial", c->was_partial);
    for (size_t i = 0; i < HALVES; i++) {
        json_key(&j, keys[i]);
        graph_json(&s->half[i], &show, &j);
    }
    json_obj_end(&j);
    cli_json_end(c);
}

static void put_text(struct cli *c, const struct what *w, const struct sandwich *s)
{
    static const char *const titles[] = { "\ncallers\n", "\ncallees\n" };
    struct graph_show show = graph_show_of(c, w);
    struct buf *out = &c->out;

    what_title(c, w, out);
    (void)buf_add_c(out, '\n');
    (void)term_name(&c->term, s->name, c->term.width, out);
    (void)buf_add_str(out, STR("\nself "));
    term_value(s->self, show.unit, out);
    (void)buf_add_str(out, STR(", total "));
    term_value(s->total, show.unit, out);
    (void)buf_addf(out, ", %.1f %% of everything\n", s->all > 0 ? 100 * s->total / s->all : 0);
    for (size_t i = 0; i < HALVES; i++) {
        term_style(&c->term, TERM_BOLD, out);
        (void)buf_add_str(out, str_c(titles[i]));
        term_style(&c->term, TERM_PLAIN, out);
        graph_text(&s->half[i], &c->term, &show, out);
    }
}

int ctl_sandwich(struct cli *c)
{
    struct what_in in = what_of_cli(c, 1);
    struct sandwich s = { .name = STR("") };
    struct what w;
    struct buf body;
    struct err e;
    int code;

    if (what_parse(c, &in, &w, &e) || what_find_type(c, &w, &e))
        return commands_fail(c, &e);
    buf_init(&body, ASK_JSON_MAX);
    if (ask_sandwich(c, &w, c->args[0], &body, &e) || read_all(c, buf_str(&body), &s, &e)) {
        code = commands_fail(c, &e);
    } else {
        ask_notice(c, json_root(s.doc));
        if (c->o.json)
            put_json(c, &w, &s);
        else if (s.total > 0)
            put_text(c, &w, &s);
        code = s.total > 0 ? cli_done(c) : commands_nothing(c);
    }
    for (size_t i = 0; i < HALVES; i++)
        graph_deinit(&s.half[i]);
    json_doc_free(s.doc);
    buf_deinit(&body);
    return code;
}
