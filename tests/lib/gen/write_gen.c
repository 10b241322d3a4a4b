/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/write_gen.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "proto/ingest.pb-c.h"

#define DEPTH_MAX 6
#define FUNCTIONS 5

struct sum {
    char *folded;
    uint64_t value;
};

void write_model_init(struct write_model *m)
{
    *m = (struct write_model){ .sums = map_str_new() };
}

void write_model_deinit(struct write_model *m)
{
    size_t pos = 0;
    struct str key;
    void *val;

    while (map_str_next(m->sums, &pos, &key, &val)) {
        struct sum *s = val;

        xfree(s->folded);
        xfree(s);
    }
    map_str_free(m->sums);
}

void write_model_add(struct write_model *m, struct str folded, uint64_t value)
{
    struct sum *s = map_str_get(m->sums, folded);

    if (!s) {
        s = XNEW(struct sum);
        s->folded = xmalloc(folded.len + 1);
        memcpy(s->folded, folded.ptr ? folded.ptr : "", folded.len);
        s->folded[folded.len] = '\0';
        CHECK(!map_str_put(m->sums, str_n(s->folded, folded.len), s));
    }
    s->value += value;
    m->total += value;
}

uint64_t write_model_get(const struct write_model *m, struct str folded)
{
    const struct sum *s = map_str_get(m->sums, folded);

    return s ? s->value : 0;
}

static bool contains(const struct write_model *a, const struct write_model *b)
{
    size_t pos = 0;
    struct str key;
    void *val;

    while (map_str_next(a->sums, &pos, &key, &val)) {
        uint64_t have = ((const struct sum *)val)->value;

        if (have != write_model_get(b, key)) {
            (void)fprintf(stderr, "%.*s: %" PRIu64 " and %" PRIu64 "\n", STR_ARG(key), have,
                          write_model_get(b, key));
            return false;
        }
    }
    return true;
}

bool write_model_eq(const struct write_model *a, const struct write_model *b)
{
    return a->total == b->total && contains(a, b) && contains(b, a);
}

/* The path of a node, root first. */
static void folded_of(const struct stacks_view *v, uint32_t node, struct buf *out)
{
    uint32_t path[256];
    size_t depth = 0, *off = XNEW_ARRAY(size_t, v->strings + 1);

    for (size_t i = 0; i < v->strings; i++)
        off[i + 1] = off[i] + v->string_len[i];
    for (; node; node = v->node_parent[node - 1]) {
        CHECK(depth < ARRAY_LEN(path));
        path[depth++] = v->frame_func[v->node_frame[node - 1]];
    }
    buf_reset(out);
    while (depth-- > 0) {
        uint32_t s = path[depth];

        if (out->len)
            (void)buf_add_c(out, ';');
        (void)buf_add(out, v->string_data.ptr + off[s], v->string_len[s]);
    }
    xfree(off);
}

void write_model_add_stacks(struct write_model *m, const struct stacks_view *v,
                            const uint32_t *nodes, const uint64_t *values, size_t len)
{
    struct buf folded;

    buf_init(&folded, MIB);
    for (size_t i = 0; i < len; i++) {
        folded_of(v, nodes[i], &folded);
        write_model_add(m, buf_str(&folded), values[i]);
    }
    buf_deinit(&folded);
}

static uint32_t random_node(struct stacks *s, struct prng *p)
{
    uint32_t node = 0;
    uint64_t depth = prng_below(p, DEPTH_MAX + 1);

    for (uint64_t d = 0; d < depth; d++) {
        char name[16];
        struct frame f = { 0 };

        (void)snprintf(name, sizeof(name), "f%u", (unsigned)prng_below(p, FUNCTIONS));
        f.func = stacks_string(s, str_c(name));
        node = stacks_node(s, node, stacks_frame(s, &f));
    }
    return node;
}

static uint32_t one_node(struct stacks *s, const char *name)
{
    struct frame f = { .func = stacks_string(s, str_c(name)) };

    return stacks_node(s, 0, stacks_frame(s, &f));
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static void fill_stacks(const struct stacks_view *v, Embertree__Stacks *m)
{
#define COLUMN(p) (void *)(uintptr_t)(p)
    embertree__stacks__init(m);
    m->string_data = (ProtobufCBinaryData){ v->string_data.len, COLUMN(v->string_data.ptr) };
    m->string_len = COLUMN(v->string_len);
    m->n_string_len = v->strings;
    m->frame_func = COLUMN(v->frame_func);
    m->frame_file = COLUMN(v->frame_file);
    m->frame_line = COLUMN(v->frame_line);
    m->frame_module = COLUMN(v->frame_module);
    m->frame_addr = COLUMN(v->frame_addr);
    m->n_frame_func = m->n_frame_file = m->n_frame_line = m->n_frame_module = m->n_frame_addr =
        v->frames;
    m->node_parent = COLUMN(v->node_parent);
    m->node_frame = COLUMN(v->node_frame);
    m->n_node_parent = m->n_node_frame = v->nodes;
#undef COLUMN
}

static void pack(const struct write_gen *g, const struct stacks_view *view, uint32_t *nodes,
                 uint64_t *values, size_t len, struct buf *out)
{
    const char *service = g->service ? g->service : "svc";
    Embertree__WriteRequest m = EMBERTREE__WRITE_REQUEST__INIT;
    Embertree__WriteSeries series = EMBERTREE__WRITE_SERIES__INIT, *series_list = &series;
    Embertree__WriteVector vector = EMBERTREE__WRITE_VECTOR__INIT, *vector_list = &vector;
    Embertree__LabelPair pairs[2], *pair_list[2] = { &pairs[0], &pairs[1] };
    Embertree__Stacks stacks;
    uint8_t wid[16] = { 0 };
    char *to;

    fill_stacks(view, &stacks);
    embertree__label_pair__init(&pairs[0]);
    embertree__label_pair__init(&pairs[1]);
    pairs[0].name = bytes("pod");
    pairs[0].value = bytes(g->pod ? g->pod : "p0");
    pairs[1].name = bytes("service_name");
    pairs[1].value = bytes(service);
    put_u64le(wid, g->wid);
    vector.slot = g->slot;
    vector.node = nodes;
    vector.value = values;
    vector.n_node = vector.n_value = len;
    series.labels = pair_list;
    series.n_labels = 2;
    series.profile_type = bytes(g->profile_type ? g->profile_type : WRITE_GEN_CPU);
    series.gauge = g->gauge;
    series.write_id = (ProtobufCBinaryData){ sizeof(wid), wid };
    series.vectors = &vector_list;
    series.n_vectors = 1;
    m.tenant = bytes(g->tenant ? g->tenant : "t");
    m.service = bytes(service);
    m.shard = g->shard;
    m.stacks = &stacks;
    m.series = &series_list;
    m.n_series = 1;
    to = buf_room(out, embertree__write_request__get_packed_size(&m));
    CHECK(to);
    out->len += embertree__write_request__pack(&m, (uint8_t *)(void *)to);
}

void write_gen_pack(const struct write_gen *g, struct prng *p, struct buf *out,
                    struct write_model *m)
{
    uint32_t want = g->leaf ? 1 : g->stacks ? g->stacks : 5;
    uint32_t *nodes = XNEW_ARRAY(uint32_t, want);
    uint64_t *values = XNEW_ARRAY(uint64_t, want);
    struct stacks stacks;
    struct stacks_view view;
    size_t len = 0;

    stacks_init(&stacks, 16 * MIB, 1);
    for (uint32_t i = 0; i < want; i++)
        nodes[i] = g->leaf ? one_node(&stacks, g->leaf) : random_node(&stacks, p);
    qsort(nodes, want, sizeof(*nodes), by_number);
    for (uint32_t i = 0; i < want; i++) {
        if (len == 0 || nodes[len - 1] != nodes[i])
            nodes[len++] = nodes[i];
        values[len - 1] = g->leaf ? g->value : 1 + prng_below(p, 1000);
    }
    view = stacks_view(&stacks);
    pack(g, &view, nodes, values, len, out);
    if (m)
        write_model_add_stacks(m, &view, nodes, values, len);
    stacks_deinit(&stacks);
    xfree(nodes);
    xfree(values);
}
