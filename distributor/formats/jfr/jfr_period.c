/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_period: how long a sample of jdk.ExecutionSample stands for.
 *
 * A JDK writes its settings as events of jdk.ActiveSetting at the beginning of each chunk, and once
 * more whenever a recording starts or stops: {startTime, id of the class, name, value}, of which
 * the name "period" and a value like "20 ms" matter here. Buffers of threads are written in any
 * order, so a setting may follow the samples that it is for: settings are collected in a pass of
 * their own, and a sample takes the last setting that is not later than itself, or else the first
 * setting of its chunk.
 *
 * A value that names no length of time ("everyChunk", "beginChunk", "endChunk") says nothing of
 * samples: the rate of the URL holds, as in chunks without the setting. So it does for
 * async-profiler, which writes no setting of this name, and for sampleRate=0, which asks for
 * counts.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR events").
 */
#include <stdlib.h>

#include "common/base/size.h"
#include "distributor/formats/jfr/jfr_impl.h"

/* Nanoseconds of "20 ms"; 0: it names no length of time, or one beyond 2^63. */
static uint64_t parse(struct str value)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } rows[] = {
        { "ns", 1 },
        { "us", 1000 },
        { "ms", 1000000 },
        { "s", 1000000000 },
        { "m", UINT64_C(60000000000) },
        { "h", UINT64_C(3600000000000) },
        { "d", UINT64_C(86400000000000) },
    };
    struct str s = str_trim(value);
    size_t digits = 0;
    uint64_t n, ns;

    while (digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9')
        digits++;
    if (!str_u64(str_sub(s, 0, digits), &n))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eqc(str_trim(str_sub(s, digits, s.len)), rows[i].unit))
            return !u64_mul(n, rows[i].ns, &ns) || ns > INT64_MAX ? 0 : ns;
    return 0;
}

int jfr_period_add(struct jfr *j, uint64_t ticks, struct str value, struct err *e)
{
    const struct jfr_period period = { .ticks = ticks, .ns = parse(value) };

    if (!period.ns || !j->in->sample_rate)
        return 0;
    if (!jfr_charge(j, 2 * sizeof(period), e))
        return e->code;
    vec_push(&j->periods, period);
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct jfr_period *x = a, *y = b;

    return x->ticks < y->ticks ? -1 : x->ticks > y->ticks;
}

void jfr_periods_sort(struct jfr *j)
{
    if (j->periods.len > 1)
        qsort(j->periods.ptr, j->periods.len, sizeof(*j->periods.ptr), by_time);
}

uint64_t jfr_period_at(const struct jfr *j, uint64_t ticks)
{
    size_t low = 0, high = j->periods.len;

    if (!high)
        return j->period;
    while (low < high) { /* the first setting that is later than the sample */
        const size_t middle = low + (high - low) / 2;
        if (j->periods.ptr[middle].ticks <= ticks)
            low = middle + 1;
        else
            high = middle;
    }
    return j->periods.ptr[low ? low - 1 : 0].ns;
}
