/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.h: a number that nobody outside knows, another one in each process: for tables whose keys
 * come from outside. What depends on it may not be stored, sent, or decide an order.
 */
#ifndef COMMON_BASE_SECRET_H
#define COMMON_BASE_SECRET_H

#include "common/base/base.h"

uint64_t secret_word(void);

#endif
