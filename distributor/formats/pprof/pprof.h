/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof.h: the pprof message (perftools.profiles.Profile) as flat columns.
 *
 * One pass over the bytes, no object per message: locations, lines, functions, mappings are arrays;
 * strings and samples are slices of the body, which must outlive the struct. A sample is read when
 * it is walked (pprof_sample_read), so its numbers are never stored in a wider form. References
 * (ids, string indexes) are looked up, since fields come in any order. Rules of validity: pprof.c.
 *
 * Format: proto/FORMATS.md, "pprof message".
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_H

#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "distributor/formats/limits.h"
#include "distributor/formats/pprof/pprof_wire.h"

#define PPROF_TYPES_MAX 64
#define PPROF_NONE      UINT32_MAX /* no such entry: an id or index that points nowhere */
#define PPROF_LONG_NAME KIB        /* any number of functions may share one: looked at once */

struct pprof_type {
    uint32_t type, unit; /* string indexes, here and below; PPROF_NONE if out of 32 bits */
};
struct pprof_slice {
    uint32_t from, len; /* of the body */
};
struct pprof_label {
    uint32_t key, str, unit;
    int64_t num;
};
struct pprof_mapping {
    uint64_t id, start, limit, offset;
    uint32_t file, build_id;
};
struct pprof_location {
    uint64_t id, mapping_id, address;
    uint32_t lines_end; /* first line = lines_end of the location before */
};
struct pprof_line {
    uint64_t function_id;
    uint32_t line; /* 0 for unknown and for nonsense */
};
struct pprof_function {
    uint64_t id;
    uint32_t name, system_name, file;
    uint32_t start_line; /* 0: not said */
};

/* id -> position. Ids are arbitrary 64-bit numbers, in honest profiles nearly always 1..n. */
struct pprof_ids {
    size_t len;
    bool sequential; /* id = position + 1 */
    uint32_t *dense; /* by id, below dense_len; NULL if ids are sparse */
    size_t dense_len;
    struct map_u64 map; /* sparse ids */
};

struct pprof {
    struct str body; /* borrowed */
    VEC(struct str) strings;
    struct pprof_type types[PPROF_TYPES_MAX];
    uint32_t types_len;
    bool has_period_type, has_time;
    struct pprof_type period_type;
    int64_t period, time_ns, duration_ns;
    VEC(struct pprof_slice) samples;
    VEC(struct pprof_mapping) mappings;
    VEC(struct pprof_location) locations;
    VEC(struct pprof_line) lines;
    VEC(struct pprof_function) functions;
    struct pprof_ids location_ids, function_ids, mapping_ids;
    uint64_t unknown_fields, bad_string_refs;
    bool function_ids_repaired; /* .NET agents send 0 for all of them */
    size_t bytes, bytes_max;    /* of the columns */
};

/* p is initialised by it, and to be freed after failure too. ERR_INPUT or ERR_LIMIT. */
NODISCARD int pprof_parse(struct pprof *p, struct str body, const struct limits *l, struct err *e);
void pprof_deinit(struct pprof *p);
/* The second half of pprof_parse (pprof_ids.c): indexes the ids, checks the references. */
NODISCARD int pprof_resolve(struct pprof *p, struct err *e);

/* Tags in a sample */
#define PPROF_TAG_LOCATION  0x08 /* field 1, a number */
#define PPROF_TAG_LOCATIONS 0x0a /* field 1, packed */
#define PPROF_TAG_VALUE     0x10 /* field 2, a number */
#define PPROF_TAG_VALUES    0x12
#define PPROF_TAG_LABEL     0x1a

/* Takes what is usual, as far as columns have room; returns where it stops (pprof_runs.c). */
const uint8_t *pprof_runs(struct pprof *p, const struct limits *l, const uint8_t *at,
                          const uint8_t *end);

/* One sample, reused for all (pprof_sample.c). */
struct pprof_sample {
    struct str ids;          /* the location ids as they stand in the body, if in one piece */
    bool tagged;             /* that piece is one field per id, else it is packed */
    VEC(uint64_t) locations; /* else the ids, leaf first */
    int64_t values[PPROF_TYPES_MAX];
    size_t values_len; /* PPROF_TYPES_MAX + 1: more than that */
    VEC(struct pprof_label) labels;
};
NODISCARD int pprof_sample_read(const struct pprof *p, size_t i, const struct limits *l,
                                struct pprof_sample *s, struct err *e);
/* Puts the ids into s->locations whatever their form. */
NODISCARD int pprof_sample_unpack(const struct pprof *p, const struct limits *l,
                                  struct pprof_sample *s, struct err *e);
void pprof_sample_deinit(struct pprof_sample *s);

/* "" for index 0 and for what points nowhere. */
static inline struct str pprof_str(const struct pprof *p, uint32_t index)
{
    return index > 0 && index < p->strings.len ? p->strings.ptr[index] : STR("");
}

static inline uint32_t pprof_find(const struct pprof_ids *ids, uint64_t id)
{
    if (LIKELY(ids->sequential))
        return id - 1 < ids->len ? (uint32_t)(id - 1) : PPROF_NONE;
    if (ids->dense)
        return id < ids->dense_len ? ids->dense[id] : PPROF_NONE;
    return map_u64_get(&ids->map, id);
}
static_assert(MAP_U64_EMPTY == PPROF_NONE, "a miss in the map is a miss here");

static inline uint32_t pprof_string_index(uint64_t v)
{
    return v < UINT32_MAX ? (uint32_t)v : PPROF_NONE;
}

static inline struct pprof_line pprof_line_of(uint64_t function_id, uint64_t line)
{
    return (struct pprof_line){ function_id, line < UINT32_MAX ? (uint32_t)line : 0 };
}

#endif
