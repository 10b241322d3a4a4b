/* SPDX-License-Identifier: Apache-2.0
 *
 * from= and until=. Holds: never far outside what 64-bit milliseconds can say of real times, equal
 * for the same text, and an error has a text.
 */
#include "common/model/attime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = str_n(data, size);
    struct err e = { 0 };
    int64_t a = 0, b = 1;

    if (attime_parse(s, INT64_C(1795000000000), &a, &e)) {
        CHECK(e.code == ERR_INPUT && e.text[0]);
        return 0;
    }
    CHECK(attime_parse(s, INT64_C(1795000000000), &b, &e) == 0 && a == b);
    return 0;
}
