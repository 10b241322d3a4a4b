/* SPDX-License-Identifier: Apache-2.0
 *
 * identity_count: counters of all decisions, and lines of the log about those against a request.
 *
 * A key that is refused once is refused thousands of times: an agent tries again every few seconds.
 * So each key and reason gets a line an hour. Which have had theirs is kept in a table of fixed
 * size: a key that shares a place with another one may get more lines, and the log's own limit
 * (common/obs/log.h) bounds them all.
 *
 * A line names the id of a key, which is public (key.h), and never more of what was shown: text
 * that is not a key may be a password, sent by mistake.
 */
#include "common/identity/identity_count.h"

#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/obs/log.h"

#define PLACES  1024
#define HOUR_MS INT64_C(3600000)

struct identity_count {
    const struct registry *registry;
    struct metric *requests, *would_refuse;
    struct metric_cell *keys, *blocks;
    uint64_t version; /* of the registry when its blocks were counted */
    uint64_t secret;
    struct {
        uint32_t mark;
        int32_t hour; /* 0: none yet */
    } told[PLACES];
};

static void count_block(void *cookie, struct key_record *r, const struct block_record *b)
{
    int64_t *n = cookie;

    (void)r;
    *n += b != NULL;
}

static void on_render(void *cookie)
{
    struct identity_count *c = cookie;
    int64_t blocks = 0;

    metric_set(c->keys, (int64_t)registry_len(c->registry));
    if (c->version == registry_version(c->registry))
        return;
    c->version = registry_version(c->registry);
    registry_each(c->registry, count_block, &blocks);
    metric_set(c->blocks, blocks);
}

struct identity_count *identity_count_new(struct metrics *m, const struct registry *g)
{
    struct identity_count *c = XNEW(struct identity_count);

    c->registry = g;
    c->secret = secret_word();
    c->version = UINT64_MAX;
    c->requests = metric_new(m, METRIC_COUNTER, "embertree_identity_requests_total",
                             "Requests, by what was decided about them and why", "result,reason");
    c->would_refuse = metric_new(m, METRIC_COUNTER, "embertree_identity_would_refuse_total",
                                 "Requests that identity.mode observe let pass and require would "
                                 "have refused",
                                 "route,reason");
    c->keys = metric_at(
        metric_new(m, METRIC_GAUGE, "embertree_identity_keys", "Keys that are known here", NULL),
        NULL, 0);
    c->blocks = metric_at(metric_new(m, METRIC_GAUGE, "embertree_identity_blocks",
                                     "Keys that are known to be revoked", NULL),
                          NULL, 0);
    metrics_on_render(m, on_render, c);
    return c;
}

void identity_count_free(struct identity_count *c)
{
    xfree(c);
}

/* ---- the log -------------------------------------------------------------------------------- */

/* Has a line of this key and reason been written in this hour? If not, it counts as written now. */
static bool told(struct identity_count *c, struct str who, const char *reason, int64_t now_ms)
{
    uint64_t h = hash64(who.ptr, who.len, c->secret) ^ hash64(reason, strlen(reason), ~c->secret);
    int32_t hour = (int32_t)(now_ms / HOUR_MS) + 1;
    size_t at = h % PLACES;
    uint32_t mark = (uint32_t)(h >> 32);

    if (c->told[at].mark == mark && c->told[at].hour == hour)
        return true;
    c->told[at].mark = mark;
    c->told[at].hour = hour;
    return false;
}

/* The id of what the request shows: of a known key, or of a text that has the form of one. Else its
 * address stands for it. */
static struct str shown_id(const struct decide_in *in, const struct decision *d)
{
    struct str key, wish;
    struct key_text text;

    if (d->who)
        return d->who->id;
    if (decide_credential(http_header(in->r, "Authorization"), in->r->arena, &key, &wish) &&
        key_text_parse(key, &text))
        return text.id;
    return STR_NULL;
}

/* Without the port, which is another one for each connection. */
static struct str address_of(const char *peer)
{
    struct str s = str_c(peer);
    ptrdiff_t colon = str_rfind(s, ':');

    return colon > 0 ? str_sub(s, 0, (size_t)colon) : s;
}

static void tell(struct identity_count *c, const struct decide_in *in, const struct decision *d,
                 bool refuses)
{
    struct str id = shown_id(in, d);
    const struct log_kv kv[] = { KV_CSTR("reason", d->reason),
                                 KV_STR("key", id),
                                 KV_STR("name", d->who ? d->who->name : STR("")),
                                 KV_CSTR("route", in->door->path),
                                 KV_CSTR("peer", in->r->peer),
                                 KV_CSTR("why", d->err.text) };

    if (told(c, id.len ? id : address_of(in->r->peer), d->reason, in->now_ms))
        return;
    log_event(LOG_WARN,
              refuses ? "a request was refused; the next line about this key is in an hour"
                      : "identity.mode require would refuse a request; the next line about this "
                        "key is in an hour",
              kv, ARRAY_LEN(kv));
}

void identity_count_add(struct identity_count *c, const struct decide_in *in,
                        const struct decision *d, bool refuses)
{
    const char *result = !d->code ? "admitted" : refuses ? "refused" : "observed";
    struct str values[] = { str_c(result), str_c(d->reason) };
    struct str route[] = { str_c(in->door->path), str_c(d->reason) };

    metric_add(metric_at(c->requests, values, ARRAY_LEN(values)), 1);
    if (!d->code)
        return;
    if (!refuses)
        metric_add(metric_at(c->would_refuse, route, ARRAY_LEN(route)), 1);
    tell(c, in, d, refuses);
}
