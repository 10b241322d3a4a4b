/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.c: tables of the kinds of old agents (`app.cpu`) and of names that pprof uses for types.
 *
 * They decide the name of a series, so they must not change for data that is stored already: a row
 * may be added, not changed. Pure: any thread.
 */
#include "distributor/formats/kinds.h"

static const struct row {
    const char *suffix, *name, *type, *unit;
} rows[] = {
    { "cpu", "process_cpu", "samples", "count" },
    { "itimer", "process_cpu", "samples", "count" },
    { "wall", "wall", "samples", "count" },
    { "seconds", "wall", "samples", "count" },
    { "milliseconds", "wall", "samples", "count" },
    { "microseconds", "wall", "samples", "count" },
    { "nanoseconds", "wall", "samples", "count" },
    { "inuse_objects", "memory", "inuse_objects", "count" },
    { "alloc_objects", "memory", "alloc_objects", "count" },
    { "inuse_space", "memory", "inuse_space", "bytes" },
    { "alloc_space", "memory", "alloc_space", "bytes" },
    { "goroutines", "goroutine", "goroutines", "count" },
    { "mutex_count", "mutex", "contentions", "count" },
    { "mutex_duration", "mutex", "delay", "nanoseconds" },
    { "block_count", "block", "contentions", "count" },
    { "lock_count", "block", "contentions", "count" },
    { "block_duration", "block", "delay", "nanoseconds" },
    { "lock_duration", "block", "delay", "nanoseconds" },
    { "alloc_in_new_tlab_objects", "memory", "alloc_in_new_tlab_objects", "count" },
    { "alloc_outside_tlab_objects", "memory", "alloc_outside_tlab_objects", "count" },
    { "alloc_in_new_tlab_bytes", "memory", "alloc_in_new_tlab_bytes", "bytes" },
    { "alloc_outside_tlab_bytes", "memory", "alloc_outside_tlab_bytes", "bytes" },
    { "live", "memory", "live", "count" },
    { "exceptions", "exceptions", "samples", "count" },
    { "bytes", "memory", "samples", "bytes" },
};

struct kind kind_of(struct str app, uint64_t sample_rate)
{
    ptrdiff_t dot = str_rfind(app, '.');
    struct str suffix = dot > 0 ? str_sub(app, (size_t)dot + 1, app.len) : STR_NULL;
    const struct row *row = NULL;

    for (size_t i = 0; i < ARRAY_LEN(rows) && suffix.len; i++)
        if (str_eqc(suffix, rows[i].suffix))
            row = &rows[i];
    struct kind k = { .app = row ? str_sub(app, 0, (size_t)dot) : app, .period = 1 };
    if (!row)
        row = &rows[0];
    k.type = (struct ptype){ .name = str_c(row->name),
                             .sample_type = str_c(row->type),
                             .sample_unit = str_c(row->unit) };
    bool cpu = str_eqc(k.type.name, "process_cpu");
    if (sample_rate && (cpu || str_eqc(k.type.name, "wall"))) {
        k.period = 1000000000 / sample_rate;
        k.type.sample_type = cpu ? STR("cpu") : STR("wall");
        k.type.sample_unit = STR("nanoseconds");
        k.type.period_type = STR("cpu");
        k.type.period_unit = STR("nanoseconds");
    }
    return k;
}

struct str kind_display_name(struct str sample_type)
{
    static const char *const names[][2] = {
        { "samples", "cpu" },
        { "goroutine", "goroutines" },
        { "contentions", "mutex_count" },
        { "delay", "mutex_duration" },
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eqc(sample_type, names[i][0]))
            return str_c(names[i][1]);
    return sample_type;
}

struct str kind_series_name(const struct str *types, const struct str *display, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqc(types[i], "wall"))
            return STR("wall");
    for (size_t i = 0; i < n; i++) {
        if (str_contains(display[i], STR("cpu")))
            return STR("process_cpu");
        if (str_contains(display[i], STR("alloc_")) || str_contains(display[i], STR("inuse_")) ||
            str_eqc(display[i], "space") || str_eqc(display[i], "objects"))
            return STR("memory");
        if (str_contains(display[i], STR("mutex_")))
            return STR("mutex");
        if (str_contains(display[i], STR("block_")))
            return STR("block");
        if (str_eqc(display[i], "goroutines"))
            return STR("goroutines");
    }
    return n ? display[n - 1] : STR_NULL;
}

bool kind_cumulative(struct str sample_type)
{
    static const char *const names[] = { "alloc_objects", "alloc_space", "contentions", "delay" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eqc(sample_type, names[i]))
            return true;
    return false;
}
