/* SPDX-License-Identifier: Apache-2.0
 *
 * as_made: the first map that is seen, beside the options. Those that have their default say
 * nothing: a node that joins need not know them.
 */
#include "ingester/base/config_drift.h"

#include "common/base/mem.h"
#include "common/obs/log.h"

#define SHARDS_DEFAULT   1
#define REPLICAS_DEFAULT 3

struct config_drift {
    struct view *view;
    const struct cluster_conf *conf;
    bool told;
};

static void on_view(void *cookie)
{
    struct config_drift *a = cookie;
    int64_t rev;
    const struct map *m = view_map(a->view, &rev);

    if (a->told || !m)
        return;
    a->told = true;
    if (a->conf->shards != SHARDS_DEFAULT && a->conf->shards != m->shards)
        log_warn("cluster.shards does nothing: a cluster keeps the number it was made with",
                 KV_U64("set", a->conf->shards), KV_U64("has", m->shards));
    if (a->conf->replicas != REPLICAS_DEFAULT && a->conf->replicas != m->replicas)
        log_warn("cluster.replicas does nothing: a cluster keeps the number it was made with",
                 KV_U64("set", a->conf->replicas), KV_U64("has", m->replicas));
}

struct config_drift *config_drift_new(struct view *view, const struct cluster_conf *conf)
{
    struct config_drift *a = XNEW(struct config_drift);

    a->view = view;
    a->conf = conf;
    view_watch(view, on_view, a);
    on_view(a);
    return a;
}

void config_drift_free(struct config_drift *a)
{
    if (!a)
        return;
    view_unwatch(a->view, on_view, a);
    xfree(a);
}
