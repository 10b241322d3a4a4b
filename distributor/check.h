/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: what a start of a distributor refuses in its options (common/role/process/check.h).
 */
#ifndef DISTRIBUTOR_CHECK_H
#define DISTRIBUTOR_CHECK_H

#include "common/role/process/check.h"

void distributor_check(struct role_checks *c);

#endif
