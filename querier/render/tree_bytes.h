/* SPDX-License-Identifier: Apache-2.0
 *
 * tree_bytes.h: a laid-out tree as the bytes of format `tree` (proto/FORMATS.md, "Tree").
 *
 *   node := uvarint name length | name | uvarint self | uvarint children | children
 *
 * The root has no name; what was cut is a last child "other". An empty tree has no bytes.
 */
#ifndef QUERIER_RENDER_TREE_BYTES_H
#define QUERIER_RENDER_TREE_BYTES_H

#include "common/render/calltree.h"

/* Stops early once *out is full (buf_ok tells). */
void tree_bytes_write(const struct layout *l, const struct calltree *t, struct buf *out);

#endif
