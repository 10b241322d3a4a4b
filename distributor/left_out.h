/* SPDX-License-Identifier: Apache-2.0
 *
 * left_out.h: tells a client that its push was taken, but not all of it or not as it was:
 *
 *   X-Embertree-Left-Out: line_without_count=3, stack_truncated=1
 *
 * The names are those of embertree_distributor_left_out_total (push_drop_name).
 */
#ifndef DISTRIBUTOR_LEFT_OUT_H
#define DISTRIBUTOR_LEFT_OUT_H

#include "common/net/http.h"
#include "distributor/formats/push.h"

#define LEFT_OUT_HEADER "X-Embertree-Left-Out"

/* Before the reply. Nothing was left out: no header. */
void left_out_tell(struct http_req *r, const uint64_t drops[PUSH_DROPS]);

#endif
