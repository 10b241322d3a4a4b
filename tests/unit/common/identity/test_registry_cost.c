/* SPDX-License-Identifier: Apache-2.0
 *
 * What a proof costs: for any well-formed key one HMAC and one comparison of 32 bytes, whatever the
 * result. The linker sends rpc_mac and secret_eq through counters of this file (--wrap in the
 * Makefile), so that equal work is counted and not timed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/secret.h"
#include "common/identity/registry.h"
#include "common/rpc/rpc_crypto.h"
#include "tests/lib/identity/made_key.h"

#define NOW  INT64_C(1800000000000)
#define PEER "10.1.2.3:4242"

static struct env_sim world;
static unsigned macs, compares;
static size_t compared;

void __real_rpc_mac(struct rpc_mac *m, const struct str *parts, size_t n,
                    uint8_t ret[RPC_MAC_BYTES]);
void __wrap_rpc_mac(struct rpc_mac *m, const struct str *parts, size_t n,
                    uint8_t ret[RPC_MAC_BYTES]);
bool __real_secret_eq(struct str secret, struct str given);
bool __wrap_secret_eq(struct str secret, struct str given);

void __wrap_rpc_mac(struct rpc_mac *m, const struct str *parts, size_t n,
                    uint8_t ret[RPC_MAC_BYTES])
{
    macs++;
    __real_rpc_mac(m, parts, n, ret);
}

bool __wrap_secret_eq(struct str secret, struct str given)
{
    compares++;
    compared += secret.len;
    assert_int_equal(secret.len, given.len);
    return __real_secret_eq(secret, given);
}

static struct made_key key_new(struct made_key_form f)
{
    return made_key(&world.env, &f);
}

static void put(struct registry *g, const struct made_key *k)
{
    struct err e;

    assert_int_equal(registry_put(g, k->r, &e), 0);
}

static enum credential_fault prove(struct registry *g, const char *key)
{
    struct key_record *r;

    macs = compares = 0;
    compared = 0;
    return registry_prove(g, str_c(key), NOW, PEER, &r);
}

static void test_work_is_equal(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key good = key_new((struct made_key_form){ 0 }),
                    other = key_new((struct made_key_form){ 0 });
    struct made_key old = key_new((struct made_key_form){ .until = 1 });
    struct made_key gone = key_new((struct made_key_form){ 0 });
    struct made_key off = key_new((struct made_key_form){ .offline = true, .file = true });
    struct made_key far = key_new((struct made_key_form){ .nets = "[\"192.0.2.0/24\"]" });
    char wrong[KEY_TEXT_LEN + 1], wrong_old[KEY_TEXT_LEN + 1], wrong_gone[KEY_TEXT_LEN + 1];
    struct {
        const char *name, *text;
        enum credential_fault want;
    } rows[] = {
        { "right", good.text, CREDENTIAL_OK },
        { "unknown id", other.text, CREDENTIAL_UNKNOWN },
        { "wrong secret", wrong, CREDENTIAL_UNKNOWN },
        { "expired", old.text, CREDENTIAL_EXPIRED },
        { "expired, wrong secret", wrong_old, CREDENTIAL_UNKNOWN },
        { "revoked", gone.text, CREDENTIAL_REVOKED },
        { "revoked, wrong secret", wrong_gone, CREDENTIAL_UNKNOWN },
        { "offline hash", off.text, CREDENTIAL_OK },
        { "from elsewhere", far.text, CREDENTIAL_NET },
    };

    put(g, &good);
    put(g, &old);
    put(g, &gone);
    put(g, &far);
    registry_set_file(g, &off.r, 1);
    registry_block(g, &(struct block_record){ gone.r->id, STR("lost"), 1 });
    made_key_mix(good.text, other.text, wrong);
    made_key_mix(old.text, other.text, wrong_old);
    made_key_mix(gone.text, other.text, wrong_gone);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum credential_fault got = prove(g, rows[i].text);
        if (got != rows[i].want || macs != 1 || compares != 1 || compared != KEY_HASH_BYTES)
            fail_msg("%s: fault %d, %u HMACs, %u comparisons of %zu bytes", rows[i].name, (int)got,
                     macs, compares, compared);
    }
    registry_free(g);
    const struct made_key *all[] = { &good, &other, &old, &gone, &off, &far };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        record_key_unref(all[i]->r);
}

/* A typing error shows by the checksum, which says nothing of any key. */
static void test_malformed_costs_nothing(void **state)
{
    (void)state;
    struct registry *g = registry_new(made_key_pepper);
    struct made_key k = key_new((struct made_key_form){ 0 });

    put(g, &k);
    k.text[20] = k.text[20] == 'a' ? 'b' : 'a';
    assert_int_equal(prove(g, k.text), CREDENTIAL_UNKNOWN);
    assert_int_equal(macs + compares, 0);
    assert_int_equal(prove(g, ""), CREDENTIAL_NONE);
    assert_int_equal(macs + compares, 0);
    registry_free(g);
    record_key_unref(k.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_is_equal),
        cmocka_unit_test(test_malformed_costs_nothing),
    };

    env_sim_init(&world, env_real()->clock, env_real()->fs, 20261128);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
