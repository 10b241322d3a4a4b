/* SPDX-License-Identifier: Apache-2.0
 *
 * doors.h: every HTTP route of the product, and what it asks of its callers, in one table. A route
 * that is registered and has no row ends the process at its start (http_door_of).
 */
#ifndef COMMON_ROLE_CORE_DOORS_H
#define COMMON_ROLE_CORE_DOORS_H

#include "common/net/http.h"

const struct http_door *doors(size_t *ret_len);

#endif
