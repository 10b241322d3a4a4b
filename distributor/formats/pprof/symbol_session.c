/* SPDX-License-Identifier: Apache-2.0
 *
 * known: tables with open addressing; a hash only says where to look, contents are compared.
 *
 * A guess goes first: names and frames come in nearly the order in which they came before, so the
 * one behind the last one is compared without any hash. The tables are seeded, so that no sender
 * can make all of a body fall on one slot.
 */
#include "distributor/formats/pprof/symbol_session.h"

#include "common/base/mem.h"
#include "distributor/formats/pprof/symbol_lookup.h"

#define BLOCK       (32 * KIB)
#define SLOTS_FIRST 256

struct symbol_session *symbol_session_new(const uint8_t session[SYMBOL_SESSION_BYTES],
                                          uint64_t seed, uint64_t symbol_keep, size_t bytes_max)
{
    struct symbol_session *k = XNEW(struct symbol_session);

    atomic_init(&k->refs, 1);
    atomic_init(&k->dead, false);
    memcpy(k->session, session, SYMBOL_SESSION_BYTES);
    k->symbol_keep = symbol_keep;
    k->bytes_max = bytes_max;
    mutex_init(&k->lock);
    stacks_init(&k->stacks, bytes_max / 2, seed);
    k->told = symbol_session_now(k);
    return k;
}

struct symbol_session *symbol_session_ref(struct symbol_session *k)
{
    atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
    return k;
}

void symbol_session_unref(struct symbol_session *k)
{
    if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1)
        return;
    stacks_deinit(&k->stacks);
    vec_for (i, &k->blocks)
        xfree(k->blocks.ptr[i]);
    vec_free(&k->blocks);
    vec_free(&k->texts);
    vec_free(&k->frames);
    vec_free(&k->seen);
    vec_free(&k->paths);
    vec_free(&k->many);
    vec_free(&k->inlined);
    vec_free(&k->dense);
    xfree(k->text_slots.slots);
    xfree(k->frame_slots.slots);
    xfree(k->stack_slots.slots);
    xfree(k->many_slots.slots);
    mutex_deinit(&k->lock);
    xfree(k);
}

struct symbol_session_counts symbol_session_now(const struct symbol_session *k)
{
    return (struct symbol_session_counts){ (uint32_t)k->stacks.string_len.len,
                                           (uint32_t)k->stacks.frame_func.len,
                                           (uint32_t)k->stacks.node_parent.len + 1 };
}

static size_t slots_bytes(const struct symbol_session_slots *t)
{
    return t->slots ? (t->mask + 1) * sizeof(*t->slots) : 0;
}

size_t symbol_session_bytes(const struct symbol_session *k)
{
    return sizeof(*k) + stacks_bytes(&k->stacks) + k->block_bytes +
           k->texts.cap * sizeof(*k->texts.ptr) + k->frames.cap * sizeof(*k->frames.ptr) +
           k->seen.cap * sizeof(*k->seen.ptr) + k->paths.cap * sizeof(*k->paths.ptr) +
           k->many.cap * sizeof(*k->many.ptr) + (k->inlined.cap + k->dense.cap) * sizeof(uint32_t) +
           slots_bytes(&k->text_slots) + slots_bytes(&k->frame_slots) +
           slots_bytes(&k->stack_slots) + slots_bytes(&k->many_slots);
}

static bool has_room(struct symbol_session *k, size_t more)
{
    k->full = k->full || symbol_session_bytes(k) + more > k->bytes_max;
    return !k->full;
}

/* ---- tables ---- */

static void slots_grow(struct symbol_session_slots *t)
{
    struct symbol_session_slots old = *t;
    size_t n = old.slots ? (old.mask + 1) * 2 : SLOTS_FIRST;

    t->slots = xcalloc(n, sizeof(*t->slots));
    t->mask = n - 1;
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        if (!old.slots[i])
            continue;
        size_t at = old.slots[i] >> 32 & t->mask;
        while (t->slots[at])
            at = (at + 1) & t->mask;
        t->slots[at] = old.slots[i];
    }
    xfree(old.slots);
}

/* Room for one more: a search that ends at an empty slot may fill it. At most so many eighths of a
 * table are taken: see symbol_lookup.h for those where nearly all that is looked for is there. */
#define FULL 6
#define FEW  3
static inline void slots_room(struct symbol_session_slots *t, size_t eighths)
{
    if (UNLIKELY(!t->slots || t->len + 1 > (t->mask + 1) / 8 * eighths))
        slots_grow(t);
}

static inline void slots_set(struct symbol_session_slots *t, size_t at, uint32_t tag,
                             size_t position)
{
    t->slots[at] = (uint64_t)tag << 32 | (position + 1);
    t->len++;
}

/* ---- names ---- */

static const char *keep_bytes(struct symbol_session *k, struct str s)
{
    if (s.len > k->block_left) {
        size_t n = MAX(s.len, BLOCK);
        k->block_at = xmalloc(n);
        vec_push(&k->blocks, k->block_at);
        k->block_left = n;
        k->block_bytes += n;
    }
    char *to = k->block_at;
    memcpy(to, s.ptr, s.len);
    k->block_at += s.len;
    k->block_left -= s.len;
    return to;
}

uint32_t symbol_session_text(struct symbol_session *k, struct str s)
{
    struct symbol_session_slots *t = &k->text_slots;

    if (LIKELY(k->text_next < k->texts.len && symbol_session_is_text(k, k->text_next, s)))
        return k->text_next++;
    uint32_t tag = symbol_session_text_tag(k, s);
    slots_room(t, FEW);
    size_t at = symbol_session_text_slot(k, s, tag);
    if (t->slots[at]) {
        k->text_next = (uint32_t)t->slots[at];
        return k->text_next - 1;
    }
    if (!has_room(k, s.len + sizeof(struct symbol_session_text)))
        return SYMBOL_SESSION_NONE;
    struct symbol_session_text new = { keep_bytes(k, s), (uint32_t)s.len, SYMBOL_SESSION_NONE,
                                       SYMBOL_SESSION_NONE };
    vec_push(&k->texts, new);
    slots_set(t, at, tag, k->texts.len - 1);
    k->text_next = (uint32_t)k->texts.len;
    return k->text_next - 1;
}

uint32_t symbol_session_string(struct symbol_session *k, struct str s)
{
    if (!s.len)
        return 0;
    mutex_lock(&k->lock);
    uint32_t id = has_room(k, s.len) ? stacks_string(&k->stacks, s) : STACKS_FULL;
    mutex_unlock(&k->lock);
    k->full |= id == STACKS_FULL;
    return id;
}

/* ---- frames and stacks ---- */

static uint32_t add_frame(struct symbol_session *k, const struct frame *f)
{
    mutex_lock(&k->lock);
    uint32_t id = has_room(k, sizeof(*f)) ? stacks_frame(&k->stacks, f) : STACKS_FULL;
    mutex_unlock(&k->lock);
    if (id == STACKS_FULL)
        return SYMBOL_SESSION_NONE;
    CHECK(id == k->frames.len); /* frames are made only here */
    vec_push(&k->frames, *f);
    return id;
}

uint32_t symbol_session_frame(struct symbol_session *k, const struct frame *f)
{
    struct symbol_session_slots *t = &k->frame_slots;

    if (LIKELY(k->frame_next < k->frames.len && symbol_session_is_frame(k, k->frame_next, f)))
        return k->frame_next++;
    uint32_t tag = symbol_session_frame_tag(k, f);
    slots_room(t, FEW);
    size_t at = symbol_session_frame_slot(k, f, tag);
    uint32_t id = (uint32_t)t->slots[at] - 1;
    if (!t->slots[at]) {
        id = add_frame(k, f);
        k->full |= id == SYMBOL_SESSION_NONE;
        if (id != SYMBOL_SESSION_NONE)
            slots_set(t, at, tag, id);
    }
    k->frame_next = id + 1;
    return id;
}

static inline const uint32_t *step_frames(const struct symbol_session *k, const uint32_t *step,
                                          size_t *ret)
{
    const struct symbol_session_many *m;

    *ret = 1;
    if (*step < SYMBOL_SESSION_MANY)
        return step;
    m = &k->many.ptr[*step - SYMBOL_SESSION_MANY];
    *ret = m->len;
    return k->inlined.ptr + m->from;
}

static uint32_t add_many(struct symbol_session *k, const uint32_t *frames, size_t n)
{
    struct symbol_session_many new = { (uint32_t)k->inlined.len, (uint32_t)n };

    if (!has_room(k, n * sizeof(*frames) + sizeof(new)) || k->inlined.len + n >= UINT32_MAX ||
        k->many.len + SYMBOL_SESSION_MANY >= SYMBOL_SESSION_STEPS)
        return SYMBOL_SESSION_NONE;
    vec_push(&k->many, new);
    vec_reserve(&k->inlined, k->inlined.len + n);
    memcpy(k->inlined.ptr + k->inlined.len, frames, n * sizeof(*frames));
    k->inlined.len += n;
    return SYMBOL_SESSION_MANY + (uint32_t)k->many.len - 1;
}

static inline uint32_t many_tag(const struct symbol_session *k, const uint32_t *frames, size_t n)
{
    uint64_t h = k->stacks.seed + n;

    for (size_t i = 0; i < n; i++)
        h = hash_mix(frames[i] ^ h, h ^ UINT64_C(0xe7037ed1a0b428db));
    return (uint32_t)(h >> 16);
}

/* As symbol_session_text_slot. */
static inline size_t many_slot(const struct symbol_session *k, const uint32_t *frames, size_t n,
                               uint32_t tag)
{
    const struct symbol_session_slots *t = &k->many_slots;
    size_t at = tag & t->mask;

    for (; t->slots[at]; at = (at + 1) & t->mask) {
        const struct symbol_session_many *m = &k->many.ptr[(uint32_t)t->slots[at] - 1];
        if (t->slots[at] >> 32 == tag && m->len == n &&
            memcmp(k->inlined.ptr + m->from, frames, n * sizeof(*frames)) == 0)
            break;
    }
    return at;
}

uint32_t symbol_session_step(struct symbol_session *k, const uint32_t *frames, size_t n)
{
    struct symbol_session_slots *t = &k->many_slots;

    if (LIKELY(n == 1 && frames[0] < SYMBOL_SESSION_MANY))
        return frames[0];
    uint32_t tag = many_tag(k, frames, n);
    slots_room(t, FULL);
    size_t at = many_slot(k, frames, n, tag);
    if (t->slots[at])
        return SYMBOL_SESSION_MANY + (uint32_t)t->slots[at] - 1;
    uint32_t step = add_many(k, frames, n);
    k->full |= step == SYMBOL_SESSION_NONE;
    if (step != SYMBOL_SESSION_NONE)
        slots_set(t, at, tag, k->many.len - 1);
    return step;
}

uint32_t symbol_session_find_step(const struct symbol_session *k, const uint32_t *frames, size_t n)
{
    if (LIKELY(n == 1 && frames[0] < SYMBOL_SESSION_MANY))
        return frames[0];
    if (!k->many_slots.slots)
        return SYMBOL_SESSION_NONE;
    uint64_t slot = k->many_slots.slots[many_slot(k, frames, n, many_tag(k, frames, n))];
    return slot ? SYMBOL_SESSION_MANY + (uint32_t)slot - 1 : SYMBOL_SESSION_NONE;
}

static inline uint32_t step_at(const uint64_t *path, size_t i)
{
    return (uint32_t)(path[i / 2] >> 32 * (i % 2));
}

static uint64_t count_frames(const struct symbol_session *k, const uint64_t *path, size_t n)
{
    uint64_t all = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t step = step_at(path, i);
        size_t len;
        step_frames(k, &step, &len);
        all += len;
    }
    return all;
}

/* SYMBOL_SESSION_NONE, and k->full, if there is no room. */
static uint32_t add_stack(struct symbol_session *k, const uint64_t *path, size_t n, uint64_t frames)
{
    size_t words = symbol_session_path_len(n), len;
    uint32_t node = 0;

    if (!has_room(k, words * sizeof(*path)) || k->paths.len + words >= UINT32_MAX)
        return SYMBOL_SESSION_NONE;
    mutex_lock(&k->lock);
    for (size_t i = n; i > 0; i--) {
        uint32_t step = step_at(path, i - 1);
        const uint32_t *of = step_frames(k, &step, &len);
        for (size_t f = len; f > 0; f--)
            node = stacks_node(&k->stacks, node, of[f - 1]);
    }
    mutex_unlock(&k->lock);
    if (node == STACKS_FULL)
        return SYMBOL_SESSION_NONE;
    struct symbol_session_stack new = { (uint32_t)k->paths.len, (uint32_t)n, (uint32_t)frames,
                                        node };
    vec_push(&k->seen, new);
    vec_reserve(&k->paths, k->paths.len + words);
    memcpy(k->paths.ptr + k->paths.len, path, words * sizeof(*path));
    k->paths.len += words;
    return node;
}

static inline bool same_path(const uint64_t *a, const uint64_t *b, size_t words)
{
    uint64_t d = 0;

    for (size_t i = 0; i < words; i += 2)
        d |= (a[i] ^ b[i]) | (a[i + 1] ^ b[i + 1]);
    return d == 0;
}

uint32_t symbol_session_node(struct symbol_session *k, const uint64_t *path, size_t n,
                             uint64_t hash, uint64_t most)
{
    struct symbol_session_slots *t = &k->stack_slots;
    uint32_t tag =
        (uint32_t)(hash_mix(hash ^ UINT64_C(0xd6e8feb86659fd93), k->stacks.seed + n) >> 16);

    slots_room(t, FULL);
    size_t at = tag & t->mask;
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        const struct symbol_session_stack *s = &k->seen.ptr[(uint32_t)t->slots[at] - 1];
        if (t->slots[at] >> 32 == tag && s->len == n &&
            same_path(k->paths.ptr + s->from, path, symbol_session_path_len(n)))
            return s->frames <= most ? s->node : SYMBOL_SESSION_NONE;
    }
    uint64_t frames = count_frames(k, path, n);
    if (frames > most)
        return SYMBOL_SESSION_NONE;
    uint32_t node = add_stack(k, path, n, frames);
    k->full |= node == SYMBOL_SESSION_NONE;
    if (node != SYMBOL_SESSION_NONE)
        slots_set(t, at, tag, k->seen.len - 1);
    return node;
}
