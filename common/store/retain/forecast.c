/* SPDX-License-Identifier: Apache-2.0
 *
 * forecast: simulates the coming days. A level grows at its rate so far until it holds the time
 * that is kept of it, and then its size stays. The rest grows at a rate of its own:
 *
 *   bytes
 *     |            ______ 10 m   (90 d)
 *     |        ___/
 *     |    ___/_________  10 s   (7 d)
 *     |___/_____________  rest: what the measured growth has beyond that of the levels
 *     +------------------ days
 *
 * The rate of a level is its bytes by the time they cover, not by the time in which they arrived:
 * an import of a year in an hour says nothing about tomorrow.
 */
#include "common/store/retain/forecast.h"

#include <stdlib.h>

#include "common/base/rd.h"
#include "common/model/slot.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define VERSION 1
#define DAY_MS  86400000.0
#define ROW_LEN 10

/* ---- history ---- */

void forecast_add(struct forecast_history *h, uint16_t day, uint64_t bytes)
{
    if (h->len && h->at[h->len - 1].day > day)
        return;
    if (h->len && h->at[h->len - 1].day == day) {
        h->at[h->len - 1].bytes = bytes;
        return;
    }
    if (h->len == FORECAST_DAYS)
        memmove(h->at, h->at + 1, (--h->len) * sizeof(h->at[0]));
    h->at[h->len++] = (struct forecast_day){ day, bytes };
}

void forecast_encode(const struct forecast_history *h, struct buf *out)
{
    char row[ROW_LEN];

    buf_reset(out);
    buf_add_c(out, VERSION);
    for (uint32_t i = 0; i < h->len; i++) {
        put_u16be(row, h->at[i].day);
        put_u64be(row + 2, h->at[i].bytes);
        buf_add(out, row, sizeof(row));
    }
}

int forecast_decode(struct str row, struct forecast_history *ret, struct err *e)
{
    size_t n = row.len / ROW_LEN;

    *ret = (struct forecast_history){ 0 };
    if (row.len % ROW_LEN != 1 || row.ptr[0] != VERSION || n > FORECAST_DAYS)
        return err_set(e, ERR_CORRUPT, "history of bytes: %zu bytes are no row of version %d",
                       row.len, VERSION);
    for (size_t i = 0; i < n; i++) {
        const char *p = row.ptr + 1 + i * ROW_LEN;

        ret->at[i] = (struct forecast_day){ (uint16_t)get_u16be(p), get_u64be(p + 2) };
        if (i && ret->at[i].day <= ret->at[i - 1].day)
            return err_set(e, ERR_CORRUPT, "history of bytes: days do not ascend");
    }
    ret->len = (uint32_t)n;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

bool forecast_measured(const struct forecast_history *h, int64_t *ret_per_day)
{
    double d[FORECAST_DAYS];
    size_t n = 0;

    for (uint32_t i = 1; i < h->len; i++)
        d[n++] = ((double)h->at[i].bytes - (double)h->at[i - 1].bytes) /
                 (h->at[i].day - h->at[i - 1].day);
    if (!n)
        return false;
    qsort(d, n, sizeof(*d), by_value);
    *ret_per_day = (int64_t)((d[n / 2] + d[(n - 1) / 2]) / 2);
    return true;
}

void forecast_unite(struct forecast_in *to, const struct forecast_in *from)
{
    struct forecast_history both = { 0 };
    uint32_t i = 0, k = 0;

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        to->levels[l].bytes += from->levels[l].bytes;
        to->levels[l].span_ms = MAX(to->levels[l].span_ms, from->levels[l].span_ms);
        to->levels[l].keep_ms = MAX(to->levels[l].keep_ms, from->levels[l].keep_ms);
    }
    to->bytes += from->bytes;
    if (!to->history.len) { /* the first one */
        to->history = from->history;
        return;
    }
    /* Days that both know. */
    while (i < to->history.len && k < from->history.len) {
        const struct forecast_day *a = &to->history.at[i], *b = &from->history.at[k];

        if (a->day == b->day)
            forecast_add(&both, a->day, a->bytes + b->bytes);
        i += a->day <= b->day;
        k += b->day <= a->day;
    }
    to->history = both;
}

/* ---- the forecast ---- */

struct rates {
    double level[KEY_LEVELS], room[KEY_LEVELS]; /* per day; days until it is full */
    double rest;
};

static double room_used(const struct rates *r, double days)
{
    double bytes = r->rest * days;

    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        bytes += r->level[l] * MIN(days, r->room[l]);
    return bytes;
}

static struct rates rates_of(const struct forecast_in *in, struct forecast *ret)
{
    struct rates r = { 0 };
    double growth = 0, freed = 0;
    uint64_t levels = 0;
    int64_t measured;
    double widest = DAY_MS;

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        const struct forecast_level *x = &in->levels[l];
        double span = MAX((double)x->span_ms, DAY_MS / 24), keep = (double)x->keep_ms;

        r.level[l] = (double)x->bytes * DAY_MS / span;
        r.room[l] = !x->keep_ms ? FORECAST_DAYS_MAX : keep > span ? (keep - span) / DAY_MS : 0;
        if (r.room[l] > 0)
            growth += r.level[l];
        else
            freed += r.level[l];
        levels += x->bytes;
        widest = MAX(widest, span);
    }
    r.rest = in->bytes > levels ? (double)(in->bytes - levels) * DAY_MS / widest : 0;
    if (forecast_measured(&in->history, &measured))
        r.rest = MAX((double)measured - growth, 0);
    ret->growth_per_day = (int64_t)(growth + r.rest);
    ret->freed_per_day = (uint64_t)freed;
    return r;
}

void forecast_make(const struct forecast_in *in, uint64_t room, struct forecast *ret)
{
    struct rates r;
    bool ever = false;

    *ret = (struct forecast){ .bytes = in->bytes, .days_left = FORECAST_FOREVER };
    r = rates_of(in, ret);
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        ever = ever || (!in->levels[l].keep_ms && in->levels[l].bytes);
    if (r.rest < 1 && !ever)
        ret->settles_bytes = in->bytes + (uint64_t)room_used(&r, FORECAST_DAYS_MAX);
    if (room_used(&r, FORECAST_DAYS_MAX) < (double)room)
        return;
    uint32_t low = 0, high = FORECAST_DAYS_MAX; /* it grows with the days */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (room_used(&r, mid + 1) >= (double)room)
            high = mid;
        else
            low = mid + 1;
    }
    ret->days_left = low;
}

/* ---- of a shard ---- */

static int level_bytes(struct store *s, uint32_t level, uint64_t *ret, struct err *e)
{
    struct retain_run runs[RETAIN_RUNS];
    size_t n = retain_runs(level, runs);

    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        char from = (char)runs[i].first, to = (char)(runs[i].first + 1);
        struct kv_range range = { str_n(&from, 1), str_n(&to, 1) };
        uint64_t bytes;

        if (kv_sizes(s->kv, runs[i].cf, &range, 1, &bytes, e))
            return e->code;
        *ret += bytes;
    }
    return 0;
}

static int load_history(struct store *s, struct forecast_history *ret, struct err *e)
{
    struct buf row;
    struct key k;
    int rc;

    *ret = (struct forecast_history){ 0 };
    buf_init(&row, KIB);
    key_control(&k, CONTROL_FORECAST);
    rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &row, e);
    if (!rc)
        rc = forecast_decode(buf_str(&row), ret, e);
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static int keep_history(struct store *s, const struct forecast_history *h, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct buf row;
    struct key k;
    int rc;

    buf_init(&row, KIB);
    forecast_encode(h, &row);
    CHECK(buf_ok(&row));
    key_control(&k, CONTROL_FORECAST);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&row));
    rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    buf_deinit(&row);
    return rc;
}

/* Since the later of the first data and the floor; of floors the least. */
static uint64_t span_ms(const struct retain *r, uint32_t level)
{
    uint32_t low = r->low[level] == UINT32_MAX ? 0 : r->low[level];
    uint32_t now = slot_of_ms(r->engine_ms), from = MAX(low, r->first);

    return now > from ? (uint64_t)(now - from) * SLOT_MS : 0;
}

int retain_forecast(struct store *s, struct err *e)
{
    struct retain *r = s->retain;
    struct retain_keep keep = retain_policy_default(r->policy);
    struct forecast_in in = { 0 };
    struct forecast_history before;
    struct kv_stats st;

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        in.levels[l].keep_ms = keep.ms[l];
        in.levels[l].span_ms = span_ms(r, l);
        if (level_bytes(s, l, &in.levels[l].bytes, e))
            return e->code;
    }
    kv_stats(s->kv, &st);
    for (size_t i = 0; i < KV_CFS; i++)
        in.bytes += st.file_bytes[i];
    if (load_history(s, &in.history, e))
        return e->code;
    before = in.history;
    forecast_add(&in.history, (uint16_t)(slot_of_ms(r->engine_ms) / DAY_SLOTS), in.bytes);
    /* Written once a day: what it began with. */
    if (in.history.len != before.len && keep_history(s, &in.history, e))
        return e->code;
    mutex_lock(&r->lock);
    r->forecast = in;
    r->forecast_known = true;
    mutex_unlock(&r->lock);
    return 0;
}

bool store_forecast_own(struct store *s, struct forecast_in *ret)
{
    struct retain *r = s->retain;
    bool known;

    mutex_lock(&r->lock);
    known = r->forecast_known;
    *ret = r->forecast;
    mutex_unlock(&r->lock);
    return known;
}

bool store_forecast(struct store_view *v, struct forecast_in *ret)
{
    return store_forecast_own(v->s, ret);
}
