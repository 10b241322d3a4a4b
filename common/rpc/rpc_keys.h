/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_keys.h: the keys of the cluster, from a file with a line each,
 *
 *     2026-11: 6f0e…32 bytes in hex or base64…      # the first one seals, all of them open
 *     2026-05: q83v…
 *
 * The file is looked at again every RPC_KEYS_EVERY, so that keys change without a restart. To
 * rotate: add the new key as the second line everywhere; move it to the first place everywhere;
 * remove the old one everywhere. Every process that can read the file is a member of the cluster,
 * so its mode must not let others read it. Thread: the loop's.
 */
#ifndef COMMON_RPC_RPC_KEYS_H
#define COMMON_RPC_RPC_KEYS_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/rpc/rpc_crypto.h"

#define RPC_KEYS_MAX   16
#define RPC_KEY_ID_MAX 31
#define RPC_KEY_MARK   8    /* bytes that tell a key from others and say nothing about it */
#define RPC_KEYS_EVERY 1000 /* ms between looks at the file */
#define RPC_KEYS_FILE  (16 * KIB)

struct rpc_key {
    char id[RPC_KEY_ID_MAX + 1]; /* for people */
    uint8_t mark[RPC_KEY_MARK];  /* for frames: made of the key */
    uint8_t secret[RPC_KEY_BYTES];
};

struct rpc_keys;

/* Keys from a text in the form of the file. `name` is for messages. */
NODISCARD int rpc_keys_parse(struct str text, const char *name, struct rpc_keys **ret,
                             struct err *e);
/* Keys from a file that only its owner, and perhaps its group, may read. */
NODISCARD int rpc_keys_load(const char *path, struct rpc_keys **ret, struct err *e);
void rpc_keys_free(struct rpc_keys *k); /* wipes; NULL is fine */
/* Reads the file again if it changed, looking at most each RPC_KEYS_EVERY. 0 with *ret_changed, or
 * an error, returned once per change of the file: then the keys stay unchanged. */
NODISCARD int rpc_keys_check(struct rpc_keys *k, uint64_t now_ms, bool *ret_changed, struct err *e);
/* Other keys in the place of these; frees `with`. */
void rpc_keys_replace(struct rpc_keys *k, struct rpc_keys *with);

const struct rpc_key *rpc_keys_first(const struct rpc_keys *k); /* what seals */
/* The i-th line, from 0; NULL: there are fewer. Borrowed until the keys change. */
const struct rpc_key *rpc_keys_at(const struct rpc_keys *k, size_t i);
/* NULL: unknown. Borrowed until the keys change. */
const struct rpc_key *rpc_keys_find(const struct rpc_keys *k, const uint8_t mark[RPC_KEY_MARK]);
/* Another number whenever the keys changed. */
uint64_t rpc_keys_serial(const struct rpc_keys *k);
/* Appends "2026-11 (1f00aa07), 2026-05 (…)": ids and the beginning of their marks. */
void rpc_keys_say(const struct rpc_keys *k, struct buf *to);

#endif
