/* SPDX-License-Identifier: Apache-2.0
 *
 * connect_msg.h: requests of RPCs: read, and what most of them have checked (proto/WIRE.md,
 * "querier.v1 requests"). Each returns 0 or the error's code. Pool thread.
 */
#ifndef QUERIER_SELECT_CONNECT_MSG_H
#define QUERIER_SELECT_CONNECT_MSG_H

#include "querier/messages/msg_in.h"
#include "querier/query/query.h"
#include "querier/select/query_spec.h"

/* The request by its table, whatever its encoding; lives as long as the query. */
NODISCARD int msg_read(struct query *q, const struct msg_desc *d, void *ret, struct err *e);

struct msg_times {
    int64_t start_ms, end_ms;
    struct plan_range range; /* end included */
};
/* start and end: both there, in order. `hour`: both 0 means the last hour. */
NODISCARD int msg_times(struct query *q, int64_t start, int64_t end, bool hour,
                        struct msg_times *ret, struct err *e);
/* matchers: a list of selectors, joined by AND. */
NODISCARD int msg_matchers(struct query *q, const struct msg_list *matchers, struct query_spec *ret,
                           struct err *e);
/* profile_typeID and label_selector, both required. */
NODISCARD int msg_selection(struct query *q, struct str profile_type, struct str label_selector,
                            struct query_spec *ret, struct err *e);

/* ---- plain HTTP with JSON ---- */

/* Parses the body; the doc is freed with the query. Sets *ret to its root. */
NODISCARD int msg_begin(struct query *q, const struct json_val **ret, struct err *e);
/* A list of strings under `key`, in the query's arena. */
NODISCARD int msg_strings(struct query *q, const struct json_val *m, const char *key,
                          const struct str **ret, size_t *ret_len, struct err *e);

#endif
