/* SPDX-License-Identifier: Apache-2.0
 *
 * check_config: `embertree check-config` and `embertreectl check-config`: would a server, or a role
 * of its own, start with these options, and with the files that they name? Without the roles
 * themselves: embertreectl has none of them.
 */
#include "common/base/base.h"
#include "common/cold/conf.h"
#include "common/role/process/check.h"
#include "compactor/check.h"
#include "compactor/options.h"
#include "deploy/ctl/ctl.h"
#include "distributor/base/options.h"
#include "distributor/check.h"
#include "ingester/check.h"
#include "querier/base/options.h"
#include "querier/check.h"

static const struct conf_table *const of_querier[] = { &querier_options };
static const struct conf_table *const of_compactor[] = { &compactor_options };

static const struct role ingester = { .name = "ingester",
                                      .conf = ingester_tables,
                                      .conf_len = INGESTER_TABLES,
                                      .check = ingester_check };
static const struct role compactor = { .name = "compactor",
                                       .conf = of_compactor,
                                       .conf_len = ARRAY_LEN(of_compactor),
                                       .check = compactor_check };
static const struct role querier = {
    .name = "querier", .conf = of_querier, .conf_len = ARRAY_LEN(of_querier), .check = querier_check
};
static const struct role distributor = { .name = "distributor",
                                         .conf = distributor_tables,
                                         .conf_len = DISTRIBUTOR_TABLES,
                                         .check = distributor_check };
static const struct role *const all[] = { &ingester, &compactor, &querier, &distributor, NULL };

static int run(int argc, char **argv)
{
    return role_check_main(all, argc, argv);
}

const struct command check_config_command = {
    .name = "check-config",
    .args = "[--config=FILE] [--section.name=value ...]",
    .help = "Says what is wrong with options and with the files that they name.",
    .run = run,
};
