/* SPDX-License-Identifier: Apache-2.0
 *
 * as_made.h: says when this node was given other numbers of shards or copies than its cluster was
 * made with. They are read when one is made, and later do nothing, which people should know.
 */
#ifndef INGESTER_BASE_AS_MADE_H
#define INGESTER_BASE_AS_MADE_H

#include "common/cluster/view/view.h"
#include "common/role/core/options.h"

struct as_made;

/* Both outlive it. Loop. */
struct as_made *as_made_new(struct view *view, const struct cluster_conf *conf);
void as_made_free(struct as_made *a); /* NULL is fine */

#endif
