/* SPDX-License-Identifier: Apache-2.0
 *
 * places: changes of the map that a person makes. They are for profiles that begin some minutes
 * later (common/cluster/README.md), which is said, or an operator would look for an effect at once.
 */
#include "deploy/ctl/server/places.h"

#include "common/base/json.h"
#include "deploy/ctl/ask/ask.h"

#define SHOWN_MOST 32

static int64_t number(const struct json_val *v, const char *key)
{
    int64_t n = 0;
    struct err ignored;

    (void)!json_take_i64(json_get(v, key, NULL), key, &n, &ignored);
    return n;
}

/* ---- changing ------------------------------------------------------------------------------- */

static int want(struct cli *c, bool service, struct err *e)
{
    uint64_t n;

    if (c->args_len != (service ? 4u : 3u))
        return err_set(e, ERR_CONFIG, "want cluster %s",
                       service ? "spread TENANT SERVICE SHARDS" : "tenant TENANT SHARDS");
    if (!str_u64(str_c(c->args[c->args_len - 1]), &n))
        return err_set(e, ERR_CONFIG, "\"%.40s\" is not a number of shards",
                       c->args[c->args_len - 1]);
    return 0;
}

static void tell(struct cli *c, const struct json_val *v)
{
    struct str service = ask_text(v, "service"), tenant = ask_text(v, "tenant");
    int64_t from = number(v, "from"), shards = number(v, "shards");

    if (service.len)
        (void)buf_addf(&c->out, "service %.*s of %.*s", STR_ARG(service), STR_ARG(tenant));
    else if (str_eqc(tenant, "*"))
        (void)buf_addf(&c->out, "each tenant without a number of its own");
    else
        (void)buf_addf(&c->out, "tenant %.*s", STR_ARG(tenant));
    if (shards)
        (void)buf_addf(&c->out, ": %" PRId64 " shard%s", shards, shards == 1 ? "" : "s");
    else
        (void)buf_addf(&c->out, ": all shards");
    if (from) {
        (void)buf_addf(&c->out, " for profiles from ");
        term_time(from, &c->out);
        (void)buf_addf(&c->out, " UTC on");
    }
    if (ask_truth(v, "wanted"))
        (void)buf_addf(&c->out, ", once all ingesters that must know of it do (cluster status "
                                "tells the time then, or whom it waits for)");
    (void)buf_addf(&c->out, ask_truth(v, "changed") ? "\n" : " (unchanged)\n");
}

int places_change(struct cli *c, struct err *e)
{
    bool service = strcmp(c->args[0], "spread") == 0;
    struct json_doc *doc;
    struct buf target, body;
    int code = want(c, service, e);

    if (code)
        return code;
    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&body, ASK_JSON_MAX);
    (void)buf_addf(&target, "/api/v1/cluster/%s", service ? "services" : "tenants");
    ask_param(&target, "tenant", str_c(c->args[1]));
    if (service)
        ask_param(&target, "service", str_c(c->args[2]));
    ask_param(&target, "shards", str_c(c->args[c->args_len - 1]));
    struct ask a = { .method = "POST", .target = buf_str(&target) };
    code = ask_do(c, &a, &body, e);
    if (!code)
        code = json_parse(buf_str(&body), &doc, e);
    if (!code) {
        if (c->o.json)
            (void)buf_add_str(&c->out, buf_str(&body));
        else
            tell(c, json_root(doc));
        json_doc_free(doc);
    }
    buf_deinit(&target);
    buf_deinit(&body);
    return code;
}

/* ---- showing -------------------------------------------------------------------------------- */

int places_ask(struct cli *c, struct json_doc **ret, struct err *e)
{
    return ask_json_if(c, STR("/api/v1/cluster/places"), ret, e);
}

static void number_text(int64_t shards, struct buf *out)
{
    if (shards)
        (void)buf_addf(out, "%" PRId64, shards);
    else
        (void)buf_addf(out, "all");
}

/* What is no step yet, and whom it waits for. */
static void next_text(const struct json_val *next, struct buf *out)
{
    int64_t from = number(next, "from");
    struct str why = ask_text(next, "waitsFor");

    (void)buf_addf(out, ", then ");
    number_text(number(next, "shards"), out);
    if (from) {
        (void)buf_addf(out, " from ");
        term_time(from, out);
        (void)buf_addf(out, " UTC if that is confirmed");
    }
    if (why.len)
        (void)buf_addf(out, " (waits: %.*s)", STR_ARG(str_sub(why, 0, 200)));
    else
        (void)buf_addf(out, from ? " (announced)" : " (soon to be announced)");
}

static void one_text(const struct json_val *v, struct buf *out)
{
    const struct json_val *steps = json_get(v, "steps", NULL), *next = json_get(v, "next", NULL);
    struct str tenant = ask_text(v, "tenant"), service = ask_text(v, "service");
    size_t n = json_len(steps);

    if (!n && !next)
        return;
    if (service.len)
        (void)buf_addf(out, "service %.*s of %.*s", STR_ARG(str_sub(service, 0, 80)),
                       STR_ARG(str_sub(tenant, 0, 80)));
    else if (str_eqc(tenant, "*"))
        (void)buf_addf(out, "tenants");
    else
        (void)buf_addf(out, "tenant %.*s", STR_ARG(str_sub(tenant, 0, 80)));
    for (size_t i = 0; i < n; i++) {
        (void)buf_addf(out, i ? ", then " : ": ");
        number_text(number(json_at(steps, i), "shards"), out);
        if (i) {
            (void)buf_addf(out, " from ");
            term_time(number(json_at(steps, i), "from"), out);
            (void)buf_addf(out, " UTC");
        }
    }
    if (!n) {
        (void)buf_addf(out, ": ");
        number_text(service.len ? 1 : 0, out);
    }
    if (next)
        next_text(next, out);
    (void)buf_addf(out, " shards\n");
}

void places_text(const struct json_doc *doc, struct buf *out)
{
    static const char *const lists[] = { "tenants", "services" };

    for (size_t k = 0; doc && k < ARRAY_LEN(lists); k++) {
        const struct json_val *all = json_get(json_root(doc), lists[k], NULL);
        size_t n = json_len(all);

        for (size_t i = 0; i < MIN(n, (size_t)SHOWN_MOST); i++)
            one_text(json_at(all, i), out);
        if (n > SHOWN_MOST)
            (void)buf_addf(out, "and %zu more %s\n", n - SHOWN_MOST, lists[k]);
    }
}
