/* SPDX-License-Identifier: Apache-2.0
 *
 * disk: asks the file system on a pool thread, since a sick one can take seconds to answer; the
 * loop only keeps the last answer. A failed question keeps the last answer too: that the volume
 * cannot be asked is no reason to refuse writes, the write itself will tell.
 */
#include "ingester/base/disk.h"

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "ingester/base/reserve_file.h"

#define DISK_EVERY_MS 1000
#define DISK_SOON_MS  100 /* below twice the reserve: a burst may fill it within a second */

struct disk {
    struct disk_opts o;
    struct timer *timer;
    uint64_t reserve;
    uint64_t free_bytes;
    uint64_t looks;
    bool full;
    uint32_t every_ms;
    bool asking;
    bool spared; /* the pool job's, as what follows, while asking */
    uint64_t asked_free;
    int asked_code;
    struct err asked_err;
    void (*drained)(void *cookie);
    void *drained_cookie;
};

uint64_t disk_reserve_auto(uint64_t volume_bytes)
{
    uint64_t part = volume_bytes / 50;

    return part < 64 * MIB ? 64 * MIB : part > GIB ? GIB : part;
}

static void take_answer(struct disk *d, uint64_t free_bytes)
{
    bool full = free_bytes < (d->full ? d->reserve + d->reserve / 10 : d->reserve);

    if (full != d->full) {
        if (full)
            log_error("disk reserve reached: writes are refused until space is freed",
                      KV_U64("free_bytes", free_bytes), KV_U64("reserve_bytes", d->reserve),
                      KV_CSTR("dir", d->o.dir));
        else
            log_info("disk space is back: writes are taken again", KV_U64("free_bytes", free_bytes),
                     KV_CSTR("dir", d->o.dir));
    }
    d->full = full;
    d->every_ms = free_bytes / 2 < d->reserve ? DISK_SOON_MS : DISK_EVERY_MS;
    d->free_bytes = free_bytes;
    metric_set(d->o.metrics->disk_free, (int64_t)free_bytes);
}

static void ask(void *cookie)
{
    struct disk *d = cookie;
    uint64_t total;

    d->asked_code = d->o.fs->space(d->o.fs, d->o.dir, &d->asked_free, &total, &d->asked_err);
    if (!d->asked_code && d->o.spare && !d->spared)
        d->spared = reserve_file_keep(d->o.dir, d->reserve, d->asked_free);
}

static void asked(void *cookie)
{
    struct disk *d = cookie;

    d->asking = false;
    if (d->asked_code)
        log_warn("cannot tell the free disk space", KV_ERR(&d->asked_err));
    else
        take_answer(d, d->asked_free);
    d->looks++;
    if (d->drained)
        d->drained(d->drained_cookie);
    else
        loop_timer_start(d->timer, d->every_ms, 0);
}

static void on_timer(void *cookie)
{
    struct disk *d = cookie;

    d->asking = pool_submit(d->o.pool, d->o.loop, ask, asked, d);
    if (!d->asking)
        loop_timer_start(d->timer, d->every_ms, 0);
}

int disk_new(const struct disk_opts *o, struct disk **ret, struct err *e)
{
    uint64_t total, left;
    struct disk *d;
    int code = o->fs->space(o->fs, o->dir, &left, &total, e);

    if (code)
        return err_wrap(e, "data.disk_reserve");
    d = XNEW(struct disk);
    d->o = *o;
    d->reserve = o->reserve ? o->reserve : disk_reserve_auto(total);
    metric_set(o->metrics->disk_reserve, (int64_t)d->reserve);
    take_answer(d, left);
    d->timer = loop_timer_new(o->loop, on_timer, d);
    loop_timer_start(d->timer, d->every_ms, 0);
    *ret = d;
    return 0;
}

int disk_check(const struct disk *d, struct err *e)
{
    if (!d->full)
        return 0;
    return err_set(e, ERR_NO_SPACE,
                   "disk reserve reached: %" PRIu64 " MiB free, %" PRIu64
                   " MiB are kept free (data.disk_reserve); free some space",
                   d->free_bytes / MIB, d->reserve / MIB);
}

void disk_room(const struct disk *d, uint64_t *ret_free, uint64_t *ret_reserve)
{
    *ret_free = d->free_bytes;
    *ret_reserve = d->reserve;
}

void disk_look(struct disk *d)
{
    if (!d->asking)
        loop_timer_start(d->timer, 0, 0);
}

uint64_t disk_looks(const struct disk *d)
{
    return d->looks;
}

void disk_drain(struct disk *d, void (*done)(void *cookie), void *cookie)
{
    loop_timer_stop(d->timer);
    if (!d->asking) {
        loop_post(d->o.loop, done, cookie);
        return;
    }
    d->drained = done;
    d->drained_cookie = cookie;
}

void disk_free(struct disk *d)
{
    if (!d)
        return;
    CHECK(!d->asking);
    loop_timer_free(d->timer);
    xfree(d);
}
