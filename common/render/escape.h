/* SPDX-License-Identifier: Apache-2.0
 *
 * escape.h: escapes names that come from outside, for the text of other languages. Bytes that are
 * not UTF-8 come out as U+FFFD, control characters and line breaks as blanks.
 */
#ifndef COMMON_RENDER_ESCAPE_H
#define COMMON_RENDER_ESCAPE_H

#include "common/base/buf.h"

/* Text or a quoted attribute of XML 1.0 or HTML. */
void escape_xml(struct str s, struct buf *out);
/* Inside "..." of Graphviz, where its label escapes and entities mean nothing special either. */
void escape_dot(struct str s, struct buf *out);

#endif
