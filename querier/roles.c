/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/querier.h"

const struct role *const roles[] = { &querier_role, NULL };
