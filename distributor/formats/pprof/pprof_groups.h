/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_groups.h: samples by their string labels: one group becomes one set of series labels.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_GROUPS_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_GROUPS_H

#include "distributor/formats/pprof/pprof_stacks.h"

struct pprof_groups {
    uint32_t *of_sample; /* group of each walked sample; NULL if there is one group only */
    struct labels *sets; /* labels in addition to push->base */
    size_t len;          /* at least 1 */
};
/* Samples to be grouped; all borrowed. */
struct pprof_groups_args {
    const struct pprof *p; /* only its strings are read */
    const struct pprof_walked *w;
    const struct limits *l;
    size_t groups_max;
};
/* Makes at most groups_max groups: label sets after the first ones share a last group, whose values
 * are [overflow]. */
NODISCARD int pprof_groups(const struct pprof_groups_args *args, struct push *push,
                           struct pprof_groups *ret, struct err *e);

#endif
