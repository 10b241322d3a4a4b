/* SPDX-License-Identifier: Apache-2.0 */
#include "compactor/check.h"

#include "compactor/options.h"

void compactor_check(struct role_checks *c)
{
    const struct compactor_conf *own = conf_get(c->conf, &compactor_options);

    role_check_listen(c, "compactor.listen", own->listen, NULL);
}
