/* SPDX-License-Identifier: Apache-2.0
 *
 * api_connect.c: the four methods that list things. Each asks one question, unites, writes proto3
 * JSON: empty lists and strings are left out.
 */
#include "querier/api_connect.h"

#include "querier/connect.h"
#include "querier/connect_msg.h"
#include "querier/label_lists.h"

enum { ASK_LISTS };

static int ask(struct query *q, const struct spec *spec, const struct msg_times *t,
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

/* ---- ProfileTypes -----------------------------------------------------------------------------*/

static void put_field(struct json *j, const char *key, struct str value)
{
    if (!value.len)
        return;
    json_key(j, key);
    json_str(j, value);
}

static int reply_profile_types(struct query *q, struct err *e)
{
    struct label_lists l;
    struct json j;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    query_json(q, &j);
    json_obj(&j);
    if (l.values.len) {
        json_key(&j, "profileTypes");
        json_arr(&j);
    }
    vec_for (i, &l.values) {
        struct ptype t;
        struct err skip;
        if (ptype_parse(l.values.ptr[i], &t, &skip))
            continue; /* stored by something newer */
        json_obj(&j);
        put_field(&j, "ID", l.values.ptr[i]);
        put_field(&j, "name", t.name);
        put_field(&j, "sampleType", t.sample_type);
        put_field(&j, "sampleUnit", t.sample_unit);
        put_field(&j, "periodType", t.period_type);
        put_field(&j, "periodUnit", t.period_unit);
        json_obj_end(&j);
    }
    if (l.values.len)
        json_arr_end(&j);
    json_obj_end(&j);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

int api_profile_types(struct query *q, struct err *e)
{
    static const struct spec everything;
    const struct json_val *m;
    struct msg_times t;

    if (msg_begin(q, &m, e) || msg_times(q, m, true, &t, e))
        return e->code;
    q->step = reply_profile_types;
    return ask(q, &everything, &t, (struct wire_labels){ .kind = WIRE_TYPES }, e);
}

/* ---- LabelNames, LabelValues ------------------------------------------------------------------*/

static int reply_names(struct query *q, bool plain_only, struct err *e)
{
    struct label_lists l;
    struct json j;
    bool any = false;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    query_json(q, &j);
    json_obj(&j);
    vec_for (i, &l.values) {
        if (plain_only && !label_name_plain(l.values.ptr[i]))
            continue;
        if (!any) {
            json_key(&j, "names");
            json_arr(&j);
        }
        any = true;
        json_str(&j, l.values.ptr[i]);
    }
    if (any)
        json_arr_end(&j);
    json_obj_end(&j);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

static int reply_label_names(struct query *q, struct err *e)
{
    return reply_names(q, !connect_utf8_names(q->http), e);
}

static int reply_label_values(struct query *q, struct err *e)
{
    return reply_names(q, false, e);
}

int api_connect_label_names(struct query *q, struct err *e)
{
    struct spec *spec = ARENA_NEW(q->arena, struct spec);
    const struct json_val *m;
    struct msg_times t;

    CHECK(spec);
    if (msg_begin(q, &m, e) || msg_times(q, m, false, &t, e) || msg_matchers(q, m, spec, e))
        return e->code;
    q->step = reply_label_names;
    return ask(q, spec, &t, (struct wire_labels){ .kind = WIRE_NAMES }, e);
}

int api_connect_label_values(struct query *q, struct err *e)
{
    struct spec *spec = ARENA_NEW(q->arena, struct spec);
    struct wire_labels l = { .kind = WIRE_VALUES };
    const struct json_val *m;
    struct msg_times t;

    CHECK(spec);
    if (msg_begin(q, &m, e) || json_take_str(json_get(m, "name", NULL), "name", &l.name, e))
        return e->code;
    if (!l.name.len)
        return err_set(e, ERR_INPUT, "name is missing: which label's values?");
    if (msg_times(q, m, false, &t, e) || msg_matchers(q, m, spec, e))
        return e->code;
    q->step = reply_label_values;
    return ask(q, spec, &t, l, e);
}

/* ---- Series -----------------------------------------------------------------------------------*/

static int reply_series(struct query *q, struct err *e)
{
    struct label_lists l;
    struct json j;

    if (label_lists_read(q, ASK_LISTS, !connect_utf8_names(q->http), &l, e))
        return e->code;
    query_json(q, &j);
    json_obj(&j);
    if (l.sets.len) {
        json_key(&j, "labelsSet");
        json_arr(&j);
    }
    vec_for (i, &l.sets) {
        json_obj(&j);
        if (l.sets.ptr[i].len) {
            json_key(&j, "labels");
            msg_put_labels(&l.sets.ptr[i], &j);
        }
        json_obj_end(&j);
    }
    if (l.sets.len)
        json_arr_end(&j);
    json_obj_end(&j);
    label_lists_deinit(&l);
    return query_out_end(q, e);
}

int api_series(struct query *q, struct err *e)
{
    struct spec *spec = ARENA_NEW(q->arena, struct spec);
    struct wire_labels l = { .kind = WIRE_SETS };
    const struct json_val *m;
    struct msg_times t;

    CHECK(spec);
    if (msg_begin(q, &m, e) || msg_times(q, m, false, &t, e) || msg_matchers(q, m, spec, e) ||
        msg_strings(q, m, "labelNames", "label_names", &l.names, &l.names_len, e))
        return e->code;
    q->step = reply_series;
    return ask(q, spec, &t, l, e);
}

int api_not_yet(struct query *q, struct err *e)
{
    return err_set(e, ERR_UNIMPLEMENTED, "%s is not supported by this version", q->route->path);
}

int api_no_such(struct query *q, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no method %.*s", (int)MIN(q->http->path.len, 200),
                   q->http->path.ptr);
}
