/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_api: GET /api/v1/targets?state=up|down|unknown&job=: what is fetched, and how it went.
 */
#include "common/base/json.h"
#include "distributor/base/left_out.h"
#include "distributor/scrape/scrape_impl.h"

#define ANSWER_MAX (256 * MIB)

static const char *state_of(const struct scrape_entry *x)
{
    return x->error[0] ? "down" : x->fetches && x->bytes ? "up" : "unknown";
}

static void add_entry(struct json *j, const struct scrape_entry *x)
{
    const struct labels *l = &x->target.labels;

    json_obj(j);
    json_put_str(j, "job", x->job->name);
    json_put_str(j, "service", x->target.service);
    json_put_str(j, "profile", x->profile->name);
    json_put_str(j, "url", x->target.base);
    json_put_str(j, "path", x->profile->path);
    json_key(j, "labels");
    json_obj(j);
    for (size_t i = 0; i < l->len; i++) {
        json_key_str(j, l->ptr[i].name);
        json_str(j, l->ptr[i].value);
    }
    json_obj_end(j);
    json_put_str(j, "state", str_c(state_of(x)));
    json_put_str(j, "last_error", str_c(x->error));
    json_put_i64(j, "last_fetch_ms", x->tried_ms);
    json_put_u64(j, "last_duration_ms", x->took_ms);
    json_put_u64(j, "last_bytes", x->bytes);
    json_key(j, "last_left_out");
    left_out_json(x->left_out, j);
    json_put_u64(j, "fetches", x->fetches);
    json_put_u64(j, "failures", x->failures);
    json_put_u64(j, "interval_ms", x->sched.interval_ms);
    json_obj_end(j);
}

static void add_discovery(struct json *j, const struct scrape *s)
{
    json_key(j, "discovery");
    json_arr(j);
    vec_for (i, &s->files) {
        json_obj(j);
        json_put_str(j, "file", str_c(s->files.ptr[i]->path));
        json_put_str(j, "last_error", str_c(s->files.ptr[i]->error));
        json_obj_end(j);
    }
    vec_for (i, &s->k8s) {
        struct scrape_k8s_state k;
        scrape_k8s_state(s->k8s.ptr[i], &k);
        json_obj(j);
        json_put_str(j, "kubernetes", str_c(scrape_k8s_job(s->k8s.ptr[i])));
        json_put_u64(j, "objects", k.objects);
        json_put_u64(j, "watches", k.watches);
        json_put_u64(j, "lists", k.lists);
        json_put_u64(j, "events", k.events);
        json_put_u64(j, "errors", k.errors);
        json_put_str(j, "last_error", str_c(k.error));
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void on_targets(struct http_req *r)
{
    const struct scrape *s = r->route_cookie;
    struct str tenant, state = STR_NULL, job = STR_NULL;
    struct json j;
    struct buf out;
    struct err e;
    size_t one;

    if (tenant_of(r, s->d->ctx->tenancy, 1, &tenant, &one, &e)) {
        http_reply_err(r, &e);
        return;
    }
    (void)http_param(r, "state", &state);
    (void)http_param(r, "job", &job);
    buf_init(&out, ANSWER_MAX);
    json_init(&j, &out);
    json_obj(&j);
    json_put_str(&j, "config_error", str_c(s->config.error));
    json_put_u64(&j, "left_out", s->left_out);
    json_key(&j, "targets");
    json_arr(&j);
    vec_for (i, &s->entries) {
        const struct scrape_entry *x = s->entries.ptr[i];
        if (str_eq(x->job->tenant, tenant) && (!state.len || str_eqc(state, state_of(x))) &&
            (!job.len || str_eq(job, x->job->name)))
            add_entry(&j, x);
    }
    json_arr_end(&j);
    if (!s->d->ctx->tenancy->multi) /* it tells of all tenants' jobs */
        add_discovery(&j, s);
    json_obj_end(&j);
    http_reply(r, 200, "application/json", &out);
}

void scrape_routes(struct scrape *s)
{
    http_route(s->d->ctx->http, HTTP_GET, "/api/v1/targets", 0, on_targets, s);
}
