/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: compares what was accepted with what is stored. Ends with 1 if they differ. And
 * `accept`: the operator accepts a difference.
 */
#include <stdlib.h>

#include "deploy/ctl/ask/ask.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"

static double number(const struct json_val *obj, const char *key)
{
    struct err e;
    double v = 0;

    return json_take_double(json_get(obj, key, NULL), key, &v, &e) ? 0 : v;
}

static void put_accepted(const struct term *t, const struct json_val *v, struct buf *out)
{
    const struct json_val *all = json_get(v, "acceptedDifferences", NULL);

    for (size_t i = 0; i < json_len(all); i++) {
        const struct json_val *x = json_at(all, i);
        (void)buf_add_str(out, STR("  accepted "));
        term_time((int64_t)number(x, "at"), out);
        (void)buf_addf(out, ", shard %.0f, service ", number(x, "shard"));
        (void)term_name(t, ask_text(x, "service"), 60, out);
        (void)buf_addf(out, ": %.0f missing, %.0f surplus, by ", number(x, "missing"),
                       number(x, "surplus"));
        (void)term_name(t, ask_text(x, "by"), 40, out);
        (void)buf_add_str(out, STR(": "));
        (void)term_name(t, ask_text(x, "reason"), 200, out);
        (void)buf_add_c(out, '\n');
    }
}

static void put_tenant(const struct term *t, const struct json_val *v, struct buf *out)
{
    const struct json_val *audit = json_get(v, "audit", NULL), *all;
    struct str name = STR(""), text;
    struct err e;

    if (json_take_str(json_get(v, "tenant", NULL), "", &name, &e))
        name = STR("?");
    size_t used = term_name(t, name, 16, out);
    term_pad(18 - MIN(used, 17u), out);
    (void)buf_addf(out, "%12.0f %10.0f %12.0f %10.0f %10.0f %12.0f %12.0f ", number(v, "accepted"),
                   number(v, "duplicates"), number(v, "stored"), number(v, "expired"),
                   number(v, "deleted"), number(v, "sealed"), number(audit, "queryable"));
    if (number(audit, "at") == 0)
        (void)buf_add_str(out, STR("not audited yet\n"));
    else
        (void)buf_addf(out, "%10.0f\n", number(audit, "difference"));
    if (number(v, "since") > 0 || number(v, "notCountedYet") > 0)
        (void)buf_addf(out,
                       "  some of it came before the ledger began, and counts as stored: %.0f "
                       "services and types are not counted yet\n",
                       number(v, "notCountedYet"));
    all = json_get(audit, "findings", NULL);
    for (size_t i = 0; i < json_len(all); i++)
        if (!json_take_str(json_at(all, i), "", &text, &e))
            (void)buf_addf(out, "  %.*s\n", STR_ARG(text));
    put_accepted(t, v, out);
}

static void ledger_text(const struct term *t, const struct json_val *root, struct buf *out)
{
    const struct json_val *all = json_get(root, "tenants", NULL);

    term_style(t, TERM_BOLD, out);
    (void)buf_addf(out, "%-17s %12s %10s %12s %10s %10s %12s %12s %10s\n", "TENANT", "ACCEPTED",
                   "DUPLICATES", "STORED", "EXPIRED", "DELETED", "SEALED", "QUERYABLE",
                   "DIFFERENCE");
    term_style(t, TERM_PLAIN, out);
    for (size_t i = 0; i < json_len(all); i++)
        put_tenant(t, json_at(all, i), out);
    if (number(root, "missingIngesters") > 0)
        (void)buf_addf(out, "%.0f ingesters did not answer\n", number(root, "missingIngesters"));
}

static int check_accept(const struct cli *c, const char **ret_who, struct err *e)
{
    *ret_who = c->o.who ? c->o.who : getenv("USER");
    if (strcmp(c->args[0], "accept") != 0)
        return err_set(e, ERR_CONFIG, "ledger %s: want accept, or nothing", c->args[0]);
    if (!c->o.reason)
        return err_set(e, ERR_CONFIG, "why is it accepted? --reason, which is stored permanently");
    if (!*ret_who || !**ret_who)
        return err_set(e, ERR_CONFIG, "who accepts it? --who");
    return 0;
}

static void put_accepted_now(struct cli *c, const struct json_val *v)
{
    (void)buf_addf(
        &c->out, "%.0f places of %.0f services accepted: %.0f writes missing, %.0f surplus\n",
        number(v, "places"), number(v, "services"), number(v, "missing"), number(v, "surplus"));
    if (number(v, "servicesLeft") > 0)
        (void)buf_addf(&c->out, "%.0f services more differ: again after the next audit\n",
                       number(v, "servicesLeft"));
    if (number(v, "shardsNotAudited") > 0)
        (void)buf_addf(&c->out,
                       "%.0f shards were not audited yet since they are led where they are: "
                       "again after the next audit\n",
                       number(v, "shardsNotAudited"));
    else if (number(v, "places") == 0)
        (void)buf_add_str(&c->out, STR("Nothing differs there, as the last audit found it.\n"));
}

static int accept(struct cli *c, struct err *e)
{
    struct ask a = { .method = "POST" };
    struct buf target;
    const char *who;

    if (check_accept(c, &who, e))
        return e->code;
    buf_init(&target, ASK_TARGET_MAX);
    (void)buf_add_str(&target, STR("/api/v1/ledger/accept"));
    if (c->o.tenant)
        ask_param(&target, "tenant", str_c(c->o.tenant));
    if (c->o.shard)
        ask_param(&target, "shard", str_c(c->o.shard));
    ask_param(&target, "by", str_c(who));
    ask_param(&target, "reason", str_c(c->o.reason));
    a.target = buf_str(&target);
    int rc = commands_show(c, &a, put_accepted_now, e);
    buf_deinit(&target);
    return rc;
}

int ctl_ledger(struct cli *c)
{
    struct ask a = { .target = STR("/api/v1/ledger") };
    struct json_doc *doc = NULL;
    double difference = 0;
    struct buf body;
    struct err e;

    if (c->args_len)
        return accept(c, &e) ? commands_fail(c, &e) : cli_done(c);
    buf_init(&body, ASK_JSON_MAX);
    int rc = ask_do(c, &a, &body, &e);
    if (!rc && json_parse(buf_str(&body), &doc, &e))
        rc = ask_strange(c, "no JSON", &e);
    if (!rc) {
        difference = number(json_root(doc), "difference");
        if (c->o.json) {
            (void)buf_add_str(&c->out, str_trim(buf_str(&body)));
            cli_json_end(c);
        } else {
            ledger_text(&c->term, json_root(doc), &c->out);
        }
    }
    json_doc_free(doc);
    buf_deinit(&body);
    if (rc)
        return commands_fail(c, &e);
    rc = cli_done(c);
    return rc ? rc : difference > 0;
}
