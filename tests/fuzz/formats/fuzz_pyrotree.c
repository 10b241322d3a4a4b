/* SPDX-License-Identifier: Apache-2.0
 *
 * trie and tree; the first byte chooses which.
 */
#include "tests/lib/roles/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    fuzz_ingest(data[0] & 1 ? FORMAT_TRIE : FORMAT_TREE, "",
                data[0] & 2 ? "fuzz.inuse_space{a=b}" : "fuzz.cpu", str_n(data + 1, size - 1));
    return 0;
}
