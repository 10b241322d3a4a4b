/* SPDX-License-Identifier: Apache-2.0
 *
 * map_text: the map as JSON, and from JSON or YAML.
 *
 * One parser for both, that of YAML files: JSON is YAML, and the document in the coordination
 * service and the one in a static cluster's file are the same.
 */
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/cluster/map/map.h"
#include "common/conf/conf_tree.h"

#define ARENA_MAX (128 * MIB)

struct parse {
    const char *file;
    bool strict;
    struct arena *arena;
};

static const char *const state_names[] = {
    [MAP_ACTIVE] = "active",
    [MAP_DRAINING] = "draining",
    [MAP_LEFT] = "left",
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Makes an array for the entries of a list: `size` bytes for each, all zero; NULL if there is no
 * list. */
static int begin_list(const struct parse *p, const struct conf_node *list, size_t size, size_t most,
                      void **ret, struct err *e)
{
    int code;

    *ret = NULL;
    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    code = conf_node_is(list, p->file, CONF_NODE_LIST, e);
    if (code)
        return code;
    if (list->len > most)
        return conf_node_fail(list, p->file, e, "%zu entries, at most %zu", list->len, most);
    *ret = arena_calloc(p->arena, MAX(list->len, 1), size);
    if (!*ret)
        return err_set(e, ERR_LIMIT, "%s takes too much memory", p->file);
    return 0;
}

static int keys(const struct parse *p, const struct conf_node *n, const char *const *names,
                struct err *e)
{
    if (p->strict)
        return conf_node_keys(n, p->file, names, e);
    return conf_node_is(n, p->file, CONF_NODE_MAP, e);
}

static int text(const struct parse *p, const struct conf_node *map, const char *key, char *to,
                size_t size, struct err *e)
{
    const struct conf_node *n = conf_node_get(map, key);
    struct str s = STR_NULL;
    int code = conf_node_str(n, p->file, &s, e);

    if (code)
        return code;
    if (s.len >= size)
        return conf_node_fail(n, p->file, e, "%s has %zu bytes, at most %zu", key, s.len, size - 1);
    if (s.len)
        memcpy(to, s.ptr, s.len);
    to[s.len] = '\0';
    return 0;
}

static int u32(const struct parse *p, const struct conf_node *n, uint64_t most, uint32_t *ret,
               struct err *e)
{
    uint64_t v = *ret;
    int code = conf_node_u64(n, p->file, 0, most, &v, e);

    *ret = (uint32_t)v;
    return code;
}

static int parse_node(const struct parse *p, const struct conf_node *n, struct map_node *to,
                      struct err *e)
{
    static const char *const names[] = { "name", "addr", "zone", "state", NULL };
    struct str state = STR_NULL;
    int code = keys(p, n, names, e);

    if (!code)
        code = text(p, n, "name", to->name, sizeof(to->name), e);
    if (!code)
        code = text(p, n, "addr", to->addr, sizeof(to->addr), e);
    if (!code)
        code = text(p, n, "zone", to->zone, sizeof(to->zone), e);
    if (!code)
        code =
            conf_node_choice(conf_node_get(n, "state"), p->file, "active|draining|left", &state, e);
    for (size_t i = 0; i < ARRAY_LEN(state_names); i++)
        if (str_eqc(state, state_names[i]))
            to->state = (enum map_state)i;
    return code;
}

static int parse_step(const struct parse *p, const struct conf_node *n, uint64_t most,
                      struct map_step *to, struct err *e)
{
    static const char *const names[] = { "from", "n", "version", NULL };
    uint64_t from = 0;
    int code = keys(p, n, names, e);

    if (!code)
        code = conf_node_u64(conf_node_get(n, "from"), p->file, 0, INT64_MAX, &from, e);
    if (!code)
        code = conf_node_u64(conf_node_get(n, "version"), p->file, 0, INT64_MAX, &to->version, e);
    to->from_ms = (int64_t)from;
    return code ? code : u32(p, conf_node_get(n, "n"), most, &to->n, e);
}

/* Files that people write have none: `strict` refuses the key. */
static int parse_next(const struct parse *p, const struct conf_node *n, uint64_t most,
                      struct map_pending *to, struct err *e)
{
    uint64_t from = 0;
    int code;

    if (!n || n->kind == CONF_NODE_NULL)
        return 0;
    code = conf_node_is(n, p->file, CONF_NODE_MAP, e);
    if (!code)
        code = conf_node_u64(conf_node_get(n, "from"), p->file, 0, INT64_MAX, &from, e);
    if (!code)
        code = conf_node_u64(conf_node_get(n, "version"), p->file, 0, INT64_MAX, &to->version, e);
    if (!code)
        code = conf_node_str(conf_node_get(n, "by"), p->file, &to->by, e);
    to->from_ms = (int64_t)from;
    if (!code && !to->version)
        code = conf_node_fail(n, p->file, e, "version is 0 or missing");
    return code ? code : u32(p, conf_node_get(n, "n"), most, &to->n, e);
}

struct step_keys {
    const char *one;  /* of the short form: one number, valid from the beginning */
    const char *list; /* of the steps */
    uint64_t max;     /* the largest number of a step */
};

/* Reads a list of steps, or the short form. Both may be absent. */
static int parse_steps(const struct parse *p, const struct conf_node *n, const struct step_keys *k,
                       struct map_steps *to, struct err *e)
{
    const struct conf_node *steps = conf_node_get(n, k->list), *one = conf_node_get(n, k->one);
    int code;

    if (!steps || steps->kind == CONF_NODE_NULL) {
        to->len = one != NULL;
        return u32(p, one, k->max, &to->at[0].n, e);
    }
    if (one)
        return conf_node_fail(one, p->file, e, "%s and %s exclude each other", k->one, k->list);
    code = conf_node_is(steps, p->file, CONF_NODE_LIST, e);
    if (!code && steps->len > MAP_STEPS_MAX)
        code =
            conf_node_fail(steps, p->file, e, "%zu steps, at most %d", steps->len, MAP_STEPS_MAX);
    for (const struct conf_node *s = code ? NULL : steps->first; s && !code; s = s->next)
        code = parse_step(p, s, k->max, &to->at[to->len++], e);
    return code;
}

static int parse_tenant(const struct parse *p, const struct conf_node *n, struct map_tenant *to,
                        struct err *e)
{
    static const char *const names[] = { "name", "shards", "steps", NULL };
    int code = keys(p, n, names, e);

    if (!code)
        code = conf_node_str(conf_node_get(n, "name"), p->file, &to->name, e);
    if (!code)
        code = parse_next(p, conf_node_get(n, "next"), CLUSTER_SHARDS_MAX, &to->steps.next, e);
    return code ? code
                : parse_steps(p, n, &(struct step_keys){ "shards", "steps", CLUSTER_SHARDS_MAX },
                              &to->steps, e);
}

static int parse_service(const struct parse *p, const struct conf_node *n, struct map_service *to,
                         struct err *e)
{
    static const char *const names[] = { "tenant", "name", "spread", "steps", NULL };
    int code = keys(p, n, names, e);

    if (!code)
        code = conf_node_str(conf_node_get(n, "tenant"), p->file, &to->tenant, e);
    if (!code)
        code = conf_node_str(conf_node_get(n, "name"), p->file, &to->name, e);
    if (!code)
        code = parse_next(p, conf_node_get(n, "next"), MAP_SPREAD_MAX, &to->steps.next, e);
    return code ? code
                : parse_steps(p, n, &(struct step_keys){ "spread", "steps", MAP_SPREAD_MAX },
                              &to->steps, e);
}

static int parse_replicas(const struct parse *p, const struct conf_node *n, struct name_set *to,
                          struct err *e)
{
    struct str *all = NULL;
    size_t len = 0;
    int code = conf_node_strs(n, p->file, p->arena, &all, &len, e);

    if (code)
        return code;
    if (len == 0 || len > REPLICAS_MAX)
        return conf_node_fail(n, p->file, e, "%zu replicas; want 1 to %d", len, REPLICAS_MAX);
    for (size_t i = 0; i < len; i++) {
        char name[NODE_NAME_MAX + 1] = { 0 };

        if (!node_name_ok(all[i]))
            return conf_node_fail(n, p->file, e, "\"%.*s\" is no name of a node",
                                  STR_ARG(str_sub(all[i], 0, NODE_NAME_MAX)));
        memcpy(name, all[i].ptr, all[i].len);
        if (!name_set_add(to, name))
            return conf_node_fail(n, p->file, e, "%s twice", name);
    }
    return 0;
}

static int parse_lists(const struct parse *p, const struct conf_node *root, struct map *m,
                       struct err *e)
{
    const struct conf_node *nodes = conf_node_get(root, "nodes");
    const struct conf_node *tenants = conf_node_get(root, "tenants");
    const struct conf_node *services = conf_node_get(root, "services");
    struct map_node *to_node;
    struct map_tenant *to_tenant;
    struct map_service *to_service;
    const struct conf_node *n;
    void *at;
    int code = begin_list(p, nodes, sizeof(*to_node), MAP_NODES_MAX, &at, e);

    m->nodes = to_node = at;
    m->nodes_len = at ? nodes->len : 0;
    for (n = code || !nodes ? NULL : nodes->first; n && !code; n = n->next)
        code = parse_node(p, n, to_node++, e);
    if (!code)
        code = begin_list(p, tenants, sizeof(*to_tenant), MAP_TENANTS_MAX, &at, e);
    if (code)
        return code;
    m->tenants = to_tenant = at;
    m->tenants_len = at ? tenants->len : 0;
    for (n = tenants ? tenants->first : NULL; n && !code; n = n->next)
        code = parse_tenant(p, n, to_tenant++, e);
    if (!code)
        code = begin_list(p, services, sizeof(*to_service), MAP_SERVICES_MAX, &at, e);
    if (code)
        return code;
    m->services = to_service = at;
    m->services_len = at ? services->len : 0;
    for (n = services ? services->first : NULL; n && !code; n = n->next)
        code = parse_service(p, n, to_service++, e);
    return code;
}

static int parse_root(const struct parse *p, const struct conf_node *root, const struct map **ret,
                      struct err *e)
{
    static const char *const names[] = { "version",      "shards",  "replicas", "nodes",
                                         "tenant_steps", "tenants", "services", "tenant_shards",
                                         "replicas_of",  "moves",   NULL };
    const struct conf_node *replicas = conf_node_get(root, "replicas_of");
    struct map m = { .shards = 1, .replicas = 1 };
    struct name_set *sets;
    void *at;
    int code = keys(p, root, names, e);

    if (!code)
        code = conf_node_u64(conf_node_get(root, "version"), p->file, 0, INT64_MAX, &m.version, e);
    if (!code)
        code = u32(p, conf_node_get(root, "shards"), CLUSTER_SHARDS_MAX, &m.shards, e);
    if (!code)
        code = u32(p, conf_node_get(root, "replicas"), RECORD_SET_MAX, &m.replicas, e);
    if (!code)
        code = u32(p, conf_node_get(root, "moves"), MAP_MOVES_MAX, &m.moves, e);
    if (!code)
        code = parse_steps(
            p, root, &(struct step_keys){ "tenant_shards", "tenant_steps", CLUSTER_SHARDS_MAX },
            &m.tenant_steps, e);
    if (!code)
        code = parse_next(p, conf_node_get(root, "tenant_next"), CLUSTER_SHARDS_MAX,
                          &m.tenant_steps.next, e);
    if (!code)
        code = parse_lists(p, root, &m, e);
    if (!code)
        code = begin_list(p, replicas, sizeof(*sets), CLUSTER_SHARDS_MAX, &at, e);
    if (code)
        return code;
    m.replicas_of = sets = at;
    if (sets && replicas->len != m.shards)
        return conf_node_fail(replicas, p->file, e, "replicas_of names %zu shards of %u",
                              replicas->len, m.shards);
    for (const struct conf_node *n = sets ? replicas->first : NULL; n && !code; n = n->next)
        code = parse_replicas(p, n, sets++, e);
    if (code)
        return code;
    code = map_new(&m, ret, e);
    return code ? err_wrap(e, "%s", p->file) : 0;
}

int map_parse(const char *file, struct str bytes, bool strict, const struct map **ret,
              struct err *e)
{
    struct parse p = { .file = file, .strict = strict };
    struct conf_node *root;
    int code;

    if (bytes.len > MAP_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s: %zu bytes, at most %zu", file, bytes.len,
                       (size_t)MAP_BYTES_MAX);
    p.arena = arena_new(ARENA_MAX);
    code = conf_tree_parse(file, bytes, p.arena, &root, e);
    if (!code)
        code = parse_root(&p, root, ret, e);
    arena_free(p.arena);
    return code;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_nodes(const struct map *m, struct json *j)
{
    json_key(j, "nodes");
    json_arr(j);
    for (size_t i = 0; i < m->nodes_len; i++) {
        json_obj(j);
        json_put_cstr(j, "name", m->nodes[i].name);
        json_put_cstr(j, "addr", m->nodes[i].addr);
        json_put_cstr(j, "zone", m->nodes[i].zone);
        json_put_cstr(j, "state", state_names[m->nodes[i].state]);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void write_steps(const char *key, const struct map_steps *s, struct json *j)
{
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; i < s->len; i++) {
        json_obj(j);
        json_put_u64(j, "from", (uint64_t)s->at[i].from_ms);
        json_put_u64(j, "n", s->at[i].n);
        if (s->at[i].version)
            json_put_u64(j, "version", s->at[i].version);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void write_next(const char *key, const struct map_pending *n, struct json *j)
{
    if (!n->version)
        return;
    json_key(j, key);
    json_obj(j);
    json_put_u64(j, "n", n->n);
    json_put_u64(j, "version", n->version);
    if (n->from_ms)
        json_put_u64(j, "from", (uint64_t)n->from_ms);
    if (n->by.len)
        json_put_str(j, "by", n->by);
    json_obj_end(j);
}

static void write_tenants(const struct map *m, struct json *j)
{
    json_key(j, "tenants");
    json_arr(j);
    for (size_t i = 0; i < m->tenants_len; i++) {
        json_obj(j);
        json_put_str(j, "name", m->tenants[i].name);
        write_steps("steps", &m->tenants[i].steps, j);
        write_next("next", &m->tenants[i].steps.next, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void write_services(const struct map *m, struct json *j)
{
    json_key(j, "services");
    json_arr(j);
    for (size_t i = 0; i < m->services_len; i++) {
        json_obj(j);
        json_put_str(j, "tenant", m->services[i].tenant);
        json_put_str(j, "name", m->services[i].name);
        write_steps("steps", &m->services[i].steps, j);
        write_next("next", &m->services[i].steps.next, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void write_replicas(const struct map *m, struct json *j)
{
    json_key(j, "replicas_of");
    json_arr(j);
    for (uint32_t i = 0; i < m->shards; i++) {
        json_arr(j);
        for (uint32_t k = 0; k < m->replicas_of[i].len; k++)
            json_cstr(j, m->replicas_of[i].names[k]);
        json_arr_end(j);
    }
    json_arr_end(j);
}

void map_write(const struct map *m, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "version", m->version);
    json_put_u64(&j, "shards", m->shards);
    json_put_u64(&j, "replicas", m->replicas);
    write_nodes(m, &j);
    if (m->moves)
        json_put_u64(&j, "moves", m->moves);
    if (m->tenant_steps.len)
        write_steps("tenant_steps", &m->tenant_steps, &j);
    write_next("tenant_next", &m->tenant_steps.next, &j);
    write_tenants(m, &j);
    write_services(m, &j);
    if (m->replicas_of)
        write_replicas(m, &j);
    json_obj_end(&j);
}
