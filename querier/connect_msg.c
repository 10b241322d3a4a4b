/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/connect_msg.h"

#define BODY_MAX    (4 * MIB) /* inflated */
#define RATIO_MAX   200
#define STRINGS_MAX 1024
#define TIME_MAX    INT64_C(253402300799999) /* end of the year 9999 */
#define HOUR_MS     INT64_C(3600000)

static void free_doc(void *doc)
{
    json_doc_free(doc);
}

NODISCARD int msg_begin(struct query *q, const struct json_val **ret, struct err *e)
{
    const struct inflate_limits l = { .bytes_max = BODY_MAX, .ratio_max = RATIO_MAX };
    struct json_doc *doc;

    if (q->route->connect ? svc_message_json(&q->call, &l, &doc, e)
                          : svc_body_json(q->http, &l, &doc, e))
        return e->code;
    q->doc = doc;
    q->doc_free = free_doc;
    *ret = json_root(doc);
    return 0;
}

NODISCARD int msg_times(struct query *q, const struct json_val *m, bool hour, struct msg_times *ret,
                        struct err *e)
{
    int64_t start = 0, end = 0;

    if (json_take_i64(json_get(m, "start", NULL), "start", &start, e) ||
        json_take_i64(json_get(m, "end", NULL), "end", &end, e))
        return e->code;
    if (hour && start == 0 && end == 0) {
        end = clock_wall_ms(q->qr->ctx->env->clock);
        start = end - HOUR_MS;
    }
    if (start == 0 || end == 0)
        return err_set(e, ERR_INPUT, "missing time range in the query");
    if (start < -TIME_MAX || end > TIME_MAX)
        return err_set(e, ERR_INPUT, "times are milliseconds since 1970, up to the year 9999");
    if (start > end)
        return err_set(e, ERR_INPUT, "query start time is after end time");
    *ret = (struct msg_times){ start, end, plan_range(start, end + 1) };
    return 0;
}

NODISCARD int msg_strings(struct query *q, const struct json_val *m, const char *key,
                          const char *alt, const struct str **ret, size_t *ret_len, struct err *e)
{
    const struct json_val *list = json_get(m, key, alt);
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

NODISCARD int msg_matchers(struct query *q, const struct json_val *m, struct spec *ret,
                           struct err *e)
{
    const struct str *texts;
    size_t n;

    *ret = (struct spec){ 0 };
    if (msg_strings(q, m, "matchers", NULL, &texts, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++)
        if (spec_add(ret, texts[i], q->arena, e))
            return err_wrap(e, "matchers[%zu]", i);
    return 0;
}

NODISCARD int msg_selection(struct query *q, const struct json_val *m, struct spec *ret,
                            struct err *e)
{
    struct str type = STR_NULL, selector = STR_NULL;

    *ret = (struct spec){ 0 };
    if (json_take_str(json_get(m, "profileTypeID", "profile_typeID"), "profileTypeID", &type, e) ||
        json_take_str(json_get(m, "labelSelector", "label_selector"), "labelSelector", &selector,
                      e))
        return e->code;
    if (spec_type(type, q->arena, &ret->profile_type, e))
        return err_wrap(e, "profileTypeID");
    if (spec_add(ret, selector, q->arena, e))
        return err_wrap(e, "labelSelector");
    return 0;
}

NODISCARD int msg_enum(const struct json_val *m, const char *key, const char *alt,
                       const char *const *names, size_t n, int64_t *ret, struct err *e)
{
    const struct json_val *v = json_get(m, key, alt);
    struct str text = STR_NULL;
    struct err not_number;
    int64_t number = *ret;

    if (json_take_i64(v, key, &number, &not_number)) {
        if (json_take_str(v, key, &text, e))
            return e->code;
        for (number = 0; number < (int64_t)n && !str_eqc(text, names[number]);)
            number++;
    }
    if (number < 0 || number >= (int64_t)n)
        return err_set(e, ERR_INPUT, "%s: unknown value; want one from %s to %s", key, names[0],
                       names[n - 1]);
    *ret = number;
    return 0;
}

NODISCARD int msg_not_yet(const struct json_val *m, const char *key, const char *alt, struct err *e)
{
    const struct json_val *v = json_get(m, key, alt);

    if (!v || (json_is_arr(v) && json_len(v) == 0))
        return 0;
    return err_set(e, ERR_UNIMPLEMENTED, "%s is not supported by this version", key);
}

void msg_put_labels(const struct labels *l, struct json *j)
{
    json_arr(j);
    for (size_t i = 0; i < l->len; i++) {
        json_obj(j);
        json_key(j, "name");
        json_str(j, l->ptr[i].name);
        if (l->ptr[i].value.len) {
            json_key(j, "value");
            json_str(j, l->ptr[i].value);
        }
        json_obj_end(j);
    }
    json_arr_end(j);
}
