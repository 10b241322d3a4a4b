/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_forms.h: pprof bodies in all forms the schema allows, and a plain slow decoder of them that
 * shares no code with ours.
 */
#ifndef TESTS_LIB_GEN_PPROF_FORMS_H
#define TESTS_LIB_GEN_PPROF_FORMS_H

#include "common/base/buf.h"
#include "common/base/prng.h"

/* A good body: no message of it is malformed, nothing is over a limit. Bodies have the same few
 * names, so that a sequence of them looks like a service. */
void pprof_forms_body(struct prng *r, struct buf *ret);

struct pprof_forms_read {
    struct buf rows; /* "<sample type>\t<pod label>\t<stack: dist_stack>\t<sum>", sorted */
    uint64_t samples, value_count, negative, unknown_location;
    bool saturated; /* a sum stays at 2^63 - 1 */
};
void pprof_forms_read(struct str body, struct pprof_forms_read *ret);
/* Adds up lines "<key>\t<number>" of one key; sorted. True: a sum stays at 2^63 - 1. */
bool pprof_forms_add_up(struct buf *lines);

#endif
