/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo: the index of kept files and of uploads, in memory; a scan rebuilds it.
 *
 * Quotas. A tenant over its bytes loses what it has not used for longest; a file alone larger than
 * that is refused. Where all tenants together have the total, the uploading tenant makes room in
 * the same way, and only it: one tenant cannot push out what another has. An unfinished upload is
 * stale after stale_ms and may be restarted; when the next upload begins it is dropped.
 *
 * There may be tens of thousands of entries, and all of this runs on the loop's thread: an entry
 * knows its place, uploads have a list of their own, and to make room the entries of the tenant are
 * sorted once.
 */
#include "distributor/parca/debuginfo/debuginfo.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"

struct debuginfo {
    struct debuginfo_opts o;
    char *dir; /* owned */
    struct map_str *by_key;
    VEC(struct debuginfo_entry *) all;     /* owned */
    VEC(struct debuginfo_entry *) uploads; /* of them, those that are not kept so far */
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
    x->hides = map_str_del(d->by_key, str_c(x->key)); /* its key is that of another entry */
    if (x->hides)
        x->hides->hidden_by = x;
    (void)map_str_put(d->by_key, str_c(x->key), x);
    x->at = d->all.len;
    vec_push(&d->all, x);
    return x;
}

static void upload_ends(struct debuginfo *d, const struct debuginfo_entry *x)
{
    vec_for (i, &d->uploads)
        if (d->uploads.ptr[i] == x) {
            d->uploads.ptr[i] = d->uploads.ptr[--d->uploads.len];
            return;
        }
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
    vec_free(&d->uploads);
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
    CHECK(d->all.ptr[x->at] == x);
    d->all.ptr[x->at] = d->all.ptr[--d->all.len];
    d->all.ptr[x->at]->at = x->at;
    if (x->state == DEBUGINFO_KEPT)
        d->bytes -= x->m.size;
    else
        upload_ends(d, x);
    if (x->hidden_by)
        x->hidden_by->hides = x->hides;
    else
        (void)map_str_del(d->by_key, str_c(x->key));
    if (x->hides)
        x->hides->hidden_by = x->hidden_by;
    if (x->hides && !x->hidden_by) /* a forced upload failed: the file that it hid counts again */
        (void)map_str_put(d->by_key, str_c(x->hides->key), x->hides);
    CHECK(x->temp.fd < 0);
    xfree(x->key);
    xfree(x);
}

/* Open or received, and its client sends nothing. While it is written it belongs to the writer,
 * which has a deadline. */
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

/* Drops uploads that were not finished, and counts the other ones of the tenant. */
static size_t uploads_of(struct debuginfo *d, struct str tenant)
{
    size_t n = 0;

    for (size_t i = d->uploads.len; i-- > 0;) {
        struct debuginfo_entry *x = d->uploads.ptr[i];
        if (is_stale(d, x)) {
            debuginfo_temp_drop(&x->temp);
            debuginfo_forget(d, x);
        } else {
            n += str_eq(str_c(x->m.tenant), tenant);
        }
    }
    return n;
}

int debuginfo_begin(struct debuginfo *d, const struct debuginfo_offer *offer,
                    struct debuginfo_entry **ret, struct err *e)
{
    struct debuginfo_meta m = { .type = offer->type, .started_ms = now(d) };
    const char *why;
    uint64_t id;

    if (debuginfo_id_check(offer->build_id, e))
        return e->code;
    if (!debuginfo_wanted(d, offer->tenant, offer->build_id, offer->type, offer->force, &why))
        return err_set(e, ERR_CONFLICT, "%s", why);
    const size_t open = uploads_of(d, offer->tenant);
    if (open >= DEBUGINFO_UPLOADS_MAX)
        return err_set(e, ERR_RATE, "%zu uploads of debug info are under way, at most %d: wait",
                       open, DEBUGINFO_UPLOADS_MAX);
    if (d->all.len >= DEBUGINFO_ENTRIES_MAX)
        return err_set(e, ERR_RATE,
                       "debug info of %d builds is stored, the most that a server can: lower "
                       "distributor.debuginfo_tenant_bytes, so that builds which are not used any "
                       "more make room",
                       DEBUGINFO_ENTRIES_MAX);
    set_text(m.tenant, sizeof(m.tenant), offer->tenant);
    set_text(m.build_id, sizeof(m.build_id), offer->build_id);
    set_text(m.hash, sizeof(m.hash), offer->hash);
    set_text(m.name, sizeof(m.name), offer->name);
    /* Until it is complete, a forced upload hides the file that is kept. */
    struct debuginfo_entry *x = add(d, &m);
    vec_push(&d->uploads, x);
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

static int by_use(const void *a, const void *b)
{
    const struct debuginfo_entry *const *x = a, *const *y = b;

    return (*x)->used < (*y)->used ? -1 : (*x)->used > (*y)->used;
}

int debuginfo_make_room(struct debuginfo *d, const struct debuginfo_entry *x,
                        struct debuginfo_goners *ret, struct err *e)
{
    VEC(struct debuginfo_entry *) kept = { 0 }; /* of the tenant */
    uint64_t mine = 0;

    vec_for (i, &d->all) {
        struct debuginfo_entry *at = d->all.ptr[i];
        if (at->state == DEBUGINFO_KEPT && strcmp(at->m.tenant, x->m.tenant) == 0) {
            mine += at->m.size;
            vec_push(&kept, at);
        }
    }
    if (x->m.size > d->o.tenant_bytes || d->bytes - mine + x->m.size > d->o.bytes) {
        vec_free(&kept);
        return err_set(e, ERR_RATE,
                       "debug info of %" PRIu64 " bytes has no room: %" PRIu64
                       " are kept, at most %" PRIu64 ", of one tenant %" PRIu64
                       " (distributor.debuginfo_bytes, debuginfo_tenant_bytes)",
                       x->m.size, d->bytes, d->o.bytes, d->o.tenant_bytes);
    }
    if (kept.len > 1)
        qsort(kept.ptr, kept.len, sizeof(*kept.ptr), by_use);
    for (size_t i = 0; mine + x->m.size > d->o.tenant_bytes || d->bytes + x->m.size > d->o.bytes;
         i++) {
        CHECK(i < kept.len);
        mine -= kept.ptr[i]->m.size;
        vec_push(ret, kept.ptr[i]->m);
        debuginfo_forget(d, kept.ptr[i]);
    }
    vec_free(&kept);
    return 0;
}

void debuginfo_keep(struct debuginfo *d, struct debuginfo_entry *x)
{
    if (x->hides) /* it had the same name on disk */
        debuginfo_forget(d, x->hides);
    upload_ends(d, x);
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
