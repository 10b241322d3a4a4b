/* SPDX-License-Identifier: Apache-2.0
 *
 * policy: the overrides file to policies. The names of the limits are those that Grafana's servers
 * use for the same things, so that a file can be taken along; 0 means no limit there, and here.
 *
 * Most tenants differ in numbers only. Their rules are one rule_set, that of the defaults: compiled
 * regexes are large. One with any list of its own gets its own set.
 */
#include "distributor/rules/policy.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/model/tenant_id.h"
#include "distributor/rules/policy_impl.h"

#define MEGA    1000000.0
#define MB_MOST 1e9
#define NONE    UINT64_MAX

struct overrides {
    uint64_t owners;
    struct arena *arena;
    struct map_str *tenants; /* of struct policy */
    struct policy defaults;
    bool limit_stored;
    VEC(struct rule_set *) sets;
};

struct reader {
    struct overrides *o;
    const char *file;
    const struct distributor_conf *conf;
    const struct conf_node *defaults;
    struct err *e;
};

#define ROW(k, t, f, lo, hi)                             \
    {                                                    \
        k, LIMIT_##t, offsetof(struct policy, f), lo, hi \
    }
const struct limit_row policy_limits[] = {
    ROW("ingestion_rate_mb", MB, rate_bytes, 0, NONE),
    ROW("ingestion_burst_size_mb", MB, burst_bytes, 1000, NONE),
    ROW("ingestion_body_limit_mb", MB, body_bytes, 0, NONE),
    ROW("max_profile_size_bytes", BYTES, limits.inflated_bytes, KIB, 4 * GIB),
    ROW("max_profile_stacktrace_samples", COUNT, limits.samples, 1, 100000000),
    ROW("max_profile_stacktrace_sample_labels", COUNT, limits.labels_per_sample, 1, 65536),
    ROW("max_profile_stacktrace_depth", COUNT, limits.frames_keep, 16, 65536),
    ROW("max_profile_symbol_value_length", BYTES, limits.symbol_keep_bytes, 64, MIB),
    ROW("max_label_name_length", BYTES, limits.label_name_bytes, 16, 64 * KIB),
    ROW("max_label_value_length", BYTES, limits.label_value_bytes, 16, 64 * KIB),
    ROW("max_label_names_per_series", COUNT, limits.label_names, 2, 1000),
    ROW("max_series_per_profile", COUNT, limits.series, 1, 100000),
    ROW("max_series_per_tenant", COUNT, max_series, 0, 1000000),
    ROW("max_services_per_tenant", COUNT, max_services, 0, 1000000),
    ROW("max_stored_bytes_per_tenant", BYTES, stored_bytes, 0, NONE),
    ROW("reject_older_than", MS, past_ms, 60000, NONE),
    ROW("reject_newer_than", MS, future_ms, 1, 86400000),
};
const size_t policy_limits_len = ARRAY_LEN(policy_limits);
static const char *const lists[] = { "relabel", "drop", "sampling", "usage_groups" };

/* ---- limits --------------------------------------------------------------------------------- */

static int read_limit(const struct reader *r, const struct conf_node *n,
                      const struct limit_row *row, struct policy *p)
{
    uint64_t v = policy_value(p, row), max = row->max;
    double mb = (double)v / MEGA;
    int rc;

    if (!n)
        return 0;
    /* A limit beyond retention cannot hold, since such samples are not stored; 0 means retention.
     * */
    if (row->offset == offsetof(struct policy, past_ms))
        max = r->conf->past_ms;
    bool none = n->kind == CONF_NODE_SCALAR && str_eqc(n->value, "0");
    uint64_t min = none ? 0 : row->min;
    if (row->kind == LIMIT_MB)
        rc = conf_node_double(n, r->file, 0, MB_MOST, &mb, r->e);
    else if (row->kind == LIMIT_BYTES)
        rc = conf_node_bytes(n, r->file, min, max, &v, r->e);
    else if (row->kind == LIMIT_MS)
        rc = conf_node_ms(n, r->file, min, max, &v, r->e);
    else
        rc = conf_node_u64(n, r->file, min, max, &v, r->e);
    if (rc)
        return rc;
    if (row->kind == LIMIT_MB)
        v = (uint64_t)(mb * MEGA);
    if (row->kind == LIMIT_MB && v < min)
        return conf_node_fail(n, r->file, r->e, "%g MB is less than %" PRIu64 " bytes", mb, min);
    if (none && row->min)
        v = max == NONE ? (uint64_t)(MB_MOST * MEGA) : max;
    memcpy((char *)p + row->offset, &v, sizeof(v));
    return 0;
}

/* `ingest: off` stops a tenant; a rate of 0 cannot, since 0 means no limit everywhere. */
static int read_off(const struct reader *r, const struct conf_node *n, struct policy *p)
{
    bool on = !p->off;

    if (conf_node_bool(n, r->file, &on, r->e))
        return r->e->code;
    p->off = !on;
    return 0;
}

static int read_ingest(const struct reader *r, const struct conf_node *n, struct policy *p)
{
    static const char *const keys[] = { "bytes", "period", NULL };

    if (!n)
        return 0;
    p->ingest_ms = 86400000;
    if (conf_node_keys(n, r->file, keys, r->e) ||
        conf_node_bytes(conf_node_get(n, "bytes"), r->file, 0, INT64_MAX, &p->ingest_bytes, r->e) ||
        conf_node_ms(conf_node_get(n, "period"), r->file, 1000, UINT64_C(366) * 86400000,
                     &p->ingest_ms, r->e))
        return r->e->code;
    return 0;
}

/* ---- rules ---------------------------------------------------------------------------------- */

static int read_selector(const struct reader *r, const struct conf_node *n, struct str *ret_text,
                         struct selector *ret)
{
    if (conf_node_str(n, r->file, ret_text, r->e))
        return r->e->code;
    if (selector_parse(*ret_text, SELECTOR_PROMETHEUS, r->o->arena, ret, r->e) ||
        selector_compile(ret, r->e))
        return conf_node_fail(n, r->file, r->e, "%s", r->e->text);
    if (ret->metric.len) {
        selector_deinit(ret);
        *ret = (struct selector){ 0 };
        return conf_node_fail(n, r->file, r->e,
                              "want matchers only, such as {service_name=\"a\"}; the profile type "
                              "is the label __profile_type__");
    }
    return 0;
}

static int list_room(const struct reader *r, const struct conf_node *n, size_t most, size_t size,
                     void **ret)
{
    if (n->len > most)
        return conf_node_fail(n, r->file, r->e, "%zu rules, at most %zu", n->len, most);
    *ret = arena_calloc(r->o->arena, n->len + 1, size);
    return *ret ? 0 : conf_node_fail(n, r->file, r->e, "too many rules");
}

static int read_drops(const struct reader *r, const struct conf_node *n, struct rule_set *s)
{
    static const char *const keys[] = { "match", NULL };
    void *room;

    if (!n || n->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_LIST, r->e) ||
        list_room(r, n, POLICY_LIST_MAX, sizeof(*s->drops), &room))
        return r->e->code;
    s->drops = room;
    for (const struct conf_node *i = n->first; i; i = i->next) {
        struct rule_drop *d = &s->drops[s->drops_len];
        const struct conf_node *match = i;
        if (i->kind == CONF_NODE_MAP) {
            if (conf_node_keys(i, r->file, keys, r->e))
                return r->e->code;
            match = conf_node_get(i, "match");
        }
        if (!match)
            return conf_node_fail(i, r->file, r->e, "wants match");
        s->drops_len++; /* freed with the set, whatever comes */
        if (read_selector(r, match, &d->text, &d->match))
            return r->e->code;
    }
    return 0;
}

static int read_groups(const struct reader *r, const struct conf_node *n, struct rule_set *s)
{
    void *room;

    if (!n || n->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_MAP, r->e) ||
        list_room(r, n, POLICY_GROUPS_MAX, sizeof(*s->groups), &room))
        return r->e->code;
    s->groups = room;
    for (const struct conf_node *i = n->first; i; i = i->next) {
        struct rule_group *g = &s->groups[s->groups_len++];
        g->name = i->key;
        if (read_selector(r, i, &g->text, &g->match))
            return r->e->code;
    }
    return 0;
}

/* A usage group stands for its selector: compiled again, since a selector has one owner. */
static int read_sample(const struct reader *r, const struct conf_node *n, const struct rule_set *s,
                       struct rule_sample *to)
{
    static const char *const keys[] = { "match", "usage_group", "probability", NULL };
    const struct conf_node *match, *group, *p;

    if (conf_node_is(n, r->file, CONF_NODE_MAP, r->e) || conf_node_keys(n, r->file, keys, r->e))
        return r->e->code;
    match = conf_node_get(n, "match");
    group = conf_node_get(n, "usage_group");
    p = conf_node_get(n, "probability");
    if (!p || !match == !group)
        return conf_node_fail(n, r->file, r->e,
                              "wants probability, and either match or usage_group");
    if (conf_node_double(p, r->file, 0, 1, &to->probability, r->e))
        return r->e->code;
    if (match)
        return read_selector(r, match, &to->text, &to->match);
    if (conf_node_str(group, r->file, &to->group, r->e))
        return r->e->code;
    for (size_t i = 0; i < s->groups_len; i++) {
        if (!str_eq(s->groups[i].name, to->group))
            continue;
        if (selector_parse(s->groups[i].text, SELECTOR_PROMETHEUS, r->o->arena, &to->match, r->e))
            return r->e->code;
        return selector_compile(&to->match, r->e);
    }
    return conf_node_fail(group, r->file, r->e, "there is no such usage group");
}

static int read_samples(const struct reader *r, const struct conf_node *n, struct rule_set *s)
{
    void *room;

    if (!n || n->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_LIST, r->e) ||
        list_room(r, n, POLICY_LIST_MAX, sizeof(*s->samples), &room))
        return r->e->code;
    s->samples = room;
    for (const struct conf_node *i = n->first; i; i = i->next)
        if (read_sample(r, i, s, &s->samples[s->samples_len++]))
            return r->e->code;
    return 0;
}

/* The list of the tenant, else that of the defaults. */
static const struct conf_node *list_of(const struct reader *r, const struct conf_node *n,
                                       const char *key)
{
    const struct conf_node *own = conf_node_get(n, key);

    return own ? own : conf_node_get(r->defaults, key);
}

static int read_rules(const struct reader *r, const struct conf_node *n, struct rule_set **ret)
{
    if (r->o->sets.len >= POLICY_RULES_MAX)
        return conf_node_fail(n, r->file, r->e, "more than %d tenants have rules of their own",
                              POLICY_RULES_MAX);
    struct rule_set *s = XNEW(struct rule_set);
    mutex_init(&s->lock);
    vec_push(&r->o->sets, s);
    *ret = s;
    if (read_groups(r, list_of(r, n, "usage_groups"), s) ||
        read_samples(r, list_of(r, n, "sampling"), s) || read_drops(r, list_of(r, n, "drop"), s) ||
        relabel_conf(list_of(r, n, "relabel"), r->file, &s->relabel, r->e))
        return r->e->code;
    return 0;
}

static void set_free(struct rule_set *s)
{
    relabel_free(s->relabel);
    for (size_t i = 0; i < s->drops_len; i++)
        selector_deinit(&s->drops[i].match);
    for (size_t i = 0; i < s->samples_len; i++)
        selector_deinit(&s->samples[i].match);
    for (size_t i = 0; i < s->groups_len; i++)
        selector_deinit(&s->groups[i].match);
    mutex_deinit(&s->lock);
    xfree(s);
}

/* ---- the file ------------------------------------------------------------------------------- */

static int read_policy(const struct reader *r, const struct conf_node *n, bool own_rules,
                       struct policy *p)
{
    const char *keys[ARRAY_LEN(policy_limits) + ARRAY_LEN(lists) + 3] = { "ingest_limits",
                                                                          "ingest" };
    size_t len = 2;

    for (size_t i = 0; i < ARRAY_LEN(policy_limits); i++)
        keys[len++] = policy_limits[i].key;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        keys[len++] = lists[i];
        own_rules = own_rules || conf_node_get(n, lists[i]);
    }
    if (n && conf_node_keys(n, r->file, keys, r->e))
        return r->e->code;
    for (size_t i = 0; i < ARRAY_LEN(policy_limits); i++)
        if (read_limit(r, conf_node_get(n, policy_limits[i].key), &policy_limits[i], p))
            return r->e->code;
    if (read_ingest(r, conf_node_get(n, "ingest_limits"), p) ||
        read_off(r, conf_node_get(n, "ingest"), p))
        return r->e->code;
    p->shared_series = p->shared_series && !conf_node_get(n, "max_series_per_tenant");
    p->limits.frames = MAX(p->limits.frames, p->limits.frames_keep);
    p->limits.symbol_bytes = MAX(p->limits.symbol_bytes, p->limits.symbol_keep_bytes);
    r->o->limit_stored = r->o->limit_stored || p->stored_bytes;
    return own_rules ? read_rules(r, n, &p->rules) : 0;
}

static int read_tenants(const struct reader *r, const struct conf_node *n)
{
    if (!n || n->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(n, r->file, CONF_NODE_MAP, r->e))
        return r->e->code;
    if (n->len > POLICY_TENANTS_MAX)
        return conf_node_fail(n, r->file, r->e, "%zu tenants, at most %d", n->len,
                              POLICY_TENANTS_MAX);
    for (const struct conf_node *i = n->first; i; i = i->next) {
        struct policy *p = ARENA_NEW(r->o->arena, struct policy);
        struct err why;
        if (tenant_id_check(i->key, &why)) /* would never be found */
            return conf_node_fail(i, r->file, r->e, "%s", why.text);
        if (!p)
            return conf_node_fail(i, r->file, r->e, "too many tenants");
        *p = r->o->defaults;
        if (read_policy(r, i, false, p))
            return r->e->code;
        (void)map_str_put(r->o->tenants, i->key, p);
    }
    return 0;
}

static void shared_limits(struct policy *p)
{
    if (!p->rate_bytes)
        p->rate_bytes = POLICY_SHARED_RATE;
    p->max_series = POLICY_SHARED_SERIES;
    p->max_services = POLICY_SHARED_SERVICES;
    p->shared_series = true;
}

int overrides_parse(const char *file, struct str text, const struct distributor_conf *c,
                    const struct limits *l, struct overrides **ret, struct err *e)
{
    static const char *const keys[] = { "defaults", "tenants", "overrides", NULL };
    struct overrides *o = XNEW(struct overrides);
    struct reader r = { .o = o, .file = file, .conf = c, .e = e };
    struct conf_node *root = NULL;

    o->owners = 1;
    o->arena = arena_new(64 * POLICY_FILE_MAX);
    o->tenants = map_str_new();
    o->defaults = (struct policy){ .limits = *l,
                                   .past_ms = c->past_ms,
                                   .future_ms = c->future_ms,
                                   .rate_bytes = c->tenant_rate_bytes,
                                   .burst_bytes = c->tenant_burst_bytes };
    if (c->tenant_limits)
        shared_limits(&o->defaults);
    int rc = conf_tree_parse(file, text, o->arena, &root, e);
    if (!rc)
        rc = conf_node_keys(root, file, keys, e);
    if (!rc) {
        const struct conf_node *defaults = conf_node_get(root, "defaults");
        rc = read_policy(&r, defaults, true, &o->defaults);
        r.defaults = defaults;
    }
    if (!rc)
        rc = read_tenants(&r, conf_node_get(root, "tenants"));
    if (!rc) /* as Grafana's servers call it */
        rc = read_tenants(&r, conf_node_get(root, "overrides"));
    if (rc) {
        overrides_free(o);
        return rc;
    }
    *ret = o;
    return 0;
}

void overrides_hold(struct overrides *o)
{
    o->owners++;
}

void overrides_free(struct overrides *o)
{
    if (!o || --o->owners)
        return;
    vec_for (i, &o->sets)
        set_free(o->sets.ptr[i]);
    vec_free(&o->sets);
    map_str_free(o->tenants);
    arena_free(o->arena);
    xfree(o);
}

bool overrides_limit_stored(const struct overrides *o)
{
    return o->limit_stored;
}

const struct policy *overrides_policy(const struct overrides *o, struct str tenant)
{
    const struct policy *p = map_str_get(o->tenants, tenant);

    return p ? p : &o->defaults;
}
