/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: all keys and blocks that this process knows, and which of them a credential proves.
 *
 * Records come from two sources, by rank: identity.file, and the coordination service (or the local
 * file of a server without one). A record of identity.file hides a stored one of the same id, which
 * is in force again once the file drops it. A block holds whatever the source. Tokens of older
 * options are not here (identity_older.h).
 *
 * Every failure costs the same: an unknown id is hashed against a fixed record, and the texts of
 * "unknown" and "wrong" are equal. That a key is expired or revoked is answered only if the secret
 * is right. Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_REGISTRY_H
#define COMMON_IDENTITY_REGISTRY_H

#include "common/base/vec.h"
#include "common/identity/record.h"

#define REGISTRY_KEYS_MAX 100000 /* of a cluster */
#define REGISTRY_SKEW_MS  30000  /* of clocks, for `from` and `until` */

struct registry;

struct registry *registry_new(const uint8_t pepper[KEY_PEPPER_BYTES]);
void registry_free(struct registry *g);
/* For hashes from now on. Records whose hash was made with another pepper prove nothing; the caller
 * replaces them. */
void registry_set_pepper(struct registry *g, const uint8_t pepper[KEY_PEPPER_BYTES]);

/* Takes a reference. The stored record of the same id is replaced, also while one of identity.file
 * hides it. ERR_LIMIT over REGISTRY_KEYS_MAX. */
NODISCARD int registry_put(struct registry *g, struct key_record *r, struct err *e);
void registry_del(struct registry *g, struct str id); /* the stored record, not one of the file */
/* Replaces all records of identity.file at once. */
void registry_set_file(struct registry *g, struct key_record *const *r, size_t n);
/* Adds a copy of a block; there is no way to take one back. Of two of one id the earlier stays. */
void registry_block(struct registry *g, const struct block_record *b);
bool registry_blocked(const struct registry *g, struct str id);
/* Forgets stored records, not blocks, nor when keys were used: before all keys come again from a
 * watch. */
void registry_clear_stored(struct registry *g);

/* Borrowed until the registry changes; NULL if unknown. */
struct key_record *registry_find(const struct registry *g, struct str id);
/* Each id that has a record (r, the one in force, else NULL) or a block (b, else NULL), in order of
 * ids. The callback must not change the registry. */
void registry_each(const struct registry *g,
                   void (*fn)(void *cookie, struct key_record *r, const struct block_record *b),
                   void *cookie);
/* Ids with a record. */
size_t registry_len(const struct registry *g);
/* Grows with every change, so that a cache can tell whether it is old. */
uint64_t registry_version(const struct registry *g);
/* Is there a key, in force at now_ms, that is a server-admin? */
bool registry_has_admin(const struct registry *g, int64_t now_ms);

enum credential_fault {
    CREDENTIAL_OK,
    CREDENTIAL_NONE,    /* the request shows none */
    CREDENTIAL_UNKNOWN, /* malformed, unknown id, or wrong secret */
    CREDENTIAL_EXPIRED, /* or not in force yet */
    CREDENTIAL_REVOKED,
    CREDENTIAL_NET, /* right, but not from this address */
};
/* Which key this is, at engine time now_ms, from `peer` (http_req). On CREDENTIAL_OK *ret is
 * borrowed. Notes the last use. */
enum credential_fault registry_prove(struct registry *g, struct str key, int64_t now_ms,
                                     const char *peer, struct key_record **ret);
/* Minute of the last use, by this process; 0: not since its start. */
int64_t registry_last_use_ms(const struct registry *g, struct str id);

/* All stored records and blocks as one JSON text, for <data>/identity.json, and back. The reader
 * adds to the registry, all or nothing: ERR_INPUT also if a signature is wrong, ERR_LIMIT. sign
 * NULL: no signatures are written, or looked at. */
void registry_write(const struct registry *g, const uint8_t sign[RECORD_SIGN_BYTES],
                    struct buf *out);
NODISCARD int registry_read(struct registry *g, struct str json,
                            const uint8_t sign[RECORD_SIGN_BYTES], struct err *e);

#endif
