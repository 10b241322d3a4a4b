/* SPDX-License-Identifier: Apache-2.0
 *
 * check_overrides: `embertree check-overrides [--querier] FILE [TENANT]`: what a server would say
 * about the overrides file of distributors, or of queriers, before it is given to one; with a
 * tenant, what would hold for it. The options are
 * the defaults: a limit that the server's own options set is shown as if they did not.
 */
#include <stdio.h>

#include "common/sys/fs.h"
#include "deploy/ctl/ctl.h"
#include "distributor/rules/policy.h"
#include "querier/base/limits_file.h"
#include "querier/base/options.h"

static int check(const char *file, const char *tenant, struct buf *text, struct buf *out,
                 struct err *e)
{
    char name[] = "embertree";
    char *argv[] = { name, NULL };
    struct limits limits = limits_default();
    struct overrides *o;
    struct conf *conf;
    int rc;

    if (conf_load(distributor_tables, DISTRIBUTOR_TABLES, 1, argv, &conf, e))
        return e->code;
    rc = fs_real()->read_file(fs_real(), file, text, e);
    if (!rc)
        rc = overrides_parse(file, buf_str(text), conf_get(conf, &distributor_table), &limits, &o,
                             e);
    if (!rc && tenant)
        policy_format(overrides_policy(o, str_c(tenant)), out);
    if (!rc)
        overrides_free(o);
    conf_free(conf);
    return rc;
}

/* Memory is a share of the memory of the server's machine, which is not known here: 0 stands for
 * it. */
static int check_querier(const char *file, const char *tenant, struct buf *text, struct buf *out,
                         struct err *e)
{
    static const struct conf_table *const tables[] = { &querier_options };
    char name[] = "embertree";
    char *argv[] = { name, NULL };
    struct limits_file *f;
    struct conf *conf;

    if (conf_load(tables, 1, 1, argv, &conf, e))
        return e->code;
    const struct querier_conf *c = conf_get(conf, &querier_options);
    struct tenant_queue_limits l = { .running = c->tenant_queries,
                                     .waiting = c->tenant_queue,
                                     .bytes = c->tenant_bytes_max,
                                     .read_bytes = c->query_read_bytes_max };
    int rc = fs_real()->read_file(fs_real(), file, text, e);
    if (!rc)
        rc = limits_file_parse(file, buf_str(text), &f, e);
    if (!rc && tenant) {
        limits_file_apply(f, str_c(tenant), &l);
        turn_limits_format(&l, out);
    }
    if (!rc)
        limits_file_free(f);
    conf_free(conf);
    return rc;
}

static int run(int argc, char **argv)
{
    struct buf text, out;
    struct err e;
    int rc;

    bool querier = argc > 1 && str_eqc(str_c(argv[1]), "--querier");

    argc -= querier;
    argv += querier;
    if (argc < 2 || argc > 3 || argv[1][0] == '-') {
        (void)fprintf(stderr, "usage: embertree check-overrides [--querier] FILE [TENANT]\n");
        return 2;
    }
    buf_init(&text, POLICY_FILE_MAX);
    buf_init(&out, 4 * POLICY_FILE_MAX);
    rc = (querier ? check_querier : check)(argv[1], argc > 2 ? argv[2] : NULL, &text, &out, &e);
    if (rc)
        (void)fprintf(stderr, "%s\n", e.text);
    else if (argc > 2)
        (void)fwrite(out.ptr, 1, out.len, stdout);
    else
        (void)printf("%s: fine\n", argv[1]);
    buf_deinit(&text);
    buf_deinit(&out);
    return !rc ? 0 : e.code == ERR_CONFIG ? 1 : 2;
}

const struct command check_overrides_command = {
    .name = "check-overrides",
    .args = "[--querier] FILE [TENANT]",
    .help = "Checks an overrides file, and prints what would hold for a tenant.",
    .run = run,
};
