/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_ask: clients that ask other questions than for flame graphs: the timeline of the last half
 * hour, and which services and pods a tenant has. Compared like reads (sim_oracle.c): what was
 * acked before must be in them, what was deleted or never pushed must not.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/json_in.h"
#include "tests/lib/sim/sim_impl.h"

#define RANGE_MS INT64_C(1800000) /* in steps of 15 s */

enum about { TIMELINE, SERVICE_NAMES, PODS };
struct asking {
    struct world *w;
    enum about about;
    uint32_t service;
    int64_t from_ms;
    uint8_t *before;
    size_t before_len;
};

static int before_of(const struct asking *a, size_t push)
{
    return push < a->before_len ? a->before[push] : ORACLE_MAY;
}

/* Must it be in this answer, may it? */
static bool must(const struct asking *a, size_t push)
{
    return before_of(a, push) == ORACLE_MUST && a->w->pushes.ptr[push]->state == PUSH_ACKED;
}

static bool may(const struct asking *a, size_t push)
{
    return before_of(a, push) != ORACLE_MUST_NOT;
}

/* ---- timelines ------------------------------------------------------------------------------- */

static void check_step(const struct asking *a, int64_t from_ms, int64_t to_ms, uint64_t have)
{
    struct world *w = a->w;
    uint64_t least = 0, most = 0;

    vec_for (i, &w->pushes) {
        const struct push *p = w->pushes.ptr[i];
        if (p->service != a->service || p->time_ms < from_ms || p->time_ms >= to_ms)
            continue;
        least += must(a, i) ? p->value : 0;
        most += may(a, i) ? p->value : 0;
    }
    if (have < least || have > most)
        broke(w, "a timeline is wrong",
              "%s of %s from %" PRId64 " to %" PRId64 ": %" PRIu64 ", want %" PRIu64 " to %" PRIu64,
              services[a->service].name, services[a->service].tenant, from_ms, to_ms, have, least,
              most);
}

static bool check_timeline(const struct asking *a, const struct json_val *root)
{
    const struct json_val *tl = json_get(root, "timeline", NULL), *list;
    int64_t start = 0, step = 0, v;
    struct err e;

    list = json_get(tl, "samples", NULL);
    if (json_take_i64(json_get(tl, "startTime", NULL), "startTime", &start, &e) ||
        json_take_i64(json_get(tl, "durationDelta", NULL), "durationDelta", &step, &e) ||
        start * 1000 != a->from_ms || step <= 0 || (int64_t)json_len(list) * step * 1000 < RANGE_MS)
        return false;
    for (size_t i = 0; i < json_len(list); i++) {
        int64_t at = (start + (int64_t)i * step) * 1000;
        v = 0;
        if (json_take_i64(json_at(list, i), "samples", &v, &e) || v < 0)
            return false;
        check_step(a, at, MIN(at + step * 1000, a->from_ms + RANGE_MS), (uint64_t)v);
    }
    return true;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool listed(const struct json_val *list, const char *what)
{
    struct str name;
    struct err e;

    for (size_t i = 0; i < json_len(list); i++) {
        name = STR_NULL;
        if (json_take_str(json_at(list, i), "name", &name, &e) == 0 && str_eqc(name, what))
            return true;
    }
    return false;
}

/* The list is of the tenant. `value` is that of pushes of `service` (SERVICES: of any) and `pod`
 * (SIM_PODS: any). */
static void check_value(const struct asking *a, const struct json_val *list, const char *value,
                        uint32_t service, uint32_t pod)
{
    struct world *w = a->w;
    bool least = false, most = false, is = listed(list, value);

    vec_for (i, &w->pushes) {
        const struct push *p = w->pushes.ptr[i];
        if (strcmp(services[p->service].tenant, services[a->service].tenant) != 0 ||
            (service < SERVICES && p->service != service) ||
            (pod < SIM_PODS && p->number % SIM_PODS != pod))
            continue;
        least |= must(a, i);
        most |= may(a, i) || p->named;
    }
    if ((least && !is) || (is && !most))
        broke(w, is ? "a label is listed that nothing has" : "a label is not listed", "%s of %s",
              value, services[a->service].tenant);
}

static bool check_list(const struct asking *a, const struct json_val *list)
{
    char pod[8];

    if (!json_is_arr(list))
        return false;
    if (a->about == SERVICE_NAMES)
        for (uint32_t s = 0; s < SERVICES; s++)
            if (strcmp(services[s].tenant, services[a->service].tenant) == 0)
                check_value(a, list, services[s].name, s, SIM_PODS);
    if (a->about == PODS)
        for (uint32_t i = 0; i < SIM_PODS; i++) {
            (void)snprintf(pod, sizeof(pod), "p%" PRIu32, i);
            check_value(a, list, pod, SERVICES, i);
        }
    return true;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void check(const struct asking *a, struct str body)
{
    struct json_doc *doc;
    struct err e;
    bool ok = false;

    if (json_parse(body, &doc, &e) == 0) {
        ok = a->about == TIMELINE ? check_timeline(a, json_root(doc))
                                  : check_list(a, json_root(doc));
        json_doc_free(doc);
    }
    if (!ok)
        broke(a->w, "an answer is not what was asked for", "%.*s", (int)MIN(body.len, 300u),
              body.ptr);
}

static void on_answer(void *cookie, const struct sim_reply *r)
{
    struct asking *a = cookie;
    struct world *w = a->w;

    trace(w, "question %d about %s/%s: %d", (int)a->about, services[a->service].tenant,
          services[a->service].name, r->status);
    if (r->status != 200) {
        if (!transient(r))
            broke(w, "a question failed", "%d: %.*s", r->status, (int)MIN(r->body.len, 300u),
                  r->body.ptr);
    } else {
        count(w)->timelines += a->about == TIMELINE;
        count(w)->lists += a->about != TIMELINE;
        check(a, r->body);
    }
    w->flying--;
    xfree(a->before);
    xfree(a);
}

void ask_new(struct world *w, uint32_t service)
{
    const struct service *s = &services[service];
    struct node *n = any_of(w, FIRST_QUERIER, SIM_QUERIERS);
    int64_t now = world_wall_ms(w);
    struct asking *a;
    struct buf out;

    if (!n)
        return;
    a = XNEW(struct asking);
    a->w = w;
    a->about = prng_chance(&w->p, 0.5) ? TIMELINE : prng_chance(&w->p, 0.5) ? SERVICE_NAMES : PODS;
    a->service = service;
    a->from_ms = now / 30000 * 30000 - RANGE_MS + 30000;
    a->before = oracle_before(w, &a->before_len);
    w->flying++;
    buf_init(&out, 4 * KIB);
    if (a->about == TIMELINE)
        (void)buf_addf(&out,
                       "GET /pyroscope/render?query=" SIM_CPU
                       "%%7Bservice_name=%%22%s%%22%%7D&from=%" PRId64 "&until=%" PRId64
                       "&format=json",
                       s->name, a->from_ms / 1000, (a->from_ms + RANGE_MS) / 1000);
    else
        (void)buf_addf(&out, "GET /pyroscope/label-values?label=%s",
                       a->about == PODS ? "pod" : "service_name");
    (void)buf_addf(&out, " HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nX-Scope-OrgID: %s\r\n\r\n",
                   s->tenant);
    CHECK(buf_ok(&out));
    sim_http(&n->site, buf_str(&out), SIM_PATIENCE_MS, on_answer, a);
    buf_deinit(&out);
}
