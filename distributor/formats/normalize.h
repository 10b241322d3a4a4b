/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.h: names that differ between processes for one and the same function are made equal
 * before they are interned, by one versioned table of rules (normalize.c).
 */
#ifndef DISTRIBUTOR_FORMATS_NORMALIZE_H
#define DISTRIBUTOR_FORMATS_NORMALIZE_H

#include "common/base/buf.h"

/* Goes up with every change of the table: names stored before and after it may differ. */
#define NORMALIZE_VERSION 2

/* Function or library name. Returns `name` itself where no rule applies; else a shorter name in
 * *tmp (reset first; at least name.len bytes must be allowed), valid until its next use. */
struct str normalize_name(struct str name, struct buf *tmp);
/* A path of a source or library: what differs between processes, hosts and containers is made equal
 * too: process numbers, temporary folders, layers of containers (normalize_path.c). Same terms. */
struct str normalize_path(struct str path, struct buf *tmp);

#endif
