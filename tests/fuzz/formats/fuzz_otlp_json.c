/* SPDX-License-Identifier: Apache-2.0
 *
 * OTLP requests in JSON, from the text to pushes. Holds: no crash, an outcome with a sentence, and
 * what every later step relies on.
 */
#include "distributor/otlp/otlp_push.h"
#include "tests/lib/roles/batch_keep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch_keep k;
    struct err e = { 0 };

    batch_keep_init(&k, NULL, INT64_C(1795000000000));
    k.limits.decode_bytes = 8 * MIB;
    k.limits.series = 20;
    k.begin_max = 64;
    if (otlp_decode_json(str_n(data, size), &k.sink, &e))
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    batch_keep_check(&k);
    batch_keep_free(&k);
    return 0;
}
