/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/render/amount.h"

/* A unit and how many of the one before make it; the last one has 0. */
struct scale {
    const char *name;
    double next;
};
static const struct scale times[] = { { "ns", 1000 }, { "us", 1000 }, { "ms", 1000 }, { "s", 60 },
                                      { "min", 60 },  { "h", 24 },    { "d", 0 } };
static const struct scale bytes[] = { { "B", 1024 },   { "KiB", 1024 }, { "MiB", 1024 },
                                      { "GiB", 1024 }, { "TiB", 1024 }, { "PiB", 0 } };

static const struct scale *scale_of(struct str unit)
{
    static const char *const names[] = { "nanoseconds", "microseconds", "milliseconds", "seconds" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eqc(unit, names[i]))
            return &times[i];
    return str_eqc(unit, "bytes") ? bytes : NULL;
}

void amount_put(uint64_t v, struct str unit, struct buf *out)
{
    const struct scale *s = scale_of(unit);
    double x = (double)v;

    if (!s || v == 0) {
        buf_add_u64(out, v);
        return;
    }
    while (s->next > 0 && x >= s->next)
        x /= (s++)->next;
    if (x == (double)(uint64_t)x)
        buf_addf(out, "%.0f%s", x, s->name);
    else
        buf_addf(out, "%.2f%s", x, s->name);
}

void amount_percent(uint64_t v, uint64_t all, struct buf *out)
{
    if (all == 0 || v == 0)
        buf_add_str(out, STR("0%"));
    else
        buf_addf(out, "%.2f%%", (double)v * 100 / (double)all);
}
