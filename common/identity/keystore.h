/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore.h: where stored keys and blocks are, and how each process learns of them.
 *
 *   etcd       <prefix>/identity/{head,key/<id>,block/<id>}, followed by a watch; every process
 *              keeps a copy in <data>/identity.json, so that it knows keys and blocks after a
 *              restart while etcd is away
 *   no etcd    <data>/identity.json alone: of a single process
 *
 * `head` has the pepper. It is made by the first process that starts, by a transaction.
 *
 * A block reaches the disk of the process that was asked before its caller is answered. With etcd
 * away the answer says so (202), and the block is written there once it is back.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_KEYSTORE_H
#define COMMON_IDENTITY_KEYSTORE_H

#include "common/identity/registry.h"
#include "common/sys/env.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

#define KEYSTORE_FRESH_MS 10000

struct coord;
struct keystore_opts {
    struct env *env;
    struct loop *loop;
    struct coord *coord;    /* NULL: the local file alone */
    struct str prefix;      /* of keys in it (cluster.etcd_prefix); borrowed; empty: none */
    const char *dir;        /* <data>; borrowed */
    struct str cluster_key; /* secret that all processes share; empty: sign by the pepper */
    /* More lines of cluster.key_file, while its key is changed: what they signed is believed, and
     * signed again by the first. Borrowed for the call, as cluster_key. */
    const struct str *other_keys;
    size_t other_keys_len;
    struct pool *pool;         /* writes files there; NULL: on the loop */
    struct registry *registry; /* borrowed */
};
struct keystore;

/* Reads the local copy. ERR_CONFIG or ERR_CORRUPT with a sentence that says what to do. */
NODISCARD int keystore_new(const struct keystore_opts *o, struct keystore **ret, struct err *e);
void keystore_free(struct keystore *k); /* NULL is fine; open calls end without their callbacks */

/* cluster.key_file changed: the same as in the options. What was signed by another key than the
 * first is signed again. */
void keystore_keys(struct keystore *k, struct str cluster_key, const struct str *other_keys,
                   size_t other_keys_len);

/* True once everything was read at least once and the service was heard within 10 s (no etcd:
 * always). */
bool keystore_fresh(const struct keystore *k);

/* e NULL: it is stored. `away`: stored here only, since the service is away. */
typedef void (*keystore_fn)(void *cookie, const struct err *e, bool away);
/* A new record: ERR_CONFLICT if the id exists; ERR_UNAVAILABLE while the service is away. Takes a
 * reference. */
void keystore_add(struct keystore *k, struct key_record *r, keystore_fn fn, void *cookie);
/* Replaces a record by its id (a new `until`). */
void keystore_replace(struct keystore *k, struct key_record *r, keystore_fn fn, void *cookie);
/* Revokes. */
void keystore_block(struct keystore *k, struct str id, struct str why, keystore_fn fn,
                    void *cookie);
/* For mode "require", at each tick: if all is known and there is no server-admin in force, makes a
 * key that is one for 24 h, once in the life of this process, and prints it to standard error. Of
 * several processes one does: the transaction on `head` decides. It is revoked when another
 * server-admin is stored. */
void keystore_bootstrap(struct keystore *k);

/* Hashes a secret with the pepper in force. */
void keystore_hash(const struct keystore *k, struct str id, struct str secret,
                   uint8_t ret[KEY_HASH_BYTES]);

#endif
