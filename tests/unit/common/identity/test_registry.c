/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry: sources and their rank, blocks, proofs, the text of it all. What a proof costs is
 * in test_registry_cost.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/identity/registry.h"
#include "tests/lib/identity/made_key.h"

#define NOW  INT64_C(1800000000000)
#define PEER "10.1.2.3:4242"
#define ROOT "[{\"tenants\":[\"*\"],\"roles\":[\"server-admin\"]}]"

static const uint8_t sign[RECORD_SIGN_BYTES] = { 9, 8, 7 };
static struct env_sim world;

/* ---- keys ------------------------------------------------------------------------------------ */

static struct made_key key_new(struct made_key_form f)
{
    return made_key(&world.env, &f);
}

static void put(struct registry *g, const struct made_key *k)
{
    struct err e;

    assert_int_equal(registry_put(g, k->r, &e), 0);
}

static enum credential_fault prove_at(struct registry *g, const char *key, int64_t now_ms,
                                      const char *peer, struct key_record **ret)
{
    struct key_record *r = NULL;
    enum credential_fault fault = registry_prove(g, str_c(key), now_ms, peer, &r);

    assert_int_equal(r != NULL, fault == CREDENTIAL_OK);
    if (ret)
        *ret = r;
    return fault;
}

static enum credential_fault prove(struct registry *g, const char *key)
{
    return prove_at(g, key, NOW, PEER, NULL);
}

static void block(struct registry *g, const struct made_key *k, int64_t at_ms, const char *why)
{
    char id[KEY_ID_LEN], text[32];

    /* The registry must copy both. */
    memcpy(id, k->r->id.ptr, KEY_ID_LEN);
    (void)snprintf(text, sizeof(text), "%s", why);
    registry_block(g, &(struct block_record){ str_n(id, KEY_ID_LEN), str_c(text), at_ms });
    memset(id, 'x', sizeof(id));
    memset(text, 'x', sizeof(text));
}

/* ---- proofs ---------------------------------------------------------------------------------- */

static void test_proves(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key a = key_new((struct made_key_form){ 0 }),
                    b = key_new((struct made_key_form){ 0 });
    struct key_record *who;
    uint64_t version = registry_version(g);

    assert_int_equal(prove(g, a.text), CREDENTIAL_UNKNOWN);
    put(g, &a);
    put(g, &b);
    assert_true(registry_version(g) > version);
    version = registry_version(g);
    assert_int_equal(registry_len(g), 2);
    assert_int_equal(prove_at(g, a.text, NOW, PEER, &who), CREDENTIAL_OK);
    assert_ptr_equal(who, a.r);
    assert_int_equal(prove_at(g, b.text, NOW, PEER, &who), CREDENTIAL_OK);
    assert_ptr_equal(who, b.r);
    assert_ptr_equal(registry_find(g, a.r->id), a.r);
    assert_int_equal(registry_version(g), version);
    assert_int_equal(prove(g, ""), CREDENTIAL_NONE);
    assert_int_equal(prove(g, "emb_k"), CREDENTIAL_UNKNOWN);
    b.text[4] = KEY_GATEWAY; /* the kind is for people; but an invite is no credential */
    made_key_mix(b.text, b.text, b.text);
    assert_int_equal(prove(g, b.text), CREDENTIAL_OK);
    b.text[4] = KEY_INVITE;
    made_key_mix(b.text, b.text, b.text);
    assert_int_equal(prove(g, b.text), CREDENTIAL_UNKNOWN);
    registry_del(g, a.r->id);
    registry_del(g, a.r->id);
    assert_int_equal(prove(g, a.text), CREDENTIAL_UNKNOWN);
    assert_int_equal(registry_len(g), 1);
    registry_free(g);
    assert_int_equal(a.r->refs, 1);
    assert_int_equal(b.r->refs, 1);
    record_key_unref(a.r);
    record_key_unref(b.r);
    registry_free(NULL);
}

static void test_times_and_nets(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ .from = NOW, .until = NOW + 1000000 });
    struct made_key near = key_new((struct made_key_form){ .nets = "[\"10.0.0.0/8\",\"::1\"]" });
    const struct {
        int64_t at;
        enum credential_fault want;
    } rows[] = {
        { NOW - REGISTRY_SKEW_MS - 1, CREDENTIAL_EXPIRED },
        { NOW - REGISTRY_SKEW_MS, CREDENTIAL_OK },
        { NOW + 1000000 + REGISTRY_SKEW_MS - 1, CREDENTIAL_OK },
        { NOW + 1000000 + REGISTRY_SKEW_MS, CREDENTIAL_EXPIRED },
    };

    put(g, &k);
    put(g, &near);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(prove_at(g, k.text, rows[i].at, PEER, NULL), rows[i].want);
    assert_int_equal(prove_at(g, near.text, NOW, "10.255.0.1:1", NULL), CREDENTIAL_OK);
    assert_int_equal(prove_at(g, near.text, NOW, "[::1]:1", NULL), CREDENTIAL_OK);
    assert_int_equal(prove_at(g, near.text, NOW, "11.0.0.1:1", NULL), CREDENTIAL_NET);
    assert_int_equal(prove_at(g, near.text, NOW, "unix:@", NULL), CREDENTIAL_NET);
    registry_free(g);
    record_key_unref(k.r);
    record_key_unref(near.r);
}

static void test_last_use(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 }),
                    other = key_new((struct made_key_form){ 0 });
    char wrong[KEY_TEXT_LEN + 1];

    put(g, &k);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 0);
    made_key_mix(k.text, other.text, wrong);
    assert_int_equal(prove(g, wrong), CREDENTIAL_UNKNOWN);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 0);
    assert_int_equal(prove_at(g, k.text, 61001, PEER, NULL), CREDENTIAL_OK);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 60000);
    /* A watch that begins again does not forget it. */
    registry_clear_stored(g);
    assert_int_equal(prove(g, k.text), CREDENTIAL_UNKNOWN);
    put(g, &k);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 60000);
    registry_clear_stored(g);
    registry_clear_stored(g);
    put(g, &k);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 0);
    assert_int_equal(registry_last_use_ms(g, STR("no id")), 0);
    registry_free(g);
    record_key_unref(k.r);
    record_key_unref(other.r);
}

static void test_pepper_changes(void **state)
{
    (void)state;
    static const uint8_t next[KEY_PEPPER_BYTES] = { 77 };
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 }),
                    off = key_new((struct made_key_form){ .offline = true });
    uint64_t version;

    put(g, &k);
    put(g, &off);
    version = registry_version(g);
    registry_set_pepper(g, next);
    assert_true(registry_version(g) > version);
    assert_int_equal(prove(g, k.text), CREDENTIAL_UNKNOWN);
    assert_int_equal(prove(g, off.text), CREDENTIAL_OK);
    struct key_record *again = made_key_record(k.text, &(struct made_key_form){ .pepper = next });
    struct err e;
    assert_int_equal(registry_put(g, again, &e), 0);
    assert_int_equal(registry_len(g), 2);
    assert_int_equal(prove(g, k.text), CREDENTIAL_OK);
    registry_set_pepper(g, made_key_pepper);
    assert_int_equal(prove(g, k.text), CREDENTIAL_UNKNOWN);
    registry_free(g);
    record_key_unref(again);
    record_key_unref(k.r);
    record_key_unref(off.r);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void test_file_hides_stored(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ .name = "stored" }), second = k;
    struct made_key only = key_new((struct made_key_form){ .name = "only", .file = true });
    struct key_record *file =
        made_key_record(k.text, &(struct made_key_form){ .name = "file", .file = true });
    struct key_record *both[] = { file, only.r };

    put(g, &k);
    registry_set_file(g, both, 2);
    assert_int_equal(registry_len(g), 2);
    assert_ptr_equal(registry_find(g, k.r->id), file);
    /* A new stored one is taken, and stays hidden. */
    second.r = made_key_record(k.text, &(struct made_key_form){ .name = "second" });
    put(g, &second);
    assert_ptr_equal(registry_find(g, k.r->id), file);
    assert_int_equal(prove(g, only.text), CREDENTIAL_OK);
    registry_set_file(g, &only.r, 1);
    assert_ptr_equal(registry_find(g, k.r->id), second.r);
    assert_true(registry_last_use_ms(g, only.r->id) > 0);
    registry_set_file(g, both, 2);
    registry_del(g, k.r->id);
    assert_ptr_equal(registry_find(g, k.r->id), file);
    registry_clear_stored(g);
    assert_int_equal(registry_len(g), 2);
    registry_set_file(g, NULL, 0);
    assert_int_equal(registry_len(g), 0);
    assert_null(registry_find(g, only.r->id));
    assert_int_equal(prove(g, only.text), CREDENTIAL_UNKNOWN);
    assert_int_equal(file->refs + only.r->refs + k.r->refs + second.r->refs, 4);
    registry_free(g);
    record_key_unref(file);
    record_key_unref(only.r);
    record_key_unref(second.r);
    record_key_unref(k.r);
}

static void test_file_with_one_id_twice(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ .file = true });
    struct key_record *next =
        made_key_record(k.text, &(struct made_key_form){ .name = "b", .file = true });
    struct key_record *both[] = { k.r, next };

    registry_set_file(g, both, 2);
    assert_ptr_equal(registry_find(g, k.r->id), next);
    registry_set_file(g, both, 1);
    assert_ptr_equal(registry_find(g, k.r->id), k.r);
    registry_free(g);
    record_key_unref(k.r);
    record_key_unref(next);
}

static void test_blocks(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 }),
                    off = key_new((struct made_key_form){ .file = true });
    uint64_t version;

    /* Before the record comes, and of a record of the file. */
    block(g, &k, 5, "lost");
    registry_set_file(g, &off.r, 1);
    block(g, &off, 5, "lost");
    assert_int_equal(registry_len(g), 1);
    put(g, &k);
    assert_true(registry_blocked(g, k.r->id));
    assert_false(registry_blocked(g, STR("000000000000")));
    assert_int_equal(prove(g, k.text), CREDENTIAL_REVOKED);
    assert_int_equal(prove(g, off.text), CREDENTIAL_REVOKED);
    assert_int_equal(registry_last_use_ms(g, k.r->id), 0);
    /* Nothing takes it back. */
    version = registry_version(g);
    block(g, &k, 6, "again");
    assert_int_equal(registry_version(g), version);
    registry_del(g, k.r->id);
    registry_clear_stored(g);
    registry_clear_stored(g);
    put(g, &k);
    assert_int_equal(prove(g, k.text), CREDENTIAL_REVOKED);
    registry_free(g);
    record_key_unref(k.r);
    record_key_unref(off.r);
}

struct seen {
    char text[512];
    size_t len;
};

static void note(void *cookie, struct key_record *r, const struct block_record *b)
{
    struct seen *s = cookie;

    s->len += (size_t)snprintf(s->text + s->len, sizeof(s->text) - s->len, "%.*s:%s:%.*s ",
                               STR_ARG(r ? r->name : b->id), r ? "key" : "-",
                               STR_ARG(b ? b->why : STR("-")));
}

static void test_each_is_in_order(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    static const char *const ids[] = { "000000000003", "000000000001", "000000000002" };
    struct seen s = { .len = 0 };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct made_key k;
        struct key_record *r;

        key_make(&world.env, KEY_API, k.text);
        memcpy(k.text + 5, ids[i], KEY_ID_LEN);
        made_key_mix(k.text, k.text, k.text);
        r = made_key_record(k.text, &(struct made_key_form){ .name = ids[i] });
        if (i < 2)
            assert_int_equal(registry_put(g, r, &e), 0);
        if (i > 0)
            registry_block(g, &(struct block_record){ r->id, STR("why"), 1 });
        record_key_unref(r);
    }
    registry_each(g, note, &s);
    assert_string_equal(s.text, "000000000001:key:why 000000000002:-:why 000000000003:key:- ");
    registry_free(g);
}

static void test_has_admin(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 });
    struct made_key old =
        key_new((struct made_key_form){ .grants = ROOT, .until = NOW - REGISTRY_SKEW_MS });
    struct made_key one = key_new((struct made_key_form){ .grants = ROOT });
    struct made_key two = key_new((struct made_key_form){ .grants = ROOT, .from = NOW });

    put(g, &k);
    put(g, &old);
    assert_false(registry_has_admin(g, NOW));
    assert_true(registry_has_admin(g, NOW - 1));
    put(g, &one);
    assert_true(registry_has_admin(g, NOW));
    block(g, &one, 1, "");
    assert_false(registry_has_admin(g, NOW));
    put(g, &two);
    assert_true(registry_has_admin(g, NOW));
    assert_true(registry_has_admin(g, NOW));
    registry_del(g, two.r->id);
    assert_false(registry_has_admin(g, NOW));
    registry_free(g);
    const struct made_key *all[] = { &k, &old, &one, &two };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        record_key_unref(all[i]->r);
}

/* ---- text ------------------------------------------------------------------------------------ */

static struct registry *some(struct made_key *ret, size_t n)
{
    struct registry *g = registry_new(made_key_pepper);

    for (size_t i = 0; i < n; i++) {
        ret[i] = key_new((struct made_key_form){ .name = "a \\\"name\\\"" });
        put(g, &ret[i]);
    }
    block(g, &ret[0], 17, "lost \"it\"");
    registry_block(g, &(struct block_record){ STR("zzzzzzzzzzzz"), STR(""), 18 });
    return g;
}

static void test_text_there_and_back(void **state)
{
    (void)state;
    struct made_key keys[5];
    struct registry *g = some(keys, 5), *back = registry_new(made_key_pepper);
    struct key_record *file =
        made_key_record(keys[1].text, &(struct made_key_form){ .name = "hides", .file = true });
    struct buf b, again;
    struct err e;

    registry_set_file(g, &file, 1);
    buf_init(&b, MIB);
    buf_init(&again, MIB);
    registry_write(g, sign, &b);
    if (registry_read(back, buf_str(&b), sign, &e))
        fail_msg("%s", e.text);
    assert_int_equal(registry_len(back), 5);
    assert_int_equal(prove(back, keys[0].text), CREDENTIAL_REVOKED);
    assert_int_equal(prove(back, keys[1].text), CREDENTIAL_OK);
    assert_true(str_eqc(registry_find(back, keys[1].r->id)->name, "a \"name\""));
    assert_true(registry_blocked(back, STR("zzzzzzzzzzzz")));
    registry_write(back, sign, &again);
    assert_true(str_eq(buf_str(&b), buf_str(&again)));
    /* Twice is once. */
    assert_int_equal(registry_read(back, buf_str(&b), sign, &e), 0);
    assert_int_equal(registry_len(back), 5);
    buf_deinit(&b);
    buf_deinit(&again);
    registry_free(g);
    registry_free(back);
    record_key_unref(file);
    for (size_t i = 0; i < 5; i++)
        record_key_unref(keys[i].r);
}

static void refused(struct str text, int code, const char *want)
{
    struct registry *g = registry_new(made_key_pepper);
    struct err e;

    assert_int_equal(registry_read(g, text, sign, &e), code);
    if (!strstr(e.text, want))
        fail_msg("\"%s\" has no \"%s\"", e.text, want);
    assert_int_equal(registry_len(g), 0);
    assert_false(registry_blocked(g, STR("zzzzzzzzzzzz")));
    registry_free(g);
}

static void test_text_is_refused_whole(void **state)
{
    (void)state;
    struct made_key keys[2];
    struct registry *g = some(keys, 2);
    struct buf b;
    char *at;

    buf_init(&b, MIB);
    registry_write(g, sign, &b);
    buf_add_c(&b, '\0');
    struct str text = str_sub(buf_str(&b), 0, b.len - 1);
    at = strstr(b.ptr, "\"shop\"");
    assert_non_null(at);
    at[1] = 't';
    refused(text, ERR_INPUT, "signature is wrong");
    at[1] = 's';
    at = strstr(b.ptr, "\"at\":18");
    assert_non_null(at);
    at[6] = '9';
    refused(text, ERR_INPUT, "block zzzzzzzzzzzz: its signature is wrong");
    at[6] = '8';
    for (size_t cut = 0; cut < text.len - 1; cut += 7)
        refused(str_sub(text, 0, cut), ERR_INPUT, "JSON");
    refused(STR("{\"keys\":[]}"), ERR_INPUT, "no list of blocks");
    refused(STR("{\"blocks\":[]}"), ERR_INPUT, "no list of keys");
    refused(STR("{\"keys\":[],\"blocks\":[],\"keys\":[]}"), ERR_INPUT, "twice");
    refused(STR("{\"keys\":[],\"blocks\":null}"), ERR_INPUT, "want a list");
    refused(STR("{\"keys\":[3],\"blocks\":[]}"), ERR_INPUT, "record of a key");
    refused(STR("[]"), ERR_INPUT, "want an object");
    refused(STR("null"), ERR_INPUT, "want an object");
    refused(STR("{\"keys\":[],\"blocks\":[]} x"), ERR_INPUT, "behind the document");
    buf_deinit(&b);
    registry_free(g);
    record_key_unref(keys[0].r);
    record_key_unref(keys[1].r);
}

/* ---- many ------------------------------------------------------------------------------------ */

static struct key_record *numbered(unsigned i)
{
    char text[256];
    struct key_record *r;
    struct err e;

    (void)snprintf(text, sizeof(text),
                   "{\"id\":\"%012u\",\"hash\":\"%064u\",\"grants\":[{\"tenants\":[\"t%u\"],"
                   "\"roles\":[\"push\"]}]}",
                   i, i, i % 1000);
    assert_int_equal(record_key_read(str_c(text), &r, &e), 0);
    return r;
}

static void test_a_full_registry(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper), *back = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 });
    struct buf b;
    struct err e;
    size_t bytes = 0;

    put(g, &k);
    for (unsigned i = 1; i < REGISTRY_KEYS_MAX; i++) {
        struct key_record *r = numbered(i);

        bytes = MAX(bytes, arena_limit(r->arena));
        assert_int_equal(registry_put(g, r, &e), 0);
        record_key_unref(r);
    }
    assert_true(bytes < 512);
    struct key_record *more = numbered(REGISTRY_KEYS_MAX);
    assert_int_equal(registry_put(g, more, &e), ERR_LIMIT);
    assert_int_equal(registry_len(g), REGISTRY_KEYS_MAX);
    put(g, &k); /* replaces */
    assert_int_equal(prove(g, k.text), CREDENTIAL_OK);
    buf_init(&b, 64 * MIB);
    registry_write(g, NULL, &b);
    assert_true(buf_ok(&b));
    assert_int_equal(registry_put(back, more, &e), 0);
    assert_int_equal(registry_read(back, buf_str(&b), NULL, &e), ERR_LIMIT);
    assert_int_equal(registry_len(back), 1);
    registry_del(back, more->id);
    assert_int_equal(registry_read(back, buf_str(&b), NULL, &e), 0);
    assert_int_equal(registry_len(back), REGISTRY_KEYS_MAX);
    buf_deinit(&b);
    record_key_unref(more);
    record_key_unref(k.r);
    registry_free(g);
    registry_free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proves),
        cmocka_unit_test(test_times_and_nets),
        cmocka_unit_test(test_last_use),
        cmocka_unit_test(test_pepper_changes),
        cmocka_unit_test(test_file_hides_stored),
        cmocka_unit_test(test_file_with_one_id_twice),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_each_is_in_order),
        cmocka_unit_test(test_has_admin),
        cmocka_unit_test(test_text_there_and_back),
        cmocka_unit_test(test_text_is_refused_whole),
        cmocka_unit_test(test_a_full_registry),
    };

    env_sim_init(&world, env_real()->clock, env_real()->fs, 20261128);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
