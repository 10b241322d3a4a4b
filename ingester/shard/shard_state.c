/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/shard/shard_state.h"

#include "common/obs/log.h"
#include "common/store/state/engine_clock.h"

/* How long it is held is an upper bound: runs before this one count. */
static void log_clock(uint32_t number, const struct store_clock *was, const struct store_clock *now)
{
    if (now->paused && !was->paused)
        log_warn("the wall clock jumped; sealing waits until it proves itself",
                 KV_U64("shard", number), KV_I64("jump_ms", now->jump_ms));
    if (now->held && !was->held && now->jump_ms > ENGINE_CLOCK_DAY_MS)
        log_warn("the wall clock is far ahead of what is stored: nothing is deleted for its age "
                 "until it has stood so for a while. Was this off for so long? If not, set the "
                 "clock before",
                 KV_U64("shard", number), KV_I64("ahead_s", now->jump_ms / 1000),
                 KV_I64("believed_in_s", engine_clock_wait_ms(now->jump_ms) / 1000));
    if (now->held && !was->held && now->jump_ms < 0)
        log_warn("the wall clock is far behind what is stored: nothing is deleted for its age. See "
                 "to the clock",
                 KV_U64("shard", number), KV_I64("behind_s", -now->jump_ms / 1000));
    if (!now->paused && was->paused)
        log_info("sealing continues", KV_U64("shard", number));
    if (!now->held && was->held)
        log_info("the wall clock is followed again", KV_U64("shard", number));
}

void shard_state_show(const struct shard_metrics *m, uint32_t number, const struct shard_state *was,
                      const struct shard_state *now)
{
    const struct store_stats *st = &now->stats;
    uint64_t files = 0;

    log_clock(number, &was->clock, &now->clock);
    for (size_t i = 0; i < KV_CFS; i++)
        files += st->kv.file_bytes[i];
    metric_set(m->raw_rows, (int64_t)st->raw_rows);
    metric_set(m->stored_series, (int64_t)st->series);
    metric_set(m->dict_nodes, (int64_t)st->dict_nodes);
    metric_set(m->dict_bytes, (int64_t)st->dict_bytes);
    metric_set(m->applied, (int64_t)st->applied);
    metric_set(m->seal_lag, (int64_t)(now->seal_lag_ms / 1000));
    metric_set(m->nodes_built, (int64_t)st->nodes_built);
    metric_set(m->marks, (int64_t)st->marks);
    metric_set(m->marks_due, (int64_t)st->marks_due);
    metric_set(m->build_lag, st->build_lag_ms / 1000);
    metric_set(m->build_lag_coarse, st->build_lag_coarse_ms / 1000);
    metric_set(m->clock_paused, now->clock.paused);
    metric_set(m->clock_held, now->clock.held);
    metric_set(m->clock_ahead, now->clock.jump_ms / 1000);
    metric_set(m->memtable_bytes, (int64_t)st->kv.memtable_bytes);
    metric_set(m->cache_bytes, (int64_t)st->kv.cache_bytes);
    metric_set(m->file_bytes, (int64_t)files);
}
