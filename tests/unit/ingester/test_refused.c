/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch that is too large is refused before the disk sees it, and its shard takes no writes. An
 * ingester alone opens it again by itself, with all that was acked; the next one like it waits for
 * a minute. Of replicated shards tests/sim sees to it (sim_refuse.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/store/kv/kv_impl.h"
#include "ingester/base/state.h"
#include "ingester/shard/shards.h"
#include "tests/lib/roles/ingester_bed.h"

static struct ingester_bed bed;
static bool done;

static void refuse(struct shard_task *t, struct store *s)
{
    struct kv_batch *b = kv_batch_new();
    struct err e;

    (void)t;
    b->ops.failed = true; /* as one over its limit */
    assert_int_equal(store_put_rows(s, b, &e), ERR_LIMIT);
    kv_batch_free(b);
}

static void refused(struct shard_task *t)
{
    (void)t;
    done = true;
}

static bool is_done(void *cookie)
{
    (void)cookie;
    return done;
}

static struct shard *only(void)
{
    return shards_at(((struct ingester *)bed.self)->shards, 0);
}

static void refuse_one(void)
{
    struct shard_task t = { .run = refuse, .done = refused };

    done = false;
    shard_run(only(), &t);
    assert_true(rpc_bed_run(&bed.rpc, is_done, NULL, 10000));
    assert_true(shard_read_only(only()));
}

static bool takes(void *cookie)
{
    (void)cookie;
    return !shard_read_only(only());
}

static int write_once(uint64_t wid, struct write_model *m)
{
    struct write_gen g = { .slot = ingester_bed_slot(&bed), .wid = wid, .service = "svc" };
    struct prng p;

    prng_init(&p, wid);
    return ingester_bed_write(&bed, &g, &p, m);
}

static void test_refused(void **state)
{
    struct write_model want, got;
    const char *why = "";
    struct err e;

    (void)state;
    ingester_bed_init(&bed, false, 1, NULL);
    if (ingester_bed_start(&bed, &e))
        fail_msg("%s", e.text);
    write_model_init(&want);
    write_model_init(&got);
    assert_int_equal(write_once(1, &want), 0);
    refuse_one();
    assert_int_not_equal(write_once(2, &want), 0); /* why is known a moment later */
    assert_true(rpc_bed_run(&bed.rpc, takes, NULL, 30000));
    assert_int_equal(write_once(2, &want), 0);
    assert_int_equal(ingester_bed_merge(&bed, "svc", 0, INT64_C(4102444800000), &got), 0);
    assert_int_equal(map_str_len(got.sums), map_str_len(want.sums));

    refuse_one();
    rpc_bed_sleep(&bed.rpc, 3000);
    assert_int_equal(write_once(3, &want), ERR_UNAVAILABLE);
    assert_false(ingester_role.ready(bed.self, &why));
    assert_non_null(strstr(why, "within a minute"));
    write_model_deinit(&want);
    write_model_deinit(&got);
    ingester_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
