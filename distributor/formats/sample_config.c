/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/formats/sample_config.h"

#include "common/net/json_in.h"

static int parse_row(struct str key, const struct json_val *v, struct arena *a,
                     struct sample_config_row *ret, struct err *e)
{
    struct str text = STR_NULL, display = STR_NULL;
    bool cumulative = false, sampled = false;

    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "%.*s is not an object", STR_ARG(key));
    if (json_take_str(json_get(v, "units", NULL), "units", &text, e) ||
        json_take_str(json_get(v, "aggregation", NULL), "aggregation", &text, e) ||
        json_take_str(json_get(v, "display-name", NULL), "display-name", &display, e) ||
        json_take_bool(json_get(v, "cumulative", NULL), "cumulative", &cumulative, e) ||
        json_take_bool(json_get(v, "sampled", NULL), "sampled", &sampled, e))
        return err_wrap(e, "%.*s", STR_ARG(key));
    /* The document goes away before the profile is decoded. */
    *ret = (struct sample_config_row){ .type = arena_strdup(a, key), .cumulative = cumulative };
    if (display.len)
        ret->display_name = arena_strdup(a, display);
    if (!ret->type.ptr || (display.len && !ret->display_name.ptr))
        return err_set(e, ERR_LIMIT, "the names do not fit the memory of this request");
    return 0;
}

static int parse_rows(const struct json_val *root, struct arena *a, struct sample_config *ret,
                      struct err *e)
{
    struct sample_config_row *rows;
    const struct json_val *v;
    struct str key;
    void *pos = NULL;
    size_t n = 0;

    if (!json_is_obj(root))
        return err_set(e, ERR_INPUT, "not a JSON object");
    rows = ARENA_ARRAY(a, struct sample_config_row, SAMPLE_CONFIG_ROWS_MAX);
    if (!rows)
        return err_set(e, ERR_LIMIT, "the rows do not fit the memory of this request");
    while (json_each(root, &pos, &key, &v)) {
        if (n == SAMPLE_CONFIG_ROWS_MAX)
            return err_set(e, ERR_LIMIT, "more than %d sample types", SAMPLE_CONFIG_ROWS_MAX);
        if (parse_row(key, v, a, &rows[n++], e))
            return e->code;
    }
    *ret = (struct sample_config){ .rows = rows, .len = n };
    return 0;
}

int sample_config_parse(struct str json, struct arena *a, struct sample_config *ret, struct err *e)
{
    struct json_doc *doc;

    *ret = (struct sample_config){ 0 };
    if (str_trim(json).len == 0)
        return 0;
    if (json_parse(json, &doc, e))
        return err_wrap(e, "sample_type_config");
    int rc = parse_rows(json_root(doc), a, ret, e);
    json_doc_free(doc);
    return rc ? err_wrap(e, "sample_type_config") : 0;
}

static bool same_name(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if ((a.ptr[i] == '-' ? '_' : a.ptr[i]) != (b.ptr[i] == '-' ? '_' : b.ptr[i]))
            return false;
    return true;
}

const struct sample_config_row *sample_config_find(const struct sample_config *c, struct str type)
{
    for (size_t i = 0; i < c->len; i++)
        if (same_name(c->rows[i].type, type))
            return &c->rows[i];
    return NULL;
}
