/* SPDX-License-Identifier: Apache-2.0
 *
 * querier.h: the role that answers. Other roles meet it in proto/ only.
 */
#ifndef QUERIER_QUERIER_H
#define QUERIER_QUERIER_H

#include "common/role/core/role.h"

extern const struct role querier_role;

#endif
