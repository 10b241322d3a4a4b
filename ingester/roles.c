/* SPDX-License-Identifier: Apache-2.0 */
#include "common/role/core/command.h"
#include "ingester/ingester.h"

const struct role *const roles[] = { &ingester_role, NULL };
const struct command *const commands[] = { &role_check_command, NULL };
