/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_iter: local rows and rows of parts, merged into one run.
 *
 *   here   k1      k3 k4 k5
 *   parts     k2 k3'   (k5 deleted)      gives k1 k2 k3 k4 k5: the local row wins
 *
 * A cursor over the parts skips rows that were deleted since the parts were written. Both sides
 * move on their own; the smaller key is the row, and with equal keys both move together.
 */
#include "common/base/mem.h"
#include "common/cold/kv_cold_impl.h"

/* ---- the cursor over parts ------------------------------------------------------------------ */

void cold_cursor_init(struct cold_cursor *c, struct kv_cold *k, struct manifest *m, enum kv_cf cf,
                      struct str to)
{
    *c = (struct cold_cursor){ .k = k, .m = m, .cf = cf, .to = to };
    buf_init(&c->bytes, PART_BLOCK_MAX + PART_BLOCK + KIB);
}

static void leave_part(struct cold_cursor *c)
{
    if (c->index)
        cold_index_put(c->k, c->m->of[c->cf].parts.ptr[c->part]);
    c->index = NULL;
}

void cold_cursor_deinit(struct cold_cursor *c)
{
    leave_part(c);
    buf_deinit(&c->bytes);
}

static bool enter_part(struct cold_cursor *c, size_t part)
{
    if (c->index && c->part == part)
        return true;
    leave_part(c);
    c->part = part;
    return cold_index_get(c->k, c->m->of[c->cf].parts.ptr[part], &c->index, &c->err) == 0;
}

static bool load_block(struct cold_cursor *c, size_t block)
{
    struct cold_part *p = c->m->of[c->cf].parts.ptr[c->part];

    c->block = block;
    if (cold_block_read(c->k, p, c->index, block, &c->bytes, &c->err))
        return false;
    part_row_begin(&c->row, buf_str(&c->bytes));
    return true;
}

/* One row on; over the ends of blocks and parts. False: the end, or c->err. */
static bool step(struct cold_cursor *c)
{
    const struct cold_family *f = &c->m->of[c->cf];

    for (;;) {
        int got = part_row_next(&c->row);

        if (got > 0)
            return true;
        if (got < 0) {
            (void)err_set(&c->err, ERR_CORRUPT, "a block of %s cannot be read",
                          f->parts.ptr[c->part]->name);
            return false;
        }
        if (c->block + 1 < part_blocks(c->index)) {
            if (!load_block(c, c->block + 1))
                return false;
            continue;
        }
        if (c->part + 1 >= f->parts.len ||
            (c->to.len && str_cmp(f->parts.ptr[c->part + 1]->first, c->to) >= 0))
            return false;
        if (!enter_part(c, c->part + 1) || !load_block(c, 0))
            return false;
    }
}

/* To the first row >= key, deleted or not. */
static bool find(struct cold_cursor *c, struct str key)
{
    const struct cold_family *f = &c->m->of[c->cf];
    size_t part = manifest_part_at(f, key), block;

    if (part >= f->parts.len || (c->to.len && str_cmp(f->parts.ptr[part]->first, c->to) >= 0))
        return false;
    bool same = c->index && c->part == part && c->bytes.len > 0;
    if (!enter_part(c, part))
        return false;
    block = part_block_of(c->index, key);
    if (block >= part_blocks(c->index)) {
        (void)err_set(&c->err, ERR_CORRUPT, "%s ends before its row says",
                      f->parts.ptr[part]->name);
        return false;
    }
    if (same && c->block == block) /* it is in memory: from its start */
        part_row_begin(&c->row, buf_str(&c->bytes));
    else if (!load_block(c, block))
        return false;
    do {
        if (!step(c))
            return false;
    } while (str_cmp(part_row_key(&c->row), key) < 0);
    return true;
}

/* On from a row that was found, over deleted ranges; ends at `to`. */
static void settle(struct cold_cursor *c, bool found)
{
    const struct cold_family *f = &c->m->of[c->cf];

    while (found) {
        struct str key = part_row_key(&c->row);
        const struct cold_hide *h;

        if (c->to.len && str_cmp(key, c->to) >= 0)
            break;
        h = manifest_hidden(f, key);
        if (!h) {
            c->valid = true;
            return;
        }
        /* A range of one key, as most are: the next row. Else where it ends. */
        found = h->to.len == h->from.len + 1 ? step(c) : find(c, h->to);
    }
    c->valid = false;
}

void cold_cursor_seek(struct cold_cursor *c, struct str key)
{
    if (!c->err.code)
        settle(c, find(c, key));
    else
        c->valid = false;
}

void cold_cursor_next(struct cold_cursor *c)
{
    if (c->valid)
        settle(c, step(c));
}

/* ---- both sides ----------------------------------------------------------------------------- */

struct cold_iter {
    struct kv_iter it;
    struct kv_cold *k;
    struct kv_iter *inner; /* owned */
    struct manifest *m;    /* referenced */
    struct buf to;         /* owned copy of the end */
    struct cold_cursor c;
    int from_inner; /* whose row it is: > 0 the inner's, < 0 the part's, 0 both */
};

static void show(struct cold_iter *i)
{
    bool here = kv_iter_valid(i->inner), there = i->c.valid;

    i->it.valid = (here || there) && !i->c.err.code;
    if (!i->it.valid)
        return;
    if (here && there) {
        int order = str_cmp(kv_iter_key(i->inner), part_row_key(&i->c.row));
        i->from_inner = order < 0 ? 1 : order > 0 ? -1 : 0;
    } else {
        i->from_inner = here ? 1 : -1;
    }
    i->it.key = i->from_inner >= 0 ? kv_iter_key(i->inner) : part_row_key(&i->c.row);
    i->it.value = i->from_inner >= 0 ? kv_iter_value(i->inner) : i->c.row.value;
}

static struct cold_iter *iter_of(struct kv_iter *it)
{
    return container_of(it, struct cold_iter, it);
}

static void iter_seek(struct kv_iter *it, struct str key)
{
    struct cold_iter *i = iter_of(it);

    kv_iter_seek(i->inner, key);
    cold_cursor_seek(&i->c, key);
    show(i);
}

static void iter_next(struct kv_iter *it)
{
    struct cold_iter *i = iter_of(it);

    if (i->from_inner <= 0)
        cold_cursor_next(&i->c);
    if (i->from_inner >= 0)
        kv_iter_next(i->inner);
    show(i);
}

static int iter_status(struct kv_iter *it, struct err *e)
{
    struct cold_iter *i = iter_of(it);

    if (i->c.err.code) {
        *e = i->c.err;
        return e->code;
    }
    return kv_iter_status(i->inner, e);
}

static void iter_free(struct kv_iter *it)
{
    struct cold_iter *i = iter_of(it);

    cold_cursor_deinit(&i->c);
    kv_iter_free(i->inner);
    manifest_unref(i->m);
    buf_deinit(&i->to);
    xfree(i);
}

struct kv_iter *cold_iter_new(struct kv_cold *k, struct kv_iter *inner, struct manifest *m,
                              enum kv_cf cf, struct str to)
{
    static const struct kv_iter_ops ops = { iter_seek, iter_next, iter_status, iter_free };
    struct cold_iter *i = XNEW(struct cold_iter);

    i->it.ops = &ops;
    i->k = k;
    i->inner = inner;
    i->m = m;
    buf_init(&i->to, MAX(to.len, 1));
    CHECK(buf_add_str(&i->to, to));
    cold_cursor_init(&i->c, k, m, cf, buf_str(&i->to));
    return &i->it;
}
