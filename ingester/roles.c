/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/ingester.h"

const struct role *const roles[] = { &ingester_role, NULL };
