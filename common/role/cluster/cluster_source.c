/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinate: from options to a view, and to a coordination service where there is one.
 *
 * A node is its data folder: the number in <data>/node-id is made once, and tells a node that
 * starts again from another node that got the same name by mistake. Next to it cluster.json
 * keeps the cluster as last seen, for a start while etcd is away.
 */
#include "common/role/cluster/cluster_source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/hex.h"
#include "common/cluster/coord/coord_etcd.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/view/config_fingerprint.h"
#include "common/role/cluster/etcd_health.h"
#include "common/role/cluster/peer_health.h"
#include "common/role/core/options.h"
#include "common/sys/secret_file.h"

#define SECRET_MAX (4 * KIB)
#define VIEW_FILE  "cluster.json"

static int path_in(const char *dir, const char *name, char ret[PATH_MAX], struct err *e)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", dir, name);

    if (n < 0 || n >= PATH_MAX)
        return err_set(e, ERR_CONFIG, "data.dir: the path is too long");
    return 0;
}

/* ---- name and id of this node ---------------------------------------------------------------- */

static int node_name(struct cluster_source *c, const struct cluster_conf *conf, struct err *e)
{
    char host[256] = { 0 };
    const char *name = conf->node;

    if (!name[0]) {
        if (gethostname(host, sizeof(host) - 1))
            host[0] = '\0';
        name = host;
    }
    if (!node_name_ok(str_c(name)))
        return err_set(e, ERR_CONFIG,
                       "cluster.node: \"%s\" is no name of a node; want letters, digits, '-', '_' "
                       "and '.', at most %d of them",
                       name, NODE_NAME_MAX);
    (void)snprintf(c->node, sizeof(c->node), "%.*s", NODE_NAME_MAX, name);
    return 0;
}

static bool parse_id(struct str text, uint64_t *ret)
{
    text = str_trim(text);
    return text.len == 16 && hex_u64(text, ret) && *ret != 0;
}

static int node_id(struct cluster_source *c, struct env *env, const char *dir, struct err *e)
{
    char path[PATH_MAX], text[32];
    struct buf in;
    int code = path_in(dir, "node-id", path, e);

    if (code)
        return code;
    buf_init(&in, SECRET_MAX);
    code = env->fs->read_file(env->fs, path, &in, e);
    if (!code && !parse_id(buf_str(&in), &c->node_id))
        code = err_set(e, ERR_CORRUPT,
                       "%s does not hold 16 hex digits; if this folder's node has left its "
                       "cluster, remove the file",
                       path);
    buf_deinit(&in);
    if (code != ERR_NOT_FOUND)
        return code;
    while (c->node_id == 0)
        env->random(env, &c->node_id, sizeof(c->node_id));
    (void)snprintf(text, sizeof(text), "%016" PRIx64 "\n", c->node_id);
    return env->fs->write_file(env->fs, path, str_c(text), e);
}

/* ---- where the cluster is known from --------------------------------------------------------- */

static int init_static(struct cluster_source *c, const struct cluster_conf *conf, struct env *env,
                       struct err *e)
{
    const struct map *m;
    struct buf in;
    int code;

    if (!conf->map_file[0])
        return err_set(e, ERR_CONFIG,
                       "cluster.coordination is static: name the file of its map with "
                       "--cluster.map-file");
    buf_init(&in, MAP_BYTES_MAX);
    code = env->fs->read_file(env->fs, conf->map_file, &in, e);
    if (!code)
        code = map_parse(conf->map_file, buf_str(&in), true, &m, e);
    buf_deinit(&in);
    if (code)
        return err_wrap(e, "cluster.map_file");
    code = view_new_static(m, &c->view, e);
    map_unref(m);
    return code ? err_wrap(e, "cluster.map_file: %s", conf->map_file) : 0;
}

static int read_password(const struct cluster_conf *conf, struct env *env, struct buf *out,
                         struct err *e)
{
    int code = 0;

    if (conf->etcd_password_file[0])
        code = secret_file_check(conf->etcd_password_file, e);
    if (!code && conf->etcd_password_file[0])
        code = env->fs->read_file(env->fs, conf->etcd_password_file, out, e);
    while (!code && out->len && (out->ptr[out->len - 1] == '\n' || out->ptr[out->len - 1] == '\r'))
        out->len--;
    (void)buf_add_c(out, '\0');
    return code ? err_wrap(e, "cluster.etcd_password_file") : 0;
}

/* Makes the client of etcd, which sends no request yet, and finds the name of this node. */
static int make_etcd(struct cluster_source *c, const struct cluster_conf *conf, struct env *env,
                     struct loop *loop, struct err *e)
{
    struct coord_etcd_opts o = {
        .loop = loop,
        .urls = conf->etcd.items,
        .urls_len = conf->etcd.len,
        .tls = { conf->etcd_ca, conf->etcd_cert, conf->etcd_key, false },
        .user = conf->etcd_user,
    };
    struct buf password;
    int code = key_prefix_check(str_c(conf->etcd_prefix), e);

    if (!code)
        code = node_name(c, conf, e);
    if (!code && conf->etcd_key[0] && secret_file_check(conf->etcd_key, e))
        code = err_wrap(e, "cluster.etcd_key");
    if (code)
        return code;
    buf_init(&password, SECRET_MAX);
    code = read_password(conf, env, &password, e);
    o.password = password.ptr;
    if (!code)
        code = coord_etcd_new(&o, &c->coord, e);
    if (password.len)
        explicit_bzero(password.ptr, password.len);
    buf_deinit(&password);
    return code;
}

static int init_etcd(struct cluster_source *c, const struct cluster_source_opts *o, struct err *e)
{
    char path[PATH_MAX];
    int code = make_etcd(c, o->conf, o->env, o->loop, e);

    if (!code)
        code = node_id(c, o->env, o->data_dir, e);
    if (!code)
        code = path_in(o->data_dir, VIEW_FILE, path, e);
    if (code) {
        coord_free(c->coord);
        c->coord = NULL;
        return code;
    }
    c->view = view_new_coord(&(struct view_opts){ .loop = o->loop,
                                                  .coord = c->coord,
                                                  .prefix = o->conf->etcd_prefix,
                                                  .fs = o->env->fs,
                                                  .file = path,
                                                  .pool = o->pool,
                                                  .keeps = o->keeps,
                                                  .node = o->keeps ? c->node : NULL });
    return 0;
}

int cluster_source_check(const struct cluster_conf *conf, struct env *env, struct err *e)
{
    struct cluster_source c = { .node_id = 0 };
    int code = 0;

    if (strcmp(conf->coordination, "static") == 0) {
        code = node_name(&c, conf, e);
        if (!code)
            code = init_static(&c, conf, env, e);
        view_free(c.view);
    } else if (strcmp(conf->coordination, "etcd") == 0) {
        struct loop *loop = loop_new(env->clock);

        code = make_etcd(&c, conf, env, loop, e);
        coord_free(c.coord);
        loop_free(loop);
    }
    return code;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static struct metric_cell *gauge(struct metrics *m, const char *name, const char *help)
{
    return metric_at(metric_new(m, METRIC_GAUGE, name, help, NULL), NULL, 0);
}

static void on_render(void *cookie)
{
    struct cluster_source *c = cookie;
    int64_t live = 0, leaderless = 0, rev;

    if (!c->view)
        return;
    const struct map *m = view_map(c->view, &rev);
    for (size_t i = 0; i < view_nodes_len(c->view); i++) {
        struct view_node n;

        view_node(c->view, i, &n);
        live += n.live;
    }
    for (uint32_t i = 0; i < view_shards(c->view); i++) {
        struct view_shard s;

        leaderless += !view_shard(c->view, i, &s) || !s.leader_live;
    }
    metric_set(c->age, (int64_t)(view_age_ms(c->view) / 1000));
    metric_set(c->version, m ? (int64_t)m->version : 0);
    metric_set(c->live, live);
    metric_set(c->leaderless, leaderless);
    metric_set(c->stranger, view_stranger(c->view)[0] != '\0');
}

static void init_metrics(struct cluster_source *c, struct metrics *m)
{
    c->age =
        gauge(m, "embertree_cluster_age_seconds", "Since the coordination service last answered");
    c->version = gauge(m, "embertree_cluster_map_version", "Version of the map that is in use");
    c->live = gauge(m, "embertree_cluster_nodes_live", "Nodes that live, as far as known here");
    c->leaderless = gauge(m, "embertree_cluster_leaderless_shards",
                          "Shards without a leader, as far as known here");
    c->stranger =
        gauge(m, "embertree_cluster_stranger",
              "1: what the coordination service holds is another cluster, or less of this "
              "one than is known here; nothing of it is followed");
    metrics_on_render(m, on_render, c);
}

/* ---- life ------------------------------------------------------------------------------------ */

int cluster_source_init(struct cluster_source *c, const struct cluster_source_opts *o,
                        struct err *e)
{
    const struct cluster_conf *conf = o->conf;
    int code = 0;

    *c = (struct cluster_source){ .node_id = 0 };
    if (strcmp(conf->coordination, "static") == 0) {
        code = node_name(c, conf, e);
        if (!code)
            code = init_static(c, conf, o->env, e);
    } else if (strcmp(conf->coordination, "etcd") == 0) {
        code = init_etcd(c, o, e);
    } else {
        c->view = options_view(conf);
    }
    if (!code)
        init_metrics(c, o->metrics);
    if (!code && c->coord)
        c->health = etcd_health_new(o->loop, c->coord, c->view, o->metrics);
    return code;
}

int cluster_source_forget(const char *data_dir, struct err *e)
{
    char path[PATH_MAX];
    int code = path_in(data_dir, VIEW_FILE, path, e);

    if (!code && unlink(path) && errno != ENOENT)
        code = err_errno(e, errno, "cannot remove %s", path);
    return code;
}

static void on_view(void *cookie)
{
    const struct cluster_source *c = cookie;
    uint64_t cluster = config_fingerprint_number(c->view);

    if (cluster)
        rpc_net_cluster(c->rpc, cluster);
    else if (sscanf(view_cluster_id(c->view), "%16" SCNx64, &cluster) == 1)
        rpc_net_cluster(c->rpc, cluster);
}

void cluster_source_rpc(struct cluster_source *c, struct rpc_net *rpc, struct loop *loop,
                        struct metrics *metrics)
{
    c->rpc = rpc;
    c->heard = peer_health_new(loop, rpc, c->view, c->health, metrics);
    rpc_net_judge(rpc, config_fingerprint_check);
    view_watch(c->view, on_view, c);
    on_view(c);
}

void cluster_source_deinit(struct cluster_source *c)
{
    if (c->view && c->rpc)
        view_unwatch(c->view, on_view, c);
    peer_health_free(c->heard);
    etcd_health_free(c->health);
    view_free(c->view);
    coord_free(c->coord);
    c->heard = NULL;
    c->health = NULL;
    c->view = NULL;
    c->coord = NULL;
}
