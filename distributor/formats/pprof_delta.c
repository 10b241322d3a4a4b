/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_delta: profile minus prev_profile, for counts that grow since the process started.
 *
 * Old Go agents send both. A key is what the agent itself counts by: the stack (of each location
 * the address and its lines with function, file and number), string labels and numeric labels. The
 * Go heap has several samples of one stack that differ in object size only, so the subtraction must
 * come before those are added up, or a negative difference of one would eat a positive one of
 * another.
 *
 * Ids and string indexes mean nothing across two bodies, so a location is known by a 128-bit hash
 * of its content and a sample by a hash over those of its locations and labels, seeded per process.
 * Keys that only prev_profile has are left alone; a difference below zero (the runtime dropped
 * samples: both bodies are of one process) counts as 0.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "distributor/formats/pprof_stacks.h"

struct hashed {
    const struct pprof *p;
    uint64_t seed;
    struct hash128 *locations; /* by position */
    VEC(struct hash128) words; /* scratch: one sample */
};

static struct hash128 mix(struct hash128 h, struct str s, uint64_t seed)
{
    struct hash128 part[2] = { h, hash128(s.ptr, s.len, seed) };

    return hash128(part, sizeof(part), seed);
}

static struct hash128 mix_u64(struct hash128 h, uint64_t v, uint64_t seed)
{
    return mix(h, str_n(&v, sizeof(v)), seed);
}

static struct hash128 hash_location(const struct hashed *x, uint32_t i)
{
    const struct pprof *p = x->p;
    const struct pprof_location *at = &p->locations.ptr[i];
    uint32_t from = i ? p->locations.ptr[i - 1].lines_end : 0;
    struct hash128 h = { at->address, at->lines_end - from };

    for (uint32_t k = from; k < at->lines_end; k++) {
        uint32_t fn = pprof_find(&p->function_ids, p->lines.ptr[k].function_id);
        h = mix_u64(h, p->lines.ptr[k].line, x->seed);
        if (fn != PPROF_NONE) {
            h = mix(h, pprof_str(p, p->functions.ptr[fn].name), x->seed);
            h = mix(h, pprof_str(p, p->functions.ptr[fn].file), x->seed);
        }
    }
    return h;
}

static bool hashed_init(struct hashed *x, const struct pprof *p, struct push *push)
{
    *x = (struct hashed){ .p = p, .seed = push->stacks.seed };
    x->locations = ARENA_ARRAY(push->arena, struct hash128, p->locations.len + 1);
    if (!x->locations)
        return false;
    for (size_t i = 0; i < p->locations.len; i++)
        x->locations[i] = hash_location(x, (uint32_t)i);
    return true;
}

/* False for a sample that the walk will leave out anyway. */
static bool hash_sample(struct hashed *x, size_t i, struct hash128 *ret)
{
    const struct pprof *p = x->p;
    struct pprof_sample from = { 0 }, to = p->samples.ptr[i];

    if (i)
        from = p->samples.ptr[i - 1];
    if (to.values_end - from.values_end != p->types_len)
        return false;
    x->words.len = 0;
    for (uint32_t k = from.locations_end; k < to.locations_end; k++) {
        uint32_t at = pprof_find(&p->location_ids, p->sample_locations.ptr[k]);
        if (at == PPROF_NONE)
            return false;
        vec_push(&x->words, x->locations[at]);
    }
    struct hash128 h = { to.labels_end - from.labels_end, to.locations_end - from.locations_end };
    for (uint32_t k = from.labels_end; k < to.labels_end; k++) {
        const struct pprof_label *label = &p->labels.ptr[k];
        h = mix(h, pprof_str(p, label->key), x->seed);
        h = label->str ? mix(h, pprof_str(p, label->str), x->seed)
                       : mix_u64(h, (uint64_t)label->num, x->seed);
    }
    *ret = mix(h, str_n(x->words.ptr, x->words.len * sizeof(*x->words.ptr)), x->seed);
    return true;
}

struct delta {
    struct pprof *cur;
    const bool *cumulative;
    struct push *push;
    struct map_u64 first; /* low half of a key -> first sample of cur that has it */
    struct hash128 *keys; /* by sample of cur */
};

/* The first sample with this key, PPROF_NONE if there is none; `add` makes i that sample. */
static uint32_t key_find(struct delta *d, struct hash128 key, uint32_t add)
{
    for (uint64_t k = key.lo;; k = hash_u64(k + 1)) {
        uint32_t i = add == PPROF_NONE ? map_u64_get(&d->first, k) : map_u64_put(&d->first, k, add);
        if (i == MAP_U64_EMPTY || hash128_eq(d->keys[i], key))
            return i;
    }
}

static void clear(int64_t *v, size_t n)
{
    memset(v, 0, n * sizeof(*v));
}

/* Equal keys are added into their first sample, so that prev is subtracted from the whole. */
static bool index_current(struct delta *d, struct hashed *x)
{
    size_t types = d->cur->types_len;

    d->keys = ARENA_ARRAY(d->push->arena, struct hash128, d->cur->samples.len + 1);
    if (!d->keys)
        return false;
    for (size_t i = 0; i < d->cur->samples.len; i++) {
        if (!hash_sample(x, i, &d->keys[i]))
            continue;
        int64_t *mine = pprof_values(d->cur, i);
        bool negative = false;
        for (size_t t = 0; t < types; t++)
            negative |= mine[t] < 0;
        uint32_t at = negative ? MAP_U64_EMPTY : key_find(d, d->keys[i], (uint32_t)i);
        if (at == MAP_U64_EMPTY)
            continue;
        int64_t *first = pprof_values(d->cur, at);
        for (size_t t = 0; t < types; t++)
            first[t] = (int64_t)push_sum(d->push, (uint64_t)first[t], (uint64_t)mine[t]);
        clear(mine, types);
    }
    return true;
}

/* May go below zero in between: prev can have a key several times too. */
static void subtract_all(struct delta *d, struct hashed *x, const struct pprof *prev)
{
    size_t types = d->cur->types_len;
    struct hash128 key;

    for (size_t i = 0; i < prev->samples.len; i++) {
        if (!hash_sample(x, i, &key))
            continue;
        uint32_t at = key_find(d, key, PPROF_NONE);
        if (at == PPROF_NONE)
            continue;
        const int64_t *was = pprof_values(prev, i);
        int64_t *now = pprof_values(d->cur, at);
        for (size_t t = 0; t < types; t++)
            if (d->cumulative[t] && was[t] > 0 && __builtin_sub_overflow(now[t], was[t], &now[t]))
                now[t] = INT64_MIN;
    }
}

static bool same_types(const struct pprof *a, const struct pprof *b)
{
    if (a->types_len != b->types_len)
        return false;
    for (size_t i = 0; i < a->types_len; i++)
        if (!str_eq(pprof_str(a, a->types[i].type), pprof_str(b, b->types[i].type)) ||
            !str_eq(pprof_str(a, a->types[i].unit), pprof_str(b, b->types[i].unit)))
            return false;
    return true;
}

static int subtract(struct delta *d, struct hashed *cur, struct hashed *prev, struct err *e)
{
    size_t types = d->cur->types_len;

    if (!index_current(d, cur))
        return push_full(d->push, e);
    subtract_all(d, prev, prev->p);
    /* Only first samples were touched; a sample with negative values of its own is not one. */
    for (size_t i = 0; i < d->cur->samples.len; i++) {
        if ((d->keys[i].lo | d->keys[i].hi) == 0 ||
            key_find(d, d->keys[i], PPROF_NONE) != (uint32_t)i)
            continue;
        int64_t *v = pprof_values(d->cur, i);
        for (size_t t = 0; t < types; t++) {
            d->push->drops[DROP_DELTA_NEGATIVE] += v[t] < 0;
            v[t] = MAX(v[t], 0);
        }
    }
    return 0;
}

int pprof_subtract(struct pprof *cur, const struct pprof *prev, const bool *cumulative,
                   struct push *push, struct err *e)
{
    struct delta d = { .cur = cur, .cumulative = cumulative, .push = push };
    struct hashed x, y;

    if (!same_types(cur, prev))
        return err_set(e, ERR_INPUT, "prev_profile has other sample types than profile");
    if (!hashed_init(&x, cur, push) || !hashed_init(&y, prev, push))
        return push_full(push, e);
    int rc = subtract(&d, &x, &y, e);
    vec_free(&x.words);
    vec_free(&y.words);
    map_u64_deinit(&d.first);
    return rc;
}
