/* SPDX-License-Identifier: Apache-2.0
 *
 * leaves: runs are written with their repeats, read back one after the other, never all at once: a
 * repeat of a few bytes may stand for millions of leaves.
 *
 * Uniting walks all parts together, point by point; inside a point the run that begins first is
 * taken next, and what of it lies behind all taken before is new. There is a part per ingester or
 * shard that has the group, so that the first is found by looking at each.
 */
#include "common/model/leaves.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/size.h"

/* ---- writing -------------------------------------------------------------------------------- */

static void put_run(struct leaf_writer *w)
{
    struct leaf_items *to = w->to;
    uint32_t gap = w->first - w->last;

    w->last = w->first + w->len - 1;
    if (to->len && to->ptr[to->len - 3] == gap && to->ptr[to->len - 2] == w->len &&
        to->ptr[to->len - 1] < UINT32_MAX) {
        to->ptr[to->len - 1]++;
        return;
    }
    vec_push(to, gap);
    vec_push(to, w->len);
    vec_push(to, 1);
}

void leaf_put(struct leaf_writer *w, uint32_t first, uint32_t len)
{
    if (w->len && first == w->first + w->len) {
        w->len += len;
        return;
    }
    leaf_put_end(w);
    w->first = first;
    w->len = len;
}

void leaf_put_end(struct leaf_writer *w)
{
    if (w->len)
        put_run(w);
    w->len = 0;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Where the leaf number `behind` of all points stands. */
struct cursor {
    const struct leaf_part *p;
    size_t i;       /* point */
    uint64_t start; /* leaves before it */
};

/* That a point with leaves begins with that leaf. `behind` never goes back. */
static bool begins_point(struct cursor *c, uint64_t behind)
{
    while (c->i < c->p->len && c->start < behind)
        c->start += c->p->count[c->i++];
    while (c->i < c->p->len && !c->p->count[c->i])
        c->i++;
    return c->start == behind && c->i < c->p->len;
}

static int bad(const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "leaves of points: %s", what);
}

/* One run, some times, each at the beginning of a point: they may go back there. */
static bool begin_points(struct cursor *c, int64_t gap, uint64_t len, uint64_t times,
                         uint64_t behind, int64_t *last)
{
    for (uint64_t n = 0; n < times; n++) {
        if (!begins_point(c, behind + n * len) || *last + gap < 0)
            return false;
        *last += gap + (int64_t)len - 1;
        if (*last > (int64_t)LEAF_NUMBER_MAX)
            return false;
    }
    return true;
}

int leaf_part_check(const struct leaf_part *p, struct err *e)
{
    struct cursor c = { .p = p };
    uint64_t behind = 0, want = 0;
    int64_t last = 0;

    for (size_t i = 0; i < p->len; i++)
        want += p->count[i];
    if (p->items_len % 3 || want > LEAVES_MAX)
        return bad(p->items_len % 3 ? "an item is cut off" : "too many", e);
    for (size_t i = 0; i < p->items_len; i += 3) {
        int64_t gap = (int32_t)p->items[i];
        uint64_t len = p->items[i + 1], times = p->items[i + 2];

        if (!len || !times || len > want || times > want || len * times > want - behind)
            return bad("not as many as counted", e);
        if (gap <= 0 && !begin_points(&c, gap, len, times, behind, &last))
            return bad("one twice in a point, or at no time", e);
        if (gap > 0 && (gap + (int64_t)len - 1) * (int64_t)times > (int64_t)LEAF_NUMBER_MAX - last)
            return bad("later than there is time", e);
        if (gap > 0)
            last += (gap + (int64_t)len - 1) * (int64_t)times;
        behind += len * times;
    }
    return behind == want ? 0 : bad("not as many as counted", e);
}

/* ---- uniting -------------------------------------------------------------------------------- */

struct reader {
    const struct leaf_part *p;
    size_t i;                 /* point */
    size_t item;              /* the next one */
    uint32_t gap, run, times; /* of the one at hand: times left */
    uint32_t first, len;      /* rest of the run at hand; 0: none */
    uint32_t last;
    uint64_t left; /* leaves of the point that were not read */
};

/* Whether the point has more; then first and len > 0 are of its next run, which may reach into the
 * points behind it. */
static bool reader_look(struct reader *r)
{
    const struct leaf_part *p = r->p;

    if (!r->left)
        return false;
    if (r->len)
        return true;
    if (!r->times) {
        if (r->item + 3 > p->items_len)
            return false;
        r->gap = p->items[r->item];
        r->run = p->items[r->item + 1];
        r->times = p->items[r->item + 2];
        r->item += 3;
    }
    r->times--;
    r->first = r->last + r->gap;
    r->len = r->run;
    r->last = r->first + r->run - 1;
    return true;
}

/* The run at hand as far as it is of this point. */
static uint32_t reader_take(struct reader *r, uint32_t *ret_first)
{
    uint32_t n = (uint32_t)MIN(r->len, r->left);

    *ret_first = r->first;
    r->first += n;
    r->len -= n;
    r->left -= n;
    return n;
}

static uint32_t point_at(const uint32_t *point, size_t i)
{
    return point ? point[i] : (uint32_t)i;
}

static void reader_skip(struct reader *r)
{
    uint32_t first;

    while (reader_look(r))
        (void)reader_take(r, &first);
    r->left = 0; /* of counts alone */
}

/* Goes to point k. False: the part has it not, or without leaves; then nothing is left. */
static bool reader_seek(struct reader *r, uint32_t k)
{
    bool found = false;

    while (r->i < r->p->len && point_at(r->p->point, r->i) <= k) {
        reader_skip(r);
        found = point_at(r->p->point, r->i) == k;
        r->left = r->p->count[r->i++];
    }
    if (!found)
        reader_skip(r);
    return r->left > 0;
}

/* The one whose next run begins first. NULL: all are read. */
static struct reader *first_of(struct reader *r, size_t n)
{
    struct reader *best = NULL;

    for (size_t i = 0; i < n; i++)
        if (reader_look(&r[i]) && (!best || r[i].first < best->first))
            best = &r[i];
    return best;
}

static uint32_t unite_point(struct reader *r, size_t n, struct leaf_writer *w)
{
    struct reader *next;
    uint32_t end = 0, count = 0; /* end: of what was taken */

    while ((next = first_of(r, n))) {
        uint32_t first, len = reader_take(next, &first), skip = first < end ? end - first : 0;

        if (len <= skip)
            continue;
        count += len - skip;
        end = first + len;
        if (w->to)
            leaf_put(w, first + skip, len - skip);
    }
    return count;
}

void leaf_unite(const struct leaf_part *parts, size_t parts_len, const uint32_t *point, size_t len,
                uint32_t *ret_count, struct leaf_items *out)
{
    struct reader *all = XNEW_ARRAY(struct reader, parts_len + 1);
    struct leaf_writer w = { .to = out };
    bool known = true;

    for (size_t i = 0; i < parts_len; i++)
        all[i].p = &parts[i];
    for (size_t i = 0; i < len; i++) {
        uint32_t most = 0;

        for (size_t n = 0; n < parts_len; n++) {
            if (!reader_seek(&all[n], point_at(point, i)) || parts[n].items_len)
                continue;
            most = MAX(most, (uint32_t)all[n].left);
            known = false;
        }
        ret_count[i] = unite_point(all, parts_len, &w);
        ret_count[i] = MAX(ret_count[i], most);
    }
    if (out) {
        leaf_put_end(&w);
        out->len = known ? out->len : 0;
    }
    xfree(all);
}
