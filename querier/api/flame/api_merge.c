/* SPDX-License-Identifier: Apache-2.0
 *
 * api_merge.c: POST /merge, POST /api/exemplars:merge: the flame graph of some profiles, by their
 * ids, with the parameters in a JSON body. Otherwise as api_render.c.
 *
 * Routes: proto/WIRE.md, "Legacy routes".
 */
#include <stdio.h>

#include "common/base/hash.h"
#include "querier/api/flame/api_render.h"
#include "querier/output/render_json.h"
#include "querier/select/api_time.h"
#include "querier/select/connect_msg.h"

struct merge {
    struct render render;
    struct str start_text, end_text;
    size_t profiles;
};

static int read_side(struct query *q, struct merge *g, const struct str *profiles, struct err *e)
{
    struct flame_request *s = &g->render.side;
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);

    if (api_time_of(q, g->start_text, "startTime", now, &s->from_ms, e) ||
        api_time_of(q, g->end_text, "endTime", now, &s->until_ms, e))
        return e->code;
    if (s->from_ms > s->until_ms)
        return err_set(e, ERR_INPUT, "startTime is after endTime");
    if (g->start_text.len || g->end_text.len)
        s->range = plan_range(s->from_ms, MAX(s->until_ms, s->from_ms + 1));
    return query_spec_render(s->query, true, q->arena, &s->spec, e) ||
                   exm_of_texts(profiles, g->profiles, 1u << EXID_SPAN | 1u << EXID_PROFILE,
                                q->arena, &s->ids, e)
               ? e->code
               : 0;
}

static int read_merge(struct query *q, struct merge *g, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    struct render *r = &g->render;
    const struct json_val *m;
    const struct str *profiles;
    int64_t nodes = 0;

    if (msg_begin(q, &m, e) ||
        json_take_str(json_get(m, "appName", NULL), "appName", &r->side.query, e) ||
        msg_strings(q, m, "profiles", &profiles, &g->profiles, e) ||
        json_take_str(json_get(m, "startTime", NULL), "startTime", &g->start_text, e) ||
        json_take_str(json_get(m, "endTime", NULL), "endTime", &g->end_text, e) ||
        json_take_i64(json_get(m, "maxNodes", NULL), "maxNodes", &nodes, e))
        return e->code;
    if (!r->side.query.len || !g->profiles)
        return err_set(e, ERR_INPUT, "appName and at least one of profiles are required");
    if (nodes > (int64_t)c->nodes_max)
        return err_set(e, ERR_INPUT, "maxNodes is %" PRId64 ", the limit is %" PRIu64, nodes,
                       c->nodes_max);
    r->out.max_nodes = nodes > 0 ? (size_t)nodes : c->nodes_default;
    if (read_side(q, g, profiles, e))
        return e->code;
    r->timeline = plan_timeline(r->side.from_ms, r->side.until_ms);
    return 0;
}

static void put_merge_metadata(struct query *q, const struct render *r, struct json *j)
{
    const struct merge *g = container_of((uintptr_t)r, struct merge, render);
    char id[24];

    json_key(j, "mergeMetadata");
    json_obj(j);
    json_put_str(j, "appName", r->side.query);
    json_put_str(j, "startTime", g->start_text);
    json_put_str(j, "endTime", g->end_text);
    json_put_u64(j, "profilesLength", g->profiles);
    json_obj_end(j);
    json_key(j, "queryID"); /* the same question has the same one */
    (void)snprintf(id, sizeof(id), "%016" PRIx64, hash64(q->http->body.ptr, q->http->body.len, 0));
    json_cstr(j, id);
}

static int reply(struct query *q, struct err *e)
{
    const struct merge *g = q->state;

    return render_reply(q, &g->render, e);
}

static int ask(struct query *q, struct err *e)
{
    const struct merge *g = q->state;

    q->step = reply;
    return render_ask(q, &g->render, e);
}

static int chosen(struct query *q, struct err *e)
{
    struct merge *g = q->state;

    if (side_types(q, RENDER_ASK_TYPES, &g->render.side, e))
        return e->code;
    query_calls_reset(q);
    return ask(q, e);
}

int api_merge_old(struct query *q, struct err *e)
{
    struct merge *g = ARENA_NEW(q->arena, struct merge);
    bool asked = false;

    CHECK(g);
    g->render.old = true;
    g->render.more = put_merge_metadata;
    q->state = g;
    if (read_merge(q, g, e) || side_begin(q, RENDER_ASK_TYPES, &g->render.side, &asked, e))
        return e->code;
    if (!asked)
        return ask(q, e);
    q->step = chosen;
    return 0;
}
