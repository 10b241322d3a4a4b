/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/formats/native.h"

uint64_t native_offset(uint64_t address, uint64_t start, uint64_t limit, uint64_t file_offset)
{
    bool within = start < limit && address >= start && address < limit;

    return within ? address - start + file_offset : address;
}

struct str native_base_name(struct str path)
{
    struct str deleted = STR(" (deleted)");

    if (str_ends(path, deleted))
        path.len -= deleted.len;
    ptrdiff_t slash = str_rfind(path, '/');
    return slash < 0 ? path : str_sub(path, (size_t)slash + 1, path.len);
}

bool native_build_id(struct str id)
{
    return id.len > 0 && !str_eqc(id, "unknown") && !str_eqc(id, "UNKNOWN");
}
