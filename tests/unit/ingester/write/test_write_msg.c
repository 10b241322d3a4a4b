/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "ingester/write/write_msg.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/gen/write_gen.h"

#define SLOT 40000000u

static void test_what_was_packed_comes_out(void **state)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (uint32_t i = 0; i < 200; i++) {
        struct write_gen g = { .slot = SLOT + i,
                               .wid = i,
                               .shard = 3,
                               .gauge = i % 2,
                               .stacks = 1 + (uint32_t)prng_below(&p, 50) };
        struct write_model want, got;
        struct write_msg m;
        struct buf b;
        struct arena *a;
        struct err e = { 0 };

        buf_init(&b, 16 * MIB);
        write_model_init(&want);
        write_model_init(&got);
        write_gen_pack(&g, &p, &b, &want);
        a = arena_new(write_msg_arena_bytes(b.len));
        if (write_msg_decode(buf_str(&b), false, a, &m, &e))
            fail_msg("%s", e.text);
        assert_int_equal(m.shard, 3);
        assert_true(str_eqc(m.write.tenant, "t"));
        assert_true(str_eqc(m.write.service, "svc"));
        assert_int_equal(m.write.len, 1);
        assert_int_equal(m.write.series[0].gauge, i % 2);
        assert_int_equal(m.write.series[0].wid[0], i);
        assert_true(str_eqc(m.write.series[0].profile_type, WRITE_GEN_CPU));
        assert_true(str_eqc(labels_get(&m.write.series[0].labels, STR("pod")), "p0"));
        assert_int_equal(m.write.series[0].vectors[0].slot, SLOT + i);
        write_model_add_stacks(&got, m.write.stacks, m.write.series[0].vectors[0].nodes,
                               m.write.series[0].vectors[0].values,
                               m.write.series[0].vectors[0].len);
        assert_true(write_model_eq(&want, &got));
        write_model_deinit(&want);
        write_model_deinit(&got);
        arena_free(a);
        buf_deinit(&b);
    }
}

/* ---- a good message, spoilt in one place ---------------------------------------------------- */

static void set_bytes(ProtobufCBinaryData *b, const char *s)
{
    free(b->data);
    b->len = strlen(s);
    b->data = (uint8_t *)(void *)strdup(s);
}

static void spoil_tenant(Embertree__WriteRequest *m)
{
    set_bytes(&m->tenant, "");
}
static void spoil_service(Embertree__WriteRequest *m)
{
    set_bytes(&m->service, "");
}
static void spoil_write_id(Embertree__WriteRequest *m)
{
    m->series[0]->write_id.len = 15;
}
static void spoil_profile_type(Embertree__WriteRequest *m)
{
    set_bytes(&m->series[0]->profile_type, "process_cpu:cpu");
}
static void spoil_label_order(Embertree__WriteRequest *m)
{
    set_bytes(&m->series[0]->labels[0]->name, "zone");
}
static void spoil_label_twice(Embertree__WriteRequest *m)
{
    set_bytes(&m->series[0]->labels[0]->name, "service_name");
}
static void spoil_label_name(Embertree__WriteRequest *m)
{
    set_bytes(&m->series[0]->labels[0]->name, "");
}
static void spoil_value_count(Embertree__WriteRequest *m)
{
    m->series[0]->vectors[0]->n_value--;
}
static void spoil_value_zero(Embertree__WriteRequest *m)
{
    m->series[0]->vectors[0]->value[1] = 0;
}
static void spoil_node_range(Embertree__WriteRequest *m)
{
    Embertree__WriteVector *v = m->series[0]->vectors[0];

    v->node[v->n_node - 1] = (uint32_t)m->stacks->n_node_parent + 1;
}
static void spoil_node_order(Embertree__WriteRequest *m)
{
    m->series[0]->vectors[0]->node[1] = m->series[0]->vectors[0]->node[0];
}
static void spoil_parent(Embertree__WriteRequest *m)
{
    m->stacks->node_parent[0] = 1;
}
static void spoil_node_frame(Embertree__WriteRequest *m)
{
    m->stacks->node_frame[0] = (uint32_t)m->stacks->n_frame_func;
}
static void spoil_frame_columns(Embertree__WriteRequest *m)
{
    m->stacks->n_frame_addr--;
}
static void spoil_node_columns(Embertree__WriteRequest *m)
{
    m->stacks->n_node_frame--;
}
static void spoil_string_len(Embertree__WriteRequest *m)
{
    m->stacks->string_len[1] = UINT32_MAX;
}
static void spoil_no_series(Embertree__WriteRequest *m)
{
    m->n_series = 0;
}
static void spoil_no_vectors(Embertree__WriteRequest *m)
{
    m->series[0]->n_vectors = 0;
}
static void spoil_no_labels(Embertree__WriteRequest *m)
{
    m->series[0]->n_labels = 0;
}

static void pack_spoilt(void (*spoil)(Embertree__WriteRequest *m), struct buf *out)
{
    struct write_gen g = { .slot = SLOT, .stacks = 40 };
    Embertree__WriteRequest *m;
    size_t series, vectors, labels;
    struct prng p;
    struct buf b;
    char *to;

    prng_init(&p, 7);
    buf_init(&b, MIB);
    write_gen_pack(&g, &p, &b, NULL);
    m = embertree__write_request__unpack(NULL, b.len, (const uint8_t *)(const void *)b.ptr);
    assert_non_null(m);
    series = m->n_series;
    vectors = m->series[0]->n_vectors;
    labels = m->series[0]->n_labels;
    spoil(m);
    to = buf_room(out, embertree__write_request__get_packed_size(m));
    assert_non_null(to);
    out->len += embertree__write_request__pack(m, (uint8_t *)(void *)to);
    m->n_series = series; /* so that all is freed */
    m->series[0]->n_vectors = vectors;
    m->series[0]->n_labels = labels;
    embertree__write_request__free_unpacked(m, NULL);
    buf_deinit(&b);
}

static void test_each_fault_is_named(void **state)
{
    static const struct {
        void (*spoil)(Embertree__WriteRequest *m);
        const char *want;
    } rows[] = {
        { spoil_tenant, "no tenant" },
        { spoil_service, "no service" },
        { spoil_write_id, "write id of 15 bytes" },
        { spoil_profile_type, "series 0: " },
        { spoil_label_order, "series 0: labels are not sorted" },
        { spoil_label_twice, "series 0: labels are not sorted" },
        { spoil_label_name, "or a name is empty" },
        { spoil_value_count, "values" },
        { spoil_value_zero, " is 0" },
        { spoil_node_range, "series 0: node " },
        { spoil_node_order, "nodes do not ascend at 1" },
        { spoil_parent, "WriteRequest" },
        { spoil_node_frame, "WriteRequest" },
        { spoil_frame_columns, "columns of frames differ" },
        { spoil_node_columns, "columns of nodes differ" },
        { spoil_string_len, "WriteRequest" },
        { spoil_no_series, "0 series" },
        { spoil_no_vectors, "no vectors" },
        { spoil_no_labels, "no labels" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a;
        struct write_msg m;
        struct buf b;
        struct err e = { 0 };

        buf_init(&b, MIB);
        pack_spoilt(rows[i].spoil, &b);
        a = arena_new(write_msg_arena_bytes(b.len));
        int code = write_msg_decode(buf_str(&b), false, a, &m, &e);
        if (!code) /* the engine looks at what the parts say */
            code = store_write_check(&m.write, &e);
        if (code != ERR_INPUT || !strstr(e.text, rows[i].want))
            fail_msg("row %zu (%s): %d %s", i, rows[i].want, e.code, e.text);
        arena_free(a);
        buf_deinit(&b);
    }
}

static void test_a_message_without_stacks_is_the_empty_stack(void **state)
{
    Embertree__WriteRequest m = EMBERTREE__WRITE_REQUEST__INIT;
    Embertree__WriteSeries series = EMBERTREE__WRITE_SERIES__INIT, *list = &series;
    Embertree__WriteVector vector = EMBERTREE__WRITE_VECTOR__INIT, *vectors = &vector;
    Embertree__LabelPair pair = EMBERTREE__LABEL_PAIR__INIT, *pairs = &pair;
    uint8_t out[512], wid[16] = { 1 }, t[] = "t", type[] = WRITE_GEN_CPU;
    uint32_t node = 0;
    uint64_t value = 7;
    struct write_msg got;
    struct err e = { 0 };
    struct arena *a = arena_new(MIB);
    size_t len;

    (void)state;
    pair.name = pair.value = (ProtobufCBinaryData){ 1, t };
    vector.slot = 1;
    vector.node = &node;
    vector.value = &value;
    vector.n_node = vector.n_value = 1;
    series.labels = &pairs;
    series.n_labels = 1;
    series.profile_type = (ProtobufCBinaryData){ sizeof(type) - 1, type };
    series.write_id = (ProtobufCBinaryData){ 16, wid };
    series.vectors = &vectors;
    series.n_vectors = 1;
    m.tenant = m.service = (ProtobufCBinaryData){ 1, t };
    m.series = &list;
    m.n_series = 1;
    len = embertree__write_request__pack(&m, out);
    assert_int_equal(write_msg_decode(str_n(out, len), false, a, &got, &e), 0);
    assert_int_equal(got.stacks.nodes, 0);
    assert_int_equal(got.write.series[0].vectors[0].values[0], 7);
    arena_free(a);
}

/* ---- beside protobuf-c ----------------------------------------------------------------------- */

static void column_eq(const void *got, size_t got_len, const void *want, size_t want_len,
                      size_t width)
{
    assert_int_equal(got_len, want_len);
    if (want_len)
        assert_memory_equal(got, want, want_len * width);
}

static void str_same(struct str got, ProtobufCBinaryData want)
{
    assert_true(str_eq(got, str_n(want.data, want.len)));
}

static void stacks_same(const struct stacks_view *got, const Embertree__Stacks *want)
{
    str_same(got->string_data, want->string_data);
    column_eq(got->string_len, got->strings, want->string_len, want->n_string_len, 4);
    column_eq(got->frame_func, got->frames, want->frame_func, want->n_frame_func, 4);
    column_eq(got->frame_file, got->frames, want->frame_file, want->n_frame_file, 4);
    column_eq(got->frame_line, got->frames, want->frame_line, want->n_frame_line, 4);
    column_eq(got->frame_module, got->frames, want->frame_module, want->n_frame_module, 4);
    column_eq(got->frame_addr, got->frames, want->frame_addr, want->n_frame_addr, 8);
    column_eq(got->node_parent, got->nodes, want->node_parent, want->n_node_parent, 4);
    column_eq(got->node_frame, got->nodes, want->node_frame, want->n_node_frame, 4);
}

static void series_same(const struct store_series *got, const Embertree__WriteSeries *want)
{
    assert_memory_equal(got->wid, want->write_id.data, 16);
    str_same(got->profile_type, want->profile_type);
    assert_int_equal(got->gauge, want->gauge != 0);
    assert_int_equal(got->labels.len, want->n_labels);
    for (size_t i = 0; i < want->n_labels; i++) {
        str_same(got->labels.ptr[i].name, want->labels[i]->name);
        str_same(got->labels.ptr[i].value, want->labels[i]->value);
    }
    assert_int_equal(got->len, want->n_vectors);
    for (size_t i = 0; i < want->n_vectors; i++) {
        const Embertree__WriteVector *v = want->vectors[i];
        assert_int_equal(got->vectors[i].slot, v->slot);
        column_eq(got->vectors[i].nodes, got->vectors[i].len, v->node, v->n_node, 4);
        column_eq(got->vectors[i].values, got->vectors[i].len, v->value, v->n_value, 8);
    }
    assert_int_equal(got->exemplars_len, want->n_exemplars);
    for (size_t i = 0; i < want->n_exemplars; i++) {
        const Embertree__WriteExemplar *x = want->exemplars[i];
        assert_int_equal(got->exemplars[i].kind, x->kind);
        assert_int_equal(got->exemplars[i].duration_ms, x->duration_ms);
        str_same(got->exemplars[i].id, x->id);
        column_eq(got->exemplars[i].nodes, got->exemplars[i].len, x->node, x->n_node, 4);
        column_eq(got->exemplars[i].values, got->exemplars[i].len, x->value, x->n_value, 8);
    }
}

/* Whatever we take of these bytes, protobuf-c reads the same there. True: it was taken. */
static bool same_as_protobuf(struct str bytes, bool told)
{
    struct arena *a = arena_new(write_msg_arena_bytes(bytes.len));
    Embertree__WriteRequest *want;
    struct write_msg m;
    struct err e;
    bool taken = write_msg_decode(bytes, told, a, &m, &e) == 0;

    if (taken) {
        want = embertree__write_request__unpack(NULL, bytes.len, (const void *)bytes.ptr);
        assert_non_null(want);
        str_same(m.write.tenant, want->tenant);
        str_same(m.write.service, want->service);
        assert_int_equal(m.shard, want->shard);
        assert_int_equal(m.map_version, want->map_version);
        assert_int_equal(m.write.len, want->n_series);
        for (size_t i = 0; i < want->n_series; i++)
            series_same(&m.write.series[i], want->series[i]);
        if (told) {
            assert_memory_equal(m.told.session, want->told->session.data, DICT_SESSION_BYTES);
            assert_int_equal(m.told.from.strings, want->told->strings);
            assert_int_equal(m.told.from.frames, want->told->frames);
            assert_int_equal(m.told.from.nodes, want->told->nodes);
            column_eq(m.told.node, m.told.nodes, want->told->node, want->told->n_node, 4);
            if (want->told->more)
                stacks_same(&m.told.more, want->told->more);
        } else if (want->stacks) {
            stacks_same(&m.stacks, want->stacks);
        }
        embertree__write_request__free_unpacked(want, NULL);
    }
    arena_free(a);
    return taken;
}

/* A message with all there is, packed by protobuf-c. */
static void pack_rich(struct prng *p, bool told, struct buf *out)
{
    struct write_gen g = { .slot = SLOT, .stacks = 1 + (uint32_t)prng_below(p, 20) };
    uint8_t id[16] = "0123456789abcde", session[DICT_SESSION_BYTES] = "session of tests";
    uint32_t nodes[] = { 1, 2, 3 };
    uint64_t values[] = { 7, UINT64_MAX, 1 };
    Embertree__WriteExemplar x[2], *list[2] = { &x[0], &x[1] };
    Embertree__Told t = EMBERTREE__TOLD__INIT;
    Embertree__WriteRequest *m;
    Embertree__Stacks *stacks;
    struct buf b;
    char *to;

    buf_init(&b, MIB);
    write_gen_pack(&g, p, &b, NULL);
    m = embertree__write_request__unpack(NULL, b.len, (const void *)b.ptr);
    assert_non_null(m);
    stacks = m->stacks;
    for (uint32_t i = 0; i < 2; i++) {
        embertree__write_exemplar__init(&x[i]);
        x[i].kind = 1 + i;
        x[i].id = (ProtobufCBinaryData){ 8 + i, id };
        x[i].duration_ms = (uint32_t)prng_below(p, 100000);
        x[i].node = nodes;
        x[i].value = values;
        x[i].n_node = x[i].n_value = prng_below(p, 4);
    }
    m->series[0]->exemplars = list;
    m->series[0]->n_exemplars = 2;
    m->received_ms = -5;
    m->map_version = prng_below(p, UINT64_MAX);
    if (told) {
        t.session = (ProtobufCBinaryData){ sizeof(session), session };
        t.strings = t.frames = t.nodes = 1 + (uint32_t)prng_below(p, 300);
        t.more = prng_below(p, 2) ? m->stacks : NULL;
        t.node = nodes;
        t.n_node = 3;
        m->told = &t;
        m->stacks = NULL;
    }
    to = buf_room(out, embertree__write_request__get_packed_size(m));
    assert_non_null(to);
    out->len += embertree__write_request__pack(m, (uint8_t *)(void *)to);
    m->series[0]->exemplars = NULL;
    m->series[0]->n_exemplars = 0;
    m->told = NULL;
    m->stacks = stacks;
    embertree__write_request__free_unpacked(m, NULL);
    buf_deinit(&b);
}

static void test_reads_what_protobuf_reads(void **state)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);
    size_t spoilt = 0, taken = 0;
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < 200; i++) {
        bool told = i % 2;
        struct buf b;

        buf_init(&b, MIB);
        pack_rich(&p, told, &b);
        assert_true(same_as_protobuf(buf_str(&b), told));
        /* Every alignment, and a byte changed here and there. */
        for (size_t k = 0; k < 40; k++) {
            char *copy = xmalloc(b.len + 8);
            memcpy(copy + k % 8, b.ptr, b.len);
            if (k >= 8) {
                copy[k % 8 + prng_below(&p, b.len)] ^= (char)(1 << prng_below(&p, 8));
                spoilt++;
            }
            taken += same_as_protobuf(str_n(copy + k % 8, b.len), told) && k >= 8;
            xfree(copy);
        }
        buf_deinit(&b);
    }
    assert_true(taken > 0 && taken < spoilt);
}

/* Forms that protobuf allows and our own distributors do not send are refused, not guessed. */
static void test_parts_stand_once_and_in_one_piece(void **state)
{
    static const char *const more[] = {
        "\x22\x00",                 /* stacks again */
        "\x0a\x01t",                /* tenant again */
        "\x18\xff\xff\xff\xff\x1f", /* shard over 32 bits */
        "\x19xxxxxxxx",             /* shard as a fixed64 */
        "\x2b",                     /* a group */
        "\x2a\x02\x2d\x00",         /* another series, its vector not bytes */
    };
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 3);
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct arena *a = arena_new(MIB);
        struct write_msg m;
        struct buf b;

        buf_init(&b, MIB);
        pack_rich(&p, false, &b);
        size_t len = i < 2 ? 2 : i == 6 ? 4 : strlen(more[i]);
        assert_true(buf_add(&b, more[i], len));
        if (write_msg_decode(buf_str(&b), false, a, &m, &e) != ERR_INPUT)
            fail_msg("row %zu", i);
        buf_deinit(&b);
        arena_free(a);
    }
}

/* Bytes that are not a message, and a message that is cut at every byte. */
static void test_cut_and_foreign_bytes(void **state)
{
    struct write_gen g = { .slot = SLOT };
    struct prng p;
    struct buf b;

    (void)state;
    prng_init(&p, 11);
    buf_init(&b, MIB);
    write_gen_pack(&g, &p, &b, NULL);
    for (size_t len = 0; len < b.len; len++) {
        struct str cut = str_n(xmemdup(b.ptr, len ? len : 1), len);
        struct arena *a = arena_new(write_msg_arena_bytes(len));
        struct write_msg m;
        struct err e = { 0 };

        assert_int_equal(write_msg_decode(cut, false, a, &m, &e), ERR_INPUT);
        arena_free(a);
        xfree((char *)(uintptr_t)cut.ptr);
    }
    buf_deinit(&b);
}

static void test_arena_too_small_is_a_limit(void **state)
{
    struct write_gen g = { .slot = SLOT, .stacks = 200 };
    struct prng p;
    struct buf b;
    int limits = 0;

    (void)state;
    prng_init(&p, 12);
    buf_init(&b, MIB);
    write_gen_pack(&g, &p, &b, NULL);
    for (size_t limit = 256; limit < 2 * b.len; limit += 256) {
        struct arena *a = arena_new(limit);
        struct write_msg m;
        struct err e = { 0 };
        int code = write_msg_decode(buf_str(&b), false, a, &m, &e);

        assert_true(code == 0 || code == ERR_LIMIT);
        limits += code == ERR_LIMIT;
        arena_free(a);
    }
    assert_true(limits > 0);
    buf_deinit(&b);
}

static void test_reply(void **state)
{
    struct store_result r = { .stored = 2, .duplicates = 300 };
    Embertree__WriteReply *m;
    struct buf b;

    (void)state;
    buf_init(&b, 64);
    write_reply_pack(&r, &b);
    m = embertree__write_reply__unpack(NULL, b.len, (const uint8_t *)(const void *)b.ptr);
    assert_non_null(m);
    assert_int_equal(m->stored, 2);
    assert_int_equal(m->duplicates, 300);
    embertree__write_reply__free_unpacked(m, NULL);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_packed_comes_out),
        cmocka_unit_test(test_each_fault_is_named),
        cmocka_unit_test(test_a_message_without_stacks_is_the_empty_stack),
        cmocka_unit_test(test_reads_what_protobuf_reads),
        cmocka_unit_test(test_parts_stand_once_and_in_one_piece),
        cmocka_unit_test(test_cut_and_foreign_bytes),
        cmocka_unit_test(test_arena_too_small_is_a_limit),
        cmocka_unit_test(test_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
