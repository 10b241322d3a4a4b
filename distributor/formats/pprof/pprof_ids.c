/* SPDX-License-Identifier: Apache-2.0
 *
 * The last steps after all fields of a pprof are read: find entries by id, and check whether the
 * references make sense. Ids are 1..n in nearly all profiles (position = id - 1, no table); out of
 * order or with gaps they get a table by id, and only really sparse ones a hash map.
 */
#include "common/base/mem.h"
#include "distributor/formats/pprof/pprof.h"

/* Reads the id of entry i out of a column of structs that start with a uint64_t id. */
static inline uint64_t id_at(const void *column, size_t size, size_t i)
{
    uint64_t id;

    memcpy(&id, (const char *)column + i * size, sizeof(id));
    return id;
}

/* They are 1, 2, 3 ...: none is 0, and none is there twice. */
static inline bool in_order(const void *column, size_t size, size_t n)
{
    uint64_t other = 0;

    for (size_t i = 0; i < n; i++)
        other |= id_at(column, size, i) ^ (i + 1);
    return other == 0;
}
#define IN_ORDER(v) in_order((v)->ptr, sizeof(*(v)->ptr), (v)->len)

static int id_twice(struct err *e, const char *what, uint64_t id)
{
    return err_set(e, ERR_INPUT, "pprof: two %ss have the id %" PRIu64, what, id);
}

/* A column of structs that start with a uint64_t id. */
struct id_column {
    const char *what; /* one of its entries, for errors */
    const void *ptr;  /* n entries of `size` bytes */
    size_t size, n;
};
#define ID_COLUMN(what, v) (&(struct id_column){ what, (v)->ptr, sizeof(*(v)->ptr), (v)->len })

static int ids_index(struct pprof *p, struct pprof_ids *ids, const struct id_column *column,
                     struct err *e)
{
    const size_t n = column->n;
    uint64_t most = 0;
    size_t bytes;

    ids->len = n;
    if (ids->sequential)
        return 0;
    for (size_t i = 0; i < n; i++)
        most = MAX(most, id_at(column->ptr, column->size, i));
    ids->dense_len = most < (uint64_t)n * 8 + 64 ? (size_t)most + 1 : 0;
    bytes = ids->dense_len ? ids->dense_len * sizeof(uint32_t) : n * 32;
    if (bytes > p->bytes_max - p->bytes)
        return err_set(e, ERR_LIMIT, "pprof: decoding takes more than %zu bytes of memory",
                       p->bytes_max);
    p->bytes += bytes;
    if (ids->dense_len) {
        ids->dense = xreallocarray(NULL, ids->dense_len, sizeof(uint32_t));
        memset(ids->dense, 0xff, bytes);
    } else {
        map_u64_reserve(&ids->map, n);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t id = id_at(column->ptr, column->size, i);
        if (ids->dense ? ids->dense[id] != PPROF_NONE
                       : map_u64_put(&ids->map, id, (uint32_t)i) != MAP_U64_EMPTY)
            return id_twice(e, column->what, id);
        if (ids->dense)
            ids->dense[id] = (uint32_t)i;
    }
    return 0;
}

/* .NET agents leave the ids of all functions 0 and mean: the i-th function is the i-th location's.
 */
static bool function_ids_missing(const struct pprof *p)
{
    for (size_t i = 0; i < p->functions.len; i++)
        if (p->functions.ptr[i].id)
            return false;
    return p->functions.len > 0 && p->functions.len == p->locations.len;
}

static int check_ids(struct pprof *p, struct err *e)
{
    for (size_t i = 0; i < p->locations.len && !p->location_ids.sequential; i++)
        if (p->locations.ptr[i].id == 0)
            return err_set(e, ERR_INPUT, "pprof: location %zu has the id 0", i);
    if (p->function_ids.sequential)
        return 0;
    if (function_ids_missing(p)) {
        p->function_ids_repaired = true;
        for (size_t i = 0; i < p->functions.len; i++)
            p->functions.ptr[i].id = p->locations.ptr[i].id;
        p->function_ids.sequential = p->location_ids.sequential;
    }
    for (size_t i = 0; i < p->functions.len; i++)
        if (p->functions.ptr[i].id == 0)
            return err_set(e, ERR_INPUT, "pprof: function %zu has the id 0", i);
    return 0; /* A mapping may have the id 0: some agents count from there. */
}

static int resolve_ids(struct pprof *p, struct err *e)
{
    p->location_ids.sequential = IN_ORDER(&p->locations);
    p->function_ids.sequential = IN_ORDER(&p->functions);
    p->mapping_ids.sequential = IN_ORDER(&p->mappings);
    if (check_ids(p, e) ||
        ids_index(p, &p->location_ids, ID_COLUMN("location", &p->locations), e) ||
        ids_index(p, &p->function_ids, ID_COLUMN("function", &p->functions), e) ||
        ids_index(p, &p->mapping_ids, ID_COLUMN("mapping", &p->mappings), e))
        return e->code;
    return 0;
}

/* String indexes from `least` > 0 on. */
static uint64_t count_refs(const struct pprof *p, size_t least)
{
    uint64_t n = (p->period_type.type >= least) + (p->period_type.unit >= least);

    for (size_t i = 0; i < p->types_len; i++)
        n += (p->types[i].type >= least) + (p->types[i].unit >= least);
    vec_for (i, &p->functions) {
        const struct pprof_function *fn = &p->functions.ptr[i];
        n += (fn->name >= least) + (fn->system_name >= least) + (fn->file >= least);
    }
    vec_for (i, &p->mappings)
        n += (p->mappings.ptr[i].file >= least) + (p->mappings.ptr[i].build_id >= least);
    return n;
}

/* The name of a type names its series, so it is never guessed. A body that has no string table at
 * all has no names anywhere, and is taken. */
static int check_type(const struct pprof *p, const char *what, size_t i, uint32_t index,
                      struct err *e)
{
    if (p->strings.len && index >= p->strings.len)
        return err_set(
            e, ERR_INPUT,
            "pprof: %s %zu has a name outside of the string table, which has %zu entries: "
            "the profile is cut, or its writer is wrong",
            what, i, p->strings.len);
    if (!str_utf8_valid(pprof_str(p, index)))
        return err_set(e, ERR_INPUT, "pprof: %s %zu has a name that is not valid UTF-8", what, i);
    return 0;
}

static int check_types(const struct pprof *p, struct err *e)
{
    for (size_t i = 0; i < p->types_len; i++)
        if (check_type(p, "sample type", i, p->types[i].type, e) ||
            check_type(p, "the unit of sample type", i, p->types[i].unit, e))
            return e->code;
    if (!p->has_period_type)
        return 0;
    return check_type(p, "period type", 0, p->period_type.type, e) ||
                   check_type(p, "the unit of period type", 0, p->period_type.unit, e)
               ? e->code
               : 0;
}

/* A few wrong indexes of other names read as "" (agents do that); a body full of them is something
 * else. */
static int check_strings(struct pprof *p, struct err *e)
{
    if (check_types(p, e))
        return e->code;
    p->bad_string_refs = count_refs(p, MAX(p->strings.len, (size_t)1));
    if (p->bad_string_refs <= 100)
        return 0;
    uint64_t all = count_refs(p, 1);
    if (p->bad_string_refs > all / 100)
        return err_set(e, ERR_INPUT,
                       "pprof: %" PRIu64 " of %" PRIu64
                       " string indexes point outside the string table of %zu entries",
                       p->bad_string_refs, all, p->strings.len);
    return 0;
}

int pprof_resolve(struct pprof *p, struct err *e)
{
    return resolve_ids(p, e) ? e->code : check_strings(p, e);
}

void pprof_deinit(struct pprof *p)
{
    vec_free(&p->strings);
    vec_free(&p->samples);
    vec_free(&p->mappings);
    vec_free(&p->locations);
    vec_free(&p->lines);
    vec_free(&p->functions);
    struct pprof_ids *ids[] = { &p->location_ids, &p->function_ids, &p->mapping_ids };
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        xfree(ids[i]->dense);
        map_u64_deinit(&ids[i]->map);
    }
}
