/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant_queues.c: a tenant's record lives while it has queries here, or limits of its own.
 *
 * Starting a query may end it at once (no thread, no time left), which is a tenant_queue_leave
 * inside of `pump`: the inner call starts nothing, and the outer pump looks again. So the stack
 * does not grow with the queue.
 */
#include "querier/base/tenant_queues.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/tenant_id.h"

#define GUESS_US 10000    /* a query */
#define DEBT_US  60000000 /* what one long query costs its tenant, at most */

struct tenant_queue_tenant {
    struct str name; /* owned */
    uint64_t key;
    struct tenant_queue_limits limits;
    struct tenant_queue_limits own; /* where it is kept */
    struct budget bytes;
    size_t queries, waiting;
    bool kept; /* has limits of its own */
};
struct tenant_queues {
    struct tenant_queues_opts o;
    struct fair *fair; /* limits of running queries are looked at here: they differ */
    struct map_str *tenants;
    void (*limits)(void *cookie, struct str tenant, struct tenant_queue_limits *l);
    void *limits_cookie;
    bool pumping, again;
};

struct tenant_queues *tenant_queues_new(const struct tenant_queues_opts *o)
{
    struct tenant_queues *t = XNEW(struct tenant_queues);

    t->o = *o;
    t->fair = fair_new(&(struct fair_opts){ .debt_max = DEBT_US });
    t->tenants = map_str_new();
    return t;
}

static void forget(struct tenant_queues *t, struct tenant_queue_tenant *n)
{
    CHECK(n->queries == 0 && n->bytes.used == 0);
    (void)map_str_del(t->tenants, n->name);
    xfree((void *)(uintptr_t)n->name.ptr);
    xfree(n);
}

void tenant_queues_free(struct tenant_queues *t)
{
    size_t pos = 0;
    struct str name;
    void *n;

    if (!t)
        return;
    while (map_str_next(t->tenants, &pos, &name, &n)) {
        forget(t, n);
        pos = 0;
    }
    map_str_free(t->tenants);
    fair_free(t->fair);
    xfree(t);
}

struct tenant_queue_limits tenant_queues_limits_of(const struct tenant_queues *t, struct str tenant)
{
    const struct tenant_queue_tenant *n = map_str_get(t->tenants, tenant);
    struct tenant_queue_limits l = n && n->kept ? n->own : t->o.limits;

    if (t->limits)
        t->limits(t->limits_cookie, tenant, &l);
    return l;
}

static void set_limits_of(struct tenant_queues *t, struct tenant_queue_tenant *n)
{
    n->limits = tenant_queues_limits_of(t, n->name);
    n->bytes.max = n->limits.bytes;
    fair_limit(t->fair, n->key, n->limits.running);
}

static struct tenant_queue_tenant *tenant_of_name(struct tenant_queues *t, struct str name)
{
    struct tenant_queue_tenant *n = map_str_get(t->tenants, name);
    char *copy;

    if (n)
        return n;
    n = XNEW(struct tenant_queue_tenant);
    copy = xmalloc(name.len + 1);
    memcpy(copy, name.ptr, name.len);
    n->name = str_n(copy, name.len);
    n->key = hash64(name.ptr, name.len, t->o.seed);
    budget_init(&n->bytes, 0);
    (void)map_str_put(t->tenants, n->name, n);
    set_limits_of(t, n);
    return n;
}

void tenant_queues_override(struct tenant_queues *t, struct str tenant,
                            const struct tenant_queue_limits *limits)
{
    struct tenant_queue_tenant *n = tenant_of_name(t, tenant);

    CHECK(n->queries == 0);
    n->own = *limits;
    n->kept = true;
    set_limits_of(t, n);
}

/* ---- limits of a tenant -----------------------------------------------------------------------*/

static bool set_limit(struct tenant_queue_limits *l, struct str name, uint64_t n)
{
    if (str_eqc(name, "queries") && n > 0)
        l->running = n;
    else if (str_eqc(name, "queue"))
        l->waiting = n;
    else if (str_eqc(name, "bytes") && n > 0)
        l->bytes = n;
    else if (str_eqc(name, "read_bytes"))
        l->read_bytes = n;
    else
        return false;
    return true;
}

NODISCARD int tenant_queue_limits_parse(struct str text, struct str *ret_tenant,
                                        struct tenant_queue_limits *ret, struct err *e)
{
    ptrdiff_t eq = str_find(text, '=');
    struct str rest, part;
    struct err why;
    bool more = true;
    uint64_t n;

    if (eq < 1)
        return err_set(e, ERR_CONFIG, "\"%.*s\": want tenant=queries:8 queue:64 bytes:1GiB",
                       STR_ARG(text));
    *ret_tenant = str_trim(str_sub(text, 0, (size_t)eq));
    if (tenant_id_check(*ret_tenant, &why)) /* would never be found */
        return err_set(e, ERR_CONFIG, "\"%.*s\": %s", STR_ARG(text), why.text);
    rest = str_sub(text, (size_t)eq + 1, text.len);
    while (str_next(&rest, ' ', &more, &part)) {
        ptrdiff_t colon = str_find(part, ':');
        if (part.len && (colon < 1 || !str_bytes(str_sub(part, (size_t)colon + 1, part.len), &n) ||
                         !set_limit(ret, str_sub(part, 0, (size_t)colon), n)))
            return err_set(e, ERR_CONFIG,
                           "\"%.*s\": \"%.*s\" is not a limit; want queries:8, queue:64, "
                           "bytes:1GiB or read_bytes:10GiB",
                           STR_ARG(text), STR_ARG(part));
    }
    return 0;
}

/* ---- the next query ---------------------------------------------------------------------------*/

static void pump(struct tenant_queues *t, const struct tenant_queue *watch, bool *waits)
{
    struct fair_item *i;

    t->again = true;
    if (t->pumping)
        return;
    t->pumping = true;
    while (t->again) {
        t->again = false;
        while (fair_running(t->fair) < t->o.running_max && (i = fair_next(t->fair))) {
            struct tenant_queue *n = container_of(i, struct tenant_queue, item);
            fair_take(t->fair, i);
            n->tenant->waiting--;
            if (n == watch)
                *waits = false;
            n->go(n->cookie);
        }
    }
    t->pumping = false;
}

void tenant_queues_limits(struct tenant_queues *t,
                          void (*fn)(void *cookie, struct str tenant,
                                     struct tenant_queue_limits *l),
                          void *cookie)
{
    size_t pos = 0;
    struct str name;
    void *n;

    t->limits = fn;
    t->limits_cookie = cookie;
    while (map_str_next(t->tenants, &pos, &name, &n))
        set_limits_of(t, n);
    pump(t, NULL, NULL);
}

NODISCARD int tenant_queue_enter(struct tenant_queues *t, struct str tenant, struct tenant_queue *n,
                                 bool *ret_waits, struct err *e)
{
    struct tenant_queue_tenant *who = tenant_of_name(t, tenant);
    const struct tenant_queue_limits *l = &who->limits;
    size_t running = who->queries - who->waiting;
    bool at_once =
        !who->waiting && running < l->running && fair_running(t->fair) < t->o.running_max;
    int code = 0;

    CHECK(!n->tenant && n->go);
    if (!at_once && who->waiting >= l->waiting)
        code = err_set(e, ERR_RATE,
                       "%zu queries of tenant %.*s run and %zu wait already "
                       "(querier.tenant_queries, querier.tenant_queue)",
                       running, (int)MIN(who->name.len, 150u), who->name.ptr, who->waiting);
    else if (!at_once && fair_waiting(t->fair) >= t->o.waiting_max)
        code =
            err_set(e, ERR_BUSY, "%zu queries wait already (querier.queue_max)", t->o.waiting_max);
    if (code) {
        if (!who->queries && !who->kept)
            forget(t, who);
        return code;
    }
    n->tenant = who;
    n->limits = *l;
    who->queries++;
    who->waiting++;
    CHECK(fair_push(t->fair, who->key, GUESS_US, &n->item));
    fair_limit(t->fair, who->key, l->running);
    *ret_waits = true;
    pump(t, n, ret_waits);
    return 0;
}

bool tenant_queue_waits(const struct tenant_queue *n)
{
    return n->tenant && !n->item.running;
}

void tenant_queue_leave(struct tenant_queues *t, struct tenant_queue *n, uint64_t took_us)
{
    struct tenant_queue_tenant *who = n->tenant;

    if (!who)
        return;
    n->tenant = NULL;
    if (n->item.running) {
        fair_done(t->fair, &n->item, took_us + 1);
    } else {
        fair_drop(t->fair, &n->item);
        who->waiting--;
    }
    if (--who->queries == 0 && !who->kept)
        forget(t, who);
    pump(t, NULL, NULL);
}

/* ---- memory -----------------------------------------------------------------------------------*/

NODISCARD int tenant_queue_bytes_take(struct tenant_queue *n, size_t bytes, struct err *e)
{
    if (budget_reserve(&n->tenant->bytes, bytes))
        return 0;
    return err_set(e, ERR_RATE,
                   "running queries of tenant %.*s use all of its %zu MiB of memory "
                   "(querier.tenant_bytes_max)",
                   (int)MIN(n->tenant->name.len, 150u), n->tenant->name.ptr,
                   (size_t)n->tenant->bytes.max / MIB);
}

void tenant_queue_bytes_give(struct tenant_queue *n, size_t bytes)
{
    budget_release(&n->tenant->bytes, bytes);
}

const struct tenant_queue_limits *tenant_queue_limits_of(const struct tenant_queue *n)
{
    return &n->limits;
}

size_t tenant_queues_running(const struct tenant_queues *t)
{
    return fair_running(t->fair);
}

size_t tenant_queues_waiting(const struct tenant_queues *t)
{
    return fair_waiting(t->fair);
}
