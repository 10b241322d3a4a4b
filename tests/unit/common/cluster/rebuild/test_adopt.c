/* SPDX-License-Identifier: Apache-2.0
 *
 * Databases that become first copies, through a simulated coordination service that loses requests
 * and answers: several nodes at once, two folders of one name, two of the same shards, a cluster
 * that is there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/rebuild/adopt.h"

#define PREFIX  "/e"
#define CLUSTER "00112233445566778899aabbccddeeff"

enum { SHARDS = 100, GUARD_MS = 60000 };

static const char *const names[] = { "a", "b", "c" };

struct one {
    struct coord *coord;
    bool ended;
    int code;
    char text[ERR_TEXT_MAX];
};
static struct clock_fake clock_;
static struct loop *loop;
static struct coord_site *site;
static struct one ones[3];
static const struct map *places; /* of the folder */
static bool served;              /* the folder's copies, in a cluster */

static void begin(uint64_t seed, double lose)
{
    clock_fake_init(&clock_, 1600000000000);
    loop = loop_sim_new(&clock_);
    site = coord_site_new(loop, seed);
    coord_site_faults(site, &(struct coord_faults){ 1, 5, lose, lose, false });
    for (int i = 0; i < 3; i++)
        ones[i] = (struct one){ .coord = coord_sim_new(site) };
}

static void end(void)
{
    for (int i = 0; i < 3; i++)
        coord_free(ones[i].coord);
    coord_site_free(site);
    loop_free(loop);
}

static void on_done(void *cookie, const struct err *e)
{
    struct one *o = cookie;

    assert_false(o->ended);
    o->ended = true;
    o->code = e ? e->code : 0;
    (void)snprintf(o->text, sizeof(o->text), "%s", e ? e->text : "");
}

static void ask(struct one *o, const char *self, uint64_t id, uint32_t shards, size_t n)
{
    struct adopt_opts ao = {
        .coord = o->coord,
        .prefix = PREFIX,
        .self = self,
        .id = id,
        .folder = "/data",
        .served = served,
        .cluster_id = CLUSTER,
        .plan = { shards, 3, names, n },
        .places = places,
    };

    o->ended = false;
    cluster_adopt(&ao, on_done, o);
}

static void wait_for(const struct one *o)
{
    while (!o->ended)
        assert_true(loop_sim_step(loop));
}

static int adopt(const char *self, uint64_t id, uint32_t shards, size_t n)
{
    do {
        ask(&ones[0], self, id, shards, n);
        wait_for(&ones[0]);
    } while (ones[0].code == ERR_TIMEOUT);
    return ones[0].code;
}

static void check(uint32_t shards, size_t n)
{
    struct coord_key key = key_map(STR(PREFIX));
    const struct coord_kv *kv = coord_site_get(site, key_str(&key));
    const struct map *m;
    struct err e;

    assert_non_null(kv);
    assert_int_equal(map_parse("map", kv->value, true, &m, &e), 0);
    assert_int_equal(m->shards, shards);
    assert_int_equal(m->replicas, 3);
    assert_int_equal(m->nodes_len, 0);
    map_unref(m);
    for (uint32_t i = 0; i < shards; i++) {
        struct repl_record r;

        key = key_shard(STR(PREFIX), i);
        kv = coord_site_get(site, key_str(&key));
        assert_non_null(kv);
        assert_int_equal(record_parse(kv->value, &r, &e), 0);
        assert_int_equal(r.term, 1);
        assert_false(r.established);
        assert_int_equal(r.members.len, 1);
        assert_string_equal(r.leader, names[i % n]);
    }
}

static void test_one(void **state)
{
    (void)state;
    begin(1, 0);
    assert_int_equal(adopt("a", 7, SHARDS, 1), 0);
    check(SHARDS, 1);
    assert_int_equal(adopt("a", 7, SHARDS, 1), 0); /* once more */
    check(SHARDS, 1);
    assert_int_equal(adopt("a", 8, SHARDS, 1), ERR_CONFLICT);
    assert_non_null(strstr(ones[0].text, "another data folder"));
    assert_int_equal(adopt("a", 7, SHARDS + 1, 1), ERR_CONFLICT);
    assert_int_equal(adopt("b", 9, SHARDS, 2), ERR_CONFLICT);
    assert_non_null(strstr(ones[0].text, "other settings"));
    check(SHARDS, 1);
    end();
}

/* All at once, each until its call is done; in 200 worlds. */
static void test_many(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        bool again = true;

        begin(seed, 0.1);
        for (int i = 0; i < 3; i++)
            ask(&ones[i], names[i], 10 + (uint64_t)i, SHARDS, 3);
        while (again) {
            again = false;
            for (int i = 0; i < 3; i++) {
                wait_for(&ones[i]);
                if (ones[i].code == 0)
                    continue;
                if (ones[i].code != ERR_TIMEOUT)
                    fail_msg("seed %" PRIu64 ": %s: %s", seed, names[i], ones[i].text);
                ask(&ones[i], names[i], 10 + (uint64_t)i, SHARDS, 3);
                again = true;
            }
        }
        check(SHARDS, 3);
        end();
    }
}

/* Two folders with the same shards, on nodes of their own or of the same name: one gets them. */
static void test_rivals(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        bool same_name = seed % 2;

        begin(seed, 0);
        for (int i = 0; i < 2; i++) {
            const char *const *self = &names[same_name ? 0 : i];
            struct adopt_opts ao = {
                .coord = ones[i].coord,
                .prefix = PREFIX,
                .self = self[0],
                .id = 10 + (uint64_t)i,
                .folder = "/data",
                .cluster_id = CLUSTER,
                .plan = { 4, 3, self, 1 },
            };

            cluster_adopt(&ao, on_done, &ones[i]);
        }
        wait_for(&ones[0]);
        wait_for(&ones[1]);
        assert_int_equal((ones[0].code == 0) + (ones[1].code == 0), 1);
        assert_int_equal(ones[0].code + ones[1].code, ERR_CONFLICT);
        end();
    }
}

static void test_there_is_one(void **state)
{
    struct coord_key key = key_map(STR(PREFIX)), shard = key_shard(STR(PREFIX), 3);
    struct repl_record r = { .term = 5, .leader = "a" };
    struct buf text;
    int64_t rev;

    (void)state;
    begin(1, 0);
    coord_site_put(site, key_str(&key), STR("{\"version\":1,\"shards\":4,\"replicas\":3}"));
    rev = coord_site_rev(site);
    assert_int_equal(adopt("a", 7, 4, 1), ERR_CONFLICT);
    assert_non_null(strstr(ones[0].text, "there is a cluster"));
    coord_site_del(site, key_str(&key));
    assert_int_equal(coord_site_rev(site), rev + 1);
    assert_int_equal(adopt("a", 7, 4, 1), 0);
    /* In service since: the folder that comes again may be an old copy. */
    assert_true(name_set_add(&r.members, "a") && name_set_add(&r.members, "b"));
    buf_init(&text, RECORD_BYTES_MAX);
    record_write(&r, &text);
    coord_site_put(site, key_str(&shard), buf_str(&text));
    buf_deinit(&text);
    assert_int_equal(adopt("a", 7, 4, 1), ERR_CONFLICT);
    assert_non_null(strstr(ones[0].text, "shard 3"));
    end();
}

static const struct map *of_text(struct str text)
{
    const struct map *m;
    struct err e;

    assert_int_equal(map_parse("m", text, false, &m, &e), 0);
    return m;
}

/* Restored: the first map has the places, with a higher version. A node that knows more places is
 * not accepted silently. */
static void test_places(void **state)
{
    struct coord_key key = key_map(STR(PREFIX));
    const struct map *m;

    (void)state;
    begin(1, 0);
    places = of_text(STR("version: 40\nshards: 4\nservices: [{tenant: t, name: s, spread: 3}]\n"
                         "tenant_shards: 2"));
    assert_int_equal(adopt("a", 7, 4, 2), 0);
    m = of_text(coord_site_get(site, key_str(&key))->value);
    assert_int_equal(m->version, 41);
    assert_int_equal(m->replicas, 3);
    assert_int_equal(map_service(m, STR("t"), STR("s"))->steps.at[0].n, 3);
    assert_int_equal(m->tenant_steps.at[0].n, 2);
    map_unref(m);
    assert_int_equal(adopt("a", 7, 4, 2), 0);
    map_unref(places);
    places = NULL;
    assert_int_equal(adopt("b", 8, 4, 2), 0);
    places = of_text(STR("version: 40\nshards: 4\nservices: [{tenant: t, name: s, spread: 4}]\n"));
    assert_int_equal(adopt("b", 8, 4, 2), ERR_CONFIG);
    assert_non_null(strstr(ones[0].text, "tenant * was in all shards"));
    coord_site_put(site, key_str(&key),
                   STR("{\"version\":42,\"shards\":4,\"replicas\":3,\"services\":[{\"tenant\":"
                       "\"t\",\"name\":\"s\",\"spread\":3}]}"));
    assert_int_equal(adopt("b", 8, 4, 2), ERR_CONFIG);
    assert_non_null(strstr(ones[0].text, "service s of tenant t was spread over 4 shards"));
    coord_site_put(site, key_str(&key),
                   STR("{\"version\":43,\"shards\":4,\"replicas\":3,\"services\":[{\"tenant\":"
                       "\"t\",\"name\":\"s\",\"spread\":4}]}"));
    assert_int_equal(adopt("b", 8, 4, 2), 0);
    map_unref(places);
    places = NULL;
    end();
}

/* Copies that another cluster counts on are refused, and nothing was made; once they are this
 * cluster's, the command may be repeated. */
static void test_served(void **state)
{
    int64_t rev;

    (void)state;
    begin(1, 0);
    rev = coord_site_rev(site);
    served = true;
    assert_int_equal(adopt("a", 7, 4, 1), ERR_CONFLICT);
    assert_non_null(strstr(ones[0].text, "another cluster"));
    assert_int_equal(coord_site_rev(site), rev);
    served = false;
    assert_int_equal(adopt("a", 7, 4, 1), 0);
    served = true;
    assert_int_equal(adopt("a", 7, 4, 1), 0);
    served = false;
    end();
}

struct checked {
    struct adopt_folder f;
    int code;
    struct err e;
};

static void on_keys(void *cookie, const struct coord_reply *r)
{
    struct checked *c = cookie;

    assert_null(r->err);
    c->code = adopt_check(STR(PREFIX), r, &c->f, &c->e);
}

static struct checked checked(const char *self, uint64_t id, bool untouched, bool has_logs)
{
    struct checked c = { .f = { self, "/other", id, untouched, has_logs }, .code = -1 };

    coord_list(ones[1].coord, STR(PREFIX "/adopt"), on_keys, &c);
    while (c.code == -1)
        assert_true(loop_sim_step(loop));
    return c;
}

/* Which folder may be which node, once data were adopted. */
static void test_check(void **state)
{
    struct checked c;

    (void)state;
    begin(1, 0);
    assert_int_equal(checked("a", 8, true, false).code, 0); /* nothing was adopted here */
    assert_int_equal(adopt("a", 7, 4, 2), 0);
    assert_int_equal(checked("a", 7, true, true).code, 0); /* wherever it is mounted */
    c = checked("a", 8, true, true);
    assert_int_equal(c.code, ERR_CONFLICT);
    assert_non_null(strstr(c.e.text, "/data (node-id 0000000000000007)"));
    assert_non_null(strstr(c.e.text, "/other (node-id 0000000000000008)"));
    c = checked("a", 7, true, false);
    assert_int_equal(c.code, ERR_CONFLICT);
    assert_non_null(strstr(c.e.text, "a shard of it is not there"));
    /* Served once: a new folder is that of a node whose disk was lost. */
    assert_int_equal(checked("a", 8, false, true).code, 0);
    /* The other node of the plan, whose folder was not adopted yet. */
    c = checked("b", 8, true, false);
    assert_int_equal(c.code, ERR_CONFLICT);
    assert_non_null(strstr(c.e.text, "embertree adopt"));
    /* The folder under another name, also when all is served. */
    c = checked("b", 7, false, true);
    assert_int_equal(c.code, ERR_CONFLICT);
    assert_non_null(strstr(c.e.text, "--cluster.node=a"));
    assert_int_equal(checked("c", 9, false, true).code, 0); /* a node of no part in it */
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),    cmocka_unit_test(test_many),
        cmocka_unit_test(test_rivals), cmocka_unit_test(test_there_is_one),
        cmocka_unit_test(test_places), cmocka_unit_test(test_served),
        cmocka_unit_test(test_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
