/* SPDX-License-Identifier: Apache-2.0
 *
 * limits_file: read on the loop every overrides_interval, parsed only if its bytes changed. A file
 * that cannot be read or is wrong leaves the old one in force, is logged once and counted. Queries
 * that run keep what they were let in with; the tenant's number and memory change at once.
 */
#include "querier/base/limits_file.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/conf/conf_tree.h"
#include "common/model/tenant_id.h"
#include "common/obs/log.h"
#include "querier/base/state.h"

#define ARENA_MAX (16 * MIB)
#define COUNT_MAX 1000000

/* What a row says; what it does not is left as it is. */
struct row {
    bool has_running, has_waiting, has_bytes, has_read;
    struct tenant_queue_limits l;
};
struct limits_file {
    struct arena *arena; /* of the names */
    struct row defaults;
    struct map_str *tenants; /* of struct row, in the arena */
};

static int read_row(const struct conf_node *n, const char *file, struct row *ret, struct err *e)
{
    static const char *const keys[] = { "queries", "queue", "bytes", "read_bytes", NULL };
    const struct conf_node *queries = conf_node_get(n, "queries"),
                           *queue = conf_node_get(n, "queue"), *bytes = conf_node_get(n, "bytes"),
                           *read = conf_node_get(n, "read_bytes");
    uint64_t running = 0, waiting = 0, memory = 0;

    if (conf_node_keys(n, file, keys, e) ||
        conf_node_u64(queries, file, 1, COUNT_MAX, &running, e) ||
        conf_node_u64(queue, file, 0, COUNT_MAX, &waiting, e) ||
        conf_node_bytes(bytes, file, 1, UINT64_MAX / 2, &memory, e) ||
        conf_node_bytes(read, file, 0, UINT64_MAX / 2, &ret->l.read_bytes, e))
        return e->code;
    ret->l.running = running;
    ret->l.waiting = waiting;
    ret->l.bytes = memory;
    ret->has_running = queries;
    ret->has_waiting = queue;
    ret->has_bytes = bytes;
    ret->has_read = read;
    return 0;
}

static int read_tenants(struct limits_file *f, const struct conf_node *list, const char *file,
                        struct err *e)
{
    if (!list || list->kind == CONF_NODE_NULL)
        return 0;
    if (conf_node_is(list, file, CONF_NODE_MAP, e))
        return e->code;
    if (list->len > LIMITS_FILE_TENANTS_MAX)
        return conf_node_fail(list, file, e, "more than %d tenants", LIMITS_FILE_TENANTS_MAX);
    for (const struct conf_node *n = list->first; n; n = n->next) {
        struct row *r = ARENA_NEW(f->arena, struct row);
        struct err why;
        if (tenant_id_check(n->key, &why)) /* would never be found */
            return conf_node_fail(n, file, e, "%s", why.text);
        if (!r)
            return conf_node_fail(n, file, e, "the file is too large");
        if (read_row(n, file, r, e))
            return e->code;
        (void)map_str_put(f->tenants, n->key, r);
    }
    return 0;
}

NODISCARD int limits_file_parse(const char *file, struct str text, struct limits_file **ret,
                                struct err *e)
{
    static const char *const keys[] = { "defaults", "tenants", NULL };
    struct limits_file *f = XNEW(struct limits_file);
    struct conf_node *root;

    f->arena = arena_new(ARENA_MAX);
    f->tenants = map_str_new();
    int rc = conf_tree_parse(file, text, f->arena, &root, e);
    if (!rc && root->kind != CONF_NODE_NULL) {
        const struct conf_node *defaults = conf_node_get(root, "defaults");
        rc = conf_node_keys(root, file, keys, e);
        if (!rc && defaults)
            rc = read_row(defaults, file, &f->defaults, e);
        if (!rc)
            rc = read_tenants(f, conf_node_get(root, "tenants"), file, e);
    }
    if (rc) {
        limits_file_free(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void limits_file_free(struct limits_file *f)
{
    if (!f)
        return;
    map_str_free(f->tenants);
    arena_free(f->arena);
    xfree(f);
}

static void apply(const struct row *r, struct tenant_queue_limits *l)
{
    if (r->has_running)
        l->running = r->l.running;
    if (r->has_waiting)
        l->waiting = r->l.waiting;
    if (r->has_bytes)
        l->bytes = r->l.bytes;
    if (r->has_read)
        l->read_bytes = r->l.read_bytes;
}

void limits_file_apply(const struct limits_file *f, struct str tenant,
                       struct tenant_queue_limits *l)
{
    const struct row *r = map_str_get(f->tenants, tenant);

    apply(&f->defaults, l);
    if (r)
        apply(r, l);
}

void turn_limits_format(const struct tenant_queue_limits *l, struct buf *out)
{
    buf_addf(out, "queries: %zu\nqueue: %zu\nbytes: %zu\nread_bytes: %" PRIu64 "\n", l->running,
             l->waiting, l->bytes, l->read_bytes);
}

/* ---- in force ---- */

struct limits_watch {
    struct querier *qr;
    struct limits_file *now; /* owned */
    struct hash128 tried;    /* of the bytes last seen */
    bool failed;             /* they, or the file, were wrong */
    struct timer *timer;
    struct metric *reloads;
};

static void limits_of(void *cookie, struct str tenant, struct tenant_queue_limits *l)
{
    const struct limits_watch *w = cookie;

    limits_file_apply(w->now, tenant, l);
}

static int load(struct limits_watch *w, bool *ret_changed, struct err *e)
{
    const char *file = w->qr->conf->overrides_file;
    const struct fs *fs = w->qr->ctx->env->fs;
    struct limits_file *fresh;
    struct buf text;

    *ret_changed = false;
    buf_init(&text, LIMITS_FILE_MAX);
    int rc = fs->read_file(fs, file, &text, e);
    struct hash128 h = hash128(text.ptr, text.len, 1);
    if (!rc && (w->failed || !w->now || h.lo != w->tried.lo || h.hi != w->tried.hi)) {
        *ret_changed = h.lo != w->tried.lo || h.hi != w->tried.hi;
        w->tried = h;
        rc = limits_file_parse(file, buf_str(&text), &fresh, e);
        if (!rc) {
            limits_file_free(w->now);
            w->now = fresh;
            tenant_queues_limits(w->qr->turns, limits_of, w);
        }
    }
    buf_deinit(&text);
    return rc ? err_wrap(e, "querier.overrides_file") : 0;
}

static void on_timer(void *cookie)
{
    struct limits_watch *w = cookie;
    bool changed, failed = w->failed;
    struct str result;
    struct err e;

    w->failed = load(w, &changed, &e) != 0;
    if (w->failed ? !changed && failed : !changed && !failed)
        return;
    if (w->failed)
        log_error("the overrides file is refused; the old limits stay in force", KV_ERR(&e));
    else
        log_info("limits of queries loaded", KV_CSTR("file", w->qr->conf->overrides_file));
    result = w->failed ? STR("failed") : STR("loaded");
    metric_add(metric_at(w->reloads, &result, 1), 1);
}

NODISCARD int limits_watch_new(struct querier *qr, struct limits_watch **ret, struct err *e)
{
    struct limits_watch *w;
    bool changed;

    *ret = NULL;
    if (!qr->conf->overrides_file[0])
        return 0;
    w = XNEW(struct limits_watch);
    w->qr = qr;
    w->reloads =
        metric_new(qr->ctx->metrics, METRIC_COUNTER, "embertree_querier_overrides_reloads_total",
                   "Changes of the querier's overrides file seen, by result", "result");
    if (load(w, &changed, e)) {
        limits_watch_free(w);
        return e->code;
    }
    w->timer = loop_timer_new(qr->ctx->loop, on_timer, w);
    loop_timer_start(w->timer, qr->conf->overrides_interval_ms, qr->conf->overrides_interval_ms);
    *ret = w;
    return 0;
}

void limits_watch_free(struct limits_watch *w)
{
    if (!w)
        return;
    loop_timer_free(w->timer);
    tenant_queues_limits(w->qr->turns, NULL, NULL);
    limits_file_free(w->now);
    xfree(w);
}
