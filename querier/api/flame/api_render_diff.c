/* SPDX-License-Identifier: Apache-2.0
 *
 * api_render_diff.c: two flame graphs side by side: GET /pyroscope/render-diff, the old
 * /render-diff (proto/WIRE.md, "Render", "Legacy routes").
 */
#include "common/render/metadata.h"
#include "querier/api/flame/api_render.h"
#include "querier/output/flame_stream.h"
#include "querier/output/render_out.h"
#include "querier/select/flame_request.h"
#include "querier/select/function_view_args.h"

/* Types of side s are question s, its tree is question 2 + s. */
#define ASK_TYPES(side) ((size_t)(side))
#define ASK_TREE(side)  ((size_t)DIFF_SIDES + (size_t)(side))

struct render_diff {
    struct flame_request sides[DIFF_SIDES];
    struct render_out out;
};

static int check_types(const struct render_diff *r, struct err *e)
{
    struct str left = side_type_id(&r->sides[DIFF_LEFT]);
    struct str right = side_type_id(&r->sides[DIFF_RIGHT]);

    /* An old name's type was found in the data: what has none goes with anything. */
    for (int s = 0; s < DIFF_SIDES; s++)
        if (r->sides[s].types_len == 0)
            return 0;
    if (!str_eq(left, right))
        return err_set(e, ERR_INPUT, "profile types must match: %.*s and %.*s", STR_ARG(left),
                       STR_ARG(right));
    return 0;
}

static void put_ticks(const uint64_t ticks[DIFF_SIDES], struct json *j)
{
    static const char *const keys[DIFF_SIDES] = { "leftTicks", "rightTicks" };

    for (int s = 0; s < DIFF_SIDES; s++)
        if (ticks[s])
            json_put_u64(j, keys[s], ticks[s]);
}

struct answer {
    const struct render_diff *r;
    uint64_t ticks[DIFF_SIDES];
};

static void put_head(void *cookie, struct json *j)
{
    (void)cookie;
    json_put_u64(j, "version", 1);
    json_key(j, "flamebearer");
}

static bool put_tail(struct query *q, void *cookie, size_t want, struct json *j)
{
    const struct answer *a = cookie;
    const struct flame_request *sides = a->r->sides;
    struct ptype t = side_type(&sides[sides[DIFF_LEFT].types_len ? DIFF_LEFT : DIFF_RIGHT]);

    (void)want;
    json_key(j, "metadata");
    json_obj(j);
    metadata_json(&t, "double", j);
    json_obj_end(j);
    json_key(j, "timeline");
    json_null(j);
    json_key(j, "groups");
    json_null(j);
    json_key(j, "heatmap");
    json_null(j);
    put_ticks(a->ticks, j);
    view_notes_json(q, j);
    return false;
}

/* Moves m. */
static int put_json(struct query *q, const struct render_diff *r, struct merged m[DIFF_SIDES],
                    struct err *e)
{
    struct answer *a = ARENA_NEW(q->arena, struct answer);
    struct flame_stream s = { .head = put_head, .tail = put_tail, .cookie = a };

    if (!a)
        return err_set(e, ERR_LIMIT, "the request needs over %zu bytes", arena_limit(q->arena));
    if (flame_stream_diff(q, m, r->out.max_nodes, &s, e))
        return e->code;
    a->r = r;
    for (int i = 0; i < DIFF_SIDES; i++)
        a->ticks[i] = s.diff.ticks[i];
    return flame_stream(q, &s, e);
}

static struct str title_of(struct query *q, const struct render_diff *r)
{
    struct buf text;

    buf_init(&text, MIB);
    buf_add_str(&text, r->sides[DIFF_LEFT].query);
    buf_add_str(&text, STR(" / "));
    buf_add_str(&text, r->sides[DIFF_RIGHT].query);
    struct str title = arena_strdup(q->arena, buf_str(&text));
    buf_deinit(&text);
    return title;
}

/* Moves m. */
static int put_diff(struct query *q, const struct render_diff *r, struct merged m[DIFF_SIDES],
                    struct err *e)
{
    const struct calltree *left = &m[DIFF_LEFT].tree, *right = &m[DIFF_RIGHT].tree;
    struct render_about about = { .title = title_of(q, r),
                                  .type = side_type_id(&r->sides[DIFF_LEFT]) };
    struct diff d;

    if (r->out.format != RENDER_SVG && r->out.format != RENDER_HTML)
        return put_json(q, r, m, e);
    if (query_take(q, diff_cost(left, right), e))
        return e->code;
    diff_init(&d, left, right, r->out.max_nodes);
    int code = render_out_diff(q, &d, &r->out, &about, e);
    diff_deinit(&d);
    return code;
}

static int reply(struct query *q, struct err *e)
{
    const struct render_diff *r = q->state;
    struct merged m[DIFF_SIDES];
    int code = 0;

    for (int s = 0; s < DIFF_SIDES; s++)
        merged_init(&m[s], q);
    for (int s = 0; s < DIFF_SIDES && !code; s++)
        code = merged_read(&m[s], q, ASK_TREE(s), e);
    q->bounds_start_ms = q->bounds_end_ms = 0; /* each side has its own */
    if (!code)
        code = put_diff(q, r, m, e);
    for (int s = 0; s < DIFF_SIDES; s++)
        merged_deinit(&m[s]);
    return code;
}

static int ask(struct query *q, struct err *e)
{
    const struct render_diff *r = q->state;

    q->step = reply;
    if (check_types(r, e))
        return e->code;
    for (int s = 0; s < DIFF_SIDES; s++)
        if (side_ask(q, ASK_TREE(s), &r->sides[s], e))
            return e->code;
    return 0;
}

static int chosen(struct query *q, struct err *e)
{
    struct render_diff *r = q->state;

    for (int s = 0; s < DIFF_SIDES; s++)
        if (side_types(q, ASK_TYPES(s), &r->sides[s], e))
            return e->code;
    query_calls_reset(q);
    return ask(q, e);
}

static int read_out(struct query *q, bool old, struct render_out *ret, struct err *e)
{
    if (render_out_read(q, old, ret, e))
        return e->code;
    if (ret->format == RENDER_JSON || ret->format == RENDER_SVG || ret->format == RENDER_HTML)
        return 0;
    return err_set(e, ERR_INPUT, "a comparison comes as json, svg or html");
}

static int begin(struct query *q, bool old, struct err *e)
{
    static const char *const names[DIFF_SIDES] = { "left", "right" };
    struct render_diff *r = ARENA_NEW(q->arena, struct render_diff);
    bool asked = false;

    if (!r)
        return err_set(e, ERR_LIMIT, "the request needs over %zu bytes", arena_limit(q->arena));
    q->state = r;
    if (read_out(q, old, &r->out, e))
        return e->code;
    for (int s = 0; s < DIFF_SIDES; s++)
        if (side_read(q, names[s], old, &r->sides[s], e) ||
            side_begin(q, ASK_TYPES(s), &r->sides[s], &asked, e))
            return e->code;
    if (!asked)
        return ask(q, e);
    q->step = chosen;
    return 0;
}

int api_render_diff(struct query *q, struct err *e)
{
    return begin(q, false, e);
}

int api_render_diff_old(struct query *q, struct err *e)
{
    return begin(q, true, e);
}
