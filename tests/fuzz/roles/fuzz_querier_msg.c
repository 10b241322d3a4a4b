/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the querier's RPCs: the first byte chooses the message; behind it JSON where an
 * opening brace comes first, else proto.
 */
#include "querier/messages/v1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct msg_desc *const descs[] = {
    &v1_types_desc,       &v1_label_names_desc,  &v1_label_values_desc, &v1_series_list_desc,
    &v1_stacktraces_desc, &v1_span_profile_desc, &v1_profile_desc,      &v1_series_desc,
    &v1_heatmap_desc,     &v1_diff_desc,         &v1_analyze_desc,      &v1_nothing_desc,
    &v1_setting_set_desc, &v1_setting_name_desc, &v1_rule_desc,         &v1_rule_id_desc,
};

static volatile unsigned sum; /* so that what was read is looked at */

static void touch(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        sum += (unsigned char)s.ptr[i];
}

/* Reads everything a decoded message refers to. */
static void look(const struct msg_desc *d, const void *m)
{
    for (size_t i = 0; i < d->len; i++) {
        const struct msg_field *f = &d->fields[i];
        const char *at = (const char *)m + f->at;
        const struct msg_list *l = (const void *)at;
        if (f->max) {
            CHECK(l->len <= f->max && (l->len == 0) == (l->ptr == NULL));
            for (size_t k = 0; k < l->len; k++) {
                if (f->kind == MSG_STR)
                    touch(msg_strs(l)[k]);
                if (f->kind == MSG_MSG)
                    look(f->desc, (const char *)l->ptr + k * f->desc->size);
            }
        } else if (f->kind == MSG_MSG) {
            const void *sub;
            memcpy(&sub, at, sizeof(sub));
            if (sub)
                look(f->desc, sub);
        } else if (f->kind == MSG_STR) {
            touch(*(const struct str *)(const void *)at);
        } else if (f->kind == MSG_ENUM) {
            int64_t v = *(const int64_t *)(const void *)at;
            CHECK(v >= 0 && v < (int64_t)f->names->len);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct msg_desc *d = descs[size ? data[0] % ARRAY_LEN(descs) : 0];
    struct arena *a = arena_new(256 * KIB);
    struct json_doc *doc = NULL;
    _Alignas(16) char room[512];
    struct str in = size ? str_n(data + 1, size - 1) : STR("");
    struct err e = { 0 };
    int rc;

    CHECK(d->size <= sizeof(room));
    if (in.len && in.ptr[0] == '{')
        rc = json_parse(in, &doc, &e) ? e.code : msg_in_json(d, json_root(doc), a, room, &e);
    else
        rc = msg_in_proto(d, in, a, room, &e);
    CHECK(rc == 0 || rc == ERR_INPUT || rc == ERR_LIMIT);
    CHECK(rc == 0 || e.text[0]);
    if (!rc)
        look(d, room);
    json_doc_free(doc);
    arena_free(a);
    return 0;
}
