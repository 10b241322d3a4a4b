/* SPDX-License-Identifier: Apache-2.0
 *
 * native.h: what identifies a frame without symbols, for all formats: (build id, or else the
 * mapping's name; offset in the file), or the raw address where there is no mapping.
 *
 * Build ids: proto/FORMATS.md, "ELF build ids".
 */
#ifndef DISTRIBUTOR_FORMATS_NATIVE_H
#define DISTRIBUTOR_FORMATS_NATIVE_H

#include "common/base/str.h"

/* Where the address lies in the mapped file; as it is where it is not within [start, limit). */
uint64_t native_offset(uint64_t address, uint64_t start, uint64_t limit, uint64_t file_offset);
/* The file name of a mapping without folders, and without " (deleted)". */
struct str native_base_name(struct str path);
/* Some agents write "unknown" where they have none. */
bool native_build_id(struct str id);

#endif
