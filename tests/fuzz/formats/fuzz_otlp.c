/* SPDX-License-Identifier: Apache-2.0
 *
 * OTLP requests in protobuf, of the layout they seem to have and of one forced on them, from the
 * wire to pushes. Holds: no crash, an outcome with a sentence, and what every later step relies on.
 */
#include "distributor/otlp/otlp_push.h"
#include "tests/lib/roles/batch_keep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct str body, enum otlp_layout layout)
{
    struct batch_keep k;
    struct err e = { 0 };

    batch_keep_init(&k, NULL, INT64_C(1795000000000));
    k.limits.decode_bytes = 8 * MIB;
    k.limits.series = 20;
    k.begin_max = 64;
    if (otlp_decode_proto(body, layout, &k.sink, &e))
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    batch_keep_check(&k);
    batch_keep_free(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(str_n(data, size), OTLP_AUTO);
    decode(str_n(data, size), (enum otlp_layout)(1 + size % (OTLP_LAYOUTS - 1)));
    return 0;
}
