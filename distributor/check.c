/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/check.h"

#include "common/base/mem.h"
#include "common/role/core/options.h"
#include "distributor/base/options.h"
#include "distributor/base/tokens.h"
#include "distributor/forward/forward_conf.h"
#include "distributor/rules/policy.h"
#include "distributor/scrape/scrape.h"
#include "distributor/send/write_id.h"

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

void distributor_check(struct role_checks *c)
{
    const struct distributor_conf *d = conf_get(c->conf, &distributor_table);
    struct err e;

    role_check_listen(c, "distributor.listen", d->listen, NULL);
    if (write_secret_check(d->write_id_secret, &e))
        role_check_said(c, "", &e);
    role_check_file(c, "distributor.overrides_file", d->overrides_file, check_overrides);
    role_check_file(c, "distributor.forward_config_file", d->forward_config_file, check_forward);
    role_check_file(c, "distributor.scrape_config_file", d->scrape_config_file, check_scrape);
    role_check_file(c, "distributor.tokens_file", d->tokens_file, check_tokens);
}
