/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_keys: the cluster's keys, and at which addresses a role may listen.
 *
 * Refused frames come from the network and may come in any number, so they are counted, and one
 * line of the log in CLUSTER_KEYS_WARN_MS says how many came since the previous line. Networks and
 * restarts cause a few replayed or late frames; only frames that no owner of the key would send are
 * worth a line.
 */
#include "common/role/cluster/cluster_keys.h"

#include "common/obs/log.h"

int cluster_keys_start(struct cluster_keys *c, const struct cluster_conf *conf, struct rpc_net *net,
                       struct err *e)
{
    struct buf said;

    *c = (struct cluster_keys){ .net = net };
    if (!conf->key_file[0]) {
        if (conf->key_optional)
            return err_set(e, ERR_CONFIG,
                           "cluster.key_optional is for switching a key on, and there is no "
                           "cluster.key_file");
        return 0;
    }
    if (rpc_keys_load(conf->key_file, &c->keys, e))
        return err_wrap(e, "cluster.key_file");
    rpc_net_seal(net, c->keys, conf->key_optional);
    buf_init(&said, KIB);
    rpc_keys_say(c->keys, &said);
    log_info("cluster keys", KV_STR("keys", buf_str(&said)),
             KV_BOOL("optional", conf->key_optional));
    buf_deinit(&said);
    return 0;
}

/* New ones of this reason since the last look. */
static uint64_t fresh(struct cluster_keys *c, enum rpc_drop why)
{
    uint64_t now = rpc_net_refused(c->net, why), n = now - c->refused[why];

    c->refused[why] = now;
    return n;
}

static void warn_refused(struct cluster_keys *c, uint64_t now_ms)
{
    uint64_t unsealed, other_key, forged;

    if (c->warned_ms && now_ms < c->warned_ms + CLUSTER_KEYS_WARN_MS)
        return;
    unsealed = fresh(c, RPC_DROP_UNSEALED);
    other_key = fresh(c, RPC_DROP_KEY);
    forged = fresh(c, RPC_DROP_FORGED);
    if (!unsealed && !other_key && !forged)
        return;
    c->warned_ms = now_ms;
    if (c->keys)
        log_warn("refused frames of a peer without our cluster key", KV_U64("unsealed", unsealed),
                 KV_U64("other_key", other_key), KV_U64("forged", forged));
    else
        log_warn("refused sealed frames: others have a cluster key and this process has none; set "
                 "cluster.key_file",
                 KV_U64("sealed", other_key));
}

void cluster_keys_tick(struct cluster_keys *c, uint64_t now_ms)
{
    struct buf said;
    bool changed;
    struct err e;

    warn_refused(c, now_ms);
    if (!c->keys)
        return;
    if (rpc_keys_check(c->keys, now_ms, &changed, &e)) {
        log_warn("the changed cluster keys cannot be used; the old ones stay", KV_ERR(&e));
    } else if (changed) {
        buf_init(&said, KIB);
        rpc_keys_say(c->keys, &said);
        log_info("cluster keys read again", KV_STR("keys", buf_str(&said)));
        buf_deinit(&said);
    }
}

void cluster_keys_stop(struct cluster_keys *c)
{
    rpc_keys_free(c->keys);
    c->keys = NULL;
}

int role_rpc_listen_check(const struct role_ctx *ctx, const char *name, const char *addr,
                          struct err *e)
{
    const struct cluster_conf *c = ctx->cluster;

    if (!addr[0] || addr_is_loopback(str_c(addr)) || c->insecure_open ||
        (c->key_file && c->key_file[0] && !c->key_optional))
        return 0;
    return err_set(
        e, ERR_CONFIG,
        "%s: %s can be reached from other machines, and the roles do not prove who they "
        "are to each other%s: any process that reaches it could read and delete the data "
        "of all tenants; give them a key with --cluster.key-file (--http.insecure-open "
        "is no longer enough), or accept the danger with --cluster.insecure-open",
        name, addr, c->key_optional ? " while --cluster.key-optional is set" : "");
}
