/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.h: names that differ between processes for one and the same function are made equal
 * before they are interned, by one versioned table of rules (normalize.c).
 */
#ifndef DISTRIBUTOR_FORMATS_NORMALIZE_H
#define DISTRIBUTOR_FORMATS_NORMALIZE_H

#include "common/base/arena.h"
#include "common/base/buf.h"

/* Goes up with every change of the table: names stored before and after it may differ. */
#define NORMALIZE_VERSION 4

/* Function or library name. Returns `name` itself where no rule applies; else a shorter name in
 * *tmp (reset first; at least name.len bytes must be allowed), valid until its next use. */
struct str normalize_name(struct str name, struct buf *tmp);
/* A path of a source or library: what differs between processes, hosts and containers is made equal
 * too: process numbers, temporary folders, layers of containers (normalize_path.c). Same terms. */
struct str normalize_path(struct str path, struct buf *tmp);

/* Where in a text anything begins that a rule looks for, by blocks: made in one go over all names
 * of a profile, which takes a fraction of looking at them one by one. */
#define NORMALIZE_BLOCK 64
struct normalize_look {
    struct str text; /* borrowed */
    uint8_t *blocks; /* in the arena */
};
NODISCARD bool normalize_look(struct normalize_look *l, struct str text, struct arena *a);
/* True if normalize_name leaves a name unchanged; it may also do so where this is false. */
static inline bool normalize_leaves(const struct normalize_look *l, struct str name)
{
    size_t from = (uintptr_t)name.ptr - (uintptr_t)l->text.ptr, last = from + name.len - 1;
    uint8_t any = 0;

    if (name.len == 0 || from >= l->text.len || last >= l->text.len)
        return false;
    for (size_t b = from / NORMALIZE_BLOCK; b <= last / NORMALIZE_BLOCK; b++)
        any |= l->blocks[b];
    char end = name.ptr[name.len - 1];
    return !any && name.ptr[0] != 'l' && end != 'p' && end != ']' &&
           (name.len <= 18 || name.ptr[name.len - 18] != '<') &&
           (name.len <= 19 || name.ptr[name.len - 19] != ':');
}
/* The same for normalize_path. */
bool normalize_leaves_path(const struct normalize_look *l, struct str path);

#endif
