/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_fold: old data are folded as they come.
 *
 *   minutes of a series   0 1 2 3 ... 58 59 | 60 61 ...        1 h is the finest level kept here
 *                         └── one raw row ──┘ └─ the next ──   at the slots of minutes 0 and 60
 *
 * A row may stand for vectors only if nothing can tell it from them:
 *
 *   - they lie in one node of the finest level that groups (and so members) keep. Ranges, deletes
 *     and timelines have no edge inside one, and floors only rise.
 *   - no rule of groups and no dimension begins between them: they belong to the same groups.
 *   - sums only. A gauge counts the leaves that have data.
 *
 * The row keeps the slot of its first vector. So whatever the floors were when a request came the
 * first time, its rows have slots of its vectors, and a retry finds them by those (stage.c).
 */
#include "common/store/write/stage_fold.h"

#include "common/base/size.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/sum.h"

#define KEEP_NODES (1u << 18) /* of the largest request, from one to the next */

size_t stage_run(const struct floors *f, const struct group_scope *g, const struct store_vector *v,
                 size_t n)
{
    uint32_t first = v[0].slot, base = floors_base(f, true, first);
    size_t len = 1;

    if (base == 0 || base == FLOORS_GONE)
        return 1;
    uint32_t end = node_of(base, first) + LEVELS[base].node;
    for (uint32_t dim = 0; dim < GROUP_DIMS; dim++)
        if (groups_since(g, dim) > first)
            end = MIN(end, groups_since(g, dim));
    while (len < n && v[len].slot < end && !groups_change(g, first, v[len].slot + 1))
        len++;
    return len;
}

size_t stage_runs(const struct floors *f, const struct group_scope *g,
                  const struct store_series *in)
{
    size_t rows = 0;

    for (size_t i = 0; i < in->len; i += stage_run(f, g, in->vectors + i, in->len - i))
        rows++;
    return rows;
}

void stage_fold_deinit(struct stage_fold *x)
{
    vec_free(&x->sums);
    vec_free(&x->used);
}

void stage_fold_trim(struct stage_fold *x)
{
    if (x->sums.cap > KEEP_NODES)
        stage_fold_deinit(x);
}

static void room(struct stage_fold *x, size_t n)
{
    size_t had = x->sums.len;

    if (n <= had)
        return;
    vec_reserve(&x->sums, n);
    vec_reserve(&x->used, n + 1); /* one is written ahead */
    memset(x->sums.ptr + had, 0, (n - had) * sizeof(*x->sums.ptr));
    x->sums.len = n;
}

void stage_fold(struct stage_fold *x, const struct store_vector *v, size_t n, size_t nodes,
                const uint32_t *map, struct sum *to)
{
    room(x, nodes + 1);
    uint64_t *sums = x->sums.ptr;
    uint32_t *used = x->used.ptr;
    size_t len = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < v[i].len; j++) {
            uint32_t node = v[i].nodes[j];
            used[len] = node; /* values are above 0: a sum of 0 is a node not seen before */
            len += !sums[node];
            if (UNLIKELY(!u64_add(sums[node], v[i].values[j], &sums[node]))) {
                sums[node] = UINT64_MAX;
                to->saturated++;
            }
        }
    for (size_t i = 0; i < len; i++) {
        sum_add(to, map[used[i]], sums[used[i]]);
        sums[used[i]] = 0;
    }
}
