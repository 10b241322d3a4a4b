/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-in-one binary: all four roles in one process. Ingesters start first and stop last,
 * because the others call them. And the commands for people.
 */
#include "compactor/compactor.h"
#include "deploy/ctl/ctl.h"
#include "distributor/distributor.h"
#include "ingester/ingester.h"
#include "querier/querier.h"

const struct role *const roles[] = { &ingester_role, &compactor_role, &querier_role,
                                     &distributor_role, NULL };
const struct command *const commands[] = { &adopt_command,           &check_config_command,
                                           &check_overrides_command, &fsck_command,
                                           &import_command,          &restore_command,
                                           &upload_command,          NULL };
