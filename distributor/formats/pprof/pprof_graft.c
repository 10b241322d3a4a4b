/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_graft: gives stacks that the Go runtime cut the root that they have in other stacks.
 *
 * The runtime keeps a fixed number of frames of a stack, from the leaf on: 64 for CPU time; 32, or
 * 128 from Go 1.23 on, for memory, locks and goroutines (proto/FORMATS.md, "Go stack limits"). The
 * outer frames of a deeper stack are lost, so that a flame graph has hundreds of roots that are no
 * roots. Grafana Pyroscope's servers restore such roots from neighbouring stacks, which is where
 * the idea is from.
 *
 *      complete      main . serve . handle . auth . log . a . b .. p . read
 *      cut                                          log . a . b .. p . q .. z . alloc
 *      grafted       main . serve . handle . auth . log . a . b .. p . q .. z . alloc
 *                    \____________ prefix ________/ \__ window __/
 *
 * Definitions. The depth of a stack counts inlined frames. The limit of a profile is the one its
 * sample types have in `forms`, provided that some stack reaches it and none is deeper: else the
 * stacks were cut elsewhere, or not at all. A known root is the outermost location of a stack that
 * is much shallower than the limit. A stack is complete if it begins in a known root. It is cut if
 * it reaches the limit, comes from Go code and does not begin in a known root. The runtime drops
 * its own frames at the leaf of an allocation after the cut, so that cut stacks of memory profiles
 * may be up to `hidden` frames shallower.
 *
 * Rule. The window of a cut stack is its GRAFT_WINDOW outermost locations. Wherever other stacks
 * have the window, the locations outside of it are a prefix. The cut stack gets the prefix of
 * complete stacks if all complete stacks agree on it, and if no prefix of a cut stack
 * contradicts it. Where two roots are possible the stack stays as it came. A grafted stack is
 * complete, so deep recursion is restored in several rounds. Locations are compared, not names:
 * WINDOW equal call sites in a row are hardly ever a coincidence. Complete stacks that were cut
 * for a test, 4,400 at four depths of five profiles, got back their own root or none, never
 * another one.
 *
 * Sums. Only locations are added to samples; values and labels are copied as bytes, so that each
 * total is what it was. The subtraction of an earlier profile comes first, since the earlier
 * profile may have been grafted otherwise.
 *
 * Cost. A profile without a cut stack costs a look at the samples of many bytes. Otherwise each
 * stack is read once at most, and at most GRAFT_IDS_MAX locations are held. Windows of cut stacks
 * are found once, before the first of at most ROUNDS rounds. A grafted stack keeps within
 * `frames_keep`.
 */
#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "distributor/formats/pprof/pprof_graft_impl.h"

#define ROUNDS  8  /* each adds at most the limit to a stack */
#define PADDING 64 /* bytes behind the last sample, so that it is read fast */

/* ---- windows and their prefixes ------------------------------------------------------------- */

static bool same_ids(const struct graft *g, uint32_t a, uint32_t b, size_t n)
{
    return memcmp(g->ids.ptr + a, g->ids.ptr + b, n * sizeof(*g->ids.ptr)) == 0;
}

uint32_t graft_find_want(struct graft *g, uint32_t window, bool add)
{
    uint64_t key = hash64(g->ids.ptr + window, GRAFT_WINDOW * sizeof(*g->ids.ptr), g->seed);

    for (;; key = hash_u64(key + 1)) {
        uint32_t at = add ? map_u64_put(&g->by_hash, key, (uint32_t)g->wants.len)
                          : map_u64_get(&g->by_hash, key);
        if (at == MAP_U64_EMPTY && !add)
            return PPROF_NONE;
        if (at == MAP_U64_EMPTY) {
            struct graft_want w = { .window = window };
            vec_push(&g->wants, w);
            return (uint32_t)g->wants.len - 1;
        }
        if (same_ids(g, g->wants.ptr[at].window, window, GRAFT_WINDOW))
            return at;
    }
}

void graft_find_places(struct graft *g, uint32_t stack, uint32_t from)
{
    const struct graft_stack *s = &g->stacks.ptr[stack];
    const uint32_t *ids = g->ids.ptr + s->from;

    for (uint32_t i = MAX(from, GRAFT_WINDOW - 1); i < s->len; i++) {
        if (LIKELY(!(g->marks[ids[i]] & GRAFT_OUTERMOST)))
            continue;
        struct graft_place place = { .stack = stack, .at = i + 1 - GRAFT_WINDOW };
        if (!(g->marks[ids[place.at]] & GRAFT_INNERMOST))
            continue;
        place.want = graft_find_want(g, s->from + place.at, false);
        if (place.want != PPROF_NONE)
            vec_push(&g->places, place);
    }
}

/* Outside of the window w, s has the `len` locations from `prefix` on. */
static void note_prefix(const struct graft *g, struct graft_want *w, const struct graft_stack *s,
                        uint32_t prefix, uint32_t len)
{
    if (s->complete && w->root == PPROF_NONE) {
        w->root = prefix;
        w->root_len = len;
    } else if (s->complete) {
        w->ambiguous |= w->root_len != len || !same_ids(g, w->root, prefix, len);
    } else if (!same_ids(g, w->part, prefix, MIN(w->part_len, len))) {
        w->ambiguous = true;
    } else if (len > w->part_len) {
        w->part = prefix;
        w->part_len = len;
    }
}

/* The prefixes of the wants that are not decided. */
static void find_prefixes(struct graft *g)
{
    vec_for (i, &g->wants) {
        struct graft_want *w = &g->wants.ptr[i];
        *w = (struct graft_want){ w->window, PPROF_NONE, 0, 0, 0, false, w->decided };
    }
    vec_for (i, &g->places) {
        struct graft_place place = g->places.ptr[i];
        struct graft_want *w = &g->wants.ptr[place.want];
        const struct graft_stack *s = &g->stacks.ptr[place.stack];
        uint32_t outside = place.at + GRAFT_WINDOW;
        pool_slice_step(i);
        if (!w->decided && !w->ambiguous && (s->complete || outside < s->len))
            note_prefix(g, w, s, s->from + outside, s->len - outside);
    }
}

/* Appends the grafted stack to the others, since it is a complete neighbour in the next round. */
static bool add_prefix(struct graft *g, uint32_t stack, const struct graft_want *w)
{
    struct graft_stack *s = &g->stacks.ptr[stack];
    size_t len = (size_t)s->len + w->root_len;
    uint32_t lines = s->lines;

    for (uint32_t i = 0; i < w->root_len; i++)
        lines += g->lines[g->ids.ptr[w->root + i]];
    if (lines > g->l->frames_keep || lines > g->l->frames || g->ids.len + len > GRAFT_IDS_MAX)
        return false;
    vec_reserve(&g->ids, g->ids.len + len);
    uint32_t *to = g->ids.ptr + g->ids.len;
    memcpy(to, g->ids.ptr + s->from, s->len * sizeof(*to));
    memcpy(to + s->len, g->ids.ptr + w->root, w->root_len * sizeof(*to));
    s->from = (uint32_t)g->ids.len;
    s->len = (uint32_t)len;
    s->lines = lines;
    s->added += w->root_len;
    s->complete = true;
    g->ids.len += len;
    graft_find_places(g, stack, (uint32_t)len - w->root_len);
    return true;
}

/* True: some stack is complete now that was not. */
static bool end_round(struct graft *g)
{
    bool any = false;

    vec_for (i, &g->stacks) {
        struct graft_stack *s = &g->stacks.ptr[i];
        if (!s->cut)
            continue;
        struct graft_want *w = &g->wants.ptr[s->want];
        if (w->root == PPROF_NONE && !w->ambiguous)
            continue;
        s->cut = false;
        w->decided = true;
        if (!w->ambiguous && w->part_len <= w->root_len &&
            same_ids(g, w->root, w->part, w->part_len))
            any |= add_prefix(g, (uint32_t)i, w);
    }
    return any;
}

/* ---- samples of grafted stacks -------------------------------------------------------------- */

static uint64_t id_at(const struct graft *g, uint32_t i)
{
    return g->p->locations.ptr[g->ids.ptr[i]].id;
}

/* Bytes of the ids that s got. */
static size_t added_bytes(const struct graft *g, const struct graft_stack *s)
{
    size_t n = 0;

    for (uint32_t i = s->len - s->added; i < s->len; i++)
        n += varint_len(id_at(g, s->from + i));
    return n;
}

/* True if all ids of the sample stand in the piece that was read. */
static bool in_one_piece(const struct graft *g, uint32_t sample, struct pprof_sample *room)
{
    struct err ignored = { 0 };

    return !pprof_sample_read(g->p, sample, g->l, room, &ignored) && room->ids.len &&
           !room->tagged && room->ids.ptr == graft_packed_ids(g->p, sample).ptr;
}

static uint8_t *put_bytes(uint8_t *to, const char *from, size_t n)
{
    if (n)
        memcpy(to, from, n);
    return to + n;
}

/* The sample again with the ids that its stack got, which are the outermost ones. */
static uint8_t *put_sample(const struct graft *g, const struct graft_stack *s, uint32_t sample,
                           uint8_t *to)
{
    struct pprof_slice slice = g->p->samples.ptr[sample];
    const char *begin = g->p->body.ptr + slice.from, *end = begin + slice.len;
    struct str ids = graft_packed_ids(g->p, sample);
    size_t more = added_bytes(g, s);
    const char *field = ids.ptr - 1; /* its length ends there; its tag stands before that */

    while ((uint8_t)field[-1] >= 0x80)
        field--;
    to = put_bytes(to, begin, (size_t)(field - begin));
    to += varint_put(to, ids.len + more);
    to = put_bytes(to, ids.ptr, ids.len);
    for (uint32_t i = s->len - s->added; i < s->len; i++)
        to += varint_put(to, id_at(g, s->from + i));
    return put_bytes(to, ids.ptr + ids.len, (size_t)(end - ids.ptr) - ids.len);
}

/* The body again, and the changed samples behind it: a sample is a slice of the body. */
static bool put_all(struct graft *g, struct push *push, struct pprof *ret)
{
    size_t n = g->p->samples.len, most = g->p->body.len + PADDING;
    struct pprof_sample room = { 0 };

    vec_for (i, &g->stacks) {
        const struct graft_stack *s = &g->stacks.ptr[i];
        for (uint32_t k = 0; s->added && k < s->samples; k++)
            most += g->p->samples.ptr[s->sample + k].len + WIRE_VARINT_MAX + added_bytes(g, s);
    }
    uint8_t *body = most <= UINT32_MAX ? arena_alloc(push->arena, most) : NULL;
    struct pprof_slice *samples = arena_alloc(push->arena, n * sizeof(*samples));
    if (!body || !samples)
        return false;
    memcpy(samples, g->p->samples.ptr, n * sizeof(*samples));
    uint8_t *to = put_bytes(body, g->p->body.ptr, g->p->body.len);
    vec_for (i, &g->stacks) {
        const struct graft_stack *s = &g->stacks.ptr[i];
        for (uint32_t k = s->sample; s->added && k < s->sample + s->samples; k++) {
            uint8_t *from = to;
            if (!in_one_piece(g, k, &room))
                continue;
            to = put_sample(g, s, k, to);
            samples[k] = (struct pprof_slice){ (uint32_t)(from - body), (uint32_t)(to - from) };
        }
    }
    pprof_sample_deinit(&room);
    memset(to, 0, PADDING);
    *ret = *g->p;
    ret->body = str_n(body, (size_t)(to - body) + PADDING);
    ret->samples.ptr = samples;
    return true;
}

static void graft_deinit(struct graft *g)
{
    vec_free(&g->ids);
    vec_free(&g->stacks);
    vec_free(&g->places);
    vec_free(&g->wants);
    map_u64_deinit(&g->by_hash);
}

/* True: some stack got a root. */
static bool find_roots(struct graft *g)
{
    bool any = false;

    for (int round = 0; round < ROUNDS; round++) {
        find_prefixes(g);
        if (!end_round(g))
            break;
        any = true;
    }
    return any;
}

bool pprof_graft(const struct pprof *p, const struct limits *l, struct push *push,
                 struct pprof *ret)
{
    struct graft g = { .p = p, .l = l, .seed = push->stacks.seed };

    g.body_end = (const uint8_t *)p->body.ptr + p->body.len;
    bool any = graft_read(&g, push->arena) && find_roots(&g) && put_all(&g, push, ret);
    graft_deinit(&g);
    return any;
}
