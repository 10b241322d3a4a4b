/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_meta.h: what a list shows of an uploaded profile, and its id.
 *
 *   meta   u8 version = 1 | text name | text format | varint size | varint samples |
 *          varint n | of each type: text id | varint total          (a text: varint length, bytes)
 *          | text owner, where there is one: the id of the key that made it; older readers skip it
 *   id     <ULID>-<name>: 48 bits of milliseconds and 80 random ones in Crockford's base 32, so
 *          that ids sort by time; the name with anything but [A-Za-z0-9._-] made '_'
 *
 * Pure: any thread.
 */
#ifndef DISTRIBUTOR_ADHOC_ADHOC_META_H
#define DISTRIBUTOR_ADHOC_ADHOC_META_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "distributor/adhoc/adhoc_profile.h"

#define ADHOC_NAME_MAX  150 /* bytes kept of a name */
#define ADHOC_TYPES_MAX 64  /* in a list; the profile itself may have more */
#define ADHOC_ULID_LEN  26

struct adhoc_type {
    struct str id;
    struct str shown; /* its sample type; the id where two types have the same one */
    uint64_t total;   /* of all its series, at most INT64_MAX */
};
struct adhoc_meta {
    struct str name, format;
    uint64_t size;    /* of the file */
    uint64_t samples; /* in it */
    const struct adhoc_type *types;
    size_t types_len;
    struct str owner; /* empty: made on a server that asks for no keys */
};

/* The different types of a push, in its order, in the arena. ERR_LIMIT: it is full. */
NODISCARD int adhoc_types_of_push(const struct push *p, struct arena *a, struct adhoc_meta *ret,
                                  struct err *e);
NODISCARD int adhoc_types_of(const struct adhoc_profile *p, struct arena *a, struct adhoc_meta *ret,
                             struct err *e);
/* Types that would make it too large are left out. */
void adhoc_meta_pack(const struct adhoc_meta *m, struct buf *out);
/* Slices of in; arrays in the arena. ERR_CORRUPT. */
NODISCARD int adhoc_meta_read(struct str in, struct arena *a, struct adhoc_meta *ret,
                              struct err *e);

/* random: 10 bytes. An empty name becomes "profile". */
void adhoc_id_make(int64_t now_ms, const uint8_t *random, struct str name, struct buf *out);
/* The name as it stands in an id: cut to its last bytes, without folders. */
void adhoc_name_reduce(struct str name, struct buf *out);
/* ERR_INPUT: it cannot be one. */
NODISCARD int adhoc_id_check(struct str id, struct err *e);
int64_t adhoc_id_ms(struct str id); /* when it was made; of a checked id */

#endif
