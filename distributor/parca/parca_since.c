/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_since: what was stored last of each series whose values count since the start of a process.
 *
 *   decode (pool)   enter ─> the series is this request's ─> last, doubt ─> add
 *   done (loop)     end: each profile by its row of the result
 *                     stored       it is the last one now
 *                     not stored   the last one stays, so its growth comes with the next profile
 *                     unsure       it is the doubtful one: each further request stores it again,
 *                                  under the write ids that it had, until its end is known, and
 *                                  takes only the gauges of its own profile
 *
 * So growth is neither lost nor counted twice when a store fails, however often. Exceptions, where
 * growth is left out rather than counted twice: a doubtful profile that has no time of its own, is
 * refused later, or follows another doubtful or refused one in the same request (all are taken for
 * stored), and a series that was forgotten.
 *
 * Several distributors. Each remembers what came to it. Parca keeps one connection; if it moves to
 * another distributor, that distributor begins with a first profile. If it comes back, the first
 * one must not count what the other one has counted meanwhile. Unless it is alone, a profile that
 * comes more than one and a half intervals after the one before is a first one. An interval that
 * became longer costs one such profile.
 *
 * Memory: bytes_max for the bodies, as they came (usually gzip), and SERIES_COST for each series.
 * Over it the series that was not used for longest is forgotten. Series of open requests stay, so
 * the bound may be exceeded by what requests in work hold.
 */
#include "distributor/parca/parca_since.h"

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"

#define SERIES_COST   256
#define GAP_MOST_MS   (INT64_C(3600) * 1000)
#define DOUBT_MOST_MS (3 * GAP_MOST_MS) /* write ids are known for longer */

struct parca_series {
    struct list link;              /* of parca_since.used: last used at the end */
    struct str key;                /* owned */
    const struct parca_turn *turn; /* NULL: free */
    struct parca_body last, doubt;
    int64_t seen_ms; /* time of the profile that came last, stored or not */
    int64_t step_ms; /* from the one before to that; 0: not known */
    size_t charged;
};
struct parca_since {
    struct mutex lock;
    size_t bytes, bytes_max;
    unsigned percent;
    struct map_str *map;
    struct list used;
};

struct parca_since *parca_since_new(size_t bytes_max)
{
    struct parca_since *s = XNEW(struct parca_since);

    mutex_init(&s->lock);
    s->bytes_max = bytes_max;
    s->percent = 100;
    s->map = map_str_new();
    list_init(&s->used);
    return s;
}

static void body_drop(struct parca_body *b)
{
    xfree(b->bytes);
    *b = (struct parca_body){ 0 };
}

static void body_move(struct parca_body *to, struct parca_body *from)
{
    body_drop(to);
    *to = *from;
    *from = (struct parca_body){ 0 };
}

/* ---- holding the lock ---- */

static void series_free(struct parca_since *s, struct parca_series *x)
{
    (void)map_str_del(s->map, x->key);
    list_del(&x->link);
    s->bytes -= x->charged;
    body_drop(&x->last);
    body_drop(&x->doubt);
    xfree((void *)(uintptr_t)x->key.ptr);
    xfree(x);
}

static void charge(struct parca_since *s, struct parca_series *x)
{
    s->bytes -= x->charged;
    x->charged = SERIES_COST + x->key.len + x->last.len + x->doubt.len;
    s->bytes += x->charged;
}

static void trim(struct parca_since *s)
{
    list_for (it, &s->used) {
        struct parca_series *x = container_of(it, struct parca_series, link);
        if (s->bytes <= s->bytes_max / 100 * s->percent)
            return;
        if (!x->turn)
            series_free(s, x);
    }
}

static struct parca_series *series_new(struct parca_since *s, struct str key)
{
    struct parca_series *x = XNEW(struct parca_series);
    char *copy = xmalloc(key.len + 1);

    memcpy(copy, key.ptr, key.len);
    x->key = str_n(copy, key.len);
    (void)map_str_put(s->map, x->key, x);
    list_add_tail(&s->used, &x->link);
    charge(s, x);
    trim(s);
    return x;
}

/* ---- any thread ---- */

void parca_since_free(struct parca_since *s)
{
    if (!s)
        return;
    list_for (it, &s->used) {
        struct parca_series *x = container_of(it, struct parca_series, link);
        CHECK(!x->turn);
        series_free(s, x);
    }
    CHECK(s->bytes == 0);
    map_str_free(s->map);
    mutex_deinit(&s->lock);
    xfree(s);
}

size_t parca_since_bytes(struct parca_since *s)
{
    mutex_lock(&s->lock);
    size_t n = s->bytes;
    mutex_unlock(&s->lock);
    return n;
}

void parca_since_shrink(struct parca_since *s, unsigned percent)
{
    mutex_lock(&s->lock);
    s->percent = percent;
    trim(s);
    mutex_unlock(&s->lock);
}

int parca_turn_enter(struct parca_turn *t, struct str key, struct parca_series **ret, struct err *e)
{
    struct parca_since *s = t->since;
    int rc = 0;

    mutex_lock(&s->lock);
    struct parca_series *x = map_str_get(s->map, key);
    if (!x && SERIES_COST + key.len > s->bytes_max / 100 * s->percent) {
        rc = err_set(e, ERR_LIMIT,
                     "no memory to remember the series (distributor.parca_last_bytes)");
    } else if (x && x->turn && x->turn != t) {
        rc =
            err_set(e, ERR_BUSY, "another profile of this series is being stored; try again later");
    } else {
        x = x ? x : series_new(s, key);
        list_del(&x->link);
        list_add_tail(&s->used, &x->link);
        if (!x->turn)
            vec_push(&t->held, x);
        x->turn = t;
        *ret = x;
    }
    mutex_unlock(&s->lock);
    return rc;
}

/* The newest step of this request that has the series; NULL: none. */
static const struct parca_step *newest(const struct parca_turn *t, const struct parca_series *x)
{
    for (size_t i = t->steps.len; i > 0; i--)
        if (t->steps.ptr[i - 1].series == x)
            return &t->steps.ptr[i - 1];
    return NULL;
}

const struct parca_body *parca_turn_last(const struct parca_turn *t, struct parca_series *x,
                                         int64_t at_ms)
{
    const struct parca_step *step = newest(t, x);

    if (step && step->body.bytes)
        return &step->body;
    if (!x->last.bytes)
        return NULL;
    int64_t gap = at_ms - x->seen_ms;
    int64_t most = t->alone || !x->step_ms ? GAP_MOST_MS : x->step_ms + x->step_ms / 2;
    if (gap <= MIN(most, GAP_MOST_MS) &&
        (!x->doubt.bytes || at_ms - x->doubt.at_ms <= DOUBT_MOST_MS))
        return &x->last;
    body_drop(&x->doubt);
    return NULL;
}

const struct parca_body *parca_turn_doubt(const struct parca_series *x)
{
    return x->doubt.bytes ? &x->doubt : NULL;
}

bool parca_turn_began(const struct parca_turn *t, const struct parca_series *x)
{
    return newest(t, x) != NULL;
}

void parca_turn_seen(struct parca_series *x, int64_t at_ms)
{
    if (x->seen_ms && at_ms > x->seen_ms)
        x->step_ms = at_ms - x->seen_ms;
    x->seen_ms = MAX(x->seen_ms, at_ms);
}

void parca_turn_forget(struct parca_series *x)
{
    body_drop(&x->last);
    body_drop(&x->doubt);
}

void parca_turn_add(struct parca_turn *t, const struct parca_step *step)
{
    vec_push(&t->steps, *step);
}

enum fate { STORED, NOT_STORED, UNSURE };

/* What happened to the profile of a row. Codes that invite another try may come after the profile
 * was stored, so that it is stored again then, which its write ids make harmless. */
static enum fate fate_of(const struct parca_turn *t, const struct intake_result *r, size_t row)
{
    if (!r || r->err)
        return NOT_STORED;
    if (r->rows_len != t->rows)
        return UNSURE; /* too many were rejected to have a row each */
    const struct intake_row *at = &r->rows[row];
    if (at->outcome != INTAKE_REJECTED)
        return STORED;
    switch (at->err->code) {
    case ERR_INPUT:
    case ERR_LIMIT:
    case ERR_TOO_LARGE:
    case ERR_CONFLICT:
        return NOT_STORED;
    default:
        return UNSURE;
    }
}

static void step_end(const struct parca_turn *t, struct parca_step *step,
                     const struct intake_result *r)
{
    struct parca_series *x = step->series;

    /* Refused now, it may have been stored before. */
    if (step->doubt_row != PARCA_NO_ROW && r && !r->err && fate_of(t, r, step->doubt_row) != UNSURE)
        body_move(&x->last, &x->doubt);
    if (!step->body.bytes)
        return;
    enum fate fate = fate_of(t, r, step->row);
    if (fate == UNSURE && step->body.has_time && !x->doubt.bytes) {
        body_move(&x->doubt, &step->body);
    } else if (fate == STORED || (fate == UNSURE && !step->again)) {
        body_move(&x->last, &step->body);
        body_drop(&x->doubt);
    }
}

void parca_turn_end(struct parca_turn *t, const struct intake_result *r)
{
    struct parca_since *s = t->since;

    if (!s)
        return;
    mutex_lock(&s->lock);
    vec_for (i, &t->steps) {
        step_end(t, &t->steps.ptr[i], r);
        body_drop(&t->steps.ptr[i].body);
    }
    vec_for (i, &t->held) {
        struct parca_series *x = t->held.ptr[i];
        CHECK(x->turn == t);
        x->turn = NULL;
        charge(s, x);
    }
    trim(s);
    mutex_unlock(&s->lock);
    vec_free(&t->steps);
    vec_free(&t->held);
}
