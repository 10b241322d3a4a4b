/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow: the messages of a stream.
 *
 *   ff ff ff ff | i32 metadata length | metadata (flatbuffer) | body      ... | ff ff ff ff | 0
 *
 * A schema, then dictionaries and record batches in any order that puts a dictionary before the
 * rows that use it. A dictionary that comes again replaces itself, a delta adds to it. The end
 * marker may be missing. What stands behind it is not ours.
 *
 * Format: Apache Arrow columnar format 1.5, IPC streaming, metadata V4 and V5 (proto/FORMATS.md,
 * "Arrow streams").
 */
#include "distributor/parca/arrow/arrow.h"

#include "common/base/wr.h"

#define CONTINUATION UINT32_MAX
#define VERSION_V4   3
#define VERSION_V5   4

enum header { HEADER_SCHEMA = 1, HEADER_DICTIONARY = 2, HEADER_RECORDS = 3 };

struct message {
    uint8_t kind;
    struct fb_table header;
    struct str body;
};

static int short_of(const struct arrow *a, const char *what, uint64_t want, struct err *e)
{
    return err_set(e, ERR_INPUT, "arrow stream: %s of %" PRIu64 " bytes, %zu are left", what, want,
                   a->left.len);
}

static int message_parse(struct arrow *a, struct str metadata, struct message *m, struct err *e)
{
    struct fb_table t;
    int16_t version = 0;
    int64_t body = 0;
    bool has;

    m->kind = 0;
    if (fb_root(metadata, &t, e) || fb_i16(&t, 0, &version, e) || fb_u8(&t, 1, &m->kind, e) ||
        fb_child(&t, 2, &has, &m->header, e) || fb_i64(&t, 3, &body, e))
        return e->code;
    if (version != VERSION_V4 && version != VERSION_V5)
        return err_set(e, ERR_INPUT, "arrow stream: metadata version %d, want V4 or V5",
                       version + 1);
    if (!has)
        return err_set(e, ERR_INPUT, "arrow stream: message %u has no header", a->messages);
    if (body < 0 || (uint64_t)body > a->left.len)
        return short_of(a, "a message body", (uint64_t)body, e);
    m->body = str_n(a->left.ptr, (size_t)body);
    a->left = str_sub(a->left, (size_t)body, a->left.len);
    return 0;
}

/* a->ended: no message is left. */
static int message_next(struct arrow *a, struct message *m, struct err *e)
{
    if (a->left.len == 0)
        a->ended = true;
    if (a->ended)
        return 0;
    if (a->left.len < 8)
        return short_of(a, "a message prefix", 8, e);
    uint32_t mark = get_u32le(a->left.ptr), len = get_u32le(a->left.ptr + 4);
    if (mark != CONTINUATION)
        return err_set(e, ERR_INPUT, "not an arrow stream: a message begins with %08x", mark);
    a->left = str_sub(a->left, 8, a->left.len);
    if (len == 0) {
        a->ended = true;
        return 0;
    }
    if (len > a->left.len)
        return short_of(a, "message metadata", len, e);
    if (a->messages++ == ARROW_MESSAGES_MAX)
        return err_set(e, ERR_LIMIT, "arrow stream: more than %d messages", ARROW_MESSAGES_MAX);
    struct str metadata = str_sub(a->left, 0, len);
    a->left = str_sub(a->left, len, a->left.len);
    return message_parse(a, metadata, m, e);
}

int arrow_open(struct arrow *a, struct str body, const struct limits *l, struct arena *arena,
               struct err *e)
{
    struct message m;

    *a = (struct arrow){
        .budget = { .arena = arena, .limits = l, .body_bytes = body.len },
        .left = body,
    };
    if (message_next(a, &m, e))
        return e->code;
    if (a->ended || m.kind != HEADER_SCHEMA)
        return err_set(e, ERR_INPUT, "not an arrow stream: it does not begin with a schema");
    if (arrow_schema_read(&m.header, &a->schema, e))
        return e->code;
    a->dicts = XNEW_ARRAY(struct arrow_dict, a->schema.dicts.len + 1);
    return 0;
}

void arrow_close(struct arrow *a)
{
    for (size_t i = 0; a->dicts && i < a->schema.dicts.len; i++)
        vec_free(&a->dicts[i].chunks);
    xfree(a->dicts);
    a->dicts = NULL;
    arrow_schema_deinit(&a->schema);
}

static int take_dictionary(struct arrow *a, const struct message *m, struct err *e)
{
    struct arrow_chunk chunk;
    struct fb_table data = { 0 };
    int64_t id = 0;
    uint8_t delta = 0;
    bool has;

    if (fb_i64(&m->header, 0, &id, e) || fb_child(&m->header, 1, &has, &data, e) ||
        fb_u8(&m->header, 2, &delta, e))
        return e->code;
    uint32_t at = arrow_dict_of(&a->schema, id);
    if (at == ARROW_NO_FIELD || !has)
        return err_set(e, ERR_INPUT, "arrow stream: dictionary %" PRId64 " is not in the schema",
                       id);
    struct arrow_dict *d = &a->dicts[at];
    uint32_t root = a->schema.dicts.ptr[at].root;
    const struct arrow_record record = { &a->schema, root, a->schema.fields.ptr[root].end, &data,
                                         m->body };
    if (arrow_batch_read(&record, &a->budget, &chunk.batch, e))
        return err_wrap(e, "dictionary %" PRId64, id);
    if (!delta) {
        d->chunks.len = 0;
        d->len = 0;
    }
    chunk.batch.id = a->messages;
    chunk.base = d->len;
    d->len += chunk.batch.rows;
    vec_push(&d->chunks, chunk);
    return 0;
}

int arrow_next(struct arrow *a, bool *ret_more, struct err *e)
{
    struct message m;

    for (;;) {
        if (message_next(a, &m, e))
            return e->code;
        *ret_more = !a->ended;
        if (a->ended)
            return 0;
        if (m.kind == HEADER_RECORDS)
            break;
        if (m.kind != HEADER_DICTIONARY)
            return err_set(e, ERR_INPUT, "arrow stream: message %u is of kind %u", a->messages,
                           m.kind);
        if (take_dictionary(a, &m, e))
            return e->code;
    }
    const struct arrow_record record = { &a->schema, 0, a->schema.columns_end, &m.header, m.body };
    if (arrow_batch_read(&record, &a->budget, &a->batch, e))
        return e->code;
    a->batch.id = a->messages;
    return 0;
}
