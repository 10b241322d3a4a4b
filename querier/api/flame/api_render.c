/* SPDX-License-Identifier: Apache-2.0
 *
 * api_render.c: flame graph and timeline in one answer.
 *
 *   api_render ──(a profile type)───────────────────────> ask ──> reply
 *      └──(an old name) ask types ──> chosen ────────────────^
 */
#include "querier/api/flame/api_render.h"

#include "querier/output/render_json.h"

static int reply(struct query *q, struct err *e)
{
    return render_reply(q, q->state, e);
}

static int ask(struct query *q, struct err *e)
{
    q->step = reply;
    return render_ask(q, q->state, e);
}

static int chosen(struct query *q, struct err *e)
{
    struct render *r = q->state;

    if (side_types(q, RENDER_ASK_TYPES, &r->side, e))
        return e->code;
    query_calls_reset(q);
    return ask(q, e);
}

static int begin(struct query *q, bool old, struct err *e)
{
    struct render *r = ARENA_NEW(q->arena, struct render);
    struct str aggregation = STR_NULL;
    bool asked = false;

    CHECK(r);
    r->old = old;
    q->state = r;
    if (render_out_read(q, old, &r->out, e) || side_read(q, "", old, &r->side, e))
        return e->code;
    r->timeline = plan_timeline(r->side.from_ms, r->side.until_ms);
    (void)http_param(q->http, "groupBy", &r->group_by);
    (void)http_param(q->http, "aggregation", &aggregation);
    r->average = str_eqc(aggregation, "avg");
    if (side_begin(q, RENDER_ASK_TYPES, &r->side, &asked, e))
        return e->code;
    if (!asked)
        return ask(q, e);
    q->step = chosen;
    return 0;
}

int api_render(struct query *q, struct err *e)
{
    return begin(q, false, e);
}

int api_render_old(struct query *q, struct err *e)
{
    return begin(q, true, e);
}
