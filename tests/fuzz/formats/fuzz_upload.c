/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that people bring: found out, read, and held against what a push must be.
 */
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_upload(str_n(data, size));
    return 0;
}
