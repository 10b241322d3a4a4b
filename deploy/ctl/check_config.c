/* SPDX-License-Identifier: Apache-2.0
 *
 * check_config: `embertree check-config [--config=FILE] [--section.name=value ...]`: would a server
 * start with these options, and with the files that they name? All that is wrong is said, not the
 * first thing only. What depends on where it runs is not looked at: ports, the data folder, peers.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/tls.h"
#include "common/role/access.h"
#include "common/role/options.h"
#include "common/rpc/rpc_keys.h"
#include "common/store/retain.h"
#include "deploy/ctl/ctl.h"
#include "distributor/forward/forward_conf.h"
#include "distributor/options.h"
#include "distributor/rules/policy.h"
#include "distributor/scrape/scrape.h"
#include "distributor/tokens.h"
#include "ingester/options.h"
#include "querier/limits_file.h"
#include "querier/options.h"

#define FILE_BYTES_MAX (64 * MIB)

typedef int (*check_fn)(const struct conf *conf, const char *file, struct str text, struct err *e);

static int check_overrides(const struct conf *conf, const char *file, struct str text,
                           struct err *e)
{
    const struct distributor_conf *c = conf_get(conf, &distributor_table);
    struct limits limits = c->limits;
    struct overrides *o;

    if (overrides_parse(file, text, c, &limits, &o, e))
        return e->code;
    overrides_free(o);
    return 0;
}

static int check_limits(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct limits_file *f;

    (void)conf;
    if (limits_file_parse(file, text, &f, e))
        return e->code;
    limits_file_free(f);
    return 0;
}

static int check_forward(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct forward_conf *c;

    (void)conf;
    if (forward_conf_parse(file, text, &c, e))
        return e->code;
    forward_conf_unref(c);
    return 0;
}

static int check_scrape(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    const struct tenancy_conf *t = conf_get(conf, &tenancy_options);

    return scrape_check(file, text, t->multi, e);
}

static int check_tokens(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct tokens *t;

    (void)conf, (void)text;
    if (tokens_load(fs_real(), file, &t, e))
        return e->code;
    tokens_free(t);
    return 0;
}

static int check_retention(const struct conf *conf, const char *file, struct str text,
                           struct err *e)
{
    const struct retention_conf *c = conf_get(conf, &retention_options);
    struct retain_policy_opts o = { .interval_ms = c->interval_ms, .rules = text, .file = file };
    struct retain_policy *p;

    for (size_t i = 0; i < KEY_LEVELS; i++)
        o.keep.ms[i] = c->keep_ms[i];
    if (retain_policy_new(&o, &p, e))
        return e->code;
    retain_policy_unref(p);
    return 0;
}

static int check_keys(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct rpc_keys *keys;

    (void)conf;
    if (rpc_keys_parse(text, file, &keys, e))
        return e->code;
    rpc_keys_free(keys);
    return 0;
}

static int check_admin(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct access a = { 0 };

    (void)conf, (void)text;
    return access_init(&a, fs_real(), file, e);
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct tally {
    size_t files, wrong;
};

static void wrong(struct tally *t, const char *option, const struct err *e)
{
    t->wrong++;
    (void)fprintf(stderr, "%s%s%s\n", option, option[0] ? ": " : "", e->text);
}

static void look(struct tally *t, const struct conf *conf, const char *option, const char *file,
                 check_fn check)
{
    struct buf text;
    struct err e;

    if (!file[0])
        return;
    t->files++;
    buf_init(&text, FILE_BYTES_MAX);
    if (fs_real()->read_file(fs_real(), file, &text, &e) || check(conf, file, buf_str(&text), &e))
        wrong(t, option, &e);
    buf_deinit(&text);
}

static void look_tls(struct tally *t, const struct common_conf *http)
{
    struct tls_opts o = { http->tls_cert, http->tls_key, http->tls_client_ca };
    struct tls_ctx *c;
    struct err e;

    if (!o.cert[0] && !o.key[0] && !o.client_ca[0] && !http->tls_only)
        return;
    t->files += 2 + (o.client_ca[0] != '\0');
    if (!o.cert[0] || !o.key[0])
        (void)err_set(&e, ERR_CONFIG, "http.tls_cert and http.tls_key need each other");
    else if (!tls_ctx_new(&o, &c, &e)) {
        tls_ctx_free(c);
        return;
    }
    wrong(t, "", &e);
}

/* A role of its own names ingesters elsewhere; all in one has its own. */
static bool all_in_one(const struct cluster_conf *c)
{
    return c->ingesters.len == 1 && str_starts(str_c(c->ingesters.items[0]), STR("inproc://"));
}

static void look_all(struct tally *t, const struct conf *conf)
{
    const struct common_conf *http = conf_get(conf, &http_options);
    const struct cluster_conf *cluster = conf_get(conf, &cluster_options);
    const struct distributor_conf *d = conf_get(conf, &distributor_table);
    const struct querier_conf *q = conf_get(conf, &querier_options);
    const struct retention_conf *r = conf_get(conf, &retention_options);
    struct err e;

    if (options_check(http, cluster, all_in_one(cluster), &e))
        wrong(t, "", &e);
    look_tls(t, http);
    look(t, conf, "http.admin_token_file", http->admin_token_file, check_admin);
    look(t, conf, "cluster.key_file", cluster->key_file, check_keys);
    look(t, conf, "distributor.overrides_file", d->overrides_file, check_overrides);
    look(t, conf, "distributor.forward_config_file", d->forward_config_file, check_forward);
    look(t, conf, "distributor.scrape_config_file", d->scrape_config_file, check_scrape);
    look(t, conf, "distributor.tokens_file", d->tokens_file, check_tokens);
    look(t, conf, "querier.overrides_file", q->overrides_file, check_limits);
    look(t, conf, "retention.overrides", r->overrides, check_retention);
}

static int run(int argc, char **argv)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    struct tally t = { 0 };
    struct err e = { 0 };
    struct conf *conf;

    if (conf_load(tables, options_collect(roles, tables), argc, argv, &conf, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    if (conf_action(conf) != CONF_RUN) {
        conf_free(conf);
        (void)fprintf(
            stderr, "usage: embertree check-config [--config=FILE] [--section.name=value ...]\n"
                    "  Options are those of the server. Says all that is wrong with them and with\n"
                    "  the files that they name, and ends with 1 then.\n");
        return 2;
    }
    look_all(&t, conf);
    conf_free(conf);
    if (!t.wrong)
        (void)printf("fine; files read beside it: %zu\n", t.files);
    return t.wrong ? 1 : 0;
}

const struct command check_config_command = {
    .name = "check-config",
    .args = "[--config=FILE] [--section.name=value ...]",
    .help = "Says what is wrong with options and with the files that they name.",
    .run = run,
};
