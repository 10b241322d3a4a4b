/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_view.h: an uploaded profile, or two, as a flame graph. Pure: any thread.
 */
#ifndef DISTRIBUTOR_ADHOC_ADHOC_VIEW_H
#define DISTRIBUTOR_ADHOC_ADHOC_VIEW_H

#include "common/base/json.h"
#include "distributor/adhoc/adhoc_meta.h"

#define ADHOC_NODES_DEFAULT 8192
#define ADHOC_NODES_MAX     1048576

/* One side of what is looked at. */
struct adhoc_side {
    const struct adhoc_profile *profile;
    const struct adhoc_meta *meta; /* its types */
    const struct adhoc_type *type; /* which of them; set by adhoc_choose */
};
/* Finds the type by what is shown of it, or by its id; without a wish what is most looked at (cpu,
 * wall, inuse_space, alloc_space, else the first). With two sides both get it. ERR_INPUT names the
 * types there are. */
NODISCARD int adhoc_choose(struct adhoc_side *sides, size_t n, struct str wish, struct err *e);
/* Is it something both have? */
bool adhoc_both(const struct adhoc_side *other, const struct adhoc_type *t);

/* Memory the tree of one side takes at most, roughly. */
size_t adhoc_view_cost(const struct adhoc_profile *p);
/* Keys and values of proto/WIRE.md, "Flamebearer JSON", into the open object. nodes 0: all. */
NODISCARD int adhoc_view_flame(const struct adhoc_side *s, size_t nodes, uint64_t seed,
                               struct json *j, struct err *e);
NODISCARD int adhoc_view_diff(const struct adhoc_side *sides, size_t nodes, uint64_t seed,
                              struct json *j, struct err *e);
NODISCARD int adhoc_view_folded(const struct adhoc_side *s, size_t nodes, uint64_t seed,
                                struct buf *out, struct err *e);

#endif
