/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_none.h: a database that cannot be opened at the moment: each call fails with the reason.
 */
#ifndef COMMON_STORE_KV_KV_NONE_H
#define COMMON_STORE_KV_KV_NONE_H

#include "common/store/kv/kv.h"

/* ERR_UNAVAILABLE with the text of *why. */
struct kv *kv_none_new(const struct err *why);

#endif
