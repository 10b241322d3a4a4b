/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_arrow: recursion is fine here, the types are our own. Every choice that the format leaves
 * open is made in the way that is hardest to read: lists back to front and shared, views over
 * several blocks, dictionaries in pieces, inner ones before outer ones.
 */
#include "tests/lib/gen/gen_arrow.h"

#include <stdarg.h>

#include "common/base/compress/compress.h"
#include "common/base/wr.h"
#include "distributor/parca/arrow/arrow_fbw.h"

#define BUF_MAX (64 * MIB)

/* What one batch is made of. */
struct parts {
    VEC(int64_t) nodes;   /* length, nulls */
    VEC(struct str) bufs; /* in the arena */
    VEC(int64_t) variadic;
};
struct dict_list {
    struct ga_type **ptr; /* outer before inner */
    size_t len, cap;
};
struct buffer_places { /* of the buffers: where, how long */
    uint64_t *ptr;
    size_t len, cap;
};

void ga_init(struct ga *g, struct arena *a, struct buf *out)
{
    *g = (struct ga){ .arena = a, .out = out };
}

static void *get(struct ga *g, size_t n)
{
    void *p = arena_alloc(g->arena, n ? n : 1);

    CHECK(p);
    memset(p, 0, n ? n : 1);
    return p;
}

static void add_kid(struct ga_type *t, struct ga_type *kid)
{
    CHECK(t->kids_len < GA_KIDS_MAX);
    t->kids[t->kids_len++] = kid;
}

static struct ga_type *new_type(struct ga *g, enum ga_kind kind, const char *name)
{
    struct ga_type *t = get(g, sizeof(*t));

    t->kind = kind;
    t->name = name ? name : "item";
    t->nullable = true;
    t->width = 8;
    t->is_signed = true;
    if (kind == GA_DICT)
        t->id = g->ids++;
    return t;
}

struct ga_type *ga_type(struct ga *g, enum ga_kind kind, const char *name, ...)
{
    struct ga_type *t = new_type(g, kind, name), *kid;
    va_list ap;

    va_start(ap, name);
    while ((kid = va_arg(ap, struct ga_type *)) != NULL)
        add_kid(t, kid);
    va_end(ap);
    return t;
}

struct ga_type *ga_int(struct ga *g, const char *name, unsigned width, bool is_signed)
{
    struct ga_type *t = new_type(g, GA_INT, name);

    t->width = width;
    t->is_signed = is_signed;
    return t;
}

struct ga_type *ga_dict_of(struct ga *g, const char *name, struct ga_type *values)
{
    struct ga_type *t = new_type(g, GA_DICT, name);

    t->width = 4;
    t->is_signed = false;
    add_kid(t, values);
    return t;
}

struct ga_type *ga_runs_of(struct ga *g, const char *name, struct ga_type *values)
{
    struct ga_type *t = new_type(g, GA_RUNS, name);

    t->width = 4;
    add_kid(t, values);
    return t;
}

void ga_column(struct ga *g, struct ga_type *t)
{
    CHECK(g->columns_len < ARRAY_LEN(g->columns));
    g->columns[g->columns_len++] = t;
}

struct ga_value ga_null(void)
{
    return (struct ga_value){ .null = true };
}

struct ga_value ga_num(int64_t v)
{
    return (struct ga_value){ .num = v };
}

struct ga_value ga_bytes(struct str s)
{
    return (struct ga_value){ .bytes = s };
}

struct ga_value ga_text(const char *s)
{
    return s ? ga_bytes(str_c(s)) : ga_null();
}

struct ga_value ga_items(struct ga *g, size_t n, const struct ga_value *items)
{
    struct ga_value v = { .items = get(g, n * sizeof(*items)), .n = n };

    if (n)
        memcpy(v.items, items, n * sizeof(*items));
    return v;
}

bool ga_equal(const struct ga_value *a, const struct ga_value *b)
{
    if (a->null || b->null)
        return a->null == b->null;
    if (a->num != b->num || a->n != b->n || !str_eq(a->bytes, b->bytes))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!ga_equal(&a->items[i], &b->items[i]))
            return false;
    return true;
}

/* ---- arrays ------------------------------------------------------------------------------------
 */

static void put_buf(struct ga *g, struct parts *p, struct buf *b)
{
    struct str s = arena_strdup(g->arena, buf_str(b));

    vec_push(&p->bufs, s);
    buf_deinit(b);
}

static void put_int(struct buf *b, unsigned width, int64_t v)
{
    buf_add(b, &v, width); /* little-endian */
}

/* Bits of which value is there, or nothing if all are. */
static int64_t put_validity(struct ga *g, struct parts *p, const struct ga_type *t,
                            const struct ga_value *v, size_t n)
{
    struct buf b;
    int64_t nulls = 0;

    buf_init(&b, BUF_MAX);
    for (size_t i = 0; i < n; i++)
        nulls += v[i].null && t->nullable;
    char *to = nulls ? buf_room(&b, (n + 7) / 8) : NULL;
    if (to) {
        memset(to, 0, (n + 7) / 8);
        b.len = (n + 7) / 8;
        for (size_t i = 0; i < n; i++)
            if (!v[i].null || !t->nullable)
                to[i / 8] = (char)(to[i / 8] | 1 << (i % 8));
    }
    put_buf(g, p, &b);
    return nulls;
}

static void encode(struct ga *g, struct parts *p, struct ga_type *t, const struct ga_value *v,
                   size_t n);

static void encode_fixed(struct ga *g, struct parts *p, const struct ga_type *t,
                         const struct ga_value *v, size_t n)
{
    struct buf b;

    buf_init(&b, BUF_MAX);
    for (size_t i = 0; i < n; i++)
        if (t->kind == GA_FIXED)
            for (unsigned k = 0; k < t->width; k++)
                buf_add_c(&b, k < v[i].bytes.len ? v[i].bytes.ptr[k] : 0);
        else
            put_int(&b, t->kind == GA_TIME ? 8 : t->width, v[i].null ? 0 : v[i].num);
    put_buf(g, p, &b);
}

static void encode_bits(struct ga *g, struct parts *p, const struct ga_value *v, size_t n)
{
    struct buf b;

    buf_init(&b, BUF_MAX);
    for (size_t i = 0; i < n; i++) {
        if (i % 8 == 0)
            buf_add_c(&b, 0);
        if (v[i].num && !v[i].null)
            b.ptr[i / 8] = (char)(b.ptr[i / 8] | 1 << (i % 8));
    }
    put_buf(g, p, &b);
}

static void encode_bytes(struct ga *g, struct parts *p, const struct ga_type *t,
                         const struct ga_value *v, size_t n)
{
    unsigned width = t->kind == GA_LARGE ? 8 : 4;
    struct buf at, data;

    buf_init(&at, BUF_MAX);
    buf_init(&data, BUF_MAX);
    put_int(&at, width, 0);
    for (size_t i = 0; i < n; i++) {
        buf_add_str(&data, v[i].bytes);
        put_int(&at, width, (int64_t)data.len);
    }
    put_buf(g, p, &at);
    put_buf(g, p, &data);
}

/* A block per seven long values. */
static void encode_views(struct ga *g, struct parts *p, const struct ga_value *v, size_t n)
{
    VEC(struct str) blocks = { 0 };
    struct buf views, data;
    size_t in_block = 0;

    buf_init(&views, BUF_MAX);
    buf_init(&data, BUF_MAX);
    for (size_t i = 0; i < n; i++) {
        struct str s = v[i].bytes;
        put_int(&views, 4, (int64_t)s.len);
        if (s.len <= 12) {
            buf_add_str(&views, s);
            for (size_t k = s.len; k < 12; k++)
                buf_add_c(&views, 0);
            continue;
        }
        buf_add(&views, s.ptr, 4);
        put_int(&views, 4, (int64_t)blocks.len);
        put_int(&views, 4, (int64_t)data.len);
        buf_add_str(&data, s);
        if (++in_block == 7) {
            vec_push(&blocks, arena_strdup(g->arena, buf_str(&data)));
            buf_reset(&data);
            in_block = 0;
        }
    }
    if (in_block)
        vec_push(&blocks, arena_strdup(g->arena, buf_str(&data)));
    put_buf(g, p, &views);
    vec_push(&p->variadic, (int64_t)blocks.len);
    vec_for (i, &blocks)
        vec_push(&p->bufs, blocks.ptr[i]);
    vec_free(&blocks);
    buf_deinit(&data);
}

static void encode_list(struct ga *g, struct parts *p, struct ga_type *t, const struct ga_value *v,
                        size_t n)
{
    VEC(struct ga_value) flat = { 0 };
    struct buf at;

    buf_init(&at, BUF_MAX);
    put_int(&at, 4, 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < v[i].n; k++)
            vec_push(&flat, v[i].items[k]);
        put_int(&at, 4, (int64_t)flat.len);
    }
    put_buf(g, p, &at);
    encode(g, p, t->kids[0], flat.ptr, flat.len);
    vec_free(&flat);
}

static void encode_listview(struct ga *g, struct parts *p, struct ga_type *t,
                            const struct ga_value *v, size_t n)
{
    VEC(struct ga_value) flat = { 0 };
    int32_t *at = get(g, n * sizeof(*at));
    struct buf offsets, sizes;

    buf_init(&offsets, BUF_MAX);
    buf_init(&sizes, BUF_MAX);
    for (size_t i = n; i-- > 0;) {
        size_t same = i + 1;
        while (same < n && same < i + 64 && !ga_equal(&v[i], &v[same]))
            same++;
        if (same < n && same < i + 64) {
            at[i] = at[same];
            continue;
        }
        at[i] = (int32_t)flat.len;
        for (size_t k = 0; k < v[i].n; k++)
            vec_push(&flat, v[i].items[k]);
    }
    for (size_t i = 0; i < n; i++) {
        put_int(&offsets, 4, at[i]);
        put_int(&sizes, 4, (int64_t)v[i].n);
    }
    put_buf(g, p, &offsets);
    put_buf(g, p, &sizes);
    encode(g, p, t->kids[0], flat.ptr, flat.len);
    vec_free(&flat);
}

static void encode_struct(struct ga *g, struct parts *p, struct ga_type *t,
                          const struct ga_value *v, size_t n)
{
    struct ga_value *column = get(g, n * sizeof(*column));

    for (size_t k = 0; k < t->kids_len; k++) {
        for (size_t i = 0; i < n; i++)
            column[i] = v[i].null ? ga_null() : v[i].items[k];
        encode(g, p, t->kids[k], column, n);
    }
}

static void encode_runs(struct ga *g, struct parts *p, struct ga_type *t, const struct ga_value *v,
                        size_t n)
{
    struct ga_type ends = { .kind = GA_INT, .width = t->width, .is_signed = true };
    VEC(struct ga_value) at = { 0 };
    VEC(struct ga_value) values = { 0 };

    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || !ga_equal(&v[i], &v[i + 1])) {
            vec_push(&at, ga_num((int64_t)i + 1));
            vec_push(&values, v[i]);
        }
    encode(g, p, &ends, at.ptr, at.len);
    encode(g, p, t->kids[0], values.ptr, values.len);
    vec_free(&at);
    vec_free(&values);
}

/* A null is one of the column, or an entry like others where the column has none. */
static void encode_dict(struct ga *g, struct parts *p, struct ga_type *t, const struct ga_value *v,
                        size_t n)
{
    struct buf b;

    buf_init(&b, BUF_MAX);
    for (size_t i = 0; i < n; i++) {
        bool null = v[i].null && t->nullable;
        size_t at = 0;
        while (!null && at < t->entries.len && !ga_equal(&t->entries.ptr[at], &v[i]))
            at++;
        if (!null && at == t->entries.len)
            vec_push(&t->entries, v[i]);
        put_int(&b, t->width, null ? 0 : (int64_t)at);
    }
    put_buf(g, p, &b);
}

static void encode(struct ga *g, struct parts *p, struct ga_type *t, const struct ga_value *v,
                   size_t n)
{
    size_t node = p->nodes.len;

    vec_push(&p->nodes, (int64_t)n);
    vec_push(&p->nodes, 0);
    if (t->kind == GA_RUNS) {
        encode_runs(g, p, t, v, n);
        return;
    }
    p->nodes.ptr[node + 1] = put_validity(g, p, t, v, n);
    switch (t->kind) {
    case GA_INT:
    case GA_FIXED:
    case GA_TIME:
        encode_fixed(g, p, t, v, n);
        break;
    case GA_BOOL:
        encode_bits(g, p, v, n);
        break;
    case GA_UTF8:
    case GA_BINARY:
    case GA_LARGE:
        encode_bytes(g, p, t, v, n);
        break;
    case GA_VIEW:
        encode_views(g, p, v, n);
        break;
    case GA_LIST:
        encode_list(g, p, t, v, n);
        break;
    case GA_LISTVIEW:
        encode_listview(g, p, t, v, n);
        break;
    case GA_STRUCT:
        encode_struct(g, p, t, v, n);
        break;
    case GA_DICT:
        encode_dict(g, p, t, v, n);
        break;
    case GA_RUNS:
        break;
    }
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static size_t int_table(struct fbw *w, unsigned width, bool is_signed)
{
    size_t t = fbw_table(w, 3);

    fbw_put(w, t, 0, width * 8);
    fbw_put(w, t, 1, is_signed);
    return t;
}

static unsigned wire_type(const struct ga_type *t)
{
    static const unsigned char codes[GA_KINDS] = {
        [GA_INT] = 2,    [GA_BOOL] = 6,      [GA_FIXED] = 15,  [GA_UTF8] = 5,
        [GA_BINARY] = 4, [GA_VIEW] = 24,     [GA_LARGE] = 20,  [GA_TIME] = 10,
        [GA_LIST] = 12,  [GA_LISTVIEW] = 25, [GA_STRUCT] = 13, [GA_RUNS] = 22,
    };
    return codes[t->kind];
}

static size_t field_table(struct fbw *w, const struct ga_type *t, const char *name)
{
    const struct ga_type *v = t->kind == GA_DICT ? t->kids[0] : t;
    bool runs = v->kind == GA_RUNS;
    size_t f = fbw_table(w, 0x2f | (t->kind == GA_DICT ? 0x10 : 0)), type, kids;

    fbw_ref(w, f, 0, fbw_string(w, str_c(name)));
    fbw_put(w, f, 1, t->nullable);
    fbw_put(w, f, 2, wire_type(v));
    if (v->kind == GA_INT) {
        type = int_table(w, v->width, v->is_signed);
    } else {
        type = fbw_table(w, v->kind == GA_FIXED || v->kind == GA_TIME ? 1 : 0);
        if (v->kind == GA_FIXED || v->kind == GA_TIME)
            fbw_put(w, type, 0, v->kind == GA_FIXED ? v->width : 3);
    }
    fbw_ref(w, f, 3, type);
    if (t->kind == GA_DICT) {
        size_t d = fbw_table(w, 3);
        fbw_put(w, d, 0, (uint64_t)t->id);
        fbw_ref(w, d, 1, int_table(w, t->width, t->is_signed));
        fbw_ref(w, f, 4, d);
    }
    kids = fbw_vector(w, v->kids_len + runs, 4);
    if (runs) {
        struct ga_type ends = { .kind = GA_INT, .width = v->width, .is_signed = true };
        fbw_element(w, kids, 0, field_table(w, &ends, "run_ends"));
    }
    for (size_t i = 0; i < v->kids_len; i++)
        fbw_element(w, kids, i + runs, field_table(w, v->kids[i], v->kids[i]->name));
    fbw_ref(w, f, 5, kids);
    return f;
}

/* A message around a header: returns the position of its header field's table to be. */
static size_t message_open(struct ga *g, struct fbw *w, unsigned kind, size_t *ret_length_at,
                           size_t body)
{
    wr_u32le(g->out, UINT32_MAX);
    *ret_length_at = g->out->len;
    wr_u32le(g->out, 0);
    fbw_init(w, g->out);
    size_t m = fbw_table(w, 0xf);
    fbw_put(w, m, 0, 4);
    fbw_put(w, m, 1, kind);
    fbw_put(w, m, 3, body);
    return m;
}

static void message_close(struct ga *g, struct fbw *w, size_t length_at)
{
    fbw_end(w);
    put_u32le(g->out->ptr + length_at, (uint32_t)(g->out->len - length_at - 4));
    CHECK(buf_ok(g->out));
}

void ga_schema(struct ga *g)
{
    struct fbw w;
    size_t length_at, m = message_open(g, &w, 1, &length_at, 0);
    size_t s = fbw_table(&w, g->meta_key ? 7 : 3), fields = fbw_vector(&w, g->columns_len, 4);

    fbw_ref(&w, m, 2, s);
    fbw_ref(&w, s, 1, fields);
    for (size_t i = 0; i < g->columns_len; i++)
        fbw_element(&w, fields, i, field_table(&w, g->columns[i], g->columns[i]->name));
    if (g->meta_key) {
        size_t meta = fbw_vector(&w, 1, 4), kv = fbw_table(&w, 3);
        fbw_ref(&w, s, 2, meta);
        fbw_element(&w, meta, 0, kv);
        fbw_ref(&w, kv, 0, fbw_string(&w, str_c(g->meta_key)));
        fbw_ref(&w, kv, 1, fbw_string(&w, str_c(g->meta_value)));
    }
    message_close(g, &w, length_at);
}

/* A buffer as it is sent. */
static void coded(struct ga *g, struct str s, struct buf *out)
{
    struct buf z;
    struct err e;

    buf_reset(out);
    if (g->codec == GA_PLAIN || s.len == 0) {
        buf_add_str(out, s);
        return;
    }
    buf_init(&z, BUF_MAX);
    CHECK((g->codec == GA_LZ4 ? lz4_compress(s, &z, &e) : zstd_compress(s, 1, &z, &e)) == 0);
    wr_u64le(out, z.len < s.len ? s.len : UINT64_MAX);
    buf_add_str(out, z.len < s.len ? buf_str(&z) : s);
    buf_deinit(&z);
}

static size_t records_table(struct ga *g, struct fbw *w, const struct parts *p, size_t rows,
                            const struct buffer_places *places)
{
    bool packed = g->codec != GA_PLAIN;
    size_t r = fbw_table(w, 7u | (packed ? 8u : 0) | (p->variadic.len ? 16u : 0));
    size_t nodes = fbw_vector(w, p->nodes.len / 2, 16), bufs = fbw_vector(w, p->bufs.len, 16);

    fbw_put(w, r, 0, rows);
    fbw_ref(w, r, 1, nodes);
    vec_for (i, &p->nodes)
        fbw_number(w, nodes, i, (uint64_t)p->nodes.ptr[i]);
    fbw_ref(w, r, 2, bufs);
    vec_for (i, places)
        fbw_number(w, bufs, i, places->ptr[i]);
    if (packed) {
        size_t c = fbw_table(w, 3);
        fbw_put(w, c, 0, g->codec == GA_ZSTD);
        fbw_ref(w, r, 3, c);
    }
    if (p->variadic.len) {
        size_t v = fbw_vector(w, p->variadic.len, 8);
        vec_for (i, &p->variadic)
            fbw_number(w, v, i, (uint64_t)p->variadic.ptr[i]);
        fbw_ref(w, r, 4, v);
    }
    return r;
}

/* Frees p. dict: NULL for a record batch. */
static void put_batch(struct ga *g, struct parts *p, size_t rows, const struct ga_type *dict,
                      bool delta)
{
    struct buffer_places places = { 0 };
    struct buf body, one;
    struct fbw w;
    size_t length_at;

    buf_init(&body, BUF_MAX);
    buf_init(&one, BUF_MAX);
    vec_for (i, &p->bufs) {
        coded(g, p->bufs.ptr[i], &one);
        vec_push(&places, body.len);
        vec_push(&places, one.len);
        buf_add_str(&body, buf_str(&one));
        while (body.len % 8)
            buf_add_c(&body, 0);
    }
    size_t m = message_open(g, &w, dict ? 2 : 3, &length_at, body.len);
    if (dict) {
        size_t d = fbw_table(&w, 7);
        fbw_ref(&w, m, 2, d);
        fbw_put(&w, d, 0, (uint64_t)dict->id);
        fbw_put(&w, d, 2, delta);
        fbw_ref(&w, d, 1, records_table(g, &w, p, rows, &places));
    } else {
        fbw_ref(&w, m, 2, records_table(g, &w, p, rows, &places));
    }
    message_close(g, &w, length_at);
    buf_add_str(g->out, buf_str(&body));
    buf_deinit(&body);
    buf_deinit(&one);
    vec_free(&places);
    vec_free(&p->nodes);
    vec_free(&p->bufs);
    vec_free(&p->variadic);
}

static void collect(struct dict_list *l, struct ga_type *t)
{
    if (t->kind == GA_DICT)
        vec_push(l, t);
    for (size_t i = 0; i < t->kids_len; i++)
        collect(l, t->kids[i]);
}

/* New entries of all dictionaries: found outer first, since they bring entries for inner ones, and
 * sent inner first. */
static void put_dicts(struct ga *g)
{
    struct dict_list l = { 0 };
    struct todo {
        struct parts p;
        size_t rows;
        bool send, delta;
    } * todo;

    for (size_t i = 0; i < g->columns_len; i++)
        collect(&l, g->columns[i]);
    todo = xcalloc(l.len + 1, sizeof(*todo));
    vec_for (i, &l) {
        struct ga_type *t = l.ptr[i];
        size_t from = g->replace ? 0 : t->sent;
        todo[i].delta = from > 0;
        todo[i].rows = t->entries.len - from;
        todo[i].send = todo[i].rows > 0 || t->sent == 0;
        if (todo[i].send)
            encode(g, &todo[i].p, t->kids[0], t->entries.ptr + from, todo[i].rows);
        t->sent = t->entries.len;
    }
    for (size_t i = l.len; i-- > 0;)
        if (todo[i].send)
            put_batch(g, &todo[i].p, todo[i].rows, l.ptr[i], todo[i].delta);
    xfree(todo);
    vec_free(&l);
}

void ga_batch(struct ga *g, struct ga_value **values, size_t rows)
{
    struct parts p = { 0 };

    for (size_t i = 0; i < g->columns_len; i++)
        encode(g, &p, g->columns[i], values[i], rows);
    put_dicts(g);
    put_batch(g, &p, rows, NULL, false);
}

void ga_end(struct ga *g)
{
    wr_u32le(g->out, UINT32_MAX);
    wr_u32le(g->out, 0);
    CHECK(buf_ok(g->out));
}

void ga_free(struct ga *g)
{
    struct dict_list l = { 0 };

    for (size_t i = 0; i < g->columns_len; i++)
        collect(&l, g->columns[i]);
    vec_for (i, &l)
        vec_free(&l.ptr[i]->entries);
    vec_free(&l);
}
