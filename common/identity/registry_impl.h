/* SPDX-License-Identifier: Apache-2.0
 *
 * registry_impl.h: what registry.c and registry_text.c share. Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_REGISTRY_IMPL_H
#define COMMON_IDENTITY_REGISTRY_IMPL_H

#include "common/identity/registry.h"

/* All that is known under one id. At least one of the three is there, or it was used. */
struct registry_entry {
    char id[KEY_ID_LEN];
    struct key_record *file, *stored; /* a reference each; `file` is the one in force */
    struct block_record *block;       /* owned, with its text; its id is the one above */
    int64_t used_ms;                  /* the begin of a minute; 0: not since the start */
};

/* All entries by id; free the array with xfree. They are borrowed until the registry changes. */
struct registry_entry **registry_entries(const struct registry *g, size_t *ret_len);
/* May these become stored records, too? A record takes no room if it replaces another. */
bool registry_has_room(const struct registry *g, struct key_record *const *r, size_t n);

#endif
