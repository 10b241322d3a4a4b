/* SPDX-License-Identifier: Apache-2.0
 *
 * costs: sums come from the server's function index, computed before anything is cut, and cheap for
 * a year, too.
 */
#include "deploy/ctl/ask/costs.h"

#include "deploy/ctl/ask/ask.h"

#define ROUTE "/api/v1/functions"

/* ---- one answer ---- */

static int read_one(const struct json_val *v, struct cost *ret, struct err *e)
{
    *ret = (struct cost){ .name = STR("") };
    return json_take_str(json_get(v, "name", NULL), "name", &ret->name, e) ||
                   json_take_double(json_get(v, "self", NULL), "self", &ret->self, e) ||
                   json_take_double(json_get(v, "total", NULL), "total", &ret->total, e)
               ? e->code
               : 0;
}

int costs_read(const struct cli *c, struct str json, struct costs *ret, struct err *e)
{
    const struct json_val *root, *all;
    struct cost one;

    *ret = (struct costs){ .doc = NULL };
    if (json_parse(json, &ret->doc, e))
        return ask_strange(c, "no JSON", e);
    root = json_root(ret->doc);
    all = json_get(root, "functions", NULL);
    if (!json_is_arr(all) || json_take_double(json_get(root, "all", NULL), "all", &ret->all, e) ||
        json_take_bool(json_get(root, "gauge", NULL), "gauge", &ret->gauge, e)) {
        costs_deinit(ret);
        return ask_strange(c, "no list of functions", e);
    }
    for (size_t i = 0; i < json_len(all); i++) {
        if (read_one(json_at(all, i), &one, e)) {
            costs_deinit(ret);
            return ask_strange(c, "a function without name or value", e);
        }
        vec_push(&ret->at, one);
    }
    return 0;
}

void costs_deinit(struct costs *f)
{
    vec_free(&f->at);
    json_doc_free(f->doc);
    f->doc = NULL;
}

void costs_put_json(const struct costs *f, struct json *j)
{
    json_key(j, "functions");
    json_arr(j);
    vec_for (i, &f->at) {
        json_obj(j);
        json_put_str(j, "name", f->at.ptr[i].name);
        json_put_double(j, "self", f->at.ptr[i].self);
        json_put_double(j, "total", f->at.ptr[i].total);
        json_obj_end(j);
    }
    json_arr_end(j);
}

int costs_ask(struct cli *c, const struct costs_ask *a, struct costs *ret, struct err *e)
{
    struct buf target, body;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&body, ASK_JSON_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(a->query));
    ask_param_u64(&target, "from", (uint64_t)a->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)a->until_ms * 1000000);
    ask_param_u64(&target, "top", MIN(MAX(a->top, 1), COSTS_MAX));
    ask_param(&target, "sort", a->sort == BY_TOTAL ? STR("total") : STR("self"));
    struct ask ask = { .target = buf_str(&target) };
    rc = buf_ok(&target) ? ask_do(c, &ask, &body, e)
                         : err_set(e, ERR_LIMIT, "the question is too long");
    if (!rc)
        rc = costs_read(c, buf_str(&body), ret, e);
    if (!rc)
        ask_notice(c, json_root(ret->doc));
    buf_deinit(&target);
    buf_deinit(&body);
    return rc;
}
