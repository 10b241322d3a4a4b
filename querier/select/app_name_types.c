/* SPDX-License-Identifier: Apache-2.0
 *
 * app_name_types.c: one table, read both ways.
 *
 * The old API asks for `app.cpu`; what is stored has a service and a profile type, and the same
 * kind comes under several types: folded text makes memory:inuse_space:bytes::, a Go heap profile
 * memory:inuse_space:bytes:space:bytes. So a kind is a list of (name, sample type, unit) in order
 * of preference, whatever the period, and a query first asks which types the service has.
 */
#include "querier/select/app_name_types.h"

#define CANDIDATES_MAX 3

struct candidate {
    const char *name, *type, *unit; /* unit NULL: any */
};
struct app_name_types_kind {
    const char *suffix;
    const char *type_id;
    struct candidate candidates[CANDIDATES_MAX];
};

/* clang-format off: rows */
#define CPU_ID "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define CPU_BEST                            \
    {                                       \
        "process_cpu", "cpu", "nanoseconds" \
    }
#define CPU_COUNT                         \
    {                                     \
        "process_cpu", "samples", "count" \
    }
#define WALL_ID "wall:wall:nanoseconds:cpu:nanoseconds"
#define WALL_BEST                     \
    {                                 \
        "wall", "wall", "nanoseconds" \
    }
#define WALL_ANY             \
    {                        \
        "wall", "wall", NULL \
    }
#define WALL_COUNT              \
    {                           \
        "wall", "samples", NULL \
    }
#define MEMORY(type, unit)                  \
    {                                       \
        type, "memory:" type ":" unit "::", \
        {                                   \
            {                               \
                "memory", type, unit        \
            }                               \
        }                                   \
    }

/* clang-format on */

/* Where several suffixes mean the same type, the first is the one shown. */
static const struct app_name_types_kind kinds[] = {
    { "cpu", CPU_ID, { CPU_BEST, CPU_COUNT } },
    { "itimer", CPU_ID, { CPU_BEST, CPU_COUNT } },
    { "wall", WALL_ID, { WALL_BEST, WALL_ANY, WALL_COUNT } },
    { "seconds", WALL_ID, { WALL_BEST, WALL_ANY, WALL_COUNT } },
    { "milliseconds", WALL_ID, { WALL_BEST, WALL_ANY, WALL_COUNT } },
    { "microseconds", WALL_ID, { WALL_BEST, WALL_ANY, WALL_COUNT } },
    { "nanoseconds", WALL_ID, { WALL_BEST, WALL_ANY, WALL_COUNT } },
    MEMORY("inuse_objects", "count"),
    MEMORY("inuse_space", "bytes"),
    MEMORY("alloc_objects", "count"),
    MEMORY("alloc_space", "bytes"),
    { "goroutines",
      "goroutine:goroutines:count::",
      { { "goroutine", "goroutines", NULL },
        { "goroutine", "goroutine", NULL },
        { "goroutines", "goroutine", NULL } } },
    { "mutex_count", "mutex:contentions:count::", { { "mutex", "contentions", NULL } } },
    { "mutex_duration", "mutex:delay:nanoseconds::", { { "mutex", "delay", NULL } } },
    { "block_count", "block:contentions:count::", { { "block", "contentions", NULL } } },
    { "block_duration", "block:delay:nanoseconds::", { { "block", "delay", NULL } } },
    { "lock_count",
      "block:contentions:count::",
      { { "block", "contentions", NULL }, { "lock", "lock_count", NULL } } },
    { "lock_duration",
      "block:delay:nanoseconds::",
      { { "block", "delay", NULL }, { "lock", "lock_time", NULL } } },
    MEMORY("alloc_in_new_tlab_objects", "count"),
    MEMORY("alloc_outside_tlab_objects", "count"),
    MEMORY("alloc_in_new_tlab_bytes", "bytes"),
    MEMORY("alloc_outside_tlab_bytes", "bytes"),
    MEMORY("live", "count"),
    { "exceptions",
      "exceptions:samples:count::",
      { { "exceptions", "samples", NULL }, { "exception", "exception", NULL } } },
    { "bytes", "memory:samples:bytes::", { { "memory", "samples", "bytes" } } },
};

struct app_name_types_app app_name_types_app_of(struct str name)
{
    ptrdiff_t dot = str_rfind(name, '.');

    if (dot > 0) {
        struct str suffix = str_sub(name, (size_t)dot + 1, name.len);
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
            if (str_eqc(suffix, kinds[i].suffix))
                return (struct app_name_types_app){ str_sub(name, 0, (size_t)dot), &kinds[i] };
    }
    return (struct app_name_types_app){ name, &kinds[0] };
}

int app_name_types_rank(const struct app_name_types_kind *k, const struct ptype *t)
{
    for (int i = 0; i < CANDIDATES_MAX && k->candidates[i].name; i++) {
        const struct candidate *c = &k->candidates[i];
        if (str_eqc(t->name, c->name) && str_eqc(t->sample_type, c->type) &&
            (!c->unit || str_eqc(t->sample_unit, c->unit)))
            return i;
    }
    return -1;
}

const char *app_name_types_type_id(const struct app_name_types_kind *k)
{
    return k->type_id;
}

const char *app_name_types_suffix(const struct ptype *t)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (app_name_types_rank(&kinds[i], t) >= 0)
            return kinds[i].suffix;
    return NULL;
}
