/* SPDX-License-Identifier: Apache-2.0
 *
 * symbolize.h: names for addresses of this process, as they appear in a flame graph: demangled,
 * without parameters and without the suffixes compilers add to copies of a function. Where there is
 * no symbol, "[library+0xoffset]" of the function's start. Thread: one at a time.
 */
#ifndef COMMON_OBS_SYMBOLIZE_H
#define COMMON_OBS_SYMBOLIZE_H

#include "common/base/buf.h"
#include "common/obs/unwind.h"

struct symbolizer;

struct symbolizer *symbolizer_new(void);
void symbolizer_free(struct symbolizer *s); /* NULL is fine */
/* Reads the symbols of all objects, while their files are surely still those that were loaded: an
 * upgrade may replace them under a running process. */
void symbolizer_load(struct symbolizer *s, const struct unwind_map *map);
/* Appends the name. */
void symbolizer_name(struct symbolizer *s, const struct unwind_map *map, uint64_t pc,
                     struct buf *out);
/* From now on the function that starts at `function` has this name, unless a symbol says another:
 * for functions known by other means. At most 64. */
void symbolizer_alias(struct symbolizer *s, uint64_t function, const char *name);
/* What is shown for a raw symbol; appended, at most SYMBOL_MAX bytes, without ';' or blanks that
 * would break a line. */
enum { SYMBOL_MAX = 512 };
void symbol_clean(struct str raw, struct buf *out);

#endif
