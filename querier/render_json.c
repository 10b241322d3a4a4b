/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/render_json.h"

#include "common/render/metadata.h"

/* ---- questions --------------------------------------------------------------------------------*/

static int ask_timelines(struct query *q, const struct render *r, const struct wire_query *wq,
                         struct err *e)
{
    struct wire_timeline tl = { .grid = r->timeline.grid };

    if (r->side.ids.kinds)
        return exm_ask_timeline(q, RENDER_ASK_TIMELINE, wq, &r->side.ids, tl.grid,
                                (struct exm_site){ 0 }, e);
    if (query_ask_timeline(q, RENDER_ASK_TIMELINE, wq, &tl, e))
        return e->code;
    tl.group_by = &r->group_by;
    tl.group_by_len = 1;
    return r->group_by.len ? query_ask_timeline(q, RENDER_ASK_GROUPS, wq, &tl, e) : 0;
}

NODISCARD int render_ask(struct query *q, const struct render *r, struct err *e)
{
    const struct render_side *s = &r->side;

    if (side_ask(q, RENDER_ASK_MERGE, s, e))
        return e->code;
    for (size_t i = 0; i < q->tenants_len && !s->range.empty; i++)
        for (size_t k = 0; k < s->types_len && r->out.format == RENDER_JSON; k++) {
            struct wire_query wq = side_wire(s, q->tenants[i], s->types[k]);
            if (ask_timelines(q, r, &wq, e))
                return e->code;
        }
    return 0;
}

/* ---- the answer -------------------------------------------------------------------------------*/

static void put_metadata(const struct query *q, const struct render *r, struct json *j)
{
    struct ptype t = side_type(&r->side);

    json_key(j, "metadata");
    json_obj(j);
    metadata_json(&t, "single", j);
    if (r->old) {
        json_key(j, "appName");
        json_str(j, r->side.spec.app_text);
        json_key(j, "startTime");
        json_i64(j, r->side.from_ms / 1000);
        json_key(j, "endTime");
        json_i64(j, r->side.until_ms / 1000);
        json_key(j, "query");
        json_str(j, r->side.query);
        json_key(j, "maxNodes");
        json_u64(j, r->out.max_nodes);
    }
    json_obj_end(j);
    if (r->old) {
        json_key(j, "annotations");
        json_arr(j);
        json_arr_end(j);
    }
    if (q->missing.missing) {
        json_key(j, "partial");
        json_bool(j, true);
    }
}

/* The value of the grouping label names a group; "*" where it is missing. */
static int put_groups(struct query *q, const struct render *r, struct json *j, struct err *e)
{
    struct timeline t;

    json_key(j, "groups");
    if (!r->group_by.len) {
        json_null(j);
        return 0;
    }
    timeline_init(&t, q->arena);
    int code = merged_timeline(q, RENDER_ASK_GROUPS, r->timeline.samples, r->average, &t, e);
    json_obj(j);
    for (size_t i = 0; !code && i < t.groups.len; i++) {
        struct str value = labels_get(&t.groups.ptr[i].labels, r->group_by);
        json_key_str(j, value.len ? value : STR("*"));
        timeline_json(&t, &t.groups.ptr[i], &r->timeline, r->average, j);
    }
    json_obj_end(j);
    timeline_deinit(&t);
    return code;
}

static int put_timelines(struct query *q, const struct render *r, struct json *j, struct err *e)
{
    struct timeline t;

    timeline_init(&t, q->arena);
    int code = merged_timeline(q, RENDER_ASK_TIMELINE, r->timeline.samples, r->average, &t, e);
    json_key(j, "timeline");
    timeline_json(&t, t.groups.len ? &t.groups.ptr[0] : NULL, &r->timeline, r->average, j);
    timeline_deinit(&t);
    return code ? code : put_groups(q, r, j, e);
}

static int put_json(struct query *q, const struct render *r, const struct merged *m,
                    const struct layout *l, struct err *e)
{
    struct flame f;
    struct json j;

    flame_init(&f, l, &m->tree);
    query_json(q, &j);
    json_obj(&j);
    json_key(&j, "version");
    json_u64(&j, 1);
    json_key(&j, "flamebearer");
    flame_json(&f, &j);
    flame_deinit(&f);
    put_metadata(q, r, &j);
    int code = put_timelines(q, r, &j, e);
    json_key(&j, "heatmap");
    if (r->heatmap)
        r->heatmap(q, r, &j);
    else
        json_null(&j);
    if (r->more)
        r->more(q, r, &j);
    json_obj_end(&j);
    return code ? code : query_out_end(q, e);
}

NODISCARD int render_reply(struct query *q, const struct render *r, struct err *e)
{
    struct merged m;
    struct layout l;

    if (r->out.format != RENDER_JSON) {
        struct render_about about = { .title = r->side.query,
                                      .type = side_type_id(&r->side),
                                      .from_ms = r->side.from_ms,
                                      .until_ms = r->side.until_ms };
        return render_out_put(q, RENDER_ASK_MERGE, &r->out, &about, e);
    }
    merged_init(&m, q);
    int code = merged_read(&m, q, RENDER_ASK_MERGE, e);
    if (!code)
        code = merged_layout(&m, q, r->out.max_nodes, &l, e);
    if (!code) {
        code = put_json(q, r, &m, &l, e);
        layout_deinit(&l);
    }
    merged_deinit(&m);
    return code;
}
