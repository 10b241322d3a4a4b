/* SPDX-License-Identifier: Apache-2.0
 *
 * forecast.h: for how many days the disk will suffice. Pure arithmetic over measurements of the
 * store.
 *
 * A level that holds `span_ms` of time in `bytes` grows by bytes / span a day, until it spans the
 * time that is kept of it. Bytes that are in no level (dictionaries, indexes) grow by the measured
 * growth less that of the levels.
 */
#ifndef COMMON_STORE_RETAIN_FORECAST_H
#define COMMON_STORE_RETAIN_FORECAST_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/codec/keys.h"

struct store;

#define FORECAST_DAYS     32
#define FORECAST_FOREVER  UINT32_MAX /* days_left: the data fit without limit of time */
#define FORECAST_DAYS_MAX 3650

/* Bytes in files at the first round of each of the last days (the newest day's: now), the control
 * row CONTROL_FORECAST:
 *   version u8 = 1 | n x (day u16 since 2020-01-01 | bytes u64), days ascending */
struct forecast_history {
    uint32_t len;
    struct forecast_day {
        uint16_t day;
        uint64_t bytes;
    } at[FORECAST_DAYS];
};
/* Replaces the figure of the same day; drops the oldest. A day before the last is not taken. */
void forecast_add(struct forecast_history *h, uint16_t day, uint64_t bytes);
void forecast_encode(const struct forecast_history *h, struct buf *out);
NODISCARD int forecast_decode(struct str row, struct forecast_history *ret, struct err *e);
/* Median of the daily differences, so that a day of imports does not count; false: under 2 days. */
bool forecast_measured(const struct forecast_history *h, int64_t *ret_per_day);

struct forecast_in {
    struct forecast_level {
        uint64_t bytes, span_ms, keep_ms; /* keep_ms 0: without limit */
    } levels[KEY_LEVELS];
    uint64_t bytes; /* all of the shard, with the bytes that are in no level */
    struct forecast_history history;
};
struct forecast {
    uint64_t bytes;         /* now */
    int64_t growth_per_day; /* now */
    uint64_t freed_per_day; /* by retention, of what the levels hold */
    uint64_t settles_bytes; /* the size at which it stops growing; 0: it does not stop */
    uint32_t days_left;     /* until `room` more bytes are used */
};
/* `room`: free bytes of the volume less the reserve, divided among its shards by the caller. */
void forecast_make(const struct forecast_in *in, uint64_t room, struct forecast *ret);

/* Several shards of a volume as one; *to is zero before the first. Spans and days are those all
 * have in common, or the widest. */
void forecast_unite(struct forecast_in *to, const struct forecast_in *from);

struct store_view;
/* Values at the end of the last round of retention, which also keeps the history. False: no round
 * has ended yet. Any thread that holds a view; store_forecast_own: the shard's, without a view. */
bool store_forecast(struct store_view *v, struct forecast_in *ret);
bool store_forecast_own(struct store *s, struct forecast_in *ret);

#endif
