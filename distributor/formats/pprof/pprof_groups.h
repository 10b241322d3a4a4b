/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_groups.h: samples by their string labels: one group becomes one set of series labels.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_GROUPS_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_GROUPS_H

#include "distributor/formats/pprof/pprof_stacks.h"

struct pprof_groups {
    uint32_t *of_sample; /* group of each walked sample; NULL if there is one group only */
    struct labels *sets; /* labels besides push->base */
    size_t len;          /* at least 1 */
};
/* At most groups_max groups: what comes after the first ones shares a last one whose values are
 * [overflow]. */
NODISCARD int pprof_groups(const struct pprof *p, const struct pprof_walked *w,
                           const struct limits *l, size_t groups_max, struct push *push,
                           struct pprof_groups *ret, struct err *e);

#endif
