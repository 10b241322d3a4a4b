/* SPDX-License-Identifier: Apache-2.0
 *
 * ingester.h: the role that keeps the data. Other roles meet it in proto/ only.
 */
#ifndef INGESTER_INGESTER_H
#define INGESTER_INGESTER_H

#include "common/role/core/role.h"

extern const struct role ingester_role;

#endif
