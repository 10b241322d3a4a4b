/* SPDX-License-Identifier: Apache-2.0
 *
 * render_json.c: the answer of /render as JSON: head, flame graph, then metadata, timelines,
 * groups.
 *
 * Timelines and groups are read before the first piece is written, since an error can be answered
 * only until then. Groups are written one after the other, as many as fit into a piece. Old routes
 * have more metadata and an empty list of annotations.
 */
#include "querier/output/render_json.h"

#include "common/base/mem.h"
#include "common/render/metadata.h"
#include "querier/merge/collectors.h"
#include "querier/output/flame_stream.h"

/* ---- questions --------------------------------------------------------------------------------*/

static int ask_timelines(struct query *q, const struct render *r, const struct wire_query *wq,
                         struct err *e)
{
    struct wire_timeline tl = { .grid = r->timeline.grid, .spread = !r->average };

    if (r->side.ids.kinds)
        return exm_ask_timeline(q, RENDER_ASK_TIMELINE, wq, &r->side.ids,
                                &(struct exm_timeline){ .grid = tl.grid }, e);
    if (query_ask_timeline(q, RENDER_ASK_TIMELINE, wq, &tl, e))
        return e->code;
    tl.group_by = &r->group_by;
    tl.group_by_len = 1;
    return r->group_by.len ? query_ask_timeline(q, RENDER_ASK_GROUPS, wq, &tl, e) : 0;
}

NODISCARD int render_ask(struct query *q, const struct render *r, struct err *e)
{
    const struct flame_request *s = &r->side;

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
        json_put_str(j, "appName", r->side.spec.app_text);
        json_put_i64(j, "startTime", r->side.from_ms / 1000);
        json_put_i64(j, "endTime", r->side.until_ms / 1000);
        json_put_str(j, "query", r->side.query);
        json_put_u64(j, "maxNodes", r->out.max_nodes);
    }
    json_obj_end(j);
    if (r->old) {
        json_key(j, "annotations");
        json_arr(j);
        json_arr_end(j);
    }
    if (q->missing.missing)
        json_put_bool(j, "partial", true);
    collectors_json(q, j);
}

struct answer {
    const struct render *r;
    struct timeline timeline, groups;
    bool began_tail;
    size_t group; /* the next one */
};

static void answer_free(void *cookie)
{
    struct answer *a = cookie;

    timeline_deinit(&a->timeline);
    timeline_deinit(&a->groups);
    xfree(a);
}

static void put_head(void *cookie, struct json *j)
{
    (void)cookie;
    json_put_u64(j, "version", 1);
    json_key(j, "flamebearer");
}

static void begin_tail(struct query *q, struct answer *a, struct json *j)
{
    const struct timeline *t = &a->timeline;

    put_metadata(q, a->r, j);
    json_key(j, "timeline");
    timeline_json(t, t->groups.len ? &t->groups.ptr[0] : NULL, &a->r->timeline, a->r->average, j);
    json_key(j, "groups");
    if (a->r->group_by.len)
        json_obj(j);
    else
        json_null(j);
    a->began_tail = true;
}

/* The value of the grouping label names a group; "*" where it is missing. */
static bool put_groups(struct answer *a, size_t want, struct json *j)
{
    size_t from = j->out->len;

    while (a->group < a->groups.groups.len && j->out->len - from < want && buf_ok(j->out)) {
        const struct timeline_group *g = &a->groups.groups.ptr[a->group++];
        struct str value = labels_get(&g->labels, a->r->group_by);
        json_key_str(j, value.len ? value : STR("*"));
        timeline_json(&a->groups, g, &a->r->timeline, a->r->average, j);
    }
    return a->group < a->groups.groups.len;
}

static bool put_tail(struct query *q, void *cookie, size_t want, struct json *j)
{
    struct answer *a = cookie;

    if (!a->began_tail)
        begin_tail(q, a, j);
    if (put_groups(a, want, j))
        return true;
    if (a->r->group_by.len)
        json_obj_end(j);
    json_key(j, "heatmap");
    if (a->r->heatmap)
        a->r->heatmap(q, a->r, j);
    else
        json_null(j);
    if (a->r->more)
        a->r->more(q, a->r, j);
    return false;
}

static int read_timelines(struct query *q, struct answer *a, struct err *e)
{
    const struct render *r = a->r;

    if (merged_timeline(q, RENDER_ASK_TIMELINE, r->timeline.samples, r->average, &a->timeline, e))
        return e->code;
    if (!r->group_by.len)
        return 0;
    return merged_timeline(q, RENDER_ASK_GROUPS, r->timeline.samples, r->average, &a->groups, e);
}

/* Moves *m. */
static int put_json(struct query *q, const struct render *r, struct merged *m, struct err *e)
{
    struct answer *a = XNEW(struct answer);
    struct flame_stream s = {
        .head = put_head, .tail = put_tail, .free = answer_free, .cookie = a
    };

    a->r = r;
    timeline_init(&a->timeline, q->arena);
    timeline_init(&a->groups, q->arena);
    if (read_timelines(q, a, e) || flame_stream_tree(q, m, r->out.max_nodes, &s, e)) {
        answer_free(a);
        return e->code;
    }
    return flame_stream(q, &s, e);
}

NODISCARD int render_reply(struct query *q, const struct render *r, struct err *e)
{
    struct merged m;

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
        code = put_json(q, r, &m, e);
    merged_deinit(&m);
    return code;
}
