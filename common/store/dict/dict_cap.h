/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_cap.h: how many new stack nodes a service and a tenant may still bring today.
 *
 * A program that writes request ids into names of functions would make a dictionary that grows
 * without a bound, and every query of its service slow. Over the cap its stacks keep the frames
 * that are known and end in [overflow]; no value is lost, and tomorrow new code is learnt again.
 *
 * The tenant's cap is shared. Any service may use the first three quarters, in the order of
 * arrival; only services that brought less than a hundredth of the cap today may use the last
 * quarter. So a few noisy services cannot use up the names of the others; only very many services
 * together can.
 *
 * Nothing else degrades a stack. Memory that is short never does: dictionaries that are not in use
 * are dropped and read again (dict_cache.h), or the push is refused before it gets here.
 *
 * Names count, too: a node whose names are longer than DICT_NAME_BYTES counts as several, so that
 * the bytes of a dictionary are bounded with its nodes.
 *
 * Counted in days of engine time, in memory: a restart forgets what was used of the day.
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_DICT_DICT_CAP_H
#define COMMON_STORE_DICT_DICT_CAP_H

#include "common/base/map.h"
#include "common/base/vec.h"

struct dict_cap_opts {
    uint64_t service_nodes, tenant_nodes; /* a day; 0: no cap */
};
struct dict_cap {
    struct dict_cap_opts o;
    int64_t day;
    struct map_u64 at; /* tenant << 32 | scope + 1, 0 for the tenant -> index into used */
    VEC(uint64_t) used;
};
void dict_cap_init(struct dict_cap *c, const struct dict_cap_opts *o);
void dict_cap_deinit(struct dict_cap *c);
/* UINT32_MAX: as many as it likes. */
uint32_t dict_cap_left(struct dict_cap *c, uint32_t tenant, uint32_t scope, int64_t engine_ms);
/* The service begins a new dictionary: it may learn its stacks once more. */
void dict_cap_again(struct dict_cap *c, uint32_t tenant, uint32_t scope);
void dict_cap_take(struct dict_cap *c, uint32_t tenant, uint32_t scope, uint64_t nodes);

#endif
