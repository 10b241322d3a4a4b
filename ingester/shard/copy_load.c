/* SPDX-License-Identifier: Apache-2.0
 *
 * weigh: a line per copy: where its log was, a rate that follows it slowly, what it stores.
 *
 * The rate is that of the log, not of requests. It is the same for all copies, so the next leader
 * of a shard has already reported the load that it will have. The average is as slow as in
 * top_services.c, and is reported with two digits, so that the controller moves no leader for a
 * burst or a fluctuation.
 */
#include "ingester/shard/copy_load.h"

#include "common/base/mem.h"
#include "ingester/shard/shards.h"

#define SLOW_MS     30000 /* after so long a rate is two thirds of the new one */
#define TURNS_LEAST 16    /* periods from one time that a database is asked to the next */

struct line {
    uint32_t shard;
    bool used, seen; /* seen: in this period */
    bool begun;      /* `was` is known */
    uint64_t was, rate, bytes;
};
struct copy_load {
    struct line at[SHARDS_MAX];
    uint32_t turn; /* of the line that is asked next what it stores */
};

struct copy_load *copy_load_new(void)
{
    return XNEW(struct copy_load);
}

void copy_load_free(struct copy_load *w)
{
    xfree(w);
}

static struct line *line_of(struct copy_load *w, uint32_t shard, bool add)
{
    struct line *room = NULL;

    for (uint32_t i = 0; i < SHARDS_MAX; i++) {
        if (w->at[i].used && w->at[i].shard == shard)
            return &w->at[i];
        if (!w->at[i].used && !room)
            room = &w->at[i];
    }
    if (!add || !room)
        return NULL;
    *room = (struct line){ .shard = shard, .used = true };
    return room;
}

static uint64_t two_digits(uint64_t n)
{
    uint64_t scale = 1;

    while (n / scale >= 100)
        scale *= 10;
    return n / scale * scale;
}

void copy_load_report(struct copy_load *w, uint64_t appended, uint64_t ms,
                      struct progress_shard *ret)
{
    struct line *l = line_of(w, ret->shard, true);
    uint64_t now;

    if (!l)
        return;
    ms = MIN(MAX(ms, UINT64_C(1)), (uint64_t)SLOW_MS);
    /* Fewer bytes than before: the log was reopened. */
    now = l->begun && appended >= l->was ? (appended - l->was) * 1000 / ms : 0;
    l->rate = (l->rate * (SLOW_MS - ms) + now * ms) / SLOW_MS;
    l->was = appended;
    l->seen = l->begun = true;
    ret->rate = two_digits(l->rate);
    ret->bytes = l->bytes;
}

bool copy_load_turn(struct copy_load *w, uint32_t shard)
{
    const struct line *l = line_of(w, shard, false);

    return l && l == &w->at[w->turn];
}

void copy_load_stored(struct copy_load *w, uint32_t shard, uint64_t bytes)
{
    struct line *l = line_of(w, shard, false);

    if (l)
        l->bytes = two_digits(bytes);
}

void copy_load_end(struct copy_load *w)
{
    uint32_t turns = TURNS_LEAST;

    for (uint32_t i = 0; i < SHARDS_MAX; i++) {
        if (!w->at[i].seen)
            w->at[i] = (struct line){ .used = false };
        else
            turns = MAX(turns, i + 1);
        w->at[i].seen = false;
    }
    w->turn = (w->turn + 1) % turns;
}
