/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_graft_read: the stacks of a profile for pprof_graft.c, each read at most once, and none of
 * them where nothing is cut:
 *
 *   long stacks ──> the limit ──> known roots ──> cut stacks ──> stacks with a window of these
 *
 * Profiles of other languages end with the roots of their long stacks.
 */
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "distributor/formats/pprof/pprof_graft_impl.h"

#define SHALLOW 8 /* frames below the limit: not cut, even if some are hidden */
#define EXTRA   2 /* frames above the limit: still not deeper */

static const struct graft_form forms[] = {
    { "alloc_space", { 32, 128 }, 4 }, { "inuse_space", { 32, 128 }, 4 },
    { "contentions", { 32, 128 }, 0 }, { "goroutine", { 32, 128 }, 0 },
    { "cpu", { 64, 0 }, 0 },
};

/* ---- reading samples ------------------------------------------------------------------------ */

/* The packed location ids of a sample as Go writes it: ids first, or values first. Empty for any
 * other form. */
struct str graft_packed_ids(const struct pprof *p, size_t sample)
{
    struct pprof_slice slice = p->samples.ptr[sample];
    const uint8_t *at = (const uint8_t *)p->body.ptr + slice.from;
    struct rd r = { at, at + slice.len };
    uint64_t n;

    if (LIKELY(slice.len >= 2 && at[0] == PPROF_TAG_LOCATIONS && at[1] < 0x80))
        return at[1] <= slice.len - 2 ? str_n(at + 2, at[1]) : STR_NULL;
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
static inline size_t ids_count(struct str ids)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t n = 0, i = 0;

    for (; i + 8 <= ids.len; i += 8)
        n += (size_t)((~get_u64le(ids.ptr + i) >> 7 & ones) * ones >> 56);
    for (; i < ids.len; i++)
        n += (uint8_t)ids.ptr[i] < 0x80;
    return n;
}

/* Takes an id off r; returns the position of its location, or PPROF_NONE: not found. */
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

/* Takes up to four ids off the eight bytes at p, of which `left` are ids. Which length an id has
 * cannot be guessed: it is shifted by, so that the next one does not wait for a read. Ids of three
 * bytes and more, and unknown ones, end it. Returns the bytes taken. */
static inline size_t take_word(const uint8_t *p, size_t left, size_t known, uint32_t *to,
                               uint32_t *n)
{
    uint64_t w = get_u64le(p);
    size_t used = 0;

    for (int i = 0; i < 4 && used < left; i++) {
        uint64_t two = w >> 7 & 1;
        uint64_t at = ((w & 0x7f) | (w >> 1 & 0x3f80 & (0u - two))) - 1;
        if (UNLIKELY((w & 0x8080) == 0x8080 || at >= known))
            break;
        to[(*n)++] = (uint32_t)at;
        used += 1 + two;
        w >>= 8 * (1 + two);
    }
    return used;
}

/* Reads the positions of the locations in `ids` to `to`. Returns how many; 0: one is unknown. */
static uint32_t read_ids(const struct graft *g, struct str ids, uint32_t *to)
{
    size_t known = g->p->location_ids.sequential ? g->p->location_ids.len : 0;
    struct rd r = rd_of(ids);
    uint32_t n = 0;

    while (r.p < r.end) {
        size_t used = 0;
        if (LIKELY(g->body_end - r.p >= (ptrdiff_t)sizeof(uint64_t)))
            used = take_word(r.p, (size_t)(r.end - r.p), known, to, &n);
        r.p += used;
        if (LIKELY(used))
            continue;
        if ((to[n++] = next_location(g, &r)) == PPROF_NONE)
            return 0;
    }
    return r.p == r.end ? n : 0;
}

/* Reads the ids of a sample to graft.ids, once, and counts its frames. False: a location is
 * unknown, or there are too many. */
static bool keep_ids(struct graft *g, struct graft_packed *k)
{
    struct str ids = str_n(g->p->body.ptr + k->at, k->len);

    if (k->n)
        return true;
    if (g->ids.len + k->len > GRAFT_IDS_MAX) {
        g->too_many = true;
        return false;
    }
    vec_reserve(&g->ids, g->ids.len + k->len);
    k->from = (uint32_t)g->ids.len;
    k->n = read_ids(g, ids, g->ids.ptr + k->from);
    g->ids.len += k->n;
    k->lines = 0;
    for (uint32_t i = 0; i < k->n; i++)
        k->lines += g->lines[g->ids.ptr[k->from + i]];
    return k->n > 0;
}

static const struct graft_form *find_form(const struct pprof *p)
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

/* Marks whose code a root is. */
static uint8_t origin_of(struct graft *g, uint32_t root)
{
    const uint8_t all = GRAFT_OF_GO | GRAFT_OF_ASM | GRAFT_OF_OTHERS;

    if (!(g->marks[root] & all)) {
        struct str file = file_of(g->p, root);
        g->marks[root] |= str_ends(file, STR(".go"))  ? GRAFT_OF_GO
                          : str_ends(file, STR(".s")) ? GRAFT_OF_ASM
                                                      : GRAFT_OF_OTHERS;
    }
    return g->marks[root] & all;
}

/* True if a stack with this root may be the Go runtime's: code in Go, or the assembler that every
 * complete stack begins in. Profiles of other languages end here. */
static bool is_runtimes(struct graft *g, uint32_t root)
{
    return root != PPROF_NONE && origin_of(g, root) != GRAFT_OF_OTHERS;
}

/* The outermost location of a stack; PPROF_NONE: not found. */
static uint32_t outermost(const struct graft *g, struct str ids)
{
    const uint8_t *last = (const uint8_t *)ids.ptr + ids.len - 1;
    size_t known = g->p->location_ids.sequential ? g->p->location_ids.len : 0;

    if (LIKELY(ids.len > 2)) { /* of one or two bytes, which cannot be guessed */
        uint32_t two = last[-1] >> 7;
        uint32_t at = ((uint32_t)last[0] << (7 * two) | (last[-1] & 0x7f & (0u - two))) - 1;
        if (LIKELY(!(last[-1] & last[-2] & 0x80) && at < known))
            return at;
    }
    while ((const char *)last > ids.ptr && last[-1] >= 0x80)
        last--;
    struct rd r = rd_of(str_n(last, (size_t)((const uint8_t *)ids.ptr + ids.len - last)));
    return next_location(g, &r);
}

static struct str ids_of(const struct graft *g, const struct graft_packed *k)
{
    return str_n(g->p->body.ptr + k->at, k->len);
}

static void find_packed(struct graft *g, size_t sample)
{
    struct str ids = graft_packed_ids(g->p, sample);

    g->packed[sample] = (struct graft_packed){
        .at = ids.len ? (uint32_t)(ids.ptr - g->p->body.ptr) : 0,
        .len = (uint32_t)ids.len,
        .root = ids.len ? outermost(g, ids) : PPROF_NONE,
        .want = PPROF_NONE,
    };
}

/* The limit of this profile, 0 if it has none. The locations at both ends of a stack may have more
 * inlined frames than the runtime counted: any number at the root, EXTRA at the leaf. */
static uint32_t find_depth(struct graft *g)
{
    size_t least = g->form->depths[0] * 3 / 4; /* a quarter of the frames may be inlined */
    uint32_t most = 0, inner = 0;

    for (size_t i = 0; i < g->p->samples.len; i++) {
        struct graft_packed *k = &g->packed[i];
        pool_slice_step(i);
        if (g->p->samples.ptr[i].len < least)
            continue;
        find_packed(g, i);
        if (k->len < least || !is_runtimes(g, k->root) || ids_count(ids_of(g, k)) < least ||
            !keep_ids(g, k))
            continue;
        most = MAX(most, k->lines);
        inner = MAX(inner, k->lines - g->lines[k->root]);
    }
    for (size_t i = 0; i < GRAFT_DEPTHS && !g->too_many; i++)
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
    g->packed = ARENA_ARRAY(a, struct graft_packed, g->p->samples.len);
    if (!g->marks || !g->lines || !g->packed)
        return false;
    for (uint32_t i = 0; i < n; i++)
        g->lines[i] = (uint8_t)MIN(lines_of(g->p, i), UINT8_MAX);
    return true;
}

/* Marks the known roots. A root that is known already needs no other stack. */
static void find_known_roots(struct graft *g)
{
    for (size_t i = 0; i < g->p->samples.len; i++) {
        struct graft_packed *k = &g->packed[i];
        pool_slice_step(i);
        if (!k->len)
            find_packed(g, i); /* a sample of few bytes, which find_depth passed over */
        if (k->root == PPROF_NONE || g->marks[k->root] & GRAFT_KNOWN_ROOT || !keep_ids(g, k))
            continue;
        if (k->lines < g->depth - SHALLOW)
            g->marks[k->root] |= GRAFT_KNOWN_ROOT;
    }
}

/* True if the stack is cut and has a window. Stacks of so many frames were read before. */
static bool is_cut(struct graft *g, const struct graft_packed *k)
{
    return k->n > GRAFT_WINDOW && k->lines + g->form->hidden >= g->depth &&
           !(g->marks[k->root] & GRAFT_KNOWN_ROOT) && origin_of(g, k->root) == GRAFT_OF_GO;
}

static uint32_t window_of(const struct graft_packed *k)
{
    return k->from + k->n - GRAFT_WINDOW;
}

/* Makes the wants. False: no stack is cut. */
static bool find_wants(struct graft *g)
{
    for (size_t i = 0; i < g->p->samples.len; i++) {
        struct graft_packed *k = &g->packed[i];
        if (!is_cut(g, k))
            continue;
        k->want = graft_find_want(g, window_of(k), true);
        g->marks[k->root] |= GRAFT_OUTERMOST;
        g->marks[g->ids.ptr[window_of(k)]] |= GRAFT_INNERMOST;
    }
    return g->wants.len > 0;
}

/* Keeps the stack if it has the window of a cut one. */
static bool read_stack(struct graft *g, struct graft_packed *k, uint32_t sample)
{
    struct graft_stack s = { .sample = sample, .samples = 1 };
    size_t places = g->places.len;

    if (!keep_ids(g, k) || k->n <= GRAFT_WINDOW)
        return false;
    s.from = k->from;
    s.len = k->n;
    s.lines = k->lines;
    s.complete = g->marks[k->root] & GRAFT_KNOWN_ROOT;
    s.want = k->want;
    s.cut = k->want != PPROF_NONE;
    vec_push(&g->stacks, s);
    graft_find_places(g, (uint32_t)g->stacks.len - 1, 0);
    if (g->places.len == places)
        g->stacks.len--;
    return g->places.len > places;
}

/* Reads the stacks that have a root or a part to give or to get. False: there are too many. */
static bool read_stacks(struct graft *g)
{
    struct str before = STR_NULL;
    bool kept = false;

    for (size_t i = 0; i < g->p->samples.len && !g->too_many; i++) {
        struct graft_packed *k = &g->packed[i];
        struct str ids = ids_of(g, k);
        pool_slice_step(i);
        if (k->root == PPROF_NONE || (!k->n && ids_count(ids) <= GRAFT_WINDOW)) {
            before = STR_NULL;
            continue;
        }
        if (str_eq(ids, before)) {
            if (kept)
                g->stacks.ptr[g->stacks.len - 1].samples++;
            continue;
        }
        before = ids;
        kept = read_stack(g, k, (uint32_t)i);
    }
    return !g->too_many;
}

bool graft_read(struct graft *g, struct arena *a)
{
    g->form = find_form(g->p);
    if (!g->form || !read_locations(g, a))
        return false;
    g->depth = find_depth(g);
    if (!g->depth)
        return false;
    find_known_roots(g);
    return find_wants(g) && read_stacks(g);
}
