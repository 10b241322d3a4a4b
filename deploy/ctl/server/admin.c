/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: what a process says about itself: is it ready, who does it see, what is in force.
 */
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define TEXT_MAX (64 * MIB)

/* The body of a route; *ret_status may be what it likes. */
static int get(struct cli *c, const char *path, bool any_status, struct buf *body, int *ret_status,
               struct err *e)
{
    struct ask a = { .target = str_c(path), .any_status = any_status };
    int rc = ask_do(c, &a, body, e);

    *ret_status = a.status;
    return rc;
}

static void put_json(struct cli *c, struct str body)
{
    (void)buf_add_str(&c->out, str_trim(body));
    cli_json_end(c);
}

/* Text as it is, or {"key": "text"}. */
static int put_text(struct cli *c, const char *path, const char *key, struct buf *body,
                    struct err *e)
{
    struct json j;
    int status;

    if (get(c, path, false, body, &status, e))
        return commands_fail(c, e);
    if (c->o.json) {
        json_init(&j, &c->out);
        json_obj(&j);
        json_put_str(&j, key, buf_str(body));
        json_obj_end(&j);
        cli_json_end(c);
    } else {
        term_lines(&c->term, buf_str(body), &c->out);
    }
    return CLI_DONE;
}

/* ---- ready ---- */

static int ready(struct cli *c, struct buf *body, struct err *e)
{
    struct json_doc *doc = NULL;
    struct json j;
    int status;

    if (get(c, "/readyz", true, body, &status, e))
        return commands_fail(c, e);
    if (status != 200 && status != 503) {
        (void)ask_strange(c, "no /readyz", e);
        return commands_fail(c, e);
    }
    struct str why = STR("");
    if (status != 200 && !json_parse(buf_str(body), &doc, e))
        why = ask_text(json_root(doc), "message");
    if (c->o.json) {
        json_init(&j, &c->out);
        json_obj(&j);
        json_put_bool(&j, "ready", status == 200);
        json_put_str(&j, "why", why);
        json_obj_end(&j);
        cli_json_end(c);
    } else if (!c->o.quiet) {
        (void)buf_add_str(&c->out, status == 200 ? STR("ready") : STR("not ready: "));
        (void)term_name(&c->term, why, 400, &c->out);
        (void)buf_add_c(&c->out, '\n');
    }
    json_doc_free(doc);
    return status == 200 ? CLI_DONE : CLI_NO;
}

/* ---- status ---- */

static void put_roles(const struct cli *c, const struct json_val *roles, struct buf *out)
{
    const struct json_val *v;
    struct str name;
    void *pos = NULL;

    while (json_each(roles, &pos, &name, &v)) {
        bool ok = ask_truth(v, "ready");
        (void)buf_add_str(out, STR("role      "));
        term_pad(16 - term_name(&c->term, name, 15, out), out);
        term_style(&c->term, ok ? TERM_GREEN : TERM_RED, out);
        (void)buf_add_str(out, ok ? STR("ready") : STR("not ready"));
        term_style(&c->term, TERM_PLAIN, out);
        (void)buf_add_c(out, '\n');
    }
}

/* Whom the querier calls, and whether they answer. */
static void put_peers(const struct cli *c, const struct json_val *peers, struct buf *out)
{
    for (size_t i = 0; i < json_len(peers); i++) {
        const struct json_val *v = json_at(peers, i);
        bool up = ask_truth(v, "up");
        (void)buf_add_str(out, STR("ingester  "));
        (void)term_name(&c->term, ask_text(v, "address"), 60, out);
        term_style(&c->term, up ? TERM_GREEN : TERM_RED, out);
        (void)buf_add_str(out, up ? STR("  up\n") : STR("  does not answer\n"));
        term_style(&c->term, TERM_PLAIN, out);
    }
}

static int status(struct cli *c, struct buf *body, struct err *e)
{
    struct json_doc *doc = NULL;
    const struct json_val *root, *roles;
    bool ok = false;
    int http;

    if (get(c, "/ring", false, body, &http, e))
        return commands_fail(c, e);
    if (json_parse(buf_str(body), &doc, e)) {
        (void)ask_strange(c, "no JSON", e);
        return commands_fail(c, e);
    }
    root = json_root(doc);
    roles = json_get(root, "roles", NULL);
    ok = ask_truth(root, "ready");
    if (c->o.json) {
        put_json(c, buf_str(body));
    } else {
        (void)buf_add_str(&c->out, STR("server    "));
        (void)term_name(&c->term, str_c(c->o.server), 200, &c->out);
        (void)buf_add_str(&c->out, STR("\nversion   "));
        (void)term_name(&c->term, ask_text(root, "version"), 100, &c->out);
        (void)buf_addf(&c->out, "\nready     %s\n", ok ? "yes" : "no");
        put_roles(c, roles, &c->out);
        put_peers(c, json_get(json_get(roles, "querier", NULL), "ingesters", NULL), &c->out);
    }
    json_doc_free(doc);
    return ok ? CLI_DONE : CLI_NO;
}

static int ring(struct cli *c, struct buf *body, struct err *e)
{
    struct json_doc *doc = NULL;
    int http;

    if (get(c, "/ring", false, body, &http, e))
        return commands_fail(c, e);
    if (json_parse(buf_str(body), &doc, e)) {
        (void)ask_strange(c, "no JSON", e);
        return commands_fail(c, e);
    }
    json_doc_free(doc);
    put_json(c, buf_str(body));
    return CLI_DONE;
}

int ctl_admin(struct cli *c)
{
    const char *what = c->args_len ? c->args[0] : "status";
    struct buf body;
    struct err e;
    int code;

    buf_init(&body, TEXT_MAX);
    if (strcmp(what, "status") == 0) {
        code = status(c, &body, &e);
    } else if (strcmp(what, "ready") == 0) {
        code = ready(c, &body, &e);
    } else if (strcmp(what, "ring") == 0) {
        code = ring(c, &body, &e);
    } else if (strcmp(what, "config") == 0) {
        code = put_text(c, "/config", "config", &body, &e);
    } else if (strcmp(what, "metrics") == 0) {
        code = put_text(c, "/metrics", "metrics", &body, &e);
    } else {
        (void)err_set(&e, ERR_CONFIG, "admin %.60s: want status, ready, ring, config or metrics",
                      what);
        code = cli_fail(c, &e);
    }
    buf_deinit(&body);
    return code;
}
