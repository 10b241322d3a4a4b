/* SPDX-License-Identifier: Apache-2.0
 *
 * api_connect.c: the four methods that list things. Each asks one question, unites, writes.
 */
#include "querier/api/api.h"

#include "querier/merge/label_lists.h"
#include "querier/messages/v1.h"
#include "querier/select/connect_msg.h"

enum { ASK_LISTS };

static int ask(struct query *q, const struct query_spec *spec, const struct msg_times *t,
               struct wire_labels l, struct err *e)
{
    struct wire_query wq = { .selectors = spec->selectors,
                             .selectors_len = spec->len,
                             .range = t->range };

    for (size_t i = 0; i < q->tenants_len && !t->range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ASK_LISTS, &wq, l, e))
            return e->code;
    }
    return 0;
}

/* True if Accept allows label names beyond [A-Za-z_][A-Za-z0-9_]*: a parameter of a media range is
 * allow-utf8-labelnames=true. */
static bool utf8_names(const struct http_req *r)
{
    struct str accept = http_header(r, "Accept"), range, param;
    bool ranges = true;

    while (str_next(&accept, ',', &ranges, &range)) {
        bool params = true;
        while (str_next(&range, ';', &params, &param))
            if (str_eq_nocase(str_trim(param), STR("allow-utf8-labelnames=true")))
                return true;
    }
    return false;
}

/* ---- ProfileTypes -----------------------------------------------------------------------------*/

static void put_type(struct msg_out *o, struct str id)
{
    struct ptype t;
    struct err skip;

    if (ptype_parse(id, &t, &skip))
        return; /* stored by something newer */
    msg_out_obj(o, MSG_ITEM);
    msg_out_str(o, 1, "ID", id);
    msg_out_str(o, 2, "name", t.name);
    msg_out_str(o, 4, "sampleType", t.sample_type);
    msg_out_str(o, 5, "sampleUnit", t.sample_unit);
    msg_out_str(o, 6, "periodType", t.period_type);
    msg_out_str(o, 7, "periodUnit", t.period_unit);
    msg_out_obj_end(o);
}

static int reply_profile_types(struct query *q, struct err *e)
{
    struct label_lists l;
    struct msg_out o;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "profileTypes");
    vec_for (i, &l.values)
        put_type(&o, l.values.ptr[i]);
    msg_out_list_end(&o);
    msg_out_end(&o);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

int api_profile_types(struct query *q, struct err *e)
{
    static const struct query_spec everything;
    struct v1_types m;
    struct msg_times t;

    if (msg_read(q, &v1_types_desc, &m, e) || msg_times(q, m.start, m.end, true, &t, e))
        return e->code;
    q->step = reply_profile_types;
    return ask(q, &everything, &t, (struct wire_labels){ .kind = WIRE_TYPES }, e);
}

/* ---- LabelNames, LabelValues ------------------------------------------------------------------*/

static int reply_names(struct query *q, bool plain_only, struct err *e)
{
    struct label_lists l;
    struct msg_out o;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "names");
    vec_for (i, &l.values)
        if (!plain_only || label_name_plain(l.values.ptr[i]))
            msg_out_str(&o, MSG_ITEM, l.values.ptr[i]);
    msg_out_list_end(&o);
    msg_out_end(&o);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

static int reply_label_names(struct query *q, struct err *e)
{
    return reply_names(q, !utf8_names(q->http), e);
}

static int reply_label_values(struct query *q, struct err *e)
{
    return reply_names(q, false, e);
}

/* The request by its table, and what all of these have. */
static int read_labels(struct query *q, const struct msg_desc *d, struct v1_labels *m,
                       struct msg_times *t, struct query_spec **ret, struct err *e)
{
    *ret = ARENA_NEW(q->arena, struct query_spec);
    CHECK(*ret);
    if (msg_read(q, d, m, e))
        return e->code;
    if (d == &v1_label_values_desc && !m->name.len)
        return err_set(e, ERR_INPUT, "name is missing: which label's values?");
    return msg_times(q, m->start, m->end, false, t, e) || msg_matchers(q, &m->matchers, *ret, e)
               ? e->code
               : 0;
}

int api_connect_label_names(struct query *q, struct err *e)
{
    struct v1_labels m;
    struct msg_times t;
    struct query_spec *spec;

    if (read_labels(q, &v1_label_names_desc, &m, &t, &spec, e))
        return e->code;
    q->step = reply_label_names;
    return ask(q, spec, &t, (struct wire_labels){ .kind = WIRE_NAMES }, e);
}

int api_connect_label_values(struct query *q, struct err *e)
{
    struct v1_labels m;
    struct msg_times t;
    struct query_spec *spec;

    if (read_labels(q, &v1_label_values_desc, &m, &t, &spec, e))
        return e->code;
    q->step = reply_label_values;
    return ask(q, spec, &t, (struct wire_labels){ .kind = WIRE_VALUES, .name = m.name }, e);
}

/* ---- Series -----------------------------------------------------------------------------------*/

static int reply_series(struct query *q, struct err *e)
{
    struct label_lists l;
    struct msg_out o;

    if (label_lists_read(q, ASK_LISTS, !utf8_names(q->http), &l, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 2, "labelsSet");
    vec_for (i, &l.sets) {
        msg_out_obj(&o, MSG_ITEM);
        msg_out_labels(&o, 1, "labels", &l.sets.ptr[i]);
        msg_out_obj_end(&o);
    }
    msg_out_list_end(&o);
    msg_out_end(&o);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

int api_series(struct query *q, struct err *e)
{
    struct wire_labels l = { .kind = WIRE_SETS };
    struct v1_labels m;
    struct msg_times t;
    struct query_spec *spec;

    if (read_labels(q, &v1_series_list_desc, &m, &t, &spec, e))
        return e->code;
    l.names = msg_strs(&m.label_names);
    l.names_len = m.label_names.len;
    q->step = reply_series;
    return ask(q, spec, &t, l, e);
}
