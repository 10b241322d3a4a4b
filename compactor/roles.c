/* SPDX-License-Identifier: Apache-2.0 */
#include "common/role/core/command.h"
#include "compactor/compactor.h"

const struct role *const roles[] = { &compactor_role, NULL };
const struct command *const commands[] = { &role_check_command, NULL };
