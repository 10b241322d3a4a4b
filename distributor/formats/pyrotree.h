/* SPDX-License-Identifier: Apache-2.0
 *
 * pyrotree.h: the two binary formats of the first Pyroscope agents (format=trie, format=tree).
 */
#ifndef DISTRIBUTOR_FORMATS_PYROTREE_H
#define DISTRIBUTOR_FORMATS_PYROTREE_H

#include "distributor/formats/push.h"

/* Adds one series to push, whose base must be set; a count is worth kind->period. The layouts and
 * rules: pyrotree.c. ERR_INPUT, ERR_LIMIT. */
struct kind;
NODISCARD int trie_push(struct str body, const struct kind *kind, const struct limits *l,
                        struct push *push, struct err *e);
NODISCARD int tree_push(struct str body, const struct kind *kind, const struct limits *l,
                        struct push *push, struct err *e);

#endif
