/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_xml.h: the two XML answers of the S3 API that are read: errors, and pages of a listing.
 */
#ifndef COMMON_OBJECT_S3_XML_H
#define COMMON_OBJECT_S3_XML_H

#include "common/base/err.h"
#include "common/base/str.h"

#define S3_XML_KEY_MAX 1024 /* bytes of a key, as S3 has it */

/* <Error><Code>..</Code><Message>..</Message></Error>; "" if an element is missing. Cut to fit,
 * printable. */
void s3_xml_error(struct str xml, char *ret_code, size_t code_size, char *ret_text,
                  size_t text_size);
/* Calls fn for each <Contents> with its <Key> and <Size>, until it returns false. `key` is borrowed
 * for the call. *ret_more: <IsTruncated>. ERR_CORRUPT. */
NODISCARD int s3_xml_list(struct str xml, bool (*fn)(void *cookie, struct str key, uint64_t size),
                          void *cookie, bool *ret_more, struct err *e);

#endif
