/* SPDX-License-Identifier: Apache-2.0
 *
 * render_out.c: reads `format` and `max-nodes`, and writes pprof, text, SVG, HTML, dot and tree.
 *
 * pprof needs whole frames and asks for them by `exported`; all others are made of the merged tree.
 * Folded text and pprof may be many times larger than the tree and are streamed; the rest is
 * bounded by max-nodes and is written at once. SVG and HTML get a policy, since they contain names
 * of unknown senders.
 */
#include "querier/output/render_out.h"

#include "common/base/mem.h"
#include "common/render/folded.h"
#include "querier/merge/exported.h"
#include "querier/render/dot.h"
#include "querier/render/html.h"
#include "querier/render/svg.h"
#include "querier/render/tree_bytes.h"
#include "querier/select/function_view_args.h"

/* What Go's compiler makes use of, and its own tools keep. */
#define PGO_LOCATIONS 5

static const struct {
    const char *name;
    enum render_format format;
} formats[] = {
    { "json", RENDER_JSON },   { "collapsed", RENDER_FOLDED }, { "folded", RENDER_FOLDED },
    { "pprof", RENDER_PPROF }, { "pgo", RENDER_PGO },          { "dot", RENDER_DOT },
    { "tree", RENDER_TREE },   { "svg", RENDER_SVG },          { "html", RENDER_HTML },
};

/* ---- parameters -------------------------------------------------------------------------------*/

static int read_format(struct query *q, bool old, struct render_out *ret, struct err *e)
{
    struct str f = STR_NULL;

    (void)http_param(q->http, "format", &f);
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (str_eqc(f, formats[i].name)) {
            ret->format = formats[i].format;
            return 0;
        }
    if (old && f.len)
        return err_set(e, ERR_INPUT,
                       "unknown format \"%.*s\": use json, pprof, collapsed, html, svg, dot, tree "
                       "or pgo",
                       (int)MIN(f.len, 40), f.ptr);
    return 0;
}

static int read_max_nodes(struct query *q, struct render_out *ret, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    struct str text;
    uint64_t n;

    ret->max_nodes = c->nodes_default;
    if (ret->format == RENDER_FOLDED || ret->format == RENDER_PPROF || ret->format == RENDER_PGO)
        ret->max_nodes = 0;
    if (ret->format == RENDER_DOT)
        ret->max_nodes = DOT_NODES;
    const char *name = view_nodes_given(q, &text);
    if (!name || !str_u64(str_trim(text), &n) || n == 0)
        return 0; /* as all peers: "undefined", "-1" and any other word are the default */
    if (n > c->nodes_max)
        return err_set(e, ERR_INPUT, "%s is %" PRIu64 ", the limit is %" PRIu64, name, n,
                       c->nodes_max);
    ret->max_nodes = n;
    return 0;
}

static int read_pgo(struct query *q, struct render_out *ret, struct err *e)
{
    struct str text;

    ret->how = (struct export_how){ PGO_LOCATIONS, true };
    if (http_param(q->http, "keepLocations", &text) &&
        !str_u64(str_trim(text), &ret->how.keep_locations))
        return err_set(e, ERR_INPUT, "keepLocations is \"%.*s\": want a number, 0 for all",
                       (int)MIN(text.len, 40), text.ptr);
    return http_param(q->http, "aggregateCallees", &text)
               ? view_flag(q, "aggregateCallees", &ret->how.aggregate_callees, e)
               : 0;
}

NODISCARD int render_out_read(struct query *q, bool old, struct render_out *ret, struct err *e)
{
    *ret = (struct render_out){ .old = old };
    if (read_format(q, old, ret, e) || read_max_nodes(q, ret, e))
        return e->code;
    return ret->format == RENDER_PGO ? read_pgo(q, ret, e) : 0;
}

/* ---- answers ----------------------------------------------------------------------------------*/

static int put_pprof(struct query *q, size_t ask, const struct render_out *o,
                     const struct render_about *about, struct err *e)
{
    struct exported x;
    struct export_head h;

    q->content_type = "application/octet-stream";
    q->attachment = o->format == RENDER_PGO ? "default.pgo" : "profile.pb.gz";
    exported_init(&x, q, &o->how);
    int code = exported_read(&x, q, ask, o->max_nodes, e);
    if (!code)
        code = exported_head(about->type, about->from_ms, about->until_ms, &h, e);
    if (!code)
        code = exported_pprof_stream(&x, q, &h, true, e);
    exported_deinit(&x);
    return code;
}

static struct viewer_head head_of(const struct render_about *about)
{
    struct viewer_head h = { .title = about->title };
    struct ptype t;
    struct err e;

    if (ptype_parse(about->type, &t, &e) == 0) {
        h.what = t.sample_type;
        h.unit = t.sample_unit;
    }
    return h;
}

static void begin_page(struct query *q, const struct render_out *o)
{
    q->content_type =
        o->format == RENDER_SVG ? "image/svg+xml; charset=utf-8" : "text/html; charset=utf-8";
    q->policy = HTML_POLICY;
}

static void put_flame(struct query *q, const struct render_out *o, const struct render_about *about,
                      const struct layout *l, const struct calltree *t)
{
    struct viewer_head h = head_of(about);
    struct flame f;

    begin_page(q, o);
    flame_init(&f, l, t);
    if (o->format == RENDER_SVG)
        svg_flame(&f, &h, &q->out);
    else
        html_flame(&f, &h, &q->out);
    flame_deinit(&f);
}

static void put_layout(struct query *q, const struct render_out *o,
                       const struct render_about *about, const struct layout *l,
                       const struct calltree *t)
{
    if (o->format == RENDER_TREE) {
        q->content_type = "application/octet-stream";
        q->attachment = "profile.tree";
        tree_bytes_write(l, t, &q->out);
    } else {
        put_flame(q, o, about, l, t);
    }
}

/* Folded text repeats every path: it may be many times the tree's size. */
struct folded_answer {
    struct merged m;
    struct layout l;
    struct folded *f;
};

static void folded_answer_free(void *cookie)
{
    struct folded_answer *a = cookie;

    folded_free(a->f);
    layout_deinit(&a->l);
    merged_deinit(&a->m);
    xfree(a);
}

static int next_lines(struct query *q, void *cookie, size_t want, struct buf *out, bool *ret_more,
                      struct err *e)
{
    struct folded_answer *a = cookie;

    (void)q;
    (void)e;
    *ret_more = folded_next(a->f, want, out);
    return 0;
}

/* Moves *m. */
static int put_folded(struct query *q, const struct render_out *o, struct merged *m, struct err *e)
{
    struct folded_answer *a = XNEW(struct folded_answer);

    a->m = *m;
    merged_init(m, q);
    if (merged_layout(&a->m, q, o->max_nodes, &a->l, e)) {
        merged_deinit(&a->m);
        xfree(a);
        return e->code;
    }
    q->content_type = o->old ? "application/octet-stream" : "text/plain; charset=utf-8";
    q->attachment = "profile.folded.txt";
    a->f = folded_new(&a->l, &a->m.tree);
    return query_stream(q, next_lines, folded_answer_free, a, e);
}

static int put_dot(struct query *q, const struct render_out *o, const struct render_about *about,
                   const struct merged *m, struct err *e)
{
    struct viewer_head h = head_of(about);
    struct dot_opts opts = { .title = h.title, .unit = h.unit, .nodes = o->max_nodes };
    size_t cost = dot_cost(&m->tree);

    if (query_take(q, cost, e))
        return e->code;
    q->content_type = "text/plain; charset=utf-8";
    buf_init(&q->out, query_left(q));
    dot_write(&m->tree, &opts, &q->out);
    query_give(q, cost);
    return query_out_end(q, e);
}

static int put_tree(struct query *q, const struct render_out *o, const struct render_about *about,
                    struct merged *m, struct err *e)
{
    struct layout l;

    if (o->format == RENDER_DOT)
        return put_dot(q, o, about, m, e);
    if (o->format == RENDER_FOLDED)
        return put_folded(q, o, m, e);
    if (merged_layout(m, q, o->max_nodes, &l, e))
        return e->code;
    buf_init(&q->out, query_left(q));
    put_layout(q, o, about, &l, &m->tree);
    layout_deinit(&l);
    return query_out_end(q, e);
}

NODISCARD int render_out_put(struct query *q, size_t ask, const struct render_out *o,
                             const struct render_about *about, struct err *e)
{
    struct merged m;

    CHECK(o->format != RENDER_JSON);
    if (o->format == RENDER_PPROF || o->format == RENDER_PGO)
        return put_pprof(q, ask, o, about, e);
    merged_init(&m, q);
    int code = merged_read(&m, q, ask, e);
    if (!code)
        code = put_tree(q, o, about, &m, e);
    merged_deinit(&m);
    return code;
}

NODISCARD int render_out_diff(struct query *q, const struct diff *d, const struct render_out *o,
                              const struct render_about *about, struct err *e)
{
    struct viewer_head h = head_of(about);

    CHECK(o->format == RENDER_SVG || o->format == RENDER_HTML);
    begin_page(q, o);
    buf_init(&q->out, query_left(q));
    if (o->format == RENDER_SVG)
        svg_diff(d, &h, &q->out);
    else
        html_diff(d, &h, &q->out);
    return query_out_end(q, e);
}
