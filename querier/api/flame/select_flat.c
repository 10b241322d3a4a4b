/* SPDX-License-Identifier: Apache-2.0
 *
 * select_flat: vectors are of leaves of 10 s, so a merge says what a call site cost by leaf, and
 * not in which slot of 5 s the pushes of the leaf began. Points of whole profiles say that: the sum
 * of a leaf is divided between its slots as the whole profiles are, and each part is spread over
 * the slots that a push covers:
 *
 *     leaf           |   sum of the site: 30   |
 *     whole profiles |  start 40  |  start 20  |           30 is 20 and 10
 *     window of 2    |     10     |   10 + 5   |     5     |
 *
 * Every unit is in exactly one slot, and steady load is a flat line at every step. The window is
 * that of the service and type in the store. It is not sent, so it is found by trying 1, 2 and 3
 * slots: with the right window, the sums of whole profiles by start give their spread sums.
 * Ingesters that do not spread give the same sums for both questions, so the window is 1. For a
 * group of services with different windows, the window that fits best is taken: the line of the
 * group is smooth, not flat.
 */
#include "querier/api/flame/select_flat.h"

#include "common/base/size.h"
#include "querier/select/exemplars.h"

bool flat_leaves(const struct plan_grid *g, struct plan_grid *ret)
{
    int64_t from = g->origin_ms - g->step_ms + 1, to = g->origin_ms + (g->points - 1) * g->step_ms;

    if (from - SLOT_EPOCH_MS <= FLAT_WINDOW_MAX * LEAF_MS)
        return false;
    /* Pushes of the slots before the range reach into it. */
    from -= (FLAT_WINDOW_MAX - 1) * SLOT_MS;
    from -= (from - SLOT_EPOCH_MS) % LEAF_MS;
    to -= (to - SLOT_EPOCH_MS) % LEAF_MS;
    if (to < from || (to - from) / LEAF_MS >= UINT32_MAX / 2)
        return false;
    /* Point k is (origin + (k - 1) step, origin + k step]. */
    *ret = (struct plan_grid){ from + LEAF_MS - 1, LEAF_MS, (uint32_t)((to - from) / LEAF_MS) + 1 };
    return true;
}

void flat_bounds(const struct plan_grid *g, int64_t *ret_start_ms, int64_t *ret_end_ms)
{
    int64_t from = g->origin_ms - g->step_ms + 1, to = g->origin_ms + (g->points - 1) * g->step_ms;

    *ret_start_ms = from + (SLOT_MS - (from - SLOT_EPOCH_MS) % SLOT_MS) % SLOT_MS;
    *ret_end_ms = to - (to - SLOT_EPOCH_MS) % SLOT_MS + SLOT_MS;
}

int64_t flat_first_leaf(const struct plan_grid *leaves)
{
    return leaves->origin_ms + 1 - LEAF_MS;
}

struct plan_grid flat_slots(const struct plan_grid *leaves)
{
    return (struct plan_grid){ flat_first_leaf(leaves), SLOT_MS, leaves->points * LEAF_SLOTS };
}

/* How far the sums by start are from the spread ones, with this window. Slots whose earlier starts
 * are not known are left out. */
static double distance(const uint64_t *starts, const uint64_t *spread, size_t slots,
                       uint32_t window)
{
    double sum = 0;

    for (size_t i = FLAT_WINDOW_MAX - 1; i < slots; i++) {
        double want = 0;
        for (uint32_t back = 0; back < window; back++)
            want += (double)starts[i - back] / window;
        sum += want > (double)spread[i] ? want - (double)spread[i] : (double)spread[i] - want;
    }
    return sum;
}

uint32_t flat_window(const uint64_t *starts, const uint64_t *spread, size_t slots)
{
    double least = distance(starts, spread, slots, 1);
    uint32_t best = 1;

    for (uint32_t window = 2; window <= FLAT_WINDOW_MAX; window++) {
        double d = distance(starts, spread, slots, window);
        if (d < least) {
            least = d;
            best = window;
        }
    }
    return best;
}

static void add(struct flat *f, int64_t ms, uint64_t units, uint64_t sixths)
{
    uint32_t k;

    if (!exm_point(f->grid, ms, &k))
        return;
    f->value[k] = MIN(u64_add_sat(f->value[k], units), (uint64_t)INT64_MAX);
    f->sixths[k] += sixths;
}

/* A push, or several, that begin in this slot. */
static void add_start(struct flat *f, int64_t slot_ms, uint64_t sum)
{
    static_assert(FLAT_WINDOW_MAX == 3, "2 and 3 divide 6");
    for (uint32_t i = 0; i < f->window; i++)
        add(f, slot_ms + (int64_t)i * SLOT_MS, sum / f->window, sum % f->window * (6 / f->window));
}

/* Of `sum`, the part of the first slot. */
static uint64_t part_of(uint64_t sum, const uint64_t starts[LEAF_SLOTS])
{
    if (!starts[1])
        return sum;
    double share = (double)starts[0] / ((double)starts[0] + (double)starts[1]);
    return starts[0] ? MIN((uint64_t)((double)sum * share), sum) : 0;
}

void flat_add(struct flat *f, int64_t leaf_ms, uint64_t sum, const uint64_t starts[LEAF_SLOTS])
{
    static_assert(LEAF_SLOTS == 2, "a leaf is two slots");
    uint64_t first = part_of(sum, starts);

    add_start(f, leaf_ms, first);
    add_start(f, leaf_ms + SLOT_MS, sum - first);
}

void flat_add_whole(struct flat *f, int64_t begin_ms, uint64_t sum)
{
    add(f, begin_ms, sum, 0);
}

void flat_end(struct flat *f)
{
    uint64_t left = 0;

    for (uint32_t k = 0; k < f->grid->points; k++) {
        left += f->sixths[k];
        f->value[k] = MIN(u64_add_sat(f->value[k], left / 6), (uint64_t)INT64_MAX);
        left %= 6;
    }
}
