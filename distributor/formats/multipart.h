/* SPDX-License-Identifier: Apache-2.0
 *
 * multipart.h: multipart/form-data (RFC 7578 over RFC 2046), parts as slices of the body.
 *
 * Bounded: PARTS_MAX parts, HEADERS_MAX headers of HEADER_BYTES_MAX bytes each. Lines end in CRLF;
 * a bare LF is accepted in headers and around delimiters, since some senders write it. The close
 * delimiter must be there: a cut body is an error, not a short part.
 */
#ifndef DISTRIBUTOR_FORMATS_MULTIPART_H
#define DISTRIBUTOR_FORMATS_MULTIPART_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define MULTIPART_PARTS_MAX        64
#define MULTIPART_HEADERS_MAX      16
#define MULTIPART_HEADER_BYTES_MAX 4096

struct multipart_part {
    struct str name;     /* of the form field; quotes and escapes undone (arena) */
    struct str filename; /* {NULL, 0} if the part is no file */
    struct str encoding; /* Content-Transfer-Encoding, {NULL, 0} if absent */
    struct str content;
};
struct multipart {
    struct multipart_part parts[MULTIPART_PARTS_MAX];
    size_t len;
};

NODISCARD int multipart_parse(struct str content_type, struct str body, struct arena *a,
                              struct multipart *ret, struct err *e);
/* The *file* part of that name, or NULL: not found. Fields without filename= do not count.
 * ERR_INPUT: there are two, and one of them would be lost. */
NODISCARD int multipart_file(const struct multipart *m, const char *name,
                             const struct multipart_part **ret, struct err *e);
/* The same; ERR_INPUT, too, if it is not found. */
NODISCARD int multipart_need(const struct multipart *m, const char *name,
                             const struct multipart_part **ret, struct err *e);

#endif
