/* SPDX-License-Identifier: Apache-2.0
 *
 * map: which shard a profile goes to.
 *
 * Three questions, each answered so that growing a number moves as little as may be:
 *
 *   which shards has the tenant?   all; or the first `shards` of an order of all shards that is the
 *                                  tenant's own (a shuffle seeded by its name): two tenants share
 *                                  few shards, so a tenant with too much load hurts few
 *   which of them has the service? of all: shard_of. Of a subset: a jump hash (Lamping and Veach
 *                                  2014) of the same number over the size
 *   which of them has the series?  a spread service has the first `spread` of an order of its own
 *                                  that begins with the answer above; a jump hash of the series
 *
 * An order does not depend on how much of it is used, so a larger number adds shards and takes none
 * away. Readers ask all that were ever in use: each size there was, with the largest spread, since
 * a process with an old map may have combined the two in any way.
 *
 * Two tables of names are made with the map; a map without tenants and services does no lookup.
 */
#include "common/cluster/map/map.h"

#include <stdatomic.h>
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/model/shard.h"

#define ARENA_MAX     (256 * MIB)
#define SUBSETS_MAX   ((size_t)4 * 1024 * 1024) /* shards of all tenants' subsets together */
#define SPREAD_SALT   UINT64_C(0x9e3779b97f4a7c15)
#define SHUFFLE_SALT  UINT64_C(0xd1b54a32d192ed03)
#define KEY_BYTES_MAX 512 /* of a tenant's or a service's name; longer ones are not looked up */

struct named { /* tenant */
    const struct map_tenant *tenant;
    const uint32_t *shards; /* its order, as far as it is ever asked */
};
struct subset {
    const struct map_steps *steps; /* NULL: all shards, always */
    const uint32_t *shards;
    uint32_t room[CLUSTER_SHARDS_MAX]; /* of a tenant that is not named */
};
struct map_impl {
    struct map map;
    atomic_uint refs;
    struct arena *arena;
    struct map_str *nodes;    /* name -> struct map_node */
    struct map_str *tenants;  /* name -> struct named */
    struct map_str *services; /* tenant NUL name -> struct map_service */
    uint64_t places_since;    /* map_places_since */
};

/* ---- hashing --------------------------------------------------------------------------------- */

static uint64_t seed_of(struct str tenant)
{
    return hash64(tenant.ptr, tenant.len, SHARD_SEED);
}

/* Lamping and Veach 2014: n + 1 buckets differ from n only by what moves into the new one. */
static uint32_t jump(uint64_t key, uint32_t n)
{
    int64_t b = -1, j = 0;

    while (j < (int64_t)n) {
        b = j;
        key = key * UINT64_C(2862933555777941757) + 1;
        j = (int64_t)((double)(b + 1) * ((double)(INT64_C(1) << 31) / (double)((key >> 33) + 1)));
    }
    return (uint32_t)b;
}

/* The first `n` of the tenant's order of all shards: a shuffle (Fisher and Yates) that stops there.
 * A place that was not swapped holds its own number, so no array of all is needed; few are taken,
 * and a search through the swapped places costs less than a table. */
static void shuffle(struct str tenant, uint32_t shards, uint32_t n, uint32_t *ret)
{
    uint64_t seed = seed_of(tenant) ^ SHUFFLE_SALT;
    struct {
        uint32_t at, is;
    } *swapped = xmalloc(MAX(n, 1u) * sizeof(*swapped));
    uint32_t len = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i + (uint32_t)(hash_u64(seed + i) % (shards - i)), mine = i, its = k;
        uint32_t to = len;

        for (uint32_t j = 0; j < len; j++) {
            mine = swapped[j].at == i ? swapped[j].is : mine;
            its = swapped[j].at == k ? swapped[j].is : its;
            to = swapped[j].at == k ? j : to;
        }
        ret[i] = its;
        swapped[to].at = k;
        swapped[to].is = mine;
        len = MAX(len, to + 1);
    }
    xfree(swapped);
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool announced(const struct map_steps *s)
{
    return s->next.from_ms != 0;
}

/* With what is announced, behind what holds without steps: map_pending.h announces none that does
 * not fit. */
static uint32_t sizes_of(const struct map_steps *s, uint32_t ret[MAP_STEPS_MAX])
{
    uint32_t len = 0;

    for (; len < s->len; len++)
        ret[len] = s->at[len].n;
    if (!len)
        ret[len++] = 0;
    if (announced(s) && len < MAP_STEPS_MAX)
        ret[len++] = s->next.n;
    return len;
}

static uint32_t most_of(const struct map_steps *s)
{
    uint32_t sizes[MAP_STEPS_MAX], len = sizes_of(s, sizes), most = 0;

    for (uint32_t i = 0; i < len; i++)
        most = MAX(most, sizes[i]);
    return most;
}

static uint64_t since(const struct map_steps *s)
{
    uint64_t version = announced(s) ? s->next.version : 0;

    for (uint32_t i = 0; i < s->len; i++)
        version = MAX(version, s->at[i].version);
    return version;
}

uint64_t map_places_since(const struct map *m)
{
    return m->impl->places_since;
}

static const struct named *named_of(const struct map *m, struct str tenant)
{
    return m->impl->tenants ? map_str_get(m->impl->tenants, tenant) : NULL;
}

/* NULL: all shards, always. */
static const struct subset *subset_of(const struct map *m, struct str tenant, struct subset *room)
{
    const struct named *named = named_of(m, tenant);

    room->steps = named ? &named->tenant->steps : &m->tenant_steps;
    room->shards = named ? named->shards : room->room;
    if (!room->steps->len && !announced(room->steps))
        return NULL;
    if (!named)
        shuffle(tenant, m->shards, most_of(room->steps), room->room);
    return room;
}

static struct str service_key(struct str tenant, struct str service,
                              char buf[2 * KEY_BYTES_MAX + 1])
{
    if (tenant.len > KEY_BYTES_MAX || service.len > KEY_BYTES_MAX)
        return STR_NULL;
    if (tenant.len)
        memcpy(buf, tenant.ptr, tenant.len);
    buf[tenant.len] = '\0';
    if (service.len)
        memcpy(buf + tenant.len + 1, service.ptr, service.len);
    return str_n(buf, tenant.len + 1 + service.len);
}

static const struct map_service *service_of(const struct map *m, struct str tenant,
                                            struct str service)
{
    char buf[2 * KEY_BYTES_MAX + 1];
    struct str key;

    if (!m->impl->services)
        return NULL;
    key = service_key(tenant, service, buf);
    return key.ptr ? map_str_get(m->impl->services, key) : NULL;
}

static uint32_t nth_shard(const struct subset *s, uint32_t i)
{
    return s ? s->shards[i] : i;
}

static uint64_t service_hash(struct str tenant, struct str service)
{
    return hash64(service.ptr, service.len, seed_of(tenant));
}

/* Finds the first `n` places of the service with hash `h` among `size` shards (0: all), each
 * once. */
static uint32_t order(const struct map *m, const struct subset *s, uint32_t size, uint64_t h,
                      uint32_t n, uint32_t ret[MAP_SPREAD_MAX])
{
    uint32_t of = size ? size : m->shards, len = 0;

    n = MIN(n, MIN(of, (uint32_t)MAP_SPREAD_MAX));
    for (uint64_t k = 0; len < n; k++) {
        uint64_t hk = k ? hash_u64(h + k * SPREAD_SALT) : h;
        uint32_t shard = size ? nth_shard(s, jump(hk, size)) : (uint32_t)(hk % of);
        bool seen = false;

        for (uint32_t i = 0; i < len; i++)
            seen = seen || ret[i] == shard;
        if (!seen)
            ret[len++] = shard;
    }
    return len;
}

uint32_t map_step_at(const struct map_steps *s, int64_t when_ms, uint32_t none)
{
    uint32_t n = s->len ? s->at[0].n : none;

    for (uint32_t i = 1; i < s->len && s->at[i].from_ms <= when_ms; i++)
        n = s->at[i].n;
    return n;
}

uint32_t map_shard(const struct map *m, struct str tenant, struct str service, uint64_t series_hash,
                   int64_t when_ms)
{
    struct subset room;
    const struct subset *s = subset_of(m, tenant, &room);
    const struct map_service *v = service_of(m, tenant, service);
    uint32_t places[MAP_SPREAD_MAX], n;
    uint32_t size = s ? map_step_at(s->steps, when_ms, 0) : 0;
    uint32_t spread = v ? map_step_at(&v->steps, when_ms, 1) : 1;

    if (!size && spread == 1)
        return shard_of(tenant, service, m->shards);
    n = order(m, s, size, service_hash(tenant, service), spread, places);
    return places[n > 1 ? jump(hash_u64(series_hash), n) : 0];
}

bool map_has_steps(const struct map *m)
{
    return m->tenants_len || m->services_len || m->tenant_steps.len || m->tenant_steps.next.version;
}

bool map_is_placed(const struct map *m, struct str tenant, struct str service)
{
    return map_tenant_steps(m, tenant)->len || service_of(m, tenant, service);
}

/* Adds those of `some` that `to` lacks. */
static uint32_t unite(uint32_t *to, uint32_t n, const uint32_t *some, uint32_t len)
{
    for (uint32_t k = 0; k < len; k++) {
        bool seen = false;
        for (uint32_t j = 0; j < n; j++)
            seen = seen || to[j] == some[k];
        if (!seen)
            to[n++] = some[k];
    }
    return n;
}

size_t map_places(const struct map *m, struct str tenant, struct str service, uint32_t *ret,
                  size_t max)
{
    struct subset room;
    const struct subset *s = subset_of(m, tenant, &room);
    const struct map_service *v = service_of(m, tenant, service);
    uint32_t found[MAP_PLACES_MAX], sizes[MAP_STEPS_MAX] = { 0 }, n = 0;
    uint32_t sizes_len = s ? sizes_of(s->steps, sizes) : 1;
    uint32_t spread = v ? MAX(most_of(&v->steps), 1u) : 1;
    uint64_t h = service_hash(tenant, service);

    for (uint32_t i = 0; i < sizes_len; i++) {
        uint32_t some[MAP_SPREAD_MAX];
        uint32_t len = order(m, s, sizes[i], h, spread, some);

        n = unite(found, n, some, len);
    }
    for (size_t i = 0; i < MIN(n, max); i++)
        ret[i] = found[i];
    return n;
}

size_t map_tenant_places(const struct map *m, struct str tenant, uint32_t *ret, size_t max)
{
    struct subset room;
    const struct subset *s = subset_of(m, tenant, &room);
    uint32_t most = 0, sizes[MAP_STEPS_MAX], len = s ? sizes_of(s->steps, sizes) : 0;

    for (uint32_t i = 0; i < len; i++)
        if (sizes[i] == 0)
            return 0;
    most = s ? most_of(s->steps) : 0;
    for (size_t i = 0; i < MIN(most, max); i++)
        ret[i] = s->shards[i];
    return most;
}

/* An announced step becomes valid, if it does, in a map that is later than ours: so a process that
 * knows no later map may be wrong. */
static bool outdates(const struct map *m, const struct map_steps *s, uint64_t version,
                     int64_t when_ms)
{
    for (uint32_t i = 1; i < s->len; i++)
        if (s->at[i].version > version && s->at[i].from_ms <= when_ms)
            return true;
    return s->next.from_ms && s->next.from_ms <= when_ms && version <= m->version;
}

bool map_outdates(const struct map *m, struct str tenant, struct str service, uint64_t version,
                  int64_t when_ms)
{
    const struct map_service *v;

    if (version > m->version || !map_has_steps(m))
        return false;
    v = service_of(m, tenant, service);
    return outdates(m, map_tenant_steps(m, tenant), version, when_ms) ||
           (v && outdates(m, &v->steps, version, when_ms));
}

const struct map_tenant *map_tenant(const struct map *m, struct str tenant)
{
    const struct named *n = named_of(m, tenant);

    return n ? n->tenant : NULL;
}

const struct map_steps *map_tenant_steps(const struct map *m, struct str tenant)
{
    const struct named *n = named_of(m, tenant);

    return n ? &n->tenant->steps : &m->tenant_steps;
}

const struct map_service *map_service(const struct map *m, struct str tenant, struct str service)
{
    return service_of(m, tenant, service);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void impl_free(struct map_impl *p)
{
    map_str_free(p->nodes);
    map_str_free(p->tenants);
    map_str_free(p->services);
    arena_free(p->arena);
    xfree(p);
}

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "the map takes more than %zu MiB", (size_t)ARENA_MAX / MIB);
}

static int bounds(const struct map *m, struct err *e)
{
    if (m->shards < 1 || m->shards > CLUSTER_SHARDS_MAX)
        return err_set(e, ERR_INPUT, "shards is %u; want 1 to %d", m->shards, CLUSTER_SHARDS_MAX);
    if (m->replicas < 1 || m->replicas > REPLICAS_MAX)
        return err_set(e, ERR_INPUT, "replicas is %u; want 1 to %d", m->replicas, REPLICAS_MAX);
    if (m->nodes_len > MAP_NODES_MAX || m->tenants_len > MAP_TENANTS_MAX ||
        m->services_len > MAP_SERVICES_MAX)
        return err_set(e, ERR_LIMIT, "%zu nodes, %zu tenants, %zu services; at most %d, %d and %d",
                       m->nodes_len, m->tenants_len, m->services_len, MAP_NODES_MAX,
                       MAP_TENANTS_MAX, MAP_SERVICES_MAX);
    return 0;
}

static int copy_nodes(struct map_impl *p, const struct map *from, struct err *e)
{
    struct map_node *nodes = ARENA_ARRAY(p->arena, struct map_node, MAX(from->nodes_len, 1));

    if (!nodes)
        return no_room(e);
    p->nodes = map_str_new();
    for (size_t i = 0; i < from->nodes_len; i++) {
        nodes[i] = from->nodes[i];
        if (!node_name_ok(str_c(nodes[i].name)))
            return err_set(e, ERR_INPUT, "\"%s\" is no name of a node", nodes[i].name);
        if (map_str_put(p->nodes, str_c(nodes[i].name), &nodes[i]))
            return err_set(e, ERR_INPUT, "two nodes are called %s", nodes[i].name);
    }
    p->map.nodes = nodes;
    return 0;
}

static int check_steps(const struct map_steps *s, struct str name, struct err *e)
{
    if (s->len > MAP_STEPS_MAX)
        return err_set(e, ERR_LIMIT, "%.*s: %u steps, at most %d", STR_ARG(name), s->len,
                       MAP_STEPS_MAX);
    for (uint32_t i = 1; i < s->len; i++)
        if (s->at[i].from_ms <= s->at[i - 1].from_ms)
            return err_set(e, ERR_INPUT, "%.*s: a step from %" PRId64 " behind one from %" PRId64,
                           STR_ARG(name), s->at[i].from_ms, s->at[i - 1].from_ms);
    if (s->next.from_ms && s->len && s->next.from_ms <= s->at[s->len - 1].from_ms)
        return err_set(e, ERR_INPUT,
                       "%.*s: a step from %" PRId64 " announced behind one from %" PRId64,
                       STR_ARG(name), s->next.from_ms, s->at[s->len - 1].from_ms);
    return 0;
}

/* Sizes of 0 stand for all shards and need no order. */
static int tenant_sizes(const struct map *m, const struct map_steps *s, struct str name,
                        uint32_t *ret_most, struct err *e)
{
    int code = check_steps(s, name, e);

    if (code)
        return err_wrap(e, "tenant");
    *ret_most = MAX(most_of(s), s->next.n);
    if (*ret_most > m->shards)
        return err_set(e, ERR_INPUT, "tenant %.*s has %u shards, the cluster %u", STR_ARG(name),
                       *ret_most, m->shards);
    return 0;
}

static int check_service(const struct map_service *s, struct err *e)
{
    int code = check_steps(&s->steps, s->name, e);

    if (code)
        return err_wrap(e, "service");
    for (uint32_t i = 0; i < s->steps.len; i++)
        if (s->steps.at[i].n < 1 || s->steps.at[i].n > MAP_SPREAD_MAX)
            return err_set(e, ERR_INPUT, "service %.*s is spread over %u shards; want 1 to %d",
                           STR_ARG(s->name), s->steps.at[i].n, MAP_SPREAD_MAX);
    if (s->steps.next.version && (s->steps.next.n < 1 || s->steps.next.n > MAP_SPREAD_MAX))
        return err_set(e, ERR_INPUT, "service %.*s is to be spread over %u shards; want 1 to %d",
                       STR_ARG(s->name), s->steps.next.n, MAP_SPREAD_MAX);
    return 0;
}

static int copy_by(struct map_impl *p, struct map_pending *next, struct err *e)
{
    if (next->by.len > MAP_BY_MAX)
        return err_set(e, ERR_INPUT,
                       "the name of the controller that announced the step has %zu bytes, at most "
                       "%d",
                       next->by.len, MAP_BY_MAX);
    next->by = next->by.len ? arena_strdup(p->arena, next->by) : STR_NULL;
    return 0;
}

static int copy_tenants(struct map_impl *p, const struct map *from, struct err *e)
{
    struct map_tenant *all = ARENA_ARRAY(p->arena, struct map_tenant, MAX(from->tenants_len, 1));
    struct named *subsets = ARENA_ARRAY(p->arena, struct named, MAX(from->tenants_len, 1));
    uint32_t most;
    size_t sum = 0;

    if (!all || !subsets)
        return no_room(e);
    if (tenant_sizes(from, &from->tenant_steps, STR("*"), &most, e) ||
        copy_by(p, &p->map.tenant_steps.next, e))
        return e->code;
    p->tenants = from->tenants_len ? map_str_new() : NULL;
    for (size_t i = 0; i < from->tenants_len; i++) {
        struct map_tenant *t = &all[i];
        uint32_t *order;

        *t = from->tenants[i];
        if (tenant_sizes(from, &t->steps, t->name, &most, e) || copy_by(p, &t->steps.next, e))
            return e->code;
        sum += most;
        if (sum > SUBSETS_MAX)
            return err_set(e, ERR_LIMIT, "tenants have more than %zu shards together", SUBSETS_MAX);
        order = ARENA_ARRAY(p->arena, uint32_t, MAX(most, 1u));
        t->name = arena_strdup(p->arena, t->name);
        if (!order || !t->name.ptr)
            return no_room(e);
        if (!t->name.len || t->name.len > KEY_BYTES_MAX)
            return err_set(e, ERR_INPUT, "a tenant's name has %zu bytes; want 1 to %d", t->name.len,
                           KEY_BYTES_MAX);
        shuffle(t->name, from->shards, most, order);
        subsets[i] = (struct named){ .tenant = t, .shards = order };
        if (map_str_put(p->tenants, t->name, &subsets[i]))
            return err_set(e, ERR_INPUT, "tenant %.*s is named twice", STR_ARG(t->name));
    }
    p->map.tenants = all;
    return 0;
}

static int copy_services(struct map_impl *p, const struct map *from, struct err *e)
{
    struct map_service *all = ARENA_ARRAY(p->arena, struct map_service, MAX(from->services_len, 1));

    if (!all)
        return no_room(e);
    p->services = from->services_len ? map_str_new() : NULL;
    for (size_t i = 0; i < from->services_len; i++) {
        struct map_service *s = &all[i];
        char buf[2 * KEY_BYTES_MAX + 1];
        struct str key;

        *s = from->services[i];
        if (check_service(s, e) || copy_by(p, &s->steps.next, e))
            return e->code;
        key = service_key(s->tenant, s->name, buf);
        if (!key.ptr)
            return err_set(e, ERR_INPUT, "a service's or tenant's name is over %d bytes",
                           KEY_BYTES_MAX);
        key = arena_strdup(p->arena, key);
        if (!key.ptr)
            return no_room(e);
        s->name = str_sub(key, s->tenant.len + 1, key.len);
        s->tenant = str_sub(key, 0, s->tenant.len);
        if (map_str_put(p->services, key, s))
            return err_set(e, ERR_INPUT, "service %.*s of %.*s is named twice", STR_ARG(s->name),
                           STR_ARG(s->tenant));
    }
    p->map.services = all;
    return 0;
}

static int copy_replicas(struct map_impl *p, const struct map *from, struct err *e)
{
    struct name_set *all;

    if (!from->replicas_of)
        return 0;
    all = ARENA_ARRAY(p->arena, struct name_set, from->shards);
    if (!all)
        return no_room(e);
    for (uint32_t i = 0; i < from->shards; i++) {
        all[i] = from->replicas_of[i];
        for (uint32_t k = 0; k < all[i].len; k++)
            if (!map_str_get(p->nodes, str_c(all[i].names[k])))
                return err_set(e, ERR_INPUT, "shard %u is on %s, which is not a node of the map", i,
                               all[i].names[k]);
    }
    p->map.replicas_of = all;
    return 0;
}

int map_new(const struct map *from, const struct map **ret, struct err *e)
{
    struct map_impl *p;
    int code = bounds(from, e);

    if (code)
        return code;
    p = XNEW(struct map_impl);
    atomic_init(&p->refs, 1);
    p->arena = arena_new(ARENA_MAX);
    p->map = *from;
    p->map.impl = p;
    p->map.replicas_of = NULL;
    code = copy_nodes(p, from, e);
    if (!code)
        code = copy_tenants(p, from, e);
    if (!code)
        code = copy_services(p, from, e);
    if (!code)
        code = copy_replicas(p, from, e);
    if (code) {
        impl_free(p);
        return code;
    }
    p->places_since = since(&p->map.tenant_steps);
    for (size_t i = 0; i < p->map.tenants_len; i++)
        p->places_since = MAX(p->places_since, since(&p->map.tenants[i].steps));
    for (size_t i = 0; i < p->map.services_len; i++)
        p->places_since = MAX(p->places_since, since(&p->map.services[i].steps));
    *ret = &p->map;
    return 0;
}

const struct map *map_ref(const struct map *m)
{
    CHECK(atomic_fetch_add_explicit(&m->impl->refs, 1, memory_order_relaxed) > 0);
    return m;
}

void map_unref(const struct map *m)
{
    if (m && atomic_fetch_sub_explicit(&m->impl->refs, 1, memory_order_acq_rel) == 1)
        impl_free(m->impl);
}

const struct map_node *map_node(const struct map *m, const char *name)
{
    return map_str_get(m->impl->nodes, str_c(name));
}
