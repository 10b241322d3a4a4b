/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_json: in protobuf the entries of lists may stand anywhere between others, in JSON they stand
 * together. So a message is walked once for each list in its table that occurs, by its tags only:
 * no index is built, and nothing grows but the text.
 */
#include "querier/async/msg_json.h"

#include "common/base/base64.h"
#include "common/base/rd.h"
#include "querier/async/async.h"

enum kind { END, I64, U64, BOOL, STATUS, TEXT, BYTES, MESSAGE };

struct field {
    uint32_t number;
    const char *name;
    enum kind kind;
    bool list;
    const struct msg_json_table *table;
};
struct msg_json_table {
    const struct field *fields; /* up to one of kind END */
};

/* ---- tables -----------------------------------------------------------------------------------*/

static const struct field value_type[] = { { 1, "type", I64, false, NULL },
                                           { 2, "unit", I64, false, NULL },
                                           { 0 } };
static const struct field label[] = { { 1, "key", I64, false, NULL },
                                      { 2, "str", I64, false, NULL },
                                      { 3, "num", I64, false, NULL },
                                      { 4, "numUnit", I64, false, NULL },
                                      { 0 } };
static const struct msg_json_table value_type_table = { value_type };
static const struct msg_json_table label_table = { label };
static const struct field sample[] = { { 1, "locationId", U64, true, NULL },
                                       { 2, "value", I64, true, NULL },
                                       { 3, "label", MESSAGE, true, &label_table },
                                       { 0 } };
static const struct field mapping[] = { { 1, "id", U64, false, NULL },
                                        { 2, "memoryStart", U64, false, NULL },
                                        { 3, "memoryLimit", U64, false, NULL },
                                        { 4, "fileOffset", U64, false, NULL },
                                        { 5, "filename", I64, false, NULL },
                                        { 6, "buildId", I64, false, NULL },
                                        { 7, "hasFunctions", BOOL, false, NULL },
                                        { 8, "hasFilenames", BOOL, false, NULL },
                                        { 9, "hasLineNumbers", BOOL, false, NULL },
                                        { 10, "hasInlineFrames", BOOL, false, NULL },
                                        { 0 } };
static const struct field line[] = { { 1, "functionId", U64, false, NULL },
                                     { 2, "line", I64, false, NULL },
                                     { 0 } };
static const struct msg_json_table line_table = { line };
static const struct field location[] = {
    { 1, "id", U64, false, NULL },        { 2, "mappingId", U64, false, NULL },
    { 3, "address", U64, false, NULL },   { 4, "line", MESSAGE, true, &line_table },
    { 5, "isFolded", BOOL, false, NULL }, { 0 }
};
static const struct field function[] = {
    { 1, "id", U64, false, NULL },         { 2, "name", I64, false, NULL },
    { 3, "systemName", I64, false, NULL }, { 4, "filename", I64, false, NULL },
    { 5, "startLine", I64, false, NULL },  { 0 }
};
static const struct msg_json_table sample_table = { sample };
static const struct msg_json_table mapping_table = { mapping };
static const struct msg_json_table location_table = { location };
static const struct msg_json_table function_table = { function };
static const struct field profile[] = { { 1, "sampleType", MESSAGE, true, &value_type_table },
                                        { 2, "sample", MESSAGE, true, &sample_table },
                                        { 3, "mapping", MESSAGE, true, &mapping_table },
                                        { 4, "location", MESSAGE, true, &location_table },
                                        { 5, "function", MESSAGE, true, &function_table },
                                        { 6, "stringTable", TEXT, true, NULL },
                                        { 7, "dropFrames", I64, false, NULL },
                                        { 8, "keepFrames", I64, false, NULL },
                                        { 9, "timeNanos", I64, false, NULL },
                                        { 10, "durationNanos", I64, false, NULL },
                                        { 11, "periodType", MESSAGE, false, &value_type_table },
                                        { 12, "period", I64, false, NULL },
                                        { 13, "comment", I64, true, NULL },
                                        { 14, "defaultSampleType", I64, false, NULL },
                                        { 0 } };
const struct msg_json_table msg_json_profile = { profile };

static const struct field level[] = { { 1, "values", I64, true, NULL }, { 0 } };
static const struct msg_json_table level_table = { level };
static const struct field flame[] = { { 1, "names", TEXT, true, NULL },
                                      { 2, "levels", MESSAGE, true, &level_table },
                                      { 3, "total", I64, false, NULL },
                                      { 4, "maxSelf", I64, false, NULL },
                                      { 0 } };
static const struct msg_json_table flame_table = { flame };
static const struct field pprof[] = { { 1, "profile", MESSAGE, false, &msg_json_profile }, { 0 } };
static const struct msg_json_table pprof_table = { pprof };
static const struct field async[] = { { 1, "requestId", TEXT, false, NULL },
                                      { 2, "status", STATUS, false, NULL },
                                      { 3, "errorMessage", TEXT, false, NULL },
                                      { 0 } };
static const struct msg_json_table async_table = { async };
static const struct field stacktraces[] = { { 1, "flamegraph", MESSAGE, false, &flame_table },
                                            { 2, "tree", BYTES, false, NULL },
                                            { 3, "dot", TEXT, false, NULL },
                                            { 4, "async", MESSAGE, false, &async_table },
                                            { 5, "pprof", MESSAGE, false, &pprof_table },
                                            { 0 } };
const struct msg_json_table msg_json_stacktraces = { stacktraces };

/* ---- the walk ---------------------------------------------------------------------------------*/

static void put_number(enum kind kind, uint64_t v, struct json *j)
{
    char text[20];
    size_t at = sizeof(text);

    if (kind == BOOL) {
        json_bool(j, v != 0);
        return;
    }
    if (kind == STATUS) {
        json_cstr(j, async_status_name((enum async_status)v));
        return;
    }
    if (kind == I64 || v <= INT64_MAX) {
        json_i64_str(j, (int64_t)v);
        return;
    }
    for (; v; v /= 10)
        text[--at] = (char)('0' + v % 10);
    json_str(j, str_n(text + at, sizeof(text) - at));
}

static void put_base64(struct json *j, struct str bytes)
{
    json_str(j, STR("")); /* then the text goes between the quotes */
    if (!buf_ok(j->out))
        return;
    j->out->len--;
    base64_encode(bytes, j->out);
    buf_add_c(j->out, '"');
}

static bool put_value(const struct field *f, const struct pb_field *in, struct json *j)
{
    struct rd r = rd_of(in->bytes);
    uint64_t v;

    if (f->kind == MESSAGE)
        return in->wire == 2 && msg_json(f->table, in->bytes, j);
    if (f->kind == TEXT || f->kind == BYTES) {
        if (f->kind == TEXT)
            json_str(j, in->bytes);
        else
            put_base64(j, in->bytes);
        return in->wire == 2;
    }
    if (in->wire == 0)
        put_number(f->kind, in->u64, j);
    while (in->wire == 2 && rd_left(&r)) {
        if (!rd_varint(&r, &v))
            return false;
        put_number(f->kind, v, j);
    }
    return in->wire == 0 || (in->wire == 2 && f->list);
}

/* A value that proto3 leaves out. */
static bool is_default(const struct field *f, const struct pb_field *in)
{
    return !f->list && f->kind != MESSAGE && (in->wire == 2 ? in->bytes.len == 0 : in->u64 == 0);
}

static bool put_field(const struct field *f, struct str message, struct json *j)
{
    struct rd r = rd_of(message);
    struct pb_field in;
    bool any = false;
    int got;

    while ((got = rd_pb(&r, &in)) > 0) {
        if (in.number != f->number || is_default(f, &in))
            continue;
        if (!any)
            json_key(j, f->name);
        if (!any && f->list)
            json_arr(j);
        any = true;
        if (!put_value(f, &in, j))
            return false;
        if (!f->list)
            return true;
    }
    if (any)
        json_arr_end(j);
    return got == 0;
}

bool msg_json(const struct msg_json_table *t, struct str message, struct json *j)
{
    uint32_t seen = 0;
    struct rd r = rd_of(message);
    struct pb_field in;
    int got;

    while ((got = rd_pb(&r, &in)) > 0)
        seen |= in.number < 32 ? 1u << in.number : 0;
    json_obj(j);
    for (const struct field *f = t->fields; f->kind != END; f++)
        if (seen >> f->number & 1 && !put_field(f, message, j))
            return false;
    json_obj_end(j);
    return got == 0;
}
