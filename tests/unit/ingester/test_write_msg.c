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
#include "ingester/write_msg.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/write_gen.h"

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
        { spoil_label_order, "label service_name after label zone" },
        { spoil_label_twice, "label service_name after label service_name" },
        { spoil_label_name, "has no name" },
        { spoil_value_count, "values" },
        { spoil_value_zero, "has the value 0" },
        { spoil_node_range, "node " },
        { spoil_node_order, " after node " },
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
        if (write_msg_decode(buf_str(&b), false, a, &m, &e) != ERR_INPUT ||
            !strstr(e.text, rows[i].want))
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

/* Bytes that are no message, and every cut of one that is. */
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
        cmocka_unit_test(test_cut_and_foreign_bytes),
        cmocka_unit_test(test_arena_too_small_is_a_limit),
        cmocka_unit_test(test_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
