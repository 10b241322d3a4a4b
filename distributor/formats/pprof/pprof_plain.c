/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_plain: the loop over the samples of a body that brings nothing new, where a profile of ten
 * seconds spends its time: what it does not do counts. Values stand before ids, as the runtimes of
 * Go and Java write them, or behind packed ids, as libraries do that write a profile again.
 */
#include "distributor/formats/pprof/pprof_plain.h"

/* Bytes of the body that must stand behind a sample: for numbers and ids read in one piece. */
#define ROOM PPROF_SEEN_HEAD

static_assert(ROOM > 2 * WIRE_VARINT_MAX, "a tag, a length and a number are readable");

/* The loop stands here several times: how many types there are must reach all of it. */
#define INLINE static ALWAYS_INLINE

/* Where its ids stand. */
struct place {
    struct str ids;
    bool tail; /* all that is left of the sample, which begins like a run of single ids */
};

/* wire_number_any for values that nearly always have up to four bytes. */
INLINE const uint8_t *take_number(const uint8_t *p, uint64_t *ret)
{
    uint32_t v = get_u32le(p), stops = ~v & UINT32_C(0x80808080);

    if (UNLIKELY(!stops))
        return wire_number_any(p, ret);
    v &= stops ^ (stops - 1);
    v = (v & UINT32_C(0x007f007f)) | (v & UINT32_C(0x7f007f00)) >> 1;
    *ret = (v & UINT32_C(0x3fff)) | (v & UINT32_C(0x3fff0000)) >> 2;
    return p + (__builtin_ctz(stops) + 1) / 8;
}

/* The values of the sample at p: behind them, or NULL. */
INLINE const uint8_t *take_values(const uint8_t *p, const uint8_t *end, size_t types,
                                  int64_t *values)
{
    uint64_t v = 0;

    if (types == 1 && *p == PPROF_TAG_VALUE) {
        p = take_number(p + 1, &v);
        values[0] = (int64_t)v;
        return p;
    }
    const uint8_t *stop = p + 2 + p[1];
    if (*p != PPROF_TAG_VALUES || p[1] >= 0x80 || stop > end)
        return NULL;
    p += 2;
    for (size_t i = 0; i < types; i++) { /* they may pass the end: it is what it must meet */
        p = take_number(p, &v);
        if (UNLIKELY(!p || p > stop))
            return NULL;
        values[i] = (int64_t)v;
    }
    return p == stop ? p : NULL;
}

/* True if the bytes at p are one number of up to eight bytes: all but the last have the top bit. */
INLINE bool is_number(const uint8_t *p, const uint8_t *end)
{
    size_t n = (size_t)(end - p), bits = 8 * (8 - n);
    uint64_t more = get_u64le(p) & UINT64_C(0x8080808080808080);

    return n - 1 < 8 && more << bits == UINT64_C(0x0080808080808080) >> bits << bits;
}

/* The label whose tag is at p, if it is a number under the key that was asked for last and is no
 * span: such as the size of an object, which is nearly always all that it says. */
INLINE const uint8_t *skip_label(const uint8_t *p, const uint8_t *end, const struct pprof_keep *k)
{
    const uint8_t *stop = p + 2 + p[1];
    uint64_t v[5];

    if (p[1] >= 0x80 || stop > end || k->number_is_span)
        return NULL;
    if (LIKELY(p[2] == 1 << 3 && p[3] == k->number_key && p[3] < 0x80 && p[4] == 3 << 3 &&
               is_number(p + 5, stop)))
        return stop;
    memset(v, 0, sizeof(v));
    if (!wire_numbers_fast(p + 2, stop, v, 4) || v[2] || v[1] != k->number_key)
        return NULL;
    return stop;
}

/* The packed ids whose tag is at p, likewise. */
INLINE const uint8_t *take_ids(const uint8_t *p, const uint8_t *end, struct str *ret)
{
    size_t len = p[1];

    if (UNLIKELY(*p != PPROF_TAG_LOCATIONS))
        return NULL;
    p += 2;
    if (UNLIKELY(len >= 0x80)) {
        len = (len & 0x7f) | (size_t)*p++ << 7;
        if (p[-1] >= 0x80)
            return NULL;
    }
    if (p > end || len > (size_t)(end - p) || !len || p[len - 1] >= 0x80)
        return NULL;
    *ret = (struct str){ (const char *)p, len };
    return p + len;
}

/* True if the rest is only labels that are not stored. */
INLINE bool skip_labels(const struct pprof_plain *x, const uint8_t *p, const uint8_t *end)
{
    uint64_t labels = 0;

    while (p && p < end)
        if (*p != PPROF_TAG_LABEL || labels++ == x->l->labels_per_sample ||
            !(p = skip_label(p, end, x->keep)))
            return false;
    return p == end;
}

/* A whole sample that is not empty. */
INLINE bool take_sample(const struct pprof_plain *x, const uint8_t *p, const uint8_t *end,
                        size_t types, int64_t *values, struct place *ret)
{
    if (*p == PPROF_TAG_LOCATIONS) {
        p = take_ids(p, end, &ret->ids);
        return p && p < end && skip_labels(x, take_values(p, end, types, values), end);
    }
    p = take_values(p, end, types, values);
    if (UNLIKELY(!p || p >= end))
        return false;
    if (*p != PPROF_TAG_LOCATION)
        return skip_labels(x, take_ids(p, end, &ret->ids), end);
    ret->ids = (struct str){ (const char *)p, (size_t)(end - p) };
    ret->tail = true;
    return true;
}

/* Above zero: the sample counts. Zero: it has no value. */
INLINE int64_t any_value(const int64_t *values, size_t types)
{
    int64_t any = values[0];

    for (size_t t = 1; t < types; t++)
        any |= values[t];
    return any;
}

/* Are these n bytes of the body equal, behind which eight more are readable? */
INLINE bool same(const char *a, const char *b, size_t n)
{
    uint64_t d = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        d |= get_u64le(a + i) ^ get_u64le(b + i);
    uint64_t rest = get_u64le(a + i) ^ get_u64le(b + i);
    return !(d | (rest & ~(~UINT64_C(0) << 8 * (n - i))));
}

static size_t stop(struct pprof_plain *x, size_t i, bool plain)
{
    x->plain = plain;
    return i;
}

INLINE size_t take(struct pprof_plain *x, size_t i, size_t types)
{
    const uint8_t *body = (const uint8_t *)x->p->body.ptr, *body_end = body + x->p->body.len;
    const struct pprof_slice *slices = x->p->samples.ptr;
    size_t len = x->p->samples.len;
    const struct pprof_seen *seen = x->seen;
    const uint32_t *rows = x->rows;
    uint64_t *sums = x->values;
    int64_t values[PPROF_PLAIN_VALUES];
    struct str last = STR_NULL;
    uint64_t *to_last = NULL;

    for (; i < len; i++) {
        const uint8_t *p = body + slices[i].from, *end = p + slices[i].len;
        struct pprof_seen_key key;
        struct place found = { STR_NULL, false };
        int64_t any = -1;
        if (LIKELY(body_end - end >= ROOM && p < end &&
                   take_sample(x, p, end, types, values, &found)))
            any = any_value(values, types);
        if (UNLIKELY(any <= 0)) {
            if (!any && !found.tail) /* Go's heaps are full of what is freed and was seldom */
                continue;
            x->in_vain++;
            return stop(x, i, false);
        }
        /* A JVM's samples of one stack stand side by side more often than not. */
        if (types == 1 && found.tail && found.ids.len == last.len &&
            same(found.ids.ptr, last.ptr, last.len)) {
            to_last[0] = push_sum(x->push, to_last[0], (uint64_t)values[0]);
            continue;
        }
        pprof_seen_key_near(seen, found.ids, found.tail, &key);
        const struct pprof_stack *at = pprof_seen_find(seen, &key);
        if (UNLIKELY(!at || at->node == PPROF_NONE || !rows[at->node])) {
            x->tails_new += found.tail;
            x->key = key;
            x->at = at;
            memcpy(x->sample, values, types * sizeof(*values));
            return stop(x, i, !found.tail);
        }
        uint64_t *to = sums + (rows[at->node] - 1) * types;
        for (size_t t = 0; t < types; t++)
            to[t] = push_sum(x->push, to[t], (uint64_t)values[t]);
        last = found.tail ? found.ids : STR_NULL; /* the same bytes, packed, are other ids */
        to_last = to;
    }
    return stop(x, i, false);
}

static size_t take_one(struct pprof_plain *x, size_t i)
{
    return take(x, i, 1);
}

/* Heaps of Go */
static size_t take_four(struct pprof_plain *x, size_t i)
{
    return take(x, i, 4);
}

static size_t take_more(struct pprof_plain *x, size_t i)
{
    return take(x, i, x->p->types_len);
}

size_t pprof_plain_take(struct pprof_plain *x, size_t i)
{
    /* If most samples have another form, or more fields behind their ids, trying ends. */
    if (x->in_vain > i / 64 + 16 || x->tails_new > x->seen->stacks.len + 16 ||
        x->p->types_len > PPROF_PLAIN_VALUES)
        return stop(x, i, false);
    return x->p->types_len == 1   ? take_one(x, i)
           : x->p->types_len == 4 ? take_four(x, i)
                                  : take_more(x, i);
}
