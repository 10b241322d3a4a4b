/* SPDX-License-Identifier: Apache-2.0
 *
 * upload.h: a file that a person uploads, whatever it is: its format is found by looking at it.
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_UPLOAD_H
#define DISTRIBUTOR_FORMATS_UPLOAD_UPLOAD_H

#include "distributor/formats/push.h"

/* What one looks at, for tests and messages; the body is not zipped any more. ERR_INPUT names what
 * it is and what to do instead, where it is a known format that cannot be read. */
NODISCARD int upload_sniff(struct str body, const char **ret_format, struct err *e);
/* What a body was refused as another format (ERR_INPUT in *e) looks like, and how to send that, is
 * added to the error. Looks at the beginning only, below one layer of gzip. */
void upload_hint(enum format taken, struct str body, const struct limits *l, struct err *e);
/* Finds the format of `body`, below one layer of gzip, and decodes it. job->in has the name; its
 * format is not looked at. *ret_format is static text. Pure: any thread. */
NODISCARD int upload_push(const struct decode_job *job, struct str body, const char **ret_format,
                          struct err *e);

#endif
