/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_identity.h: an HTTP server's doorman that lets each request in as the identity that the test
 * says, without keys. Thread: the loop's.
 */
#ifndef TESTS_LIB_ROLES_FAKE_IDENTITY_H
#define TESTS_LIB_ROLES_FAKE_IDENTITY_H

#include "common/identity/record.h"
#include "common/net/http.h"

/* An identity with these grants, a JSON array as the record has it. One reference. */
struct key_record *fake_identity(const char *id, const char *grants);

struct fake_doorman {
    struct key_record *who; /* borrowed; of requests from now on. NULL: no identity */
    const char *tenants[4]; /* of them; none: "anonymous" */
    struct str as[4];
};
/* Before routes are registered. */
void fake_doorman(struct http_server *s, struct fake_doorman *d);

#endif
