/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.h: the distributors of a cluster agree on one secret of write ids without an operator.
 * Thread: the loop's.
 */
#ifndef DISTRIBUTOR_SEND_SECRET_H
#define DISTRIBUTOR_SEND_SECRET_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/view/view.h"
#include "common/sys/loop.h"
#include "distributor/base/tenants.h"

struct secret;
struct secret_opts { /* what it points to outlives the secret */
    struct loop *loop;
    struct env *env;
    const char *option;      /* "": none is configured */
    const char *data_dir;    /* NULL: nothing is kept (simulation) */
    struct coord *coord;     /* NULL: no coordination service, so there is nothing to agree on */
    const char *prefix;      /* of keys there */
    struct view *view;       /* is the service to be believed? NULL: it is */
    struct tenants *tenants; /* told when it is known: now, or later */
};
NODISCARD int secret_new(const struct secret_opts *o, struct secret **ret, struct err *e);
void secret_free(struct secret *s); /* NULL is fine */
/* NULL: it is known; else why not yet. */
const char *secret_missing(const struct secret *s);

#endif
