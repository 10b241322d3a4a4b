/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_scratch: counts and frees the tables that requests leave for the next ones of their shard.
 *
 * Staging needs tables as large as the request. To allocate them for each request costs more than
 * to fill them, so they stay; but one large request must not hold memory for hours. The kept tables
 * are within the shard's share of memory, count in its account, and shrink by a part in each turn
 * without requests as large.
 *
 * Thread: the shard's.
 */
#include "common/store/write/stage_scratch.h"

#include "common/base/mem.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define WANTED_FALLS 8 /* by this part of it in a turn without requests as large */

struct stage *stage_new(void)
{
    return XNEW(struct stage);
}

void stage_free(struct stage *x)
{
    if (!x)
        return;
    stage_fold_deinit(&x->fold);
    stage_sort_deinit(&x->order);
    xfree(x);
}

static size_t order_bytes(const struct stage_sort *x)
{
    return x->seen.cap * sizeof(*x->seen.ptr) + x->place.cap * sizeof(*x->place.ptr) +
           x->id.cap * sizeof(*x->id.ptr) + x->spread.cap * sizeof(*x->spread.ptr) +
           x->some_ids.cap * sizeof(*x->some_ids.ptr) +
           x->some_values.cap * sizeof(*x->some_values.ptr);
}

static size_t scratch_bytes(const struct dict_scratch *x)
{
    return (x->string_map.cap + x->frame_map.cap + x->node_map.cap + x->string_off.cap) *
               sizeof(uint32_t) +
           x->used.cap + x->row.cap;
}

static size_t sum_bytes(const struct sum *x)
{
    return (x->keys.cap + x->values.cap + x->room.cap + x->sums.cap) * sizeof(uint64_t) +
           x->ids.cap * sizeof(*x->ids.ptr);
}

size_t stage_scratch_bytes(const struct store *s)
{
    return order_bytes(&s->stage->order) + scratch_bytes(&s->scratch) + sum_bytes(&s->sum) +
           s->stage->fold.sums.cap * sizeof(*s->stage->fold.sums.ptr) +
           s->stage->fold.used.cap * sizeof(*s->stage->fold.used.ptr) + s->row.cap + s->text.cap;
}

size_t stage_scratch_max(const struct store *s)
{
    uint64_t share = atomic_load_explicit(&s->share_stage, memory_order_relaxed);
    uint64_t percent = atomic_load_explicit(&s->shrunk_to, memory_order_relaxed);

    if (!share)
        return SIZE_MAX;
    return (size_t)(percent ? share / 100 * percent : share);
}

static void free_all(struct store *s)
{
    uint64_t saturated = s->sum.saturated;

    stage_sort_deinit(&s->stage->order);
    stage_fold_deinit(&s->stage->fold);
    dict_scratch_deinit(&s->scratch);
    dict_scratch_init(&s->scratch);
    sum_deinit(&s->sum);
    sum_init(&s->sum);
    s->sum.saturated = saturated;
    buf_deinit(&s->row);
    buf_init(&s->row, STORE_ROW_MAX);
    buf_deinit(&s->text);
    buf_init(&s->text, STORE_TEXT_MAX);
}

static void say(struct store *s)
{
    atomic_store_explicit(&s->stage_bytes, stage_scratch_bytes(s), memory_order_relaxed);
}

void stage_scratch_end(struct store *s)
{
    size_t holds = stage_scratch_bytes(s);

    s->stage->room.used = true;
    s->stage->room.high = MAX(s->stage->room.high, holds + s->stage->order.declined);
    if (holds > stage_scratch_max(s))
        free_all(s);
    say(s);
}

void stage_scratch_trim(struct store *s)
{
    uint64_t wants = atomic_load_explicit(&s->stage_wants, memory_order_relaxed);

    wants = MAX(s->stage->room.high, wants - (wants + WANTED_FALLS - 1) / WANTED_FALLS);
    atomic_store_explicit(&s->stage_wants, wants, memory_order_relaxed);
    if (!s->stage->room.used || stage_scratch_bytes(s) > stage_scratch_max(s))
        free_all(s);
    s->stage->room = (struct stage_scratch){ 0 };
    say(s);
}
