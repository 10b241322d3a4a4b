/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo: the index of kept files and of uploads, in memory; a scan rebuilds it.
 *
 * Quotas. A tenant over its bytes loses what it has not used for longest; a file alone larger than
 * that is refused. Where all tenants together have the total, the uploading tenant makes room in
 * the same way, and only it: one tenant cannot push out what another has. An upload that nobody
 * finished is stale after stale_ms and may be begun anew.
 */
#include "distributor/parca/debuginfo.h"

#include <stdio.h>

#include "common/base/map.h"

#define ENTRIES_MAX 65536

struct debuginfo {
    struct debuginfo_opts o;
    char *dir; /* owned */
    struct map_str *by_key;
    VEC(struct debuginfo_entry *) all; /* owned */
    uint64_t uses, bytes;
};

static char *key_of(struct str tenant, struct str build_id, enum debuginfo_type type)
{
    size_t size = tenant.len + build_id.len + 8;
    char *key = xmalloc(size);

    (void)snprintf(key, size, "%d %.*s %.*s", (int)type, STR_ARG(tenant), STR_ARG(build_id));
    return key;
}

static void set_text(char *to, size_t size, struct str from)
{
    size_t n = 0;

    for (size_t i = 0; i < from.len && n + 1 < size; i++)
        if (from.ptr[i] >= ' ' && from.ptr[i] <= '~')
            to[n++] = from.ptr[i];
    to[n] = 0;
}

static struct debuginfo_entry *add(struct debuginfo *d, const struct debuginfo_meta *m)
{
    struct debuginfo_entry *x = XNEW(struct debuginfo_entry);

    x->m = *m;
    x->temp.fd = -1;
    x->key = key_of(str_c(m->tenant), str_c(m->build_id), m->type);
    x->used = ++d->uses;
    (void)map_str_del(d->by_key, str_c(x->key)); /* its key is that of another entry */
    (void)map_str_put(d->by_key, str_c(x->key), x);
    vec_push(&d->all, x);
    return x;
}

static void scanned(void *cookie, const struct debuginfo_meta *m)
{
    struct debuginfo *d = cookie;

    add(d, m)->state = DEBUGINFO_KEPT;
    d->bytes += m->size;
}

int debuginfo_new(const struct debuginfo_opts *o, struct debuginfo **ret, struct err *e)
{
    struct debuginfo *d = XNEW(struct debuginfo);

    d->o = *o;
    d->o.dir = d->dir = xstrdup(o->dir);
    d->by_key = map_str_new();
    if (debuginfo_scan(o->dir, o->env->fs, scanned, d, e)) {
        debuginfo_free(d);
        return e->code;
    }
    *ret = d;
    return 0;
}

void debuginfo_free(struct debuginfo *d)
{
    if (!d)
        return;
    vec_for (i, &d->all) {
        struct debuginfo_entry *x = d->all.ptr[i];
        debuginfo_temp_drop(&x->temp);
        xfree(x->key);
        xfree(x);
    }
    vec_free(&d->all);
    map_str_free(d->by_key);
    xfree(d->dir);
    xfree(d);
}

const struct debuginfo_opts *debuginfo_opts(const struct debuginfo *d)
{
    return &d->o;
}

static int64_t now(const struct debuginfo *d)
{
    return clock_wall_ms(d->o.env->clock);
}

void debuginfo_forget(struct debuginfo *d, struct debuginfo_entry *x)
{
    size_t i = 0;

    while (d->all.ptr[i] != x)
        i++;
    d->all.ptr[i] = d->all.ptr[--d->all.len];
    if (x->state == DEBUGINFO_KEPT)
        d->bytes -= x->m.size;
    if (map_str_get(d->by_key, str_c(x->key)) == x) {
        (void)map_str_del(d->by_key, str_c(x->key));
        for (i = 0; i < d->all.len; i++) /* a forced upload failed: what was there counts again */
            if (strcmp(d->all.ptr[i]->key, x->key) == 0)
                (void)map_str_put(d->by_key, str_c(d->all.ptr[i]->key), d->all.ptr[i]);
    }
    CHECK(x->temp.fd < 0);
    xfree(x->key);
    xfree(x);
}

/* Open or received, and nobody comes. Being written it is the writer's, who has a deadline. */
static bool is_stale(const struct debuginfo *d, const struct debuginfo_entry *x)
{
    return (x->state == DEBUGINFO_OPEN || x->state == DEBUGINFO_RECEIVED) &&
           now(d) - x->m.started_ms > (int64_t)d->o.stale_ms;
}

struct debuginfo_entry *debuginfo_find(struct debuginfo *d, struct str tenant, struct str build_id,
                                       enum debuginfo_type type)
{
    char *key = key_of(tenant, build_id, type);
    struct debuginfo_entry *x = map_str_get(d->by_key, str_c(key));

    xfree(key);
    if (x && is_stale(d, x)) {
        debuginfo_temp_drop(&x->temp);
        debuginfo_forget(d, x);
        return NULL;
    }
    if (x && x->state == DEBUGINFO_KEPT)
        x->used = ++d->uses;
    return x;
}

bool debuginfo_wanted(struct debuginfo *d, struct str tenant, struct str build_id,
                      enum debuginfo_type type, bool force, const char **ret_why)
{
    struct debuginfo_entry *x;
    struct err e;

    *ret_why = "This server keeps no debug info.";
    if (d->o.bytes == 0)
        return false;
    *ret_why = "The build ID is empty, too long, or has characters that none has.";
    if (debuginfo_id_check(build_id, &e))
        return false;
    x = debuginfo_find(d, tenant, build_id, type);
    if (!x) {
        *ret_why = "This build ID is not known yet.";
        return true;
    }
    if (x->state != DEBUGINFO_KEPT) {
        *ret_why = DEBUGINFO_IN_PROGRESS;
        return false;
    }
    *ret_why = force ? "It is here already, and the upload is forced."
                     : "It is here already, and nothing says that it is wrong.";
    return force;
}

int debuginfo_begin(struct debuginfo *d, struct str tenant, struct str build_id,
                    enum debuginfo_type type, struct str hash, struct str name, bool force,
                    struct debuginfo_entry **ret, struct err *e)
{
    struct debuginfo_meta m = { .type = type, .started_ms = now(d) };
    const char *why;
    size_t open = 0;
    uint64_t id;

    if (debuginfo_id_check(build_id, e))
        return e->code;
    if (!debuginfo_wanted(d, tenant, build_id, type, force, &why))
        return err_set(e, ERR_CONFLICT, "%s", why);
    vec_for (i, &d->all)
        open += d->all.ptr[i]->state != DEBUGINFO_KEPT && !is_stale(d, d->all.ptr[i]) &&
                str_eq(str_c(d->all.ptr[i]->m.tenant), tenant);
    if (open >= DEBUGINFO_UPLOADS_MAX || d->all.len >= ENTRIES_MAX)
        return err_set(e, ERR_RATE, "%zu uploads of debug info are under way, at most %d: wait",
                       open, DEBUGINFO_UPLOADS_MAX);
    set_text(m.tenant, sizeof(m.tenant), tenant);
    set_text(m.build_id, sizeof(m.build_id), build_id);
    set_text(m.hash, sizeof(m.hash), hash);
    set_text(m.name, sizeof(m.name), name);
    /* A forced one stands before the kept one until it is whole. */
    struct debuginfo_entry *x = add(d, &m);
    d->o.env->random(d->o.env, &id, sizeof(id));
    (void)snprintf(x->upload_id, sizeof(x->upload_id), "%016" PRIx64, id);
    *ret = x;
    return 0;
}

int debuginfo_claim(struct debuginfo_entry *x, struct str upload_id, struct err *e)
{
    if (!x || x->state != DEBUGINFO_OPEN || (upload_id.len && !str_eqc(upload_id, x->upload_id)))
        return err_set(e, ERR_CONFIG, "no upload of that build id was begun, or not this one");
    x->state = DEBUGINFO_WRITING;
    return 0;
}

static struct debuginfo_entry *oldest(struct debuginfo *d, const struct debuginfo_entry *x)
{
    struct debuginfo_entry *found = NULL;

    vec_for (i, &d->all) {
        struct debuginfo_entry *at = d->all.ptr[i];
        if (at->state == DEBUGINFO_KEPT && strcmp(at->m.tenant, x->m.tenant) == 0 &&
            (!found || at->used < found->used))
            found = at;
    }
    return found;
}

int debuginfo_make_room(struct debuginfo *d, const struct debuginfo_entry *x,
                        struct debuginfo_goners *ret, struct err *e)
{
    uint64_t mine = 0;

    vec_for (i, &d->all) {
        struct debuginfo_entry *at = d->all.ptr[i];
        if (at->state == DEBUGINFO_KEPT && strcmp(at->m.tenant, x->m.tenant) == 0)
            mine += at->m.size;
    }
    if (x->m.size > d->o.tenant_bytes || d->bytes - mine + x->m.size > d->o.bytes)
        return err_set(e, ERR_RATE,
                       "debug info of %" PRIu64 " bytes has no room: %" PRIu64
                       " are kept, at most %" PRIu64 ", of one tenant %" PRIu64
                       " (distributor.debuginfo_bytes, debuginfo_tenant_bytes)",
                       x->m.size, d->bytes, d->o.bytes, d->o.tenant_bytes);
    while (mine + x->m.size > d->o.tenant_bytes || d->bytes + x->m.size > d->o.bytes) {
        struct debuginfo_entry *old = oldest(d, x);
        CHECK(old);
        mine -= old->m.size;
        vec_push(ret, old->m);
        debuginfo_forget(d, old);
    }
    return 0;
}

void debuginfo_keep(struct debuginfo *d, struct debuginfo_entry *x)
{
    /* What it replaces had the same name on disk. */
    for (size_t i = 0; i < d->all.len; i++) {
        struct debuginfo_entry *at = d->all.ptr[i];
        if (at != x && at->state == DEBUGINFO_KEPT && strcmp(at->key, x->key) == 0) {
            debuginfo_forget(d, at);
            break;
        }
    }
    (void)map_str_del(d->by_key, str_c(x->key));
    (void)map_str_put(d->by_key, str_c(x->key), x);
    x->state = DEBUGINFO_KEPT;
    x->used = ++d->uses;
    d->bytes += x->m.size;
}

void debuginfo_each(struct debuginfo *d, struct str tenant,
                    void (*fn)(void *cookie, const struct debuginfo_entry *x), void *cookie)
{
    vec_for (i, &d->all)
        if (str_eq(str_c(d->all.ptr[i]->m.tenant), tenant))
            fn(cookie, d->all.ptr[i]);
}

uint64_t debuginfo_bytes(const struct debuginfo *d)
{
    return d->bytes;
}
