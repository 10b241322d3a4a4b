/* SPDX-License-Identifier: Apache-2.0
 *
 * stored: asks the leader of each shard what each tenant's data take (RPC_SPACE, rows by tenant),
 * and adds the answers up.
 *
 *   rest ──stored_interval──> a round: LANES questions at a time ──last answer──> rest
 *
 * How exact it is. Counted are the bytes of table files, to about a block for each tenant, bucket
 * and kind of row, and of parts in the cold tier; a copy is not counted again. Not counted is what
 * is only in memtables and the write-ahead log of an ingester. What was deleted or has expired
 * counts until compaction has dropped it. The sum is as old as the last round: a tenant may go over
 * its limit by what it sends in that time, and by what memtables hold.
 *
 * A shard that does not answer in a round leaves the sum of each tenant at what it was, or at what
 * the others say if that is more. Before the first round ends nothing is known, and nothing is
 * refused.
 *
 * Cost: some index look-ups for each tenant, bucket and kind of row. A round is followed by a rest
 * of REST_FACTOR times the time it took, times the number of distributors, which all ask.
 */
#include "distributor/rules/stored.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/node/peers.h"
#include "common/role/core/options.h"
#include "distributor/base/state.h"
#include "distributor/rules/rules.h"
#include "proto/space.pb-c.h"

#define LANES             4
#define REST_FACTOR       50
#define ASK_MS            30000
#define IDLE_MS           1000
#define TENANTS_MAX_KNOWN 200000 /* more are not counted */
#define REQUEST_MAX       (4 * KIB)

struct amount {
    char *name; /* owned */
    uint64_t bytes;
};
struct lane {
    struct stored *s;
    struct route_call *call; /* NULL: it rests */
};
struct stored {
    struct distributor *d;
    struct timer *timer;
    const char *own;            /* tenant of this server's own profiles; borrowed */
    struct map_str *now, *next; /* of struct amount, owned; next: of the round under way, or NULL */
    struct lane lanes[LANES];
    size_t target, running, failed;
    uint64_t began_ms;
    struct metric_cell *rounds, *failures;
};

static uint64_t now_ms(const struct stored *s)
{
    return clock_mono_ms(s->d->ctx->env->clock);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static void amounts_free(struct map_str *m)
{
    size_t pos = 0;
    struct str name;
    void *val;

    if (!m)
        return;
    while (map_str_next(m, &pos, &name, &val)) {
        struct amount *a = val;
        xfree(a->name);
        xfree(a);
    }
    map_str_free(m);
}

static struct amount *amount_of(struct map_str *m, struct str tenant)
{
    struct amount *a = map_str_get(m, tenant);

    if (a || map_str_len(m) >= TENANTS_MAX_KNOWN)
        return a;
    a = XNEW(struct amount);
    a->name = xmemdup(tenant.ptr, tenant.len);
    (void)map_str_put(m, str_n(a->name, tenant.len), a);
    return a;
}

static void add_rows(struct stored *s, const Embertree__SpaceReply *r)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        const Embertree__SpaceRow *row = r->rows[i];
        if (!row->tenant.len)
            continue;
        struct amount *a = amount_of(s->next, str_n(row->tenant.data, row->tenant.len));
        if (a)
            a->bytes += row->bytes + row->far_bytes;
    }
}

/* Some shards did not answer: no tenant has less than before. */
static void keep_old(struct stored *s)
{
    size_t pos = 0;
    struct str name;
    void *val;

    while (map_str_next(s->now, &pos, &name, &val)) {
        const struct amount *old = val;
        struct amount *a = amount_of(s->next, name);
        if (a)
            a->bytes = MAX(a->bytes, old->bytes);
    }
}

/* ---- a round -------------------------------------------------------------------------------- */

static void pump(struct stored *s);

static void end_round(struct stored *s)
{
    uint64_t peers = s->d->peers ? peers_count(s->d->peers) : 1;
    uint64_t rest = (now_ms(s) - s->began_ms) * REST_FACTOR * peers;

    if (s->failed)
        keep_old(s);
    amounts_free(s->now);
    s->now = s->next;
    s->next = NULL;
    metric_add(s->rounds, 1);
    metric_add(s->failures, s->failed);
    loop_timer_start(s->timer, MAX(rest, s->d->conf->stored_interval_ms), 0);
}

static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct lane *l = cookie;
    struct stored *s = l->s;
    Embertree__SpaceReply *r = err ? NULL
                                   : embertree__space_reply__unpack(
                                         NULL, reply.len, (const uint8_t *)(const void *)reply.ptr);

    l->call = NULL;
    s->running--;
    if (r)
        add_rows(s, r);
    else
        s->failed++;
    if (r)
        embertree__space_reply__free_unpacked(r, NULL);
    pump(s);
}

static void ask(struct stored *s, struct lane *l)
{
    Embertree__SpaceRequest m = EMBERTREE__SPACE_REQUEST__INIT;
    uint32_t shard = (uint32_t)s->target;
    struct buf out;

    m.tenants = true;
    if (route_moves(s->d->route)) { /* a target is a shard; else an ingester with all its shards */
        m.shards = &shard;
        m.n_shards = 1;
    }
    buf_init(&out, REQUEST_MAX);
    char *p = buf_room(&out, embertree__space_request__get_packed_size(&m));
    CHECK(p);
    out.len += embertree__space_request__pack(&m, (uint8_t *)(void *)p);
    s->running++;
    l->call = route_ask(s->d->route,
                        &(struct route_query){ .target = s->target++,
                                               .method = RPC_SPACE,
                                               .deadline_ms = ASK_MS,
                                               .done = on_reply,
                                               .cookie = l },
                        &out);
}

static void pump(struct stored *s)
{
    if (s->d->closing)
        return;
    for (size_t i = 0; i < LANES && s->target < route_targets(s->d->route); i++)
        if (!s->lanes[i].call)
            ask(s, &s->lanes[i]);
    if (!s->running)
        end_round(s);
}

static void on_timer(void *cookie)
{
    struct stored *s = cookie;

    if (!rules_limit_stored(s->d->rules) || !s->d->ctx->tenancy->multi ||
        !route_shards(s->d->route)) {
        loop_timer_start(s->timer, IDLE_MS, 0);
        return;
    }
    s->began_ms = now_ms(s);
    s->target = s->failed = 0;
    s->next = map_str_new();
    pump(s);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct metric_cell *cell(struct stored *s, const char *name, const char *help)
{
    return metric_at(metric_new(s->d->ctx->metrics, METRIC_COUNTER, name, help, NULL), NULL, 0);
}

struct stored *stored_new(struct distributor *d)
{
    struct stored *s = XNEW(struct stored);

    s->d = d;
    s->now = map_str_new();
    const struct selfprof_conf *own = conf_get(d->ctx->conf, &selfprof_options);
    s->own = own->tenant;
    for (size_t i = 0; i < LANES; i++)
        s->lanes[i].s = s;
    s->rounds = cell(s, "embertree_distributor_stored_rounds_total",
                     "Times all shards were asked what tenants have stored");
    s->failures = cell(s, "embertree_distributor_stored_failures_total",
                       "Of those questions, without an answer");
    s->timer = loop_timer_new(d->ctx->loop, on_timer, s);
    loop_timer_start(s->timer, IDLE_MS, 0);
    return s;
}

void stored_free(struct stored *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < LANES; i++)
        route_cancel(s->lanes[i].call);
    loop_timer_free(s->timer);
    amounts_free(s->now);
    amounts_free(s->next);
    xfree(s);
}

bool stored_counts(const struct stored *s, struct str tenant)
{
    return s && s->d->ctx->tenancy->multi && !str_eqc(tenant, s->own);
}

uint64_t stored_bytes(const struct stored *s, struct str tenant)
{
    const struct amount *a = map_str_get(s->now, tenant);

    return a ? a->bytes : 0;
}
