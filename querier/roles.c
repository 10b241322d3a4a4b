/* SPDX-License-Identifier: Apache-2.0 */
#include "common/role/core/command.h"
#include "querier/querier.h"

const struct role *const roles[] = { &querier_role, NULL };
const struct command *const commands[] = { &role_check_command, NULL };
