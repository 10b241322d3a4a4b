/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_graft: gives stacks that the Go runtime cut the root that they have in other stacks.
 *
 * The runtime keeps a fixed number of frames of a stack, from the leaf on: 64 for CPU time; 32, or
 * 128 from Go 1.23 on, for memory, locks and goroutines. The outer frames of a deeper stack are
 * lost, so that a flame graph has hundreds of roots that are no roots. Grafana Pyroscope's servers
 * restore such roots from neighbouring stacks, which is where the idea is from.
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
 * Rule. The window of a cut stack is its WINDOW outermost locations. Wherever other stacks have the
 * window, the locations outside of it are a prefix. The cut stack gets the prefix of complete
 * stacks if all complete stacks agree on it, and if no prefix of a cut stack contradicts it. Where
 * two roots are possible the stack stays as it came. A grafted stack is complete, so deep recursion
 * is restored in several rounds. Locations are compared, not names: WINDOW equal call sites in a
 * row are hardly ever a coincidence. Complete stacks that were cut for a test, 4,400 at four depths
 * of five profiles, got back their own root or none, never another one.
 *
 * Sums. Only locations are added to samples; values and labels are copied as bytes, so that each
 * total is what it was. The subtraction of an earlier profile comes first, since the earlier
 * profile may have been grafted otherwise.
 *
 * Cost. A profile without a cut stack costs a look at the samples of many bytes. Otherwise at most
 * IDS_MAX locations are held, and each of at most ROUNDS rounds reads them once; a window is looked
 * up where both its ends fit. A grafted stack keeps within `frames_keep`.
 */
#include "distributor/formats/pprof_graft.h"

#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define WINDOW  16 /* locations; fewer are shared by stacks of different roots */
#define SHALLOW 8  /* frames below the limit: not cut, even if some are hidden */
#define EXTRA   2  /* frames above the limit: still not deeper */
#define IDS_MAX (UINT32_C(1) << 20)
#define ROUNDS  8  /* each adds at most the limit to a stack */
#define PADDING 64 /* bytes behind the last sample, so that it is read fast */
#define DEPTHS  2

struct form {
    const char *type;
    uint32_t depths[DEPTHS]; /* ascending; 0: none */
    uint32_t hidden;
};
static const struct form forms[] = {
    { "alloc_space", { 32, 128 }, 4 }, { "inuse_space", { 32, 128 }, 4 },
    { "contentions", { 32, 128 }, 0 }, { "goroutine", { 32, 128 }, 0 },
    { "cpu", { 64, 0 }, 0 },
};

/* A sample that may be cut; found before the limit of the profile is known. */
struct deep {
    uint32_t sample, lines;
};

/* A stack of more than WINDOW locations, of one sample or several adjacent ones. */
struct stack {
    uint32_t from, len;       /* positions of its locations in graft.ids, leaf first */
    uint32_t sample, samples; /* the first of them, and how many */
    uint32_t lines;
    uint32_t added; /* locations that were grafted on */
    bool cut;       /* and without a root so far */
    bool complete;
};

/* The window of a cut stack, and the prefixes that other stacks have for it; from inside out, as
 * stacks are. */
struct want {
    uint32_t window;         /* index in graft.ids */
    uint32_t root, root_len; /* the prefix of complete stacks; root PPROF_NONE: none yet */
    uint32_t part, part_len; /* the longest prefix of cut stacks */
    bool ambiguous;
};

/* Marks of a location. */
#define KNOWN_ROOT 1
#define OUTERMOST  2 /* of a window that is looked for */
#define INNERMOST  4
#define CANDIDATE  8 /* outermost of a stack that may be cut */
#define OF_GO      16
#define NOT_OF_GO  32

struct graft {
    const struct pprof *p;
    const struct limits *l;
    const uint8_t *body_end;
    uint64_t seed;
    const struct form *form;
    uint32_t depth; /* the limit */
    uint8_t *marks; /* by location */
    uint8_t *lines; /* by location: frames of it, at most UINT8_MAX */
    VEC(struct deep) deep;
    VEC(uint32_t) ids; /* positions of locations in p; the stacks */
    VEC(struct stack) stacks;
    VEC(struct want) wants;
    struct map_u64 by_hash; /* of a window, to its want */
};

/* ---- reading samples ------------------------------------------------------------------------ */

/* The packed location ids of a sample as Go writes it: ids first, or values first. Empty for any
 * other form. */
static struct str packed_ids(const struct pprof *p, size_t sample)
{
    struct pprof_slice slice = p->samples.ptr[sample];
    const uint8_t *at = (const uint8_t *)p->body.ptr + slice.from;
    struct rd r = { at, at + slice.len };
    uint64_t n;

    while (rd_left(&r) >= 2) {
        uint8_t tag = *r.p++;
        if (!rd_varint(&r, &n) || (tag != PPROF_TAG_VALUE && n > rd_left(&r)))
            break;
        if (tag == PPROF_TAG_LOCATIONS)
            return str_n(r.p, (size_t)n);
        if (tag == PPROF_TAG_VALUES)
            r.p += n;
        else if (tag != PPROF_TAG_VALUE)
            break;
    }
    return STR_NULL;
}

/* How many varints there are: bytes without the highest bit. */
static size_t ids_count(struct str ids)
{
    size_t n = 0, i = 0;

    for (; i + 8 <= ids.len; i += 8)
        n += (size_t)__builtin_popcountll(~get_u64le(ids.ptr + i) & UINT64_C(0x8080808080808080));
    for (; i < ids.len; i++)
        n += (uint8_t)ids.ptr[i] < 0x80;
    return n;
}

/* Takes an id off r; the position of its location, PPROF_NONE if there is none. */
static inline uint32_t next_location(const struct graft *g, struct rd *r)
{
    uint64_t id;

    if (UNLIKELY(g->body_end - r->end < WIRE_VARINT_MAX)) {
        if (!rd_varint(r, &id))
            return PPROF_NONE;
    } else {
        r->p = wire_number(r->p, &id);
        if (!r->p || r->p > r->end)
            return PPROF_NONE;
    }
    return pprof_find(&g->p->location_ids, id);
}

static uint32_t lines_of(const struct pprof *p, uint32_t location)
{
    uint32_t from = location ? p->locations.ptr[location - 1].lines_end : 0;

    return MAX(p->locations.ptr[location].lines_end - from, 1);
}

/* Reads the positions of the locations in `ids` to `to`, unless that is NULL, and adds up their
 * marks and frames. Returns how many there are, 0 if one is unknown. The inner loop takes ids 1 .. n of one or
 * two bytes, which nearly all are. */
static inline uint32_t read_ids(const struct graft *g, struct str ids, uint32_t *to,
                                uint8_t *ret_marks, uint32_t *ret_lines)
{
    size_t known = g->p->location_ids.sequential ? g->p->location_ids.len : 0;
    struct rd r = rd_of(ids);
    uint32_t n = 0, lines = 0, at;
    uint8_t marks = 0;

    while (r.p < r.end) {
        const uint8_t *p = r.p, *end = MIN(r.end, g->body_end - 1);
        while (p < end) {
            uint32_t two = (uint32_t)p[0] | (uint32_t)p[1] << 8, more = two >> 7 & 1;
            at = ((two & 0x7f) | (two >> 1 & 0x3f80 & (0u - more))) - 1;
            if ((two & 0x8080) == 0x8080 || at >= known || p + 1 + more > r.end)
                break;
            if (to)
                to[n] = at;
            n++;
            marks |= g->marks[at];
            lines += g->lines[at];
            p += 1 + more;
        }
        r.p = p;
        if (p == r.end)
            break;
        if ((at = next_location(g, &r)) == PPROF_NONE)
            return 0;
        if (to)
            to[n] = at;
        n++;
        marks |= g->marks[at];
        lines += g->lines[at];
    }
    *ret_marks = marks;
    *ret_lines = lines;
    return n;
}

static const struct form *find_form(const struct pprof *p)
{
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        for (uint32_t t = 0; t < p->types_len; t++)
            if (str_eqc(pprof_str(p, p->types[t].type), forms[i].type))
                return &forms[i];
    return NULL;
}

static struct str file_of(const struct pprof *p, uint32_t location)
{
    uint32_t end = p->locations.ptr[location].lines_end;

    if (end == (location ? p->locations.ptr[location - 1].lines_end : 0))
        return STR_NULL;
    uint32_t fn = pprof_find(&p->function_ids, p->lines.ptr[end - 1].function_id);
    return fn != PPROF_NONE ? pprof_str(p, p->functions.ptr[fn].file) : STR_NULL;
}

static bool is_go(const struct pprof *p, uint32_t location)
{
    return str_ends(file_of(p, location), STR(".go"));
}

/* True if a stack with this root is the Go runtime's: code in Go, or the assembler that every
 * complete stack begins in. Profiles of other languages end here. */
static bool is_runtimes(struct graft *g, uint32_t root)
{
    if (root == PPROF_NONE)
        return false;
    if (!(g->marks[root] & (OF_GO | NOT_OF_GO)))
        g->marks[root] |=
            is_go(g->p, root) || str_ends(file_of(g->p, root), STR(".s")) ? OF_GO : NOT_OF_GO;
    return g->marks[root] & OF_GO;
}

/* The outermost location of a stack; PPROF_NONE if there is none. */
static uint32_t outermost(const struct graft *g, struct str ids)
{
    const char *last = ids.ptr + ids.len - 1;

    while (last > ids.ptr && (uint8_t)last[-1] >= 0x80)
        last--;
    struct rd r = rd_of(str_n(last, (size_t)(ids.ptr + ids.len - last)));
    return next_location(g, &r);
}

/* The limit of this profile, 0 if it has none. The locations at both ends of a stack may have more
 * inlined frames than the runtime counted: any number at the root, EXTRA at the leaf. */
static uint32_t find_depth(struct graft *g)
{
    size_t least = g->form->depths[0] * 3 / 4; /* a quarter of the frames may be inlined */
    uint32_t most = 0, inner = 0, root;
    struct deep d;
    uint8_t marks;

    for (size_t i = 0; i < g->p->samples.len; i++) {
        pool_slice_step(i);
        if (g->p->samples.ptr[i].len < least)
            continue;
        struct str ids = packed_ids(g->p, i);
        if (ids.len < least || !is_runtimes(g, root = outermost(g, ids)) ||
            ids_count(ids) < least || !read_ids(g, ids, NULL, &marks, &d.lines))
            continue;
        d.sample = (uint32_t)i;
        most = MAX(most, d.lines);
        inner = MAX(inner, d.lines - g->lines[root]);
        if (d.lines + g->form->hidden >= g->form->depths[0])
            vec_push(&g->deep, d);
    }
    for (size_t i = 0; i < DEPTHS; i++)
        if (inner < g->form->depths[i] + EXTRA)
            return most >= g->form->depths[i] ? g->form->depths[i] : 0;
    return 0;
}

/* False: too little memory is left. */
static bool read_locations(struct graft *g, struct arena *a)
{
    size_t n = g->p->locations.len;

    g->marks = ARENA_ARRAY(a, uint8_t, n);
    g->lines = arena_alloc(a, n);
    if (!g->marks || !g->lines)
        return false;
    for (uint32_t i = 0; i < n; i++)
        g->lines[i] = (uint8_t)MIN(lines_of(g->p, i), UINT8_MAX);
    return true;
}

/* Marks the outermost locations of stacks that may be cut. A stack without any of them has no
 * window. */
static void mark_candidates(struct graft *g)
{
    vec_for (i, &g->deep)
        if (g->deep.ptr[i].lines + g->form->hidden >= g->depth)
            g->marks[outermost(g, packed_ids(g->p, g->deep.ptr[i].sample))] |= CANDIDATE;
}

/* Keeps the stack if it may be cut or have a window. Most have none, and are only looked through. */
static bool read_stack(struct graft *g, struct str ids, uint32_t sample)
{
    struct stack s = { .from = (uint32_t)g->ids.len, .sample = sample, .samples = 1 };
    uint32_t root = outermost(g, ids);
    uint8_t any = 0;

    s.len = read_ids(g, ids, NULL, &any, &s.lines);
    if (s.len && s.lines < g->depth - SHALLOW)
        g->marks[root] |= KNOWN_ROOT;
    if (s.len <= WINDOW || !(any & CANDIDATE))
        return false;
    vec_reserve(&g->ids, g->ids.len + s.len);
    (void)read_ids(g, ids, g->ids.ptr + s.from, &any, &s.lines);
    g->ids.len += s.len;
    vec_push(&g->stacks, s);
    return true;
}

/* Reads all stacks, and marks the known roots. False: there are too many. */
static bool read_stacks(struct graft *g)
{
    struct str before = STR_NULL;
    bool kept = false;

    for (size_t i = 0; i < g->p->samples.len; i++) {
        pool_slice_step(i);
        struct str ids = packed_ids(g->p, i);
        if (ids.len && str_eq(ids, before)) {
            if (kept)
                g->stacks.ptr[g->stacks.len - 1].samples++;
            continue;
        }
        before = ids;
        if (g->ids.len + ids.len > IDS_MAX)
            return false;
        kept = ids.len && read_stack(g, ids, (uint32_t)i);
    }
    return true;
}

static uint32_t root_of(const struct graft *g, const struct stack *s)
{
    return g->ids.ptr[s->from + s->len - 1];
}

/* Finds out which stacks are cut. */
static void judge_stacks(struct graft *g)
{
    vec_for (i, &g->stacks) {
        struct stack *s = &g->stacks.ptr[i];
        uint32_t root = root_of(g, s);
        s->complete = g->marks[root] & KNOWN_ROOT;
        s->cut = !s->complete && s->lines + g->form->hidden >= g->depth && is_go(g->p, root);
    }
}

/* ---- windows and their prefixes ------------------------------------------------------------- */

static bool same_ids(const struct graft *g, uint32_t a, uint32_t b, size_t n)
{
    return memcmp(g->ids.ptr + a, g->ids.ptr + b, n * sizeof(*g->ids.ptr)) == 0;
}

/* The want of a window; NULL if there is none. If `add` the window becomes one. */
static struct want *find_want(struct graft *g, uint32_t window, bool add)
{
    uint64_t key = hash64(g->ids.ptr + window, WINDOW * sizeof(*g->ids.ptr), g->seed);

    for (;; key = hash_u64(key + 1)) {
        uint32_t at = add ? map_u64_put(&g->by_hash, key, (uint32_t)g->wants.len)
                          : map_u64_get(&g->by_hash, key);
        if (at == MAP_U64_EMPTY && !add)
            return NULL;
        if (at == MAP_U64_EMPTY) {
            struct want w = { .window = window, .root = PPROF_NONE };
            vec_push(&g->wants, w);
            return &g->wants.ptr[g->wants.len - 1];
        }
        if (same_ids(g, g->wants.ptr[at].window, window, WINDOW))
            return &g->wants.ptr[at];
    }
}

static uint32_t window_of(const struct stack *s)
{
    return s->from + s->len - WINDOW;
}

/* The wants of one round. False: no stack is cut any more. */
static bool begin_round(struct graft *g)
{
    g->wants.len = 0;
    map_u64_reset(&g->by_hash);
    for (size_t i = 0; i < g->p->locations.len; i++)
        g->marks[i] &= (uint8_t) ~(OUTERMOST | INNERMOST);
    vec_for (i, &g->stacks) {
        const struct stack *s = &g->stacks.ptr[i];
        if (!s->cut)
            continue;
        (void)find_want(g, window_of(s), true);
        g->marks[root_of(g, s)] |= OUTERMOST;
        g->marks[g->ids.ptr[window_of(s)]] |= INNERMOST;
    }
    return g->wants.len > 0;
}

/* Outside of the window w, s has the `len` locations from `prefix` on. */
static void note_prefix(const struct graft *g, struct want *w, const struct stack *s,
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

static void find_prefixes(struct graft *g)
{
    vec_for (i, &g->stacks) {
        const struct stack *s = &g->stacks.ptr[i];
        uint32_t end = s->from + s->len - !s->complete;
        for (uint32_t at = s->from; at + WINDOW <= end; at++) {
            if (LIKELY(!(g->marks[g->ids.ptr[at + WINDOW - 1]] & OUTERMOST) ||
                       !(g->marks[g->ids.ptr[at]] & INNERMOST)))
                continue;
            struct want *w = find_want(g, at, false);
            if (w)
                note_prefix(g, w, s, at + WINDOW, s->from + s->len - at - WINDOW);
        }
    }
}

/* Appends the grafted stack to the others, since it is a complete neighbour in the next round. */
static bool add_prefix(struct graft *g, struct stack *s, const struct want *w)
{
    size_t len = (size_t)s->len + w->root_len;
    uint32_t lines = s->lines;

    for (uint32_t i = 0; i < w->root_len; i++)
        lines += g->lines[g->ids.ptr[w->root + i]];
    if (lines > g->l->frames_keep || lines > g->l->frames || g->ids.len + len > IDS_MAX)
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
    return true;
}

/* True: some stack is complete now that was not. */
static bool end_round(struct graft *g)
{
    bool any = false;

    vec_for (i, &g->stacks) {
        struct stack *s = &g->stacks.ptr[i];
        const struct want *w = s->cut ? find_want(g, window_of(s), false) : NULL;
        if (!w || (w->root == PPROF_NONE && !w->ambiguous))
            continue;
        s->cut = false;
        if (!w->ambiguous && w->part_len <= w->root_len &&
            same_ids(g, w->root, w->part, w->part_len))
            any |= add_prefix(g, s, w);
    }
    return any;
}

/* ---- samples of grafted stacks -------------------------------------------------------------- */

static uint64_t id_at(const struct graft *g, uint32_t i)
{
    return g->p->locations.ptr[g->ids.ptr[i]].id;
}

/* Bytes of the ids that s got. */
static size_t added_bytes(const struct graft *g, const struct stack *s)
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
           !room->tagged && room->ids.ptr == packed_ids(g->p, sample).ptr;
}

static uint8_t *put_bytes(uint8_t *to, const char *from, size_t n)
{
    if (n)
        memcpy(to, from, n);
    return to + n;
}

/* The sample again with the ids that its stack got, which are the outermost ones. */
static uint8_t *put_sample(const struct graft *g, const struct stack *s, uint32_t sample,
                           uint8_t *to)
{
    struct pprof_slice slice = g->p->samples.ptr[sample];
    const char *begin = g->p->body.ptr + slice.from, *end = begin + slice.len;
    struct str ids = packed_ids(g->p, sample);
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
        const struct stack *s = &g->stacks.ptr[i];
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
        const struct stack *s = &g->stacks.ptr[i];
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
    vec_free(&g->deep);
    vec_free(&g->ids);
    vec_free(&g->stacks);
    vec_free(&g->wants);
    map_u64_deinit(&g->by_hash);
}

/* True: some stack got a root. */
static bool find_roots(struct graft *g)
{
    bool any = false;

    judge_stacks(g);
    for (int round = 0; round < ROUNDS && begin_round(g); round++) {
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
    struct graft g = { .p = p, .l = l, .seed = push->stacks.seed, .form = find_form(p) };

    g.body_end = (const uint8_t *)p->body.ptr + p->body.len;
    if (g.form && read_locations(&g, push->arena))
        g.depth = find_depth(&g);
    if (g.depth)
        mark_candidates(&g);
    bool any = g.depth && read_stacks(&g) && find_roots(&g) && put_all(&g, push, ret);
    graft_deinit(&g);
    return any;
}
