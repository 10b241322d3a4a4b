/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of speedscope: text, tree of JSON, series.
 */
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_ingest(FORMAT_SPEEDSCOPE, "", "fuzz.cpu", str_n(data, size));
    return 0;
}
