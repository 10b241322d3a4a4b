/* SPDX-License-Identifier: Apache-2.0
 *
 * symbol_session.h: a symbol session: the stacks of one service that were sent before. It maps the
 * contents of a body to numbers that never change.
 *
 *   name as sent ──> text ──> name as stored ─┐
 *   frame (names, line) ───────────────────────┼──> numbers of a session, of `struct stacks`
 *   steps of a stack, leaf first ──> node ─────┘
 *
 * A step is what one location of a body stands for: its frame, or its frames where code was inlined
 * there. Stacks are found by their steps, so that frames are not walked again; the same frames
 * in other steps are another stack here and lead to the same node.
 *
 * Agents send nearly the same stacks every ten seconds, in another order and with other ids. What
 * was seen is then found by one comparison, or one hash; nothing is normalised, made or sorted
 * again, and the ingester, which got the numbers earlier, does not see names at all (dict_known.h).
 *
 * It only grows, up to a bound; then it is dropped, and a new session begins.
 *
 * Thread: one at a time takes it (symbol_session_take), looks up and adds, and puts it back.
 * Counts of what the ingester has, and reads for a retry (symbol_session_lock), may be on any
 * thread meanwhile.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_SYMBOL_SESSION_H
#define DISTRIBUTOR_FORMATS_PPROF_SYMBOL_SESSION_H

#include <stdatomic.h>

#include "common/base/hash.h"
#include "common/base/vec.h"
#include "common/model/stacks.h"
#include "common/sys/thread.h"
#include "distributor/formats/pprof/symbol_session_counts.h"

#define SYMBOL_SESSION_BYTES      16
#define SYMBOL_SESSION_NONE       UINT32_MAX
#define SYMBOL_SESSION_MANY       (UINT32_C(1) << 31) /* steps from here have several frames */
#define SYMBOL_SESSION_STEPS      (UINT32_MAX - 8)    /* there are no more steps than these */
#define SYMBOL_SESSION_PATH_STEPS 4
#define SYMBOL_SESSION_BATCH      32 /* at most so many are looked for at once */

struct symbol_session_text {
    const char *ptr; /* in known.blocks */
    uint32_t len;
    uint32_t symbol, path; /* what it becomes as a name, as a path; SYMBOL_SESSION_NONE: not asked
    yet */
};
struct symbol_session_stack {
    uint32_t from, len; /* steps, leaf first: from known.paths[from] on, two in each */
    uint32_t frames;
    uint32_t node;
};
struct symbol_session_many {
    uint32_t from, len; /* of known.inlined: frames, leaf first */
};
struct shelf;
struct symbol_session_slots {
    uint64_t *slots; /* tag << 32 | position + 1; 0: empty */
    size_t mask, len;
};
struct symbol_session {
    _Atomic uint32_t refs;
    _Atomic bool dead; /* not to be used for another push */
    uint8_t session[SYMBOL_SESSION_BYTES];
    uint64_t symbol_keep; /* limits.symbol_keep_bytes it was made with */
    size_t bytes_max;
    struct shelf *shelf;            /* symbol_sessions.c: where it belongs; NULL: dropped */
    size_t charged;                 /* symbol_sessions.c: the bytes that it counts for */
    uint32_t frame_next, text_next; /* guesses */

    struct mutex lock;    /* stacks while it grows, or is read by others; told */
    struct stacks stacks; /* numbers of the session */
    struct symbol_session_counts told;

    VEC(struct symbol_session_text) texts;
    struct symbol_session_slots text_slots;
    VEC(char *) blocks;
    char *block_at;
    size_t block_left, block_bytes;
    VEC(struct frame) frames; /* those of `stacks`, each in one piece */
    struct symbol_session_slots frame_slots;
    VEC(struct symbol_session_stack) seen;
    VEC(uint64_t)
    paths; /* of each stack a multiple of SYMBOL_SESSION_PATH_STEPS steps, at its end
    0 */
    struct symbol_session_slots stack_slots;
    VEC(struct symbol_session_many) many;
    VEC(uint32_t) inlined;
    struct symbol_session_slots many_slots;
    VEC(uint32_t) dense; /* by node: its number in the push at work; 0: none */
    bool full;           /* over its bound: what was asked last is not there */
};

struct symbol_session *symbol_session_new(const uint8_t session[SYMBOL_SESSION_BYTES],
                                          uint64_t seed, uint64_t symbol_keep, size_t bytes_max);
struct symbol_session *symbol_session_ref(struct symbol_session *k);
void symbol_session_unref(struct symbol_session *k); /* NULL is fine */
size_t symbol_session_bytes(const struct symbol_session *k);
struct symbol_session_counts symbol_session_now(const struct symbol_session *k);

/* ---- for the thread that has taken it; all set k->full once there is no room ---- */
/* The position of a name, unchanged as it came, in k->texts. */
uint32_t symbol_session_text(struct symbol_session *k, struct str s);
/* A string as it is stored. */
uint32_t symbol_session_string(struct symbol_session *k, struct str s);
uint32_t symbol_session_frame(struct symbol_session *k, const struct frame *f);
/* The step that n > 0 frames, leaf first, are; SYMBOL_SESSION_NONE if there is no room. */
uint32_t symbol_session_step(struct symbol_session *k, const uint32_t *frames, size_t n);

/* ---- the same for many at once; what is not there is SYMBOL_SESSION_NONE and is not made ---- */
void symbol_lookup_texts(const struct symbol_session *k, const struct str *s, size_t n,
                         uint32_t *ret);
void symbol_lookup_frames(const struct symbol_session *k, const struct frame *f, size_t n,
                          uint32_t *ret);
uint32_t symbol_session_find_step(const struct symbol_session *k, const uint32_t *frames, size_t n);

/* ---- a path: n > 0 steps, leaf first, two in a number; filled up to SYMBOL_SESSION_PATH_STEPS
 * with 0 -- */
static inline size_t symbol_session_path_len(size_t n) /* in numbers */
{
    return (n + SYMBOL_SESSION_PATH_STEPS - 1) / SYMBOL_SESSION_PATH_STEPS *
           (SYMBOL_SESSION_PATH_STEPS / 2);
}
/* Its hash, for symbol_session_node: begin, then the numbers two by two. */
static inline uint64_t symbol_session_hash(const struct symbol_session *k)
{
    return k->stacks.seed;
}
static inline uint64_t symbol_session_hash_more(uint64_t h, uint64_t a, uint64_t b)
{
    return hash_mix(a ^ h, b ^ UINT64_C(0xa0761d6478bd642f) ^ (h << 32 | h >> 32));
}
/* The node of a path; SYMBOL_SESSION_NONE if there is no room, or it has more than `most` frames.
 */
uint32_t symbol_session_node(struct symbol_session *k, const uint64_t *path, size_t n,
                             uint64_t hash, uint64_t most);

#endif
