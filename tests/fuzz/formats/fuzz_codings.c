/* SPDX-License-Identifier: Apache-2.0
 *
 * Codings of bodies and of gRPC messages: the first byte says which, the rest is coded. Whatever
 * the bytes claim, the output keeps within its limits.
 */
#include "common/base/compress/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUTPUT_MAX (4 * MIB)
#define RATIO_MAX  200
#define RATIO_FROM MIB /* below so much output no ratio is asked for */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const codings[])(struct str, const struct inflate_limits *, struct buf *,
                                  struct err *) = { gunzip, zstd_inflate, snappy_inflate,
                                                    deflate_decompress, brotli_decompress };
    const struct inflate_limits l = { .bytes_max = OUTPUT_MAX, .ratio_max = RATIO_MAX };
    struct err e = { 0 };
    struct buf out;

    if (size < 1 || size > 64 * KIB)
        return 0;
    struct str body = str_n(data + 1, size - 1);
    buf_init(&out, OUTPUT_MAX);
    int rc = codings[data[0] % ARRAY_LEN(codings)](body, &l, &out, &e);
    CHECK(rc == 0 || ((rc == ERR_INPUT || rc == ERR_LIMIT) && e.code == rc && e.text[0]));
    CHECK(out.cap <= OUTPUT_MAX);
    if (!rc)
        CHECK(buf_ok(&out) && out.len <= OUTPUT_MAX &&
              (out.len <= RATIO_FROM || out.len <= body.len * RATIO_MAX));
    buf_deinit(&out);
    return 0;
}
