/* SPDX-License-Identifier: Apache-2.0
 *
 * chores: one step of one chore a turn, in order, so that a busy chore does not delay the others. A
 * chore that fails is tried again after a second, so its steps must be safe to repeat. An idle
 * chore is asked again after the time that its wait_ms returned, at most a second.
 */
#include "ingester/shard/shard_jobs.h"

#include <stdio.h>

#include "common/obs/log.h"
#include "common/store/build/build.h"
#include "common/store/exemplar/exm.h"
#include "common/store/ledger/acks.h"
#include "common/store/mask/tomb.h"
#include "common/store/retain/retain.h"

#define RETRY_MS    1000
#define WAIT_MAX_MS 1000 /* a seal may make work before wait_ms ends */

/* Rows of children added up, or of floors and purges looked at, in a step. */
#define BUILD_ROWS  4096
#define RETAIN_ROWS 256
#define PURGE_ROWS  1024

static int build(struct store *s, bool *ret_more, struct err *e)
{
    return store_build(s, BUILD_ROWS, ret_more, e);
}

static uint64_t build_wait(struct store *s)
{
    return store_build_wait_ms(s);
}

static int retain(struct store *s, bool *ret_more, struct err *e)
{
    return store_retain(s, RETAIN_ROWS, ret_more, e);
}

static uint64_t retain_wait(struct store *s)
{
    return store_retain_wait_ms(s);
}

static int purge(struct store *s, bool *ret_more, struct err *e)
{
    return store_purge(s, PURGE_ROWS, ret_more, e);
}

const struct chore chore_table[] = {
    { "build", build, build_wait },
    { "marks", store_build_watch, store_build_watch_ms },
    { "retention", retain, retain_wait },
    { "exemplars", store_exemplars_retain, store_exemplars_retain_ms },
    { "deletes", purge, store_purge_wait_ms },
    { "acks", store_acks_drop, store_acks_drop_ms },
    { NULL, NULL, NULL }, /* C has no empty tables */
};
const size_t chore_count = ARRAY_LEN(chore_table) - 1;

static const double SECONDS[] = { 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10 };

void shard_jobs_init(struct shard_jobs *c, struct store *s, uint32_t shard, struct metrics *m)
{
    *c = (struct shard_jobs){ .store = s, .shard = shard };
    static_assert(ARRAY_LEN(chore_table) - 1 <= SHARD_JOBS_MAX, "make CHORES_MAX larger");
    for (size_t i = 0; i < chore_count; i++) {
        struct str label = str_c(chore_table[i].name);
        c->at[i].steps =
            metric_at(metric_new(m, METRIC_COUNTER, "embertree_ingester_chore_steps_total",
                                 "Steps of background work", "chore"),
                      &label, 1);
        c->at[i].errors =
            metric_at(metric_new(m, METRIC_COUNTER, "embertree_ingester_chore_errors_total",
                                 "Steps that failed, and are tried again", "chore"),
                      &label, 1);
        c->at[i].seconds = metric_at(metric_new_histogram(m, "embertree_ingester_chore_seconds",
                                                          "One step of background work", "chore",
                                                          SECONDS, ARRAY_LEN(SECONDS)),
                                     &label, 1);
    }
}

static void step(struct shard_jobs *c, size_t i, struct cold_wait *far, const struct clock *clock)
{
    const struct chore *chore = &chore_table[i];
    struct chore_state *at = &c->at[i];
    uint64_t began = clock_mono_ns(clock), wait;
    struct err e = { 0 };

    at->more = false;
    cold_wait_begin(far);
    int code = chore->step(c->store, &at->more, &e);
    bool waits = cold_wait_end(far, code);
    uint64_t now = clock_mono_ns(clock);
    metric_observe(at->seconds, (double)(now - began) / 1e9);
    metric_add(at->steps, 1);
    if (waits) {
        at->more = false;
        wait = MAX(cold_wait_wait(far, now / 1000000), (uint64_t)RETRY_MS);
        if (cold_wait_told(far))
            log_warn("background work waits for the cold tier", KV_CSTR("chore", chore->name),
                     KV_U64("shard", c->shard), KV_ERR(&e));
    } else if (code) {
        if (code == ERR_UNAVAILABLE) { /* handed over: the new leader does it */
            log_debug("background work ended with the lead", KV_CSTR("chore", chore->name),
                      KV_U64("shard", c->shard));
        } else {
            metric_add(at->errors, 1);
            log_error("background work failed; it is tried again", KV_CSTR("chore", chore->name),
                      KV_U64("shard", c->shard), KV_ERR(&e));
        }
        at->more = false;
        wait = RETRY_MS;
    } else {
        wait = at->more ? 0 : MIN(chore->wait_ms(c->store), WAIT_MAX_MS);
    }
    at->look_ms = now / 1000000 + wait;
}

void shard_jobs_step(struct shard_jobs *c, struct cold_wait *far, const struct clock *clock)
{
    uint64_t now_ms = clock_mono_ms(clock);

    if (store_read_only(c->store))
        return;
    for (size_t n = 0; n < chore_count; n++) {
        size_t i = c->next + n < chore_count ? c->next + n : c->next + n - chore_count;
        struct chore_state *at = &c->at[i];
        if (at->look_ms > now_ms)
            continue;
        uint64_t wait = at->more ? 0 : chore_table[i].wait_ms(c->store);
        if (wait) {
            at->look_ms = now_ms + MIN(wait, WAIT_MAX_MS);
            continue;
        }
        c->next = i + 1 < chore_count ? i + 1 : 0;
        step(c, i, far, clock);
        return;
    }
}

uint64_t shard_jobs_wait(const struct shard_jobs *c, uint64_t now_ms)
{
    uint64_t wait = WAIT_MAX_MS;

    if (store_read_only(c->store))
        return wait;
    for (size_t i = 0; i < chore_count; i++)
        wait = MIN(wait, c->at[i].look_ms > now_ms ? c->at[i].look_ms - now_ms : 0);
    return wait;
}
