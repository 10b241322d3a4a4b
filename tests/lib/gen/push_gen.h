/* SPDX-License-Identifier: Apache-2.0
 *
 * push_gen.h: writers of PushRequests and of frames around them, that share no code with ours.
 */
#ifndef TESTS_LIB_GEN_PUSH_GEN_H
#define TESTS_LIB_GEN_PUSH_GEN_H

#include "common/base/buf.h"

/* A CPU profile of one stack main;<leaf>; time 0: none. */
void push_gen_pprof(const char *leaf, int64_t value, int64_t time_ns, struct buf *out);
/* One series: labels "a=b,c=d" and n samples with one id each ("" or NULL: none). */
void push_gen_series(const char *labels, const struct str *raws, const char *const *ids, size_t n,
                     struct buf *request);
void push_gen_series_json(const char *labels, const struct str *raws, const char *const *ids,
                          size_t n, struct buf *series);
/* flags, length, bytes. */
void push_gen_frame(uint8_t flags, struct str bytes, struct buf *out);
void push_gen_base64(struct str bytes, bool url, struct buf *out);

#endif
