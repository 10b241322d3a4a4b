/* SPDX-License-Identifier: Apache-2.0
 *
 * window: the time of a push.
 *
 * A push of up to 15 s is one point in the slot of its start, as agents mean it, and says how many
 * slots it covers, for timelines (common/store/state/spread.h). A longer one, say
 * 30 s of a Go CPU profile or an hour of a converted file, is spread over the leaves it covers, or
 * the timeline would show a spike and then nothing. A sample is indivisible, so a value is divided
 * in multiples of its unit:
 *
 *   value 5 units over leaves of weight 10 10 10 5:   exact 1.43 1.43 1.43 0.71
 *                                          floor      1    1    1    0     and 2 units are left
 *                                          they go to the largest remainders + debts
 *
 * Most stacks have one or two units. If each stack rounded on its own, all of them would favour the
 * same leaf; therefore a leaf that got less than its exact share is owed the difference (`debt`)
 * and is served first at the next stack. Sums over a leaf stay within a unit or two of the exact
 * share, sums over a stack are exact, and there is no randomness in it.
 *
 * The work is stacks x leaves, so the number of leaves is capped; a window of days then gets
 * points that are some leaves apart, still with the exact sum.
 */
#include "distributor/base/window.h"

#include <stdio.h>
#include <time.h>

#include "common/model/slot.h"

#define YEAR_1990_MS INT64_C(631152000000)
#define DAY_MS       INT64_C(86400000)
#define WEIGHT_MAX   (UINT64_C(1) << 31) /* remainder * weight must fit 64 bits */

/* What the sender of a profile that is too old can do. */
static const char *advice(const struct ingest *in)
{
    if (!in->raw.name.ptr) /* not by /ingest: the body's time is all there is */
        return "the time is that of the profile itself; by POST /ingest, from= and until= in the "
               "URL can say another";
    return in->has_from || in->has_until
               ? "from= and until= in the URL say when it was"
               : "the time is that of the profile itself; from= and until= in the URL store it "
                 "under another time";
}

struct moment {
    char text[80];
};
static struct moment moment_of(int64_t ms)
{
    time_t s = (time_t)(ms / 1000);
    struct moment m = { "" };
    struct tm tm;

    CHECK(gmtime_r(&s, &tm)); /* it is within a day of now, or between 1990 and now */
    (void)snprintf(m.text, sizeof(m.text), "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    return m;
}

int64_t window_oldest_ms(const struct window_accept *a)
{
    return MAX(a->now_ms - (int64_t)a->past_ms, SLOT_EPOCH_MS);
}

static int check_window(const struct window *w, const struct ingest *in,
                        const struct window_accept *a, struct err *e)
{
    int64_t oldest = window_oldest_ms(a);

    if (MIN(w->start_ms, w->end_ms) < YEAR_1990_MS ||
        MAX(w->start_ms, w->end_ms) > a->now_ms + DAY_MS)
        return err_set(e, ERR_INPUT,
                       "the time range %" PRId64 " to %" PRId64
                       " ms is before 1990 or more than a day ahead: not a time of a profile",
                       w->start_ms, w->end_ms);
    if (w->start_ms > w->end_ms)
        return err_set(e, ERR_INPUT, "from is %" PRId64 " ms after until", w->start_ms - w->end_ms);
    if (w->start_ms < oldest)
        return err_set(e, ERR_INPUT,
                       "not_in_ingestion_window: the profile is of %s, %" PRId64
                       " s old, more than is kept (%" PRIu64
                       " s: distributor.past, or reject_older_than of the tenant); %s",
                       moment_of(w->start_ms).text, (a->now_ms - w->start_ms) / 1000,
                       a->past_ms / 1000, advice(in));
    if (w->end_ms > a->now_ms + (int64_t)a->future_ms)
        return err_set(e, ERR_INPUT,
                       "not_in_ingestion_window: the profile ends at %s, %" PRId64
                       " s ahead of this server's clock, more than is taken (%" PRIu64
                       " s: distributor.future, or reject_newer_than of the tenant); is the "
                       "sender's clock right?",
                       moment_of(w->end_ms).text, (w->end_ms - a->now_ms) / 1000,
                       a->future_ms / 1000);
    return 0;
}

int window_of(const struct ingest *in, const struct push *p, const struct window_accept *accept,
              struct window *ret, struct err *e)
{
    struct window w = { accept->now_ms - WINDOW_DEFAULT_MS, accept->now_ms };

    if (in->has_from || in->has_until) {
        /* Far-out times are refused below; here they must not overflow. */
        int64_t least = INT64_MIN + WINDOW_DEFAULT_MS, most = INT64_MAX - WINDOW_DEFAULT_MS;
        w.start_ms = in->has_from ? in->from_ms : MAX(in->until_ms, least) - WINDOW_DEFAULT_MS;
        w.end_ms = in->has_until ? in->until_ms : MIN(in->from_ms, most) + WINDOW_DEFAULT_MS;
    } else if (p->has_time) {
        w.start_ms = p->time_ns / 1000000;
        /* No agent has measured beyond now; some write nonsense into the duration. */
        w.end_ms = MAX(MIN(w.start_ms + p->duration_ns / 1000000, accept->now_ms), w.start_ms);
    }
    if (check_window(&w, in, accept, e))
        return e->code;
    *ret = w;
    return 0;
}

/* How many slots a push of one point covers: timelines spread it over them. Agents are some
 * milliseconds early or late, so it is rounded. */
static uint32_t spread_of(int64_t long_ms)
{
    return (uint32_t)MAX((long_ms + SLOT_MS / 2) / SLOT_MS, 1);
}

bool leaves_of(const struct window *w, size_t leaves_max, struct arena *a, struct leaves *ret)
{
    int64_t first = slot_to_ms(slot_leaf(slot_of_ms(w->start_ms)));
    int64_t long_ms = w->end_ms - w->start_ms;
    bool whole = long_ms <= WINDOW_WHOLE_MS;
    size_t count = whole ? 1 : (size_t)((w->end_ms - first + LEAF_MS - 1) / LEAF_MS);
    size_t step = (count + leaves_max - 1) / leaves_max;
    uint64_t scale = (uint64_t)long_ms / WEIGHT_MAX + 1;
    struct leaves out = { .len = (count + step - 1) / step,
                          .duration_ms = (uint32_t)MIN(long_ms, UINT32_MAX),
                          .spread = whole ? spread_of(long_ms) : LEAF_SLOTS };

    out.slots = arena_alloc(a, out.len * sizeof(*out.slots));
    out.weights = arena_alloc(a, out.len * sizeof(*out.weights));
    if (!out.slots || !out.weights)
        return false;
    for (size_t i = 0; i < out.len; i++) {
        int64_t from = first + (int64_t)(i * step) * LEAF_MS;
        int64_t to = MIN(from + (int64_t)step * LEAF_MS, w->end_ms);
        from = MAX(from, w->start_ms);
        uint64_t weight = whole ? 1 : (uint64_t)(to - from) / scale;
        out.slots[i] = slot_of_ms(from);
        out.weights[i] = (uint32_t)MAX(weight, 1);
        out.weight += out.weights[i];
    }
    *ret = out;
    return true;
}

/* ---- dividing ---------------------------------------------------------------------------------
 * */

struct splitter {
    const struct push_series *s;
    const struct leaves *l;
    int64_t *debts;   /* per leaf, in 1 / weight units; they add up to 0 */
    int64_t *wants;   /* per leaf: remainder + debt of this stack */
    uint64_t *shares; /* per leaf: units of this stack */
    uint32_t *picks;  /* leaves, partly ordered by wants */
    size_t *counts;   /* per leaf: stacks so far */
};

/* Larger want first, then the earlier leaf: a total order, so the result is unique. */
static bool before(const struct splitter *x, uint32_t a, uint32_t b)
{
    return x->wants[a] != x->wants[b] ? x->wants[a] > x->wants[b] : a < b;
}

/* Brings the n leaves that come first to the front of picks (quickselect, Hoare 1961; the middle
 * element as pivot, and the order being total, which n they are does not depend on the way). */
static void select_first(struct splitter *x, size_t n)
{
    size_t lo = 0, hi = x->l->len;

    while (hi - lo > 1 && n > lo && n < hi) {
        uint32_t pivot = x->picks[lo + (hi - lo) / 2];
        size_t i = lo, j = hi - 1;
        for (;;) {
            while (before(x, x->picks[i], pivot))
                i++;
            while (before(x, pivot, x->picks[j]))
                j--;
            if (i >= j)
                break;
            uint32_t t = x->picks[i];
            x->picks[i++] = x->picks[j];
            x->picks[j--] = t;
        }
        size_t cut = x->picks[i] == pivot ? i + 1 : i; /* [lo, i) come first */
        if (n <= i)
            hi = i;
        else if (n >= cut)
            lo = cut;
        else
            return;
    }
}

/* Shares of a value of q units. */
static void divide(struct splitter *x, uint64_t q)
{
    const struct leaves *l = x->l;
    uint64_t whole = q / l->weight, rest = q % l->weight, given = 0, left;

    for (size_t i = 0; i < l->len; i++) {
        uint64_t part = rest * l->weights[i]; /* both below 2^32 */
        x->shares[i] = whole * l->weights[i] + part / l->weight;
        x->wants[i] = (int64_t)(part % l->weight) + x->debts[i];
        x->picks[i] = (uint32_t)i;
        given += x->shares[i];
    }
    left = q - given;
    DCHECK(left < l->len);
    if (left)
        select_first(x, (size_t)left);
    for (size_t k = 0; k < left; k++) {
        x->shares[x->picks[k]]++;
        x->wants[x->picks[k]] -= (int64_t)l->weight;
    }
    memcpy(x->debts, x->wants, l->len * sizeof(*x->debts));
}

static uint64_t unit_of(const struct push_series *s, size_t i)
{
    return s->values[i] % s->unit == 0 ? s->unit : 1;
}

/* One pass over the series: counts the stacks of each leaf, or writes them where `out` says. */
static void split_pass(struct splitter *x, uint32_t **nodes, uint64_t **values)
{
    memset(x->debts, 0, x->l->len * sizeof(*x->debts));
    memset(x->counts, 0, x->l->len * sizeof(*x->counts));
    for (size_t i = 0; i < x->s->len; i++) {
        uint64_t unit = unit_of(x->s, i);
        divide(x, x->s->values[i] / unit);
        for (size_t k = 0; k < x->l->len; k++) {
            if (x->shares[k] == 0)
                continue;
            if (nodes) {
                nodes[k][x->counts[k]] = x->s->nodes[i];
                values[k][x->counts[k]] = x->shares[k] * unit;
            }
            x->counts[k]++;
        }
    }
}

static bool split_all(struct splitter *x, struct arena *a, struct piece *pieces, size_t *ret_len)
{
    size_t n = x->l->len, len = 0;
    uint32_t **nodes = ARENA_ARRAY(a, uint32_t *, n);
    uint64_t **values = ARENA_ARRAY(a, uint64_t *, n);

    if (!nodes || !values)
        return false;
    split_pass(x, NULL, NULL);
    for (size_t k = 0; k < n; k++) {
        nodes[k] = arena_alloc(a, x->counts[k] * sizeof(**nodes));
        values[k] = arena_alloc(a, x->counts[k] * sizeof(**values));
        if (!nodes[k] || !values[k])
            return false;
    }
    split_pass(x, nodes, values);
    for (size_t k = 0; k < n; k++)
        if (x->counts[k])
            pieces[len++] = (struct piece){ x->l->slots[k], nodes[k], values[k], x->counts[k] };
    *ret_len = len;
    return true;
}

bool split_series(const struct push_series *s, const struct leaves *l, struct arena *a,
                  struct piece **ret, size_t *ret_len)
{
    struct piece *pieces = ARENA_ARRAY(a, struct piece, l->len);
    struct splitter x = { .s = s, .l = l };

    if (!pieces)
        return false;
    *ret = pieces;
    if (l->len == 1 || s->gauge) {
        pieces[0] = (struct piece){ l->slots[0], s->nodes, s->values, s->len };
        *ret_len = 1;
        return true;
    }
    x.debts = ARENA_ARRAY(a, int64_t, l->len);
    x.wants = ARENA_ARRAY(a, int64_t, l->len);
    x.shares = ARENA_ARRAY(a, uint64_t, l->len);
    x.picks = ARENA_ARRAY(a, uint32_t, l->len);
    x.counts = ARENA_ARRAY(a, size_t, l->len);
    if (!x.debts || !x.wants || !x.shares || !x.picks || !x.counts)
        return false;
    return split_all(&x, a, pieces, ret_len);
}
