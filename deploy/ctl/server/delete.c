/* SPDX-License-Identifier: Apache-2.0
 *
 * delete: first a dry run that says what would go, then a question to whoever sits at the terminal,
 * then the same again for real. Without a terminal to ask at it wants --yes.
 *
 * The id is made here, so that a delete whose answer was lost can be sent again as the same one.
 */
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/hex.h"
#include "common/model/attime.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE   "/api/v1/delete"
#define COLUMNS 60 /* of what was deleted, on a narrow terminal */

static int put_time(const struct cli *c, const char *option, const char *text, const char *name,
                    struct buf *target, struct err *e)
{
    int64_t ms;

    if (!text)
        return 0;
    if (attime_parse(str_c(text), c->now_ms, &ms, e))
        return err_wrap(e, "%s", option);
    if (ms < 1)
        return err_set(e, ERR_CONFIG, "%s: want a time after 1970", option);
    ask_param_u64(target, name, (uint64_t)ms * 1000000);
    return 0;
}

/* What to delete; without a range of time unless one is given. */
static int put_what(struct cli *c, struct what *w, struct buf *target, struct err *e)
{
    struct what_in in = what_of_cli(c, 0);

    in.from = in.until = NULL;
    if (c->o.all && (in.service || in.query))
        return err_set(e, ERR_CONFIG, "--all is everything of the tenant: no service or --query");
    if (!c->o.all && !in.service && !in.query)
        return err_set(e, ERR_CONFIG, "which service? or --query, or --all for everything");
    if (what_parse(c, &in, w, e))
        return e->code;
    if (c->o.all)
        ask_param(target, "all", STR("1"));
    else
        ask_param(target, "query", str_c(w->selector));
    return put_time(c, "--from", c->o.from, "from", target, e) ||
                   put_time(c, "--until", c->o.until, "until", target, e)
               ? e->code
               : 0;
}

static void make_id(char id[40])
{
    uint8_t random[12];

    CHECK(getrandom(random, sizeof(random), 0) == (ssize_t)sizeof(random));
    (void)memcpy(id, "ctl-", 4);
    hex_put_c(random, sizeof(random), id + 4);
}

/* ---- what it says ---- */

static int64_t number(const struct json_doc *d, const char *key)
{
    struct err e;
    int64_t v = 0;

    return json_take_i64(json_get(json_root(d), key, NULL), key, &v, &e) ? 0 : v;
}

static void put_summary(const struct cli *c, const struct json_doc *d, struct buf *out)
{
    (void)term_name(&c->term, ask_text(json_root(d), "what"), 400, out);
    (void)buf_addf(out, " of tenant ");
    (void)term_name(&c->term, ask_text(json_root(d), "tenant"), 100, out);
    (void)buf_addf(out, ": %" PRId64 " services, %" PRId64 " series, about ", number(d, "services"),
                   number(d, "series"));
    term_value((double)number(d, "bytesEstimate"), STR("bytes"), out);
    if (number(d, "from") || number(d, "until")) {
        (void)buf_add_str(out, STR(", from "));
        if (number(d, "from"))
            term_time(number(d, "from"), out);
        else
            (void)buf_add_str(out, STR("the beginning"));
        (void)buf_add_str(out, STR(" to "));
        if (number(d, "until"))
            term_time(number(d, "until"), out);
        else
            (void)buf_add_str(out, STR("the end"));
    }
    (void)buf_add_c(out, '\n');
}

static int post(struct cli *c, struct str target, struct buf *body, struct json_doc **ret,
                struct err *e)
{
    struct ask a = { .method = "POST", .target = target };

    buf_reset(body);
    if (ask_do(c, &a, body, e))
        return e->code;
    return json_parse(buf_str(body), ret, e) ? ask_strange(c, "no JSON", e) : 0;
}

/* True if the one at the terminal types yes. */
static bool agreed(const struct cli *c, const struct json_doc *d)
{
    char line[16];
    struct buf b;

    buf_init(&b, 64 * KIB);
    put_summary(c, d, &b);
    (void)fprintf(stderr, "%.*sDelete it, for good? Type yes: ", STR_ARG(buf_str(&b)));
    (void)fflush(stderr);
    buf_deinit(&b);
    if (!fgets(line, sizeof(line), stdin))
        return false;
    return str_eqc(str_trim(str_c(line)), "yes");
}

static void put_result(struct cli *c, const struct json_doc *d, struct str body, bool dry)
{
    if (c->o.json) {
        (void)buf_add_str(&c->out, str_trim(body));
        cli_json_end(c);
        return;
    }
    (void)buf_add_str(&c->out, dry ? STR("would delete ") : STR("deleted "));
    put_summary(c, d, &c->out);
    if (!dry) {
        (void)buf_add_str(&c->out, STR("id "));
        (void)term_name(&c->term, ask_text(json_root(d), "id"), 100, &c->out);
        (void)buf_add_str(&c->out, STR("; `deletes` shows how far the files are\n"));
    }
}

/* ---- the command ---- */

static int dry_run(struct cli *c, struct str target, struct buf *body, struct json_doc **ret,
                   struct err *e)
{
    struct buf b;

    buf_init(&b, ASK_TARGET_MAX);
    (void)buf_add_str(&b, target);
    ask_param(&b, "dry_run", STR("1"));
    int rc = post(c, buf_str(&b), body, ret, e);
    buf_deinit(&b);
    return rc;
}

/* `confirm`: what is deleted, again, so that a server refuses a request for anything else. */
static int real_run(struct cli *c, struct str target, struct str confirm, struct buf *body,
                    struct json_doc **ret, struct err *e)
{
    char id[40];
    struct buf b;

    make_id(id);
    buf_init(&b, ASK_TARGET_MAX);
    (void)buf_add_str(&b, target);
    ask_param(&b, "confirm", confirm);
    ask_param(&b, "id", str_c(c->o.id ? c->o.id : id));
    int rc = post(c, buf_str(&b), body, ret, e);
    if (rc && (e->code == ERR_BUSY || e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT))
        rc = err_wrap(e, "it may be done in part, send it again with --id %.64s",
                      c->o.id ? c->o.id : id);
    buf_deinit(&b);
    return rc;
}

static int run(struct cli *c, struct buf *target, struct buf *body, struct err *e)
{
    struct json_doc *dry = NULL, *done = NULL;
    struct what w;
    int code = CLI_DONE;

    if (put_what(c, &w, target, e) || dry_run(c, buf_str(target), body, &dry, e)) {
        code = commands_fail(c, e);
    } else if (c->o.dry_run) {
        put_result(c, dry, buf_str(body), true);
    } else if (number(dry, "series") == 0 && number(dry, "services") == 0) {
        put_result(c, dry, buf_str(body), true);
        code = commands_nothing(c);
    } else if (!c->o.yes && !isatty(STDIN_FILENO)) {
        (void)err_set(e, ERR_CONFIG,
                      "standard input is not a terminal: --dry-run says what would be "
                      "deleted, --yes deletes it");
        code = cli_fail(c, e);
    } else if (!c->o.yes && !agreed(c, dry)) {
        cli_note(c, "nothing was deleted");
        code = CLI_NO;
    } else {
        struct str all = ask_text(json_root(dry), "tenant");
        if (real_run(c, buf_str(target), c->o.all ? all : str_c(w.selector), body, &done, e))
            code = commands_fail(c, e);
        else
            put_result(c, done, buf_str(body), false);
    }
    json_doc_free(dry);
    json_doc_free(done);
    return code;
}

int ctl_delete(struct cli *c)
{
    struct buf target, body;
    struct err e;

    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&body, ASK_JSON_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    int code = run(c, &target, &body, &e);
    buf_deinit(&target);
    buf_deinit(&body);
    return code;
}

/* Writes nothing for a querier of an older version, which does not count copies. */
static void put_behind(struct cli *c, const struct json_val *v)
{
    int64_t copies = 0;
    struct err e;

    if (json_take_i64(json_get(v, "copiesBehind", NULL), "copiesBehind", &copies, &e) ||
        copies <= 0)
        return;
    (void)buf_addf(&c->out, "%-29s%" PRId64 " %s\n", "", copies,
                   copies == 1 ? "copy of its shards may still hold bytes of it in files"
                               : "copies of its shards may still hold bytes of it in files");
}

static void put_one(struct cli *c, const struct json_val *v)
{
    int64_t created = 0, percent = 0;
    struct err e;
    size_t used;

    if (json_take_i64(json_get(v, "created", NULL), "created", &created, &e) ||
        json_take_i64(json_get(v, "percent", NULL), "percent", &percent, &e))
        return;
    term_time(created, &c->out);
    (void)buf_addf(&c->out, "  %3" PRId64 " %%  ", percent);
    used = term_name(&c->term, ask_text(v, "state"), 8, &c->out);
    term_pad(9 - used, &c->out);
    used = term_name(&c->term, ask_text(v, "id"), 40, &c->out);
    term_pad(used < 30 ? 30 - used : 2, &c->out);
    (void)term_name(&c->term, ask_text(v, "what"),
                    c->term.width > 110 ? c->term.width - 80 : COLUMNS, &c->out);
    (void)buf_add_c(&c->out, '\n');
    put_behind(c, v);
}

static void put_deletes(struct cli *c, const struct json_val *root)
{
    const struct json_val *all = json_get(root, "deletes", NULL);

    (void)buf_addf(&c->out, "%-20s %5s  %-9s%-30s%s\n", "CREATED (UTC)", "DONE", "STATE", "ID",
                   "WHAT");
    for (size_t i = 0; i < json_len(all); i++)
        put_one(c, json_at(all, i));
}

int ctl_deletes(struct cli *c)
{
    struct err e;

    return commands_show(c, &(struct ask){ .target = STR("/api/v1/deletes") }, put_deletes, &e)
               ? commands_fail(c, &e)
               : cli_done(c);
}
