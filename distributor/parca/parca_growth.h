/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_growth.h: profiles of Parca's scraper that count since the start of their process, as
 * growth since the last one of their series.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_GROWTH_H
#define DISTRIBUTOR_PARCA_PARCA_GROWTH_H

#include "distributor/formats/formats.h"
#include "distributor/parca/parca_since.h"

struct parca_profile {
    const struct ingest *in; /* service and labels; without a window */
    const struct sample_config *config;
    struct str body, plain; /* as it came, and without gzip */
};
/* True: the profile has counters, and was handed over; rc is 0 or the error of the sink. Pool. */
NODISCARD bool parca_growth_push(struct parca_turn *t, const struct parca_profile *p,
                                 const struct batch_sink *sink, int *ret_rc, struct err *e);

#endif
