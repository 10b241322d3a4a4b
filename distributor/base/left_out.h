/* SPDX-License-Identifier: Apache-2.0
 *
 * left_out.h: tells a client that parts of its push were left out or changed:
 *
 *   X-Embertree-Left-Out: line_without_count=3, stack_truncated=1
 *
 * The names are those of embertree_distributor_left_out_total (push_drop_name).
 */
#ifndef DISTRIBUTOR_BASE_LEFT_OUT_H
#define DISTRIBUTOR_BASE_LEFT_OUT_H

#include "common/base/json.h"
#include "common/net/http.h"
#include "distributor/formats/push.h"

#define LEFT_OUT_HEADER "X-Embertree-Left-Out"

#define LEFT_OUT_SAID 256
struct left_out_said { /* which lines were written; all zeros: none */
    uint64_t key[LEFT_OUT_SAID], until_ms[LEFT_OUT_SAID];
    uint64_t lines, lines_until_ms; /* of all services, in the ten minutes that end then */
};

/* Before the reply. Nothing was left out: no header. */
void left_out_tell(struct http_req *r, const uint64_t drops[PUSH_DROPS]);
/* The same behind a stream whose head is sent: as a trailer. */
void left_out_trail(struct http_req *r, const uint64_t drops[PUSH_DROPS]);
/* The same as an object: {"line_without_count": 3}. */
void left_out_json(const uint64_t drops[PUSH_DROPS], struct json *j);
/* A line of the log, for pushes whose reply no client reads. A service gets one in ten minutes; all
 * services together get LEFT_OUT_LINES_MAX, since clients choose their names. The metric counts the
 * rest. */
#define LEFT_OUT_EVERY_MS  600000
#define LEFT_OUT_LINES_MAX 64
struct left_out_of {
    const char *format;
    struct str tenant, service;
};
void left_out_log(struct left_out_said *said, const struct left_out_of *of,
                  const uint64_t drops[PUSH_DROPS], uint64_t now_ms);

#endif
