/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.file with any bytes: what is read can be written as a record and read again.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/identity/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct key_record *r)
{
    struct key_record *copy;
    struct buf b;
    struct err e;

    buf_init(&b, 2 * KEY_RECORD_BYTES_MAX);
    record_key_write(r, NULL, &b);
    CHECK(buf_ok(&b));
    CHECK(record_key_read(buf_str(&b), &copy, &e) == 0);
    CHECK(str_eq(copy->id, r->id) && memcmp(copy->hash, r->hash, KEY_HASH_BYTES) == 0);
    CHECK(copy->grants.len == r->grants.len && copy->until_ms == r->until_ms);
    record_key_unref(copy);
    buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key_record **r;
    struct err e;
    size_t n;

    if (identity_file_parse("fuzz", str_n(data, size), &r, &n, &e)) {
        CHECK(e.code == ERR_CONFIG);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        CHECK(r[i]->from_file);
        again(r[i]);
        record_key_unref(r[i]);
    }
    xfree(r);
    return 0;
}
