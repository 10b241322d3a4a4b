/* SPDX-License-Identifier: Apache-2.0
 *
 * division: how the shards of an ingester share its memory.
 *
 * An ingester has one shard or more than a hundred, and which ones changes at any time. Shares
 * that are given when a shard is opened are wrong from the next one on: together they pass the
 * limit, or they stay a hundredth when the others have gone. So
 *
 *   block cache, memtables   are common to all databases (common/store/kv/kv_pool.h), those of
 *                            followers as well; a thread has the largest memtables written out
 *   newest log entries       have one limit for all logs (common/repl/repl_cache.c)
 *   dictionaries, names,     belong to stores, that is, to shards that are served. Each has a
 *   hot sums, tables that    limit of its own, which is set again twice a second
 *   writes leave
 *
 * Limits of stores follow the bytes that each holds. A store at its limit wants more; a store below
 * it wants a quarter more than it has. The remainder is divided among the stores that want more
 * (shard_memory_fill). An equal part is guaranteed to each store that wants it. A busy store that
 * was lent more loses it when its owner needs it: caches drop rows that can be read again.
 *
 * When memory is short all of it is halved, or a tenth (common/role/core/memory.h), and memtables
 * are written out further, down to the last one. A process that refuses writes receives none that
 * would make RocksDB flush, and would otherwise refuse them permanently.
 *
 * Threads: the loop divides; `relieve` writes out memtables; common/role/core/memory.c's tells
 * when to shrink, and finds shards as any other thread does.
 */
#include "ingester/replicas/shard_memory.h"

#include "common/base/mem.h"
#include "common/repl/repl_node.h"
#include "common/role/core/memory.h"
#include "common/sys/chan.h"
#include "common/sys/thread.h"
#include "ingester/replicas/replicas.h"
#include "ingester/shard/shards.h"

#define TICK_MS    500
#define RELIEVE_MS 100
/* Percent of the share that memtables in use may hold, by state of the memory. */
static const unsigned memtable_percent[] = {
    [MEMORY_CALM] = 75, /* RocksDB's own mark is 87 */
    [MEMORY_SHRUNK] = 50,
    [MEMORY_REFUSING] = 10,
};
static const unsigned log_percent[] = {
    [MEMORY_CALM] = 100,
    [MEMORY_SHRUNK] = 50,
    [MEMORY_REFUSING] = 10,
};

struct shard_memory {
    struct ingester *in;
    struct kv_pool *pool;
    struct timer *timer;
    struct thread thread;
    struct chan *stop; /* NULL: no thread runs */
};

static uint64_t share(const struct shard_memory *d, enum memory_part part)
{
    return memory_share(d->in->ctx->memory_limit, part);
}

struct kv_pool *shard_memory_pool(const struct shard_memory *d)
{
    return d->pool;
}

/* ---- dividing ---- */

void shard_memory_fill(uint64_t total, const uint64_t *wants, size_t n, uint64_t *ret)
{
    uint64_t left = total;
    size_t unmet = n;

    for (size_t i = 0; i < n; i++)
        ret[i] = UINT64_MAX; /* not decided */
    /* A store that wants no more than an equal part of the rest gets it. That leaves more for the
     * others, so they are compared again. Each round decides on one store at least, or ends. */
    for (bool met = true; met && unmet;) {
        uint64_t equal = left / unmet;
        met = false;
        for (size_t i = 0; i < n; i++) {
            if (ret[i] != UINT64_MAX || wants[i] > equal)
                continue;
            ret[i] = wants[i];
            left -= wants[i];
            unmet--;
            met = true;
        }
    }
    uint64_t more = unmet ? left / unmet : left / MAX(n, 1u);
    for (size_t i = 0; i < n; i++)
        ret[i] = ret[i] == UINT64_MAX ? more : ret[i] + (unmet ? 0 : more);
}

/* Returns what a store wants that holds so much and whose limit was `had` (0: not set yet). */
static uint64_t wants(uint64_t holds, uint64_t had)
{
    return !had || holds > had / 8 * 7 ? SHARD_MEMORY_MORE : holds / 4 * 5;
}

static void divide(struct shard_memory *d, struct shard *const *all, size_t n)
{
    uint64_t want[4][SHARDS_MAX], get[4][SHARDS_MAX];
    static const enum memory_part parts[4] = { MEMORY_DICTS, MEMORY_NAMES, MEMORY_HOT,
                                               MEMORY_STAGING };

    for (size_t i = 0; i < n; i++) {
        const struct store_stats *st = &shard_state(all[i])->stats;
        struct store_shares had;
        store_shares(shard_store(all[i]), &had);
        want[0][i] = wants(st->dict_bytes, had.dict_bytes);
        want[1][i] = wants(st->names_bytes, had.names_bytes);
        want[2][i] = wants(st->hot_bytes, had.hot_bytes);
        want[3][i] = st->stage_wants;
    }
    for (size_t k = 0; k < ARRAY_LEN(parts); k++)
        shard_memory_fill(share(d, parts[k]), want[k], n, get[k]);
    for (size_t i = 0; i < n; i++)
        store_share(shard_store(all[i]),
                    &(struct store_shares){ get[0][i], get[1][i], get[2][i], get[3][i] });
}

void shard_memory_update_soon(struct shard_memory *d)
{
    struct ingester *in = d->in;
    struct shard *all[SHARDS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < shards_len(in->shards); i++)
        if (shards_at(in->shards, i))
            all[n++] = shards_at(in->shards, i);
    divide(d, all, n);
    if (in->replicas)
        replicas_log_memory(in->replicas, share(d, MEMORY_LOGS) / 100 *
                                              log_percent[memory_state(in->ctx->memory)]);
}

static void on_tick(void *cookie)
{
    shard_memory_update_soon(cookie);
}

/* ---- when memory is short ---- */

static void shrink(void *cookie, unsigned percent)
{
    const struct shard_memory *d = cookie;
    struct shard *all[SHARDS_MAX];
    struct err e;
    int n = shards_get_all(d->in->shards, NULL, 0, all, &e);

    for (int i = 0; i < n; i++)
        store_shrink(shard_store(all[i]), percent);
    if (n > 0)
        shards_put_all(d->in->shards, all, (size_t)n);
    if (d->pool)
        kv_pool_resize(d->pool, share(d, MEMORY_CACHE) / 100 * percent);
}

static void relieve(void *cookie)
{
    const struct shard_memory *d = cookie;
    void *msg;

    while (chan_wait(d->stop, &msg, 1, RELIEVE_MS) == 0) {
        enum memory_state state = memory_state(d->in->ctx->memory);
        struct kv_pool_stats st;

        kv_pool_stats(d->pool, &st);
        /* One database alone does better by RocksDB's own rule, as long as there is no hurry. */
        if (st.databases > 1 || state != MEMORY_CALM)
            (void)kv_pool_relieve(d->pool,
                                  share(d, MEMORY_MEMTABLES) / 100 * memtable_percent[state]);
    }
}

/* ---- what is in use ---- */

/* All zero where no shard is served. */
static const struct store_stats *stats_at(const struct ingester *in, size_t place)
{
    static const struct store_stats none;
    const struct shard *s = shards_at(in->shards, place);

    return s ? &shard_state(s)->stats : &none;
}

static uint64_t used_memtables(void *cookie)
{
    const struct shard_memory *d = cookie;
    struct kv_pool_stats st = { 0 };

    if (d->pool)
        kv_pool_stats(d->pool, &st);
    for (size_t i = 0; !d->pool && i < shards_len(d->in->shards); i++)
        st.memtable_bytes += stats_at(d->in, i)->kv.memtable_bytes;
    return st.memtable_bytes;
}

static uint64_t used_cache(void *cookie)
{
    const struct shard_memory *d = cookie;
    struct kv_pool_stats st = { 0 };

    if (d->pool)
        kv_pool_stats(d->pool, &st);
    for (size_t i = 0; !d->pool && i < shards_len(d->in->shards); i++)
        st.cache_bytes += stats_at(d->in, i)->kv.cache_bytes;
    return st.cache_bytes;
}

static uint64_t used_dicts(void *cookie)
{
    const struct shard_memory *d = cookie;
    uint64_t n = 0;

    for (size_t i = 0; i < shards_len(d->in->shards); i++)
        n += stats_at(d->in, i)->dict_bytes;
    return n;
}

static uint64_t used_names(void *cookie)
{
    const struct shard_memory *d = cookie;
    uint64_t n = 0;

    for (size_t i = 0; i < shards_len(d->in->shards); i++)
        n += stats_at(d->in, i)->names_bytes;
    return n;
}

static uint64_t used_hot(void *cookie)
{
    const struct shard_memory *d = cookie;
    uint64_t n = 0;

    for (size_t i = 0; i < shards_len(d->in->shards); i++)
        n += stats_at(d->in, i)->hot_bytes;
    return n;
}

static uint64_t used_staging(void *cookie)
{
    const struct shard_memory *d = cookie;
    uint64_t n = 0;

    for (size_t i = 0; i < shards_len(d->in->shards); i++)
        n += stats_at(d->in, i)->stage_bytes;
    return n;
}

static uint64_t used_logs(void *cookie)
{
    const struct shard_memory *d = cookie;

    return d->in->replicas ? replicas_log_used(d->in->replicas) : 0;
}

/* ---- life ---- */

struct shard_memory *shard_memory_new(struct ingester *in)
{
    struct shard_memory *d = XNEW(struct shard_memory);

    d->in = in;
    if (!in->ctx->kv)
        d->pool = kv_pool_new(share(d, MEMORY_CACHE), share(d, MEMORY_MEMTABLES));
    return d;
}

void shard_memory_start(struct shard_memory *d)
{
    struct memory *m = d->in->ctx->memory;

    memory_watch(m, MEMORY_MEMTABLES, used_memtables, d);
    memory_watch(m, MEMORY_CACHE, used_cache, d);
    memory_watch(m, MEMORY_DICTS, used_dicts, d);
    memory_watch(m, MEMORY_NAMES, used_names, d);
    memory_watch(m, MEMORY_HOT, used_hot, d);
    memory_watch(m, MEMORY_STAGING, used_staging, d);
    memory_watch(m, MEMORY_LOGS, used_logs, d);
    memory_on_shrink(m, shrink, d);
    d->timer = loop_timer_new(d->in->ctx->loop, on_tick, d);
    loop_timer_start(d->timer, TICK_MS, TICK_MS);
    if (!d->pool)
        return;
    d->stop = chan_new(1, NULL, NULL);
    thread_start(&d->thread, "memtables", relieve, d);
}

void shard_memory_stop(struct shard_memory *d)
{
    if (!d)
        return;
    memory_forget(d->in->ctx->memory, d);
    loop_timer_free(d->timer);
    d->timer = NULL;
    if (!d->stop)
        return;
    CHECK(chan_send(d->stop, d));
    thread_join(&d->thread);
    chan_free(d->stop);
    d->stop = NULL;
}

void shard_memory_free(struct shard_memory *d)
{
    if (!d)
        return;
    kv_pool_free(d->pool);
    xfree(d);
}
