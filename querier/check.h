/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: what a start of a querier refuses in its options (common/role/process/check.h).
 */
#ifndef QUERIER_CHECK_H
#define QUERIER_CHECK_H

#include "common/role/process/check.h"

void querier_check(struct role_checks *c);

#endif
