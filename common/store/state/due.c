/* SPDX-License-Identifier: Apache-2.0
 *
 * due: when nodes of 10 m and up can be built, and when the shard looks for them next.
 *
 * A look goes over all marks of level 2, so it is made only when one can be due: each mark
 * that is put says when its node will be due (build_schedule).
 */
#include "common/store/state/due.h"

#include "common/model/slot.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

/* How long late data gather, in units of build_pace_ms: what costs more waits longer. */
static const uint32_t PACE[KEY_LEVELS] = { 0, 0, 1, 2, 6, 12, 12, 12 };

int64_t dirty_due_ms(const struct store *s, uint32_t level, uint32_t t)
{
    return slot_to_ms(t) + (int64_t)LEVELS[level].node * SLOT_MS + s->o.seal_delay_ms +
           s->o.build_delay_ms;
}

int64_t build_pace_ms(const struct store *s, uint32_t level)
{
    return (int64_t)PACE[level] * s->o.build_pace_ms;
}

int64_t build_due_ms(const struct store *s, uint32_t level, uint32_t t, const struct dirty_mark *m)
{
    int64_t at = dirty_due_ms(s, level, t);

    if (m->entry)
        at = MAX(at, slot_to_ms(m->since) + build_pace_ms(s, level));
    return at;
}

uint32_t build_level_high(const struct store *s)
{
    return s->o.build_all ? KEY_LEVELS - 1 : DIRTY_FIRST;
}

void build_schedule(struct store *s, uint32_t level, int64_t due_ms)
{
    if (level <= build_level_high(s))
        s->build_look_ms = MIN(s->build_look_ms, due_ms);
}
