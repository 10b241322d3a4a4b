/* SPDX-License-Identifier: Apache-2.0 */
#include "compactor/compactor.h"

const struct role *const roles[] = { &compactor_role, NULL };
