/* SPDX-License-Identifier: Apache-2.0
 *
 * options: the tables of the common sections.
 *
 * A default that depends on the machine is 0 in its table, and one function here turns the 0 into
 * a number; so --print-config shows what was configured and the start-up line what came of it.
 */
#include "common/role/core/options.h"

#include <stdio.h>
#include <unistd.h>

#include "common/cluster/view/view.h"
#include "common/identity/identity.h"
#include "common/role/host/limits.h"

static const struct conf_row http_rows[] = {
    CONF_STR(struct common_conf, listen, "listen", "127.0.0.1:4040",
             "Address and port of the HTTP listener; port 0 picks a free one."),
    CONF_BOOL(struct common_conf, insecure_open, "insecure_open", "false",
              "Allow listening beyond this machine although nothing asks callers for a key; "
              "tls_client_ca does. Ports between roles: cluster.insecure_open."),
    CONF_LIST(struct common_conf, hosts, "hosts", "",
              "Names by which clients call this server (profiles.example.com, *.example.com, or * "
              "for any); a request with another Host is answered 421. Local names and, unless it "
              "listens on loopback, IP addresses are taken as well. Empty: those only on loopback, "
              "else any."),
    CONF_LIST(struct common_conf, origins, "origins", "",
              "Origins of web pages on other sites (https://app.example.com) that may push and "
              "change things here from a browser; others are answered 403. They get no answers to "
              "queries."),
    CONF_U64(struct common_conf, connections_max, "connections_max", "12288", "1", "1000000",
             "Connections at once; one more is answered 503 and closed."),
    CONF_BYTES(struct common_conf, in_flight_bytes, "in_flight_bytes", "0", "0", NULL,
               "Request bytes held at once, over it 503; with many tenants each has a share, over "
               "it 429; 0 is 9 % of memory.limit."),
    CONF_BYTES(struct common_conf, body_bytes_max, "body_bytes_max", "32MiB", "1KiB", "1GiB",
               "Largest request body as sent; a larger one is answered 413."),
    CONF_DURATION(struct common_conf, head_ms, "head_timeout", "10s", "10ms", "10m",
                  "A request head must be complete after this time."),
    CONF_DURATION(struct common_conf, body_ms, "body_timeout", "30s", "10ms", "1h",
                  "A request body may pause this long."),
    CONF_DURATION(struct common_conf, idle_ms, "idle_timeout", "75s", "10ms", "1d",
                  "A connection without a request is closed after this time."),
    CONF_DURATION(struct common_conf, write_ms, "write_timeout", "30s", "10ms", "1h",
                  "A client may take no byte of its reply for this long."),
    CONF_STR(struct common_conf, tls_cert, "tls_cert", "",
             "PEM file with certificate and chain; the port then speaks TLS beside plain HTTP. "
             "Read again when it changes."),
    CONF_STR(struct common_conf, tls_key, "tls_key", "",
             "PEM file with the certificate's key, without a password."),
    CONF_STR(struct common_conf, tls_client_ca, "tls_client_ca", "",
             "PEM file; clients must show a certificate signed by one in it. Implies tls_only."),
    CONF_BOOL(struct common_conf, tls_only, "tls_only", "false",
              "Answer plain HTTP with 400 instead of serving it beside TLS."),
    CONF_STR(
        struct common_conf, admin_token_file, "admin_token_file", "",
        "File of tokens, one a line: what tells of the server or all tenants (/config, /ring, "
        "/runtime_config, /api/v1/forward, /debug/pprof/), deletes profiles or changes the cluster "
        "(drain, rebalance, spread) then wants one of them (Authorization: Bearer). Read again "
        "for each. Empty: all callers may look and delete, and the cluster is changed through "
        "admin_socket only."),
    CONF_STR(struct common_conf, admin_socket, "admin_socket", ADMIN_SOCKET,
             "Unix socket of mode 0600 on which operators of this machine need no token, below "
             "data.dir or at an absolute path; embertreectl finds it by itself. Empty: none."),
    CONF_BOOL(struct common_conf, metrics_token, "metrics_token", "false",
              "/metrics wants a token of admin_token_file, too: it names scrape and forward "
              "targets."),
};
const struct conf_table http_options = { "http", "The HTTP listener", http_rows,
                                         ARRAY_LEN(http_rows), sizeof(struct common_conf) };

static const struct conf_row log_rows[] = {
    CONF_ENUM(struct log_conf, level, "level", "info", "debug|info|warn|error",
              "Least severity that is written to standard error."),
};
const struct conf_table log_options = { "log", "Logging", log_rows, ARRAY_LEN(log_rows),
                                        sizeof(struct log_conf) };

static const struct conf_row cluster_rows[] = {
    CONF_LIST(struct cluster_conf, ingesters, "ingesters", "inproc://ingester",
              "Rpc addresses of all ingesters, in an order that never changes."),
    CONF_U64(struct cluster_conf, shards, "shards", "1", "1", "4096",
             "Shards of the whole cluster; shard i lives on ingester i mod n, at most 8 on one."),
    CONF_ENUM(struct cluster_conf, coordination, "coordination", "none", "none|static|etcd",
              "Source of the cluster map, which says which node has which shard: the list of "
              "ingesters, a file, or etcd. With etcd shards are replicated, move, and are led by "
              "another node when their leader is gone."),
    CONF_LIST(struct cluster_conf, etcd, "etcd", "http://127.0.0.1:2379",
              "URLs of etcd's members, for coordination etcd."),
    CONF_STR(struct cluster_conf, etcd_ca, "etcd_ca", "",
             "PEM file that etcd's certificates are "
             "checked with."),
    CONF_STR(struct cluster_conf, etcd_cert, "etcd_cert", "",
             "PEM file: our certificate for etcd."),
    CONF_STR(struct cluster_conf, etcd_key, "etcd_key", "", "PEM file: its key."),
    CONF_STR(struct cluster_conf, etcd_user, "etcd_user", "",
             "Our name there, if it asks for one."),
    CONF_STR(struct cluster_conf, etcd_password_file, "etcd_password_file", "",
             "File with its password."),
    CONF_STR(struct cluster_conf, etcd_prefix, "etcd_prefix", "/embertree",
             "Begin of all keys there: one per cluster."),
    CONF_STR(struct cluster_conf, node, "node", "",
             "Name of this ingester in the cluster; empty: the host's name."),
    CONF_STR(struct cluster_conf, zone, "zone", "",
             "What fails together with it; copies of a shard stand in different ones."),
    CONF_U64(struct cluster_conf, replicas, "replicas", "3", "1", "7",
             "Copies of each shard, with coordination etcd; fixed when the cluster is made."),
    CONF_DURATION(
        struct cluster_conf, lease_ttl_ms, "lease_ttl", "3s", "1s", "1m",
        "An ingester whose lease in etcd was not renewed for this long is taken for dead."),
    CONF_DURATION(struct cluster_conf, replace_after_ms, "replace_after", "30m", "1s", "30d",
                  "An ingester that has been down for this long is replaced; other ingesters "
                  "receive its copies."),
    CONF_U64(struct cluster_conf, tenant_shards, "tenant_shards", "0", "0", "4096",
             "Shards of each tenant that was not given a number of its own (embertreectl cluster "
             "tenant), with coordination etcd; 0: all. Fewer, so that a busy tenant slows "
             "down few others."),
    CONF_BYTES(struct cluster_conf, spread_rate, "spread_rate", "8MiB", "0", NULL,
               "A service that sends more a second than this is spread over more shards, with "
               "coordination etcd; never over fewer again. 0: none is."),
    CONF_DURATION(struct cluster_conf, place_after_ms, "place_after", "15m", "0", "7d",
                  "A change of a service's or a tenant's shards is for profiles that begin so long "
                  "after it was made. More than distributor.future, and a minute for the news."),
    CONF_DURATION(struct cluster_conf, digest_every_ms, "digest_interval", "6h", "0ms", "365d",
                  "The checksums of all copies are compared this often, in the background; a "
                  "copy that differs is fetched again. 0: never."),
    CONF_BYTES(struct cluster_conf, digest_rate, "digest_rate", "16MiB", "256KiB", "16GiB",
               "A node reads so much per second for that."),
    CONF_BYTES(struct cluster_conf, snapshot_rate, "snapshot_rate", "0", "0", "64GiB",
               "A node sends whole copies of shards to others at most this fast, per second; 0: as "
               "fast as they take them."),
    CONF_DURATION(struct cluster_conf, catch_up_ms, "catch_up_wait", "10m", "0ms", "1d",
                  "An ingester that started is not ready before its copies are within reach of "
                  "their leaders, but no longer than this."),
    CONF_STR(struct cluster_conf, map_file, "map_file", "",
             "The map of the cluster, for coordination static."),
    CONF_BYTES(struct cluster_conf, rpc_message_bytes_max, "rpc_message_bytes_max", "64MiB", "1MiB",
               "1GiB", "Largest message between roles."),
    CONF_U64(struct cluster_conf, rpc_pending_max, "rpc_pending_max", "4096", "1", "1000000",
             "Calls in flight from or to one role; one more is refused."),
    CONF_DURATION(struct cluster_conf, heartbeat_ms, "heartbeat", "500ms", "10ms", "1m",
                  "Peers greet each other this often."),
    CONF_DURATION(struct cluster_conf, dead_ms, "dead_after", "3s", "50ms", "10m",
                  "A peer is taken for down after this much silence."),
    CONF_DURATION(struct cluster_conf, hedge_ms, "hedge_after", "250ms", "0ms", "1m",
                  "A write that an ingester has not answered for this long, and for longer than it "
                  "usually takes, is sent once more through another ingester, a read after four "
                  "times that; at most 5 % of calls, and a few. 0: never."),
    CONF_STR(struct cluster_conf, key_file, "key_file", "",
             "File with the cluster's keys, a line \"id: 32 bytes in hex or base64\" each, mode "
             "0600: roles on other machines prove that they have one, and no other program reads "
             "their messages. The first key seals, all of them open. Read again when it changes."),
    CONF_BOOL(struct cluster_conf, key_optional, "key_optional", "false",
              "Talk to roles without a key as well: only while a running cluster gets its first."),
    CONF_BOOL(
        struct cluster_conf, insecure_open, "insecure_open", "false",
        "Dangerous: let roles listen for each other beyond this machine without a key. Any "
        "process that reaches such a port reads, writes and deletes the data of all tenants."),
};
const struct conf_table cluster_options = { "cluster", "Cluster", cluster_rows,
                                            ARRAY_LEN(cluster_rows), sizeof(struct cluster_conf) };

static const struct conf_row data_rows[] = {
    CONF_STR(struct data_conf, dir, "dir", "embertree-data",
             "Folder for everything that is stored; one process at a time."),
    CONF_BYTES(struct data_conf, disk_reserve, "disk_reserve", "0", "0", NULL,
               "Free disk space below which writes are refused; 0 is 2 % of the volume, at least "
               "64 MiB, at most 1 GiB."),
};
const struct conf_table data_options = { "data", "Where data is kept", data_rows,
                                         ARRAY_LEN(data_rows), sizeof(struct data_conf) };

static const struct conf_row guard_rows[] = {
    CONF_BOOL(struct data_guard_conf, create, "create", "true",
              "Make the data folder where it is missing, and begin in an empty one. false: a start "
              "wants a folder that a server has used before, so that a volume which is not mounted "
              "is not taken for a new, empty server."),
};
const struct conf_table data_guard_options = { "data", "Where data is kept", guard_rows,
                                               ARRAY_LEN(guard_rows),
                                               sizeof(struct data_guard_conf) };

static const struct conf_row memory_rows[] = {
    CONF_BYTES(
        struct memory_conf, limit, "limit", "0", "0", NULL,
        "Memory to live in; over 85 % of it pushes and queries are refused. 0 is 80 % of the "
        "cgroup's limit, or half of the machine."),
};
const struct conf_table memory_options = { "memory", "The memory ceiling", memory_rows,
                                           ARRAY_LEN(memory_rows), sizeof(struct memory_conf) };

static const struct conf_row tenancy_rows[] = {
    CONF_BOOL(struct tenancy_conf, multi, "multi", "false",
              "Several tenants, named by X-Scope-OrgID; off, the tenant of all callers is "
              "\"anonymous\"."),
    CONF_BOOL(struct tenancy_conf, strict, "strict", "false",
              "X-Scope-OrgID must be exactly the name of one tenant. Otherwise queries may name "
              "several (a|b), and what follows a colon is cut off (a:x is a), which a gateway that "
              "checks the header has to know."),
};
const struct conf_table tenancy_options = { "tenancy", "Tenants", tenancy_rows,
                                            ARRAY_LEN(tenancy_rows), sizeof(struct tenancy_conf) };

static const struct conf_row shutdown_rows[] = {
    CONF_DURATION(struct shutdown_conf, deadline_ms, "deadline", "30s", "100ms", "1h",
                  "After SIGTERM running requests may take this long."),
};
const struct conf_table shutdown_options = { "shutdown", "Stopping", shutdown_rows,
                                             ARRAY_LEN(shutdown_rows),
                                             sizeof(struct shutdown_conf) };

static const struct conf_row selfprof_rows[] = {
    CONF_BOOL(struct selfprof_conf, enabled, "enabled", "true",
              "Sample the CPU of this process and push the profiles as service \"embertree\"."),
    CONF_U64(struct selfprof_conf, hz, "hz", "100", "1", "1000", "Samples per second of CPU time."),
    CONF_STR(struct selfprof_conf, url, "url", "",
             "Where to push, on this machine; empty: to this process, if it takes pushes."),
    CONF_STR(struct selfprof_conf, tenant, "tenant", "anonymous", "Tenant of these profiles."),
};
const struct conf_table selfprof_options = { "selfprof", "Profiling itself", selfprof_rows,
                                             ARRAY_LEN(selfprof_rows),
                                             sizeof(struct selfprof_conf) };

static const struct conf_table *const common_tables[] = {
    &http_options, &cluster_options, &data_options,        &data_guard_options, &memory_options,
    &log_options,  &tenancy_options, &identity_conf_table, &shutdown_options,   &selfprof_options,
};

size_t options_collect(const struct role *const *list,
                       const struct conf_table *ret[OPTIONS_TABLES_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(common_tables); i++)
        ret[n++] = common_tables[i];
    for (; *list; list++) {
        for (size_t i = 0; i < (*list)->conf_len; i++) {
            CHECK(n < OPTIONS_TABLES_MAX);
            ret[n++] = (*list)->conf[i];
        }
    }
    return n;
}

/* Dotted IPv4 whose first number is 127. Names other than localhost may resolve to anything. */
static bool host_is_loopback(struct str host)
{
    uint32_t dots = 0;

    if (str_eq_nocase(host, STR("localhost")) || str_eq(host, STR("::1")))
        return true;
    if (!str_starts(host, STR("127.")))
        return false;
    for (size_t i = 0; i < host.len; i++) {
        if (host.ptr[i] == '.')
            dots++;
        else if (host.ptr[i] < '0' || host.ptr[i] > '9')
            return false;
    }
    return dots == 3;
}

bool addr_is_loopback(struct str addr)
{
    ptrdiff_t scheme = str_find(addr, ':');
    ptrdiff_t colon;

    if (scheme > 0 && str_starts(str_sub(addr, (size_t)scheme, addr.len), STR("://"))) {
        if (!str_starts(addr, STR("tcp://")))
            return true; /* ipc, inproc, mem */
        addr = str_sub(addr, 6, addr.len);
    }
    if (addr.len > 0 && addr.ptr[0] == '[') {
        colon = str_find(addr, ']');
        return colon > 0 && host_is_loopback(str_sub(addr, 1, (size_t)colon));
    }
    colon = str_rfind(addr, ':');
    return host_is_loopback(colon < 0 ? addr : str_sub(addr, 0, (size_t)colon));
}

static int ingesters_check(const struct cluster_conf *c, bool all_in_one, struct err *e)
{
    if (c->ingesters.len > MAP_NODES_MAX)
        return err_set(e, ERR_CONFIG, "cluster.ingesters names %zu ingesters, at most %d",
                       c->ingesters.len, MAP_NODES_MAX);
    for (size_t i = 0; i < c->ingesters.len; i++) {
        const char *addr = c->ingesters.items[i];

        if (!all_in_one && str_starts(str_c(addr), STR("inproc://")))
            return err_set(e, ERR_CONFIG,
                           "cluster.ingesters: %s can only be reached inside one process; give "
                           "tcp://host:port of every ingester, or run the all-in-one binary",
                           addr);
        for (size_t k = 0; k < i; k++) {
            if (str_eq(str_c(addr), str_c(c->ingesters.items[k])))
                return err_set(e, ERR_CONFIG, "cluster.ingesters names %s twice", addr);
        }
    }
    return 0;
}

static int heartbeat_check(const struct cluster_conf *cluster, struct err *e)
{
    if (cluster->dead_ms < 2 * cluster->heartbeat_ms)
        return err_set(e, ERR_CONFIG,
                       "cluster.dead_after is %" PRIu64 " ms, less than two heartbeats of %" PRIu64
                       " ms",
                       cluster->dead_ms, cluster->heartbeat_ms);
    return 0;
}

struct common_conf options_http(const struct conf *conf)
{
    const struct identity_conf *identity = conf_get(conf, &identity_conf_table);
    struct common_conf http = *(const struct common_conf *)conf_get(conf, &http_options);

    http.insecure_open |= strcmp(identity->mode, "require") == 0;
    return http;
}

int options_check_http(const struct common_conf *http, struct err *e)
{
    bool asks = http->tls_client_ca && http->tls_client_ca[0]; /* each caller for a certificate */
    if (!http->insecure_open && !asks && !addr_is_loopback(str_c(http->listen)))
        return err_set(e, ERR_CONFIG,
                       "http.listen: %s can be reached from other machines, and nothing asks "
                       "callers for a key; listen on 127.0.0.1 behind a proxy, ask callers for "
                       "certificates with --http.tls-client-ca, for keys with "
                       "--identity.mode=require, or accept it with --http.insecure-open",
                       http->listen);
    if (http->metrics_token && !http->admin_token_file[0])
        return err_set(e, ERR_CONFIG,
                       "http.metrics_token is set, and there is no token: name a file of tokens "
                       "with http.admin_token_file");
    return http_hosts_check(&http->hosts, e) || http_origins_check(&http->origins, e) ? e->code : 0;
}

int options_check_cluster(const struct cluster_conf *cluster, bool all_in_one, struct err *e)
{
    if (strcmp(cluster->coordination, "none") != 0)
        return heartbeat_check(cluster, e);
    if (cluster->ingesters.len == 0)
        return err_set(e, ERR_CONFIG, "cluster.ingesters is empty; name at least one ingester");
    if (cluster->shards < cluster->ingesters.len)
        return err_set(e, ERR_CONFIG,
                       "cluster.shards is %" PRIu64 " for %zu ingesters; every ingester needs at "
                       "least one shard",
                       cluster->shards, cluster->ingesters.len);
    if (heartbeat_check(cluster, e))
        return e->code;
    return ingesters_check(cluster, all_in_one, e);
}

int options_check(const struct common_conf *http, const struct cluster_conf *cluster,
                  bool all_in_one, struct err *e)
{
    int code = options_check_http(http, e);

    return code ? code : options_check_cluster(cluster, all_in_one, e);
}

struct view *options_view(const struct cluster_conf *cluster)
{
    return view_new_list(cluster->ingesters.items, cluster->ingesters.len,
                         (uint32_t)cluster->shards);
}

uint64_t options_memory_from(uint64_t configured, uint64_t cgroup, uint64_t machine)
{
    uint64_t limit = configured;

    if (limit == 0)
        limit = cgroup > 0 && (machine == 0 || cgroup < machine) ? cgroup / 10 * 8 : machine / 2;
    return MAX(limit, OPTIONS_MEMORY_LEAST);
}

uint64_t options_memory_limit(uint64_t configured)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;

    return options_memory_from(configured, configured ? 0 : limits_memory(""), machine);
}
