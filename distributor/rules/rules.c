/* SPDX-License-Identifier: Apache-2.0
 *
 * rules: the file in force, and what is counted.
 *
 * The file is at most 1 MiB and is read on the loop every overrides_interval; it is parsed only if
 * its bytes changed. A request keeps the overrides it began with (rules_hold counts owners, on the
 * loop), so a reload never changes rules under a push. A file that cannot be read or is wrong
 * leaves the old one in force, is logged once and counted.
 */
#include "distributor/rules/rules.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/obs/log.h"
#include "distributor/base/state.h"
#include "distributor/rules/stored.h"

#define YAML "text/yaml; charset=utf-8"

struct rules {
    struct distributor *d;
    struct overrides *now; /* owned: one of its owners */
    struct buf text;       /* of the file in force */
    struct hash128 tried;  /* of the bytes last seen */
    bool failed;           /* they, or the file, were wrong */
    struct timer *timer;
    struct map_str *labels;  /* names of tenants with metrics; owned, value = key */
    struct map_str *actives; /* of struct active */
    struct metric *profiles, *bytes, *series, *group_profiles, *group_bytes, *reloads;
};
struct active {
    char *name; /* owned */
    struct actives *counts, *services;
};

/* ---- the file ------------------------------------------------------------------------------- */

static int parse(struct rules *r, struct str text, struct err *e)
{
    const struct distributor *d = r->d;
    struct distributor_conf conf = *d->conf;
    struct overrides *fresh;

    conf.tenant_limits = conf.tenant_limits && d->ctx->tenancy->multi;
    if (overrides_parse(conf.overrides_file, text, &conf, &d->limits, &fresh, e))
        return e->code;
    overrides_free(r->now);
    r->now = fresh;
    return 0;
}

static int load(struct rules *r, bool *ret_changed, struct err *e)
{
    const struct fs *fs = r->d->ctx->env->fs;
    const char *file = r->d->conf->overrides_file;
    struct buf text;
    int rc;

    *ret_changed = false;
    buf_init(&text, POLICY_FILE_MAX);
    rc = fs->read_file(fs, file, &text, e);
    if (rc) {
        buf_deinit(&text);
        return err_wrap(e, "distributor.overrides_file");
    }
    struct hash128 h = hash128(text.ptr, text.len, 0);
    if (!r->failed && h.lo == r->tried.lo && h.hi == r->tried.hi) {
        buf_deinit(&text);
        return 0;
    }
    *ret_changed = h.lo != r->tried.lo || h.hi != r->tried.hi;
    r->tried = h;
    rc = parse(r, buf_str(&text), e);
    if (rc) {
        buf_deinit(&text);
        return rc;
    }
    buf_move(&r->text, &text);
    return 0;
}

static void count_reload(struct rules *r, struct str result)
{
    metric_add(metric_at(r->reloads, &result, 1), 1);
}

static void on_timer(void *cookie)
{
    struct rules *r = cookie;
    bool changed, failed = r->failed;
    struct err e;

    r->failed = load(r, &changed, &e) != 0;
    if (r->failed && (changed || !failed)) {
        log_error("the overrides file is refused; the old rules stay in force",
                  KV_CSTR("error", e.text));
        count_reload(r, STR("failed"));
    } else if (!r->failed && (changed || failed)) {
        log_info("overrides loaded", KV_CSTR("file", r->d->conf->overrides_file));
        count_reload(r, STR("loaded"));
    }
}

static void make_metrics(struct rules *r)
{
    struct metrics *m = r->d->ctx->metrics;

    r->profiles = metric_new(m, METRIC_COUNTER, "embertree_discarded_profiles_total",
                             "Profiles refused, or left out as a whole by rules", "reason,tenant");
    r->bytes =
        metric_new(m, METRIC_COUNTER, "embertree_discarded_bytes_total",
                   "Bytes of those profiles, unzipped where they came so far", "reason,tenant");
    r->series = metric_new(m, METRIC_COUNTER, "embertree_discarded_series_total",
                           "Series of accepted profiles that rules left out", "reason,tenant");
    r->group_profiles =
        metric_new(m, METRIC_COUNTER, "embertree_usage_group_received_profiles_total",
                   "Profiles received, by usage group", "tenant,usage_group");
    r->group_bytes = metric_new(m, METRIC_COUNTER, "embertree_usage_group_received_bytes_total",
                                "Bytes of those profiles, unzipped", "tenant,usage_group");
    r->reloads = metric_new(m, METRIC_COUNTER, "embertree_overrides_reloads_total",
                            "Changes of the overrides file seen, by result", "result");
}

int rules_new(struct distributor *d, struct rules **ret, struct err *e)
{
    struct rules *r = XNEW(struct rules);
    bool changed;
    int rc;

    r->d = d;
    r->labels = map_str_new();
    r->actives = map_str_new();
    buf_init(&r->text, POLICY_FILE_MAX);
    make_metrics(r);
    if (d->conf->overrides_file[0])
        rc = load(r, &changed, e);
    else
        rc = parse(r, STR(""), e);
    if (!rc && !r->now) /* an empty file has the bytes that were "tried" before */
        rc = parse(r, STR(""), e);
    if (rc) {
        rules_free(r);
        return rc;
    }
    if (d->conf->overrides_file[0]) {
        r->timer = loop_timer_new(d->ctx->loop, on_timer, r);
        loop_timer_start(r->timer, d->conf->overrides_interval_ms, d->conf->overrides_interval_ms);
    }
    *ret = r;
    return 0;
}

void rules_free(struct rules *r)
{
    size_t pos = 0;
    struct str name;
    void *val;

    if (!r)
        return;
    loop_timer_free(r->timer);
    overrides_free(r->now);
    buf_deinit(&r->text);
    while (map_str_next(r->labels, &pos, &name, &val))
        xfree(val);
    map_str_free(r->labels);
    pos = 0;
    while (map_str_next(r->actives, &pos, &name, &val)) {
        struct active *a = val;
        actives_free(a->counts);
        actives_free(a->services);
        xfree(a->name);
        xfree(a);
    }
    map_str_free(r->actives);
    xfree(r);
}

/* ---- one request ---------------------------------------------------------------------------- */

static struct str label_of(struct rules *r, struct str tenant)
{
    char *name = map_str_get(r->labels, tenant);

    if (!name && map_str_len(r->labels) < RULES_LABELS_MAX) {
        name = xmemdup(tenant.ptr, tenant.len);
        (void)map_str_put(r->labels, str_n(name, tenant.len), name);
    }
    return name ? str_n(name, tenant.len) : STR("other");
}

static struct active *active_of(struct rules *r, struct str tenant)
{
    struct active *a = map_str_get(r->actives, tenant);

    if (!a && map_str_len(r->actives) < RULES_ACTIVES_MAX) {
        a = XNEW(struct active);
        a->name = xmemdup(tenant.ptr, tenant.len);
        a->counts = actives_new(clock_mono_ms(r->d->ctx->env->clock));
        a->services = actives_new(clock_mono_ms(r->d->ctx->env->clock));
        (void)map_str_put(r->actives, str_n(a->name, tenant.len), a);
    }
    return a;
}

void rules_hold(struct rules *r, struct str tenant, struct rules_hold *ret)
{
    overrides_hold(r->now);
    ret->overrides = r->now;
    ret->policy = overrides_policy(r->now, tenant);
    const struct policy *p = ret->policy;
    struct active *a = p->max_series || p->max_services ? active_of(r, tenant) : NULL;
    ret->actives = a && p->max_series ? a->counts : NULL;
    ret->services = a && p->max_services ? a->services : NULL;
    ret->label = label_of(r, tenant);
}

void rules_drop(struct rules_hold *h)
{
    overrides_free(h->overrides);
    h->overrides = NULL;
}

const struct limits *rules_limits(const struct rules *r, struct str tenant)
{
    return &overrides_policy(r->now, tenant)->limits;
}

void rules_rates(void *rules, struct str tenant, struct tenant_rates *ret)
{
    const struct rules *r = rules;
    const struct policy *p = overrides_policy(r->now, tenant);

    *ret = (struct tenant_rates){ .rate_bytes = p->rate_bytes,
                                  .burst_bytes = p->burst_bytes,
                                  .ingest_bytes = p->ingest_bytes,
                                  .ingest_ms = p->ingest_ms };
    if (p->stored_bytes && stored_counts(r->d->stored, tenant)) {
        ret->stored_max = p->stored_bytes;
        ret->stored = stored_bytes(r->d->stored, tenant);
    }
}

bool rules_limit_stored(const struct rules *r)
{
    return overrides_limit_stored(r->now);
}

/* ---- counting ------------------------------------------------------------------------------- */

static void count(struct metric *m, struct str one, struct str two, uint64_t n)
{
    const struct str values[] = { one, two };

    if (n)
        metric_add(metric_at(m, values, 2), n);
}

const char *rules_reason(const struct err *why)
{
    static const char *const known[] = {
        "invalid_labels",
        "missing_labels",
        "rate_limited",
        "not_in_ingestion_window",
        "max_label_names_per_series",
        "label_name_too_long",
        "label_value_too_long",
        "duplicate_label_names",
        "series_limit",
        "samples_limit",
        "profile_size_limit",
        "sample_labels_limit",
        "malformed_profile",
        "invalid_time_range",
        "ingest_limit_reached",
        "body_size_limit_exceeded",
        "in_flight_limit",
        "services_limit",
        "tenants_limit",
        "ingest_off",
        "stored_bytes_limit",
        "idempotency_key_reused",
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        size_t n = strlen(known[i]);
        if (strncmp(why->text, known[i], n) == 0 && why->text[n] == ':')
            return known[i];
    }
    if (why->code == ERR_RATE)
        return "rate_limited";
    if (why->code == ERR_TOO_LARGE)
        return "body_size_limit_exceeded";
    if (why->code == ERR_LIMIT && strstr(why->text, " samples"))
        return "samples_limit";
    if (why->code == ERR_LIMIT &&
        (strstr(why->text, " labels") || strstr(why->text, " attributes")))
        return "sample_labels_limit";
    if (why->code == ERR_LIMIT)
        return "profile_size_limit";
    return why->code == ERR_INPUT ? "malformed_profile" : NULL;
}

void rules_refused(struct rules *r, struct str label, const struct err *why, uint64_t profiles,
                   uint64_t bytes)
{
    const char *reason = rules_reason(why);

    if (!reason)
        return;
    count(r->profiles, str_c(reason), label, profiles);
    count(r->bytes, str_c(reason), label, bytes);
}

static void count_groups(struct rules *r, const struct rules_hold *h, uint32_t groups,
                         uint64_t bytes)
{
    const struct rule_set *s = h->policy->rules;

    if (!s->groups_len)
        return;
    for (size_t i = 0; i < s->groups_len; i++) {
        if (!(groups & UINT32_C(1) << i))
            continue;
        count(r->group_profiles, h->label, s->groups[i].name, 1);
        count(r->group_bytes, h->label, s->groups[i].name, bytes);
    }
    if (!groups) {
        count(r->group_profiles, h->label, STR("other"), 1);
        count(r->group_bytes, h->label, STR("other"), bytes);
    }
}

int rules_off(const struct rules_hold *h, struct err *e)
{
    if (!h->policy->off)
        return 0;
    return err_set(e, ERR_FORBIDDEN,
                   "ingest_off: pushes of this tenant are switched off (ingest: off in "
                   "distributor.overrides_file)");
}

bool rules_any(const struct rules_hold *h)
{
    const struct rule_set *s = h->policy->rules;

    /* Imports go past the limits that every tenant has: it would cost them their exemplars. */
    return (h->actives && !h->policy->shared_series) || s->groups_len || s->samples_len ||
           s->drops_len || relabel_len(s->relabel);
}

int rules_run(struct rules *r, const struct rules_hold *h, struct push *p, const struct window *w,
              uint64_t bytes, struct err *e)
{
    const struct str sampled = STR("dropped_by_sampling_rules");
    const struct str dropped = STR("dropped_by_relabel_rules");
    bool had = p->series_len > 0;
    struct applied a;
    int rc = rules_apply(h->policy, p, w, &a, e);

    if (had)
        count_groups(r, h, a.groups, bytes);
    if (rc)
        return rc;
    count(r->series, sampled, h->label, a.sampled);
    count(r->series, dropped, h->label, a.dropped);
    if (had && !p->series_len) {
        count(r->profiles, a.dropped ? dropped : sampled, h->label, 1);
        count(r->bytes, a.dropped ? dropped : sampled, h->label, bytes);
    }
    uint64_t now_ms = clock_mono_ms(r->d->ctx->env->clock);
    if (h->services && actives_admit_services(h->services, p, h->policy->max_services, now_ms, e))
        return e->code;
    return h->actives ? actives_admit(h->actives, p, h->policy->max_series, now_ms, e) : 0;
}

/* ---- what is in force ----------------------------------------------------------------------- */

static void on_limits(struct http_req *q)
{
    struct rules *r = q->route_cookie;
    struct str tenant;
    struct buf out;
    struct err e;
    size_t one;

    if (tenant_of(q, r->d->ctx->tenancy, 1, &tenant, &one, &e)) {
        http_reply_err(q, &e);
        return;
    }
    buf_init(&out, 4 * POLICY_FILE_MAX);
    policy_format(overrides_policy(r->now, tenant), &out);
    http_reply(q, 200, YAML, &out);
    buf_deinit(&out);
}

static void on_config(struct http_req *q)
{
    struct rules *r = q->route_cookie;
    struct buf out;

    buf_init(&out, 2 * POLICY_FILE_MAX);
    if (!r->d->conf->overrides_file[0])
        buf_add_str(&out, STR("# there is no distributor.overrides_file\n"));
    buf_add_str(&out, buf_str(&r->text));
    http_reply(q, 200, YAML, &out);
    buf_deinit(&out);
}

void rules_routes(struct rules *r)
{
    http_route(r->d->ctx->http, HTTP_GET, "/api/v1/tenant_limits", 0, on_limits, r);
    http_route(r->d->ctx->http, HTTP_GET, "/runtime_config", 0, on_config, r);
}
