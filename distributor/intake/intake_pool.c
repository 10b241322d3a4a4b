/* SPDX-License-Identifier: Apache-2.0
 *
 * intake_spare: requests that ended are kept for the next ones, with the lists and the push they
 * had: most have one push, and are so alike that nothing has to be allocated for them again. A push
 * is made on the pool and freed on the loop, which costs an allocator more than it looks like.
 * They count as memory of pushes; where memory is short only the last one stays.
 */
#include "common/base/mem.h"
#include "common/role/core/memory.h"
#include "distributor/intake/intake_impl.h"

#define ARENA_FIRST (4 * KIB) /* the chunk that a reset leaves */

enum { SPARES_MOST = 32, ROWS_MOST = 16 };

static void intake_delete(struct intake *k)
{
    vec_free(&k->pushes);
    vec_free(&k->open);
    vec_free(&k->bases);
    vec_free(&k->rows);
    arena_free(k->arena);
    xfree(k->spare);
    xfree(k);
}

struct intake *intake_take(struct distributor *d)
{
    struct intake *k = d->spares;

    if (k) {
        d->spares = k->next_spare;
        d->spares_len--;
        k->next_spare = NULL;
    } else {
        k = XNEW(struct intake);
        k->arena = arena_new(ROWS_BYTES_MAX);
    }
    k->magic = INTAKE_MAGIC;
    k->d = d;
    return k;
}

void intake_give(struct intake *k)
{
    struct distributor *d = k->d;
    struct intake empty = { .arena = k->arena, .spare = k->spare };

    if (memory_state(d->ctx->memory) != MEMORY_CALM)
        intake_pool_free(d); /* only this request is kept */
    empty.next_spare = d->spares;
    if (d->spares_len >= SPARES_MOST || k->rows.cap > ROWS_MOST || k->pushes.cap > ROWS_MOST ||
        k->open.cap > ROWS_MOST || k->bases.cap > ROWS_MOST) {
        k->magic = 0;
        intake_delete(k);
        return;
    }
    empty.rows = k->rows;
    empty.pushes = k->pushes;
    empty.open = k->open;
    empty.bases = k->bases;
    empty.rows.len = empty.pushes.len = empty.open.len = empty.bases.len = 0;
    arena_reset(k->arena);
    *k = empty;
    d->spares = k;
    d->spares_len++;
}

void intake_pool_free(struct distributor *d)
{
    struct intake *k;

    while ((k = d->spares)) {
        d->spares = k->next_spare;
        intake_delete(k);
    }
    d->spares_len = 0;
}

size_t intake_spares_bytes(const struct distributor *d)
{
    size_t n = 0;

    for (const struct intake *k = d->spares; k; k = k->next_spare)
        n += sizeof(*k) + ARENA_FIRST + (k->spare ? sizeof(*k->spare) : 0) +
             (k->pushes.cap + k->open.cap) * sizeof(*k->pushes.ptr) +
             k->rows.cap * sizeof(*k->rows.ptr) + k->bases.cap * sizeof(*k->bases.ptr);
    return n;
}
