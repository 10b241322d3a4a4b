/* SPDX-License-Identifier: Apache-2.0
 *
 * place_zones.h: what tests of placement ask of a set of nodes.
 */
#ifndef TESTS_LIB_REPL_PLACE_ZONES_H
#define TESTS_LIB_REPL_PLACE_ZONES_H

#include "common/cluster/place/place.h"

/* In how many zones the named nodes stand, all of which are among `nodes`; each without a zone
 * stands in one of its own. */
uint32_t zones_in(const struct place_node *nodes, size_t n, const struct name_set *s);

#endif
