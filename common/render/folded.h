/* SPDX-License-Identifier: Apache-2.0
 *
 * folded.h: a laid-out tree as folded text: `root;child;leaf 42` per stack that has a self value,
 * parents before children, siblings in order of name. What was cut is a last frame "other".
 */
#ifndef COMMON_RENDER_FOLDED_H
#define COMMON_RENDER_FOLDED_H

#include "common/render/calltree.h"

/* The text in pieces: l and t live as long as the writer and do not change. */
struct folded;
struct folded *folded_new(const struct layout *l, const struct calltree *t);
void folded_free(struct folded *f); /* NULL is fine */
/* Appends about `want` bytes more, or what a line takes; true: there is more. */
bool folded_next(struct folded *f, size_t want, struct buf *out);

/* All of it. A ';' inside a name becomes ':', a line break a blank: the format has no escapes.
 * Stops early once *out is full (buf_ok tells). */
void folded_write(const struct layout *l, const struct calltree *t, struct buf *out);

#endif
