/* SPDX-License-Identifier: Apache-2.0
 *
 * fold: counts equal stacks, by series, within fixed bounds.
 *
 * A stack is a run of name numbers in `words`; a map from its hash to its number finds it again.
 * The contents decide, not the hash: on a collision the next key is tried. When the stacks or names
 * are used up, further ones count as "[overflow]", so the sum of the counts is always that of the
 * samples; series beyond FOLD_SERIES_MAX - 1 count as "other".
 *
 * fold_reset keeps names and their memory, since the next window has mostly the same ones.
 * Thread: the profiler's.
 */
#include "common/obs/fold.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"

struct stack {
    uint32_t series, len;
    size_t from; /* in words */
    uint64_t count;
};

struct fold {
    size_t stacks_max, names_max;
    struct map_str *by_name; /* name -> number + 1 */
    VEC(struct str) names;   /* owned bytes */
    struct fold_series series[FOLD_SERIES_MAX];
    size_t series_len;
    VEC(struct stack) stacks;
    VEC(uint32_t) words;
    struct map_u64 by_hash; /* hash of a stack, plus one until free -> number */
    uint32_t overflow;      /* name */
};

struct fold *fold_new(size_t stacks_max, size_t names_max)
{
    struct fold *f = XNEW(struct fold);

    CHECK(names_max > 0 && stacks_max < MAP_U64_EMPTY);
    f->stacks_max = stacks_max;
    f->names_max = names_max;
    f->by_name = map_str_new();
    map_u64_init(&f->by_hash);
    f->overflow = fold_name(f, STR("[overflow]"));
    return f;
}

void fold_free(struct fold *f)
{
    if (!f)
        return;
    map_str_free(f->by_name);
    vec_for (i, &f->names)
        xfree((void *)(uintptr_t)f->names.ptr[i].ptr);
    vec_free(&f->names);
    vec_free(&f->stacks);
    vec_free(&f->words);
    map_u64_deinit(&f->by_hash);
    xfree(f);
}

uint32_t fold_name(struct fold *f, struct str name)
{
    uintptr_t known = (uintptr_t)map_str_get(f->by_name, name);
    struct str copy;

    if (known)
        return (uint32_t)(known - 1);
    if (f->names.len >= f->names_max)
        return f->overflow;
    copy = str_n(xmemdup(name.ptr ? name.ptr : "", MAX(name.len, (size_t)1)), name.len);
    vec_push(&f->names, copy);
    (void)map_str_put(f->by_name, copy, (void *)(uintptr_t)f->names.len);
    return (uint32_t)(f->names.len - 1);
}

struct str fold_name_text(const struct fold *f, uint32_t name)
{
    CHECK(name < f->names.len);
    return f->names.ptr[name];
}

/* "nn worker #3" -> "nn_worker_3": fits into name{...} of /ingest, which has no quoting. */
static void clean_part(char to[FOLD_PART_MAX], struct str s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len && n < FOLD_PART_MAX - 1; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  (c && strchr("_.:-/", c));

        to[n++] = ok ? c : '_';
    }
    to[n] = '\0';
}

uint32_t fold_series_of(struct fold *f, struct str role, struct str thread)
{
    struct fold_series n = { .count = 0 };

    clean_part(n.role, role);
    clean_part(n.thread, thread);
    for (size_t i = 0; i < f->series_len; i++)
        if (strcmp(f->series[i].role, n.role) == 0 && strcmp(f->series[i].thread, n.thread) == 0)
            return (uint32_t)i;
    if (f->series_len == FOLD_SERIES_MAX)
        return FOLD_SERIES_MAX - 1;
    if (f->series_len == FOLD_SERIES_MAX - 1) {
        clean_part(n.role, STR("other"));
        clean_part(n.thread, STR("other"));
    }
    f->series[f->series_len] = n;
    return (uint32_t)f->series_len++;
}

static bool same_stack(const struct fold *f, const struct stack *s, uint32_t series,
                       const uint32_t *names, size_t n)
{
    return s->series == series && s->len == n &&
           memcmp(f->words.ptr + s->from, names, n * sizeof(*names)) == 0;
}

void fold_add(struct fold *f, uint32_t series, const uint32_t *names, size_t n, uint64_t count)
{
    uint64_t key;
    uint32_t at;

    CHECK(series < f->series_len && n > 0);
    f->series[series].count += count;
    for (bool whole = true;; whole = false) {
        /* Where hashes clash, contents decide, and the next free number is taken. */
        for (key = hash64(names, n * sizeof(*names), series);; key++) {
            at = map_u64_get(&f->by_hash, key);
            if (at == MAP_U64_EMPTY)
                break;
            if (same_stack(f, &f->stacks.ptr[at], series, names, n)) {
                f->stacks.ptr[at].count += count;
                return;
            }
        }
        /* One place per series is kept for the overflow itself. */
        if (!whole || f->stacks.len + FOLD_SERIES_MAX < f->stacks_max)
            break;
        names = &f->overflow;
        n = 1;
    }
    struct stack s = { series, (uint32_t)n, f->words.len, count };

    for (size_t i = 0; i < n; i++)
        vec_push(&f->words, names[i]);
    vec_push(&f->stacks, s);
    (void)map_u64_put(&f->by_hash, key, (uint32_t)(f->stacks.len - 1));
}

size_t fold_series_len(const struct fold *f)
{
    return f->series_len;
}

const struct fold_series *fold_series_at(const struct fold *f, size_t i)
{
    CHECK(i < f->series_len);
    return &f->series[i];
}

void fold_text(const struct fold *f, uint32_t series, struct buf *out)
{
    vec_for (i, &f->stacks) {
        const struct stack *s = &f->stacks.ptr[i];

        if (s->series != series)
            continue;
        for (size_t k = s->len; k-- > 0;) {
            (void)buf_add_str(out, f->names.ptr[f->words.ptr[s->from + k]]);
            (void)buf_add_c(out, k ? ';' : ' ');
        }
        (void)buf_add_u64(out, s->count);
        (void)buf_add_c(out, '\n');
    }
}

void fold_reset(struct fold *f)
{
    f->stacks.len = f->words.len = 0;
    map_u64_reset(&f->by_hash);
    for (size_t i = 0; i < f->series_len; i++)
        f->series[i].count = 0;
}
