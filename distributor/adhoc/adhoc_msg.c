/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_msg.c: one table of fields for each request, read from protobuf or JSON, and one struct of
 * an answer, written as either.
 *
 * The two encodings share the structs, so that handlers do not know which one the client speaks.
 * Unknown fields are skipped. Texts of requests point into the message, which outlives them. Pure:
 * any thread.
 */
#include "distributor/adhoc/adhoc_msg.h"

#include <stddef.h>

#include "common/base/json.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/net/json_in.h"

#define FIELDS 5 /* numbers below it */

/* ---- requests -------------------------------------------------------------------------------- */

struct field {
    const char *json, *proto; /* both names are fine in JSON */
    bool number;
    size_t at;
};
#define TEXT(j, p, f)                              \
    {                                              \
        j, p, false, offsetof(struct adhoc_ask, f) \
    }
#define NUMBER(j, p, f)                           \
    {                                             \
        j, p, true, offsetof(struct adhoc_ask, f) \
    }

/* By number of the field. */
static const struct field fields[][FIELDS] = {
    [ADHOC_UPLOAD] = { [1] = TEXT("name", NULL, name),
                       [2] = TEXT("profile", NULL, profile),
                       [3] = NUMBER("maxNodes", "max_nodes", nodes) },
    [ADHOC_GET] = { [1] = TEXT("id", NULL, id),
                    [2] = TEXT("profileType", "profile_type", type),
                    [3] = NUMBER("maxNodes", "max_nodes", nodes) },
    [ADHOC_LIST] = { { 0 } },
    [ADHOC_DIFF] = { [1] = TEXT("leftId", "left_id", id),
                     [2] = TEXT("rightId", "right_id", other_id),
                     [3] = TEXT("profileType", "profile_type", type),
                     [4] = NUMBER("maxNodes", "max_nodes", nodes) },
    [ADHOC_DELETE] = { { 0 } },
};

static struct str *text_at(struct adhoc_ask *q, const struct field *f)
{
    return (struct str *)(void *)((char *)q + f->at);
}

static int64_t *number_at(struct adhoc_ask *q, const struct field *f)
{
    return (int64_t *)(void *)((char *)q + f->at);
}

int adhoc_ask_proto(enum adhoc_op op, struct str message, struct adhoc_ask *ret, struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field in;
    int got;

    *ret = (struct adhoc_ask){ 0 };
    while ((got = rd_pb(&r, &in)) > 0) {
        const struct field *f = in.number < FIELDS ? &fields[op][in.number] : NULL;
        if (!f || !f->json || in.wire != (f->number ? 0 : 2))
            continue;
        if (f->number)
            *number_at(ret, f) = (int64_t)in.u64;
        else
            *text_at(ret, f) = in.bytes;
    }
    return got == 0 ? 0 : err_set(e, ERR_INPUT, "the message is no protobuf");
}

int adhoc_ask_json(enum adhoc_op op, const struct json_val *root, struct adhoc_ask *ret,
                   struct err *e)
{
    *ret = (struct adhoc_ask){ 0 };
    if (!json_is_obj(root))
        return err_set(e, ERR_INPUT, "the message is no JSON object");
    for (size_t i = 1; i < FIELDS; i++) {
        const struct field *f = &fields[op][i];
        const struct json_val *v = f->json ? json_get(root, f->json, f->proto) : NULL;
        if (v && (f->number ? json_take_i64(v, f->json, number_at(ret, f), e)
                            : json_take_str(v, f->json, text_at(ret, f), e)))
            return e->code;
    }
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void put_text(struct buf *b, unsigned field, struct str s)
{
    if (s.len == 0)
        return;
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static void put_number(struct buf *b, unsigned field, int64_t v)
{
    if (v == 0)
        return;
    wr_varint(b, field << 3);
    wr_varint(b, (uint64_t)v);
}

/* Of repeated fields, empty ones count, too. */
static void put_element(struct buf *b, unsigned field, struct str s)
{
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static void put_row(struct buf *b, const struct adhoc_row *r)
{
    put_text(b, 1, r->id);
    put_text(b, 2, r->name);
    put_number(b, 3, r->uploaded_ms);
}

static void json_row(struct json *j, const struct adhoc_row *r)
{
    json_put_str(j, "id", r->id);
    json_put_str(j, "name", r->name);
    json_put_i64_str(j, "uploadedAt", r->uploaded_ms);
}

static void answer_proto(enum adhoc_op op, const struct adhoc_answer *a, struct buf *out)
{
    const bool diff = op == ADHOC_DIFF;

    if (!diff) {
        put_row(out, &a->row);
        put_text(out, 4, a->type);
    }
    for (size_t i = 0; i < a->types_len; i++)
        put_element(out, diff ? 1 : 5, a->types[i]);
    put_text(out, diff ? 2 : 6, a->flame);
}

static void answer_json(enum adhoc_op op, const struct adhoc_answer *a, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    if (op != ADHOC_DIFF) {
        json_row(&j, &a->row);
        json_put_str(&j, "profileType", a->type);
    }
    json_key(&j, "profileTypes");
    json_arr(&j);
    for (size_t i = 0; i < a->types_len; i++)
        json_str(&j, a->types[i]);
    json_arr_end(&j);
    json_put_str(&j, "flamebearerProfile", a->flame);
    json_obj_end(&j);
}

void adhoc_answer_write(enum adhoc_op op, bool json, const struct adhoc_answer *a, struct buf *out)
{
    if (json)
        answer_json(op, a, out);
    else
        answer_proto(op, a, out);
}

void adhoc_rows_write(bool json, const struct adhoc_row *rows, size_t n, struct buf *out)
{
    struct json j;
    struct buf one;

    if (json) {
        json_init(&j, out);
        json_obj(&j);
        json_key(&j, "profiles");
        json_arr(&j);
        for (size_t i = 0; i < n; i++) {
            json_obj(&j);
            json_row(&j, &rows[i]);
            json_obj_end(&j);
        }
        json_arr_end(&j);
        json_obj_end(&j);
        return;
    }
    buf_init(&one, MIB);
    for (size_t i = 0; i < n; i++) {
        buf_reset(&one);
        put_row(&one, &rows[i]);
        put_element(out, 1, buf_str(&one));
    }
    buf_deinit(&one);
}
