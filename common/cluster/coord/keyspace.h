/* SPDX-License-Identifier: Apache-2.0
 *
 * keyspace.h: the keys of a cluster in the coordination service, and what the small values say.
 *
 *   <prefix>/ring/cluster        which cluster this is: made once, with the map, and never changed
 *   <prefix>/ring/map            the map (map.h)
 *   <prefix>/ring/shard/0007     the record of shard 7 (record.h)
 *   <prefix>/ring/live/<node>    under a lease of the node: it lives; struct live
 *   <prefix>/state/<node>        under the same lease: how far its replicas are; progress.h
 *   <prefix>/controller          under a lease: which node controls; its creation is the fence
 *   <prefix>/compactor/          which compactor builds coarse levels of which shard:
 *                                compactor/claims.h; ingesters read it:
 * ingester/build/compactor_fence.h
 *   <prefix>/distributor/live/   under leases: which distributors live: peers.h
 *   <prefix>/begun/0007/<node>   the node has opened a log of shard 7 once, and may have answered
 *   <prefix>/once/<node>         which folder and process is the node: ingester/base/incarnation.c
 *   <prefix>/adopt               this and the next two are made by `embertree adopt`: adopt.h
 *   <prefix>/adopted/<node>      the number (node-id) of the data folder that was adopted
 *   <prefix>/adopted-from/<node> the path of that folder, for messages
 *   <prefix>/identity/head       the pepper of hashes, and a number that every new key raises
 *   <prefix>/identity/key/<id>   an API key; this and the next are common/identity/record.h
 *   <prefix>/identity/block/<id> it is revoked
 *
 * All processes watch the keys below ring/, which seldom change. Keys that change every few seconds
 * are stored apart, for the controller alone.
 */
#ifndef COMMON_CLUSTER_COORD_KEYSPACE_H
#define COMMON_CLUSTER_COORD_KEYSPACE_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/map/map.h"

#define KEY_PREFIX_MAX 200

struct coord_key {
    char text[COORD_KEY_MAX + 1];
    size_t len;
};
/* "/embertree" and the like: begins with '/', does not end with one, no blanks. ERR_CONFIG. */
NODISCARD int key_prefix_check(struct str prefix, struct err *e);

struct coord_key key_ring(struct str prefix); /* ".../ring/" */
struct coord_key key_cluster(struct str prefix);
struct coord_key key_map(struct str prefix);
struct coord_key key_shard(struct str prefix, uint32_t shard);
struct coord_key key_shards(struct str prefix); /* ".../ring/shard/" */
struct coord_key key_live(struct str prefix, const char *node);
struct coord_key key_states(struct str prefix); /* ".../state/" */
struct coord_key key_state(struct str prefix, const char *node);
struct coord_key key_controller(struct str prefix);
struct coord_key key_claims(struct str prefix); /* ".../compactor/" */
struct coord_key key_claim(struct str prefix, uint32_t shard);
struct coord_key key_peers(struct str prefix, const char *kind); /* ".../distributor/live/" */
struct coord_key key_peer(struct str prefix, const char *kind, const char *name);
struct coord_key key_begun(struct str prefix, uint32_t shard, const char *node);
struct coord_key key_adopt(struct str prefix); /* also the beginning of the two others */
struct coord_key key_adopted(struct str prefix, const char *node);
struct coord_key key_adopted_from(struct str prefix, const char *node);
struct coord_key key_identity(struct str prefix); /* ".../identity/" */
struct coord_key key_identity_head(struct str prefix);
struct coord_key key_identity_of(struct str prefix, bool block, struct str id);
static inline struct str key_str(const struct coord_key *k)
{
    return str_n(k->text, k->len);
}

enum key_kind { KEY_OTHER, KEY_CLUSTER, KEY_MAP, KEY_SHARD, KEY_LIVE, KEY_STATE };
/* The kind of a key below the prefix; its number or name goes to the pointers. */
enum key_kind key_parse(struct str prefix, struct str key, uint32_t *ret_shard,
                        struct str *ret_node);

/* The value of key_cluster. An id is CLUSTER_ID_LEN hex digits, of chance. */
#define CLUSTER_ID_LEN   32
#define CLUSTER_ID_BYTES (CLUSTER_ID_LEN / 2)
void cluster_id_make(const uint8_t bytes[CLUSTER_ID_BYTES], char ret[CLUSTER_ID_LEN + 1]);
bool cluster_id_ok(struct str id);
void cluster_id_write(const char *id, struct buf *out);
NODISCARD int cluster_id_parse(struct str text, char ret[CLUSTER_ID_LEN + 1], struct err *e);

struct live {
    uint64_t id; /* of the node's data folder: tells a restart from another node of this name */
    char addr[RPC_ADDR_MAX + 1];
    char zone[ZONE_MAX + 1];
    uint32_t methods; /* rpc methods of its build: RPC_METHODS; a build that does not say: 21 */
    bool drained;     /* its folder knows that it was drained, and not undrained since */
};
void live_write(const struct live *l, struct buf *out);
NODISCARD int live_parse(struct str text, struct live *ret, struct err *e);

#endif
