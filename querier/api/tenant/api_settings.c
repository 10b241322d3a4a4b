/* SPDX-License-Identifier: Apache-2.0
 *
 * api_settings.c: what user interfaces keep for a tenant, and what they ask about this server.
 *
 * A setting is a document of the tenant: its id is the name, its meta the message `Setting` as
 * protobuf. Writing reads first: a stored setting that was modified later than the new one is kept
 * (already_exists). So is a setting that another request writes between reading and writing, which
 * the document's revision shows.
 */
#include "querier/api/tenant/api_settings.h"

#include "common/base/buf.h"
#include "querier/messages/v1.h"
#include "querier/query/docs.h"
#include "querier/select/connect_msg.h"

#define SETTINGS_MAX 100
#define VALUE_MAX    (15 * KIB)

static_assert(VALUE_MAX + DOC_ID_MAX + 32 <= DOC_META_MAX, "a setting fits its document");

/* ---- settings ---------------------------------------------------------------------------------*/

/* Its fields, in the message that is open. */
static void put_fields(struct msg_out *o, const struct v1_setting *s)
{
    msg_out_str(o, 1, "name", s->name);
    msg_out_str(o, 2, "value", s->value);
    msg_out_i64(o, 3, "modifiedAt", s->modified_at);
}

static int read_setting(struct query *q, const struct docs_item *item, struct v1_setting *ret,
                        struct err *e)
{
    return msg_in_proto(&v1_setting_desc, item->meta, q->data, ret, e)
               ? err_set(e, ERR_CORRUPT, "the setting %.*s cannot be read", STR_ARG(item->id))
               : 0;
}

static int reply_settings(struct query *q, struct err *e)
{
    struct v1_setting s;
    struct msg_out o;
    struct docs d;

    if (docs_list(q, &d, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "settings");
    for (size_t i = 0; i < d.len; i++) {
        if (read_setting(q, &d.at[i], &s, e))
            return e->code;
        msg_out_obj(&o, MSG_ITEM);
        put_fields(&o, &s);
        msg_out_obj_end(&o);
    }
    msg_out_list_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

int api_settings_get(struct query *q, struct err *e)
{
    struct v1_nothing m;

    if (msg_read(q, &v1_nothing_desc, &m, e))
        return e->code;
    q->step = reply_settings;
    return docs_ask_list(q, DOC_SETTING, e);
}

static int reply_set(struct query *q, struct err *e)
{
    struct msg_out o;

    query_msg(q, &o);
    msg_out_obj(&o, 1, "setting");
    put_fields(&o, q->state);
    msg_out_obj_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

static int reply_nothing(struct query *q, struct err *e)
{
    struct msg_out o;

    query_msg(q, &o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

/* The setting that is stored under the name of q->state, unless it is newer than q->state. */
static int stored(struct query *q, const struct docs_item **ret, size_t *ret_len, struct err *e)
{
    const struct v1_setting *s = q->state;
    struct v1_setting old;
    struct docs d;

    if (docs_list(q, &d, e))
        return e->code;
    *ret = docs_find(&d, s->name);
    *ret_len = d.len;
    if (!*ret)
        return 0;
    if (read_setting(q, *ret, &old, e))
        return e->code;
    if (old.modified_at > s->modified_at)
        return err_set(e, ERR_CONFLICT,
                       "setting %.*s was modified at %" PRId64 ", after %" PRId64 ": read it again",
                       STR_ARG(s->name), old.modified_at, s->modified_at);
    return 0;
}

static int write_setting(struct query *q, struct err *e)
{
    const struct v1_setting *s = q->state;
    const struct docs_item *old;
    struct msg_out o;
    struct buf b;
    size_t n;

    if (stored(q, &old, &n, e))
        return e->code;
    if (!old && n >= SETTINGS_MAX)
        return err_set(e, ERR_RATE, "the tenant has %zu settings, the limit is %d", n,
                       SETTINGS_MAX);
    buf_init(&b, DOC_META_MAX);
    msg_out_init(&o, false, &b);
    put_fields(&o, s);
    msg_out_end(&o);
    CHECK(buf_ok(&b));
    struct docs_item item = { s->name, buf_str(&b), 0 };
    q->step = reply_set;
    int code = docs_ask_put(q, DOC_SETTING, &item, old ? old->revision : 0, SETTINGS_MAX, e);
    buf_deinit(&b);
    return code;
}

static int drop_setting(struct query *q, struct err *e)
{
    const struct v1_setting *s = q->state;
    const struct docs_item *old;
    size_t n;

    if (stored(q, &old, &n, e))
        return e->code;
    q->step = reply_nothing;
    if (old)
        return docs_ask_drop(q, DOC_SETTING, s->name, e);
    query_calls_reset(q);
    return 0;
}

static int change(struct query *q, const struct v1_setting *asked, query_step_fn step,
                  struct err *e)
{
    struct v1_setting *s = ARENA_NEW(q->arena, struct v1_setting);

    CHECK(s);
    *s = *asked;
    if (!s->name.len || s->name.len > DOC_ID_MAX || memchr(s->name.ptr, 0, s->name.len))
        return err_set(e, ERR_INPUT,
                       "name: a setting's name has 1 to %d bytes, none of them is 0; this has %zu",
                       DOC_ID_MAX, s->name.len);
    if (s->value.len > VALUE_MAX)
        return err_set(e, ERR_INPUT, "value: %zu bytes, the limit is %zu", s->value.len,
                       (size_t)VALUE_MAX);
    if (s->modified_at <= 0)
        s->modified_at = clock_wall_ms(q->qr->ctx->env->clock);
    q->state = s;
    q->step = step;
    return docs_ask_list(q, DOC_SETTING, e);
}

int api_settings_set(struct query *q, struct err *e)
{
    struct v1_setting_set m;

    if (msg_read(q, &v1_setting_set_desc, &m, e))
        return e->code;
    if (!m.setting)
        return err_set(e, ERR_INPUT, "setting is missing");
    return change(q, m.setting, write_setting, e);
}

int api_settings_delete(struct query *q, struct err *e)
{
    struct v1_setting m;

    if (msg_read(q, &v1_setting_name_desc, &m, e))
        return e->code;
    return change(q, &m, drop_setting, e);
}

/* ---- what this server can do ------------------------------------------------------------------*/

int api_feature_flags(struct query *q, struct err *e)
{
    static const struct {
        const char *name;
        bool enabled;
        const char *text;
    } flags[] = {
        { "v2StorageLayer", true, "Heat maps, exemplars and all formats of answers." },
        { "pyroscopeRuler", false, "Recording rules are kept, and not evaluated." },
        { "pyroscopeRulerFunctions", false, "Recording rules of single functions." },
        { "utf8LabelNames", true, "Label names of any letters." },
    };
    struct v1_nothing m;
    struct msg_out o;

    if (msg_read(q, &v1_nothing_desc, &m, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "featureFlags");
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        msg_out_obj(&o, MSG_ITEM);
        msg_out_str(&o, 1, "name", str_c(flags[i].name));
        msg_out_bool(&o, 2, "enabled", flags[i].enabled);
        msg_out_str(&o, 3, "description", str_c(flags[i].text));
        msg_out_obj_end(&o);
    }
    msg_out_list_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

int api_version(struct query *q, struct err *e)
{
    struct v1_nothing m;
    struct msg_out o;

    if (msg_read(q, &v1_nothing_desc, &m, e))
        return e->code;
    query_msg(q, &o);
    msg_out_u64(&o, 1, "QuerierAPI", 1);
    msg_out_end(&o);
    return query_out_end(q, e);
}
