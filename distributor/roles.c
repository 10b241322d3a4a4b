/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/distributor.h"

const struct role *const roles[] = { &distributor_role, NULL };
