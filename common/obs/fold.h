/* SPDX-License-Identifier: Apache-2.0
 *
 * fold.h: counts stacks of names per series (role, thread), and writes them as folded text
 * ("main;work 12", root first). Everything is bounded: what does not fit is counted under
 * "[overflow]", so totals stay right. Thread: one at a time.
 */
#ifndef COMMON_OBS_FOLD_H
#define COMMON_OBS_FOLD_H

#include "common/base/buf.h"

enum { FOLD_SERIES_MAX = 64, FOLD_PART_MAX = 32 };

struct fold;

/* Texts of a series; characters a label cannot hold are replaced. */
struct fold_series {
    char role[FOLD_PART_MAX], thread[FOLD_PART_MAX];
    uint64_t count; /* since the last reset */
};

struct fold *fold_new(size_t stacks_max, size_t names_max);
void fold_free(struct fold *f); /* NULL is fine */
/* Number of a name; the same name has the same number until fold_free. */
uint32_t fold_name(struct fold *f, struct str name);
struct str fold_name_text(const struct fold *f, uint32_t name);
/* Number of a series; the last one is {"other", "other"}. */
uint32_t fold_series_of(struct fold *f, struct str role, struct str thread);
/* Names innermost first. */
void fold_add(struct fold *f, uint32_t series, const uint32_t *names, size_t n, uint64_t count);
size_t fold_series_len(const struct fold *f);
const struct fold_series *fold_series_at(const struct fold *f, size_t i);
void fold_text(const struct fold *f, uint32_t series, struct buf *out);
void fold_reset(struct fold *f); /* forgets counts; keeps names and series */

#endif
