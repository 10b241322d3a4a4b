/* SPDX-License-Identifier: Apache-2.0
 *
 * What the distributor packs, read by the ingester's own decoder: both ends of proto/ingest.proto.
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
#include "distributor/pack.h"
#include "ingester/write_msg.h"
#include "tests/lib/dist_push.h"
#include "tests/lib/gen_pprof.h"

struct packed {
    struct dist_push d;
    struct leaves leaves;
    struct write_secret secret;
    struct write_base base;
    struct packing in;
};

static void open_push(struct packed *p, struct str body, int64_t window_ms)
{
    struct limits l = limits_default();
    struct window w = { DIST_NOW_MS - window_ms, DIST_NOW_MS };
    struct err e;

    if (dist_decode(&p->d, "app{env=prod}", "pprof", NULL, body, &l, &e))
        fail_msg("%s", e.text);
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
        CLEANUP(arena_freep) struct arena *a = arena_new(write_msg_arena_bytes(out.len));
        if (write_msg_decode(buf_str(&out), false, a, &m, &e))
            fail_msg("the ingester says: %s", e.text);
        assert_int_equal(m.shard, 3);
        assert_true(str_eqc(m.write.tenant, "tenant") && str_eqc(m.write.service, "app"));
        assert_int_equal(m.write.len, pk.d.push.series_len);
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
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
