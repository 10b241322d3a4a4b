/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_groups: which samples share a series.
 *
 *   rows of a sample ──(keys that count)──> raw set ──(names made fit, sorted)──> group
 *      key, str                               list of (key, value index)           labels
 *
 * Two steps, because the first is cheap and nearly always enough: a profile of 10,000 samples has
 * a handful of raw sets, found by hash and compared as numbers; only those handful are turned into
 * labels. Different raw sets may become equal labels (order, duplicates, characters), so groups
 * are looked up by their labels once more.
 *
 * Sample labels come from code that runs in the profiled program and must not be able to forge a
 * series: names that come from inside (__*__), per-request ids and what the push itself labels are
 * left out; characters a label name cannot have become '_'; a value that is too long is
 * [overflow]. The number of groups is capped: the first groups_max - 1 label sets keep theirs, all
 * others go to one last group that has the keys they had, with the value [overflow]. No sample is
 * lost by any of this, it only changes the series it is counted in.
 *
 * Memory: RAWS_MAX raw sets are remembered, whatever the number of samples; new ones beyond go to
 * the last group unseen.
 */
#include "distributor/formats/pprof/pprof_groups.h"

#include <stdlib.h>

#include "common/base/hash.h"

#define OVERFLOW    "[overflow]"
#define RAWS_MAX    16384
#define KEY_UNSEEN  UINT32_MAX
#define KEY_IGNORED (UINT32_MAX - 1)

struct pair {
    uint32_t key; /* index into keys */
    uint32_t str; /* string index of the value */
};
struct raw_set {
    uint32_t pairs_from, pairs_len;
    uint32_t group; /* PPROF_NONE until it is asked for */
};

struct grouping {
    const struct pprof *p;
    const struct pprof_walked *w;
    const struct limits *l;
    struct push *push;
    uint64_t seed;
    uint32_t *key_of_string; /* memo: string index -> keys index, KEY_UNSEEN or KEY_IGNORED */
    VEC(struct str) keys;    /* fit for a label name; in the arena */
    VEC(struct pair) pairs;  /* of all raw sets */
    VEC(struct raw_set) raws;
    struct map_u64 raw_ids;   /* hash of the pairs -> raws index */
    struct map_u64 group_ids; /* hash of the labels -> group */
    VEC(struct labels) groups;
    size_t groups_max;
    uint32_t overflow; /* the last group, PPROF_NONE until it is needed */
};

static void grouping_deinit(struct grouping *g)
{
    vec_free(&g->keys);
    vec_free(&g->pairs);
    vec_free(&g->raws);
    vec_free(&g->groups);
    map_u64_deinit(&g->raw_ids);
    map_u64_deinit(&g->group_ids);
}

/* Bytes outside [A-Za-z0-9_.] become '_'; empty, too long and reserved names give false. */
static bool key_name(struct grouping *g, struct str key, struct str *ret)
{
    if (key.len == 0 || key.len > g->l->label_name_bytes)
        return false;
    char *name = arena_alloc(g->push->arena, key.len);
    if (!name)
        return false;
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        name[i] = plain || c == '.' ? c : '_';
    }
    *ret = str_n(name, key.len);
    return !push_label_hidden(*ret) && labels_get(&g->push->base, *ret).ptr == NULL;
}

static uint32_t key_find(struct grouping *g, uint32_t string)
{
    struct str name;

    if (string == 0 || string >= g->p->strings.len)
        return KEY_IGNORED;
    uint32_t *memo = &g->key_of_string[string];
    if (LIKELY(*memo != KEY_UNSEEN))
        return *memo;
    struct str key = g->p->strings.ptr[string];
    bool request_id =
        str_eqc(key, "profile_id") || str_eqc(key, "span_id") || str_eqc(key, "trace_id");
    *memo = KEY_IGNORED;
    if (key_name(g, key, &name)) {
        *memo = (uint32_t)g->keys.len;
        vec_push(&g->keys, name);
    } else if (!request_id) {
        g->push->drops[DROP_LABEL]++;
    }
    return *memo;
}

/* The pairs of sample i that count, in their order: at the end of g->pairs, not yet owned. */
static size_t take_pairs(struct grouping *g, size_t i)
{
    size_t from = i ? g->w->pairs_end[i - 1] : 0, to = g->w->pairs_end[i], n = 0;

    vec_reserve(&g->pairs, g->pairs.len + (to - from) + 1);
    for (size_t k = from; k < to; k++) {
        struct pprof_pair given = g->w->pairs.ptr[k];
        uint32_t key = key_find(g, given.key);
        if (key != KEY_IGNORED)
            g->pairs.ptr[g->pairs.len + n++] = (struct pair){ key, given.str };
    }
    return n;
}

/* The raw set equal to the n pairs at the end of g->pairs; a new one takes them over. PPROF_NONE if
 * it is new and there are too many. */
static uint32_t raw_find(struct grouping *g, size_t n)
{
    const struct pair *mine = g->pairs.ptr + g->pairs.len;
    uint32_t next = (uint32_t)g->raws.len;

    for (uint64_t h = hash64(mine, n * sizeof(*mine), g->seed);; h = hash_u64(h + 1)) {
        uint32_t id =
            next < RAWS_MAX ? map_u64_put(&g->raw_ids, h, next) : map_u64_get(&g->raw_ids, h);
        if (id == MAP_U64_EMPTY)
            break;
        const struct raw_set *raw = &g->raws.ptr[id];
        if (raw->pairs_len == n &&
            (n == 0 || memcmp(g->pairs.ptr + raw->pairs_from, mine, n * sizeof(*mine)) == 0))
            return id;
    }
    if (next == RAWS_MAX)
        return PPROF_NONE;
    struct raw_set raw = { (uint32_t)g->pairs.len, (uint32_t)n, PPROF_NONE };
    vec_push(&g->raws, raw);
    g->pairs.len += n;
    return next;
}

/* A copy in the arena: the body may be gone before the labels are sent. */
static struct str label_value(struct grouping *g, uint32_t string)
{
    struct str v = pprof_str(g->p, string);

    if (v.len == 0 || v.len > g->l->label_value_bytes)
        return v.len ? STR(OVERFLOW) : v;
    char *copy = arena_alloc(g->push->arena, v.len);
    if (!copy)
        return STR(OVERFLOW);
    memcpy(copy, v.ptr, v.len);
    if (!str_utf8_valid(v))
        for (size_t i = 0; i < v.len; i++)
            copy[i] = (unsigned char)v.ptr[i] < 0x80 ? v.ptr[i] : '?';
    return str_n(copy, v.len);
}

static int label_cmp(const void *a, const void *b)
{
    return str_cmp(((const struct label *)a)->name, ((const struct label *)b)->name);
}

/* Sorted by name, each name once (the first given), no more than a series may have. */
static bool raw_labels(struct grouping *g, const struct raw_set *raw, struct labels *ret)
{
    const struct pair *pairs = g->pairs.ptr + raw->pairs_from;
    struct labels out = { ARENA_ARRAY(g->push->arena, struct label, raw->pairs_len + 1), 0 };
    size_t most = (size_t)g->l->label_names - MIN(g->push->base.len, (size_t)g->l->label_names);

    if (!out.ptr)
        return false;
    for (size_t i = 0; i < raw->pairs_len; i++) {
        struct label label = { g->keys.ptr[pairs[i].key], label_value(g, pairs[i].str) };
        bool again = label.value.len == 0; /* no value is no label */
        for (size_t k = 0; k < out.len && !again; k++)
            again = str_eq(out.ptr[k].name, label.name);
        if (!again)
            out.ptr[out.len++] = label;
    }
    if (out.len > 1)
        qsort(out.ptr, out.len, sizeof(*out.ptr), label_cmp);
    if (out.len > most) {
        g->push->drops[DROP_LABEL] += out.len - most;
        out.len = most;
    }
    *ret = out;
    return true;
}

/* The group with these labels, or a new one while there is room; PPROF_NONE if not. */
static uint32_t group_find(struct grouping *g, const struct labels *labels)
{
    uint32_t next = (uint32_t)g->groups.len;
    bool room = g->overflow == PPROF_NONE && next + 1 < g->groups_max;

    for (uint64_t h = labels_hash(labels, g->seed);; h = hash_u64(h + 1)) {
        uint32_t id = map_u64_get(&g->group_ids, h);
        if (id == MAP_U64_EMPTY && !room)
            return PPROF_NONE;
        if (id == MAP_U64_EMPTY) {
            map_u64_put(&g->group_ids, h, next);
            vec_push(&g->groups, *labels);
            return next;
        }
        if (labels_eq(&g->groups.ptr[id], labels))
            return id;
    }
}

static void overflow_open(struct grouping *g)
{
    struct labels none = { 0 };

    if (g->overflow != PPROF_NONE)
        return;
    g->overflow = (uint32_t)g->groups.len;
    vec_push(&g->groups, none);
}

/* The last group gets the names of these labels. False if the arena is full. */
static bool overflow_add(struct grouping *g, const struct labels *labels)
{
    struct err ignored;
    size_t most = (size_t)g->l->label_names - MIN(g->push->base.len, (size_t)g->l->label_names);

    overflow_open(g);
    struct labels *out = &g->groups.ptr[g->overflow];
    for (size_t i = 0; i < labels->len; i++) {
        bool known = labels_get(out, labels->ptr[i].name).ptr != NULL;
        if (!known && out->len < most &&
            labels_set(out, g->push->arena, labels->ptr[i].name, STR(OVERFLOW), &ignored))
            return false;
    }
    return true;
}

static bool raw_group(struct grouping *g, struct raw_set *raw)
{
    struct arena_mark mark = arena_mark(g->push->arena);
    struct labels labels;

    if (!raw_labels(g, raw, &labels))
        return false;
    uint32_t group = group_find(g, &labels);
    if (group != PPROF_NONE) {
        raw->group = group;
        return true;
    }
    size_t before = g->overflow == PPROF_NONE ? 0 : g->groups.ptr[g->overflow].len;
    if (!overflow_add(g, &labels))
        return false;
    raw->group = g->overflow;
    if (g->groups.ptr[g->overflow].len == before)
        arena_rewind(g->push->arena, mark); /* many sets must not fill the arena */
    g->push->drops[CHANGE_OVERFLOW]++;
    return true;
}

static int group_samples(struct grouping *g, uint32_t *of_sample, struct err *e)
{
    for (size_t i = 0; i < g->w->len; i++) {
        uint32_t id = raw_find(g, take_pairs(g, i));
        if (id == PPROF_NONE) {
            overflow_open(g);
            g->push->drops[CHANGE_OVERFLOW]++;
            of_sample[i] = g->overflow;
            continue;
        }
        if (g->raws.ptr[id].group == PPROF_NONE && !raw_group(g, &g->raws.ptr[id]))
            return push_full(g->push, e);
        of_sample[i] = g->raws.ptr[id].group;
    }
    return 0;
}

/* A value that was too long, or that says so itself, gives a group the labels of the last one: they
 * are one series then, or one of them would count as a repeat of the other. */
static void merge_overflow(const struct grouping *g, uint32_t *of_sample)
{
    for (uint32_t k = 0; k < g->groups.len; k++) {
        if (k == g->overflow || !labels_eq(&g->groups.ptr[k], &g->groups.ptr[g->overflow]))
            continue;
        for (size_t i = 0; i < g->w->len; i++)
            if (of_sample[i] == k)
                of_sample[i] = g->overflow;
    }
}

int pprof_groups(const struct pprof_groups_args *args, struct push *push, struct pprof_groups *ret,
                 struct err *e)
{
    const struct pprof *p = args->p;
    const struct pprof_walked *w = args->w;
    struct pprof_groups out = { .sets = ARENA_ARRAY(push->arena, struct labels, 1), .len = 1 };
    struct grouping g = { .p = p,
                          .w = w,
                          .l = args->l,
                          .push = push,
                          .seed = push->stacks.seed,
                          .groups_max = args->groups_max,
                          .overflow = PPROF_NONE };

    if (!out.sets)
        return push_full(push, e);
    *ret = out;
    if (w->pairs.len == 0 || args->groups_max < 2)
        return 0; /* one group, without labels of samples */
    g.key_of_string = arena_alloc(push->arena, (p->strings.len + 1) * sizeof(uint32_t));
    out.of_sample = ARENA_ARRAY(push->arena, uint32_t, w->len + 1);
    if (!g.key_of_string || !out.of_sample)
        return push_full(push, e);
    memset(g.key_of_string, 0xff, (p->strings.len + 1) * sizeof(uint32_t));
    int rc = group_samples(&g, out.of_sample, e);
    if (!rc && g.overflow != PPROF_NONE)
        merge_overflow(&g, out.of_sample);
    if (!rc && g.groups.len > 0) {
        out.len = g.groups.len;
        out.sets = ARENA_ARRAY(push->arena, struct labels, out.len);
        if (out.sets)
            memcpy(out.sets, g.groups.ptr, out.len * sizeof(*out.sets));
        else
            rc = push_full(push, e);
    }
    if (out.len == 1)
        out.of_sample = NULL;
    if (!rc)
        *ret = out;
    grouping_deinit(&g);
    return rc;
}
