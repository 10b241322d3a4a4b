/* SPDX-License-Identifier: Apache-2.0
 *
 * leafid.h: the id of a leaf: of what a series has in 10 s. A push that came without an id of its
 * own is known by it; it is not stored anywhere: the id itself contains series and slot.
 *
 *   0        8      12     16
 *   | series | slot | tag |      bytes of an id as of exid.h, numbers big-endian
 *
 *   series   hash of tenant, service and labels, the same on every shard and in every version
 *   slot     first of the leaf, from 2020-01-01
 * tag hash of series and slot, never 0: an id made elsewhere is refused
 *
 * The profile type is not in it: under one id a series has as many profiles as it has types, as a
 * push has. A tag is not a secret: a caller that makes up an id can only name leaves that it may
 * ask for anyway.
 *
 *   series 0123456789abcdef, slot 37,500,002:   0123456789abcdef 023c3462 572a03f5
 */
#ifndef COMMON_MODEL_LEAFID_H
#define COMMON_MODEL_LEAFID_H

#include "common/model/exid.h"

/* Of all series of a service. */
uint64_t leafid_service(struct str tenant, struct str service);
/* Labels as canonical bytes (label.h). */
uint64_t leafid_series(uint64_t service, struct str labels);
/* CHECKs that the slot is the first of a leaf. */
void leafid_make(uint64_t series, uint32_t slot, struct exid *ret);
/* False: the packed id is not one of a leaf. */
bool leafid_read(struct str packed, uint64_t *ret_series, uint32_t *ret_slot);

#endif
