/* SPDX-License-Identifier: Apache-2.0
 *
 * api_labels.c: lists of text. `label=__name__` means profile types on the new route, and old
 * application names on the old one, as their servers had it.
 */
#include "querier/api/names/api_labels.h"

#include <stdlib.h>

#include "querier/merge/label_lists.h"
#include "querier/select/api_time.h"
#include "querier/select/query_spec.h"

enum { ASK_LISTS };

/* Asks all tenants; the matchers and the range come from the parameters. */
static int ask(struct query *q, bool old, struct wire_labels l, struct err *e)
{
    struct query_spec *spec = ARENA_NEW(q->arena, struct query_spec);
    struct str text = STR_NULL;
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), from, until;

    CHECK(spec);
    if (!http_param(q->http, "query", &text) && old)
        (void)http_param(q->http, "name", &text);
    if (query_spec_labels(text, old, q->arena, spec, e) || api_time(q, "from", 0, &from, e) ||
        api_time(q, "until", from ? now : 0, &until, e))
        return e->code;
    if (from > until)
        return err_set(e, ERR_INPUT, "from is after until");
    struct wire_query wq = { .selectors = spec->selectors, .selectors_len = spec->len };
    if (until) /* else any time */
        wq.range = plan_range(from, MAX(until, from + 1));
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ASK_LISTS, &wq, l, e))
            return e->code;
    }
    return 0;
}

static int put_strings(struct query *q, const struct str *s, size_t n, struct err *e)
{
    struct json j;

    query_json(q, &j);
    json_arr(&j);
    for (size_t i = 0; i < n; i++)
        json_str(&j, s[i]);
    json_arr_end(&j);
    return query_out_end(q, e);
}

static int reply_values(struct query *q, struct err *e)
{
    struct label_lists l;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    int code = put_strings(q, l.values.ptr, l.values.len, e);
    label_lists_deinit(&l);
    return code;
}

/* ---- old application names --------------------------------------------------------------------*/

static const struct str app_labels[] = { { "__profile_type__", 16 }, { "service_name", 12 } };

static int by_text(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* `service.kind` for each pair that the old API can name; sorted, each once. */
static size_t old_names(struct query *q, const struct label_lists *l, struct str *names)
{
    size_t n = 0, kept = 0;

    vec_for (i, &l->sets) {
        struct str service = labels_get(&l->sets.ptr[i], app_labels[1]);
        struct ptype t;
        struct err skip;
        struct buf b;
        if (!service.len || ptype_parse(labels_get(&l->sets.ptr[i], app_labels[0]), &t, &skip) ||
            !app_name_types_suffix(&t))
            continue;
        buf_init(&b, MIB);
        buf_addf(&b, "%.*s.%s", STR_ARG(service), app_name_types_suffix(&t));
        names[n] = arena_strdup(q->data, buf_str(&b));
        n += names[n].ptr != NULL;
        buf_deinit(&b);
    }
    if (n)
        qsort(names, n, sizeof(*names), by_text);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || !str_eq(names[kept - 1], names[i]))
            names[kept++] = names[i];
    return kept;
}

static int reply_old_names(struct query *q, bool objects, struct err *e)
{
    struct label_lists l;
    struct json j;

    if (label_lists_read(q, ASK_LISTS, false, &l, e))
        return e->code;
    CLEANUP(xfreep) struct str *names = XNEW_ARRAY(struct str, l.sets.len + 1);
    size_t n = old_names(q, &l, names);
    label_lists_deinit(&l);
    if (!objects)
        return put_strings(q, names, n, e);
    query_json(q, &j);
    json_arr(&j);
    for (size_t i = 0; i < n; i++) {
        json_obj(&j);
        json_put_str(&j, "name", names[i]);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    return query_out_end(q, e);
}

static int reply_name_list(struct query *q, struct err *e)
{
    return reply_old_names(q, false, e);
}

static int reply_apps(struct query *q, struct err *e)
{
    return reply_old_names(q, true, e);
}

static int ask_apps(struct query *q, query_step_fn then, struct err *e)
{
    struct wire_labels l = { .kind = WIRE_SETS,
                             .names = app_labels,
                             .names_len = ARRAY_LEN(app_labels) };

    q->step = then;
    return ask(q, true, l, e);
}

/* ---- routes -----------------------------------------------------------------------------------*/

static int values(struct query *q, bool old, struct err *e)
{
    struct str label = STR_NULL;

    if (!http_param(q->http, "label", &label) || label.len == 0)
        return err_set(e, ERR_INPUT, "label is missing: which label's values?");
    if (old && str_eqc(label, "__name__"))
        return ask_apps(q, reply_name_list, e);
    struct wire_labels l = { .kind = WIRE_VALUES, .name = label };
    if (str_eqc(label, "__name__"))
        l.kind = WIRE_TYPES;
    q->step = reply_values;
    return ask(q, old, l, e);
}

int api_label_values(struct query *q, struct err *e)
{
    return values(q, false, e);
}

int api_label_values_old(struct query *q, struct err *e)
{
    return values(q, true, e);
}

int api_label_names(struct query *q, struct err *e)
{
    q->step = reply_values;
    return ask(q, true, (struct wire_labels){ .kind = WIRE_NAMES }, e);
}

int api_apps(struct query *q, struct err *e)
{
    return ask_apps(q, reply_apps, e);
}
