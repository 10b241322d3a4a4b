/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: what an operator or an orchestrator asks any process.
 *
 * /healthz says that the process lives: restart it if this fails. /readyz says that it can serve:
 * send it requests only while this is 200. The two differ on purpose: a full disk or a missing peer
 * is no reason to restart.
 */
#include "common/role/admin/admin.h"

#include "common/net/http_not_found.h"
#include "common/net/svc/svc.h"
#include "common/role/admin/ring_page.h"
#include "common/role/cluster/peer_health.h"
#include "common/role/core/memory.h"
#include "common/role/core/readiness.h"
#include "version.h"

#define PAGE_BYTES_MAX (64 * MIB)
#define TEXT_PLAIN     "text/plain; charset=utf-8"

static void on_healthz(struct http_req *r)
{
    struct buf b;

    buf_init(&b, PAGE_BYTES_MAX);
    (void)buf_add_str(&b, STR("server is ready\n"));
    http_reply(r, 200, TEXT_PLAIN, &b);
}

bool admin_ready(const struct process_core *p, struct buf *out)
{
    const char *role, *why;
    struct json j;

    if (readiness_check(p, &role, &why)) {
        (void)buf_add_str(out, STR("ready\n"));
        for (size_t i = 0; i < p->parts_len; i++) {
            const struct process_part *part = &p->parts[i];

            why = NULL;
            if (part->role->ready && part->role->ready(part->self, &why) && why && why[0])
                (void)buf_addf(out, "%s: %s\n", part->role->name, why);
        }
        return true;
    }
    json_init(&j, out);
    json_obj(&j);
    json_put_cstr(&j, "code", "unavailable");
    json_put_cstr(&j, "message", why);
    json_key(&j, "roles");
    json_obj(&j);
    for (size_t i = 0; p->state == PROCESS_RUNNING && i < p->parts_len; i++) {
        const struct process_part *part = &p->parts[i];

        why = "not ready";
        json_put_cstr(&j, part->role->name,
                      !part->role->ready || part->role->ready(part->self, &why) ? "ready" : why);
    }
    json_obj_end(&j);
    json_obj_end(&j);
    (void)buf_add_c(out, '\n');
    return false;
}

static void on_ready(struct http_req *r)
{
    struct buf b;

    buf_init(&b, PAGE_BYTES_MAX);
    if (admin_ready(r->route_cookie, &b)) {
        http_reply(r, 200, TEXT_PLAIN, &b);
        return;
    }
    http_reply_header(r, "Retry-After", STR("1"));
    http_reply(r, 503, "application/json", &b);
}

static void on_metrics(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct buf b;

    buf_init(&b, PAGE_BYTES_MAX);
    metrics_render(p->ctx.metrics, &b);
    http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static bool key_is_secret(struct str key)
{
    static const char *const ends[] = { "secret", "password", "token", "key" };

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (str_ends(key, str_c(ends[i])))
            return true;
    }
    return false;
}

void admin_mask(struct str yaml, struct buf *out)
{
    struct str line;
    bool more = true;

    while (str_next(&yaml, '\n', &more, &line)) {
        ptrdiff_t colon = str_find(line, ':');

        if (colon > 0 && key_is_secret(str_trim(str_sub(line, 0, (size_t)colon))) &&
            str_trim(str_sub(line, (size_t)colon + 1, line.len)).len > 0) {
            (void)buf_add_str(out, str_sub(line, 0, (size_t)colon));
            (void)buf_add_str(out, STR(": \"********\""));
        } else {
            (void)buf_add_str(out, line);
        }
        if (more)
            (void)buf_add_c(out, '\n');
    }
}

static void on_config(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct buf plain, b;

    buf_init(&plain, PAGE_BYTES_MAX);
    buf_init(&b, PAGE_BYTES_MAX);
    conf_print(p->ctx.conf, &plain);
    admin_mask(buf_str(&plain), &b);
    buf_deinit(&plain);
    http_reply(r, 200, TEXT_PLAIN, &b);
}

static void ring_ingesters(const struct cluster_conf *c, struct json *j)
{
    json_arr(j);
    for (size_t i = 0; i < c->ingesters.len; i++) {
        json_obj(j);
        json_put_cstr(j, "address", c->ingesters.items[i]);
        json_key(j, "shards");
        json_arr(j);
        for (uint64_t s = i; s < c->shards; s += c->ingesters.len)
            json_u64(j, s);
        json_arr_end(j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

void admin_ring(const struct process_core *p, struct buf *out)
{
    const char *role, *why;
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_cstr(&j, "version", EMBERTREE_BUILD);
    json_put_bool(&j, "ready", readiness_check(p, &role, &why));
    json_key(&j, "shards");
    json_u64(&j, view_shards(p->ctx.view)); /* 0: not known yet */
    if (p->ctx.memory) {
        json_key(&j, "memory");
        memory_json(p->ctx.memory, &j);
    }
    if (strcmp(p->ctx.cluster->coordination, "none") == 0) { /* else the list says nothing */
        json_key(&j, "ingesters");
        ring_ingesters(p->ctx.cluster, &j);
    }
    json_key(&j, "cluster");
    json_obj(&j);
    view_json(p->ctx.view, &j);
    if (p->heard)
        peer_health_json(p->heard, &j);
    json_obj_end(&j);
    json_key(&j, "roles");
    json_obj(&j);
    for (size_t i = 0; i < p->parts_len; i++) {
        const struct process_part *part = &p->parts[i];
        bool ready = !part->role->ready || part->role->ready(part->self, &why);

        json_key(&j, part->role->name);
        json_obj(&j);
        json_put_bool(&j, "ready", ready);
        if (part->role->ring)
            part->role->ring(part->self, &j);
        json_obj_end(&j);
    }
    json_obj_end(&j);
    json_obj_end(&j);
    (void)buf_add_c(out, '\n');
}

static void on_ring(struct http_req *r)
{
    const struct process_core *p = r->route_cookie;
    struct buf b;

    http_reply_header(r, "Vary", STR("Accept"));
    if (ring_page_wanted(r)) {
        ring_page_reply(p, r);
        return;
    }
    buf_init(&b, PAGE_BYTES_MAX);
    admin_ring(p, &b);
    http_reply(r, 200, "application/json", &b);
}

static bool serving(void *cookie)
{
    const char *role, *why;

    return readiness_check(cookie, &role, &why);
}

/* What other servers call it, and what is looked for where there is no page. */
static void say_where(struct http_server *s)
{
    static const char lives[] = "whether this process lives is said at /healthz";
    static const char ready[] = "whether this process is ready is said at /readyz";
    static const char state[] =
        "/ring says how this process and its cluster are, /config what is in "
        "force, /metrics counts";
    static const char *const rows[][2] = {
        { "/health", lives },
        { "/livez", lives },
        { "/-/healthy", lives },
        { "/-/ready", ready },
        { "/readiness", ready },
        { "/status", state },
        { "/services", state },
        { "/memberlist", state },
        { "/flags", state },
        { "/api/v1/status/*", state },
        { "/", "this process has no page: a querier has; /ring, /config and /metrics tell of it" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        http_not_found_hint(s, rows[i][0], rows[i][1]);
}

void admin_routes(struct process_core *p, struct svc_health *health)
{
    static const struct {
        const char *path;
        http_handler_fn fn;
    } pages[] = {
        { "/healthz", on_healthz }, { "/readyz", on_ready },  { "/ready", on_ready },
        { "/metrics", on_metrics }, { "/config", on_config }, { "/ring", on_ring },
    };

    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        http_route(p->ctx.http, HTTP_GET, pages[i].path, 0, pages[i].fn, p);
    svc_health_routes(health, p->ctx.http, serving, p);
    say_where(p->ctx.http);
}
