/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof bodies, raw or gzip'd, from the wire to the packed request.
 */
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_ingest(FORMAT_PPROF, "", "fuzz", str_n(data, size));
    return 0;
}
