/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_profile.h: a decoded push as the body of a document, and back.
 *
 *   u8 version = 1 | varint n | one zstd frame of n bytes:
 *     strings  n | length of each | all bytes       frames  n | function.. | file.. | line.. |
 *     nodes    n | i - parent.. | frame..                         module.. | address..
 *     series   n | of each: text type | u8 gauge | text labels (labels_encode) | total |
 *                  n | node - the one before (the first: node + 1).. | value..
 *
 * All numbers are varints, a text is its length and its bytes, columns stand one after the other.
 * Pure: any thread.
 */
#ifndef DISTRIBUTOR_ADHOC_ADHOC_PROFILE_H
#define DISTRIBUTOR_ADHOC_ADHOC_PROFILE_H

#include "distributor/formats/push.h"

struct adhoc_series {
    struct str type; /* a profile type, parses */
    struct labels labels;
    bool gauge;
    uint64_t total;
    const uint32_t *nodes; /* ascending */
    const uint64_t *values;
    size_t len;
};
struct adhoc_profile {
    struct stacks_view stacks; /* checked */
    const struct adhoc_series *series;
    size_t len;
};

/* Appends the body. ERR_INPUT: a push without samples; ERR_LIMIT: over plain_max before it is
 * compressed, or *out is full. */
NODISCARD int adhoc_profile_pack(const struct push *p, size_t plain_max, struct buf *out,
                                 struct err *e);
/* What it unzips to, as its head says; 0 if it has none. */
uint64_t adhoc_profile_size(struct str body);
/* Memory that adhoc_profile_read needs for so much, in all but absurd profiles. */
size_t adhoc_profile_cost(uint64_t size);
/* Slices are in the arena. ERR_CORRUPT: no such body; ERR_LIMIT: it unzips to over plain_max, or
 * the arena is full. */
NODISCARD int adhoc_profile_read(struct str body, size_t plain_max, struct arena *a,
                                 struct adhoc_profile *ret, struct err *e);

#endif
