/* SPDX-License-Identifier: Apache-2.0
 *
 * connect_msg.h: fields of querier.v1 requests, read from proto3 JSON; times checked (wire facts
 * 4.3). Each returns 0 or the error's code. Pool thread.
 */
#ifndef QUERIER_CONNECT_MSG_H
#define QUERIER_CONNECT_MSG_H

#include "common/net/json_in.h"
#include "querier/query.h"
#include "querier/spec.h"

/* Parses the body; the doc is freed with the query. Sets *ret to its root. */
NODISCARD int msg_begin(struct query *q, const struct json_val **ret, struct err *e);

struct msg_times {
    int64_t start_ms, end_ms;
    struct plan_range range; /* end included */
};
/* start and end: both there, in order. `hour`: both missing or 0 means the last hour. */
NODISCARD int msg_times(struct query *q, const struct json_val *m, bool hour, struct msg_times *ret,
                        struct err *e);
/* matchers: a list of selectors, joined by AND. */
NODISCARD int msg_matchers(struct query *q, const struct json_val *m, struct spec *ret,
                           struct err *e);
/* profile_typeID and label_selector, both required. */
NODISCARD int msg_selection(struct query *q, const struct json_val *m, struct spec *ret,
                            struct err *e);
/* A list of strings under key or alt, in the query's arena. */
NODISCARD int msg_strings(struct query *q, const struct json_val *m, const char *key,
                          const char *alt, const struct str **ret, size_t *ret_len, struct err *e);
/* An enum by name (`names`, n of them, index = number) or number; absent leaves *ret. ERR_INPUT if
 * it is neither. */
NODISCARD int msg_enum(const struct json_val *m, const char *key, const char *alt,
                       const char *const *names, size_t n, int64_t *ret, struct err *e);
/* ERR_UNIMPLEMENTED if the list or message under the key is there and not empty. */
NODISCARD int msg_not_yet(const struct json_val *m, const char *key, const char *alt,
                          struct err *e);

/* [{"name":..,"value":..}] */
void msg_put_labels(const struct labels *l, struct json *j);

#endif
