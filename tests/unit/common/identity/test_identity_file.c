/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.file: what is refused and with which words; when it is read again; that a bad new file
 * leaves the keys of the one before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "common/identity/file.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BOTH "id: k3fT9aQz07Lm, hash: \"offline:" HASH "\""

static void drop(struct key_record **r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        record_key_unref(r[i]);
    xfree(r);
}

static void test_reads(void **state)
{
    static const char text[] = "keys:\n"
                               "  - id: k3fT9aQz07Lm\n"
                               "    hash: \"offline:" HASH "\"\n"
                               "    name: agents\n"
                               "    owner: team-a\n"
                               "    grants:\n"
                               "      - {tenants: [shop], roles: [push], set: {team: a, n: 1}}\n"
                               "      - {tenants: [shop], roles: [read], match: '{team=\"a\"}', "
                               "edit: true}\n"
                               "    until: 2027-01-31\n"
                               "    nets: [10.0.0.0/8]\n"
                               "  - {id: A3fT9aQz07Lm, hash: " HASH ", name: other, "
                               "grants: [{tenants: ['*'], roles: [server-admin]}]}\n";
    struct key_record **r;
    uint8_t hash[KEY_HASH_BYTES];
    struct err e;
    size_t n;

    (void)state;
    if (identity_file_parse("f", str_c(text), &r, &n, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n, 2);
    assert_true(str_eqc(r[0]->id, "A3fT9aQz07Lm"));
    assert_true(r[0]->from_file && !r[0]->offline_hash && r[0]->until_ms == 0);
    const struct key_record *k = r[1];
    assert_true(str_eqc(k->id, "k3fT9aQz07Lm") && str_eqc(k->name, "agents"));
    assert_true(k->from_file && k->offline_hash && str_eqc(k->owner, "team-a"));
    assert_true(hex_read(HASH, KEY_HASH_BYTES, hash));
    assert_memory_equal(k->hash, hash, KEY_HASH_BYTES);
    assert_int_equal(k->until_ms, INT64_C(1801353600000));
    assert_int_equal(k->nets_len, 1);
    assert_int_equal(k->grants.len, 2);
    assert_int_equal(k->grants.ptr[0].roles, ROLE_PUSH);
    assert_int_equal(k->grants.ptr[0].set.len, 2);
    assert_true(k->grants.ptr[1].edit && k->grants.ptr[1].match.len == 1);
    drop(r, n);
}

static void test_refuses(void **state)
{
    static const struct {
        const char *name, *text, *want;
    } rows[] = {
        { "no key of that name", "kees: []\n", "line 1" },
        { "a list is wanted", "keys: {a: 1}\n", "line 1" },
        { "an unknown member", "keys:\n  - {" BOTH ", nmae: x}\n", "name" },
        { "no hash", "keys:\n  - {id: k3fT9aQz07Lm, name: x}\n", "hash: want" },
        { "a key where a hash belongs", "keys:\n  - {id: k3fT9aQz07Lm, hash: emb_kxyz}\n",
          "a key itself must not be in this file" },
        { "a short hash", "keys:\n  - {id: k3fT9aQz07Lm, hash: \"offline:0123\"}\n", "hash: want" },
        { "a bad id", "keys:\n  - {id: short, hash: " HASH ", name: x, grants: []}\n", "id" },
        { "no grants", "keys:\n  - {" BOTH ", name: x}\n", "grants" },
        { "a role there is not",
          "keys:\n  - {" BOTH ", name: x, grants: [{tenants: [a], roles: [fly]}]}\n", "fly" },
        { "a bad date",
          "keys:\n\n  - {" BOTH
          ", name: x, grants: [{tenants: [a], roles: [push]}], until: soon}\n",
          "line 3" },
        { "a date there is not",
          "keys:\n  - {" BOTH
          ", name: x, grants: [{tenants: [a], roles: [push]}], until: 2027-13-01}\n",
          "until is" },
        { "a bad network",
          "keys:\n  - {" BOTH ", name: x, grants: [{tenants: [a], roles: [push]}], nets: [x]}\n",
          "net" },
        { "twice",
          "keys:\n  - {" BOTH ", name: x, grants: [{tenants: [a], roles: [push]}]}\n"
          "  - {" BOTH ", name: y, grants: [{tenants: [a], roles: [push]}]}\n",
          "twice" },
        { "deep", "keys:\n  - {" BOTH ", name: x, grants: [[[[[[[[[[[[1]]]]]]]]]]]]}\n",
          "in one another" },
        { "a text for an entry", "keys: [x]\n", "line 1" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct key_record **r;
        struct err e;
        size_t n;

        if (identity_file_parse("f", str_c(rows[i].text), &r, &n, &e) != ERR_CONFIG)
            fail_msg("%s was taken", rows[i].name);
        if (!strstr(e.text, rows[i].want))
            fail_msg("%s: %s", rows[i].name, e.text);
        if (strstr(e.text, "emb_k"))
            fail_msg("%s: the text has a key in it", rows[i].name);
    }
}

static void test_nothing(void **state)
{
    static const char *const texts[] = { "", "keys:\n", "keys: []\n", "# none\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct key_record **r;
        struct err e;
        size_t n = 1;

        assert_int_equal(identity_file_parse("f", str_c(texts[i]), &r, &n, &e), 0);
        assert_int_equal(n, 0);
        drop(r, n);
    }
}

/* ---- the file changes ------------------------------------------------------------------------ */

struct bed {
    char dir[64], path[96], other[96];
    struct registry *registry;
    struct identity_file *file;
};

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void bed_open(struct bed *b)
{
    const uint8_t pepper[KEY_PEPPER_BYTES] = { 1 };

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/identity-file-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->path, sizeof(b->path), "%s/keys.yaml", b->dir);
    (void)snprintf(b->other, sizeof(b->other), "%s/next.yaml", b->dir);
    b->registry = registry_new(pepper);
    b->file = NULL;
}

static void bed_close(struct bed *b)
{
    identity_file_free(b->file);
    registry_free(b->registry);
    (void)unlink(b->path);
    (void)unlink(b->other);
    assert_int_equal(rmdir(b->dir), 0);
}

#define ENTRY(id) \
    "  - {id: " id ", hash: " HASH ", name: x, grants: [{tenants: [a], roles: [push]}]}\n"

static void test_changes(void **state)
{
    struct bed b;
    struct err e;

    (void)state;
    bed_open(&b);
    put(b.path, "keys:\n" ENTRY("k3fT9aQz07Lm"));
    assert_int_equal(identity_file_new(env_real(), b.path, b.registry, &b.file, &e), 0);
    assert_non_null(registry_find(b.registry, STR("k3fT9aQz07Lm")));
    assert_true(identity_file_tick(b.file, &e) && !e.code);
    uint64_t version = registry_version(b.registry);
    assert_true(identity_file_tick(b.file, &e));
    assert_int_equal(registry_version(b.registry), version); /* not read for nothing */
    /* Another file of the same size takes its place. */
    put(b.other, "keys:\n" ENTRY("A3fT9aQz07Lm"));
    assert_int_equal(rename(b.other, b.path), 0);
    assert_true(identity_file_tick(b.file, &e) && !e.code);
    assert_null(registry_find(b.registry, STR("k3fT9aQz07Lm")));
    assert_non_null(registry_find(b.registry, STR("A3fT9aQz07Lm")));
    /* A bad file is said once, and changes nothing. */
    put(b.path, "keys: wrong\n");
    assert_false(identity_file_tick(b.file, &e));
    assert_int_equal(e.code, ERR_CONFIG);
    assert_true(strstr(e.text, "keys.yaml") && strstr(e.text, "line 1"));
    assert_false(identity_file_tick(b.file, &e));
    assert_int_equal(e.code, 0);
    assert_non_null(registry_find(b.registry, STR("A3fT9aQz07Lm")));
    /* So is a file that others may read, and a file that is gone. */
    put(b.path, "keys: []\n");
    assert_int_equal(chmod(b.path, 0644), 0);
    assert_false(identity_file_tick(b.file, &e));
    assert_non_null(strstr(e.text, "chmod"));
    assert_int_equal(unlink(b.path), 0);
    assert_false(identity_file_tick(b.file, &e));
    assert_int_equal(e.code, ERR_CONFIG);
    assert_non_null(registry_find(b.registry, STR("A3fT9aQz07Lm")));
    put(b.path, "keys:\n" ENTRY("B3fT9aQz07Lm"));
    assert_true(identity_file_tick(b.file, &e));
    assert_null(registry_find(b.registry, STR("A3fT9aQz07Lm")));
    assert_non_null(registry_find(b.registry, STR("B3fT9aQz07Lm")));
    bed_close(&b);
}

static void test_start(void **state)
{
    struct bed b;
    struct err e;

    (void)state;
    bed_open(&b);
    assert_int_equal(identity_file_new(env_real(), b.path, b.registry, &b.file, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "keys.yaml"));
    put(b.path, "keys:\n" ENTRY("k3fT9aQz07Lm"));
    assert_int_equal(chmod(b.path, 0604), 0);
    assert_int_equal(identity_file_new(env_real(), b.path, b.registry, &b.file, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "0604"));
    assert_true(identity_file_tick(NULL, &e));
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),   cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_nothing), cmocka_unit_test(test_changes),
        cmocka_unit_test(test_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
