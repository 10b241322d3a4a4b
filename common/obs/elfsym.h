/* SPDX-License-Identifier: Apache-2.0
 *
 * elfsym.h: function names of an ELF file (64-bit little endian; System V ABI, chapters 4 and 5):
 * its .symtab, or its .dynsym when it is stripped.
 *
 * The file is read, not mapped: if it is overwritten while we run, names are wrong at worst, and no
 * signal is raised. Thread: one at a time.
 */
#ifndef COMMON_OBS_ELFSYM_H
#define COMMON_OBS_ELFSYM_H

#include "common/base/err.h"
#include "common/base/str.h"

struct elfsym;

/* `build_id`: what the file must carry, of build_id_len bytes; 0: any. Errors: ERR_IO, ERR_CORRUPT
 * (not an ELF file we read, or another build), ERR_LIMIT. */
NODISCARD int elfsym_open(const char *path, const uint8_t *build_id, size_t build_id_len,
                          struct elfsym **ret, struct err *e);
void elfsym_close(struct elfsym *s); /* NULL is fine */
size_t elfsym_len(const struct elfsym *s);
/* Name of the function that holds an address of the file; false if none does. Lives with s.
 * `function`: where that function starts, if it is known from elsewhere, else 0; it keeps symbols
 * without a size from claiming the addresses behind them. */
bool elfsym_find(const struct elfsym *s, uint64_t addr, uint64_t function, struct str *ret);

#endif
