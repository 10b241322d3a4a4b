/* SPDX-License-Identifier: Apache-2.0
 *
 * folded.h: a laid-out tree as folded text: `root;child;leaf 42` per stack that has a self value,
 * parents before children, siblings in order of name. What was cut is a last frame "other".
 */
#ifndef COMMON_RENDER_FOLDED_H
#define COMMON_RENDER_FOLDED_H

#include "common/render/calltree.h"

/* A ';' inside a name becomes ':', a line break a blank: the format has no escapes. Stops early
 * once *out is full (buf_ok tells). */
void folded_write(const struct layout *l, const struct calltree *t, struct buf *out);

#endif
