/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left to do once all fields of a pprof are read: find entries by id, and say whether the
 * references make sense. Ids are 1..n in nearly all profiles (position = id - 1, no table); out of
 * order or with gaps they get a table by id, and only really sparse ones a hash map.
 */
#include "common/base/mem.h"
#include "distributor/formats/pprof.h"

/* Reads the id of entry i out of a column of structs that start with a uint64_t id. */
static uint64_t id_at(const void *column, size_t size, size_t i)
{
    uint64_t id;

    memcpy(&id, (const char *)column + i * size, sizeof(id));
    return id;
}

static int id_twice(struct err *e, const char *what, uint64_t id)
{
    return err_set(e, ERR_INPUT, "pprof: two %ss have the id %" PRIu64, what, id);
}

static int ids_index(struct pprof *p, struct pprof_ids *ids, const char *what, const void *column,
                     size_t size, size_t n, struct err *e)
{
    uint64_t most = 0;
    size_t bytes, sequential = 0;

    ids->len = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t id = id_at(column, size, i);
        most = MAX(most, id);
        sequential += id == i + 1;
    }
    ids->sequential = sequential == n;
    if (ids->sequential)
        return 0;
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
        uint64_t id = id_at(column, size, i);
        if (ids->dense ? ids->dense[id] != PPROF_NONE
                       : map_u64_put(&ids->map, id, (uint32_t)i) != MAP_U64_EMPTY)
            return id_twice(e, what, id);
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

static int resolve_ids(struct pprof *p, struct err *e)
{
    for (size_t i = 0; i < p->locations.len; i++)
        if (p->locations.ptr[i].id == 0)
            return err_set(e, ERR_INPUT, "pprof: location %zu has the id 0", i);
    if (function_ids_missing(p)) {
        p->function_ids_repaired = true;
        for (size_t i = 0; i < p->functions.len; i++)
            p->functions.ptr[i].id = p->locations.ptr[i].id;
    }
    for (size_t i = 0; i < p->functions.len; i++)
        if (p->functions.ptr[i].id == 0)
            return err_set(e, ERR_INPUT, "pprof: function %zu has the id 0", i);
    /* A mapping may have the id 0: some agents count from there. */
    if (ids_index(p, &p->location_ids, "location", p->locations.ptr, sizeof(*p->locations.ptr),
                  p->locations.len, e) ||
        ids_index(p, &p->function_ids, "function", p->functions.ptr, sizeof(*p->functions.ptr),
                  p->functions.len, e) ||
        ids_index(p, &p->mapping_ids, "mapping", p->mappings.ptr, sizeof(*p->mappings.ptr),
                  p->mappings.len, e))
        return e->code;
    return 0;
}

static void count_ref(struct pprof *p, uint32_t index)
{
    p->string_refs += index != 0;
    p->bad_string_refs += index != 0 && index >= p->strings.len;
}

/* A few wrong indexes read as "" (agents do that); a body full of them is something else. */
static int check_strings(struct pprof *p, struct err *e)
{
    for (size_t i = 0; i < p->types_len; i++) {
        count_ref(p, p->types[i].type);
        count_ref(p, p->types[i].unit);
    }
    count_ref(p, p->period_type.type);
    count_ref(p, p->period_type.unit);
    for (size_t i = 0; i < p->functions.len; i++) {
        count_ref(p, p->functions.ptr[i].name);
        count_ref(p, p->functions.ptr[i].system_name);
        count_ref(p, p->functions.ptr[i].file);
    }
    for (size_t i = 0; i < p->mappings.len; i++) {
        count_ref(p, p->mappings.ptr[i].file);
        count_ref(p, p->mappings.ptr[i].build_id);
    }
    if (p->bad_string_refs > 100 && p->bad_string_refs > p->string_refs / 100)
        return err_set(e, ERR_INPUT,
                       "pprof: %" PRIu64 " of %" PRIu64
                       " string indexes point outside the string table of %zu entries",
                       p->bad_string_refs, p->string_refs, p->strings.len);
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
