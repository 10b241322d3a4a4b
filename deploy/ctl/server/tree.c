/* SPDX-License-Identifier: Apache-2.0
 *
 * tree and query: the flame graph of a range, as a tree in the terminal or as a file in one of the
 * server's formats.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "common/sys/fs.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/graph.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE       "/pyroscope/render"
#define LINES       2000
#define MIN_PERCENT 0.5

/* ---- what all commands use ---- */

int commands_fail(const struct cli *c, const struct err *e)
{
    int code = cli_fail(c, e);

    return e->code == ERR_NOT_FOUND ? CLI_NO : code;
}

int commands_nothing(const struct cli *c)
{
    cli_note(c, "nothing found: `services` and `types` list what there is, --from looks further "
                "back");
    return CLI_NO;
}

int commands_show(struct cli *c, struct ask *a, commands_text_fn text, struct err *e)
{
    struct json_doc *doc = NULL;
    struct buf body;

    buf_init(&body, ASK_JSON_MAX);
    int rc = ask_do(c, a, &body, e);
    if (!rc && json_parse(buf_str(&body), &doc, e))
        rc = ask_strange(c, "no JSON", e);
    if (!rc && c->o.json) {
        (void)buf_add_str(&c->out, str_trim(buf_str(&body)));
        cli_json_end(c);
    } else if (!rc) {
        text(c, json_root(doc));
    }
    json_doc_free(doc);
    buf_deinit(&body);
    return rc;
}

int commands_write(struct cli *c, struct str bytes, bool binary, struct err *e)
{
    if (c->o.output && strcmp(c->o.output, "-") != 0) {
        if (fs_real()->write_file(fs_real(), c->o.output, bytes, e))
            return err_wrap(e, "--output");
        cli_note(c, "%s: %zu bytes", c->o.output, bytes.len);
        return 0;
    }
    if (binary && c->term.tty && !c->o.output)
        return err_set(e, ERR_CONFIG,
                       "these bytes are for a file, not for a terminal: --output FILE");
    if (c->term.tty && !binary)
        term_lines(&c->term, bytes, &c->out);
    else
        (void)buf_add_str(&c->out, bytes);
    cli_flush(c);
    return 0;
}

static int render(struct cli *c, const struct what *w, const char *format, uint64_t max_nodes,
                  struct buf *ret, struct err *e)
{
    struct buf target;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(w->query));
    ask_param_u64(&target, "from", (uint64_t)w->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)w->until_ms * 1000000);
    ask_param(&target, "format", str_c(format));
    if (max_nodes)
        ask_param_u64(&target, "max-nodes", max_nodes);
    struct ask a = { .target = buf_str(&target) };
    rc = buf_ok(&target) ? ask_do(c, &a, ret, e) : err_set(e, ERR_LIMIT, "--query is too long");
    /* Servers answer a format they do not know as if it were json. */
    if (!rc && a.is_json && strcmp(format, "json") != 0)
        rc = err_set(e, ERR_UNIMPLEMENTED, "this server cannot make %s: --format json or folded",
                     format);
    buf_deinit(&target);
    return rc;
}

/* ---- tree ---- */

struct graph_show graph_show_of(const struct cli *c, const struct what *w)
{
    return (struct graph_show){
        .unit = what_unit(w->type),
        .min_percent = c->o.min_percent < 0 ? MIN_PERCENT : c->o.min_percent,
        .depth = c->o.depth,
        .lines = c->o.limit == UINT64_MAX ? LINES : c->o.limit,
    };
}

static void put_tree(struct cli *c, const struct what *w, const struct graph *g)
{
    struct graph_show s = graph_show_of(c, w);
    struct json j;

    if (!c->o.json) {
        what_title(c, w, &c->out);
        (void)buf_add_c(&c->out, '\n');
        graph_text(g, &c->term, &s, &c->out);
        return;
    }
    json_init(&j, &c->out);
    json_obj(&j);
    put_json_what(w, &j);
    json_put_u64(&j, "total", g->at.len ? g->at.ptr[0].total : 0);
    json_put_bool(&j, "partial", c->was_partial);
    json_key(&j, "nodes");
    graph_json(g, &s, &j);
    json_obj_end(&j);
    cli_json_end(c);
}

int ctl_tree(struct cli *c)
{
    struct graph g;
    struct what w;
    struct buf body;
    struct err e;
    int rc = what_ready(c, &w, &e);

    if (rc)
        return commands_fail(c, &e);
    buf_init(&body, ASK_JSON_MAX);
    rc = render(c, &w, "json", c->o.max_nodes, &body, &e);
    if (!rc)
        rc = graph_read(c, buf_str(&body), "flamebearer", &g, &e);
    buf_deinit(&body);
    if (rc)
        return commands_fail(c, &e);
    bool empty = !g.at.len || !g.at.ptr[0].total;
    put_tree(c, &w, &g);
    ask_notice(c, json_root(g.doc));
    graph_deinit(&g);
    return empty ? commands_nothing(c) : cli_done(c);
}

/* ---- query ---- */

static const struct format {
    const char *name, *asked; /* as the server calls it */
    bool binary;
} formats[] = {
    { "json", "json", false }, { "folded", "collapsed", false }, { "pprof", "pprof", true },
    { "pgo", "pgo", true },    { "html", "html", false },        { "svg", "svg", false },
    { "dot", "dot", false },   { "tree", "tree", true },
};

static const struct format *format_of(const struct cli *c, struct err *e)
{
    const char *name = c->o.json ? "json" : c->o.format ? c->o.format : "folded";

    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    (void)err_set(e, ERR_CONFIG,
                  "--format %.40s: want one of folded json pprof pgo html svg dot tree", name);
    return NULL;
}

int ctl_query(struct cli *c)
{
    struct what w;
    struct buf body;
    struct err e;
    int rc;
    const struct format *f = format_of(c, &e);

    if (!f)
        return cli_fail(c, &e);
    if (f->binary && c->term.tty && !c->o.output) {
        (void)err_set(&e, ERR_CONFIG, "%s is for a file, not for a terminal: --output FILE",
                      f->name);
        return cli_fail(c, &e);
    }
    if (what_ready(c, &w, &e))
        return commands_fail(c, &e);
    buf_init(&body, ASK_ANSWER_MAX);
    rc = render(c, &w, f->asked, c->o.max_nodes, &body, &e);
    bool empty = !rc && !body.len;
    if (!rc)
        rc = commands_write(c, buf_str(&body), f->binary, &e);
    buf_deinit(&body);
    if (rc)
        return commands_fail(c, &e);
    return empty ? commands_nothing(c) : cli_done(c);
}
