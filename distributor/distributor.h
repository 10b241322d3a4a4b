/* SPDX-License-Identifier: Apache-2.0
 *
 * distributor.h: the role that takes profiles in. All a binary needs of it.
 */
#ifndef DISTRIBUTOR_DISTRIBUTOR_H
#define DISTRIBUTOR_DISTRIBUTOR_H

#include "common/role/core/role.h"

extern const struct role distributor_role;

#endif
