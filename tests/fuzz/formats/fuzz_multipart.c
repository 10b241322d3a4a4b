/* SPDX-License-Identifier: Apache-2.0
 *
 * multipart/form-data with the boundary "b": parts, their headers, the sample type configuration
 * and the previous profile.
 */
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_ingest(FORMAT_MULTIPART, "multipart/form-data; boundary=b", "fuzz{x=y}",
                str_n(data, size));
    return 0;
}
