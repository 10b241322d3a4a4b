/* SPDX-License-Identifier: Apache-2.0
 *
 * key: keys of callers. The server decides what may be handed out, and says why not; here options
 * become the JSON that it takes, and its answers text.
 *
 * A key is shown once, and is a secret: it is the only thing on standard output, so that a pipe or
 * a file gets it and nothing else; what one wants to know of it goes to standard error.
 */
#include <stdio.h>

#include "common/model/attime.h"
#include "common/sys/fs.h"
#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

#define ROUTE        "/api/v1/keys"
#define BODY_MAX     (64 * KIB)
#define NAME_COLUMNS 24
#define MAY_COLUMNS  60
#define ID_COLUMNS   14

/* ---- what is wanted -------------------------------------------------------------------------- */

/* "a,b" as ["a","b"]. */
static void put_list(const char *text, struct json *j)
{
    struct str rest = str_c(text), part;
    bool more = true;

    json_arr(j);
    while (str_next(&rest, ',', &more, &part))
        if (str_trim(part).len)
            json_str(j, str_trim(part));
    json_arr_end(j);
}

static int put_labels(const char *text, struct json *j, struct err *e)
{
    struct str rest = str_c(text), part;
    bool more = true;

    json_key(j, "set");
    json_obj(j);
    while (str_next(&rest, ',', &more, &part)) {
        ptrdiff_t eq = str_find(part, '=');
        if (eq <= 0)
            return err_set(e, ERR_CONFIG, "--set: \"%.*s\" is no NAME=VALUE",
                           STR_ARG(str_sub(part, 0, 60)));
        json_key_str(j, str_trim(str_sub(part, 0, (size_t)eq)));
        json_str(j, str_trim(str_sub(part, (size_t)eq + 1, part.len)));
    }
    json_obj_end(j);
    return 0;
}

/* With braces, which a person may leave out. */
static void put_match(const char *text, struct json *j)
{
    struct str s = str_trim(str_c(text));
    struct buf b;

    buf_init(&b, BODY_MAX);
    if (str_starts(s, STR("{")))
        (void)buf_add_str(&b, s);
    else
        (void)buf_addf(&b, "{%.*s}", STR_ARG(s));
    json_put_str(j, "match", buf_str(&b));
    buf_deinit(&b);
}

static int put_grant(const struct cli *c, struct json *j, struct err *e)
{
    json_key(j, "grants");
    json_arr(j);
    json_obj(j);
    json_key(j, "tenants");
    put_list(c->o.for_tenants ? c->o.for_tenants : "anonymous", j);
    json_key(j, "roles");
    put_list(c->o.roles, j);
    if (c->o.match)
        put_match(c->o.match, j);
    if (c->o.set && put_labels(c->o.set, j, e))
        return e->code;
    if (c->o.edit)
        json_put_bool(j, "edit", true);
    json_obj_end(j);
    json_arr_end(j);
    return 0;
}

int ctl_key_want_put(const struct cli *c, struct json *j, struct err *e)
{
    int64_t until;

    if (!c->o.name || !c->o.name[0])
        return err_set(e, ERR_CONFIG, "--name is missing: it says what the key is for");
    if (!c->o.roles || !c->o.roles[0])
        return err_set(e, ERR_CONFIG,
                       "--roles is missing: push, read, delete, tenant-admin, server-admin, "
                       "gateway, scrape");
    if (c->o.until && c->o.valid_for)
        return err_set(e, ERR_CONFIG, "give --until or --valid-for, not both");
    json_put_cstr(j, "name", c->o.name);
    if (c->o.owner)
        json_put_cstr(j, "owner", c->o.owner);
    if (put_grant(c, j, e))
        return e->code;
    if (c->o.until) {
        if (attime_parse(str_c(c->o.until), c->now_ms, &until, e))
            return err_wrap(e, "--until");
        json_put_i64(j, "until", until);
    }
    if (c->o.nets) {
        json_key(j, "nets");
        put_list(c->o.nets, j);
    }
    return 0;
}

int ctl_key_write(struct cli *c, struct str key, struct err *e)
{
    struct buf b;
    int rc = 0;

    buf_init(&b, KIB);
    (void)buf_addf(&b, "%.*s\n", STR_ARG(key));
    if (c->o.output)
        rc = fs_real()->write_file(fs_real(), c->o.output, buf_str(&b), e);
    else
        (void)buf_add_str(&c->out, buf_str(&b));
    buf_deinit(&b);
    return rc ? err_wrap(e, "--output: the key is lost; revoke it") : 0;
}

/* ---- a new key ------------------------------------------------------------------------------- */

static int64_t number(const struct json_val *v, const char *key)
{
    int64_t n = 0;
    struct err e;

    return json_take_i64(json_get(v, key, NULL), key, &n, &e) ? 0 : n;
}

static void put_until(int64_t until, struct buf *out)
{
    if (until)
        term_time(until, out);
    else
        (void)buf_add_str(out, STR("without an end"));
}

static void say_made(struct cli *c, const struct json_val *v)
{
    struct str id = ask_text(v, "id"), warning = ask_text(v, "warning");
    struct buf b;

    buf_init(&b, 4 * KIB);
    (void)buf_addf(&b, "key %.*s, valid ", STR_ARG(str_sub(id, 0, ID_COLUMNS)));
    if (number(v, "until"))
        (void)buf_add_str(&b, STR("until "));
    put_until(number(v, "until"), &b);
    (void)buf_add_str(&b, STR("; it is shown this once"));
    if (number(v, "old_until")) {
        (void)buf_add_str(&b, STR("; the old one ends at "));
        put_until(number(v, "old_until"), &b);
    }
    cli_note(c, "%.*s", STR_ARG(buf_str(&b)));
    if (warning.len)
        cli_note(c, "the old key has no new end: %.*s", STR_ARG(str_sub(warning, 0, 300)));
    buf_deinit(&b);
}

static int wrong(const struct cli *c, const char *text, struct err *e)
{
    (void)err_set(e, ERR_CONFIG, "%s", text);
    return cli_fail(c, e);
}

/* Asks for one, and shows it. CLI_NO: it was made, and something is left to do. */
static int ask_new(struct cli *c, struct str target, struct str body)
{
    struct ask a = { .method = "POST", .target = target, .type = "application/json", .body = body };
    struct json_doc *doc = NULL;
    struct buf answer;
    struct err e;
    int rc, code = CLI_DONE;

    buf_init(&answer, ASK_JSON_MAX);
    rc = ask_do(c, &a, &answer, &e);
    if (!rc && (json_parse(buf_str(&answer), &doc, &e) || !ask_text(json_root(doc), "key").len))
        rc = ask_strange(c, "no key", &e);
    if (!rc && c->o.json && !c->o.output)
        (void)buf_add_str(&c->out, str_trim(buf_str(&answer)));
    else if (!rc)
        rc = ctl_key_write(c, ask_text(json_root(doc), "key"), &e);
    if (rc) {
        code = commands_fail(c, &e);
    } else if (c->o.json && !c->o.output) {
        cli_json_end(c);
    } else {
        cli_flush(c);
        say_made(c, json_root(doc));
    }
    if (!rc && ask_text(json_root(doc), "warning").len)
        code = CLI_NO;
    json_doc_free(doc);
    buf_deinit(&answer);
    return code;
}

static int make(struct cli *c, struct err *e)
{
    struct json j;
    struct buf body;
    int code;

    if (c->args_len > 1)
        return wrong(c, "key make takes no name behind it: --name", e);
    if (c->o.offline)
        return ctl_key_offline(c);
    buf_init(&body, BODY_MAX);
    json_init(&j, &body);
    json_obj(&j);
    if (ctl_key_want_put(c, &j, e)) {
        code = cli_fail(c, e);
    } else {
        if (c->o.valid_for)
            json_put_cstr(&j, "valid_for", c->o.valid_for);
        json_obj_end(&j);
        code = ask_new(c, STR(ROUTE), buf_str(&body));
    }
    buf_deinit(&body);
    return code;
}

/* ---- a key that exists ----------------------------------------------------------------------- */

/* Ids have no character that a path would not take: anything else is not one. */
static int put_id(const char *id, struct buf *target, struct err *e)
{
    struct str s = str_c(id);
    bool ok = s.len > 0 && s.len <= ID_COLUMNS;

    for (size_t i = 0; i < s.len; i++)
        ok &= (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'z') ||
              (s.ptr[i] >= 'A' && s.ptr[i] <= 'Z');
    if (!ok)
        return err_set(e, ERR_CONFIG,
                       "want the id of a key, the 12 characters behind emb_k (key list has them), "
                       "not the key itself");
    (void)buf_addf(target, ROUTE "/%s", id);
    return 0;
}

static int rotate(struct cli *c, struct err *e)
{
    struct buf target;
    int code;

    if (c->args_len != 2)
        return wrong(c, "want key rotate ID", e);
    buf_init(&target, ASK_TARGET_MAX);
    if (put_id(c->args[1], &target, e)) {
        code = cli_fail(c, e);
    } else {
        (void)buf_add_str(&target, STR("/rotate"));
        if (c->o.overlap)
            ask_param(&target, "overlap", str_c(c->o.overlap));
        if (c->o.valid_for)
            ask_param(&target, "valid_for", str_c(c->o.valid_for));
        code = ask_new(c, buf_str(&target), STR(""));
    }
    buf_deinit(&target);
    return code;
}

static int revoke_one(struct cli *c, const char *id, bool *ret_away, struct err *e)
{
    struct ask a = { .method = "DELETE" };
    struct buf target, answer;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&answer, ASK_JSON_MAX);
    rc = put_id(id, &target, e);
    if (!rc && c->o.reason)
        ask_param(&target, "why", str_c(c->o.reason));
    a.target = buf_str(&target);
    if (!rc)
        rc = ask_do(c, &a, &answer, e);
    if (!rc) {
        *ret_away |= a.status == 202;
        if (c->o.json)
            (void)buf_addf(&c->out, "%.*s\n", STR_ARG(str_trim(buf_str(&answer))));
        else
            (void)buf_addf(&c->out, "%s is revoked%s\n", id,
                           a.status == 202 ? ", on the server asked" : "");
    }
    buf_deinit(&target);
    buf_deinit(&answer);
    return rc;
}

static int revoke(struct cli *c, struct err *e)
{
    bool away = false;

    if (c->args_len < 2)
        return wrong(c, "want key revoke ID...", e);
    for (size_t i = 1; i < c->args_len; i++)
        if (revoke_one(c, c->args[i], &away, e)) {
            cli_flush(c);
            return commands_fail(c, e);
        }
    cli_flush(c);
    if (!away)
        return CLI_DONE;
    cli_note(c, "the coordination service is away: other servers learn it once it is back; to be "
                "sure now, ask each of them the same");
    return CLI_NO;
}

/* ---- the list -------------------------------------------------------------------------------- */

static void add_names(const struct json_val *list, struct buf *out)
{
    for (size_t i = 0; i < json_len(list); i++) {
        struct str s = STR("");
        struct err e;

        if (!json_take_str(json_at(list, i), "", &s, &e))
            (void)buf_addf(out, "%s%.*s", i ? "," : "", STR_ARG(s));
    }
}

/* "push read of shop {team="a"}; ..." */
static void put_may(const struct term *t, const struct json_val *grants, struct buf *out)
{
    struct buf text;

    buf_init(&text, BODY_MAX);
    for (size_t i = 0; i < json_len(grants); i++) {
        const struct json_val *g = json_at(grants, i);

        (void)buf_add_str(&text, i ? STR("; ") : STR(""));
        add_names(json_get(g, "roles", NULL), &text);
        (void)buf_add_str(&text, STR(" of "));
        add_names(json_get(g, "tenants", NULL), &text);
        (void)buf_addf(&text, "%s%.*s", ask_text(g, "match").len ? " " : "",
                       STR_ARG(ask_text(g, "match")));
        if (json_get(g, "set", NULL))
            (void)buf_add_str(&text, STR(" (sets labels)"));
    }
    (void)term_name(t, buf_str(&text), MAY_COLUMNS, out);
    buf_deinit(&text);
}

static const char *state_of(const struct json_val *v, int64_t now)
{
    int64_t until = number(v, "until");

    if (number(v, "revoked_at"))
        return "revoked";
    if (until && until <= now)
        return "expired";
    return ask_truth(v, "file") ? "file" : "good";
}

static void put_column(const struct term *t, struct str s, size_t columns, struct buf *out)
{
    size_t used = term_name(t, s, columns, out);

    term_pad(columns + 2 - used, out);
}

static void put_when(int64_t ms, const char *none, struct buf *out)
{
    size_t before = out->len;

    if (ms)
        term_time(ms, out);
    else
        (void)buf_add_str(out, str_c(none));
    term_pad(21 - MIN(out->len - before, 20u), out);
}

static void list_text(struct cli *c, const struct json_val *root)
{
    const struct json_val *all = json_get(root, "keys", NULL);
    int64_t now = number(root, "now");

    if (json_len(all))
        (void)buf_addf(&c->out, "%-14s%-9s%-26s%-21s%-21s%s\n", "ID", "STATE", "NAME",
                       "UNTIL (UTC)", "LAST USE HERE", "MAY");
    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *v = json_at(all, i);

        put_column(&c->term, ask_text(v, "id"), ID_COLUMNS - 2, &c->out);
        (void)buf_addf(&c->out, "%-9s", state_of(v, now));
        put_column(&c->term, ask_text(v, "name"), NAME_COLUMNS, &c->out);
        put_when(number(v, "until"), "-", &c->out);
        put_when(number(v, "last_use"), "-", &c->out);
        put_may(&c->term, json_get(v, "grants", NULL), &c->out);
        (void)buf_add_c(&c->out, '\n');
    }
    if (!ask_truth(root, "fresh"))
        cli_note(c, "the coordination service is away: newer keys may be missing here");
}

static int list(struct cli *c, struct err *e)
{
    struct buf target;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    if (c->o.for_tenants)
        ask_param(&target, "tenant", str_c(c->o.for_tenants));
    struct ask a = { .target = buf_str(&target) };
    rc = commands_show(c, &a, list_text, e);
    buf_deinit(&target);
    if (rc)
        return commands_fail(c, e);
    if (c->o.json || c->out.len)
        return cli_done(c);
    cli_note(c, "there are no keys that you may see");
    return CLI_NO;
}

int ctl_key(struct cli *c)
{
    static const struct {
        const char *name;
        int (*run)(struct cli *c, struct err *e);
    } all[] = { { "list", list }, { "make", make }, { "rotate", rotate }, { "revoke", revoke } };
    const char *what = c->args_len ? c->args[0] : "list";
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(what, all[i].name) == 0)
            return all[i].run(c, &e);
    (void)err_set(&e, ERR_CONFIG, "key %.40s: want list, make, rotate ID or revoke ID", what);
    return cli_fail(c, &e);
}
