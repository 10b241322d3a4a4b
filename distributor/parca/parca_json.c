/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_json: messages as tables.
 *
 * A message inside another has its length in front of it, which is known last: five bytes are kept
 * for it, and a varint may be padded. So nothing is written twice, however large a profile is.
 * Depth is that of the tables, whatever the text holds.
 */
#include "distributor/parca/parca_json.h"

#include <stdio.h>
#include <time.h>

#include "common/base/base64.h"
#include "common/base/json.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define LENGTH_BYTES 5

enum kind { TEXT, BYTES, BOOL, INT, ENUM, MESSAGE, TIME };

struct field {
    unsigned number;
    const char *name, *alt; /* lowerCamel; as in the .proto, where that differs */
    enum kind kind;
    bool repeated;
    const struct parca_shape *shape; /* of a MESSAGE */
    const char *const *names;        /* of an ENUM, by number; NULL at the end */
};
struct parca_shape {
    const struct field *fields;
    size_t len;
};
#define SHAPE(f)          \
    {                     \
        (f), ARRAY_LEN(f) \
    }

/* ---- profiles */

static const struct field label_fields[] = {
    { .number = 1, .name = "name" },
    { .number = 2, .name = "value" },
};
static const struct parca_shape label = SHAPE(label_fields);
static const struct field label_set_fields[] = {
    { .number = 1, .name = "labels", .kind = MESSAGE, .repeated = true, .shape = &label },
};
static const struct parca_shape label_set = SHAPE(label_set_fields);
static const struct field sample_fields[] = {
    { .number = 1, .name = "rawProfile", .alt = "raw_profile", .kind = BYTES },
};
static const struct parca_shape sample = SHAPE(sample_fields);
static const struct field series_fields[] = {
    { .number = 1, .name = "labels", .kind = MESSAGE, .shape = &label_set },
    { .number = 2, .name = "samples", .kind = MESSAGE, .repeated = true, .shape = &sample },
};
static const struct parca_shape series = SHAPE(series_fields);
static const struct field write_raw_fields[] = {
    { .number = 2, .name = "series", .kind = MESSAGE, .repeated = true, .shape = &series },
    { .number = 3, .name = "normalized", .kind = BOOL },
};
const struct parca_shape parca_write_raw = SHAPE(write_raw_fields);
static const struct field write_arrow_fields[] = {
    { .number = 1, .name = "ipcBuffer", .alt = "ipc_buffer", .kind = BYTES },
};
const struct parca_shape parca_write_arrow = SHAPE(write_arrow_fields);

/* ---- debug info, Parca */

static const char *const parca_types[] = {
    "DEBUGINFO_TYPE_DEBUGINFO_UNSPECIFIED",
    "DEBUGINFO_TYPE_EXECUTABLE",
    "DEBUGINFO_TYPE_SOURCES",
    NULL,
};
static const char *const strategies[] = {
    "UPLOAD_STRATEGY_UNSPECIFIED",
    "UPLOAD_STRATEGY_GRPC",
    "UPLOAD_STRATEGY_SIGNED_URL",
    NULL,
};
static const struct field should_in_fields[] = {
    { .number = 1, .name = "buildId", .alt = "build_id" },
    { .number = 2, .name = "hash" },
    { .number = 3, .name = "force", .kind = BOOL },
    { .number = 4, .name = "type", .kind = ENUM, .names = parca_types },
};
const struct parca_shape parca_should_in = SHAPE(should_in_fields);
static const struct field should_out_fields[] = {
    { .number = 1, .name = "shouldInitiateUpload", .kind = BOOL },
    { .number = 2, .name = "reason" },
};
const struct parca_shape parca_should_out = SHAPE(should_out_fields);
static const struct field initiate_in_fields[] = {
    { .number = 1, .name = "buildId", .alt = "build_id" },
    { .number = 2, .name = "size", .kind = INT },
    { .number = 3, .name = "hash" },
    { .number = 4, .name = "force", .kind = BOOL },
    { .number = 5, .name = "type", .kind = ENUM, .names = parca_types },
};
const struct parca_shape parca_initiate_in = SHAPE(initiate_in_fields);
static const struct field instructions_fields[] = {
    { .number = 1, .name = "buildId" },
    { .number = 2, .name = "uploadId" },
    { .number = 3, .name = "uploadStrategy", .kind = ENUM, .names = strategies },
    { .number = 4, .name = "signedUrl" },
    { .number = 5, .name = "type", .kind = ENUM, .names = parca_types },
};
static const struct parca_shape instructions = SHAPE(instructions_fields);
static const struct field initiate_out_fields[] = {
    { .number = 1, .name = "uploadInstructions", .kind = MESSAGE, .shape = &instructions },
};
const struct parca_shape parca_initiate_out = SHAPE(initiate_out_fields);
static const struct field finished_in_fields[] = {
    { .number = 1, .name = "buildId", .alt = "build_id" },
    { .number = 2, .name = "uploadId", .alt = "upload_id" },
    { .number = 3, .name = "type", .kind = ENUM, .names = parca_types },
};
const struct parca_shape parca_finished_in = SHAPE(finished_in_fields);

/* ---- debug info, Alloy */

static const char *const alloy_types[] = {
    "TYPE_UNSPECIFIED",
    "TYPE_EXECUTABLE_FULL",
    "TYPE_EXECUTABLE_NO_TEXT",
    NULL,
};
static const char *const alloy_states[] = { "STATE_UPLOADING", "STATE_UPLOADED", NULL };
static const struct field file_fields[] = {
    { .number = 1, .name = "gnuBuildId", .alt = "gnu_build_id" },
    { .number = 2, .name = "goBuildId", .alt = "go_build_id" },
    { .number = 3, .name = "otelFileId", .alt = "otel_file_id" },
    { .number = 4, .name = "name" },
    { .number = 5, .name = "type", .kind = ENUM, .names = alloy_types },
};
static const struct parca_shape file = SHAPE(file_fields);
static const struct field alloy_should_fields[] = {
    { .number = 1, .name = "file", .kind = MESSAGE, .shape = &file },
};
const struct parca_shape alloy_should_in = SHAPE(alloy_should_fields);
static const struct field alloy_id_fields[] = {
    { .number = 1, .name = "gnuBuildId", .alt = "gnu_build_id" },
};
const struct parca_shape alloy_id_in = SHAPE(alloy_id_fields);
static const struct field object_fields[] = {
    { .number = 1, .name = "file", .kind = MESSAGE, .shape = &file },
    { .number = 2, .name = "state", .kind = ENUM, .names = alloy_states },
    { .number = 3, .name = "startedAt", .kind = TIME },
    { .number = 4, .name = "finishedAt", .kind = TIME },
    { .number = 5, .name = "sizeBytes", .kind = INT },
};
static const struct parca_shape object = SHAPE(object_fields);
static const struct field list_fields[] = {
    { .number = 1, .name = "object", .kind = MESSAGE, .repeated = true, .shape = &object },
};
const struct parca_shape alloy_list_out = SHAPE(list_fields);

/* ---- from JSON ------------------------------------------------------------------------------ */

static void put_tag(struct buf *out, const struct field *f, unsigned wire)
{
    wr_varint(out, f->number << 3 | wire);
}

/* Keeps room for a length; put_length fills it. */
static size_t keep_length(struct buf *out)
{
    size_t at = out->len;

    (void)buf_add(out, "\x80\x80\x80\x80", LENGTH_BYTES);
    return at;
}

static void put_length(struct buf *out, size_t at)
{
    if (!buf_ok(out))
        return;
    size_t n = out->len - at - LENGTH_BYTES;
    CHECK(n <= UINT32_MAX);
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        out->ptr[at + i] = (char)((n >> (7 * i) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

static int full(const struct buf *out, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the message has more than the %zu bytes it may have", out->max);
}

static int read_bytes(const struct json_val *v, const struct field *f, struct buf *out,
                      struct err *e)
{
    struct str text = STR("");

    if (json_take_str(v, f->name, &text, e))
        return e->code;
    put_tag(out, f, 2);
    size_t at = keep_length(out);
    if (!base64_decode(text, out))
        return buf_ok(out) ? err_set(e, ERR_INPUT, "%s is no base64", f->name) : full(out, e);
    put_length(out, at);
    return 0;
}

static int read_enum(const struct json_val *v, const struct field *f, int64_t *ret, struct err *e)
{
    struct str name;
    struct err not_text;

    if (json_take_str(v, f->name, &name, &not_text))
        return json_take_i64(v, f->name, ret, e);
    for (int64_t i = 0; f->names[i]; i++) {
        if (str_eqc(name, f->names[i])) {
            *ret = i;
            return 0;
        }
    }
    return err_set(e, ERR_INPUT, "%s is \"%.*s\", want %s to %s or a number", f->name,
                   (int)MIN(name.len, 60), name.ptr, f->names[0], f->names[1]);
}

static int read_number(const struct json_val *v, const struct field *f, struct buf *out,
                       struct err *e)
{
    int64_t n = 0;
    bool b = false;
    int rc;

    if (f->kind == BOOL) {
        rc = json_take_bool(v, f->name, &b, e);
        n = b;
    } else {
        rc = f->kind == ENUM ? read_enum(v, f, &n, e) : json_take_i64(v, f->name, &n, e);
    }
    if (rc)
        return rc;
    put_tag(out, f, 0);
    wr_varint(out, (uint64_t)n);
    return 0;
}

/* One value that is neither absent nor null. */
static int read_value(const struct json_val *v, const struct field *f, struct buf *out,
                      struct err *e)
{
    struct str text = STR("");
    size_t at;

    switch (f->kind) {
    case TEXT:
        if (json_take_str(v, f->name, &text, e))
            return e->code;
        put_tag(out, f, 2);
        wr_varint(out, text.len);
        (void)buf_add_str(out, text);
        return 0;
    case BYTES:
        return read_bytes(v, f, out, e);
    case BOOL:
    case INT:
    case ENUM:
        return read_number(v, f, out, e);
    case MESSAGE:
        put_tag(out, f, 2);
        at = keep_length(out);
        if (parca_json_read(v, f->shape, out, e))
            return err_wrap(e, "%s", f->name);
        put_length(out, at);
        return 0;
    case TIME:
        break; /* in answers only */
    }
    return err_set(e, ERR_INPUT, "%s cannot be given", f->name);
}

static int read_list(const struct json_val *list, const struct field *f, struct buf *out,
                     struct err *e)
{
    if (!json_is_arr(list))
        return err_set(e, ERR_INPUT, "%s is no array", f->name);
    for (size_t i = 0; i < json_len(list); i++)
        if (read_value(json_at(list, i), f, out, e))
            return e->code;
    return 0;
}

int parca_json_read(const struct json_val *v, const struct parca_shape *shape, struct buf *out,
                    struct err *e)
{
    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "no JSON object");
    for (size_t i = 0; i < shape->len; i++) {
        const struct field *f = &shape->fields[i];
        const struct json_val *at = json_get(v, f->name, f->alt);

        if (at && (f->repeated ? read_list(at, f, out, e) : read_value(at, f, out, e)))
            return e->code;
    }
    return buf_ok(out) ? 0 : full(out, e);
}

/* ---- to JSON -------------------------------------------------------------------------------- */

static void write_time(struct json *j, struct str message)
{
    struct rd r = rd_of(message);
    int64_t seconds = 0, nanos = 0;
    struct pb_field f;
    struct tm tm;
    char text[64], whole[64];

    while (rd_pb(&r, &f) > 0)
        *(f.number == 1 ? &seconds : &nanos) = (int64_t)f.u64;
    time_t t = (time_t)seconds;
    CHECK(gmtime_r(&t, &tm));
    CHECK(strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) > 0);
    (void)snprintf(whole, sizeof(whole), "%.40s.%03dZ", text, (int)(nanos / 1000000 % 1000));
    json_cstr(j, whole);
}

static void write_message(struct json *j, struct str message, const struct parca_shape *shape);

static void write_value(struct json *j, const struct field *f, const struct pb_field *v)
{
    size_t known = 0;

    switch (f->kind) {
    case BOOL:
        json_bool(j, v->u64 != 0);
        break;
    case INT:
        json_i64_str(j, (int64_t)v->u64);
        break;
    case ENUM:
        while (f->names[known])
            known++;
        if (v->u64 < known)
            json_cstr(j, f->names[v->u64]);
        else
            json_u64(j, v->u64);
        break;
    case MESSAGE:
        write_message(j, v->bytes, f->shape);
        break;
    case TIME:
        write_time(j, v->bytes);
        break;
    case TEXT:
    case BYTES: /* in requests only */
        json_str(j, v->bytes);
        break;
    }
}

static void write_field(struct json *j, struct str message, const struct field *f)
{
    struct rd r = rd_of(message);
    struct pb_field v;
    bool any = false;

    while (rd_pb(&r, &v) > 0) {
        if (v.number != f->number)
            continue;
        if (!any) {
            json_key(j, f->name);
            if (f->repeated)
                json_arr(j);
        }
        any = true;
        write_value(j, f, &v);
        if (!f->repeated)
            return;
    }
    if (any)
        json_arr_end(j);
}

static void write_message(struct json *j, struct str message, const struct parca_shape *shape)
{
    json_obj(j);
    for (size_t i = 0; i < shape->len; i++)
        write_field(j, message, &shape->fields[i]);
    json_obj_end(j);
}

void parca_json_write(struct str message, const struct parca_shape *shape, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    write_message(&j, message, shape);
}
