/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: what a start of a compactor refuses in its options (common/role/process/check.h).
 */
#ifndef COMPACTOR_CHECK_H
#define COMPACTOR_CHECK_H

#include "common/role/process/check.h"

void compactor_check(struct role_checks *c);

#endif
