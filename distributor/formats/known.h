/* SPDX-License-Identifier: Apache-2.0
 *
 * known.h: stacks of one service as they were seen before: from what stands in a body to numbers
 * that never change.
 *
 *   name as sent ──> text ──> name as stored ─┐
 *   frame (names, line) ───────────────────────┼──> numbers of a session, of `struct stacks`
 *   frames of a stack, leaf first ──> node ────┘
 *
 * Agents send nearly the same stacks every ten seconds, in another order and with other ids. What
 * was seen is then found by one comparison, or one hash; nothing is normalised, made or sorted
 * again, and the ingester, who was told the numbers, does not see names at all (dict_known.h).
 *
 * It only grows, up to a bound; then it is given up for a new one, with another session.
 *
 * Thread: one at a time takes it (known_take), looks up and adds, and puts it back. What was told
 * and what is read for a retry (known_lock) may be on any thread meanwhile.
 */
#ifndef DISTRIBUTOR_FORMATS_KNOWN_H
#define DISTRIBUTOR_FORMATS_KNOWN_H

#include <stdatomic.h>

#include "common/base/vec.h"
#include "common/model/stacks.h"
#include "common/sys/thread.h"
#include "distributor/formats/known_counts.h"

#define KNOWN_SESSION_BYTES 16
#define KNOWN_NONE          UINT32_MAX

struct known_text {
    const char *ptr; /* in known.blocks */
    uint32_t len;
    uint32_t symbol, path; /* what it becomes as a name, as a path; KNOWN_NONE: not asked yet */
};
struct known_stack {
    uint32_t from, len; /* of known.paths: frames, leaf first */
    uint32_t node;
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
    struct shelf *shelf;            /* knowns.c: where it belongs; NULL: given up */
    size_t charged;                 /* knowns.c: as it was counted */
    uint32_t frame_next, text_next; /* guesses */

    struct mutex lock;    /* stacks while it grows, or is read by others; told */
    struct stacks stacks; /* numbers of the session */
    struct known_counts told;

    VEC(struct known_text) texts;
    struct known_slots text_slots;
    VEC(char *) blocks;
    char *block_at;
    size_t block_left, block_bytes;
    VEC(struct known_stack) seen;
    VEC(uint32_t) paths;
    struct known_slots stack_slots;
    VEC(uint32_t) dense; /* by node: its number in the push at work; 0: none */
    bool full;           /* over its bound: what was asked last is not there */
};

struct known *known_new(const uint8_t session[KNOWN_SESSION_BYTES], uint64_t seed,
                        uint64_t symbol_keep, size_t bytes_max);
struct known *known_ref(struct known *k);
void known_unref(struct known *k); /* NULL is fine */
size_t known_bytes(const struct known *k);
struct known_counts known_now(const struct known *k);

/* ---- for who has taken it; all say k->full once there is no room ---- */
/* The position of a name as it was sent, in k->texts. */
uint32_t known_text(struct known *k, struct str s);
/* A string as it is stored. */
uint32_t known_string(struct known *k, struct str s);
uint32_t known_frame(struct known *k, const struct frame *f);
/* The node of a stack of n > 0 frames, leaf first. */
uint32_t known_node(struct known *k, const uint32_t *frames, size_t n);

#endif
