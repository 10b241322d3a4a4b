/* SPDX-License-Identifier: Apache-2.0
 *
 * connect_msg.c: reads the message of an RPC by its table, and checks times, matchers and types.
 *
 * The message or the JSON document is kept in the query (q->message, q->doc), since texts of the
 * request point into it and a query may outlive its HTTP request (async). Times are milliseconds,
 * `end` is inside of the range. Errors name the field.
 */
#include "querier/select/connect_msg.h"

#define BODY_MAX    (4 * MIB) /* inflated */
#define RATIO_MAX   200
#define STRINGS_MAX 1024
#define TIME_MAX    INT64_C(253402300799999) /* end of the year 9999 */
#define HOUR_MS     INT64_C(3600000)

static const struct inflate_limits limits = { .bytes_max = BODY_MAX, .ratio_max = RATIO_MAX };

static void free_doc(void *doc)
{
    json_doc_free(doc);
}

static void keep_doc(struct query *q, struct json_doc *doc)
{
    q->doc = doc;
    q->doc_free = free_doc;
}

NODISCARD int msg_read(struct query *q, const struct msg_desc *d, void *ret, struct err *e)
{
    struct json_doc *doc;
    struct str message;

    if (q->call.codec == SVC_JSON) {
        if (svc_message_json(&q->call, &limits, &doc, e))
            return e->code;
        keep_doc(q, doc);
        return msg_in_json(d, json_root(doc), q->arena, ret, e);
    }
    buf_init(&q->message, limits.bytes_max);
    if (svc_message(&q->call, &limits, &q->message, &message, e))
        return e->code;
    if (message.ptr != q->message.ptr) { /* a query may outlive its request (async.h) */
        if (!buf_add_str(&q->message, message))
            return err_set(e, ERR_LIMIT, "the message has over %zu bytes", limits.bytes_max);
        message = buf_str(&q->message);
    }
    return msg_in_proto(d, message, q->arena, ret, e);
}

NODISCARD int msg_times(struct query *q, int64_t start, int64_t end, bool hour,
                        struct msg_times *ret, struct err *e)
{
    if (hour && start == 0 && end == 0) {
        end = clock_wall_ms(q->qr->ctx->env->clock);
        start = end - HOUR_MS;
    }
    if (start == 0 || end == 0)
        return err_set(e, ERR_INPUT, "missing time range in the query");
    if (start < -TIME_MAX || start > TIME_MAX || end < -TIME_MAX || end > TIME_MAX)
        return err_set(e, ERR_INPUT, "times are milliseconds since 1970, up to the year 9999");
    if (start > end)
        return err_set(e, ERR_INPUT, "query start time is after end time");
    *ret = (struct msg_times){ start, end, plan_range(start, end + 1) };
    return 0;
}

NODISCARD int msg_matchers(struct query *q, const struct msg_list *matchers, struct query_spec *ret,
                           struct err *e)
{
    *ret = (struct query_spec){ 0 };
    for (size_t i = 0; i < matchers->len; i++)
        if (query_spec_add(ret, msg_strs(matchers)[i], q->arena, e))
            return err_wrap(e, "matchers[%zu]", i);
    return 0;
}

NODISCARD int msg_selection(struct query *q, struct str profile_type, struct str label_selector,
                            struct query_spec *ret, struct err *e)
{
    *ret = (struct query_spec){ 0 };
    if (query_spec_type(profile_type, q->arena, &ret->profile_type, e))
        return err_wrap(e, "profileTypeID");
    if (query_spec_add(ret, label_selector, q->arena, e))
        return err_wrap(e, "labelSelector");
    return 0;
}

/* ---- plain HTTP with JSON ---------------------------------------------------------------------*/

NODISCARD int msg_begin(struct query *q, const struct json_val **ret, struct err *e)
{
    struct json_doc *doc;

    if (svc_body_json(q->http, &limits, &doc, e))
        return e->code;
    keep_doc(q, doc);
    *ret = json_root(doc);
    return 0;
}

NODISCARD int msg_strings(struct query *q, const struct json_val *m, const char *key,
                          const struct str **ret, size_t *ret_len, struct err *e)
{
    const struct json_val *list = json_get(m, key, NULL);
    size_t n = json_len(list);

    if (list && !json_is_arr(list))
        return err_set(e, ERR_INPUT, "%s: want a list of strings", key);
    if (n > STRINGS_MAX)
        return err_set(e, ERR_LIMIT, "%s: %zu entries, the limit is %d", key, n, STRINGS_MAX);
    struct str *strings = ARENA_ARRAY(q->arena, struct str, n + 1);
    if (!strings)
        return err_set(e, ERR_LIMIT, "%s: too much text in one request", key);
    for (size_t i = 0; i < n; i++)
        if (json_take_str(json_at(list, i), key, &strings[i], e))
            return e->code;
    *ret = strings;
    *ret_len = n;
    return 0;
}
