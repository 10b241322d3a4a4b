/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_spans: labels of samples to ids.
 *
 * Two texts can be one id (upper case, a number), so ids are compared packed; a string is looked at
 * once. Most profiles have no such label: then this is one look at the keys.
 *
 * Labels: proto/WIRE.md, "Reserved labels".
 */
#include "distributor/formats/pprof/pprof_spans.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/wr.h"

#define UNSEEN (PPROF_NONE - 1)

struct finder {
    const struct pprof *p;
    struct push *push;
    uint8_t *rank_of;    /* by string: what it means as a key, below; 0 = not looked at */
    uint32_t *id_of;     /* by string as a value: index into ids, PPROF_NONE, UNSEEN */
    struct map_str *map; /* packed -> index + 1 */
    VEC(struct str) ids;
    size_t samples;
    struct pprof_spans out;
    uint8_t *rank; /* by sample and kind: of the label its id comes from */
};
enum rank { RANK_UNSEEN, RANK_NONE, RANK_PROFILE_ID, RANK_SPAN_ID, RANK_TRACE_ID };

static enum rank rank_of(struct finder *f, uint32_t key)
{
    uint8_t *memo = &f->rank_of[key];

    if (*memo == RANK_UNSEEN) {
        struct str name = f->p->strings.ptr[key];
        enum exid_kind kind = exid_label(name);
        *memo = RANK_NONE;
        if (kind != EXID_NONE && !f->push->ids[kind].len)
            *memo = kind == EXID_TRACE            ? RANK_TRACE_ID
                    : str_eqc(name, "profile_id") ? RANK_PROFILE_ID
                                                  : RANK_SPAN_ID;
    }
    return (enum rank) * memo;
}

/* False: the arena is full. */
static bool add_id(struct finder *f, const struct exid *id, uint32_t *ret)
{
    uintptr_t known = (uintptr_t)map_str_get(f->map, exid_str(id));

    if (!known) {
        struct str kept = arena_strdup(f->push->arena, exid_str(id));
        if (!kept.ptr)
            return false;
        vec_push(&f->ids, kept);
        known = f->ids.len;
        map_str_put(f->map, kept, (void *)known);
    }
    *ret = (uint32_t)known - 1;
    return true;
}

static bool id_of_string(struct finder *f, uint32_t string, uint32_t *ret)
{
    struct str text = pprof_str(f->p, string);
    struct exid id;

    if (text.len == 0) {
        *ret = PPROF_NONE;
        return true;
    }
    if (f->id_of[string] == UNSEEN) {
        f->id_of[string] = PPROF_NONE;
        if (!exid_parse(text, &id))
            f->push->drops[CHANGE_EXEMPLAR] += text.len > EXID_BYTES_MAX; /* zeros mean none */
        else if (!add_id(f, &id, &f->id_of[string]))
            return false;
    }
    *ret = f->id_of[string];
    return true;
}

/* The first label of the highest rank wins. */
static bool give(struct finder *f, size_t sample, enum rank rank, uint32_t id)
{
    enum exid_kind kind = rank == RANK_TRACE_ID ? EXID_TRACE : EXID_SPAN;
    uint32_t **list = &f->out.of_sample[kind];
    uint8_t *have = &f->rank[sample * EXID_KINDS + (size_t)kind];

    if (id == PPROF_NONE || rank <= *have)
        return true;
    if (!*list) {
        *list = arena_alloc(f->push->arena, f->samples * sizeof(**list));
        if (!*list)
            return false;
        memset(*list, 0xff, f->samples * sizeof(**list));
    }
    (*list)[sample] = id;
    *have = (uint8_t)rank;
    return true;
}

static bool find_all(struct finder *f, const struct pprof_walked *w)
{
    size_t at = 0;
    uint32_t id;

    for (size_t i = 0; i < w->len; i++) {
        for (; at < w->pairs_end[i]; at++) {
            struct pprof_pair pair = w->pairs.ptr[at];
            if (pair.key >= f->p->strings.len || pair.key == 0)
                continue;
            enum rank rank = rank_of(f, pair.key);
            if (rank != RANK_NONE && (!id_of_string(f, pair.str, &id) || !give(f, i, rank, id)))
                return false;
        }
    }
    vec_for (i, &w->numbers) {
        struct pprof_number n = w->numbers.ptr[i];
        enum rank rank = rank_of(f, n.key);
        struct exid packed;
        if (rank == RANK_NONE || !exid_number(n.number, &packed))
            continue;
        if (!add_id(f, &packed, &id) || !give(f, n.sample, rank, id))
            return false;
    }
    return true;
}

struct id_key {
    uint64_t head; /* the first bytes: mostly they decide */
    struct str id;
    uint32_t at;
};

static int by_id(const void *a, const void *b)
{
    const struct id_key *x = a, *y = b;

    return str_cmp(x->id, y->id);
}

/* One pass of a radix sort over a byte of the heads. */
static void sort_byte(const struct id_key *from, struct id_key *to, size_t n, unsigned shift)
{
    uint32_t at[256] = { 0 }, next = 0;

    for (size_t i = 0; i < n; i++)
        at[from[i].head >> shift & 0xff]++;
    for (size_t i = 0; i < 256; i++) {
        uint32_t count = at[i];
        at[i] = next;
        next += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[from[i].head >> shift & 0xff]++] = from[i];
}

/* By head, then those that share one by all of their bytes. Returns where they are then. */
static struct id_key *sort_keys(struct id_key *keys, struct id_key *room, size_t n)
{
    uint64_t differ = 0;

    for (size_t i = 1; i < n; i++)
        differ |= keys[i].head ^ keys[i - 1].head;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        struct id_key *from = keys;
        if (!(differ >> shift & 0xff))
            continue;
        sort_byte(from, room, n, shift);
        keys = room;
        room = from;
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && keys[end].head == keys[i].head;)
            end++;
        if (end - i > 1)
            qsort(keys + i, end - i, sizeof(*keys), by_id);
    }
    return keys;
}

/* Sorts the ids, so that a caller that reads them by number need not sort. */
static bool order_ids(struct finder *f)
{
    struct arena *a = f->push->arena;
    size_t n = f->ids.len;
    struct id_key *keys = arena_alloc(a, n * sizeof(*keys));
    struct id_key *room = arena_alloc(a, n * sizeof(*room));
    uint32_t *place = arena_alloc(a, n * sizeof(*place));

    f->out.ids = ARENA_ARRAY(a, struct str, n);
    if (!keys || !room || !place || !f->out.ids)
        return false;
    for (size_t i = 0; i < n; i++) {
        char head[8] = { 0 };
        memcpy(head, f->ids.ptr[i].ptr, MIN(f->ids.ptr[i].len, sizeof(head)));
        keys[i] = (struct id_key){ get_u64be(head), f->ids.ptr[i], (uint32_t)i };
    }
    keys = sort_keys(keys, room, n);
    for (size_t i = 0; i < n; i++) {
        f->out.ids[i] = keys[i].id;
        place[keys[i].at] = (uint32_t)i;
    }
    f->out.len = n;
    for (size_t kind = 0; kind < EXID_KINDS; kind++) {
        uint32_t *list = f->out.of_sample[kind];
        for (size_t i = 0; list && i < f->samples; i++)
            list[i] = list[i] == PPROF_NONE ? PPROF_NONE : place[list[i]];
    }
    return true;
}

static bool has_key(const struct pprof *p)
{
    vec_for (i, &p->strings)
        if (exid_label(p->strings.ptr[i]) != EXID_NONE)
            return true;
    return false;
}

int pprof_spans(const struct pprof *p, const struct pprof_walked *w, struct push *push,
                struct pprof_spans *ret, struct err *e)
{
    struct arena *a = push->arena;
    struct finder f = { .p = p, .push = push, .samples = w->len };
    bool ok;

    *ret = (struct pprof_spans){ 0 };
    if ((w->pairs.len == 0 && w->numbers.len == 0) || !has_key(p))
        return 0;
    f.rank_of = arena_calloc(a, p->strings.len, 1);
    f.id_of = arena_alloc(a, p->strings.len * sizeof(*f.id_of));
    f.rank = arena_calloc(a, w->len, EXID_KINDS);
    if (!f.rank_of || !f.id_of || !f.rank)
        return push_full(push, e);
    for (size_t i = 0; i < p->strings.len; i++)
        f.id_of[i] = UNSEEN;
    f.map = map_str_new();
    ok = find_all(&f, w);
    map_str_free(f.map);
    ok = ok && order_ids(&f);
    vec_free(&f.ids);
    if (!ok)
        return push_full(push, e);
    *ret = f.out;
    return 0;
}
