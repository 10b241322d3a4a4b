/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_rights.h: which keys a caller may make, see and end: what keys_routes.c asks. Thread: the
 * loop's.
 */
#ifndef COMMON_ROLE_ADMIN_KEYS_RIGHTS_H
#define COMMON_ROLE_ADMIN_KEYS_RIGHTS_H

#include "common/identity/registry.h"
#include "common/net/http.h"

#define KEYS_SUBJECT_MAX 64

/* The caller, for records and logs: "key:k3fT9aQz07Lm", "socket", "operator". */
void keys_subject(const struct http_req *r, char to[KEYS_SUBJECT_MAX]);
/* May this caller see and end the key? */
bool keys_covers(const struct http_req *r, const struct key_record *key);
/* ... and hand it out: ERR_FORBIDDEN says what it lacks. */
NODISCARD int keys_may_hand_out(const struct http_req *r, const struct key_record *key,
                                struct err *e);
/* ERR_LIMIT if a tenant that the key names has `most` keys in force, or made ten times as many in a
 * week, revoked and expired ones included. */
NODISCARD int keys_room_for(const struct registry *g, const struct key_record *r, uint64_t most,
                            int64_t now_ms, struct err *e);

#endif
