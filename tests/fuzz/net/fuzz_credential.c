/* SPDX-License-Identifier: Apache-2.0
 *
 * The two headers by which a request says who it is from and for: Authorization in the first line,
 * X-Scope-OrgID in the rest.
 */
#include <string.h>

#include "common/identity/decide.h"
#include "common/model/tenant_id.h"

#define ARENA_MAX (64 * KIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The tenants of a header are names, in order, each once, and say the same again. */
static void tenants(struct str header, bool strict, size_t many)
{
    struct str names[DECIDE_TENANTS_MAX], one;
    size_t n = 0, len = 0;
    struct err e;

    if (tenant_ids_read(header, strict, many, names, &n, &e)) {
        CHECK(e.code == ERR_INPUT || e.code == ERR_LIMIT || e.code == ERR_UNAUTHENTICATED);
        return;
    }
    CHECK(n > 0 && n <= many);
    CHECK(!strict || n == 1);
    for (size_t i = 0; i < n; i++) {
        CHECK(tenant_id_check(names[i], &e) == 0);
        CHECK(i == 0 || str_cmp(names[i - 1], names[i]) < 0);
        CHECK(tenant_ids_read(names[i], true, 1, &one, &len, &e) == 0);
        CHECK(len == 1 && str_eq(one, names[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = arena_new(ARENA_MAX);
    struct str rest = str_n(data, size), proof, key, wish;
    bool more = true;

    if (!str_next(&rest, '\n', &more, &proof))
        proof = STR_NULL;
    if (decide_credential(proof, a, &key, &wish)) {
        CHECK(key.ptr && proof.len > key.len);
        CHECK(!wish.len || str_find(wish, ':') < 0);
    } else {
        CHECK(!key.len && !wish.len);
    }
    for (size_t many = 1; many <= DECIDE_TENANTS_MAX; many += DECIDE_TENANTS_MAX - 1) {
        tenants(rest, false, many);
        tenants(rest, true, many);
    }
    arena_free(a);
    return 0;
}
