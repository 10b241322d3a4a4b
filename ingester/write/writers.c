/* SPDX-License-Identifier: Apache-2.0
 *
 * writers: an entry per tenant, from its first write that waits here to the end of its last one.
 * There are never more entries than writes, so writes_max bounds them.
 *
 * The number of writes is a budget like that of bytes: thousands of small writes would otherwise
 * fill it long before their bytes are noticed.
 */
#include "ingester/write/writers.h"

#include "common/base/map.h"
#include "common/base/mem.h"

struct writer {
    struct writers *ws;
    struct str name; /* owned */
    struct share bytes, writes;
    size_t users; /* writes */
};

struct writers {
    struct writers_opts o;
    struct budget writes;
    struct map_str *by_name; /* of struct writer, owned */
    struct writer one;       /* of all writes, where there is one tenant */
};

struct writers *writers_new(const struct writers_opts *o)
{
    struct writers *ws = XNEW(struct writers);

    ws->o = *o;
    budget_init(&ws->writes, o->writes_max);
    ws->by_name = map_str_new();
    ws->one.ws = ws;
    return ws;
}

void writers_free(struct writers *ws)
{
    if (!ws)
        return;
    CHECK(map_str_len(ws->by_name) == 0);
    map_str_free(ws->by_name);
    xfree(ws);
}

static struct share *share_of(struct writer *w, struct share *s)
{
    return w->ws->o.many ? s : NULL;
}

static void drop(struct writer *w)
{
    char *name;

    if (--w->users || w == &w->ws->one)
        return;
    (void)map_str_del(w->ws->by_name, w->name);
    memcpy(&name, &w->name.ptr, sizeof(name));
    xfree(name);
    xfree(w);
}

static int refuse_bytes(const struct writer *w, enum share_result why, struct err *e)
{
    const struct budget *b = w->ws->o.bytes;

    if (why == SHARE_OVER)
        return err_set(e, ERR_RATE,
                       "in_flight_limit: writes of this tenant hold %zu KiB, its share of the %zu "
                       "MiB that an ingester has for writes under way (a part of memory.limit); "
                       "send fewer at once and try again",
                       share_held(&w->bytes) / KIB, b->max / MIB);
    return err_set(e, ERR_BUSY, "writes on their way hold all of %zu MiB", b->max / MIB);
}

static int refuse_writes(const struct writer *w, enum share_result why, struct err *e)
{
    if (why == SHARE_OVER)
        return err_set(e, ERR_RATE,
                       "in_flight_limit: %zu writes of this tenant wait for the disk, its share of "
                       "the %zu of ingester.writes_max; send fewer at once and try again",
                       share_held(&w->writes), w->ws->o.writes_max);
    return err_set(e, ERR_BUSY, "%zu writes wait for the disk already", w->ws->o.writes_max);
}

static struct writer *find(struct writers *ws, struct str tenant)
{
    struct writer *w = ws->o.many ? map_str_get(ws->by_name, tenant) : &ws->one;

    if (w)
        return w;
    w = XNEW(struct writer);
    w->ws = ws;
    w->name = str_n(xmemdup(tenant.ptr, tenant.len), tenant.len);
    (void)map_str_put(ws->by_name, w->name, w);
    return w;
}

int writers_enter(struct writers *ws, struct str tenant, size_t bytes, struct writer **ret,
                  struct err *e)
{
    struct writer *w = find(ws, tenant);
    enum share_result r;

    w->users++;
    r = share_take(share_of(w, &w->writes), &ws->writes, 0, 1);
    if (r != SHARE_TAKEN) {
        (void)refuse_writes(w, r, e);
        drop(w);
        return e->code;
    }
    r = share_take(share_of(w, &w->bytes), ws->o.bytes, 0, bytes);
    if (r != SHARE_TAKEN) {
        (void)refuse_bytes(w, r, e);
        share_give(share_of(w, &w->writes), &ws->writes, 1);
        drop(w);
        return e->code;
    }
    *ret = w;
    return 0;
}

int writers_more(struct writer *w, size_t own, size_t n, struct err *e)
{
    enum share_result r = share_take(share_of(w, &w->bytes), w->ws->o.bytes, own, n);

    return r == SHARE_TAKEN ? 0 : refuse_bytes(w, r, e);
}

void writers_leave(struct writer *w, size_t bytes)
{
    share_give(share_of(w, &w->bytes), w->ws->o.bytes, bytes);
    share_give(share_of(w, &w->writes), &w->ws->writes, 1);
    drop(w);
}

size_t writers_pending(const struct writers *ws)
{
    return ws->writes.used;
}

size_t writers_len(const struct writers *ws)
{
    return map_str_len(ws->by_name);
}
