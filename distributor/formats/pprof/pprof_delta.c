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
 *
 * What Go counts since the start of a process: proto/FORMATS.md, "Delta profiles".
 */
#include "common/base/hash.h"
#include "common/base/size.h"
#include "distributor/formats/pprof/pprof_stacks.h"

struct hashed {
    const struct pprof *p;
    const struct limits *l;
    uint64_t seed;
    struct hash128 *locations;  /* by position */
    struct pprof_sample sample; /* the one read last */
    VEC(struct hash128) words;  /* scratch: its locations */
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

static bool hashed_init(struct hashed *x, const struct pprof *p, const struct limits *l,
                        struct push *push)
{
    *x = (struct hashed){ .p = p, .l = l, .seed = push->stacks.seed };
    x->locations = ARENA_ARRAY(push->arena, struct hash128, p->locations.len + 1);
    if (!x->locations)
        return false;
    for (size_t i = 0; i < p->locations.len; i++)
        x->locations[i] = hash_location(x, (uint32_t)i);
    return true;
}

static void hashed_deinit(struct hashed *x)
{
    pprof_sample_deinit(&x->sample);
    vec_free(&x->words);
}

/* Reads sample i. *ret_counts is false if the walk will leave it out anyway. */
static int hash_sample(struct hashed *x, size_t i, struct hash128 *ret, bool *ret_counts,
                       struct err *e)
{
    const struct pprof *p = x->p;
    const struct pprof_sample *s = &x->sample;

    *ret_counts = false;
    if (pprof_sample_read(p, i, x->l, &x->sample, e) || pprof_sample_unpack(p, x->l, &x->sample, e))
        return e->code;
    if (s->values_len != p->types_len)
        return 0;
    x->words.len = 0;
    for (size_t k = 0; k < s->locations.len; k++) {
        uint32_t at = pprof_find(&p->location_ids, s->locations.ptr[k]);
        if (at == PPROF_NONE)
            return 0;
        vec_push(&x->words, x->locations[at]);
    }
    struct hash128 h = { s->labels.len, s->locations.len };
    vec_for (k, &s->labels) {
        const struct pprof_label *label = &s->labels.ptr[k];
        h = mix(h, pprof_str(p, label->key), x->seed);
        h = label->str ? mix(h, pprof_str(p, label->str), x->seed)
                       : mix_u64(h, (uint64_t)label->num, x->seed);
    }
    *ret = mix(h, str_n(x->words.ptr, x->words.len * sizeof(*x->words.ptr)), x->seed);
    *ret_counts = true;
    return 0;
}

struct delta {
    const struct pprof *cur;
    const bool *cumulative;
    struct push *push;
    struct map_u64 first; /* low half of a key -> first sample of cur that has it */
    struct hash128 *keys; /* by sample of cur; 0 for one without */
    int64_t *values;      /* [sample of cur][type] */
};

/* The first sample with this key; PPROF_NONE: not found. `add` makes i that sample. */
static uint32_t key_find(struct delta *d, struct hash128 key, uint32_t add)
{
    for (uint64_t k = key.lo;; k = hash_u64(k + 1)) {
        uint32_t i = add == PPROF_NONE ? map_u64_get(&d->first, k) : map_u64_put(&d->first, k, add);
        if (i == MAP_U64_EMPTY || hash128_eq(d->keys[i], key))
            return i;
    }
}

/* Equal keys are added into their first sample, so that prev is subtracted from the whole. A sample
 * with a value below zero keeps its values and has no key: the walk drops it. */
static int index_current(struct delta *d, struct hashed *x, struct err *e)
{
    size_t types = d->cur->types_len;
    struct hash128 key;
    bool counts;

    for (size_t i = 0; i < d->cur->samples.len; i++) {
        int64_t *mine = d->values + i * types;
        if (hash_sample(x, i, &key, &counts, e))
            return e->code;
        if (!counts)
            continue;
        memcpy(mine, x->sample.values, types * sizeof(*mine));
        for (size_t t = 0; t < types; t++)
            counts &= mine[t] >= 0;
        if (!counts)
            continue;
        d->keys[i] = key;
        uint32_t at = key_find(d, key, (uint32_t)i);
        if (at == MAP_U64_EMPTY)
            continue;
        int64_t *first = d->values + at * types;
        for (size_t t = 0; t < types; t++)
            first[t] = (int64_t)push_sum(d->push, (uint64_t)first[t], (uint64_t)mine[t]);
        memset(mine, 0, types * sizeof(*mine));
        d->keys[i] = (struct hash128){ 0 };
    }
    return 0;
}

/* May go below zero in between: prev can have a key several times too. */
static int subtract_all(struct delta *d, struct hashed *x, struct err *e)
{
    size_t types = d->cur->types_len;
    struct hash128 key;
    bool counts;

    for (size_t i = 0; i < x->p->samples.len; i++) {
        if (hash_sample(x, i, &key, &counts, e))
            return e->code;
        uint32_t at = counts ? key_find(d, key, PPROF_NONE) : PPROF_NONE;
        if (at == PPROF_NONE)
            continue;
        const int64_t *was = x->sample.values;
        int64_t *now = d->values + at * types;
        for (size_t t = 0; t < types; t++)
            if (d->cumulative[t] && was[t] > 0 && !i64_sub(now[t], was[t], &now[t]))
                now[t] = INT64_MIN;
    }
    return 0;
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

/* Only samples with a key were touched. */
static void clamp(struct delta *d)
{
    size_t types = d->cur->types_len;

    for (size_t i = 0; i < d->cur->samples.len; i++) {
        int64_t *v = d->values + i * types;
        for (size_t t = 0; t < types && (d->keys[i].lo | d->keys[i].hi); t++) {
            d->push->drops[DROP_DELTA_NEGATIVE] += v[t] < 0;
            v[t] = MAX(v[t], 0);
        }
    }
}

static int subtract(struct delta *d, const struct pprof *prev, const struct limits *l,
                    struct err *e)
{
    struct hashed x, y;
    int rc = 0;

    if (!hashed_init(&x, d->cur, l, d->push) || !hashed_init(&y, prev, l, d->push))
        return push_full(d->push, e);
    rc = index_current(d, &x, e);
    if (!rc)
        rc = subtract_all(d, &y, e);
    if (!rc)
        clamp(d);
    hashed_deinit(&x);
    hashed_deinit(&y);
    return rc;
}

int pprof_subtract(const struct pprof *cur, const struct pprof_earlier *earlier,
                   const struct limits *l, struct push *push, const int64_t **ret_values,
                   struct err *e)
{
    struct delta d = { .cur = cur, .cumulative = earlier->cumulative, .push = push };
    size_t values;

    if (!same_types(cur, earlier->p))
        return err_set(e, ERR_INPUT, "prev_profile has other sample types than profile");
    if (!size_mul(cur->samples.len + 1, cur->types_len, &values))
        return push_full(push, e);
    d.keys = ARENA_ARRAY(push->arena, struct hash128, cur->samples.len + 1);
    d.values = ARENA_ARRAY(push->arena, int64_t, values);
    if (!d.keys || !d.values)
        return push_full(push, e);
    int rc = subtract(&d, earlier->p, l, e);
    map_u64_deinit(&d.first);
    if (!rc)
        *ret_values = d.values;
    return rc;
}
