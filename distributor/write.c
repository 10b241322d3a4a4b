/* SPDX-License-Identifier: Apache-2.0
 *
 * write: send, wait, send again.
 *
 *   start ──> rpc_send ──ok──────────────────────────────────────> done
 *                │  ERR_UNAVAILABLE, ERR_TIMEOUT, and time is left
 *                └──> pause (50 ms, doubling, with jitter) ──> pack again on the pool ──> rpc_send
 *                   any other error, or no time is left ─────────> done
 *
 * The message is given away to rpc with each attempt, since keeping a copy would double the memory
 * of every push for the sake of the rare one that is repeated; packing it again costs what a copy
 * costs, a little later. A repeated write has the same write ids: whether the first attempt was
 * stored (its answer may have been lost) does not matter.
 *
 * An ingester that says it is busy is not asked again: the client is, with Retry-After, later.
 */
#include "distributor/write.h"

#include "distributor/pack.h"

#define PAUSE_FIRST_MS 50
#define PAUSE_MOST_MS  1000
#define NS_PER_MS      UINT64_C(1000000)

static void attempt(struct write *w);

static uint64_t left_ms(const struct write *w)
{
    uint64_t now = clock_mono_ns(w->d->ctx->env->clock);

    return now < w->deadline_ns ? (w->deadline_ns - now) / NS_PER_MS : 0;
}

static void finish(struct write *w, uint64_t duplicates, const struct err *e)
{
    uint64_t ns = clock_mono_ns(w->d->ctx->env->clock) - w->began_ns;

    loop_timer_free(w->timer);
    w->timer = NULL;
    buf_deinit(&w->message);
    if (!e)
        metric_observe(w->d->metrics.ack_seconds, (double)ns / 1e9);
    w->done(w->cookie, duplicates, e);
}

static void pack_work(void *cookie)
{
    struct write *w = cookie;

    err_clear(&w->err);
    buf_init(&w->message, (size_t)w->d->ctx->cluster->rpc_message_bytes_max);
    if (w->pack(w->cookie, &w->message, &w->err))
        buf_deinit(&w->message);
}

static void pack_done(void *cookie)
{
    struct write *w = cookie;

    if (w->err.code)
        finish(w, 0, &w->err);
    else
        attempt(w);
}

/* Half to all of the pause, so that many pushes do not come back at one instant. */
static uint64_t pause_ms(struct write *w)
{
    uint64_t ms = PAUSE_FIRST_MS;

    for (uint32_t i = 1; i < w->attempts && ms < PAUSE_MOST_MS; i++)
        ms *= 2;
    ms = MIN(ms, PAUSE_MOST_MS);
    return ms / 2 + prng_below(&w->d->prng, ms / 2 + 1);
}

static void on_pause(void *cookie)
{
    struct write *w = cookie;

    metric_add(w->d->metrics.retries, 1);
    if (!pool_submit(w->d->ctx->pool, w->d->ctx->loop, pack_work, pack_done, w))
        loop_timer_start(w->timer, PAUSE_FIRST_MS, 0); /* the pool is busy: a little later */
}

static void on_error(struct write *w, const struct err *e)
{
    bool again = e->code == ERR_UNAVAILABLE || e->code == ERR_TIMEOUT;
    uint64_t ms = pause_ms(w);

    w->err = *e;
    if (again && left_ms(w) > ms) {
        if (!w->timer)
            w->timer = loop_timer_new(w->d->ctx->loop, on_pause, w);
        loop_timer_start(w->timer, ms, 0);
        return;
    }
    if (again) /* to the client both are: not stored as far as we know, send it again */
        err_set(&w->err, ERR_UNAVAILABLE,
                "the push could not be stored in time (%" PRIu32 " attempts): %s", w->attempts,
                e->text);
    finish(w, 0, &w->err);
}

static void on_reply(void *cookie, struct str reply, const struct err *e)
{
    struct write *w = cookie;
    uint64_t duplicates;
    struct err why;

    if (e)
        on_error(w, e);
    else if (unpack_write_reply(reply, &duplicates, &why))
        finish(w, 0, &why);
    else
        finish(w, duplicates, NULL);
}

static void attempt(struct write *w)
{
    struct distributor *d = w->d;
    struct rpc_peer *peer = d->peers[w->shard % d->peers_len];
    uint64_t ms = MIN(left_ms(w), d->conf->attempt_ms);

    w->attempts++;
    metric_add(d->metrics.message_bytes, w->message.len);
    rpc_send(peer, RPC_WRITE, &w->message, MAX(ms, 1), on_reply, w);
}

void write_start(struct write *w, struct buf *message)
{
    w->began_ns = clock_mono_ns(w->d->ctx->env->clock);
    buf_init(&w->message, message->max);
    buf_move(&w->message, message);
    attempt(w);
}
