/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/check.h"

#include "querier/base/limits_file.h"
#include "querier/base/options.h"
#include "querier/base/tenant_queues.h"

static int check_limits(const struct conf *conf, const char *file, struct str text, struct err *e)
{
    struct limits_file *f;

    (void)conf;
    if (limits_file_parse(file, text, &f, e))
        return e->code;
    limits_file_free(f);
    return 0;
}

void querier_check(struct role_checks *c)
{
    const struct querier_conf *q = conf_get(c->conf, &querier_options);
    struct err e;

    role_check_listen(c, "querier.listen", q->listen, NULL);
    for (size_t i = 0; i < q->tenants.len; i++) {
        struct tenant_queue_limits limits = { 0 };
        struct str tenant;

        if (tenant_queue_limits_parse(str_c(q->tenants.items[i]), &tenant, &limits, &e))
            role_check_said(c, "querier.tenants", &e);
    }
    role_check_file(c, "querier.overrides_file", q->overrides_file, check_limits);
}
