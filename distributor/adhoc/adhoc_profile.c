/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_profile.c: packs the stacks and series of a push as columns under zstd, and reads them
 * back.
 *
 * A profile is kept whole, so that views can be made of it later. A reader believes nothing: counts
 * are bounded by the bytes that follow, indexes by the columns that they point into, and parents
 * stand before their children, so that no walk can loop. What is read is in the caller's arena.
 */
#include "distributor/adhoc/adhoc_profile.h"

#include "common/base/compress/compress.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION 1
#define LEVEL   6 /* of zstd: written once, read for years */

/* ---- writing --------------------------------------------------------------------------------- */

static void put_u32s(struct buf *b, const uint32_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        wr_varint(b, at[i]);
}

static void put_text(struct buf *b, struct str s)
{
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static void put_stacks(struct buf *b, const struct stacks_view *v)
{
    wr_varint(b, v->strings);
    put_u32s(b, v->string_len, v->strings);
    buf_add_str(b, v->string_data);
    wr_varint(b, v->frames);
    put_u32s(b, v->frame_func, v->frames);
    put_u32s(b, v->frame_file, v->frames);
    put_u32s(b, v->frame_line, v->frames);
    put_u32s(b, v->frame_module, v->frames);
    for (size_t i = 0; i < v->frames; i++)
        wr_varint(b, v->frame_addr[i]);
    wr_varint(b, v->nodes);
    for (size_t i = 0; i < v->nodes; i++)
        wr_varint(b, i + 1 - v->node_parent[i]);
    put_u32s(b, v->node_frame, v->nodes);
}

static void put_series(struct buf *b, const struct push_series *s)
{
    uint64_t before = 0; /* node + 1 */
    struct buf labels;

    buf_init(&labels, MIB);
    labels_encode(&s->labels, &labels);
    put_text(b, s->profile_type);
    wr_u8(b, s->gauge);
    put_text(b, buf_str(&labels));
    if (!buf_ok(&labels))
        b->failed = true;
    buf_deinit(&labels);
    wr_varint(b, s->total);
    wr_varint(b, s->len);
    for (size_t i = 0; i < s->len; i++) {
        wr_varint(b, s->nodes[i] + UINT64_C(1) - before);
        before = s->nodes[i] + UINT64_C(1);
    }
    for (size_t i = 0; i < s->len; i++)
        wr_varint(b, s->values[i]);
}

int adhoc_profile_pack(const struct push *p, size_t plain_max, struct buf *out, struct err *e)
{
    struct stacks_view v = stacks_view(&p->stacks);
    struct buf plain;
    int rc;

    if (!p->series_len)
        return err_set(e, ERR_INPUT, "the file has no samples, there is nothing to keep");
    buf_init(&plain, plain_max);
    put_stacks(&plain, &v);
    wr_varint(&plain, p->series_len);
    for (size_t i = 0; i < p->series_len; i++)
        put_series(&plain, &p->series[i]);
    wr_u8(out, VERSION);
    wr_varint(out, plain.len);
    rc = buf_ok(&plain)
             ? zstd_compress(buf_str(&plain), LEVEL, out, e)
             : err_set(e, ERR_LIMIT, "decoded, the profile takes over %zu bytes", plain_max);
    buf_deinit(&plain);
    if (!rc && !buf_ok(out))
        rc =
            err_set(e, ERR_LIMIT, "decoded and zipped, the profile takes over %zu bytes", out->max);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
    struct rd r;
    struct arena *a;
    bool full; /* the arena */
};

/* How many of what takes at least `least` bytes each. */
static bool get_count(struct reader *in, size_t least, size_t *ret)
{
    uint64_t n;

    if (!rd_varint(&in->r, &n) || n > rd_left(&in->r) / least || n >= UINT32_MAX)
        return false;
    *ret = (size_t)n;
    return true;
}

static void *get_room(struct reader *in, size_t n, size_t size)
{
    void *p = arena_alloc(in->a, MAX(n * size, 1));

    in->full |= !p;
    return p;
}

static bool get_u32s(struct reader *in, size_t n, const uint32_t **ret)
{
    uint32_t *p = get_room(in, n, sizeof(*p));
    uint64_t v;

    for (size_t i = 0; p && i < n; i++) {
        if (!rd_varint(&in->r, &v) || v > UINT32_MAX)
            return false;
        p[i] = (uint32_t)v;
    }
    *ret = p;
    return p != NULL;
}

static bool get_u64s(struct reader *in, size_t n, const uint64_t **ret)
{
    uint64_t *p = get_room(in, n, sizeof(*p));

    for (size_t i = 0; p && i < n; i++)
        if (!rd_varint(&in->r, &p[i]))
            return false;
    *ret = p;
    return p != NULL;
}

static bool get_text(struct reader *in, struct str *ret)
{
    uint64_t n;

    return rd_varint(&in->r, &n) && n <= rd_left(&in->r) && rd_bytes(&in->r, (size_t)n, ret);
}

static bool get_strings(struct reader *in, struct stacks_view *v)
{
    uint64_t sum = 0;

    if (!get_count(in, 1, &v->strings) || !get_u32s(in, v->strings, &v->string_len))
        return false;
    for (size_t i = 0; i < v->strings; i++)
        sum += v->string_len[i];
    return sum <= rd_left(&in->r) && rd_bytes(&in->r, (size_t)sum, &v->string_data);
}

static bool get_stacks(struct reader *in, struct stacks_view *v)
{
    uint32_t *parent;
    uint64_t up;

    if (!get_strings(in, v) || !get_count(in, 5, &v->frames) ||
        !get_u32s(in, v->frames, &v->frame_func) || !get_u32s(in, v->frames, &v->frame_file) ||
        !get_u32s(in, v->frames, &v->frame_line) || !get_u32s(in, v->frames, &v->frame_module) ||
        !get_u64s(in, v->frames, &v->frame_addr) || !get_count(in, 2, &v->nodes))
        return false;
    parent = get_room(in, v->nodes, sizeof(*parent));
    for (size_t i = 0; parent && i < v->nodes; i++) {
        if (!rd_varint(&in->r, &up) || up == 0 || up > i + 1)
            return false;
        parent[i] = (uint32_t)(i + 1 - up);
    }
    v->node_parent = parent;
    return parent && get_u32s(in, v->nodes, &v->node_frame);
}

static bool get_values(struct reader *in, size_t nodes, struct adhoc_series *s)
{
    uint64_t at = 0, step;
    uint32_t *node;

    if (!get_count(in, 2, &s->len))
        return false;
    node = get_room(in, s->len, sizeof(*node));
    for (size_t i = 0; node && i < s->len; i++) {
        if (!rd_varint(&in->r, &step) || step == 0 || step > nodes + 1 - at)
            return false;
        at += step;
        node[i] = (uint32_t)(at - 1);
    }
    s->nodes = node;
    if (!node || !get_u64s(in, s->len, &s->values))
        return false;
    for (size_t i = 0; i < s->len; i++)
        if (s->values[i] == 0 || s->values[i] > INT64_MAX)
            return false;
    return true;
}

static bool get_series(struct reader *in, size_t nodes, struct adhoc_series *s)
{
    struct str labels;
    struct ptype t;
    uint8_t gauge;
    struct err e;

    if (!get_text(in, &s->type) || ptype_parse(s->type, &t, &e) || !rd_u8(&in->r, &gauge) ||
        gauge > 1 || !get_text(in, &labels))
        return false;
    s->gauge = gauge;
    if (labels_decode(labels, in->a, &s->labels, &e)) {
        in->full |= e.code == ERR_LIMIT;
        return false;
    }
    return rd_varint(&in->r, &s->total) && s->total <= INT64_MAX && get_values(in, nodes, s);
}

static bool get_profile(struct reader *in, struct adhoc_profile *p)
{
    struct adhoc_series *s;

    if (!get_stacks(in, &p->stacks) || !get_count(in, 6, &p->len) || p->len == 0)
        return false;
    s = get_room(in, p->len, sizeof(*s));
    for (size_t i = 0; s && i < p->len; i++)
        if (!get_series(in, p->stacks.nodes, &s[i]))
            return false;
    p->series = s;
    return s && rd_left(&in->r) == 0;
}

static bool get_head(struct rd *r, uint64_t *ret_size)
{
    uint8_t version;

    return rd_u8(r, &version) && version == VERSION && rd_varint(r, ret_size);
}

uint64_t adhoc_profile_size(struct str body)
{
    struct rd r = rd_of(body);
    uint64_t size;

    return get_head(&r, &size) ? size : 0;
}

size_t adhoc_profile_cost(uint64_t size)
{
    /* Two bytes of a value take 12, two of a node 8; the rest is for structs of series. */
    return (size_t)size * 8 + 4 * MIB;
}

int adhoc_profile_read(struct str body, size_t plain_max, struct arena *a,
                       struct adhoc_profile *ret, struct err *e)
{
    struct reader in = { .r = rd_of(body), .a = a };
    uint64_t size;
    char *plain;

    *ret = (struct adhoc_profile){ 0 };
    if (!get_head(&in.r, &size))
        return err_set(e, ERR_CORRUPT, "the stored profile is damaged, or of a later version");
    if (size > plain_max)
        return err_set(e, ERR_LIMIT, "the stored profile takes %" PRIu64 " bytes, at most %zu",
                       size, plain_max);
    plain = arena_alloc(a, MAX((size_t)size, 1));
    if (!plain)
        return err_set(e, ERR_LIMIT, "there is no room for a profile of %" PRIu64 " bytes", size);
    if (zstd_decompress_into(str_n(in.r.p, rd_left(&in.r)), plain, (size_t)size, e)) {
        e->code = ERR_CORRUPT;
        return err_wrap(e, "the stored profile");
    }
    in.r = rd_of(str_n(plain, (size_t)size));
    if (!get_profile(&in, ret))
        return in.full ? err_set(e, ERR_LIMIT,
                                 "there is no room for a profile of %" PRIu64 " bytes", size)
                       : err_set(e, ERR_CORRUPT, "the stored profile is damaged");
    if (stacks_view_check(&ret->stacks, e)) {
        e->code = ERR_CORRUPT;
        return err_wrap(e, "the stored profile");
    }
    return 0;
}
