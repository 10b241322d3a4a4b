/* SPDX-License-Identifier: Apache-2.0
 *
 * What the distributor packs, read by the ingester's own decoder: both ends of proto/ingest.proto.
 * And by protobuf-c, which packs what it read into the same bytes: ingesters of any version may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "distributor/formats/pprof/symbol_session.h"
#include "distributor/send/pack.h"
#include "ingester/write/write_msg.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

struct packed {
    struct dist_push d;
    struct leaves leaves;
    struct write_secret secret;
    struct write_base base;
    struct packing in;
};

static void pack_as(struct packed *p, struct str body, int64_t window_ms)
{
    struct limits l = limits_default();
    struct window w = { DIST_NOW_MS - window_ms, DIST_NOW_MS };

    assert_true(leaves_of(&w, (size_t)l.leaves, p->d.arena, &p->leaves));
    p->secret = (struct write_secret){ 5, 6 };
    p->base = write_base_of(&p->secret, &(struct write_sender){ .key = STR("key") }, &p->d.in,
                            &p->d.push, body, env_real());
    p->in = (struct packing){ .tenant = STR("tenant"),
                              .shard = 3,
                              .map_version = 9,
                              .received_ms = DIST_NOW_MS,
                              .push = &p->d.push,
                              .leaves = &p->leaves,
                              .secret = &p->secret,
                              .write_base = &p->base };
}

static void open_push(struct packed *p, struct str body, int64_t window_ms)
{
    struct limits l = limits_default();
    struct err e;

    if (dist_decode(&p->d, "app{env=prod}", "pprof", NULL, body, &l, &e))
        fail_msg("%s", e.text);
    pack_as(p, body, window_ms);
}

/* Field by field in its order, lengths and numbers in their shortest form, nothing unknown. */
static void check_as_protobuf_c(struct str bytes)
{
    Embertree__WriteRequest *m =
        embertree__write_request__unpack(NULL, bytes.len, (const uint8_t *)(const void *)bytes.ptr);

    assert_non_null(m);
    assert_int_equal(m->base.n_unknown_fields, 0);
    assert_true(!m->told || m->told->base.n_unknown_fields == 0);
    for (size_t i = 0; i < m->n_series; i++)
        assert_int_equal(m->series[i]->base.n_unknown_fields, 0);
    assert_int_equal(embertree__write_request__get_packed_size(m), bytes.len);
    uint8_t *again = xmalloc(bytes.len);
    assert_int_equal(embertree__write_request__pack(m, again), bytes.len);
    assert_memory_equal(again, bytes.ptr, bytes.len);
    xfree(again);
    embertree__write_request__free_unpacked(m, NULL);
}

/* The sum over all vectors of a series, by node. */
static uint64_t sum_of(const struct store_series *s, uint32_t node)
{
    uint64_t sum = 0;

    for (size_t v = 0; v < s->len; v++)
        for (size_t i = 0; i < s->vectors[v].len; i++)
            if (s->vectors[v].nodes[i] == node)
                sum += s->vectors[v].values[i];
    return sum;
}

static void check_series(const struct push_series *want, const struct store_series *got)
{
    assert_true(labels_eq(&want->labels, &got->labels));
    assert_true(str_eq(want->profile_type, got->profile_type));
    assert_int_equal(want->gauge, got->gauge);
    for (size_t i = 0; i < want->len; i++)
        assert_int_equal(sum_of(got, want->nodes[i]), want->values[i]);
    assert_int_equal(want->exemplars_len, got->exemplars_len);
    for (size_t i = 0; i < got->exemplars_len; i++) {
        const struct store_exemplar *x = &got->exemplars[i];
        size_t k = 0;
        while (k < want->exemplars_len &&
               (want->exemplars[k].kind != x->kind || !str_eq(want->exemplars[k].id, x->id)))
            k++;
        assert_true(k < want->exemplars_len && want->exemplars[k].len == x->len);
        assert_memory_equal(want->exemplars[k].nodes, x->nodes, x->len * sizeof(*x->nodes));
        assert_memory_equal(want->exemplars[k].values, x->values, x->len * sizeof(*x->values));
        assert_true(i == 0 || x[-1].kind < x->kind || str_cmp(x[-1].id, x->id) < 0);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int64_t windows[] = { 0, 10000, 15000, 30000, 600000 };
    uint64_t seed = (uint64_t)time(NULL);
    struct prng p;

    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 20; round++) {
        struct gen_random r;
        struct packed pk;
        struct buf out, again;
        struct write_msg m;
        struct err e = { 0 };
        gen_random_pprof(&p, 1 + prng_below(&p, 60), &r);
        open_push(&pk, buf_str(&r.body), windows[prng_below(&p, ARRAY_LEN(windows))]);
        if (pk.d.push.series_len == 0) { /* all values were zero: such a push is never sent */
            dist_push_free(&pk.d);
            gen_random_deinit(&r);
            continue;
        }
        buf_init(&out, 64 * MIB);
        buf_init(&again, 64 * MIB);
        size_t used = arena_used(pk.d.arena);
        assert_int_equal(pack_write(&pk.in, &out, &e), 0);
        assert_int_equal(arena_used(pk.d.arena), used); /* scratch is given back */
        assert_int_equal(pack_write(&pk.in, &again, &e), 0);
        assert_true(str_eq(buf_str(&out), buf_str(&again))); /* a retry is the same bytes */
        check_as_protobuf_c(buf_str(&out));
        CLEANUP(arena_freep) struct arena *a = arena_new(write_msg_arena_bytes(out.len));
        if (write_msg_decode(buf_str(&out), false, a, &m, &e))
            fail_msg("the ingester says: %s", e.text);
        assert_int_equal(m.shard, 3);
        assert_true(str_eqc(m.write.tenant, "tenant") && str_eqc(m.write.service, "app"));
        assert_int_equal(m.write.len, pk.d.push.series_len);
        assert_true(m.write.print == pk.base.print);
        for (size_t i = 0; i < m.write.len; i++) {
            uint8_t id[WRITE_ID_BYTES];
            check_series(&pk.d.push.series[i], &m.write.series[i]);
            write_id(&pk.secret, &pk.base, &pk.d.push.series[i], id);
            assert_memory_equal(m.write.series[i].wid, id, WRITE_ID_BYTES);
        }
        buf_deinit(&out);
        buf_deinit(&again);
        dist_push_free(&pk.d);
        gen_random_deinit(&r);
    }
}

/* ---- stacks by number ---- */

static struct symbol_session *take_known(void *cookie, const struct push *push)
{
    (void)push;
    return symbol_session_ref(cookie);
}

static void put_known(void *cookie, struct symbol_session *k)
{
    (void)cookie;
    (void)k;
}

static void open_known(struct packed *p, struct symbol_session *k, struct str body)
{
    struct ingest_raw raw = { .name = STR("app{env=prod}"), .format = STR("pprof") };
    struct limits l = limits_default();
    struct err e;

    p->d = (struct dist_push){ .arena = arena_new((size_t)l.decode_bytes) };
    push_init(&p->d.push, p->d.arena, &l, UINT64_C(0x5eed));
    p->d.push.memory = (struct push_memory){ take_known, put_known, k };
    if (ingest_parse(&raw, &l, DIST_NOW_MS, p->d.arena, &p->d.in, &e) ||
        formats_decode(&(struct decode_job){ &p->d.in, &l, DIST_NOW_MS, &p->d.push }, body, &e))
        fail_msg("%s", e.text);
    pack_as(p, body, 0);
    p->in.tenant = STR(""); /* left out, as all that is empty or 0 */
    p->in.shard = 0;
    p->in.map_version = UINT64_MAX;
    p->in.received_ms = -1;
    p->in.distributor = UINT64_C(1) << 63;
    p->in.epoch = 128;
}

static void check_u32s(const uint32_t *got, size_t n, const uint32_t *want)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], want[i]);
}

static void check_told(const Embertree__Told *t, const struct push *p,
                       const struct symbol_session_counts *told)
{
    struct stacks_view v = stacks_view(&p->known->stacks);
    const struct symbol_session_counts *upto = &p->known_upto;
    const Embertree__Stacks *more = t->more;

    assert_true(str_eq(str_n(t->session.data, t->session.len),
                       str_n(p->known->session, SYMBOL_SESSION_BYTES)));
    assert_int_equal(t->n_node, p->known_len);
    check_u32s(t->node, t->n_node, p->known_nodes);
    assert_true(t->strings == told->strings && t->frames == told->frames &&
                t->nodes == told->nodes);
    assert_int_equal(!more, told->strings >= upto->strings && told->frames >= upto->frames &&
                                told->nodes >= upto->nodes);
    if (!more)
        return;
    assert_int_equal(more->n_string_len, upto->strings - told->strings);
    check_u32s(more->string_len, more->n_string_len, v.string_len + told->strings);
    assert_int_equal(more->n_frame_func, upto->frames - told->frames);
    check_u32s(more->frame_func, more->n_frame_func, v.frame_func + told->frames);
    check_u32s(more->frame_file, more->n_frame_file, v.frame_file + told->frames);
    check_u32s(more->frame_line, more->n_frame_line, v.frame_line + told->frames);
    check_u32s(more->frame_module, more->n_frame_module, v.frame_module + told->frames);
    for (size_t i = 0; i < more->n_frame_addr; i++)
        assert_int_equal(more->frame_addr[i], v.frame_addr[told->frames + i]);
    assert_int_equal(more->n_node_parent, upto->nodes - told->nodes);
    check_u32s(more->node_parent, more->n_node_parent, v.node_parent + told->nodes - 1);
    check_u32s(more->node_frame, more->n_node_frame, v.node_frame + told->nodes - 1);
    size_t bytes = 0;
    for (size_t i = 0; i < more->n_string_len; i++)
        bytes += more->string_len[i];
    assert_int_equal(more->string_data.len, bytes);
    if (bytes)
        assert_memory_equal(more->string_data.data,
                            v.string_data.ptr + p->known->stacks.string_off.ptr[told->strings],
                            bytes);
}

static void test_told(void **state)
{
    (void)state;
    static const uint8_t session[SYMBOL_SESSION_BYTES] = "session";
    struct symbol_session *k =
        symbol_session_new(session, 7, limits_default().symbol_keep_bytes, 64 * MIB);
    uint64_t seed = (uint64_t)time(NULL);
    size_t packed = 0;
    struct prng p;

    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 40; round++) {
        struct symbol_session_counts told = k->told;
        struct gen_random r;
        struct packed pk;
        struct buf out;
        struct err e = { 0 };
        gen_random_pprof(&p, 1 + prng_below(&p, 60), &r);
        open_known(&pk, k, buf_str(&r.body));
        buf_init(&out, 64 * MIB);
        if (pk.d.push.series_len && pk.d.push.known) {
            assert_int_equal(pack_write(&pk.in, &out, &e), 0);
            check_as_protobuf_c(buf_str(&out));
            Embertree__WriteRequest *m = embertree__write_request__unpack(
                NULL, out.len, (const uint8_t *)(const void *)out.ptr);
            check_told(m->told, &pk.d.push, &told);
            assert_true(!m->stacks && !m->tenant.len && m->received_ms == -1 && m->epoch == 128);
            assert_true(m->map_version == UINT64_MAX && m->distributor == UINT64_C(1) << 63);
            assert_int_equal(m->n_series, pk.d.push.series_len);
            embertree__write_request__free_unpacked(m, NULL);
            packed++;
        }
        if (prng_below(&p, 2)) /* an answer came */
            k->told = symbol_session_now(k);
        buf_deinit(&out);
        dist_push_free(&pk.d);
        gen_random_deinit(&r);
    }
    assert_true(packed > 20);
    symbol_session_unref(k);
}

static void test_too_large(void **state)
{
    (void)state;
    struct gen_random r;
    struct packed pk;
    struct prng p;
    struct buf out;
    struct err e;

    prng_init(&p, 1);
    gen_random_pprof(&p, 100, &r);
    open_push(&pk, buf_str(&r.body), 0);
    buf_init(&out, 1000);
    assert_int_equal(pack_write(&pk.in, &out, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "cluster.rpc_message_bytes_max"));
    buf_deinit(&out);
    dist_push_free(&pk.d);
    gen_random_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
