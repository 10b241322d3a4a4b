/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_elf.h: is it an ELF file, and which build id does it say it has?
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_ELF_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_ELF_H

#include "common/base/err.h"

#define DEBUGINFO_ID_BYTES 64 /* of a GNU build id: 20 as a rule */

/* The GNU build id of an open file as bytes; *ret_len = 0 where none can be found. Reads a few KiB
 * here and there, whatever the headers say. ERR_INPUT: no ELF file. Blocks: a pool thread. */
NODISCARD int debuginfo_elf_id(int fd, uint64_t size, uint8_t id[DEBUGINFO_ID_BYTES],
                               size_t *ret_len, struct err *e);

#endif
