/* SPDX-License-Identifier: Apache-2.0
 *
 * Three processes with keystores: what one stores the others know; what was revoked stays so,
 * whatever is away, restarted, restored or forged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/obs/log.h"
#include "tests/lib/identity/keystore_bed.h"

/* ---- with a service -------------------------------------------------------------------------- */

static void test_all_know(void **state)
{
    struct keystore_key first = { 0 }, second = { 0 };
    struct keystore_answer a, b;
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &first);
    keystore_bed_block(&w.at[2], &first, &a);
    keystore_bed_run(&w, 1000);
    assert_true(a.ended && !a.code && !a.away && a.in_file);
    keystore_bed_say(&w, &first, CREDENTIAL_REVOKED);
    keystore_bed_known(&w, 1, &second);
    keystore_bed_add(&w.at[1], &second, &b);
    assert_int_equal(b.code, ERR_CONFLICT);
    assert_int_equal(a.code, 0);
    keystore_bed_close(&w);
}

/* Two that change the head at the same time: both keys are stored, by turns. */
static void test_at_once(void **state)
{
    struct keystore_key keys[2 * KEYSTORE_BED] = { 0 };
    struct keystore_answer a[2 * KEYSTORE_BED];
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    for (size_t i = 0; i < 2 * KEYSTORE_BED; i++)
        keystore_bed_add(&w.at[i % KEYSTORE_BED], &keys[i], &a[i]);
    keystore_bed_run(&w, 5000);
    for (size_t i = 0; i < 2 * KEYSTORE_BED; i++) {
        assert_true(a[i].ended);
        assert_int_equal(a[i].code, 0);
        keystore_bed_say(&w, &keys[i], CREDENTIAL_OK);
    }
    keystore_bed_close(&w);
}

/* A new end reaches the others, and survives a restart. */
static void test_replace(void **state)
{
    struct keystore_key key = { 0 };
    struct keystore_answer a = { 0 }, none = { 0 };
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &key);
    struct key_record *r =
        keystore_bed_record(&w.at[1], &key, ROLE_PUSH, clock_wall_ms(&w.clock.clock) - 3600000);
    keystore_replace(w.at[1].store, r, keystore_bed_answer, &a);
    record_key_unref(r);
    keystore_bed_run(&w, 1000);
    assert_true(a.ended && !a.code);
    keystore_bed_say(&w, &key, CREDENTIAL_EXPIRED);
    keystore_bed_stop(&w, 0);
    keystore_bed_start(&w, 0);
    assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_EXPIRED);
    struct keystore_key unknown = { 0 };
    r = keystore_bed_record(&w.at[1], &unknown, ROLE_PUSH, 0);
    keystore_replace(w.at[1].store, r, keystore_bed_answer, &none);
    record_key_unref(r);
    assert_int_equal(none.code, ERR_NOT_FOUND);
    keystore_bed_close(&w);
}

/* Revoked while the service is away: refused here at once, after a restart too, and elsewhere once
 * it is back. */
static void test_away(void **state)
{
    struct keystore_key key = { 0 }, late = { 0 };
    struct keystore_answer a, b;
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &key);
    coord_site_away(w.site, true);
    keystore_bed_block(&w.at[0], &key, &a);
    assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_REVOKED);
    keystore_bed_run(&w, KEYSTORE_LONG_MS);
    assert_true(a.ended && !a.code && a.away && a.in_file);
    assert_false(keystore_fresh(w.at[0].store));
    keystore_bed_add(&w.at[0], &late, &b);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_int_equal(keystore_bed_prove(&w, 0, &late), CREDENTIAL_UNKNOWN);
    keystore_bed_stop(&w, 0);
    keystore_bed_start(&w, 0);
    assert_false(keystore_fresh(w.at[0].store));
    assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_REVOKED);
    assert_int_equal(keystore_bed_prove(&w, 1, &key), CREDENTIAL_OK);
    coord_site_away(w.site, false);
    keystore_bed_run(&w, KEYSTORE_LONG_MS);
    keystore_bed_say(&w, &key, CREDENTIAL_REVOKED);
    assert_true(keystore_fresh(w.at[0].store));
    keystore_bed_close(&w);
}

/* An older backup, then nothing at all, in the place of the service. */
static void test_restored(void **state)
{
    struct keystore_key early = { 0 }, late = { 0 };
    struct coord_backup *backup;
    struct keystore_answer a;
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &early);
    backup = coord_site_backup(w.site);
    keystore_bed_known(&w, 1, &late);
    keystore_bed_block(&w.at[0], &early, &a);
    keystore_bed_run(&w, 1000);
    assert_true(a.ended && !a.code);
    for (int round = 0; round < 2; round++) {
        coord_site_restore(w.site, round == 0 ? backup : NULL);
        keystore_bed_run(&w, KEYSTORE_LONG_MS);
        keystore_bed_stop(&w, 2); /* it knows nothing but what the service says */
        w.at[2].disk.there = false;
        keystore_bed_start(&w, 2);
        keystore_bed_run(&w, 2000);
        keystore_bed_say(&w, &early, CREDENTIAL_REVOKED);
        keystore_bed_say(&w, &late, CREDENTIAL_OK);
    }
    struct keystore_key more = { 0 };
    keystore_bed_known(&w, 2, &more);
    coord_backup_free(backup);
    keystore_bed_close(&w);
}

/* What an administrator of the service, or a thief of its password, writes is not believed. */
static void test_forged(void **state)
{
    struct coord_key at;
    struct keystore_key good = { 0 }, forged = { 0 };
    struct keystore_answer a;
    struct keystore_bed w, other;
    struct buf text;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &good);
    keystore_bed_open(&other, STR("the secret of another cluster"), true);
    other.seed = 1000; /* other keys */
    keystore_bed_all(&other);
    keystore_bed_known(&other, 0, &forged);
    at = key_identity_of(KEYSTORE_PREFIX, false, str_c(forged.id));
    const struct coord_kv *kv = coord_site_get(other.site, key_str(&at));
    assert_non_null(kv);
    coord_site_put(w.site, key_str(&at), kv->value);
    keystore_bed_run(&w, 1000);
    keystore_bed_say(&w, &forged, CREDENTIAL_UNKNOWN);
    /* Over a good one: ours stays, and is written again. */
    at = key_identity_of(KEYSTORE_PREFIX, false, str_c(good.id));
    buf_init(&text, 64 * KIB);
    (void)buf_add_str(&text, coord_site_get(w.site, key_str(&at))->value);
    coord_site_put(w.site, key_str(&at), kv->value);
    coord_site_put(w.site, STR("/embertree/identity/key/short"), STR("{}"));
    coord_site_put(w.site, STR("/embertree/identity/later"), STR("what a later version has"));
    keystore_bed_run(&w, 1000);
    keystore_bed_say(&w, &good, CREDENTIAL_OK);
    /* Its block cannot be taken away either. */
    keystore_bed_block(&w.at[0], &good, &a);
    keystore_bed_run(&w, 1000);
    at = key_identity_of(KEYSTORE_PREFIX, true, str_c(good.id));
    coord_site_del(w.site, key_str(&at));
    keystore_bed_run(&w, 2000);
    assert_non_null(coord_site_get(w.site, key_str(&at)));
    keystore_bed_say(&w, &good, CREDENTIAL_REVOKED);
    /* A head of another cluster stops new keys; those that are known stay. */
    at = key_identity_head(KEYSTORE_PREFIX);
    coord_site_put(w.site, key_str(&at), coord_site_get(other.site, key_str(&at))->value);
    keystore_bed_run(&w, 2000);
    assert_false(keystore_fresh(w.at[0].store));
    buf_deinit(&text);
    keystore_bed_close(&other);
    keystore_bed_close(&w);
}

/* One of three makes the first key, says it once, and it ends with the next server-admin. */
static void test_bootstrap(void **state)
{
    char said[8192] = { 0 };
    struct keystore_key first = { 0 }, next = { 0 };
    struct keystore_answer a = { 0 };
    struct keystore_bed w;
    FILE *to = tmpfile();
    int was = dup(2);

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    (void)fflush(stderr);
    assert_true(to && dup2(fileno(to), 2) == 2);
    for (int i = 0; i < 20; i++) {
        for (size_t p = 0; p < KEYSTORE_BED; p++)
            keystore_bootstrap(w.at[p].store);
        keystore_bed_run(&w, 500);
    }
    (void)fflush(stderr);
    assert_true(dup2(was, 2) == 2);
    (void)close(was);
    rewind(to);
    size_t n = fread(said, 1, sizeof(said) - 1, to);
    (void)fclose(to);
    const char *key = strstr(said, "emb_k");
    assert_true(n > 0 && key);
    assert_null(strstr(key + 1, "emb_k"));
    (void)snprintf(first.text, sizeof(first.text), "%.*s", KEY_TEXT_LEN, key);
    keystore_bed_say(&w, &first, CREDENTIAL_OK);
    for (size_t i = 0; i < KEYSTORE_BED; i++)
        assert_true(registry_has_admin(w.at[i].registry, clock_wall_ms(&w.clock.clock)));
    struct key_record *r = keystore_bed_record(&w.at[2], &next, ROLE_SERVER_ADMIN, 0);
    keystore_add(w.at[2].store, r, keystore_bed_answer, &a);
    record_key_unref(r);
    keystore_bed_run(&w, 2000);
    assert_true(a.ended && !a.code);
    keystore_bed_say(&w, &next, CREDENTIAL_OK);
    keystore_bed_say(&w, &first, CREDENTIAL_REVOKED);
    keystore_bed_close(&w);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void test_alone(void **state)
{
    struct keystore_key keys[2] = { 0 }, lost = { 0 };
    struct keystore_answer a, b;
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, STR_NULL, false);
    keystore_bed_start(&w, 0);
    assert_true(keystore_fresh(w.at[0].store));
    for (size_t i = 0; i < 2; i++) {
        keystore_bed_add(&w.at[0], &keys[i], &a);
        keystore_bed_run(&w, 100);
        assert_true(a.ended && !a.code);
    }
    keystore_bed_block(&w.at[0], &keys[1], &b);
    keystore_bed_run(&w, 100);
    assert_true(b.ended && !b.code && !b.away && b.in_file);
    keystore_bed_stop(&w, 0);
    keystore_bed_start(&w, 0);
    assert_int_equal(keystore_bed_prove(&w, 0, &keys[0]), CREDENTIAL_OK);
    assert_int_equal(keystore_bed_prove(&w, 0, &keys[1]), CREDENTIAL_REVOKED);
    /* A disk that refuses: no key, and a block that says how long it holds. */
    w.at[0].disk.fails = true;
    keystore_bed_add(&w.at[0], &lost, &a);
    keystore_bed_block(&w.at[0], &keys[0], &b);
    keystore_bed_run(&w, 100);
    assert_true(a.ended && a.code == ERR_IO && b.ended && b.code == ERR_IO);
    assert_int_equal(keystore_bed_prove(&w, 0, &lost), CREDENTIAL_UNKNOWN);
    assert_int_equal(keystore_bed_prove(&w, 0, &keys[0]), CREDENTIAL_REVOKED);
    /* It is tried again. */
    w.at[0].disk.fails = false;
    keystore_bed_run(&w, 10000);
    keystore_bed_stop(&w, 0);
    keystore_bed_start(&w, 0);
    assert_int_equal(keystore_bed_prove(&w, 0, &keys[0]), CREDENTIAL_REVOKED);
    keystore_bed_close(&w);
}

static void test_damaged(void **state)
{
    struct keystore_key key = { 0 };
    struct keystore_answer a;
    struct keystore_bed w;
    struct buf whole;
    struct err e;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, false);
    keystore_bed_start(&w, 0);
    keystore_bed_add(&w.at[0], &key, &a);
    keystore_bed_run(&w, 100);
    keystore_bed_block(&w.at[0], &key, &a);
    keystore_bed_run(&w, 100);
    keystore_bed_stop(&w, 0);
    struct keystore_disk *d = &w.at[0].disk;
    buf_init(&whole, MIB);
    (void)buf_add_str(&whole, buf_str(&d->bytes));
    /* Torn anywhere, or a character another one. */
    for (size_t cut = 0; cut < whole.len; cut++) {
        for (int kind = 0; kind < 2; kind++) {
            buf_reset(&d->bytes);
            (void)buf_add(&d->bytes, whole.ptr, kind == 0 ? cut : whole.len);
            if (kind == 1)
                d->bytes.ptr[cut] ^= 1;
            if (keystore_bed_try(&w, 0, &e) != ERR_CORRUPT)
                fail_msg("cut %zu, kind %d was read", cut, kind);
            assert_non_null(strstr(e.text, "/data/identity.json"));
            assert_non_null(strstr(e.text, "put back the file"));
            keystore_bed_stop(&w, 0);
        }
    }
    buf_deinit(&whole);
    keystore_bed_close(&w);
}

/* From no cluster key to one, and to another first line: what was signed is believed, and signed
 * again, so that the old line can go. */
static void test_other_keys(void **state)
{
    struct keystore_key key = { 0 };
    struct keystore_answer a;
    struct keystore_bed w;
    struct err e;

    (void)state;
    keystore_bed_open(&w, STR_NULL, false);
    keystore_bed_start(&w, 0);
    keystore_bed_add(&w.at[0], &key, &a);
    keystore_bed_run(&w, 100);
    keystore_bed_stop(&w, 0);
    w.cluster = KEYSTORE_CLUSTER;
    for (int i = 0; i < 2; i++) { /* signed again: the second start has no other way to read it */
        keystore_bed_start(&w, 0);
        assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_OK);
        keystore_bed_run(&w, 2000);
        keystore_bed_stop(&w, 0);
    }
    w.cluster = STR("the next key of this cluster");
    assert_int_equal(keystore_bed_try(&w, 0, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "cluster.key_file"));
    keystore_bed_stop(&w, 0);
    w.others[0] = KEYSTORE_CLUSTER;
    w.others_len = 1;
    keystore_bed_start(&w, 0);
    assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_OK);
    keystore_bed_run(&w, 2000);
    keystore_bed_stop(&w, 0);
    w.others_len = 0;
    keystore_bed_start(&w, 0);
    assert_int_equal(keystore_bed_prove(&w, 0, &key), CREDENTIAL_OK);
    keystore_bed_close(&w);
}

/* The same in the service: one process after the other gets the new key. */
static void test_cluster_key_changes(void **state)
{
    struct keystore_key key = { 0 }, gone = { 0 }, more = { 0 };
    struct keystore_answer a;
    struct keystore_bed w;

    (void)state;
    keystore_bed_open(&w, KEYSTORE_CLUSTER, true);
    keystore_bed_all(&w);
    keystore_bed_known(&w, 0, &key);
    keystore_bed_known(&w, 0, &gone);
    keystore_bed_block(&w.at[0], &gone, &a);
    keystore_bed_run(&w, 1000);
    w.others[0] = STR("the next key of this cluster");
    w.others_len = 1;
    for (int step = 0; step < 3; step++) { /* second line; first line; alone */
        for (size_t i = 0; i < KEYSTORE_BED; i++) {
            if (i == 0) { /* it sees that the file changed */
                keystore_keys(w.at[i].store, w.cluster, w.others, w.others_len);
            } else {
                keystore_bed_stop(&w, i);
                keystore_bed_start(&w, i);
            }
            keystore_bed_run(&w, 3000);
        }
        keystore_bed_say(&w, &key, CREDENTIAL_OK);
        keystore_bed_say(&w, &gone, CREDENTIAL_REVOKED);
        w.others_len = step == 0;
        w.others[0] = KEYSTORE_CLUSTER;
        w.cluster = STR("the next key of this cluster");
    }
    keystore_bed_stop(&w, 1);
    w.at[1].disk.there = false;
    keystore_bed_start(&w, 1);
    keystore_bed_run(&w, 3000);
    keystore_bed_known(&w, 1, &more);
    keystore_bed_say(&w, &key, CREDENTIAL_OK);
    keystore_bed_say(&w, &gone, CREDENTIAL_REVOKED);
    keystore_bed_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_know),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_away),
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_bootstrap),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_other_keys),
        cmocka_unit_test(test_cluster_key_changes),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
