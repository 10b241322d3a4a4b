/* SPDX-License-Identifier: Apache-2.0
 *
 * known.h: a symbol session: the stacks of one service that were sent before. It maps the contents
 * of a body to numbers that never change.
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
 * Thread: one at a time takes it (known_take), looks up and adds, and puts it back. Counts of what
 * the ingester has, and reads for a retry (known_lock), may be on any thread meanwhile.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_KNOWN_H
#define DISTRIBUTOR_FORMATS_PPROF_KNOWN_H

#include <stdatomic.h>

#include "common/base/hash.h"
#include "common/base/vec.h"
#include "common/model/stacks.h"
#include "common/sys/thread.h"
#include "distributor/formats/pprof/known_counts.h"

#define KNOWN_SESSION_BYTES 16
#define KNOWN_NONE          UINT32_MAX
#define KNOWN_MANY          (UINT32_C(1) << 31) /* steps from here on have several frames */
#define KNOWN_STEPS         (UINT32_MAX - 8)    /* there are no more steps than these */
#define KNOWN_PATH_STEPS    4
#define KNOWN_BATCH         32 /* at most so many are looked for at once */

struct known_text {
    const char *ptr; /* in known.blocks */
    uint32_t len;
    uint32_t symbol, path; /* what it becomes as a name, as a path; KNOWN_NONE: not asked yet */
};
struct known_stack {
    uint32_t from, len; /* steps, leaf first: from known.paths[from] on, two in each */
    uint32_t frames;
    uint32_t node;
};
struct known_many {
    uint32_t from, len; /* of known.inlined: frames, leaf first */
};
struct shelf;
struct known_slots {
    uint64_t *slots; /* tag << 32 | position + 1; 0: empty */
    size_t mask, len;
};
struct known {
    _Atomic uint32_t refs;
    _Atomic bool dead; /* not to be used for another push */
    uint8_t session[KNOWN_SESSION_BYTES];
    uint64_t symbol_keep; /* limits.symbol_keep_bytes it was made with */
    size_t bytes_max;
    struct shelf *shelf;            /* knowns.c: where it belongs; NULL: dropped */
    size_t charged;                 /* knowns.c: the bytes that it counts for */
    uint32_t frame_next, text_next; /* guesses */

    struct mutex lock;    /* stacks while it grows, or is read by others; told */
    struct stacks stacks; /* numbers of the session */
    struct known_counts told;

    VEC(struct known_text) texts;
    struct known_slots text_slots;
    VEC(char *) blocks;
    char *block_at;
    size_t block_left, block_bytes;
    VEC(struct frame) frames; /* those of `stacks`, each in one piece */
    struct known_slots frame_slots;
    VEC(struct known_stack) seen;
    VEC(uint64_t) paths; /* of each stack a multiple of KNOWN_PATH_STEPS steps, at its end 0 */
    struct known_slots stack_slots;
    VEC(struct known_many) many;
    VEC(uint32_t) inlined;
    struct known_slots many_slots;
    VEC(uint32_t) dense; /* by node: its number in the push at work; 0: none */
    bool full;           /* over its bound: what was asked last is not there */
};

struct known *known_new(const uint8_t session[KNOWN_SESSION_BYTES], uint64_t seed,
                        uint64_t symbol_keep, size_t bytes_max);
struct known *known_ref(struct known *k);
void known_unref(struct known *k); /* NULL is fine */
size_t known_bytes(const struct known *k);
struct known_counts known_now(const struct known *k);

/* ---- for the thread that has taken it; all set k->full once there is no room ---- */
/* The position of a name, unchanged as it came, in k->texts. */
uint32_t known_text(struct known *k, struct str s);
/* A string as it is stored. */
uint32_t known_string(struct known *k, struct str s);
uint32_t known_frame(struct known *k, const struct frame *f);
/* The step that n > 0 frames, leaf first, are; KNOWN_NONE if there is no room. */
uint32_t known_step(struct known *k, const uint32_t *frames, size_t n);

/* ---- the same for many at once; what is not there is KNOWN_NONE and is not made ---- */
void known_find_texts(const struct known *k, const struct str *s, size_t n, uint32_t *ret);
void known_find_frames(const struct known *k, const struct frame *f, size_t n, uint32_t *ret);
uint32_t known_find_step(const struct known *k, const uint32_t *frames, size_t n);

/* ---- a path: n > 0 steps, leaf first, two in a number; filled up to KNOWN_PATH_STEPS with 0 -- */
static inline size_t known_path_len(size_t n) /* in numbers */
{
    return (n + KNOWN_PATH_STEPS - 1) / KNOWN_PATH_STEPS * (KNOWN_PATH_STEPS / 2);
}
/* Its hash, for known_node: begin, then the numbers two by two. */
static inline uint64_t known_hash(const struct known *k)
{
    return k->stacks.seed;
}
static inline uint64_t known_hash_more(uint64_t h, uint64_t a, uint64_t b)
{
    return hash_mix(a ^ h, b ^ UINT64_C(0xa0761d6478bd642f) ^ (h << 32 | h >> 32));
}
/* The node of a path; KNOWN_NONE if there is no room, or it has more than `most` frames. */
uint32_t known_node(struct known *k, const uint64_t *path, size_t n, uint64_t hash, uint64_t most);

#endif
