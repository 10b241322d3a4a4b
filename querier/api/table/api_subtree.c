/* SPDX-License-Identifier: Apache-2.0
 *
 * api_subtree.c: the children of any node, page by page, so that what a flame graph shows as
 * "other" can be opened.
 *
 * A node is named by its path. The path goes along as the call site, so ingesters send no other
 * stacks; but call sites are names of functions, while a frame without symbols has a made name
 * (module!0xADDR), so only the part of the path before the first name that may be such goes along,
 * and the rest is found here.
 *
 * A flame graph that is cut keeps the nodes with the largest totals, so of the children of a bar
 * those it shows are the first ones by total: `other` begins at offset = how many are shown.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "querier/api/table/api_views.h"
#include "querier/render/focus.h"
#include "querier/render/top.h"
#include "querier/select/function_view_args.h"

#define HOUR_MS 3600000
#define ASK     0

enum sort { SORT_TOTAL, SORT_SELF, SORT_NAME };

struct subtree {
    struct view_side side;
    struct view_page page;
    const struct str *path;
    size_t path_len;
    size_t sort, max_nodes;
    bool tree;
};
struct child {
    struct str name;
    uint32_t node;
    uint64_t self, total;
    uint64_t children;
};
struct children {
    struct child *at; /* owned */
    size_t len, all;  /* before the search */
    uint32_t node;    /* whose children they are; MAP_U64_EMPTY: the node was not found */
    uint64_t total;   /* of the node; 0 if it was not found */
};

static bool is_made_name(struct str name)
{
    return str_contains(name, STR("!0x"));
}

/* The node of the path; MAP_U64_EMPTY: not found. */
static uint32_t find_node(const struct calltree *t, const struct subtree *s)
{
    uint32_t node = 0;

    for (size_t i = 0; i < s->path_len && node != MAP_U64_EMPTY; i++) {
        uint32_t name = calltree_name_find(t, s->path[i]);
        node = name == MAP_U64_EMPTY ? MAP_U64_EMPTY : calltree_child_find(t, node, name);
    }
    return node;
}

static void find_children(struct children *c, const struct calltree *t, uint32_t node,
                          const uint64_t *total, struct str search)
{
    CLEANUP(xfreep) uint32_t *place = XNEW_ARRAY(uint32_t, t->parent.len); /* of a child, + 1 */
    size_t n = 0;

    for (size_t i = 1; i < t->parent.len; i++)
        n += t->parent.ptr[i] == node && total[i];
    *c = (struct children){ .at = XNEW_ARRAY(struct child, n + 1),
                            .all = n,
                            .node = node,
                            .total = node == MAP_U64_EMPTY ? 0 : total[node] };
    for (size_t i = 1; i < t->parent.len; i++) {
        if (!total[i])
            continue;
        if (place[t->parent.ptr[i]])
            c->at[place[t->parent.ptr[i]] - 1].children++;
        struct str name = t->names.ptr[t->name.ptr[i]];
        if (t->parent.ptr[i] != node || (search.len && !top_text_has(name, search)))
            continue;
        c->at[c->len] = (struct child){ name, (uint32_t)i, t->self.ptr[i], total[i], 0 };
        place[i] = (uint32_t)++c->len;
    }
}

static int by_sort(const void *a, const void *b, void *cookie)
{
    const struct child *x = a, *y = b;
    size_t sort = *(const size_t *)cookie;
    uint64_t vx = sort == SORT_SELF ? x->self : x->total;
    uint64_t vy = sort == SORT_SELF ? y->self : y->total;

    if (sort != SORT_NAME && vx != vy)
        return vx > vy ? -1 : 1;
    return str_cmp(x->name, y->name);
}

static void put_child(const struct child *c, struct json *j)
{
    json_obj(j);
    json_put_str(j, "name", c->name);
    json_put_u64(j, "self", c->self);
    json_put_u64(j, "total", c->total);
    json_put_u64(j, "children", c->children);
    json_obj_end(j);
}

static void put_page(const struct subtree *s, const struct children *c, struct json *j)
{
    size_t begin = (size_t)MIN(s->page.offset, c->len);
    size_t end = begin + (size_t)MIN(s->page.limit, c->len - begin);
    uint64_t rest = 0;

    json_put_u64(j, "matching", c->len);
    json_put_u64(j, "offset", s->page.offset);
    json_key(j, "rows");
    json_arr(j);
    for (size_t i = begin; i < end; i++)
        put_child(&c->at[i], j);
    json_arr_end(j);
    for (size_t i = end; i < c->len; i++)
        rest = MIN(u64_add_sat(rest, c->at[i].total), (uint64_t)INT64_MAX);
    json_key(j, "rest"); /* total of the rows behind this page */
    json_u64(j, rest);
}

static int put_json(struct query *q, const struct subtree *s, struct merged *m,
                    const struct children *c, struct err *e)
{
    struct json j;
    bool found = c->node != MAP_U64_EMPTY;

    query_json(q, &j);
    json_obj(&j);
    view_side_json(&s->side, m, &j);
    view_notes_json(q, &j);
    json_key(&j, "path");
    json_arr(&j);
    for (size_t i = 0; i < s->path_len; i++)
        json_str(&j, s->path[i]);
    json_arr_end(&j);
    json_key(&j, "node");
    json_obj(&j);
    json_put_u64(&j, "self", found ? m->tree.self.ptr[c->node] : 0);
    json_put_u64(&j, "total", c->total);
    json_put_u64(&j, "children", c->all);
    json_obj_end(&j);
    put_page(s, c, &j);
    if (s->tree) {
        focus_below(&m->tree, c->node); /* leaves nothing if the node was not found */
        json_key(&j, "flamebearer");
        if (view_flame_json(q, &m->tree, s->max_nodes, &j, e))
            return e->code;
    }
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    struct subtree *s = q->state;
    struct children c = { 0 };
    struct merged m;
    int code = view_read(q, ASK, &s->side, &m, e);

    /* Totals, places, children; and what focus_below marks. */
    if (!code && !(code = query_take(q, m.tree.parent.len * (sizeof(struct child) + 16), e))) {
        CLEANUP(xfreep) uint64_t *total = calltree_totals(&m.tree);
        find_children(&c, &m.tree, find_node(&m.tree, s), total, s->page.search);
        qsort_r(c.at, c.len, sizeof(*c.at), by_sort, &s->sort);
        code = put_json(q, s, &m, &c, e);
    }
    xfree(c.at);
    merged_deinit(&m);
    return code;
}

int api_subtree(struct query *q, struct err *e)
{
    static const char *const sorts[] = {
        [SORT_TOTAL] = "total", [SORT_SELF] = "self", [SORT_NAME] = "name"
    };
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);
    struct subtree *s = ARENA_NEW(q->arena, struct subtree);
    struct view_side *side;

    CHECK(s);
    q->state = s;
    side = &s->side;
    if (view_side_read(q, "", MAX(now - HOUR_MS, 1), now, side, e) ||
        view_strs(q, "path", &s->path, &s->path_len, e) || view_page_read(q, &s->page, e) ||
        view_word(q, "sort", sorts, ARRAY_LEN(sorts), &s->sort, e) ||
        view_flag(q, "tree", &s->tree, e) || view_nodes(q, &s->max_nodes, e))
        return e->code;
    if (side->call_site_len)
        return err_set(e, ERR_INPUT, "callSite: the path of a sub-tree is said by path");
    side->call_site = s->path;
    while (side->call_site_len < s->path_len && !is_made_name(s->path[side->call_site_len]))
        side->call_site_len++;
    q->step = reply;
    return view_ask(q, ASK, side, e);
}
