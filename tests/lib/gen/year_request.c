/* SPDX-License-Identifier: Apache-2.0
 *
 * year_request: profiles of the simulated year as requests to the store, as messages and as pprof.
 *
 * A request holds only the stacks it uses. Their ids are those of all stacks, squeezed: order stays
 * the same, so parents stay before children and columns ascend.
 */
#include <stdlib.h>

#include "common/base/compress/compress.h"
#include "common/base/hash.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "ingester/base/unpack.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/gen/year_impl.h"

void year_request_init(struct year *y)
{
    buf_init(&y->c.string_data, GIB);
}

void year_request_deinit(struct year *y)
{
    struct year_columns *c = &y->c;

    vec_free(&y->members);
    vec_free(&y->parts);
    vec_free(&y->all_nodes);
    vec_free(&y->all_values);
    vec_free(&y->series);
    vec_free(&y->vectors);
    vec_free(&c->node);
    vec_free(&c->frame);
    vec_free(&c->string);
    xfree(c->node_id);
    xfree(c->frame_id);
    xfree(c->string_id);
    buf_deinit(&c->string_data);
    vec_free(&c->string_len);
    vec_free(&c->func);
    vec_free(&c->file);
    vec_free(&c->line);
    vec_free(&c->module);
    vec_free(&c->parent);
    vec_free(&c->node_frame);
    vec_free(&c->addr);
}

void year_begin(struct year *y)
{
    y->members.len = y->parts.len = y->all_nodes.len = y->all_values.len = 0;
    memset(y->member_of, 0, y->o.pods * sizeof(*y->member_of));
}

/* The series of a pod at this time: a restart or a deploy makes it another one. */
static uint32_t member_of(struct year *y, uint32_t pod, uint32_t slot)
{
    struct year_series s = { .parts = 0 };
    uint32_t last = y->member_of[pod];

    year_labels(y, pod, slot, &s.labels);
    if (last && strcmp(y->members.ptr[last - 1].labels.pod, s.labels.pod) == 0)
        return last - 1;
    s.id = hash128(s.labels.pod, strlen(s.labels.pod), y->o.seed);
    vec_push(&y->members, s);
    return (y->member_of[pod] = (uint32_t)y->members.len) - 1;
}

void year_add(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots)
{
    struct year_profile p = year_profile(y, pod, slot, slots);
    struct year_part part = { member_of(y, pod, slot), slot, y->all_nodes.len, p.len };
    struct year_series *s = &y->members.ptr[part.series];
    struct {
        struct hash128 before;
        uint64_t slot;
    } id = { s->id, slot };

    s->id = hash128(&id, sizeof(id), 1);
    s->parts++;
    vec_push(&y->parts, part);
    vec_reserve(&y->all_nodes, part.first + p.len);
    vec_reserve(&y->all_values, part.first + p.len);
    memcpy(y->all_nodes.ptr + part.first, p.nodes, p.len * sizeof(*p.nodes));
    memcpy(y->all_values.ptr + part.first, p.values, p.len * sizeof(*p.values));
    y->all_nodes.len = y->all_values.len = part.first + p.len;
}

size_t year_profiles(const struct year *y)
{
    return y->parts.len;
}

/* ---- the stacks that are used ---- */

static void grow_map(uint32_t **map, size_t *cap, size_t need)
{
    if (need <= *cap)
        return;
    xfree(*map);
    *cap = need + need / 2;
    *map = XNEW_ARRAY(uint32_t, *cap);
}

#define USE(c, what, id)                \
    do {                                \
        if (!(c)->what##_id[id]) {      \
            (c)->what##_id[id] = 1;     \
            vec_push(&(c)->what, (id)); \
        }                               \
    } while (0)
/* Brings what is used in order by looking at all there is, and numbers it. */
#define NUMBER(c, what, all, first)                                 \
    do {                                                            \
        (c)->what.len = 0;                                          \
        for (size_t i_ = 0; i_ < (all); i_++) {                     \
            if (!(c)->what##_id[i_])                                \
                continue;                                           \
            (c)->what##_id[i_] = (uint32_t)(c)->what.len + (first); \
            (c)->what.ptr[(c)->what.len++] = (uint32_t)i_;          \
        }                                                           \
    } while (0)
#define UNUSE(c, what)                                \
    do {                                              \
        for (size_t i_ = 0; i_ < (c)->what.len; i_++) \
            (c)->what##_id[(c)->what.ptr[i_]] = 0;    \
        (c)->what.len = 0;                            \
    } while (0)

static void find_used(struct year *y)
{
    const struct stacks *s = &y->stacks.all;
    struct year_columns *c = &y->c;

    grow_map(&c->node_id, &c->node_cap, s->node_parent.len + 1);
    grow_map(&c->frame_id, &c->frame_cap, s->frame_func.len + 1);
    grow_map(&c->string_id, &c->string_cap, s->string_len.len + 1);
    for (size_t i = 0; i < y->all_nodes.len; i++)
        for (uint32_t n = y->all_nodes.ptr[i]; n && !c->node_id[n]; n = s->node_parent.ptr[n - 1])
            USE(c, node, n);
    for (size_t i = 0; i < c->node.len; i++)
        USE(c, frame, s->node_frame.ptr[c->node.ptr[i] - 1]);
    for (size_t i = 0; i < c->frame.len; i++) {
        uint32_t f = c->frame.ptr[i];
        uint32_t used[] = { s->frame_func.ptr[f], s->frame_file.ptr[f], s->frame_module.ptr[f] };
        for (size_t k = 0; k < ARRAY_LEN(used); k++)
            if (used[k])
                USE(c, string, used[k]);
    }
    NUMBER(c, node, s->node_parent.len + 1, 1);
    NUMBER(c, frame, s->frame_func.len, 0);
    NUMBER(c, string, s->string_len.len, 1);
}

static void fill_columns(struct year *y)
{
    const struct stacks *s = &y->stacks.all;
    struct year_columns *c = &y->c;

    buf_reset(&c->string_data);
    c->string_len.len = c->func.len = c->file.len = c->line.len = c->module.len = 0;
    c->addr.len = c->parent.len = c->node_frame.len = 0;
    vec_push(&c->string_len, 0);
    for (size_t i = 0; i < c->string.len; i++) {
        struct str text = stacks_string_at(s, c->string.ptr[i]);
        buf_add_str(&c->string_data, text);
        vec_push(&c->string_len, (uint32_t)text.len);
    }
    for (size_t i = 0; i < c->frame.len; i++) {
        uint32_t f = c->frame.ptr[i];
        vec_push(&c->func, c->string_id[s->frame_func.ptr[f]]);
        vec_push(&c->file, c->string_id[s->frame_file.ptr[f]]);
        vec_push(&c->module, c->string_id[s->frame_module.ptr[f]]);
        vec_push(&c->line, s->frame_line.ptr[f]);
        vec_push(&c->addr, s->frame_addr.ptr[f]);
    }
    for (size_t i = 0; i < c->node.len; i++) {
        uint32_t n = c->node.ptr[i], up = s->node_parent.ptr[n - 1];
        vec_push(&c->parent, up ? c->node_id[up] : 0);
        vec_push(&c->node_frame, c->frame_id[s->node_frame.ptr[n - 1]]);
    }
    y->view = (struct stacks_view){
        buf_str(&c->string_data),
        c->string_len.ptr,
        c->string_len.len,
        c->func.ptr,
        c->file.ptr,
        c->line.ptr,
        c->module.ptr,
        c->addr.ptr,
        c->func.len,
        c->parent.ptr,
        c->node_frame.ptr,
        c->parent.len,
    };
}

static void squeeze(struct year *y)
{
    struct year_columns *c = &y->c;

    find_used(y);
    fill_columns(y);
    for (size_t i = 0; i < y->all_nodes.len; i++)
        y->all_nodes.ptr[i] = c->node_id[y->all_nodes.ptr[i]];
    UNUSE(c, node);
    UNUSE(c, frame);
    UNUSE(c, string);
}

/* ---- the request ---- */

const struct store_write *year_end(struct year *y)
{
    squeeze(y);
    y->series.len = 0;
    vec_reserve(&y->vectors, y->parts.len + 1);
    y->vectors.len = 0;
    vec_for (i, &y->members) {
        struct year_series *m = &y->members.ptr[i];
        m->labels.labels.ptr = m->labels.at; /* the array may have moved */
        m->labels.at[1].value.ptr = m->labels.pod;
        m->labels.at[3].value.ptr = m->labels.zone;
        struct store_series s = { .labels = m->labels.labels,
                                  .profile_type = STR(YEAR_TYPE),
                                  .vectors = y->vectors.ptr + y->vectors.len };
        put_u64le(s.wid, m->id.lo);
        put_u64le(s.wid + 8, m->id.hi);
        y->vectors.len += m->parts;
        vec_push(&y->series, s);
    }
    vec_for (i, &y->parts) {
        const struct year_part *p = &y->parts.ptr[i];
        struct store_series *s = &y->series.ptr[p->series];
        struct store_vector *at = y->vectors.ptr + (s->vectors - y->vectors.ptr);
        at[s->len++] = (struct store_vector){ p->slot, y->all_nodes.ptr + p->first,
                                              y->all_values.ptr + p->first, p->len };
    }
    y->write = (struct store_write){ .tenant = STR(YEAR_TENANT),
                                     .service = str_c(y->o.service),
                                     .stacks = &y->view,
                                     .series = y->series.ptr,
                                     .len = y->series.len };
    return &y->write;
}

/* ---- the message ---- */

static Embertree__WriteSeries *pack_series(const struct store_series *s, struct arena *a)
{
    Embertree__WriteSeries *m = arena_alloc(a, sizeof(*m));
    Embertree__LabelPair *pairs = ARENA_ARRAY(a, Embertree__LabelPair, s->labels.len);
    Embertree__WriteVector *vectors = ARENA_ARRAY(a, Embertree__WriteVector, s->len);

    CHECK(m && pairs && vectors);
    embertree__write_series__init(m);
    m->labels = ARENA_ARRAY(a, Embertree__LabelPair *, s->labels.len);
    m->vectors = ARENA_ARRAY(a, Embertree__WriteVector *, s->len);
    CHECK(m->labels && m->vectors);
    for (size_t i = 0; i < s->labels.len; i++) {
        embertree__label_pair__init(&pairs[i]);
        pairs[i].name = pack_str(s->labels.ptr[i].name);
        pairs[i].value = pack_str(s->labels.ptr[i].value);
        m->labels[i] = &pairs[i];
    }
    for (size_t i = 0; i < s->len; i++) {
        embertree__write_vector__init(&vectors[i]);
        vectors[i].slot = s->vectors[i].slot;
        vectors[i].n_node = vectors[i].n_value = s->vectors[i].len;
        vectors[i].node = pack_ptr(s->vectors[i].nodes);
        vectors[i].value = pack_ptr(s->vectors[i].values);
        m->vectors[i] = &vectors[i];
    }
    m->n_labels = s->labels.len;
    m->n_vectors = s->len;
    m->profile_type = pack_str(s->profile_type);
    m->gauge = s->gauge;
    m->write_id = pack_str(str_n(s->wid, sizeof(s->wid)));
    return m;
}

void year_pack(const struct store_write *w, uint32_t shard, struct buf *out)
{
    struct arena *a = arena_new(GIB);
    Embertree__WriteRequest m = EMBERTREE__WRITE_REQUEST__INIT;
    Embertree__Stacks stacks;

    pack_stacks(w->stacks, &stacks);
    m.tenant = pack_str(w->tenant);
    m.service = pack_str(w->service);
    m.shard = shard;
    m.stacks = &stacks;
    m.series = ARENA_ARRAY(a, Embertree__WriteSeries *, w->len);
    CHECK(m.series);
    for (size_t i = 0; i < w->len; i++)
        m.series[m.n_series++] = pack_series(&w->series[i], a);
    size_t n = embertree__write_request__get_packed_size(&m);
    char *to = buf_room(out, n);
    CHECK(to);
    out->len += embertree__write_request__pack(&m, (uint8_t *)(void *)to);
    arena_free(a);
}

/* ---- pprof ---- */

struct pprof_ids {
    struct gen_pprof *g;
    const struct stacks *s;
    struct map_u64 functions, locations;
};

static uint64_t location_of(struct pprof_ids *x, uint32_t frame)
{
    const struct stacks *s = x->s;
    uint32_t func = s->frame_func.ptr[frame], file = s->frame_file.ptr[frame];
    uint32_t at = map_u64_get(&x->locations, frame);

    if (at != MAP_U64_EMPTY)
        return at;
    uint64_t pair = (uint64_t)func << 32 | file;
    uint32_t f = map_u64_get(&x->functions, pair);
    if (f == MAP_U64_EMPTY) {
        char name[4096], path[4096];
        struct str n = stacks_string_at(s, func), p = stacks_string_at(s, file);
        (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(n));
        (void)snprintf(path, sizeof(path), "%.*s", STR_ARG(p));
        f = (uint32_t)gen_function(x->g, name, path);
        (void)map_u64_put(&x->functions, pair, f);
    }
    at = (uint32_t)gen_location(x->g, f, s->frame_line.ptr[frame]);
    (void)map_u64_put(&x->locations, frame, at);
    return at;
}

void year_pprof(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots, struct buf *out)
{
    struct year_profile p = year_profile(y, pod, slot, slots);
    const struct stacks *s = &y->stacks.all;
    struct gen_pprof g;
    struct pprof_ids x = { .g = &g, .s = s };
    struct buf body;
    struct err e;

    gen_pprof_init(&g);
    buf_init(&body, 64 * MIB);
    g.time_ns = slot_to_ms(slot) * 1000000 + pod;
    g.duration_ns = (int64_t)slots * SLOT_MS * 1000000;
    gen_type(&g, "cpu", "nanoseconds");
    gen_period(&g, "cpu", "nanoseconds", (int64_t)y->stacks.row->unit);
    map_u64_init(&x.functions);
    map_u64_init(&x.locations);
    for (size_t i = 0; i < p.len; i++) {
        uint64_t locations[1024];
        size_t n = 0;
        for (uint32_t at = p.nodes[i]; at && n < ARRAY_LEN(locations);
             at = s->node_parent.ptr[at - 1])
            locations[n++] = location_of(&x, s->node_frame.ptr[at - 1]);
        gen_sample(&g, locations, n, (int64_t[]){ (int64_t)p.values[i] }, 1);
    }
    gen_pprof_finish(&g, &body);
    buf_reset(out);
    CHECK(!gzip(buf_str(&body), 6, out, &e));
    map_u64_deinit(&x.functions);
    map_u64_deinit(&x.locations);
    gen_pprof_deinit(&g);
    buf_deinit(&body);
}
