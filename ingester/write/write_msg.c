/* SPDX-License-Identifier: Apache-2.0
 *
 * write_msg: read straight off the message's bytes, in two looks at each part: how many of what
 * there are, then the parts themselves into arrays of that size.
 *
 *   WriteRequest ─> WriteSeries ─> LabelPair, WriteVector, WriteExemplar
 *        └─> Stacks, or Told ─> Stacks
 *
 *   names, ids   where they stand in the message
 *   columns      there, too, if they happen to be aligned, else copied into the arena
 *
 * protobuf-c made a struct and up to a dozen allocations of each part, and was two thirds of what
 * an ingester spent on a push outside its shard. What it takes, this takes, in the form in which
 * our distributors send it: columns packed and in one piece, a part that may stand there once
 * standing there once, numbers within their range. Fields that are not known are skipped.
 *
 * Only the shape is checked here. What the numbers say is checked once, by the engine
 * (store_write_check): two versions, a bug in a distributor or a broken message must not become bad
 * rows.
 */
#include "ingester/write/write_msg.h"

#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "ingester/base/unpack.h"

#define WRITE_ID_BYTES 16
#define SERIES_MAX     65536

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

/* Numbers of fields: proto/ingest.proto, proto/common.proto. */
enum { REQ_TENANT = 1, REQ_SERVICE, REQ_SHARD, REQ_STACKS, REQ_SERIES, REQ_RECEIVED, REQ_TOLD };
enum { REQ_MAP_VERSION = 8, REQ_DISTRIBUTOR, REQ_EPOCH, REQ_PRINT };
enum { TOLD_SESSION = 1, TOLD_STRINGS, TOLD_FRAMES, TOLD_NODES, TOLD_MORE, TOLD_NODE };
enum { SERIES_LABELS = 1, SERIES_TYPE, SERIES_GAUGE, SERIES_ID, SERIES_VECTORS, SERIES_EXEMPLARS };
enum { SERIES_SPREAD = 7 };
enum { LABEL_NAME = 1, LABEL_VALUE };
enum { VECTOR_SLOT = 1, VECTOR_NODE, VECTOR_VALUE };
enum { EXEMPLAR_KIND = 1, EXEMPLAR_ID, EXEMPLAR_DURATION, EXEMPLAR_NODE, EXEMPLAR_VALUE };
enum { REPLY_STORED = 1, REPLY_DUPLICATES, REPLY_EXEMPLARS, REPLY_LEFT_OUT, REPLY_LEARNT };

size_t write_msg_arena_bytes(size_t payload_len)
{
    return 64 * KIB + 24 * payload_len;
}

struct str write_msg_tenant(struct str payload)
{
    struct rd r = rd_of(payload);
    struct pb_field f;

    if (rd_pb(&r, &f) > 0 && f.number == REQ_TENANT && f.wire == WIRE_BYTES)
        return f.bytes;
    return STR_NULL;
}

/* ---- fields ---- */

static int damaged(struct str bytes, struct err *e)
{
    return err_set(e, ERR_INPUT, "%zu bytes are no such message", bytes.len);
}

static int wrong(const struct pb_field *f, struct err *e)
{
    return err_set(e, ERR_INPUT, "field %" PRIu32 " has the wrong wire type %u, or appears twice",
                   f->number, f->wire);
}

static int full(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "it needs over %zu bytes to decode", arena_limit(a));
}

static int take_bytes(const struct pb_field *f, struct str *ret, struct err *e)
{
    if (f->wire != WIRE_BYTES || ret->ptr)
        return wrong(f, e);
    *ret = f->bytes;
    return 0;
}

static int take_u64(const struct pb_field *f, uint64_t max, uint64_t *ret, struct err *e)
{
    if (f->wire != WIRE_VARINT)
        return wrong(f, e);
    if (f->u64 > max)
        return err_set(e, ERR_INPUT, "field %" PRIu32 " is %" PRIu64 ", at most %" PRIu64,
                       f->number, f->u64, max);
    *ret = f->u64;
    return 0;
}

static int take_u32(const struct pb_field *f, uint32_t *ret, struct err *e)
{
    uint64_t n = 0;
    int rc = take_u64(f, UINT32_MAX, &n, e);

    *ret = (uint32_t)n;
    return rc;
}

/* A column of numbers of `width` bytes, little-endian as we are. */
static int take_column(const struct pb_field *f, size_t width, struct arena *a, void *ret_column,
                       size_t *ret_len, struct err *e)
{
    const void *p = f->bytes.ptr;

    if (f->wire != WIRE_BYTES || *ret_len)
        return wrong(f, e);
    if (f->bytes.len % width)
        return err_set(e, ERR_INPUT, "field %" PRIu32 " has %zu bytes, of %zu each", f->number,
                       f->bytes.len, width);
    if ((uintptr_t)p % width) {
        void *copy = arena_alloc(a, f->bytes.len);
        if (!copy)
            return full(a, e);
        memcpy(copy, p, f->bytes.len);
        p = copy;
    }
    memcpy(ret_column, &p, sizeof(p));
    *ret_len = f->bytes.len / width;
    return 0;
}

/* How often field number n < 16 stands in the message. */
static int count_fields(struct str bytes, size_t ret_count[16], struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int more;

    memset(ret_count, 0, 16 * sizeof(*ret_count));
    while ((more = rd_pb(&r, &f)) > 0)
        if (f.number < 16)
            ret_count[f.number]++;
    return more ? damaged(bytes, e) : 0;
}

/* ---- stacks ---- */

static int take_stacks_column(const struct pb_field *f, struct arena *a, Embertree__Stacks *s,
                              struct err *e)
{
    switch (f->number) {
    case 1:
        if (f->wire != WIRE_BYTES || s->string_data.data)
            return wrong(f, e);
        s->string_data = pack_str(f->bytes);
        return 0;
    case 2:
        return take_column(f, 4, a, &s->string_len, &s->n_string_len, e);
    case 3:
        return take_column(f, 4, a, &s->frame_func, &s->n_frame_func, e);
    case 4:
        return take_column(f, 4, a, &s->frame_file, &s->n_frame_file, e);
    case 5:
        return take_column(f, 4, a, &s->frame_line, &s->n_frame_line, e);
    case 6:
        return take_column(f, 4, a, &s->frame_module, &s->n_frame_module, e);
    case 7:
        return take_column(f, 8, a, &s->frame_addr, &s->n_frame_addr, e);
    case 8:
        return take_column(f, 4, a, &s->node_parent, &s->n_node_parent, e);
    case 9:
        return take_column(f, 4, a, &s->node_frame, &s->n_node_frame, e);
    default:
        return 0;
    }
}

static int take_stacks(struct str bytes, struct arena *a, Embertree__Stacks *s, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int more;

    embertree__stacks__init(s);
    while ((more = rd_pb(&r, &f)) > 0)
        if (take_stacks_column(&f, a, s, e))
            return err_wrap(e, "stacks");
    return more && damaged(bytes, e) ? err_wrap(e, "stacks") : 0;
}

static int take_told_field(const struct pb_field *f, struct arena *a, struct dict_told *t,
                           struct str *session, struct str *more, struct err *e)
{
    switch (f->number) {
    case TOLD_SESSION:
        return take_bytes(f, session, e);
    case TOLD_STRINGS:
        return take_u32(f, &t->from.strings, e);
    case TOLD_FRAMES:
        return take_u32(f, &t->from.frames, e);
    case TOLD_NODES:
        return take_u32(f, &t->from.nodes, e);
    case TOLD_MORE:
        return take_bytes(f, more, e);
    case TOLD_NODE:
        return take_column(f, 4, a, &t->node, &t->nodes, e);
    default:
        return 0;
    }
}

/* Only the columns; what they refer to is checked where it is staged (dict_told_check). */
static int take_told(struct str bytes, struct arena *a, struct write_msg *ret, struct err *e)
{
    struct str session = STR_NULL, more = STR_NULL;
    struct dict_told *t = &ret->told;
    struct rd r = rd_of(bytes);
    Embertree__Stacks columns;
    struct pb_field f;
    int got;

    while ((got = rd_pb(&r, &f)) > 0)
        if (take_told_field(&f, a, t, &session, &more, e))
            return err_wrap(e, "told");
    if (got)
        return damaged(bytes, e);
    if (session.len != DICT_SESSION_BYTES)
        return err_set(e, ERR_INPUT, "no session of %d bytes", DICT_SESSION_BYTES);
    if (t->nodes >= UINT32_MAX)
        return err_set(e, ERR_INPUT, "%zu nodes", t->nodes);
    memcpy(t->session, session.ptr, DICT_SESSION_BYTES);
    ret->stacks = (struct stacks_view){ .nodes = t->nodes };
    ret->write.told = t;
    if (!more.ptr)
        return 0;
    return take_stacks(more, a, &columns, e) ? e->code : unpack_columns(&columns, &t->more, e);
}

/* ---- series ---- */

static int take_label(struct str bytes, struct label *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int more = 0, rc = 0;

    while (!rc && (more = rd_pb(&r, &f)) > 0)
        if (f.number == LABEL_NAME)
            rc = take_bytes(&f, &ret->name, e);
        else if (f.number == LABEL_VALUE)
            rc = take_bytes(&f, &ret->value, e);
    return rc ? rc : more ? damaged(bytes, e) : 0;
}

static int take_vector(struct str bytes, struct arena *a, struct store_vector *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    size_t values = 0;
    struct pb_field f;
    int more = 0, rc = 0;

    while (!rc && (more = rd_pb(&r, &f)) > 0)
        if (f.number == VECTOR_SLOT)
            rc = take_u32(&f, &ret->slot, e);
        else if (f.number == VECTOR_NODE)
            rc = take_column(&f, 4, a, &ret->nodes, &ret->len, e);
        else if (f.number == VECTOR_VALUE)
            rc = take_column(&f, 8, a, &ret->values, &values, e);
    if (rc || more)
        return rc ? rc : damaged(bytes, e);
    if (ret->len != values)
        return err_set(e, ERR_INPUT, "slot %" PRIu32 " has %zu nodes and %zu values", ret->slot,
                       ret->len, values);
    return 0;
}

static int take_exemplar(struct str bytes, struct arena *a, struct store_exemplar *ret,
                         struct err *e)
{
    struct rd r = rd_of(bytes);
    uint32_t kind = 0;
    size_t values = 0;
    struct pb_field f;
    int more = 0, rc = 0;

    while (!rc && (more = rd_pb(&r, &f)) > 0)
        if (f.number == EXEMPLAR_KIND)
            rc = take_u32(&f, &kind, e);
        else if (f.number == EXEMPLAR_ID)
            rc = take_bytes(&f, &ret->id, e);
        else if (f.number == EXEMPLAR_DURATION)
            rc = take_u32(&f, &ret->duration_ms, e);
        else if (f.number == EXEMPLAR_NODE)
            rc = take_column(&f, 4, a, &ret->nodes, &ret->len, e);
        else if (f.number == EXEMPLAR_VALUE)
            rc = take_column(&f, 8, a, &ret->values, &values, e);
    if (rc || more)
        return rc ? rc : damaged(bytes, e);
    if (ret->len != values)
        return err_set(e, ERR_INPUT, "an exemplar has %zu nodes and %zu values", ret->len, values);
    if (kind >= EXID_KINDS)
        return err_set(e, ERR_INPUT, "an exemplar is of the kind %" PRIu32, kind);
    ret->kind = (enum exid_kind)kind;
    return 0;
}

struct series_parts {
    struct label *labels;
    struct store_vector *vectors;
    struct store_exemplar *exemplars;
    struct str id;
};

static int take_series_field(const struct pb_field *f, struct arena *a, struct series_parts *p,
                             struct store_series *ret, struct err *e)
{
    bool part =
        f->number == SERIES_LABELS || f->number == SERIES_VECTORS || f->number == SERIES_EXEMPLARS;
    uint64_t flag = 0;
    int rc;

    if (part && f->wire != WIRE_BYTES)
        return wrong(f, e);
    switch (f->number) {
    case SERIES_LABELS:
        return take_label(f->bytes, &p->labels[ret->labels.len++], e);
    case SERIES_TYPE:
        return take_bytes(f, &ret->profile_type, e);
    case SERIES_GAUGE:
        rc = take_u64(f, UINT64_MAX, &flag, e);
        ret->gauge = flag != 0;
        return rc;
    case SERIES_ID:
        return take_bytes(f, &p->id, e);
    case SERIES_SPREAD:
        rc = take_u64(f, UINT32_MAX, &flag, e);
        ret->spread = (uint32_t)flag;
        return rc;
    case SERIES_VECTORS:
        return take_vector(f->bytes, a, &p->vectors[ret->len++], e);
    case SERIES_EXEMPLARS:
        return take_exemplar(f->bytes, a, &p->exemplars[ret->exemplars_len++], e);
    default:
        return 0;
    }
}

static int take_series(struct str bytes, struct arena *a, struct store_series *ret, struct err *e)
{
    struct series_parts p = { 0 };
    struct rd r = rd_of(bytes);
    struct pb_field f;
    size_t n[16];

    if (count_fields(bytes, n, e))
        return e->code;
    p.labels = ARENA_ARRAY(a, struct label, n[SERIES_LABELS]);
    p.vectors = ARENA_ARRAY(a, struct store_vector, n[SERIES_VECTORS]);
    p.exemplars = ARENA_ARRAY(a, struct store_exemplar, n[SERIES_EXEMPLARS]);
    if (!p.labels || !p.vectors || !p.exemplars)
        return full(a, e);
    while (rd_pb(&r, &f) > 0)
        if (take_series_field(&f, a, &p, ret, e))
            return e->code;
    if (p.id.len != WRITE_ID_BYTES)
        return err_set(e, ERR_INPUT, "write id of %zu bytes, not %d", p.id.len, WRITE_ID_BYTES);
    if (ret->labels.len == 0)
        return err_set(e, ERR_INPUT, "no labels");
    if (ret->len == 0)
        return err_set(e, ERR_INPUT, "no vectors");
    memcpy(ret->wid, p.id.ptr, WRITE_ID_BYTES);
    ret->labels.ptr = p.labels;
    ret->vectors = p.vectors;
    ret->exemplars = p.exemplars;
    return 0;
}

/* ---- the whole ---- */

struct request_parts {
    struct store_series *series;
    struct str stacks, told;
};

static int take_request_field(const struct pb_field *f, struct arena *a, struct request_parts *p,
                              struct write_msg *ret, struct err *e)
{
    struct store_write *w = &ret->write;

    switch (f->number) {
    case REQ_TENANT:
        return take_bytes(f, &w->tenant, e);
    case REQ_SERVICE:
        return take_bytes(f, &w->service, e);
    case REQ_SHARD:
        return take_u32(f, &ret->shard, e);
    case REQ_STACKS:
        return take_bytes(f, &p->stacks, e);
    case REQ_SERIES:
        if (f->wire != WIRE_BYTES)
            return wrong(f, e);
        w->len++;
        if (take_series(f->bytes, a, &p->series[w->len - 1], e))
            return err_wrap(e, "series %zu", w->len - 1);
        return 0;
    case REQ_RECEIVED:
        return f->wire == WIRE_VARINT ? 0 : wrong(f, e);
    case REQ_TOLD:
        return take_bytes(f, &p->told, e);
    case REQ_MAP_VERSION:
        return take_u64(f, UINT64_MAX, &ret->map_version, e);
    case REQ_DISTRIBUTOR:
        return take_u64(f, UINT64_MAX, &w->distributor, e);
    case REQ_EPOCH:
        return take_u32(f, &w->epoch, e);
    case REQ_PRINT:
        return take_u64(f, UINT64_MAX, &w->print, e);
    default:
        return 0;
    }
}

/* Takes stacks in the form that the method uses. */
static int take_either(const struct request_parts *p, bool told, struct arena *a,
                       struct write_msg *ret, struct err *e)
{
    Embertree__Stacks columns;

    if (told ? p->stacks.ptr : p->told.ptr)
        return err_set(e, ERR_INPUT, "stacks in a form that does not belong to the method");
    if (told)
        return take_told(p->told, a, ret, e);
    if (!p->stacks.ptr)
        return unpack_stacks(NULL, &ret->stacks, e);
    return take_stacks(p->stacks, a, &columns, e) ? e->code
                                                  : unpack_stacks(&columns, &ret->stacks, e);
}

static int take_all(struct str bytes, bool told, struct arena *a, struct write_msg *ret,
                    struct err *e)
{
    struct request_parts p = { 0 };
    struct store_write *w = &ret->write;
    struct rd r = rd_of(bytes);
    struct pb_field f;
    size_t n[16];

    *ret = (struct write_msg){ 0 };
    if (count_fields(bytes, n, e))
        return e->code;
    if (n[REQ_SERIES] == 0 || n[REQ_SERIES] > SERIES_MAX)
        return err_set(e, ERR_INPUT, "%zu series, 1 to %d are allowed", n[REQ_SERIES], SERIES_MAX);
    p.series = ARENA_ARRAY(a, struct store_series, n[REQ_SERIES]);
    if (!p.series)
        return full(a, e);
    while (rd_pb(&r, &f) > 0)
        if (take_request_field(&f, a, &p, ret, e))
            return e->code;
    if (w->tenant.len == 0 || w->service.len == 0)
        return err_set(e, ERR_INPUT, "no %s", w->tenant.len ? "service" : "tenant");
    w->series = p.series;
    w->stacks = &ret->stacks;
    return take_either(&p, told, a, ret, e);
}

int write_msg_decode(struct str payload, bool told, struct arena *a, struct write_msg *ret,
                     struct err *e)
{
    return take_all(payload, told, a, ret, e) ? err_wrap(e, "WriteRequest") : 0;
}

/* ---- the answer ---- */

static void put_field(struct buf *out, unsigned number, uint64_t n)
{
    if (!n)
        return;
    wr_varint(out, number << 3 | WIRE_VARINT);
    wr_varint(out, n);
}

void write_reply_pack(const struct store_result *r, struct buf *out)
{
    put_field(out, REPLY_STORED, r->stored);
    put_field(out, REPLY_DUPLICATES, r->duplicates);
    put_field(out, REPLY_EXEMPLARS, r->exemplars);
    put_field(out, REPLY_LEFT_OUT, r->exemplars_left_out);
    put_field(out, REPLY_LEARNT, r->learnt);
}
