/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a registry (<data>/identity.json): any bytes, with and without signatures. A text is
 * taken whole or not at all, and what was taken is written and read back to the same.
 */
#include <stdlib.h>

#include "common/identity/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t pepper[KEY_PEPPER_BYTES] = { 9 };
static const uint8_t sign[RECORD_SIGN_BYTES] = { 1, 2, 3 };

static void count(void *cookie, struct key_record *r, const struct block_record *b)
{
    size_t *n = cookie;

    CHECK(r || b);
    (*n)++;
}

static size_t entries(const struct registry *g)
{
    size_t n = 0;

    registry_each(g, count, &n);
    return n;
}

static void check_back(const struct registry *g)
{
    struct registry *back = registry_new(pepper);
    struct buf one, two;
    struct err e;

    buf_init(&one, 16 * MIB);
    buf_init(&two, 16 * MIB);
    registry_write(g, sign, &one);
    CHECK(buf_ok(&one));
    CHECK(registry_read(back, buf_str(&one), sign, &e) == 0);
    CHECK(registry_len(back) == registry_len(g) && entries(back) == entries(g));
    registry_write(back, sign, &two);
    CHECK(str_eq(buf_str(&one), buf_str(&two)));
    registry_free(back);
    buf_deinit(&one);
    buf_deinit(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);
    const uint8_t *const by[] = { NULL, sign };

    for (size_t i = 0; i < ARRAY_LEN(by); i++) {
        struct registry *g = registry_new(pepper);
        struct err e;

        if (registry_read(g, in, by[i], &e))
            CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0] && !entries(g) &&
                  !registry_version(g));
        else
            check_back(g);
        registry_free(g);
    }
    return 0;
}
