/* SPDX-License-Identifier: Apache-2.0
 *
 * keyspace: names of keys, and the values of a node that lives and of a cluster's id.
 *
 * Each kind of key has one function that writes it; key_parse is their reverse for the keys below
 * ring/. Values are JSON with unknown keys skipped, so that an older build can read those of a
 * newer one.
 */
#include "common/cluster/coord/keyspace.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/json.h"
#include "common/net/json_in.h"

#define METHODS_UNTOLD 21 /* of the last build that did not say it: below RPC_RELAY */

int key_prefix_check(struct str prefix, struct err *e)
{
    bool ok = prefix.len > 1 && prefix.len <= KEY_PREFIX_MAX && prefix.ptr[0] == '/' &&
              prefix.ptr[prefix.len - 1] != '/';

    for (size_t i = 0; ok && i < prefix.len; i++)
        ok = prefix.ptr[i] > ' ' && prefix.ptr[i] < 0x7f;
    if (!ok)
        return err_set(e, ERR_CONFIG,
                       "cluster.etcd_prefix is \"%.*s\"; want \"/name\", without a slash at its "
                       "end, of at most %d bytes",
                       STR_ARG(str_sub(prefix, 0, 64)), KEY_PREFIX_MAX);
    return 0;
}

static struct coord_key PRINTF(1, 2) make(const char *fmt, ...)
{
    struct coord_key k;
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(k.text, sizeof(k.text), fmt, args);
    va_end(args);
    CHECK(n > 0 && (size_t)n < sizeof(k.text));
    k.len = (size_t)n;
    return k;
}

struct coord_key key_ring(struct str prefix)
{
    return make("%.*s/ring/", STR_ARG(prefix));
}

struct coord_key key_cluster(struct str prefix)
{
    return make("%.*s/ring/cluster", STR_ARG(prefix));
}

struct coord_key key_map(struct str prefix)
{
    return make("%.*s/ring/map", STR_ARG(prefix));
}

struct coord_key key_shards(struct str prefix)
{
    return make("%.*s/ring/shard/", STR_ARG(prefix));
}

struct coord_key key_shard(struct str prefix, uint32_t shard)
{
    return make("%.*s/ring/shard/%04u", STR_ARG(prefix), shard);
}

struct coord_key key_live(struct str prefix, const char *node)
{
    return make("%.*s/ring/live/%s", STR_ARG(prefix), node);
}

struct coord_key key_states(struct str prefix)
{
    return make("%.*s/state/", STR_ARG(prefix));
}

struct coord_key key_state(struct str prefix, const char *node)
{
    return make("%.*s/state/%s", STR_ARG(prefix), node);
}

struct coord_key key_controller(struct str prefix)
{
    return make("%.*s/controller", STR_ARG(prefix));
}

struct coord_key key_claims(struct str prefix)
{
    return make("%.*s/compactor/", STR_ARG(prefix));
}

struct coord_key key_claim(struct str prefix, uint32_t shard)
{
    return make("%.*s/compactor/shard/%04u", STR_ARG(prefix), shard);
}

struct coord_key key_peers(struct str prefix, const char *kind)
{
    return make("%.*s/%s/live/", STR_ARG(prefix), kind);
}

struct coord_key key_peer(struct str prefix, const char *kind, const char *name)
{
    return make("%.*s/%s/live/%s", STR_ARG(prefix), kind, name);
}

struct coord_key key_begun(struct str prefix, uint32_t shard, const char *node)
{
    return make("%.*s/begun/%04u/%s", STR_ARG(prefix), shard, node);
}

struct coord_key key_identity(struct str prefix)
{
    return make("%.*s/identity/", STR_ARG(prefix));
}

struct coord_key key_identity_head(struct str prefix)
{
    return make("%.*s/identity/head", STR_ARG(prefix));
}

struct coord_key key_identity_of(struct str prefix, bool block, struct str id)
{
    return make("%.*s/identity/%s/%.*s", STR_ARG(prefix), block ? "block" : "key",
                STR_ARG(str_sub(id, 0, 64)));
}

struct coord_key key_adopt(struct str prefix)
{
    return make("%.*s/adopt", STR_ARG(prefix));
}

struct coord_key key_adopted(struct str prefix, const char *node)
{
    return make("%.*s/adopted/%s", STR_ARG(prefix), node);
}

struct coord_key key_adopted_from(struct str prefix, const char *node)
{
    return make("%.*s/adopted-from/%s", STR_ARG(prefix), node);
}

static bool cut(struct str *s, struct str prefix)
{
    bool ok = str_starts(*s, prefix);

    if (ok)
        *s = str_sub(*s, prefix.len, s->len);
    return ok;
}

enum key_kind key_parse(struct str prefix, struct str key, uint32_t *ret_shard,
                        struct str *ret_node)
{
    uint64_t n;

    if (!cut(&key, prefix))
        return KEY_OTHER;
    if (str_eq(key, STR("/ring/map")))
        return KEY_MAP;
    if (str_eq(key, STR("/ring/cluster")))
        return KEY_CLUSTER;
    if (cut(&key, STR("/ring/shard/"))) {
        if (key.len != 4 || !str_u64(key, &n) || n >= CLUSTER_SHARDS_MAX)
            return KEY_OTHER;
        *ret_shard = (uint32_t)n;
        return KEY_SHARD;
    }
    bool live = cut(&key, STR("/ring/live/"));
    if ((!live && !cut(&key, STR("/state/"))) || !node_name_ok(key))
        return KEY_OTHER;
    *ret_node = key;
    return live ? KEY_LIVE : KEY_STATE;
}

/* ---- which cluster it is --------------------------------------------------------------------- */

void cluster_id_make(const uint8_t bytes[CLUSTER_ID_BYTES], char ret[CLUSTER_ID_LEN + 1])
{
    hex_put_c(bytes, CLUSTER_ID_BYTES, ret);
}

bool cluster_id_ok(struct str id)
{
    return id.len == CLUSTER_ID_LEN && hex_is_lower(id);
}

void cluster_id_write(const char *id, struct buf *out)
{
    struct json j;

    CHECK(cluster_id_ok(str_c(id)));
    json_init(&j, out);
    json_obj(&j);
    json_put_cstr(&j, "id", id);
    json_obj_end(&j);
}

int cluster_id_parse(struct str text, char ret[CLUSTER_ID_LEN + 1], struct err *e)
{
    struct str id = STR_NULL;
    struct json_doc *doc;
    int code;

    if (text.len > 4 * KIB)
        return err_set(e, ERR_LIMIT, "%zu bytes for a cluster's id, at most 4096", text.len);
    code = json_parse(text, &doc, e);
    if (code)
        return code;
    code = json_take_str(json_get(json_root(doc), "id", NULL), "id", &id, e);
    if (!code && !cluster_id_ok(id))
        code = err_set(e, ERR_INPUT, "id \"%.*s\": want %d hex digits", STR_ARG(str_sub(id, 0, 64)),
                       CLUSTER_ID_LEN);
    if (!code)
        (void)snprintf(ret, CLUSTER_ID_LEN + 1, "%.*s", STR_ARG(id));
    json_doc_free(doc);
    return code;
}

/* ---- a node that lives ----------------------------------------------------------------------- */

void live_write(const struct live *l, struct buf *out)
{
    char id[20];
    struct json j;

    (void)snprintf(id, sizeof(id), "%016" PRIx64, l->id);
    json_init(&j, out);
    json_obj(&j);
    json_put_cstr(&j, "id", id);
    json_put_cstr(&j, "addr", l->addr);
    json_put_cstr(&j, "zone", l->zone);
    json_put_u64(&j, "methods", l->methods);
    if (l->drained)
        json_put_bool(&j, "drained", true);
    json_obj_end(&j);
}

static int take(const struct json_val *root, const char *key, char *to, size_t size, struct err *e)
{
    struct str s = STR_NULL;
    int code = json_take_str(json_get(root, key, NULL), key, &s, e);

    if (code)
        return code;
    if (s.len >= size)
        return err_set(e, ERR_LIMIT, "%s has %zu bytes, at most %zu", key, s.len, size - 1);
    if (s.len)
        memcpy(to, s.ptr, s.len);
    return 0;
}

/* Methods are numbered, and never taken back: how many there are says which. */
static int take_methods(const struct json_val *root, uint32_t *ret, struct err *e)
{
    const struct json_val *v = json_get(root, "methods", NULL);
    int64_t n = METHODS_UNTOLD;
    int code = v ? json_take_i64(v, "methods", &n, e) : 0;

    if (code)
        return code;
    if (n < 0 || n > UINT32_MAX)
        return err_set(e, ERR_INPUT, "methods: %" PRId64 " of them", n);
    *ret = (uint32_t)n;
    return 0;
}

int live_parse(struct str text, struct live *ret, struct err *e)
{
    struct live l = { 0 };
    struct json_doc *doc;
    char id[32] = { 0 };
    int code;

    if (text.len > 4 * KIB)
        return err_set(e, ERR_LIMIT, "%zu bytes for a node that lives, at most 4096", text.len);
    code = json_parse(text, &doc, e);
    if (code)
        return code;
    code = take(json_root(doc), "id", id, sizeof(id), e);
    if (!code && !(strlen(id) == 16 && hex_u64(str_c(id), &l.id)))
        code = err_set(e, ERR_INPUT, "id \"%s\": want 16 hex digits", id);
    if (!code)
        code = take(json_root(doc), "addr", l.addr, sizeof(l.addr), e);
    if (!code)
        code = take(json_root(doc), "zone", l.zone, sizeof(l.zone), e);
    if (!code)
        code = take_methods(json_root(doc), &l.methods, e);
    if (!code)
        code = json_take_bool(json_get(json_root(doc), "drained", NULL), "drained", &l.drained, e);
    json_doc_free(doc);
    if (!code)
        *ret = l;
    return code;
}
