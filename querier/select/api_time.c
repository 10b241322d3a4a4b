/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/select/api_time.h"

#include "common/model/attime.h"

#define TIME_MAX INT64_C(253402300799999) /* end of the year 9999 */

NODISCARD int api_time_of(const struct query *q, struct str text, const char *what, int64_t absent,
                          int64_t *ret, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), ms = absent;

    if (str_trim(text).len && attime_parse(text, now, &ms, e))
        return err_wrap(e, "%s", what);
    if (ms < 0 || ms > TIME_MAX)
        return err_set(e, ERR_INPUT, "%s: %" PRId64 " ms is not a time between 1970 and 9999", what,
                       ms);
    *ret = ms;
    return 0;
}

NODISCARD int api_time(const struct query *q, const char *name, int64_t absent, int64_t *ret,
                       struct err *e)
{
    struct str text = STR_NULL;

    (void)http_param(q->http, name, &text);
    return api_time_of(q, text, name, absent, ret, e);
}
