/* SPDX-License-Identifier: Apache-2.0
 *
 * process: the life of a process.
 *
 *   STARTING ──> RUNNING ──(TERM, INT, HUP)──> DRAINING ──> STOPPED
 *
 * Start: lock the data folder, make loop, pool, metrics, listener and rpc, start the roles in table
 * order. A failure anywhere ends the process with one line that says what to do.
 *
 * Drain: first the HTTP listener stops accepting and answers what runs, for which all roles are
 * still there; then the roles drain in reverse table order, so that a caller drains before the role
 * that it calls. One deadline covers it all; when it passes the process exits with 1 and names the
 * role that was still busy (nothing acked is lost: an ack means fsync).
 *
 * Signals: the first one posts the drain, a second one exits at once.
 */
#include "common/role/process/process.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/identity/identity.h"
#include "common/obs/log.h"
#include "common/role/admin/admin.h"
#include "common/role/admin/cluster_dump_routes.h"
#include "common/role/admin/cluster_page.h"
#include "common/role/admin/cluster_places.h"
#include "common/role/admin/cluster_progress.h"
#include "common/role/admin/cluster_rebalance.h"
#include "common/role/core/doors.h"
#include "common/role/core/memory.h"
#include "common/role/host/limits.h"
#include "common/role/host/lock.h"
#include "version.h"

#define PROCESS_MAGIC  MAGIC('p', 'r', 'o', 'c')
#define TICK_MS        500
#define SLICE_US       1000 /* a long job of a tenant runs, while another's waits */
#define POOL_QUEUE_MAX 65536
#define HEAD_BYTES_MAX (64 * KIB)

static const uint8_t process_next[] = {
    [PROCESS_STARTING] = 1 << PROCESS_RUNNING,
    [PROCESS_RUNNING] = 1 << PROCESS_DRAINING,
    [PROCESS_DRAINING] = 1 << PROCESS_STOPPED,
    [PROCESS_STOPPED] = 0,
};

static void process_goto(struct process *p, enum process_state to)
{
    CHECK(process_next[p->core.state] & (1 << to));
    p->core.state = to;
}

int role_memory_check(const struct role_ctx *ctx, struct err *e)
{
    if (!memory_refuses(ctx->memory))
        return 0;
    return err_set(e, ERR_BUSY,
                   "this server is close to its memory limit of %" PRIu64
                   " MiB (memory.limit); try again, raise it, or ask less of it",
                   ctx->memory_limit / MIB);
}

/* ---- start -------------------------------------------------------------------------------- */

/* The keys of cluster.key_file, of which the first signs; returns their number. */
static size_t cluster_key_list(const struct process *p, struct str to[RPC_KEYS_MAX])
{
    const struct rpc_key *k;
    size_t n = 0;

    while (p->keys.keys && n < RPC_KEYS_MAX && (k = rpc_keys_at(p->keys.keys, n)))
        to[n++] = str_n(k->secret, sizeof(k->secret));
    return n;
}

/* Records of keys are signed under the cluster's key, so they follow when that changes. */
static void look_at_cluster_keys(struct process *p)
{
    struct str keys[RPC_KEYS_MAX] = { 0 };
    uint64_t serial = p->keys.keys ? rpc_keys_serial(p->keys.keys) : 0;
    size_t n;

    cluster_keys_tick(&p->keys, clock_mono_ns(p->core.ctx.env->clock) / 1000000);
    if (!p->keys.keys || rpc_keys_serial(p->keys.keys) == serial)
        return;
    n = cluster_key_list(p, keys);
    identity_keys(p->identity, keys, n);
}

/* Looks at the process and its roles, and says when readiness changes. */
static void on_tick(void *cookie)
{
    struct process *p = cookie;
    const char *role, *why;
    bool ready;

    CHECK(p->magic == PROCESS_MAGIC);
    usage_refresh(&p->usage);
    memory_gather(p->memory);
    look_at_cluster_keys(p);
    identity_tick(p->identity);
    svc_health_look(&p->health);
    notify_alive(&p->notify);
    ready = readiness_check(&p->core, &role, &why);
    if (p->core.state != PROCESS_RUNNING || ready == p->ready)
        return;
    p->ready = ready;
    notify_status(&p->notify, ready ? "ready" : why);
    if (ready)
        log_info(
            "ready",
            KV_U64("up_ms", (clock_mono_ns(p->core.ctx.env->clock) - p->start_mono_ns) / 1000000));
    else
        log_warn("not ready", KV_CSTR("role", role), KV_CSTR("why", why));
}

/* Those this process may use: a container of two processors is one on a machine of 64, too. */
static uint32_t cores(void)
{
    uint64_t quota = limits_cpu(""), n;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        n = (uint64_t)CPU_COUNT(&set);
    else /* more than a set of this size holds */
        n = (uint64_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
    if (quota)
        n = MIN(n, (quota + 999) / 1000);
    return (uint32_t)MIN(MAX(n, UINT64_C(1)), UINT64_C(256));
}

static void on_tls_files(void *cookie, const struct err *e)
{
    const struct common_conf *c = cookie;

    if (e)
        log_warn("the changed TLS files cannot be used; the old ones stay",
                 KV_CSTR("why", e->text));
    else
        log_info("TLS files read again", KV_CSTR("cert", c->tls_cert));
}

static bool keeps_shards(const struct process *p)
{
    for (size_t i = 0; i < p->core.parts_len; i++)
        if (p->core.parts[i].role->keeps_shards)
            return true;
    return false;
}

/* With mode require the rules of identities stand in the place of tokens; with observe beside
 * them. */
static bool admit(void *cookie, struct http_req *r, const struct http_door *door)
{
    struct process *p = cookie;

    CHECK(p->magic == PROCESS_MAGIC);
    if (!identity_admits(p->identity, r, door))
        return false;
    return identity_mode_of(p->identity) == IDENTITY_REQUIRE || access_admits(&p->access, r, door);
}

static void forget(void *cookie, struct http_req *r)
{
    const struct process *p = cookie;

    identity_forget(p->identity, r);
}

static int start_identity(struct process *p, struct err *e)
{
    const struct role_ctx *ctx = &p->core.ctx;
    const struct selfprof_conf *selfprof = conf_get(p->conf, &selfprof_options);
    struct str keys[RPC_KEYS_MAX] = { 0 };
    struct identity_opts o = {
        .conf = conf_get(p->conf, &identity_conf_table),
        .env = ctx->env,
        .loop = p->loop,
        .coord = ctx->coord,
        .prefix = ctx->coord ? str_c(ctx->cluster->etcd_prefix) : STR_NULL,
        .metrics = p->metrics,
        .dir = ctx->data_dir,
        .pool = p->pool,
        .other_keys = keys + 1,
        .multi = ctx->tenancy->multi,
        .strict = ctx->tenancy->strict,
        .own_tenant = selfprof->tenant,
        .shows_token = access_shows_token,
        .refusing = access_hint,
        .token_cookie = &p->access,
    };
    size_t n = cluster_key_list(p, keys);

    o.cluster_key = keys[0];
    o.other_keys_len = n ? n - 1 : 0;
    return identity_start(&o, &p->identity, e);
}

static void routes_of_keys(struct process *p)
{
    const struct identity_conf *conf = conf_get(p->conf, &identity_conf_table);

    p->keys_api = (struct keys_routes){
        .env = p->core.ctx.env,
        .registry = identity_registry(p->identity),
        .store = identity_keystore(p->identity),
        .keys_per_tenant = conf->keys_per_tenant,
        .file = conf->file,
    };
    keys_routes(&p->keys_api, p->http);
}

static int start_http(struct process *p, const struct common_conf *c, struct err *e)
{
    uint64_t in_flight = c->in_flight_bytes ? c->in_flight_bytes
                                            : memory_share(p->core.ctx.memory_limit, MEMORY_HTTP);
    struct http_server_opts o = {
        .loop = p->loop,
        .pool = p->pool,
        .in_flight = &p->in_flight,
        .tenants = p->core.ctx.tenancy->multi,
        .metrics = p->metrics,
        .listen = c->listen,
        .connections_max = (uint32_t)c->connections_max,
        .head_bytes_max = HEAD_BYTES_MAX,
        .head_ms = (uint32_t)c->head_ms,
        .body_ms = (uint32_t)c->body_ms,
        .idle_ms = (uint32_t)c->idle_ms,
        .write_ms = (uint32_t)c->write_ms,
        .tls_cert = c->tls_cert,
        .tls_key = c->tls_key,
        .tls_client_ca = c->tls_client_ca,
        .tls_only = c->tls_only,
        .local = addr_is_loopback(str_c(c->listen)),
        .hosts = c->hosts,
        .origins = c->origins,
        .admit = admit,
        .forget = forget,
        .admit_cookie = p,
        .on_tls_files = on_tls_files,
        .tls_cookie = (void *)(uintptr_t)c,
    };
    uint64_t files = limits_files_raise(c->connections_max + LIMITS_FILES_BESIDE_HTTP);
    int code;

    o.doors = doors(&o.doors_len);
    if (files < c->connections_max + LIMITS_FILES_BESIDE_HTTP)
        log_warn("fewer files may be open than connections need: raise the hard limit (ulimit -Hn)",
                 KV_U64("limit", files), KV_U64("connections_max", c->connections_max),
                 KV_U64("beside", LIMITS_FILES_BESIDE_HTTP));
    budget_init(&p->in_flight, in_flight);
    memory_watch_budget(p->memory, MEMORY_HTTP, &p->in_flight);
    code = http_server_new(&o, &p->http, e);
    return code ? err_wrap(e, "http") : 0;
}

/* Where it is not possible (a file system without sockets) operators need a token; an error if they
 * named a path. */
static int start_socket(struct process *p, const struct common_conf *c, struct err *e)
{
    const char *name = c->admin_socket;
    char *dir = name[0] && name[0] != '/' ? realpath(p->core.ctx.data_dir, NULL) : NULL;
    struct buf path;
    int code;

    if (!name[0])
        return 0;
    buf_init(&path, PATH_MAX);
    if (dir)
        (void)buf_addf(&path, "%s/", dir);
    (void)buf_addf(&path, "%s%c", name, 0);
    free(dir);
    if (buf_ok(&path))
        p->socket = xstrdup(path.ptr);
    buf_deinit(&path);
    if (!p->socket)
        return err_set(e, ERR_CONFIG, "http.admin_socket: the path is too long");
    code = http_server_listen_local(p->http, p->socket, e);
    if (!code) {
        p->access.socket = p->socket;
    } else if (strcmp(name, ADMIN_SOCKET) == 0) {
        log_warn("no socket for operators of this machine: they need http.admin_token_file",
                 KV_ERR(e));
        code = 0;
    }
    return code;
}

/* Where callers and other roles come in, and what they must show. */
static int start_doors(struct process *p, const struct common_conf *http, struct err *e)
{
    int code = start_http(p, http, e);

    p->core.ctx.http = p->http;
    if (!code)
        code = start_socket(p, http, e);
    if (!code)
        code = cluster_keys_start(&p->keys, p->core.ctx.cluster, p->rpc, e);
    if (!code)
        code = start_identity(p, e);
    p->core.ctx.identity = p->identity;
    return code;
}

/* The world of the roles, in the order in which one needs the other. */
static int start_shared(struct process *p, struct err *e)
{
    const struct common_conf *http = conf_get(p->conf, &http_options);
    const struct data_conf *data = conf_get(p->conf, &data_options);
    const struct memory_conf *memory = conf_get(p->conf, &memory_options);
    const struct tenancy_conf *tenancy = conf_get(p->conf, &tenancy_options);
    const struct cluster_conf *cluster = conf_get(p->conf, &cluster_options);
    struct env *env = env_real();
    uint32_t threads = MAX(cores(), 2u);
    int code;

    p->start_mono_ns = clock_mono_ns(env->clock);
    code = access_init(&p->access, env->fs, http->admin_token_file, e);
    if (code)
        return code;
    p->access.metrics = http->metrics_token;
    if (!((const struct data_guard_conf *)conf_get(p->conf, &data_guard_options))->create &&
        lock_was_taken(data->dir, e))
        return e->code;
    code = lock_take(data->dir, p->program, &p->lock_fd, e);
    if (code)
        return code;
    p->loop = loop_new(env->clock);
    /* One tenant's long queries never have the last two threads: one is for pushes, one for the
     * queries of others. */
    p->pool = pool_new("pool", tenancy->multi ? threads + 1 : threads, POOL_QUEUE_MAX);
    if (tenancy->multi)
        pool_limit_tenant(p->pool, threads - 1);
    pool_slices(p->pool, threads, SLICE_US);
    p->metrics = metrics_new();
    p->rpc = rpc_net_new(env, p->metrics);
    code = cluster_source_init(&p->coordinate, cluster, env, p->loop, p->pool, p->metrics,
                               data->dir, keeps_shards(p), e);
    if (code)
        return code;
    cluster_source_rpc(&p->coordinate, p->rpc, p->loop, p->metrics);
    p->core.heard = p->coordinate.heard;
    p->core.ctx = (struct role_ctx){
        .env = env,
        .loop = p->loop,
        .pool = p->pool,
        .rpc = p->rpc,
        .view = p->coordinate.view,
        .coord = p->coordinate.coord,
        .node = p->coordinate.node,
        .node_id = p->coordinate.node_id,
        .metrics = p->metrics,
        .in_flight = &p->in_flight,
        .conf = p->conf,
        .common = http,
        .cluster = cluster,
        .tenancy = tenancy,
        .data = data,
        .data_dir = data->dir,
        .memory_limit = options_memory_limit(memory->limit),
        .all_in_one = p->core.parts_len > 1,
    };
    p->memory = p->core.ctx.memory = memory_new(
        &(struct memory_opts){ .limit = p->core.ctx.memory_limit, .metrics = p->metrics });
    usage_init(&p->usage, p->metrics, p->pool,
               &(struct usage_build){ .version = EMBERTREE_VERSION, .commit = EMBERTREE_COMMIT },
               p->core.ctx.memory_limit);
    metrics_on_render(p->metrics, usage_render, &p->usage);
    return start_doors(p, http, e);
}

int process_start(struct process *p, const char *program, const struct conf *conf,
                  const struct role *const *list, struct err *e)
{
    const struct shutdown_conf *shutdown = conf_get(conf, &shutdown_options);
    struct common_conf http = options_http(conf);
    int code;

    *p = (struct process){ .magic = PROCESS_MAGIC, .program = program, .conf = conf };
    p->lock_fd = -1;
    notify_init(&p->notify);
    p->deadline_ms = shutdown->deadline_ms;
    for (; list[p->core.parts_len]; p->core.parts_len++) {
        CHECK(p->core.parts_len < PROCESS_ROLES_MAX);
        p->core.parts[p->core.parts_len].role = list[p->core.parts_len];
    }
    code = options_check(&http, conf_get(conf, &cluster_options), p->core.parts_len > 1, e);
    if (!code)
        code = start_shared(p, e);
    if (code)
        return code;
    for (size_t i = 0; i < p->core.parts_len; i++) {
        code = p->core.parts[i].role->start(&p->core.ctx, &p->core.parts[i].self, e);
        if (code)
            return err_wrap(e, "%s", p->core.parts[i].role->name);
    }
    admin_routes(&p->core, &p->health);
    cluster_page_routes(&p->core);
    cluster_places_routes(&p->core);
    cluster_rebalance_routes(&p->core);
    cluster_progress_routes(&p->core);
    cluster_dump_routes(&p->core);
    debug_routes(&p->debug, &p->core);
    routes_of_keys(p);
    p->tick = loop_timer_new(p->loop, on_tick, p);
    return 0;
}

/* ---- stop --------------------------------------------------------------------------------- */

static void drain_next(void *cookie);

static void on_part_drained(void *cookie)
{
    struct process *p = cookie;

    CHECK(p->magic == PROCESS_MAGIC);
    log_debug("drained", KV_CSTR("role", p->core.parts[p->draining].role->name));
    drain_next(p);
}

static void drain_next(void *cookie)
{
    struct process *p = cookie;

    CHECK(p->core.state == PROCESS_DRAINING);
    if (p->draining == 0) {
        process_goto(p, PROCESS_STOPPED);
        loop_stop(p->loop);
        return;
    }
    p->draining--;
    p->core.parts[p->draining].role->drain(p->core.parts[p->draining].self, on_part_drained, p);
}

static void on_deadline(void *cookie)
{
    struct process *p = cookie;
    bool http = p->draining == p->core.parts_len;

    log_error("not drained in time, exiting; what was acked is safe",
              KV_CSTR("busy", http ? "http" : p->core.parts[p->draining].role->name),
              KV_U64("deadline_ms", p->deadline_ms));
    _exit(1);
}

static void drain_http(void *cookie)
{
    struct process *p = cookie;

    http_server_drain(p->http, drain_next, p);
}

static void on_signal(void *cookie, int number)
{
    struct process *p = cookie;

    CHECK(p->magic == PROCESS_MAGIC);
    if (p->core.state != PROCESS_RUNNING) {
        log_warn("second signal, exiting at once", KV_U64("signal", (uint64_t)number));
        _exit(1);
    }
    process_goto(p, PROCESS_DRAINING);
    notify_stopping(&p->notify);
    memory_stop(p->memory); /* what it asks and shrinks goes away now */
    log_info("draining", KV_U64("signal", (uint64_t)number), KV_U64("deadline_ms", p->deadline_ms));
    loop_timer_start(p->deadline, p->deadline_ms, 0);
    selfprof_stop(p->core.selfprof); /* it pushes to us: before the listener closes */
    p->core.selfprof = NULL;
    debug_stop(&p->debug);
    p->draining = p->core.parts_len;
    /* Its streams never end by themselves. Their last words are posted: they go out before HTTP/2
     * says that it leaves, which some clients take for the end of everything. */
    svc_health_stop(&p->health);
    loop_post(p->loop, drain_http, p);
}

static void process_free(struct process *p)
{
    signals_free(p->signals);
    loop_timer_free(p->tick);
    loop_timer_free(p->deadline);
    for (size_t i = p->core.parts_len; i-- > 0;)
        p->core.parts[i].role->free(p->core.parts[i].self);
    http_server_free(p->http);
    identity_free(p->identity);
    xfree(p->socket);
    cluster_source_deinit(&p->coordinate);
    rpc_net_free(p->rpc);
    cluster_keys_stop(&p->keys);
    pool_free(p->pool);
    metrics_free(p->metrics);
    memory_free(p->memory);
    loop_free(p->loop);
    lock_drop(p->lock_fd);
    notify_deinit(&p->notify);
}

/* With the port the system gave, where ":0" was asked for. */
static void own_url(const struct process *p, bool as_configured, struct buf *out)
{
    struct str listen = str_c(p->core.ctx.common->listen);
    ptrdiff_t colon = str_rfind(listen, ':');
    struct str host = colon < 0 ? listen : str_sub(listen, 0, (size_t)colon);

    bool tls = p->core.ctx.common->tls_only || p->core.ctx.common->tls_client_ca[0];
    (void)buf_add_str(out, tls ? STR("https://") : STR("http://"));
    (void)buf_add_str(out, as_configured ? host : STR("127.0.0.1"));
    (void)buf_addf(out, ":%u", (unsigned)http_server_port(p->http));
}

static void log_listening(const struct process *p)
{
    struct buf url;

    buf_init(&url, KIB);
    own_url(p, true, &url);
    log_info("listening", KV_STR("url", buf_str(&url)), KV_CSTR("version", EMBERTREE_BUILD),
             KV_CSTR("admin_socket", p->access.socket ? p->access.socket : ""),
             KV_CSTR("data", p->core.ctx.data_dir),
             KV_U64("memory_limit", p->core.ctx.memory_limit), KV_U64("pid", (uint64_t)getpid()));
    buf_deinit(&url);
}

static void on_selfprof_error(void *cookie, const struct err *e)
{
    (void)cookie;
    log_warn("cannot push the profile of this process", KV_ERR(e));
}

static bool has_role(const struct process *p, const char *name)
{
    for (size_t i = 0; i < p->core.parts_len; i++) {
        if (strcmp(p->core.parts[i].role->name, name) == 0)
            return true;
    }
    return false;
}

/* Off by one flag, and where there is nowhere to push to. Failing is no reason not to serve. */
static void start_selfprof(struct process *p)
{
    const struct selfprof_conf *conf = conf_get(p->conf, &selfprof_options);
    struct selfprof_opts o = {
        .env = p->core.ctx.env,
        .metrics = p->metrics,
        .hz = conf->hz,
        .url = conf->url,
        .tenant = conf->tenant,
        .token = conf->url[0] ? NULL : identity_own_token(p->identity),
        .service = "embertree",
        .role = p->core.parts_len > 1 ? NULL : p->core.parts[0].role->name,
        .per_thread = true,
        .on_error = on_selfprof_error,
    };
    struct buf own;
    struct err e;

    buf_init(&own, KIB);
    own_url(p, addr_is_loopback(str_c(p->core.ctx.common->listen)), &own);
    (void)buf_add_c(&own, '\0');
    if (!o.url[0] && has_role(p, "distributor"))
        o.url = own.ptr;
    if (conf->enabled && o.url[0] && selfprof_start(&o, &p->core.selfprof, &e))
        log_warn("not profiling itself", KV_ERR(&e));
    buf_deinit(&own);
}

int process_run(struct process *p)
{
    log_listening(p);
    p->deadline = loop_timer_new(p->loop, on_deadline, p);
    loop_timer_start(p->tick, 0, TICK_MS);
    process_goto(p, PROCESS_RUNNING);
    memory_start(p->memory);
    start_selfprof(p);
    p->signals = signals_new(p->loop, on_signal, p);
    notify_ready(&p->notify);
    loop_run(p->loop);
    CHECK(p->core.state == PROCESS_STOPPED);
    process_free(p);
    log_info("stopped", KV_U64("exit", (uint64_t)p->exit_code));
    return p->exit_code;
}
