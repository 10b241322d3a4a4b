/* SPDX-License-Identifier: Apache-2.0
 *
 * md5.h: MD5 (RFC 1321). Broken as a cryptographic hash: only for what others have fixed to it,
 * such as the hashmod action of relabelling.
 */
#ifndef DISTRIBUTOR_RULES_MD5_H
#define DISTRIBUTOR_RULES_MD5_H

#include "common/base/str.h"

#define MD5_BYTES 16

void md5(struct str s, uint8_t ret[MD5_BYTES]);

#endif
