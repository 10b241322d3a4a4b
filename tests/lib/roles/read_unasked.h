/* SPDX-License-Identifier: Apache-2.0
 *
 * read_unasked.h: what queries over stores with canned answers (test_read_run.c,
 * test_rpc_exemplars.c) link and never ask: space, forecasts, the ledger. Definitions, so that the
 * store itself is not linked: each program includes it once.
 */
#ifndef TESTS_LIB_ROLES_READ_UNASKED_H
#define TESTS_LIB_ROLES_READ_UNASKED_H

#include "common/store/check/space.h"
#include "common/store/retain/forecast.h"
#include "ingester/read/ledger_run.h"

void forecast_make(const struct forecast_in *in, uint64_t room, struct forecast *ret)
{
    (void)in, (void)room;
    *ret = (struct forecast){ 0 };
}
void forecast_unite(struct forecast_in *to, const struct forecast_in *from)
{
    (void)to, (void)from;
}
bool store_forecast(struct store_view *v, struct forecast_in *ret)
{
    (void)v, (void)ret;
    return false;
}
int store_space(struct store_view *v, const struct space_opts *o, struct arena *a,
                struct space *ret, struct err *e)
{
    (void)v, (void)o, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}

int ledger_decode(struct str payload, struct arena *a, struct read_msg *ret, struct err *e)
{
    (void)payload, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
int ledger_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
               struct buf *out, struct err *e)
{
    (void)m, (void)src, (void)a, (void)out;
    return err_set(e, ERR_INTERNAL, "not asked here");
}

#endif
