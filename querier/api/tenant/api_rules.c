/* SPDX-License-Identifier: Apache-2.0
 *
 * api_rules.c: recording rules of a tenant: kept and checked. Nothing evaluates them, and the
 * feature flag says so.
 *
 * A rule is a document of the tenant: its id is the rule's, its meta the message `RecordingRule` as
 * protobuf. A request that changes a rule names the generation that it has read.
 */
#include "querier/api/tenant/api_settings.h"

#include "common/base/buf.h"
#include "common/model/selector.h"
#include "querier/messages/v1.h"
#include "querier/query/docs.h"
#include "querier/select/connect_msg.h"

#define RULES_MAX    100
#define ID_LEN       12
#define METRIC_START "profiles_recorded_"

/* ---- messages ---------------------------------------------------------------------------------*/

static void put_strs(struct msg_out *o, uint32_t number, const char *name, const struct msg_list *l)
{
    msg_out_list(o, number, name);
    for (size_t i = 0; i < l->len; i++)
        msg_out_str(o, MSG_ITEM, msg_strs(l)[i]);
    msg_out_list_end(o);
}

/* Fields of RecordingRule, in the message that is open. */
static void put_fields(struct msg_out *o, const struct v1_rule *r)
{
    const struct v1_label *labels = r->external_labels.ptr;

    msg_out_str(o, 1, "id", r->id);
    msg_out_str(o, 2, "metricName", r->metric_name);
    msg_out_str(o, 3, "profileType", r->profile_type);
    put_strs(o, 4, "matchers", &r->matchers);
    put_strs(o, 5, "groupBy", &r->group_by);
    msg_out_list(o, 6, "externalLabels");
    for (size_t i = 0; i < r->external_labels.len; i++) {
        msg_out_obj(o, MSG_ITEM);
        msg_out_str(o, 1, "name", labels[i].name);
        msg_out_str(o, 2, "value", labels[i].value);
        msg_out_obj_end(o);
    }
    msg_out_list_end(o);
    msg_out_i64(o, 7, "generation", r->generation);
    if (!r->filter)
        return;
    msg_out_obj(o, 8, "stacktraceFilter");
    if (r->filter->function_name) {
        const struct v1_function_filter *f = r->filter->function_name;
        msg_out_obj(o, 1, "functionName");
        msg_out_str(o, 1, "functionName", f->function_name);
        msg_out_enum(o, 2, "metricType", (uint32_t)f->metric_type,
                     v1_metric_types.names[f->metric_type]);
        msg_out_obj_end(o);
    }
    msg_out_obj_end(o);
}

static int read_rule(struct query *q, const struct docs_item *item, struct v1_rule *ret,
                     struct err *e)
{
    return msg_in_proto(&v1_stored_rule_desc, item->meta, q->data, ret, e)
               ? err_set(e, ERR_CORRUPT, "the rule %.*s cannot be read", STR_ARG(item->id))
               : 0;
}

static int reply_rule(struct query *q, struct err *e)
{
    struct msg_out o;

    query_msg(q, &o);
    msg_out_obj(&o, 1, "rule");
    put_fields(&o, q->state);
    msg_out_obj_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

/* ---- reading ----------------------------------------------------------------------------------*/

static int reply_rules(struct query *q, struct err *e)
{
    struct msg_out o;
    struct v1_rule r;
    struct docs d;

    if (docs_list(q, &d, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "rules");
    for (size_t i = 0; i < d.len; i++) {
        if (read_rule(q, &d.at[i], &r, e))
            return e->code;
        msg_out_obj(&o, MSG_ITEM);
        put_fields(&o, &r);
        msg_out_obj_end(&o);
    }
    msg_out_list_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

int api_rules_list(struct query *q, struct err *e)
{
    struct v1_nothing m;

    if (msg_read(q, &v1_nothing_desc, &m, e))
        return e->code;
    q->step = reply_rules;
    return docs_ask_list(q, DOC_RULE, e);
}

static int find_rule(struct query *q, struct err *e)
{
    struct v1_rule *r = q->state;
    struct docs d;

    if (docs_list(q, &d, e))
        return e->code;
    const struct docs_item *item = docs_find(&d, r->id);
    if (!item)
        return err_set(e, ERR_NOT_FOUND, "there is no rule \"%.*s\"", (int)MIN(r->id.len, 80),
                       r->id.ptr);
    return read_rule(q, item, r, e) ? e->code : reply_rule(q, e);
}

static int begin(struct query *q, const struct msg_desc *d, query_step_fn step,
                 struct v1_rule **ret, struct err *e)
{
    struct v1_rule *r = ARENA_NEW(q->arena, struct v1_rule);

    CHECK(r);
    q->state = *ret = r;
    q->step = step;
    return msg_read(q, d, r, e);
}

static int need_id(const struct v1_rule *r, struct err *e)
{
    return r->id.len ? 0 : err_set(e, ERR_INPUT, "id is missing: which rule?");
}

int api_rules_get(struct query *q, struct err *e)
{
    struct v1_rule *r;

    if (begin(q, &v1_rule_id_desc, find_rule, &r, e) || need_id(r, e))
        return e->code;
    return docs_ask_list(q, DOC_RULE, e);
}

/* ---- writing ----------------------------------------------------------------------------------*/

static bool letters(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!((s.ptr[i] >= 'a' && s.ptr[i] <= 'z') || (s.ptr[i] >= 'A' && s.ptr[i] <= 'Z')))
            return false;
    return s.len > 0;
}

static void make_id(struct query *q, char id[ID_LEN])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct env *env = q->qr->ctx->env;
    uint16_t random[ID_LEN];

    env->random(env, random, sizeof(random));
    for (size_t i = 0; i < ID_LEN; i++)
        id[i] = alphabet[random[i] % (sizeof(alphabet) - 1)];
}

/* Exactly one matcher of all says which profile type. */
static int check_matchers(struct query *q, struct v1_rule *r, struct err *e)
{
    size_t types = 0;

    for (size_t i = 0; i < r->matchers.len; i++) {
        struct selector s;
        if (selector_parse(msg_strs(&r->matchers)[i], SELECTOR_PROMETHEUS, q->arena, &s, e))
            return err_wrap(e, "matchers[%zu]", i);
        for (size_t k = 0; k < s.len; k++)
            if (s.matchers[k].op == MATCH_EQ && str_eqc(s.matchers[k].name, "__profile_type__")) {
                r->profile_type = s.matchers[k].value;
                types++;
            }
        if (selector_compile(&s, e)) {
            selector_deinit(&s);
            return err_wrap(e, "matchers[%zu]", i);
        }
        selector_deinit(&s);
    }
    if (types != 1)
        return err_set(e, ERR_INPUT,
                       "matchers: want exactly one __profile_type__=\"..\", there are %zu", types);
    return 0;
}

static int check_labels(const struct v1_rule *r, struct err *e)
{
    const struct v1_label *external = r->external_labels.ptr;

    for (size_t i = 0; i < r->group_by.len; i++)
        if (!label_name_plain(msg_strs(&r->group_by)[i]))
            return err_set(e, ERR_INPUT, "groupBy[%zu]: want a name of letters, digits and _", i);
    for (size_t i = 0; i < r->external_labels.len; i++)
        if (!label_name_plain(external[i].name))
            return err_set(e, ERR_INPUT,
                           "externalLabels[%zu]: want a name of letters, digits and _", i);
    return 0;
}

static int check_rule(struct query *q, struct v1_rule *r, struct err *e)
{
    if (r->id.len && (!letters(r->id) || r->id.len > DOC_ID_MAX))
        return err_set(e, ERR_INPUT, "id: want letters from a to z and A to Z, at most %d of them",
                       DOC_ID_MAX);
    if (!str_starts(r->metric_name, STR(METRIC_START)) || !label_name_plain(r->metric_name))
        return err_set(
            e, ERR_INPUT,
            "metricName: want a name of letters, digits and _ that starts with " METRIC_START);
    if (r->filter && r->filter->function_name && !r->filter->function_name->function_name.len)
        return err_set(e, ERR_INPUT, "stacktraceFilter: functionName is empty");
    return check_matchers(q, r, e) || check_labels(r, e) ? e->code : 0;
}

static int write_rule(struct query *q, struct err *e)
{
    struct v1_rule *r = q->state, old;
    const struct docs_item *item;
    struct msg_out o;
    struct docs d;
    struct buf b;

    if (docs_list(q, &d, e))
        return e->code;
    item = docs_find(&d, r->id);
    if (!item && d.len >= RULES_MAX)
        return err_set(e, ERR_RATE, "the tenant has %zu recording rules, the limit is %d", d.len,
                       RULES_MAX);
    if (item && read_rule(q, item, &old, e))
        return e->code;
    if (item && old.generation != r->generation)
        return err_set(e, ERR_CONFLICT,
                       "rule %.*s is of generation %" PRId64 ", not %" PRId64 ": read it again",
                       STR_ARG(r->id), old.generation, r->generation);
    r->generation = item ? old.generation + 1 : 1;
    buf_init(&b, DOC_META_MAX);
    msg_out_init(&o, false, &b);
    put_fields(&o, r);
    msg_out_end(&o);
    struct docs_item put = { r->id, buf_str(&b), 0 };
    q->step = reply_rule;
    int code = buf_ok(&b)
                   ? docs_ask_put(q, DOC_RULE, &put, item ? item->revision : 0, RULES_MAX, e)
                   : err_set(e, ERR_INPUT, "the rule has over %zu bytes", (size_t)DOC_META_MAX);
    buf_deinit(&b);
    return code;
}

int api_rules_upsert(struct query *q, struct err *e)
{
    char id[ID_LEN];
    struct v1_rule *r;

    if (begin(q, &v1_rule_desc, write_rule, &r, e) || check_rule(q, r, e))
        return e->code;
    if (!r->id.len) {
        make_id(q, id);
        r->id = arena_strdup(q->arena, str_n(id, ID_LEN));
        CHECK(r->id.ptr);
    }
    return docs_ask_list(q, DOC_RULE, e);
}

static int reply_nothing(struct query *q, struct err *e)
{
    struct msg_out o;

    query_msg(q, &o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

static int drop_rule(struct query *q, struct err *e)
{
    const struct v1_rule *r = q->state;
    struct docs d;

    if (docs_list(q, &d, e))
        return e->code;
    q->step = reply_nothing;
    if (docs_find(&d, r->id))
        return docs_ask_drop(q, DOC_RULE, r->id, e);
    query_calls_reset(q);
    return 0;
}

int api_rules_delete(struct query *q, struct err *e)
{
    struct v1_rule *r;

    if (begin(q, &v1_rule_id_desc, drop_rule, &r, e) || need_id(r, e))
        return e->code;
    return docs_ask_list(q, DOC_RULE, e);
}
