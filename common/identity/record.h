/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: the stored form of a key, and of a block, which revokes a key.
 *
 *   identity/key/<id>     {"id","hash","name","owner","grants":[...],"from","until","replaces",
 *                          "made_by","made_at","nets":[...],"sig"}
 *   identity/block/<id>   {"id","at","why","sig"}
 *
 * `hash` is hexadecimal (key.h). Times are milliseconds since 1970; `until` 0 is never. `sig` is an
 * HMAC over the record's other fields in the order above, under a key derived from the cluster's
 * key: access to the coordination service alone is not enough to make a key. A process without a
 * cluster key signs with its own pepper, which lies beside the records in the data folder.
 *
 * A block outlives its record, and blocks are only added, so that sets from different processes can
 * be merged in any order. Thread: any; a record does not change.
 */
#ifndef COMMON_IDENTITY_RECORD_H
#define COMMON_IDENTITY_RECORD_H

#include "common/identity/grant.h"
#include "common/identity/key.h"

#define KEY_RECORD_BYTES_MAX 4096
#define RECORD_NAME_MAX      100 /* bytes of name, owner, why */
#define RECORD_NETS_MAX      16
#define RECORD_SIGN_BYTES    32

struct net_range { /* IPv4 as ::ffff:a.b.c.d */
    uint8_t addr[16];
    uint8_t bits; /* of the 128 */
};

/* An identity: the sender of a request. Counted (record_ref), since a request may outlive the
 * record's place in the registry. */
struct key_record {
    struct arena *arena; /* of everything below */
    uint32_t refs;
    struct str id, name, owner, made_by, replaces;
    uint8_t hash[KEY_HASH_BYTES];
    struct grants grants;
    int64_t from_ms, until_ms, made_ms;
    struct net_range *nets; /* none: from anywhere */
    size_t nets_len;
    bool from_file; /* of identity.file: cannot be changed by the API */
    /* The hash was made without a server, so with a pepper of zeros: "hash": "offline:<hex>". Of
     * identity.file alone; registry_prove hashes for such a record with that pepper. */
    bool offline_hash;
};
struct block_record {
    struct str id, why;
    int64_t at_ms;
};

/* From JSON; ERR_INPUT and ERR_LIMIT name the field. Fields that are not known are refused. Without
 * `sig`, which record_sig_ok checks. *ret has one reference. */
NODISCARD int record_key_read(struct str json, struct key_record **ret, struct err *e);
/* With "sig" if sign is not NULL. A record that was not read from JSON may not fit: give
 * `out` a maximum of KEY_RECORD_BYTES_MAX, and look at buf_ok. */
void record_key_write(const struct key_record *r, const uint8_t sign[RECORD_SIGN_BYTES],
                      struct buf *out);
/* What the API shows of a record: without hash and sig. Into an open object. */
void record_key_show(const struct key_record *r, struct json *j);
struct key_record *record_key_ref(struct key_record *r);
void record_key_unref(struct key_record *r); /* NULL is fine. Loop thread. */

NODISCARD int record_block_read(struct str json, struct arena *a, struct block_record *ret,
                                struct err *e);
void record_block_write(const struct block_record *b, const uint8_t sign[RECORD_SIGN_BYTES],
                        struct buf *out);
/* Was the JSON of a key or block signed with the key `sign`? */
bool record_sig_ok(struct str json, const uint8_t sign[RECORD_SIGN_BYTES]);

#endif
