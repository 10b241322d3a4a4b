/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_watch: four times a second the loop asks, of each shard, how long its log, its database and
 * its committer have finished nothing although operations wait for them. The longest of these ages
 * decides.
 *
 *   ANSWERS ──(an age reaches the limit)──> HANGS ──(all ages are below it)──> SUSPECT
 *      ^                                      ^                                  │  │
 *      │                                      └──────(the limit again)───────────┘  │
 *      └────────────(no age of half the limit for CALM_MS)──────────────────────────┘
 *
 * A slow disk does not count as hanging: an age restarts with each operation that ends, so a disk
 * that needs three seconds for every fsync never has an age of five. A disk that needs seven has
 * one. Its node hands its leads over once and gets none back while it stays so slow: this is the
 * state SUSPECT.
 *
 * A process that was stopped for a while (SIGSTOP, a suspended machine, a starved one) finds old
 * ages when it runs again, which say nothing of the disk. So does a loop that was kept busy. After
 * a tick that came late the ages count only if they stay for as long as the limit once more.
 */
#include "ingester/base/disk_watch.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"

#define TICK_MS UINT64_C(250)
#define LATE_MS 1000 /* a tick that comes so late: the process did not run */
#define CALM_MS 60000

struct disk_watch {
    struct disk_watch_opts o;
    struct timer *timer;
    uint64_t tick_ms;  /* the last one, monotonic */
    uint64_t since_ms; /* nothing counts that is older; 0: everything counts */
    uint64_t age_ms;   /* the longest of this look */
    const char *what;
    uint32_t shard;
    bool waits; /* something does, in this look */
    bool hangs;
    uint64_t began_ms, suspect_until_ms;
    struct metric_cell *m_age, *m_hangs;
};

static uint64_t now_ms(const struct disk_watch *w)
{
    return clock_mono_ms(loop_clock(w->o.loop));
}

void disk_watch_note(struct disk_watch *w, const char *what, uint32_t shard, uint64_t age_ms)
{
    w->waits |= age_ms > 0;
    if (w->since_ms)
        age_ms = MIN(age_ms, now_ms(w) - w->since_ms);
    if (age_ms <= w->age_ms)
        return;
    w->age_ms = age_ms;
    w->what = what;
    w->shard = shard;
}

static void set(struct disk_watch *w, bool hangs)
{
    w->hangs = hangs;
    if (hangs) {
        w->began_ms = now_ms(w) - w->age_ms;
        metric_add(w->m_hangs, 1);
        log_error("the disk hangs: it neither finishes nor fails what it was given. Look at the "
                  "disk and at the system's log",
                  KV_U64("for_ms", w->age_ms), KV_CSTR("waits", w->what), KV_U64("shard", w->shard),
                  KV_CSTR("dir", w->o.dir));
    } else {
        log_warn("the disk answers again", KV_U64("after_ms", now_ms(w) - w->began_ms),
                 KV_CSTR("dir", w->o.dir));
    }
    w->o.changed(w->o.cookie, hangs);
}

static void on_tick(void *cookie)
{
    struct disk_watch *w = cookie;
    uint64_t now = now_ms(w);

    if (now - w->tick_ms > TICK_MS + LATE_MS)
        w->since_ms = now;
    w->tick_ms = now;
    w->age_ms = 0;
    w->waits = false;
    w->o.look(w->o.cookie, w);
    if (!w->waits) /* everything that waited when it slept has ended */
        w->since_ms = 0;
    metric_set(w->m_age, (int64_t)(w->age_ms / 1000));
    if ((w->age_ms >= w->o.limit_ms) != w->hangs)
        set(w, !w->hangs);
    if (w->hangs || (w->suspect_until_ms && w->age_ms >= w->o.limit_ms / 2))
        w->suspect_until_ms = now + CALM_MS;
    if (now >= w->suspect_until_ms)
        w->suspect_until_ms = 0;
}

struct disk_watch *disk_watch_new(const struct disk_watch_opts *o)
{
    struct disk_watch *w = XNEW(struct disk_watch);

    w->o = *o;
    w->tick_ms = now_ms(w);
    w->m_age =
        metric_at(metric_new(o->metrics, METRIC_GAUGE, "embertree_ingester_disk_stalled_seconds",
                             "How long the disk has finished nothing although something "
                             "waits for it",
                             NULL),
                  NULL, 0);
    w->m_hangs =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_ingester_disk_hangs_total",
                             "Times the disk finished nothing for ingester.disk_timeout", NULL),
                  NULL, 0);
    if (!o->limit_ms)
        return w;
    w->timer = loop_timer_new(o->loop, on_tick, w);
    loop_timer_start(w->timer, TICK_MS, TICK_MS);
    return w;
}

void disk_watch_free(struct disk_watch *w)
{
    if (!w)
        return;
    loop_timer_free(w->timer);
    xfree(w);
}

bool disk_watch_hangs(const struct disk_watch *w)
{
    return w->hangs;
}

bool disk_watch_suspects(const struct disk_watch *w)
{
    return w->suspect_until_ms != 0;
}

int disk_watch_check(const struct disk_watch *w, int code, struct err *e)
{
    if (!w->hangs)
        return 0;
    return err_set(e, code,
                   "the disk of %.300s hangs: it has finished nothing for %" PRIu64
                   " s, and %s of shard %" PRIu32 " waits for it; look at the disk",
                   w->o.dir, (now_ms(w) - w->began_ms) / 1000, w->what, w->shard);
}

void disk_watch_words(const struct disk_watch *w, char ret[DISK_WATCH_WORDS])
{
    ret[0] = '\0';
    if (w->hangs)
        (void)snprintf(ret, DISK_WATCH_WORDS,
                       "its disk hangs: %s of shard %" PRIu32 " waits for it", w->what, w->shard);
}

void disk_watch_ring(const struct disk_watch *w, struct json *j)
{
    json_key(j, "diskHangs");
    if (!w->hangs) {
        json_null(j);
        return;
    }
    json_obj(j);
    json_put_u64(j, "forMs", now_ms(w) - w->began_ms);
    json_put_cstr(j, "waits", w->what);
    json_put_u64(j, "shard", w->shard);
    json_obj_end(j);
}
