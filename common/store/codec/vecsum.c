/* SPDX-License-Identifier: Apache-2.0
 *
 * vecsum: two ways to add up the sections of an epoch. Few pairs among many ids are brought into
 * order (sum.h); many are added into an array by id, which is then walked: a minute of twenty pods,
 * or a node from its children. Which one is taken depends on what costs less and changes no byte.
 */
#include "common/store/codec/vecsum.h"

#include "common/base/size.h"
#include "common/store/codec/fp.h"

#define ARENA_MAX  (1 * GIB) /* entries of all rows of one leaf; a push is far below */
#define DENSE_WALK 8         /* sorting a pair costs about as much as walking over so many ids */

void vecsum_init(struct vecsum *f)
{
    *f = (struct vecsum){ .arena = arena_new(ARENA_MAX) };
    sum_init(&f->sum);
}

void vecsum_deinit(struct vecsum *f)
{
    vec_free(&f->sections);
    vec_free(&f->parts);
    vec_free(&f->dense);
    sum_deinit(&f->sum);
    arena_free(f->arena);
}

void vecsum_begin(struct vecsum *f)
{
    f->sections.len = 0;
    f->meta = (struct vec_meta){ 0 };
    f->bound = 0;
    f->checked = false;
    arena_reset(f->arena);
}

int vecsum_add(struct vecsum *f, struct str row, struct err *e)
{
    struct vec_reader r;
    struct vec_section s;
    int rc = vec_open(row, &r, e);

    if (rc)
        return rc;
    f->meta.writes = u64_add_sat(f->meta.writes, r.meta.writes);
    f->meta.fp = fp_add(f->meta.fp, r.meta.fp);
    f->meta.saturated |= r.meta.saturated;
    f->checked = f->checked || !u64_add(f->bound, r.meta.total, &f->bound);
    while (vec_next(&r, &s))
        vec_push(&f->sections, s);
    return 0;
}

/* By epoch; there are one or two of them, and few rows. */
static void sort_sections(struct vecsum *f)
{
    for (size_t i = 1; i < f->sections.len; i++) {
        struct vec_section s = f->sections.ptr[i];
        size_t at = i;
        for (; at && f->sections.ptr[at - 1].epoch > s.epoch; at--)
            f->sections.ptr[at] = f->sections.ptr[at - 1];
        f->sections.ptr[at] = s;
    }
}

static void add_section(struct vecsum *f, const struct vec_section *s)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_iter it;
    size_t n;

    vec_iter_init(&it, s);
    while ((n = vec_iter_next(&it, ids, values)) > 0)
        for (size_t i = 0; i < n; i++)
            sum_add(&f->sum, ids[i], values[i]);
}

/* The `n` sections from s on, of one epoch, by sorting. False: the arena is full. */
static bool sum_sorted(struct vecsum *f, const struct vec_section *s, size_t n,
                       struct vec_part *part)
{
    sum_begin(&f->sum);
    for (size_t i = 0; i < n; i++)
        add_section(f, &s[i]);
    sum_end(&f->sum);
    part->len = f->sum.ids.len;
    uint32_t *ids = ARENA_ARRAY(f->arena, uint32_t, part->len);
    uint64_t *values = ARENA_ARRAY(f->arena, uint64_t, part->len);
    if (!ids || !values)
        return false;
    memcpy(ids, f->sum.ids.ptr, part->len * sizeof(*ids));
    memcpy(values, f->sum.sums.ptr, part->len * sizeof(*values));
    part->ids = ids;
    part->values = values;
    return true;
}

/* The same by adding into an array of `top` ids. */
static bool sum_dense(struct vecsum *f, const struct vec_section *s, size_t n, size_t top,
                      struct vec_part *part)
{
    size_t had = f->dense.len, at = 0;

    if (top > had) {
        vec_reserve(&f->dense, top);
        memset(f->dense.ptr + had, 0, (top - had) * sizeof(*f->dense.ptr));
        f->dense.len = top;
    }
    uint64_t *acc = f->dense.ptr;
    for (size_t i = 0; i < n; i++)
        CHECK(f->checked ? vec_add_dense_sat(&s[i], acc, top, &f->sum.saturated)
                         : vec_add_dense(&s[i], acc, top));
    for (size_t i = 0; i < top; i++)
        part->len += acc[i] != 0;
    uint32_t *ids = arena_alloc(f->arena, part->len * sizeof(*ids));
    uint64_t *values = arena_alloc(f->arena, part->len * sizeof(*values));
    for (size_t i = 0; i < top; i++) {
        if (!acc[i])
            continue;
        if (ids && values) {
            ids[at] = (uint32_t)i;
            values[at++] = acc[i];
        }
        acc[i] = 0;
    }
    part->ids = ids;
    part->values = values;
    return ids && values;
}

/* All sections of one epoch, from *at on. False: the arena is full. */
static bool sum_epoch(struct vecsum *f, size_t *at, struct vec_part *part)
{
    const struct vec_section *s = &f->sections.ptr[*at];
    size_t n = 0, entries = 0, top = 0;

    *part = (struct vec_part){ .epoch = s->epoch };
    for (; *at < f->sections.len && f->sections.ptr[*at].epoch == part->epoch; ++*at, n++) {
        entries += s[n].len;
        top = MAX(top, (size_t)s[n].last + 1);
    }
    if (n > 1 && entries * DENSE_WALK >= top)
        return sum_dense(f, s, n, top, part);
    return sum_sorted(f, s, n, part);
}

int vecsum_end(struct vecsum *f, struct buf *out, struct err *e)
{
    struct vec_part part;
    uint64_t saturated = f->sum.saturated;

    sort_sections(f);
    f->parts.len = 0;
    for (size_t at = 0; at < f->sections.len;) {
        if (!sum_epoch(f, &at, &part))
            return err_set(e, ERR_LIMIT, "a leaf has more entries than fit %zu bytes", ARENA_MAX);
        vec_push(&f->parts, part);
    }
    if (f->parts.len > VEC_SECTIONS_MAX)
        return err_set(e, ERR_LIMIT, "a leaf spans %zu dictionary epochs, at most %d can be stored",
                       f->parts.len, VEC_SECTIONS_MAX);
    if (f->sum.saturated != saturated)
        f->meta.saturated = true;
    buf_reset(out);
    if (!vec_encode(f->parts.ptr, f->parts.len, &f->meta, out))
        return err_set(e, ERR_LIMIT, "a leaf has more than %zu bytes", out->max);
    return 0;
}

uint64_t vecsum_saturated(const struct vecsum *f)
{
    return f->sum.saturated;
}
