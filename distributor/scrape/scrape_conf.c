/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_conf: the tree of the file to structs, every key known or refused with its line.
 *
 * A job without `profiles` scrapes what Go programs serve by default: the CPU, allocations, and
 * goroutines. Those of godeltaprof are off unless asked for, as they come as memory, mutex and
 * block, too. A profile that is not among the known ones is a custom one, and needs a path.
 */
#include "distributor/scrape/scrape_conf.h"

#include "common/base/mem.h"

#define INTERVAL_MS 15000
#define HOUR_MS     (UINT64_C(3600) * 1000)
#define TIMEOUT_MS  10000
#define BODY_MAX    (32 * MIB)

struct parse {
    const char *file;
    struct arena *a;
    struct err *e;
};

static const struct {
    const char *key, *name, *path;
    bool enabled, delta, subtract;
} known[] = {
    { "process_cpu", "process_cpu", "/debug/pprof/profile", true, true, false },
    { "memory", "memory", "/debug/pprof/allocs", true, false, true },
    { "heap", "memory", "/debug/pprof/heap", false, false, true },
    { "block", "block", "/debug/pprof/block", false, false, true },
    { "mutex", "mutex", "/debug/pprof/mutex", false, false, true },
    { "goroutine", "goroutine", "/debug/pprof/goroutine", true, false, false },
    { "fgprof", "fgprof", "/debug/fgprof", false, true, false },
    { "godeltaprof_memory", "memory", "/debug/pprof/delta_heap", false, false, false },
    { "godeltaprof_mutex", "mutex", "/debug/pprof/delta_mutex", false, false, false },
    { "godeltaprof_block", "block", "/debug/pprof/delta_block", false, false, false },
};

static int no_room(const struct parse *p)
{
    return err_set(p->e, ERR_LIMIT, "%s holds too much: more than %zu bytes of memory", p->file,
                   SCRAPE_CONF_BYTES);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static int take_c(const struct parse *p, const struct conf_node *map, const char *key,
                  const char **ret)
{
    struct str s = { NULL, 0 };

    if (conf_node_str(conf_node_get(map, key), p->file, &s, p->e))
        return p->e->code;
    if (s.ptr)
        *ret = s.ptr;
    return 0;
}

static int take_map(const struct parse *p, const struct conf_node *map, struct labels *ret)
{
    *ret = (struct labels){ NULL, 0 };
    if (!map || map->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(map, p->file, CONF_NODE_MAP, p->e))
        return p->e->code;
    ret->ptr = ARENA_ARRAY(p->a, struct label, map->len + 1);
    if (!ret->ptr)
        return no_room(p);
    for (const struct conf_node *n = map->first; n; n = n->next) {
        struct str value = STR("");
        if (conf_node_str(n, p->file, &value, p->e))
            return p->e->code;
        ret->ptr[ret->len++] = (struct label){ n->key, value };
    }
    return 0;
}

static int parse_tls(const struct parse *p, const struct conf_node *n, struct http_client_tls *ret)
{
    static const char *const keys[] = { "ca_file", "cert_file", "key_file", "insecure_skip_verify",
                                        NULL };

    if (!n)
        return 0;
    if (conf_node_keys(n, p->file, keys, p->e) || take_c(p, n, "ca_file", &ret->ca_file) ||
        take_c(p, n, "cert_file", &ret->cert_file) || take_c(p, n, "key_file", &ret->key_file) ||
        conf_node_bool(conf_node_get(n, "insecure_skip_verify"), p->file, &ret->insecure, p->e))
        return p->e->code;
    return 0;
}

static int parse_basic(const struct parse *p, const struct conf_node *n, struct scrape_client *c)
{
    static const char *const keys[] = { "username", "password", "password_file", NULL };

    if (!n)
        return 0;
    if (conf_node_keys(n, p->file, keys, p->e) || take_c(p, n, "username", &c->user) ||
        take_c(p, n, "password", &c->password) || take_c(p, n, "password_file", &c->password_file))
        return p->e->code;
    if (!c->user[0])
        return conf_node_fail(n, p->file, p->e, "basic_auth needs a username");
    return 0;
}

static int parse_authorization(const struct parse *p, const struct conf_node *n,
                               struct scrape_client *c)
{
    static const char *const keys[] = { "type", "credentials", "credentials_file", NULL };
    struct str type = STR("Bearer");

    if (!n)
        return 0;
    if (conf_node_keys(n, p->file, keys, p->e) ||
        conf_node_str(conf_node_get(n, "type"), p->file, &type, p->e) ||
        take_c(p, n, "credentials", &c->bearer) ||
        take_c(p, n, "credentials_file", &c->bearer_file))
        return p->e->code;
    if (!str_eq_nocase(type, STR("bearer")))
        return conf_node_fail(n, p->file, p->e, "authorization: only type Bearer is known");
    return 0;
}

/* The keys of a job or a discovery that say how to talk to its server. */
static int parse_client(const struct parse *p, const struct conf_node *n, struct scrape_client *c)
{
    *c = (struct scrape_client){ "", "", "", "", "", { "", "", "", false } };
    if (parse_basic(p, conf_node_get(n, "basic_auth"), c) ||
        parse_authorization(p, conf_node_get(n, "authorization"), c) ||
        take_c(p, n, "bearer_token", &c->bearer) ||
        take_c(p, n, "bearer_token_file", &c->bearer_file) ||
        parse_tls(p, conf_node_get(n, "tls_config"), &c->tls))
        return p->e->code;
    if (c->user[0] && (c->bearer[0] || c->bearer_file[0]))
        return conf_node_fail(n, p->file, p->e, "basic_auth and a bearer token exclude each other");
    if ((c->bearer[0] && c->bearer_file[0]) || (c->password[0] && c->password_file[0]))
        return conf_node_fail(n, p->file, p->e, "a secret and a file with it: give one of them");
    return 0;
}

/* ---- targets --------------------------------------------------------------------------------- */

static int parse_group(const struct parse *p, const struct conf_node *n, struct scrape_group *ret)
{
    static const char *const keys[] = { "targets", "labels", NULL };
    struct str *addresses = NULL;
    size_t len = 0;

    if (conf_node_is(n, p->file, CONF_NODE_MAP, p->e) || conf_node_keys(n, p->file, keys, p->e) ||
        conf_node_strs(conf_node_get(n, "targets"), p->file, p->a, &addresses, &len, p->e) ||
        take_map(p, conf_node_get(n, "labels"), &ret->labels))
        return p->e->code;
    for (size_t i = 0; i < len; i++)
        if (!addresses[i].len || str_contains(addresses[i], STR("/")))
            return conf_node_fail(n, p->file, p->e, "\"%.*s\" is no host:port",
                                  (int)MIN(addresses[i].len, 100), addresses[i].ptr);
    if (labels_sort(&ret->labels, p->e))
        return err_wrap(p->e, "%s line %zu", p->file, n->line);
    ret->addresses = addresses;
    ret->len = len;
    return 0;
}

int scrape_groups_of(const struct conf_node *list, const char *file, struct arena *a,
                     struct scrape_groups *ret, struct err *e)
{
    const struct parse p = { file, a, e };

    *ret = (struct scrape_groups){ NULL, 0 };
    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(list, file, CONF_NODE_LIST, e))
        return e->code;
    ret->ptr = ARENA_ARRAY(a, struct scrape_group, list->len + 1);
    if (!ret->ptr)
        return no_room(&p);
    for (const struct conf_node *n = list->first; n; n = n->next)
        if (parse_group(&p, n, &ret->ptr[ret->len++]))
            return e->code;
    return 0;
}

int scrape_groups_parse(const char *file, struct str text, struct arena *a,
                        struct scrape_groups *ret, struct err *e)
{
    struct conf_node *root;

    if (conf_tree_parse(file, text, a, &root, e))
        return e->code;
    return scrape_groups_of(root, file, a, ret, e);
}

static int parse_files(const struct parse *p, const struct conf_node *list, struct scrape_job *j)
{
    static const char *const keys[] = { "files", "refresh_interval", NULL };
    struct str *all = ARENA_ARRAY(p->a, struct str, SCRAPE_FILES_MAX);
    uint64_t unused = 0;

    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (!all)
        return no_room(p);
    if (conf_node_is(list, p->file, CONF_NODE_LIST, p->e))
        return p->e->code;
    for (const struct conf_node *n = list->first; n; n = n->next) {
        struct str *files = NULL;
        size_t len = 0;
        if (conf_node_is(n, p->file, CONF_NODE_MAP, p->e) ||
            conf_node_keys(n, p->file, keys, p->e) ||
            conf_node_ms(conf_node_get(n, "refresh_interval"), p->file, 0, UINT64_MAX, &unused,
                         p->e) ||
            conf_node_strs(conf_node_get(n, "files"), p->file, p->a, &files, &len, p->e))
            return p->e->code;
        if (len == 0 || j->files_len + len > SCRAPE_FILES_MAX)
            return conf_node_fail(n, p->file, p->e, "want 1 to %d files", SCRAPE_FILES_MAX);
        memcpy(all + j->files_len, files, len * sizeof(*files));
        j->files_len += len;
    }
    j->files = all;
    return 0;
}

static int parse_selectors(const struct parse *p, const struct conf_node *list,
                           struct scrape_k8s_conf *k)
{
    static const char *const keys[] = { "role", "label", "field", NULL };
    const char *role = k->pods ? "pod" : "endpointslice";

    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(list, p->file, CONF_NODE_LIST, p->e))
        return p->e->code;
    for (const struct conf_node *n = list->first; n; n = n->next) {
        struct str of = str_c(role);
        if (conf_node_is(n, p->file, CONF_NODE_MAP, p->e) ||
            conf_node_keys(n, p->file, keys, p->e) ||
            conf_node_choice(conf_node_get(n, "role"), p->file, role, &of, p->e) ||
            conf_node_str(conf_node_get(n, "label"), p->file, &k->label, p->e) ||
            conf_node_str(conf_node_get(n, "field"), p->file, &k->field, p->e))
            return p->e->code;
    }
    return 0;
}

static int parse_k8s(const struct parse *p, const struct conf_node *n, struct scrape_k8s_conf *k)
{
    static const char *const keys[] = {
        "role",          "api_server",   "namespaces",        "selectors",  "basic_auth",
        "authorization", "bearer_token", "bearer_token_file", "tls_config", NULL
    };
    static const char *const in_namespaces[] = { "names", NULL };
    const struct conf_node *names = conf_node_get(n, "namespaces");
    struct str role = STR(""), *list = NULL;

    k->api_server = "";
    if (conf_node_is(n, p->file, CONF_NODE_MAP, p->e) || conf_node_keys(n, p->file, keys, p->e) ||
        conf_node_choice(conf_node_get(n, "role"), p->file, "endpointslice|pod", &role, p->e) ||
        take_c(p, n, "api_server", &k->api_server) || parse_client(p, n, &k->client))
        return p->e->code;
    k->pods = str_eqc(role, "pod");
    if (!role.len)
        return conf_node_fail(n, p->file, p->e, "a role is missing: endpointslice or pod");
    if (k->api_server[0] && http_client_url_check(k->api_server, p->e))
        return err_wrap(p->e, "%s line %zu: api_server", p->file, n->line);
    if ((names && conf_node_keys(names, p->file, in_namespaces, p->e)) ||
        conf_node_strs(conf_node_get(names, "names"), p->file, p->a, &list, &k->namespaces_len,
                       p->e))
        return p->e->code;
    k->namespaces = list;
    return parse_selectors(p, conf_node_get(n, "selectors"), k);
}

static int parse_k8s_list(const struct parse *p, const struct conf_node *list, struct scrape_job *j)
{
    struct scrape_k8s_conf *all;

    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(list, p->file, CONF_NODE_LIST, p->e))
        return p->e->code;
    all = ARENA_ARRAY(p->a, struct scrape_k8s_conf, list->len + 1);
    if (!all)
        return no_room(p);
    for (const struct conf_node *n = list->first; n; n = n->next)
        if (parse_k8s(p, n, &all[j->k8s_len++]))
            return p->e->code;
    j->k8s = all;
    return 0;
}

/* ---- profiles -------------------------------------------------------------------------------- */

static int parse_profile(const struct parse *p, const struct conf_node *n, struct scrape_job *j)
{
    static const char *const keys[] = { "enabled", "path", "delta", "subtract", NULL };
    struct scrape_profile *to = NULL;

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eqc(n->key, known[i].key))
            to = &j->profiles[i];
    if (!to && j->profiles_len >= SCRAPE_PROFILES_MAX)
        return conf_node_fail(n, p->file, p->e, "more than %d profiles", SCRAPE_PROFILES_MAX);
    if (!to) {
        to = &j->profiles[j->profiles_len++];
        *to = (struct scrape_profile){ .name = n->key };
        if (!label_name_plain(n->key))
            return conf_node_fail(n, p->file, p->e, "a profile's name has letters, digits and _");
    }
    to->enabled = true;
    if (n->kind == CONF_NODE_SCALAR) /* name: path */
        return conf_node_str(n, p->file, &to->path, p->e);
    if (n->kind != CONF_NODE_NULL && conf_node_is(n, p->file, CONF_NODE_MAP, p->e))
        return p->e->code;
    if (conf_node_keys(n, p->file, keys, p->e) ||
        conf_node_bool(conf_node_get(n, "enabled"), p->file, &to->enabled, p->e) ||
        conf_node_str(conf_node_get(n, "path"), p->file, &to->path, p->e) ||
        conf_node_bool(conf_node_get(n, "delta"), p->file, &to->delta, p->e))
        return p->e->code;
    if (to->delta)
        to->subtract = false; /* the server does it */
    return conf_node_bool(conf_node_get(n, "subtract"), p->file, &to->subtract, p->e);
}

/* What is on unless said otherwise gives way to what was asked for and is stored under the same
 * name: with both, everything would count twice. */
static void yield_defaults(const struct conf_node *map, struct scrape_job *j)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        for (size_t k = 0; known[i].enabled && k < j->profiles_len; k++)
            if (k != i && j->profiles[k].enabled &&
                str_eq(j->profiles[k].name, j->profiles[i].name) &&
                !conf_node_get(map, known[i].key))
                j->profiles[i].enabled = false;
}

static int parse_profiles(const struct parse *p, const struct conf_node *map, struct scrape_job *j)
{
    bool given = map && map->kind != CONF_NODE_NULL;

    static_assert(ARRAY_LEN(known) < SCRAPE_PROFILES_MAX, "room for custom ones");
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        j->profiles[j->profiles_len++] = (struct scrape_profile){ .name = str_c(known[i].name),
                                                                  .path = str_c(known[i].path),
                                                                  .enabled = known[i].enabled,
                                                                  .delta = known[i].delta,
                                                                  .subtract = known[i].subtract };
    if (!given)
        return 0;
    if (conf_node_is(map, p->file, CONF_NODE_MAP, p->e))
        return p->e->code;
    for (const struct conf_node *n = map->first; n; n = n->next)
        if (parse_profile(p, n, j))
            return p->e->code;
    yield_defaults(map, j);
    for (size_t i = 0; i < j->profiles_len; i++) {
        const struct scrape_profile *at = &j->profiles[i];
        if (at->enabled && !str_starts(at->path, STR("/")))
            return conf_node_fail(map, p->file, p->e,
                                  "profile %.*s: want a path that begins with /",
                                  STR_ARG(at->name));
    }
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int parse_params(const struct parse *p, const struct conf_node *map, struct scrape_job *j)
{
    size_t n = 0;

    if (!map || map->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(map, p->file, CONF_NODE_MAP, p->e))
        return p->e->code;
    for (const struct conf_node *c = map->first; c; c = c->next)
        n += MAX(c->len, 1);
    j->params.ptr = ARENA_ARRAY(p->a, struct label, n + 1);
    if (!j->params.ptr)
        return no_room(p);
    for (const struct conf_node *c = map->first; c; c = c->next) {
        struct str *values = NULL;
        size_t len = 0;
        if (conf_node_strs(c, p->file, p->a, &values, &len, p->e))
            return p->e->code;
        for (size_t i = 0; i < len; i++)
            j->params.ptr[j->params.len++] = (struct label){ c->key, values[i] };
    }
    return 0;
}

static int parse_times(const struct parse *p, const struct conf_node *n, struct scrape_job *j)
{
    uint64_t body = BODY_MAX;

    j->interval_ms = INTERVAL_MS;
    j->timeout_ms = TIMEOUT_MS;
    if (conf_node_ms(conf_node_get(n, "scrape_interval"), p->file, 1000, 24 * HOUR_MS,
                     &j->interval_ms, p->e) ||
        conf_node_ms(conf_node_get(n, "scrape_timeout"), p->file, 100, HOUR_MS, &j->timeout_ms,
                     p->e) ||
        conf_node_bytes(conf_node_get(n, "body_size_limit"), p->file, KIB, GIB, &body, p->e))
        return p->e->code;
    j->body_max = (size_t)body;
    return 0;
}

static int parse_job(const struct parse *p, const struct conf_node *n, struct scrape_job *j)
{
    static const char *const keys[] = { "job_name",
                                        "tenant",
                                        "scrape_interval",
                                        "scrape_timeout",
                                        "scheme",
                                        "path_prefix",
                                        "params",
                                        "profiles",
                                        "basic_auth",
                                        "authorization",
                                        "bearer_token",
                                        "bearer_token_file",
                                        "tls_config",
                                        "body_size_limit",
                                        "static_configs",
                                        "file_sd_configs",
                                        "relabel_configs",
                                        "kubernetes_sd_configs",
                                        NULL };
    struct str scheme = STR("http");

    j->tenant = STR("anonymous");
    j->path_prefix = STR("");
    if (conf_node_is(n, p->file, CONF_NODE_MAP, p->e) || conf_node_keys(n, p->file, keys, p->e) ||
        conf_node_str(conf_node_get(n, "job_name"), p->file, &j->name, p->e) ||
        conf_node_str(conf_node_get(n, "tenant"), p->file, &j->tenant, p->e) ||
        conf_node_str(conf_node_get(n, "path_prefix"), p->file, &j->path_prefix, p->e) ||
        conf_node_choice(conf_node_get(n, "scheme"), p->file, "http|https", &scheme, p->e))
        return p->e->code;
    if (!j->name.len)
        return conf_node_fail(n, p->file, p->e, "a job needs a job_name");
    j->https = str_eqc(scheme, "https");
    if (parse_times(p, n, j) || parse_client(p, n, &j->client) ||
        parse_params(p, conf_node_get(n, "params"), j) ||
        parse_profiles(p, conf_node_get(n, "profiles"), j) ||
        scrape_groups_of(conf_node_get(n, "static_configs"), p->file, p->a, &j->statics, p->e) ||
        parse_files(p, conf_node_get(n, "file_sd_configs"), j) ||
        parse_k8s_list(p, conf_node_get(n, "kubernetes_sd_configs"), j) ||
        relabel_conf(conf_node_get(n, "relabel_configs"), p->file, &j->relabel, p->e))
        return p->e->code;
    return 0;
}

static int parse_jobs(const struct parse *p, const struct conf_node *root, struct scrape_conf *c)
{
    static const char *const keys[] = { "scrape_configs", NULL };
    const struct conf_node *list = conf_node_get(root, "scrape_configs");

    if (conf_node_keys(root, p->file, keys, p->e))
        return p->e->code;
    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(list, p->file, CONF_NODE_LIST, p->e))
        return p->e->code;
    if (list->len > SCRAPE_JOBS_MAX)
        return conf_node_fail(list, p->file, p->e, "more than %d jobs", SCRAPE_JOBS_MAX);
    c->jobs = ARENA_ARRAY(p->a, struct scrape_job, list->len + 1);
    if (!c->jobs)
        return no_room(p);
    for (const struct conf_node *n = list->first; n; n = n->next) {
        struct scrape_job *j = &c->jobs[c->len++];
        if (parse_job(p, n, j))
            return p->e->code;
        for (size_t i = 0; i + 1 < c->len; i++)
            if (str_eq(c->jobs[i].name, j->name))
                return conf_node_fail(n, p->file, p->e, "job \"%.*s\" is there already",
                                      (int)MIN(j->name.len, 100), j->name.ptr);
    }
    return 0;
}

int scrape_conf_parse(const char *file, struct str text, struct scrape_conf **ret, struct err *e)
{
    struct scrape_conf *c = XNEW(struct scrape_conf);
    struct conf_node *root;

    c->arena = arena_new(SCRAPE_CONF_BYTES);
    const struct parse p = { file, c->arena, e };
    if (conf_tree_parse(file, text, c->arena, &root, e) || parse_jobs(&p, root, c)) {
        scrape_conf_free(c);
        return e->code;
    }
    *ret = c;
    return 0;
}

void scrape_conf_free(struct scrape_conf *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->len; i++)
        relabel_free(c->jobs[i].relabel);
    arena_free(c->arena);
    xfree(c);
}
