/* SPDX-License-Identifier: Apache-2.0
 *
 * http_param.h: percent-decoding. What handlers use of http_param.c is declared in http.h.
 */
#ifndef COMMON_NET_HTTP_PARAM_H
#define COMMON_NET_HTTP_PARAM_H

#include "common/base/arena.h"

/* Decodes %XX, and '+' to a blank if `plus`. A '%' without two hexadecimal digits stands for
 * itself. Returns `s` itself if nothing is to be decoded, {NULL, 0} if the arena is full. */
struct str http_unescape(struct str s, bool plus, struct arena *a);

#endif
