/* SPDX-License-Identifier: Apache-2.0
 *
 * Three processes with keystores on one simulated coordination service, each with a file in memory:
 * what one stores the others know; what was revoked stays so, whatever is away, restarted, restored
 * or forged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/identity/keystore.h"
#include "common/obs/log.h"

#define PREFIX  STR("/embertree")
#define CLUSTER STR("a secret of all processes of the cluster")
#define KEYS    64

enum { MOST = 3, LONG_MS = 20000 };

struct disk { /* one file; first member: the keystore gets its address */
    struct fs fs;
    struct buf bytes;
    bool there, fails;
    size_t writes;
};
struct one {          /* a process */
    struct disk disk; /* stays over a restart */
    struct env_sim env;
    struct registry *registry;
    struct keystore *store;
    struct coord *coord;
};
struct answer {
    bool ended, away;
    int code;
    char text[ERR_TEXT_MAX];
    bool in_file; /* a block: the file had it when the answer came */
    struct one *of;
    const char *id;
};
struct key {
    char text[KEY_TEXT_LEN + 1];
    char id[KEY_ID_LEN + 1];
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct one at[MOST];
    struct str cluster; /* its key */
    struct str others[1];
    size_t others_len;
    uint64_t seed;
};

/* ---- files ----------------------------------------------------------------------------------- */

static int disk_read(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    const struct disk *d = container_of((struct fs *)(uintptr_t)fs, struct disk, fs);

    if (!d->there)
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    (void)buf_add_str(out, buf_str(&d->bytes));
    return 0;
}

static int disk_write(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    struct disk *d = container_of((struct fs *)(uintptr_t)fs, struct disk, fs);

    if (d->fails)
        return err_set(e, ERR_IO, "%s: no space left", path);
    d->there = true;
    d->writes++;
    buf_reset(&d->bytes);
    (void)buf_add_str(&d->bytes, data);
    return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int try_start(struct world *w, size_t i, struct err *e)
{
    const uint8_t none[KEY_PEPPER_BYTES] = { 0 };
    struct one *p = &w->at[i];

    env_sim_init(&p->env, &w->clock.clock, &p->disk.fs, ++w->seed);
    p->registry = registry_new(none);
    p->coord = w->site ? coord_sim_new(w->site) : NULL;
    struct keystore_opts o = { .env = &p->env.env,
                               .loop = w->loop,
                               .coord = p->coord,
                               .prefix = PREFIX,
                               .dir = "/data",
                               .cluster_key = w->cluster,
                               .other_keys = w->others,
                               .other_keys_len = w->others_len,
                               .registry = p->registry };
    return keystore_new(&o, &p->store, e);
}

static void start(struct world *w, size_t i)
{
    struct err e;

    if (try_start(w, i, &e))
        fail_msg("process %zu: %s", i, e.text);
}

static void stop(struct world *w, size_t i)
{
    struct one *p = &w->at[i];

    keystore_free(p->store);
    registry_free(p->registry);
    coord_free(p->coord);
    p->store = NULL;
    p->registry = NULL;
    p->coord = NULL;
}

static void run(struct world *w, uint64_t ms)
{
    uint64_t until = clock_mono_ms(loop_clock(w->loop)) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < until)
        (void)loop_sim_step(w->loop);
    if (until > clock_mono_ms(loop_clock(w->loop)))
        clock_fake_advance(&w->clock, (int64_t)(until - clock_mono_ms(loop_clock(w->loop))));
}

static void world_open(struct world *w, struct str cluster, bool coord)
{
    *w = (struct world){ .cluster = cluster, .seed = 5 };
    clock_fake_init(&w->clock, INT64_C(1700000000000));
    w->loop = loop_sim_new(&w->clock);
    if (coord)
        w->site = coord_site_new(w->loop, 7);
    for (size_t i = 0; i < MOST; i++) {
        struct disk *d = &w->at[i].disk;

        d->fs = *fs_real();
        d->fs.read_file = disk_read;
        d->fs.write_file = disk_write;
        buf_init(&d->bytes, 64 * MIB);
    }
}

static void world_start(struct world *w)
{
    for (size_t i = 0; i < MOST; i++)
        start(w, i);
    run(w, 2000);
    for (size_t i = 0; i < MOST; i++)
        assert_true(keystore_fresh(w->at[i].store));
}

static void world_close(struct world *w)
{
    for (size_t i = 0; i < MOST; i++) {
        stop(w, i);
        buf_deinit(&w->at[i].disk.bytes);
    }
    coord_site_free(w->site);
    loop_free(w->loop);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void on_answer(void *cookie, const struct err *e, bool away)
{
    struct answer *a = cookie;

    assert_false(a->ended);
    a->ended = true;
    a->away = away;
    a->code = e ? e->code : 0;
    (void)snprintf(a->text, sizeof(a->text), "%s", e ? e->text : "");
    if (a->of)
        a->in_file = str_contains(buf_str(&a->of->disk.bytes), str_c(a->id));
}

static struct key_record *record(struct one *p, struct key *key, unsigned roles, int64_t until)
{
    struct grant g = { .everywhere = true, .roles = roles };
    struct key_record r = { .name = STR("n"),
                            .owner = STR("o"),
                            .made_by = STR("test"),
                            .grants = { &g, 1 },
                            .until_ms = until };
    struct key_text text;
    struct key_record *ret;
    struct buf b;
    struct err e;

    if (!key->text[0])
        key_make(&p->env.env, KEY_API, key->text);
    assert_true(key_text_parse(str_c(key->text), &text));
    (void)snprintf(key->id, sizeof(key->id), "%.*s", STR_ARG(text.id));
    r.id = text.id;
    keystore_hash(p->store, text.id, text.secret, r.hash);
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    key_record_write(&r, NULL, &b);
    if (key_record_read(buf_str(&b), &ret, &e))
        fail_msg("%s", e.text);
    buf_deinit(&b);
    return ret;
}

static void add(struct one *p, struct key *key, struct answer *a)
{
    struct key_record *r = record(p, key, ROLE_PUSH, 0);

    *a = (struct answer){ 0 };
    keystore_add(p->store, r, on_answer, a);
    key_record_unref(r);
}

static void block(struct one *p, const struct key *key, struct answer *a)
{
    *a = (struct answer){ .of = p, .id = key->id };
    keystore_block(p->store, str_c(key->id), STR("lost"), on_answer, a);
}

static enum credential_fault prove(const struct world *w, size_t i, const struct key *key)
{
    struct key_record *r;

    return registry_prove(w->at[i].registry, str_c(key->text), clock_wall_ms(&w->clock.clock),
                          "10.0.0.1:1", &r);
}

static void all_say(const struct world *w, const struct key *key, enum credential_fault want)
{
    for (size_t i = 0; i < MOST; i++)
        if (prove(w, i, key) != want)
            fail_msg("process %zu says %d of %s, want %d", i, (int)prove(w, i, key), key->id,
                     (int)want);
}

static void add_known(struct world *w, size_t i, struct key *key)
{
    struct answer a;

    add(&w->at[i], key, &a);
    run(w, 1000);
    assert_true(a.ended);
    if (a.code)
        fail_msg("%s", a.text);
    all_say(w, key, CREDENTIAL_OK);
}

/* ---- with a service -------------------------------------------------------------------------- */

static void test_all_know(void **state)
{
    struct key first = { 0 }, second = { 0 };
    struct answer a, b;
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &first);
    block(&w.at[2], &first, &a);
    run(&w, 1000);
    assert_true(a.ended && !a.code && !a.away && a.in_file);
    all_say(&w, &first, CREDENTIAL_REVOKED);
    add_known(&w, 1, &second);
    add(&w.at[1], &second, &b);
    assert_int_equal(b.code, ERR_CONFLICT);
    assert_int_equal(a.code, 0);
    world_close(&w);
}

/* Two that change the head at the same time: both keys are stored, by turns. */
static void test_at_once(void **state)
{
    struct key keys[2 * MOST] = { 0 };
    struct answer a[2 * MOST];
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    for (size_t i = 0; i < 2 * MOST; i++)
        add(&w.at[i % MOST], &keys[i], &a[i]);
    run(&w, 5000);
    for (size_t i = 0; i < 2 * MOST; i++) {
        assert_true(a[i].ended);
        assert_int_equal(a[i].code, 0);
        all_say(&w, &keys[i], CREDENTIAL_OK);
    }
    world_close(&w);
}

/* A new end reaches the others, and survives a restart. */
static void test_replace(void **state)
{
    struct key key = { 0 };
    struct answer a = { 0 }, none = { 0 };
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &key);
    struct key_record *r =
        record(&w.at[1], &key, ROLE_PUSH, clock_wall_ms(&w.clock.clock) - 3600000);
    keystore_replace(w.at[1].store, r, on_answer, &a);
    key_record_unref(r);
    run(&w, 1000);
    assert_true(a.ended && !a.code);
    all_say(&w, &key, CREDENTIAL_EXPIRED);
    stop(&w, 0);
    start(&w, 0);
    assert_int_equal(prove(&w, 0, &key), CREDENTIAL_EXPIRED);
    struct key unknown = { 0 };
    r = record(&w.at[1], &unknown, ROLE_PUSH, 0);
    keystore_replace(w.at[1].store, r, on_answer, &none);
    key_record_unref(r);
    assert_int_equal(none.code, ERR_NOT_FOUND);
    world_close(&w);
}

/* Revoked while the service is away: refused here at once, after a restart too, and elsewhere once
 * it is back. */
static void test_away(void **state)
{
    struct key key = { 0 }, late = { 0 };
    struct answer a, b;
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &key);
    coord_site_away(w.site, true);
    block(&w.at[0], &key, &a);
    assert_int_equal(prove(&w, 0, &key), CREDENTIAL_REVOKED);
    run(&w, LONG_MS);
    assert_true(a.ended && !a.code && a.away && a.in_file);
    assert_false(keystore_fresh(w.at[0].store));
    add(&w.at[0], &late, &b);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_int_equal(prove(&w, 0, &late), CREDENTIAL_UNKNOWN);
    stop(&w, 0);
    start(&w, 0);
    assert_false(keystore_fresh(w.at[0].store));
    assert_int_equal(prove(&w, 0, &key), CREDENTIAL_REVOKED);
    assert_int_equal(prove(&w, 1, &key), CREDENTIAL_OK);
    coord_site_away(w.site, false);
    run(&w, LONG_MS);
    all_say(&w, &key, CREDENTIAL_REVOKED);
    assert_true(keystore_fresh(w.at[0].store));
    world_close(&w);
}

/* An older backup, then nothing at all, in the place of the service. */
static void test_restored(void **state)
{
    struct key early = { 0 }, late = { 0 };
    struct coord_backup *backup;
    struct answer a;
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &early);
    backup = coord_site_backup(w.site);
    add_known(&w, 1, &late);
    block(&w.at[0], &early, &a);
    run(&w, 1000);
    assert_true(a.ended && !a.code);
    for (int round = 0; round < 2; round++) {
        coord_site_restore(w.site, round == 0 ? backup : NULL);
        run(&w, LONG_MS);
        stop(&w, 2); /* it knows nothing but what the service says */
        w.at[2].disk.there = false;
        start(&w, 2);
        run(&w, 2000);
        all_say(&w, &early, CREDENTIAL_REVOKED);
        all_say(&w, &late, CREDENTIAL_OK);
    }
    struct key more = { 0 };
    add_known(&w, 2, &more);
    coord_backup_free(backup);
    world_close(&w);
}

/* What an administrator of the service, or a thief of its password, writes is not believed. */
static void test_forged(void **state)
{
    struct coord_key at;
    struct key good = { 0 }, forged = { 0 };
    struct answer a;
    struct world w, other;
    struct buf text;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &good);
    world_open(&other, STR("the secret of another cluster"), true);
    other.seed = 1000; /* other keys */
    world_start(&other);
    add_known(&other, 0, &forged);
    at = key_identity_of(PREFIX, false, str_c(forged.id));
    const struct coord_kv *kv = coord_site_get(other.site, key_str(&at));
    assert_non_null(kv);
    coord_site_put(w.site, key_str(&at), kv->value);
    run(&w, 1000);
    all_say(&w, &forged, CREDENTIAL_UNKNOWN);
    /* Over a good one: ours stays, and is written again. */
    at = key_identity_of(PREFIX, false, str_c(good.id));
    buf_init(&text, 64 * KIB);
    (void)buf_add_str(&text, coord_site_get(w.site, key_str(&at))->value);
    coord_site_put(w.site, key_str(&at), kv->value);
    coord_site_put(w.site, STR("/embertree/identity/key/short"), STR("{}"));
    coord_site_put(w.site, STR("/embertree/identity/later"), STR("what a later version has"));
    run(&w, 1000);
    all_say(&w, &good, CREDENTIAL_OK);
    /* Its block cannot be taken away either. */
    block(&w.at[0], &good, &a);
    run(&w, 1000);
    at = key_identity_of(PREFIX, true, str_c(good.id));
    coord_site_del(w.site, key_str(&at));
    run(&w, 2000);
    assert_non_null(coord_site_get(w.site, key_str(&at)));
    all_say(&w, &good, CREDENTIAL_REVOKED);
    /* A head of another cluster stops new keys; those that are known go on. */
    at = key_identity_head(PREFIX);
    coord_site_put(w.site, key_str(&at), coord_site_get(other.site, key_str(&at))->value);
    run(&w, 2000);
    assert_false(keystore_fresh(w.at[0].store));
    buf_deinit(&text);
    world_close(&other);
    world_close(&w);
}

/* One of three makes the first key, says it once, and it ends with the next server-admin. */
static void test_bootstrap(void **state)
{
    char said[8192] = { 0 };
    struct key first = { 0 }, next = { 0 };
    struct answer a = { 0 };
    struct world w;
    FILE *to = tmpfile();
    int was = dup(2);

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    (void)fflush(stderr);
    assert_true(to && dup2(fileno(to), 2) == 2);
    for (int i = 0; i < 20; i++) {
        for (size_t p = 0; p < MOST; p++)
            keystore_bootstrap(w.at[p].store);
        run(&w, 500);
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
    all_say(&w, &first, CREDENTIAL_OK);
    for (size_t i = 0; i < MOST; i++)
        assert_true(registry_has_admin(w.at[i].registry, clock_wall_ms(&w.clock.clock)));
    struct key_record *r = record(&w.at[2], &next, ROLE_SERVER_ADMIN, 0);
    keystore_add(w.at[2].store, r, on_answer, &a);
    key_record_unref(r);
    run(&w, 2000);
    assert_true(a.ended && !a.code);
    all_say(&w, &next, CREDENTIAL_OK);
    all_say(&w, &first, CREDENTIAL_REVOKED);
    world_close(&w);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void test_alone(void **state)
{
    struct key keys[2] = { 0 }, lost = { 0 };
    struct answer a, b;
    struct world w;

    (void)state;
    world_open(&w, STR_NULL, false);
    start(&w, 0);
    assert_true(keystore_fresh(w.at[0].store));
    for (size_t i = 0; i < 2; i++) {
        add(&w.at[0], &keys[i], &a);
        run(&w, 100);
        assert_true(a.ended && !a.code);
    }
    block(&w.at[0], &keys[1], &b);
    run(&w, 100);
    assert_true(b.ended && !b.code && !b.away && b.in_file);
    stop(&w, 0);
    start(&w, 0);
    assert_int_equal(prove(&w, 0, &keys[0]), CREDENTIAL_OK);
    assert_int_equal(prove(&w, 0, &keys[1]), CREDENTIAL_REVOKED);
    /* A disk that refuses: no key, and a block that says how long it holds. */
    w.at[0].disk.fails = true;
    add(&w.at[0], &lost, &a);
    block(&w.at[0], &keys[0], &b);
    run(&w, 100);
    assert_true(a.ended && a.code == ERR_IO && b.ended && b.code == ERR_IO);
    assert_int_equal(prove(&w, 0, &lost), CREDENTIAL_UNKNOWN);
    assert_int_equal(prove(&w, 0, &keys[0]), CREDENTIAL_REVOKED);
    /* It is tried again. */
    w.at[0].disk.fails = false;
    run(&w, 10000);
    stop(&w, 0);
    start(&w, 0);
    assert_int_equal(prove(&w, 0, &keys[0]), CREDENTIAL_REVOKED);
    world_close(&w);
}

static void test_damaged(void **state)
{
    struct key key = { 0 };
    struct answer a;
    struct world w;
    struct buf whole;
    struct err e;

    (void)state;
    world_open(&w, CLUSTER, false);
    start(&w, 0);
    add(&w.at[0], &key, &a);
    run(&w, 100);
    block(&w.at[0], &key, &a);
    run(&w, 100);
    stop(&w, 0);
    struct disk *d = &w.at[0].disk;
    buf_init(&whole, MIB);
    (void)buf_add_str(&whole, buf_str(&d->bytes));
    /* Torn anywhere, or a character another one. */
    for (size_t cut = 0; cut < whole.len; cut++) {
        for (int kind = 0; kind < 2; kind++) {
            buf_reset(&d->bytes);
            (void)buf_add(&d->bytes, whole.ptr, kind == 0 ? cut : whole.len);
            if (kind == 1)
                d->bytes.ptr[cut] ^= 1;
            if (try_start(&w, 0, &e) != ERR_CORRUPT)
                fail_msg("cut %zu, kind %d was read", cut, kind);
            assert_non_null(strstr(e.text, "/data/identity.json"));
            assert_non_null(strstr(e.text, "put back the file"));
            stop(&w, 0);
        }
    }
    buf_deinit(&whole);
    world_close(&w);
}

/* From no cluster key to one, and to another first line: what was signed is believed, and signed
 * again, so that the old line can go. */
static void test_other_keys(void **state)
{
    struct key key = { 0 };
    struct answer a;
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, STR_NULL, false);
    start(&w, 0);
    add(&w.at[0], &key, &a);
    run(&w, 100);
    stop(&w, 0);
    w.cluster = CLUSTER;
    for (int i = 0; i < 2; i++) { /* signed again: the second start has no other way to read it */
        start(&w, 0);
        assert_int_equal(prove(&w, 0, &key), CREDENTIAL_OK);
        run(&w, 2000);
        stop(&w, 0);
    }
    w.cluster = STR("the next key of this cluster");
    assert_int_equal(try_start(&w, 0, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "cluster.key_file"));
    stop(&w, 0);
    w.others[0] = CLUSTER;
    w.others_len = 1;
    start(&w, 0);
    assert_int_equal(prove(&w, 0, &key), CREDENTIAL_OK);
    run(&w, 2000);
    stop(&w, 0);
    w.others_len = 0;
    start(&w, 0);
    assert_int_equal(prove(&w, 0, &key), CREDENTIAL_OK);
    world_close(&w);
}

/* The same in the service: one process after the other gets the new key. */
static void test_cluster_key_changes(void **state)
{
    struct key key = { 0 }, gone = { 0 }, more = { 0 };
    struct answer a;
    struct world w;

    (void)state;
    world_open(&w, CLUSTER, true);
    world_start(&w);
    add_known(&w, 0, &key);
    add_known(&w, 0, &gone);
    block(&w.at[0], &gone, &a);
    run(&w, 1000);
    w.others[0] = STR("the next key of this cluster");
    w.others_len = 1;
    for (int step = 0; step < 3; step++) { /* second line; first line; alone */
        for (size_t i = 0; i < MOST; i++) {
            stop(&w, i);
            start(&w, i);
            run(&w, 3000);
        }
        all_say(&w, &key, CREDENTIAL_OK);
        all_say(&w, &gone, CREDENTIAL_REVOKED);
        w.others_len = step == 0;
        w.others[0] = CLUSTER;
        w.cluster = STR("the next key of this cluster");
    }
    stop(&w, 1);
    w.at[1].disk.there = false;
    start(&w, 1);
    run(&w, 3000);
    add_known(&w, 1, &more);
    all_say(&w, &key, CREDENTIAL_OK);
    all_say(&w, &gone, CREDENTIAL_REVOKED);
    world_close(&w);
}

/* ---- anything, in any order ------------------------------------------------------------------ */

struct history {
    struct key keys[KEYS];
    bool added[KEYS], blocked[KEYS];
    struct answer add[KEYS], block[KEYS];
    size_t len;
};

static void a_step(struct world *w, struct history *h, struct prng *r, struct coord_backup **backup)
{
    struct one *p = &w->at[prng_below(r, MOST)];
    size_t i = p - w->at, k = prng_below(r, h->len + 1);

    switch (prng_below(r, 9)) {
    case 0:
    case 1:
    case 2:
        if (h->len < KEYS)
            add(p, &h->keys[h->len], &h->add[h->len]), h->len++;
        break;
    case 3:
    case 4:
        if (k < h->len && h->keys[k].id[0] && !h->blocked[k]) {
            h->blocked[k] = true;
            block(p, &h->keys[k], &h->block[k]);
        }
        break;
    case 5:
        coord_site_away(w->site, prng_below(r, 2) == 0);
        break;
    case 6:
        coord_sim_cut(p->coord, prng_below(r, 2) == 0);
        break;
    case 7:
        run(w, 8000); /* calls have their deadline, files are written */
        stop(w, i);
        start(w, i);
        break;
    default:
        run(w, 8000);
        if (*backup && prng_below(r, 2) == 0) {
            coord_site_away(w->site, true); /* it takes a while, so that clients notice */
            run(w, 8000);
            coord_site_restore(w->site, *backup);
            coord_site_away(w->site, false);
        } else {
            coord_backup_free(*backup);
            *backup = coord_site_backup(w->site);
        }
    }
    run(w, prng_below(r, 3000));
}

static void test_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct coord_backup *backup = NULL;
        struct history *h = XNEW(struct history);
        struct coord_faults faults = { .delay_max_ms = 300,
                                       .lose_request = 0.05,
                                       .lose_reply = 0.05 };
        struct prng r;
        struct world w;

        prng_init(&r, seed);
        world_open(&w, CLUSTER, true);
        world_start(&w);
        coord_site_faults(w.site, &faults);
        for (int step = 0; step < 60; step++)
            a_step(&w, h, &r, &backup);
        coord_site_faults(w.site, &(struct coord_faults){ 0 });
        coord_site_away(w.site, false);
        for (size_t i = 0; i < MOST; i++)
            coord_sim_cut(w.at[i].coord, false);
        run(&w, 3 * LONG_MS);
        for (size_t i = 0; i < h->len; i++) {
            enum credential_fault want = CREDENTIAL_OK;

            assert_true(h->add[i].ended && (!h->blocked[i] || h->block[i].ended));
            if (h->add[i].code) { /* not stored, or its answer was lost: all think the same */
                want = prove(&w, 0, &h->keys[i]);
                assert_true(h->block[i].code || !h->blocked[i] || want != CREDENTIAL_OK);
            } else if (h->blocked[i] && !h->block[i].code) {
                want = CREDENTIAL_REVOKED;
                assert_true(h->block[i].in_file || !h->block[i].away);
            }
            for (size_t p = 0; p < MOST; p++)
                if (prove(&w, p, &h->keys[i]) != want)
                    fail_msg("seed %" PRIu64 ": process %zu says %d of key %zu, want %d", seed, p,
                             (int)prove(&w, p, &h->keys[i]), i, (int)want);
        }
        coord_backup_free(backup);
        world_close(&w);
        xfree(h);
    }
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
        cmocka_unit_test(test_any_order),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
