/* SPDX-License-Identifier: Apache-2.0
 *
 * access.h: who may look into the process, and who may change the cluster. With
 * http.admin_token_file the pages that tell of the process itself (/config, /ring, /debug/pprof/)
 * or change the cluster (cluster_page.h) want "Authorization: Bearer <token>", one of the file's
 * lines; /healthz, /readyz and /metrics never do. Without it the pages are for everybody, changes
 * for who is on this machine. Thread: the loop's.
 */
#ifndef COMMON_ROLE_ACCESS_H
#define COMMON_ROLE_ACCESS_H

#include "common/net/http.h"
#include "common/sys/fs.h"

#define ACCESS_TOKENS_MAX      64
#define ACCESS_TOKEN_BYTES_MIN 16

struct access {          /* zeroed: everybody may */
    const struct fs *fs; /* borrowed */
    const char *file;    /* borrowed; "" or NULL: none */
};
/* Reads the file to see that it is fine: ERR_CONFIG. */
NODISCARD int access_init(struct access *a, const struct fs *fs, const char *file, struct err *e);
/* False: it was answered, 401. The file is read for each such request, so that a token can be
 * changed at any time; where it cannot be read nobody may. */
bool access_allows(const struct access *a, struct http_req *r);

/* The same for what changes the cluster or the process. Without a file of tokens only who asks from
 * this machine may, neither through a proxy nor out of a browser (a page from anywhere could);
 * false: 403, which says what to set. */
bool access_changes(const struct access *a, struct http_req *r);

/* The same, without an answer; `header` is that of Authorization. For tests. */
bool access_knows(struct str tokens, struct str header);

#endif
