/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_watch.h: notices a disk that hangs: it neither finishes an operation nor fails it.
 *
 * Thread: the loop's, which does no disk I/O.
 */
#ifndef INGESTER_BASE_DISK_WATCH_H
#define INGESTER_BASE_DISK_WATCH_H

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/obs/metrics.h"
#include "common/sys/loop.h"

#define DISK_WATCH_WORDS 128
struct disk_watch;

struct disk_watch_opts {
    struct loop *loop;
    struct metrics *metrics;
    const char *dir;   /* the data folder, for texts; outlives the watch */
    uint64_t limit_ms; /* ingester.disk_timeout; 0: nothing is noticed */
    /* Calls disk_watch_note for what waits for the disk now. */
    void (*look)(void *cookie, struct disk_watch *w);
    /* The disk hangs, or answers again. */
    void (*changed)(void *cookie, bool hangs);
    void *cookie;
};
struct disk_watch *disk_watch_new(const struct disk_watch_opts *o);
void disk_watch_free(struct disk_watch *w); /* NULL is fine */

/* Inside `look`: the disk has finished no operation of this kind for so long, although some wait;
 * 0: none waits. `what` is a noun such as "the replication log", and static. */
void disk_watch_note(struct disk_watch *w, const char *what, uint32_t shard, uint64_t age_ms);

/* Does it hang now? */
bool disk_watch_hangs(const struct disk_watch *w);
/* It hangs, or did less than a minute ago: other members should lead. */
bool disk_watch_suspects(const struct disk_watch *w);
/* `code` with the reason while it hangs, 0 otherwise. */
int disk_watch_check(const struct disk_watch *w, int code, struct err *e);
/* The same in words that do not change while it lasts; "" while it does not hang. */
void disk_watch_words(const struct disk_watch *w, char ret[DISK_WATCH_WORDS]);
void disk_watch_ring(const struct disk_watch *w, struct json *j); /* "diskHangs": {...} or null */

#endif
