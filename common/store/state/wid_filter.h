/* SPDX-License-Identifier: Apache-2.0
 *
 * wid_filter.h: write ids that are certainly not stored, without asking the database.
 *
 * A new push asks every hour of the horizon whether its id is there, and the answer is no. An hour
 * in which this process wrote all there is (it was empty when first looked at) has its ids in a
 * Bloom filter here; of others, and once the filters hold bytes_max, the answer is "perhaps".
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_STATE_WID_FILTER_H
#define COMMON_STORE_STATE_WID_FILTER_H

#include "common/base/err.h"
#include "common/store/kv/kv.h"

struct wid_filter;

struct wid_filter *wid_filter_new(struct kv *kv, size_t bytes_max);
void wid_filter_free(struct wid_filter *f); /* NULL is fine */
/* May it be in that bucket? The first question about a bucket looks whether there is anything. */
NODISCARD int wid_filter_may(struct wid_filter *f, uint32_t bucket, uint32_t tenant,
                             const uint8_t wid[16], bool *ret, struct err *e);
/* It will be; after wid_filter_may was asked about the bucket. */
void wid_filter_add(struct wid_filter *f, uint32_t bucket, uint32_t tenant, const uint8_t wid[16]);
/* Frees the filters of buckets below `low`, which the caller does not ask about any more. */
void wid_filter_forget(struct wid_filter *f, uint32_t low);

#endif
