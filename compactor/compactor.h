/* SPDX-License-Identifier: Apache-2.0
 *
 * compactor.h: the role that watches over sealing and, with the storage levels, builds the coarse
 * ones. Other roles meet it in proto/ only.
 */
#ifndef COMPACTOR_COMPACTOR_H
#define COMPACTOR_COMPACTOR_H

#include "common/role/core/role.h"

extern const struct role compactor_role;

#endif
