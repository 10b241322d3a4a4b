/* SPDX-License-Identifier: Apache-2.0
 *
 * check: what a start would refuse in the options of an ingester, without opening anything.
 *
 * A start and `embertree check-config` call the same functions, so both report the same errors,
 * and check-config reports all of them at once. The place in cluster.ingesters is found here, too,
 * since the start needs it and must refuse an address that is not in the list. Any thread; it has
 * no state.
 */
#include "ingester/check.h"

#include <stdio.h>

#include "common/cold/conf.h"
#include "common/role/core/options.h"
#include "common/store/retain/retain.h"
#include "ingester/background/rollups.h"
#include "ingester/base/state.h"

int ingester_check_index(const struct cluster_conf *c, const struct ingester_conf *own, size_t *ret,
                         struct err *e)
{
    const struct conf_list *all = &c->ingesters;
    const char *name = own->advertise[0] ? own->advertise : own->listen;
    uint64_t n = all->len;

    if ((c->shards + n - 1) / n > SHARDS_OWN_MAX)
        return err_set(e, ERR_CONFIG,
                       "cluster.shards is %" PRIu64 " for %" PRIu64 " ingesters; one holds at most "
                       "%d shards",
                       c->shards, n, SHARDS_OWN_MAX);
    for (size_t i = 0; i < all->len; i++) {
        if (str_eq(str_c(all->items[i]), str_c(name))) {
            *ret = i;
            return 0;
        }
    }
    return err_set(e, ERR_CONFIG,
                   "%s is not in cluster.ingesters (%s%s); it must stand there under "
                   "ingester.listen or ingester.advertise",
                   name, all->items[0], all->len > 1 ? ", ..." : "");
}

/* In a configuration of another role nothing says where an ingester listens. */
static bool is_of_an_ingester(const struct role_checks *c, const struct ingester_conf *own)
{
    return c->all_in_one || own->advertise[0] || !str_starts(str_c(own->listen), STR("inproc://"));
}

static int check_rules(const struct conf *conf, const char *file, struct str text, struct err *e)
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

/* A coarser level is kept at least as long as a finer one (retain_policy.c). */
static void check_retention(struct role_checks *c)
{
    const struct retention_conf *r = conf_get(c->conf, &retention_options);
    const struct conf_row *rows = retention_options.rows;
    size_t longest = 0;
    char text[240];

    for (size_t i = 1; i < KEY_LEVELS; i++) {
        if (r->keep_ms[i] >= r->keep_ms[longest]) {
            longest = i;
            continue;
        }
        (void)snprintf(text, sizeof(text),
                       "retention.%s is shorter than retention.%s: a coarser level is kept at "
                       "least as long as a finer one, so it is kept as long as that; set both",
                       rows[i].name, rows[longest].name);
        c->odd(c->cookie, text);
    }
    role_check_file(c, "retention.overrides", r->overrides, check_rules);
}

void ingester_check(struct role_checks *c)
{
    const struct ingester_conf *own = conf_get(c->conf, &ingester_options);
    const struct cluster_conf *cluster = conf_get(c->conf, &cluster_options);
    const struct cold_conf *cold = conf_get(c->conf, &cold_options);
    struct rollups *rollups;
    struct err e;
    size_t at;

    role_check_listen(c, "ingester.listen", own->listen, own->advertise);
    if (strcmp(cluster->coordination, "none") == 0 && cluster->ingesters.len &&
        is_of_an_ingester(c, own) && ingester_check_index(cluster, own, &at, &e))
        role_check_said(c, "", &e);
    check_retention(c);
    if (rollups_new(conf_get(c->conf, &rollup_options), &rollups, &e))
        role_check_said(c, "", &e);
    else
        rollups_free(rollups);
    c->files += cold->url[0] && cold->s3_credentials_file[0];
    if (cold->url[0] && cold_conf_check(cold, env_real(), &e))
        role_check_said(c, "", &e);
}
