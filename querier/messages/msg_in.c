/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_in: two walkers over one kind of table.
 *
 * protobuf goes over a message twice: once to count what repeats, so that lists are allocated in
 * one piece, and once to fill. A message that occurs several times where one is meant is the
 * concatenation of all (that is how protobuf defines it), so it is put together before it is
 * decoded. Nesting follows the tables, which have no cycles: unknown fields are stepped over, never
 * into, and no input makes the walk deeper than the deepest table.
 */
#include "querier/messages/msg_in.h"

#include "common/base/rd.h"

#define DEPTH_MAX  8
#define FIELDS_MAX 16 /* of a table */

static void *at(void *base, size_t offset)
{
    return (char *)base + offset;
}

static int no_room(const struct msg_desc *d, struct err *e)
{
    return err_set(e, ERR_LIMIT, "%s: too much in one request", d->name);
}

static int too_many(const struct msg_field *f, size_t n, struct err *e)
{
    return err_set(e, ERR_LIMIT, "%s: %zu entries, the limit is %zu", f->json, n, f->max);
}

static size_t item_size(const struct msg_field *f)
{
    switch (f->kind) {
    case MSG_STR:
        return sizeof(struct str);
    case MSG_MSG:
        return f->desc->size;
    case MSG_BOOL:
        return sizeof(bool);
    case MSG_DOUBLE:
        return sizeof(double);
    case MSG_I64:
    case MSG_ENUM:
        break;
    }
    return sizeof(int64_t);
}

static int set_enum(const struct msg_field *f, int64_t number, int64_t *ret, struct err *e)
{
    if (number < 0 || number >= (int64_t)f->names->len)
        return err_set(e, ERR_INPUT, "%s: unknown value; want one from %s to %s", f->json,
                       f->names->names[0], f->names->names[f->names->len - 1]);
    *ret = number;
    return 0;
}

/* ---- protobuf ---------------------------------------------------------------------------------*/

/* A message to be decoded. */
struct proto_in {
    const struct msg_desc *d;
    struct str message;
    unsigned depth; /* of nesting, 0 at the root */
    struct arena *a;
};
/* Fields seen in a message, by their place in the table. */
struct counts {
    size_t n[FIELDS_MAX];
    size_t bytes[FIELDS_MAX]; /* of single messages */
};

static int bad_proto(const struct msg_desc *d, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: the body is no protobuf message", d->name);
}

static const struct msg_field *find(const struct msg_desc *d, uint32_t number)
{
    for (size_t i = 0; i < d->len; i++)
        if (d->fields[i].number == number)
            return &d->fields[i];
    return NULL;
}

static uint8_t wire_of(enum msg_kind kind)
{
    switch (kind) {
    case MSG_STR:
    case MSG_MSG:
        return 2;
    case MSG_DOUBLE:
        return 1;
    case MSG_I64:
    case MSG_BOOL:
    case MSG_ENUM:
        break;
    }
    return 0;
}

/* A list of numbers in one field. */
static bool packed(const struct msg_field *f, const struct pb_field *in)
{
    return f->max && in->wire == 2 && wire_of(f->kind) != 2;
}

static bool packed_next(const struct msg_field *f, struct rd *r, uint64_t *ret)
{
    return f->kind == MSG_DOUBLE ? rd_u64le(r, ret) : rd_varint(r, ret);
}

static bool packed_count(const struct msg_field *f, struct str bytes, size_t *n)
{
    struct rd r = rd_of(bytes);
    uint64_t v;

    while (rd_left(&r)) {
        if (!packed_next(f, &r, &v))
            return false;
        (*n)++;
    }
    return true;
}

static int count_fields(const struct msg_desc *d, struct str message, struct counts *c,
                        struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field in;
    int got;

    while ((got = rd_pb(&r, &in)) > 0) {
        const struct msg_field *f = find(d, in.number);
        if (!f)
            continue;
        size_t k = (size_t)(f - d->fields);
        if (packed(f, &in)) {
            if (!packed_count(f, in.bytes, &c->n[k]))
                return bad_proto(d, e);
        } else if (in.wire == wire_of(f->kind)) {
            c->n[k]++;
            c->bytes[k] += in.wire == 2 ? in.bytes.len : 0;
        }
    }
    return got ? bad_proto(d, e) : 0;
}

static int make_lists(const struct msg_desc *d, const struct counts *c, struct arena *a, void *ret,
                      struct err *e)
{
    for (size_t i = 0; i < d->len; i++) {
        const struct msg_field *f = &d->fields[i];
        if (!f->max || !c->n[i])
            continue;
        if (c->n[i] > f->max)
            return too_many(f, c->n[i], e);
        struct msg_list l = { arena_calloc(a, c->n[i], item_size(f)), 0 };
        if (!l.ptr)
            return no_room(d, e);
        memcpy(at(ret, f->at), &l, sizeof(l));
    }
    return 0;
}

static int set_scalar(const struct msg_field *f, const struct pb_field *in, void *to, struct err *e)
{
    switch (f->kind) {
    case MSG_I64:
        *(int64_t *)to = (int64_t)in->u64;
        return 0;
    case MSG_BOOL:
        *(bool *)to = in->u64 != 0;
        return 0;
    case MSG_DOUBLE:
        memcpy(to, &in->u64, sizeof(double));
        return 0;
    case MSG_ENUM:
        /* An int32 on the wire, sign-extended; what is beyond is cut as other readers cut it. */
        return set_enum(f, (int32_t)in->u64, to, e);
    case MSG_STR:
    case MSG_MSG:
        break;
    }
    if (!str_utf8_valid(in->bytes))
        return err_set(e, ERR_INPUT, "%s: the text is not UTF-8", f->json);
    *(struct str *)to = in->bytes;
    return 0;
}

static int proto_message(const struct msg_desc *d, struct str message, unsigned depth,
                         struct arena *a, void *ret, struct err *e);

static int add_item(const struct msg_field *f, const struct pb_field *in, unsigned depth,
                    struct arena *a, struct msg_list *l, struct err *e)
{
    void *to = at(l->ptr, l->len * item_size(f));

    l->len++;
    return f->kind == MSG_MSG ? proto_message(f->desc, in->bytes, depth + 1, a, to, e)
                              : set_scalar(f, in, to, e);
}

static int add_packed(const struct msg_field *f, const struct pb_field *in, struct msg_list *l,
                      struct err *e)
{
    struct rd r = rd_of(in->bytes);
    struct pb_field one = *in;

    while (packed_next(f, &r, &one.u64))
        if (set_scalar(f, &one, at(l->ptr, l->len++ * item_size(f)), e))
            return e->code;
    return 0;
}

/* All bytes of a message that is sent in pieces. */
static int gather(const struct proto_in *x, const struct msg_field *f, size_t bytes,
                  struct str *ret, struct err *e)
{
    struct rd r = rd_of(x->message);
    struct pb_field in;
    size_t len = 0;
    char *p = arena_alloc(x->a, bytes + 1);

    if (!p)
        return no_room(x->d, e);
    while (rd_pb(&r, &in) > 0)
        if (in.number == f->number && in.wire == 2) {
            memcpy(p + len, in.bytes.ptr, in.bytes.len);
            len += in.bytes.len;
        }
    CHECK(len == bytes);
    *ret = str_n(p, len);
    return 0;
}

/* Single messages, each decoded once. */
static int make_messages(const struct proto_in *x, const struct counts *c, void *ret, struct err *e)
{
    for (size_t i = 0; i < x->d->len; i++) {
        const struct msg_field *f = &x->d->fields[i];
        struct str whole;
        if (f->max || f->kind != MSG_MSG || !c->n[i])
            continue;
        void *sub = arena_calloc(x->a, 1, f->desc->size);
        if (!sub)
            return no_room(x->d, e);
        if (gather(x, f, c->bytes[i], &whole, e) ||
            proto_message(f->desc, whole, x->depth + 1, x->a, sub, e))
            return e->code;
        memcpy(at(ret, f->at), &sub, sizeof(sub));
    }
    return 0;
}

static int fill_fields(const struct proto_in *x, void *ret, struct err *e)
{
    struct rd r = rd_of(x->message);
    struct pb_field in;

    while (rd_pb(&r, &in) > 0) {
        const struct msg_field *f = find(x->d, in.number);
        struct msg_list *l = f && f->max ? at(ret, f->at) : NULL;
        int code = 0;
        if (!f)
            continue;
        if (packed(f, &in))
            code = add_packed(f, &in, l, e);
        else if (in.wire != wire_of(f->kind))
            continue;
        else if (l)
            code = add_item(f, &in, x->depth, x->a, l, e);
        else if (f->kind != MSG_MSG)
            code = set_scalar(f, &in, at(ret, f->at), e);
        if (code)
            return code;
    }
    return 0;
}

static int proto_message(const struct msg_desc *d, struct str message, unsigned depth,
                         struct arena *a, void *ret, struct err *e)
{
    const struct proto_in x = { d, message, depth, a };
    struct counts c = { 0 };

    CHECK(depth < DEPTH_MAX && d->len <= FIELDS_MAX);
    memset(ret, 0, d->size);
    return count_fields(d, message, &c, e) || make_lists(d, &c, a, ret, e) ||
                   make_messages(&x, &c, ret, e) || fill_fields(&x, ret, e)
               ? e->code
               : 0;
}

int msg_in_proto(const struct msg_desc *d, struct str message, struct arena *a, void *ret,
                 struct err *e)
{
    return proto_message(d, message, 0, a, ret, e);
}

/* ---- proto3 JSON ------------------------------------------------------------------------------*/

static int json_enum(const struct msg_field *f, const struct json_val *v, int64_t *ret,
                     struct err *e)
{
    struct str text = STR_NULL;
    struct err not_number;
    int64_t number = 0;

    if (json_take_i64(v, f->json, &number, &not_number)) {
        if (json_take_str(v, f->json, &text, e))
            return e->code;
        for (number = 0;
             number < (int64_t)f->names->len && !str_eqc(text, f->names->names[number]);)
            number++;
    }
    return set_enum(f, number, ret, e);
}

static int json_scalar(const struct msg_field *f, const struct json_val *v, void *to, struct err *e)
{
    switch (f->kind) {
    case MSG_I64:
        return json_take_i64(v, f->json, to, e);
    case MSG_BOOL:
        return json_take_bool(v, f->json, to, e);
    case MSG_DOUBLE:
        return json_take_double(v, f->json, to, e);
    case MSG_ENUM:
        return json_enum(f, v, to, e);
    case MSG_STR:
    case MSG_MSG:
        break;
    }
    return json_take_str(v, f->json, to, e);
}

static int json_message(const struct msg_desc *d, const struct json_val *v, unsigned depth,
                        struct arena *a, void *ret, struct err *e);

static int json_list(const struct msg_field *f, const struct json_val *v, unsigned depth,
                     struct arena *a, struct msg_list *ret, struct err *e)
{
    size_t n = json_len(v);

    if (!json_is_arr(v))
        return err_set(e, ERR_INPUT, "%s: want a list of %s", f->json,
                       f->kind == MSG_STR   ? "strings"
                       : f->kind == MSG_MSG ? "objects"
                                            : "numbers");
    if (n > f->max)
        return too_many(f, n, e);
    if (!n)
        return 0;
    char *items = arena_calloc(a, n, item_size(f));
    if (!items)
        return err_set(e, ERR_LIMIT, "%s: too much text in one request", f->json);
    for (size_t i = 0; i < n; i++) {
        void *to = items + i * item_size(f);
        if (f->kind == MSG_MSG ? json_message(f->desc, json_at(v, i), depth + 1, a, to, e)
                               : json_scalar(f, json_at(v, i), to, e))
            return e->code;
    }
    *ret = (struct msg_list){ items, n };
    return 0;
}

static int json_field(const struct msg_field *f, const struct json_val *v, unsigned depth,
                      struct arena *a, void *ret, struct err *e)
{
    if (f->max)
        return json_list(f, v, depth, a, at(ret, f->at), e);
    if (f->kind != MSG_MSG)
        return json_scalar(f, v, at(ret, f->at), e);
    void *sub = arena_calloc(a, 1, f->desc->size);
    if (!sub)
        return no_room(f->desc, e);
    if (json_message(f->desc, v, depth + 1, a, sub, e))
        return err_wrap(e, "%s", f->json);
    memcpy(at(ret, f->at), &sub, sizeof(sub));
    return 0;
}

static int json_message(const struct msg_desc *d, const struct json_val *v, unsigned depth,
                        struct arena *a, void *ret, struct err *e)
{
    CHECK(depth < DEPTH_MAX);
    memset(ret, 0, d->size);
    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "want an object (%s)", d->name);
    for (size_t i = 0; i < d->len; i++) {
        const struct msg_field *f = &d->fields[i];
        const struct json_val *got = json_get(v, f->json, f->proto);
        if (got && json_field(f, got, depth, a, ret, e))
            return e->code;
    }
    return 0;
}

int msg_in_json(const struct msg_desc *d, const struct json_val *root, struct arena *a, void *ret,
                struct err *e)
{
    return json_message(d, root, 0, a, ret, e);
}
