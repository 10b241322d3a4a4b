/* SPDX-License-Identifier: Apache-2.0
 *
 * Which database may write: the first, also after it was opened again; another one only with
 * `take_over`, and then it alone, permanently.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/cold/shard_owner.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv_mem.h"

static char dir[64];
static struct object_store *o;
static struct err e;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/embertree-holder-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return object_dir_open(dir, &o, &e);
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    object_close(o);
    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static struct cold_shard_owner holder(uint8_t of)
{
    uint8_t bytes[COLD_SHARD_OWNER_LEN / 2];
    struct cold_shard_owner h;

    memset(bytes, of, sizeof(bytes));
    cold_shard_owner_make(bytes, &h);
    return h;
}

static int check_terms(uint32_t shard, uint8_t of, const struct cold_shard_owner_terms *t)
{
    struct cold_shard_owner h = holder(of);

    return cold_shard_owner_check(o, shard, &h, t, &e);
}

static int check(uint32_t shard, uint8_t of, bool take_over)
{
    static const struct cold_claim never;

    return check_terms(shard, of, &(struct cold_shard_owner_terms){ &never, NULL, take_over });
}

static int check_held(uint32_t shard, uint8_t of, bool take_over)
{
    struct cold_claim held = { true, "folder /right" };

    return check_terms(shard, of, &(struct cold_shard_owner_terms){ &held, NULL, take_over });
}

static void the_first_holds(void **state)
{
    (void)state;
    assert_int_equal(check(7, 0xa1, false), 0);
    assert_int_equal(check(7, 0xa1, false), 0);
    assert_int_equal(check(7, 0xb2, false), ERR_CONFLICT);
    assert_non_null(strstr(e.text, holder(0xa1).id));
    assert_non_null(strstr(e.text, "cold.take_over"));
    assert_int_equal(check(7, 0xa1, true), 0);
    /* A number of its own for each shard. */
    assert_int_equal(check(8, 0xb2, false), 0);
    assert_int_equal(check(8, 0xa1, false), ERR_CONFLICT);
}

static void taken_over_for_good(void **state)
{
    (void)state;
    assert_int_equal(check(7, 0xb2, false), 0);
    assert_int_equal(check(7, 0xa1, true), 0);
    assert_int_equal(check(7, 0xa1, false), 0);
    /* The previous holder does not take the claim back, with any option. */
    assert_int_equal(check(7, 0xb2, false), ERR_CONFLICT);
    assert_int_equal(check(7, 0xb2, true), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "taken over"));
    assert_int_equal(check(7, 0xa1, true), 0);
    assert_int_equal(check(7, 0x03, true), 0);
    assert_int_equal(check(7, 0xa1, true), ERR_CONFLICT);
    assert_int_equal(check(7, 0x03, false), 0);
}

static void put(const char *name);

/* It held objects: a bucket without its claim is another bucket, with any option, until the right
 * bucket is back, or an operator puts the claim into this one. */
static void another_place(void **state)
{
    char name[128];

    (void)state;
    assert_int_equal(check_held(7, 0xa1, false), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "folder /right"));
    assert_non_null(strstr(e.text, dir));
    assert_int_equal(check_held(7, 0xa1, true), ERR_CONFLICT);
    assert_int_equal(check(7, 0xb2, false), 0); /* nothing was claimed there */
    assert_int_equal(check_held(7, 0xa1, false), ERR_CONFLICT);
    assert_int_equal(check_held(7, 0xa1, true), ERR_CONFLICT);
    assert_int_equal(check(7, 0xb2, false), 0);
    /* The object that the text asks for, in an empty place. */
    assert_int_equal(check_held(8, 0xa1, false), ERR_CONFLICT);
    (void)snprintf(name, sizeof(name), "holder/00000008/00000001-%s", holder(0xa1).id);
    assert_non_null(strstr(e.text, name));
    put(name);
    assert_int_equal(check_held(8, 0xa1, false), 0);
}

/* It names parts, and never claimed: restored, or of a version that did not. One part there is
 * enough. */
static void none_of_its_parts(void **state)
{
    struct cold_claim never = { .held = false };
    struct manifest *m = manifest_new(7);
    struct cold_shard_owner_terms t = { &never, m, false };
    char name[OBJECT_NAME_MAX + 1] = "";

    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        struct part_info info = { .size = 1, .rows = 1, .hash = { i, i } };
        char first[] = { 'k', (char)i, '0' }, last[] = { 'k', (char)i, '9' };
        struct buf key, value;

        info.first = str_n(first, sizeof(first));
        info.last = str_n(last, sizeof(last));
        buf_init(&key, KIB);
        buf_init(&value, KIB);
        manifest_part_row(KV_FINE, &info, &key, &value);
        assert_int_equal(manifest_row(m, buf_str(&key), buf_str(&value), &e), 0);
        buf_deinit(&key);
        buf_deinit(&value);
        manifest_part_name(7, KV_FINE, info.hash, name);
    }
    assert_int_equal(check_terms(7, 0xa1, &t), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "none of its parts"));
    t.take_over = true;
    assert_int_equal(check(7, 0xb2, false), 0);
    assert_int_equal(check_terms(7, 0xa1, &t), ERR_CONFLICT); /* nor in place of another one */
    manifest_part_name(7, KV_FINE, (struct hash128){ 20, 20 }, name);
    put(name);
    assert_int_equal(check_terms(7, 0xa1, &t), 0);
    assert_int_equal(check(7, 0xb2, false), ERR_CONFLICT);
    manifest_unref(m);
}

static void put(const char *name)
{
    assert_int_equal(object_put(o, str_c(name), STR("x"), &e), 0);
}

/* Two that saw no claim and claimed at once: the last in order holds, the other one notices it. */
static void two_at_once(void **state)
{
    char name[128];

    (void)state;
    assert_int_equal(check(7, 0xa1, false), 0);
    (void)snprintf(name, sizeof(name), "holder/00000007/00000001-%s", holder(0xb2).id);
    put(name);
    assert_int_equal(check(7, 0xa1, false), ERR_CONFLICT);
    assert_int_equal(check(7, 0xb2, false), 0);
    (void)snprintf(name, sizeof(name), "holder/00000007/00000001-%s", holder(0x03).id);
    put(name);
    assert_int_equal(check(7, 0xb2, false), 0);
    assert_int_equal(check(7, 0x03, false), ERR_CONFLICT);
}

/* What else lies there is no claim. */
static void odd_names(void **state)
{
    (void)state;
    put("holder/00000007/README");
    put("holder/00000007/0x000009-00000000000000000000000000000000");
    put("holder/00000007/00000000-00000000000000000000000000000000");
    assert_int_equal(check(7, 0xa1, false), 0);
    put("holder/00000007/ffffffff-00000000000000000000000000000000");
    assert_int_equal(check(7, 0xa1, false), ERR_CONFLICT);
    assert_int_equal(check(7, 0xb2, true), ERR_CORRUPT);
}

static void the_row(void **state)
{
    struct kv *kv = kv_mem_new(NULL);
    struct kv_batch *b = kv_batch_new();
    struct cold_shard_owner h = holder(0x9f), got;
    struct cold_claim claim;
    char key = (char)KEY_COLD_HOLDER;

    (void)state;
    assert_int_equal(cold_shard_owner_read(kv, &got, &e), 0);
    assert_string_equal(got.id, "");
    cold_shard_owner_put(&h, b);
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    assert_int_equal(cold_shard_owner_read(kv, &got, &e), 0);
    assert_string_equal(got.id, h.id);
    assert_int_equal(cold_shard_owner_forget(kv, &e), 0);
    assert_int_equal(cold_shard_owner_read(kv, &got, &e), 0);
    assert_string_equal(got.id, "");
    kv_batch_clear(b);
    assert_int_equal(cold_claim_read(kv, &claim, &e), 0);
    assert_false(claim.held);
    cold_claim_put("folder /right", b);
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    assert_int_equal(cold_claim_read(kv, &claim, &e), 0);
    assert_true(claim.held);
    assert_string_equal(claim.where, "folder /right");
    assert_int_equal(cold_shard_owner_forget(kv, &e), 0); /* restored: another database */
    assert_int_equal(cold_claim_read(kv, &claim, &e), 0);
    assert_false(claim.held);
    kv_batch_clear(b);
    kv_batch_put(b, KV_META, str_n(&key, 1), STR("odd"));
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    assert_int_equal(cold_shard_owner_read(kv, &got, &e), ERR_CORRUPT);
    kv_batch_free(b);
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(taken_over_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(two_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_names, setup, teardown),
        cmocka_unit_test_setup_teardown(another_place, setup, teardown),
        cmocka_unit_test_setup_teardown(none_of_its_parts, setup, teardown),
        cmocka_unit_test(the_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
