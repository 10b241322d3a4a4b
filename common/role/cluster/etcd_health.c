/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_health: looks every two seconds.
 *
 *   FINE ──no answer for AWAY_MS─────> AWAY        each change of state is a line in the log, and
 *     └──refuses for TICKS looks──> REFUSES        those that are no good again every AGAIN_MS
 */
#include "common/role/cluster/etcd_health.h"

#include "common/base/mem.h"
#include "common/cluster/coord/coord_etcd.h"
#include "common/obs/log.h"

#define LOOK_MS  2000
#define TICKS    2 /* a member that is elected, or goes, refuses for a moment */
#define AWAY_MS  10000
#define AGAIN_MS 600000

enum state { FINE, AWAY, REFUSES };

struct etcd_health {
    struct loop *loop;
    const struct coord *coord;
    const struct view *view;
    struct timer *timer;
    struct metric_cell *refused;
    enum state state;
    uint32_t ticks;
    uint64_t said_ms;
};

static enum state look(struct etcd_health *h)
{
    h->ticks = coord_etcd_refused(h->coord)[0] ? h->ticks + 1 : 0;
    metric_set(h->refused, h->ticks > 0);
    if (view_age_ms(h->view) > AWAY_MS)
        return AWAY;
    return h->ticks >= TICKS ? REFUSES : FINE;
}

static void say(enum state s, const struct etcd_health *h)
{
    struct str why = str_c(s == REFUSES ? coord_etcd_refused(h->coord) : view_why(h->view));

    switch (s) {
    case FINE:
        log_info("etcd is as it should be again", KV_U64("age_ms", view_age_ms(h->view)));
        break;
    case AWAY:
        log_warn("etcd is unreachable. Pushes and queries continue with the last known cluster "
                 "state; no shard changes its leader, no node joins and no shard moves until etcd "
                 "is back",
                 KV_U64("seconds", view_age_ms(h->view) / 1000), KV_STR("why", why));
        break;
    case REFUSES:
        log_error("etcd answers, and refuses changes. Pushes and queries continue; no shard "
                  "changes its leader, no node joins and no shard moves until etcd is repaired",
                  KV_STR("why", why));
        break;
    }
}

static void on_timer(void *cookie)
{
    struct etcd_health *h = cookie;
    enum state s = look(h);
    uint64_t now = clock_mono_ms(loop_clock(h->loop));

    if (s == h->state && (s == FINE || now - h->said_ms < AGAIN_MS))
        return;
    h->state = s;
    h->said_ms = now;
    say(s, h);
}

struct etcd_health *etcd_health_new(struct loop *loop, const struct coord *coord,
                                    const struct view *view, struct metrics *metrics)
{
    struct etcd_health *h = XNEW(struct etcd_health);

    h->loop = loop;
    h->coord = coord;
    h->view = view;
    h->refused = metric_at(metric_new(metrics, METRIC_GAUGE, "embertree_cluster_refused",
                                      "1: the coordination service answers, and refused the last "
                                      "change this process wanted",
                                      NULL),
                           NULL, 0);
    h->timer = loop_timer_new(loop, on_timer, h);
    loop_timer_start(h->timer, LOOK_MS, LOOK_MS);
    return h;
}

bool etcd_health_refuses(const struct etcd_health *h)
{
    return h->state == REFUSES;
}

void etcd_health_free(struct etcd_health *h)
{
    if (!h)
        return;
    loop_timer_free(h->timer);
    xfree(h);
}
