/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/select/stack_selection.h"

#include "querier/merge/collectors.h"

static int read_call_site(struct query *q, const struct v1_stack_selector *s,
                          struct stack_selection *p, struct err *e)
{
    const struct v1_location *sites = s->call_site.ptr;
    struct str *names = ARENA_ARRAY(q->arena, struct str, s->call_site.len + 1);

    if (!names)
        return err_set(e, ERR_LIMIT, "stackTraceSelector: too much text in one request");
    for (size_t i = 0; i < s->call_site.len; i++)
        names[i] = sites[i].name;
    p->call_site = names;
    p->call_site_len = s->call_site.len;
    p->go_pgo = s->go_pgo;
    if (p->go_pgo && (p->go_pgo->keep_locations < 0 || p->go_pgo->keep_locations > UINT32_MAX))
        return err_set(e, ERR_INPUT,
                       "goPgo.keepLocations is %" PRId64 ", it is an unsigned number "
                       "of 32 bits",
                       p->go_pgo->keep_locations);
    return 0;
}

/* A file for other tools is cut only where the request says so; a picture has a default size, also
 * if a client says -1, as peers have it. */
static int read_nodes(const struct query *q, int64_t n, bool is_file, size_t *ret, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;

    if (n > (int64_t)c->nodes_max)
        return err_set(e, ERR_INPUT, "maxNodes is %" PRId64 ", the limit is %" PRIu64, n,
                       c->nodes_max);
    *ret = n > 0 ? (size_t)n : is_file ? 0 : c->nodes_default;
    return 0;
}

NODISCARD int stack_selection_read(struct query *q, const struct v1_merge *m,
                                   enum stack_selection_kind kind, struct stack_selection **ret,
                                   struct err *e)
{
    struct stack_selection *p = ARENA_NEW(q->arena, struct stack_selection);

    if (!p)
        return err_set(e, ERR_LIMIT, "too much text in one request");
    p->format = (enum v1_format)m->format;
    p->asked_nodes = m->max_nodes > 0 ? (size_t)m->max_nodes : 0;
    if (msg_selection(q, m->profile_type, m->label_selector, &p->spec, e) ||
        msg_times(q, m->start, m->end, false, &p->times, e) ||
        read_nodes(q, m->max_nodes, kind == STACK_SELECTION_PROFILE || p->format == V1_PPROF,
                   &p->max_nodes, e) ||
        (m->stack_trace_selector && read_call_site(q, m->stack_trace_selector, p, e)) ||
        exm_of_spec(&p->spec, q->arena, &p->ids, e) ||
        exm_of_msg(q, m, kind == STACK_SELECTION_SPANS, &p->ids, e))
        return e->code;
    *ret = p;
    return 0;
}

NODISCARD int stack_selection_ask(struct query *q, size_t ask, const struct stack_selection *p,
                                  struct err *e)
{
    struct wire_query wq = { .profile_type = p->spec.profile_type,
                             .selectors = p->spec.selectors,
                             .selectors_len = p->spec.len,
                             .range = p->times.range };
    const struct exm_site site = { p->call_site, p->call_site_len };
    int code = 0;

    for (size_t i = 0; i < q->tenants_len && !wq.range.empty && !code; i++) {
        wq.tenant = q->tenants[i];
        code = p->ids.kinds ? exm_ask_merge(q, ask, &wq, &p->ids, site, e)
                            : query_ask_merge(q, ask, &wq, p->call_site, p->call_site_len, e);
        if (!code && !p->ids.kinds)
            code = collectors_ask(q, ask, i, &wq, e);
    }
    return code;
}
