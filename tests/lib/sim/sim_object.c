/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_object: objects in memory, in order of their names. A request goes there and back, in a fiber
 * that waits so long each way; a caller outside of a fiber (queries, on a pool without threads)
 * gets its answer at once, or none if it would take longer than the caller may wait.
 *
 * What a request becomes is drawn when it is sent:
 *
 *   done ─ answered           not done ─ ERR_UNAVAILABLE
 *        └ ERR_TIMEOUT        done seconds later ─ ERR_TIMEOUT now
 */
#include "tests/lib/sim/sim_object.h"

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/object/object_impl.h"
#include "common/sys/fiber.h"

#define AWAY_MS 1500
#define LATE_MS 12000

struct object {
    char *name;
    struct buf data;
};
struct sim_bucket {
    struct loop *loop;
    struct prng p;
    struct sim_stats *stats;
    int mutant;
    struct sim_bucket_faults faults;
    VEC(struct object) objects; /* by name */
    struct list late;
};
struct handle {
    struct object_store o; /* first */
    struct sim_bucket *b;
    const struct sim_objects *from;
};
enum fate { DONE, FAILS, LOST, LATE };
struct change { /* that happens when its caller does not wait any more */
    struct list link;
    struct sim_bucket *b;
    struct timer *timer;
    char *name;
    struct buf data;
    bool del;
};

static struct handle *of(struct object_store *o)
{
    return container_of(o, struct handle, o);
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The first one at or behind the name. */
static size_t at_or_behind(const struct sim_bucket *b, struct str name)
{
    size_t lo = 0, hi = b->objects.len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (str_cmp(str_c(b->objects.ptr[mid].name), name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct object *find(struct sim_bucket *b, struct str name)
{
    size_t i = at_or_behind(b, name);

    return i < b->objects.len && str_eq(str_c(b->objects.ptr[i].name), name) ? &b->objects.ptr[i]
                                                                             : NULL;
}

static char *name_copy(struct str name)
{
    char *ret = xcalloc(name.len + 1, 1);

    memcpy(ret, name.ptr, name.len);
    return ret;
}

/* False: the name is taken. */
static bool put(struct sim_bucket *b, struct str name, struct str data)
{
    struct object x = { .name = NULL };
    size_t i = at_or_behind(b, name);

    if (find(b, name))
        return false;
    x.name = name_copy(name);
    buf_init(&x.data, data.len + 1);
    CHECK(buf_add_str(&x.data, data));
    vec_push(&b->objects, x);
    memmove(b->objects.ptr + i + 1, b->objects.ptr + i, (b->objects.len - 1 - i) * sizeof(x));
    b->objects.ptr[i] = x;
    b->stats->objects++;
    return true;
}

static void del(struct sim_bucket *b, struct str name)
{
    struct object *x = find(b, name);
    size_t i;

    if (!x)
        return;
    i = (size_t)(x - b->objects.ptr);
    xfree(x->name);
    buf_deinit(&x->data);
    b->objects.len--;
    memmove(b->objects.ptr + i, b->objects.ptr + i + 1, (b->objects.len - i) * sizeof(*x));
    b->stats->objects_deleted++;
}

/* ---- time and faults ------------------------------------------------------------------------- */

static uint64_t now_ms(const struct sim_bucket *b)
{
    return clock_mono_ms(loop_clock(b->loop));
}

static void on_awake(void *cookie)
{
    fiber_resume(cookie);
}

static void nap(struct sim_bucket *b, uint64_t ms)
{
    struct timer *t;

    if (!fiber_self())
        return;
    t = loop_timer_new(b->loop, on_awake, fiber_self());
    loop_timer_start(t, ms, 0);
    fiber_yield();
    loop_timer_free(t);
}

/* Waits so long, or to the deadline; false: that came first. */
static bool wait(struct handle *h, uint64_t ms)
{
    uint64_t now = now_ms(h->b), until = h->o.deadline_ms;
    bool in_time = !until || now + ms <= until;

    nap(h->b, in_time ? ms : until > now ? until - now : 0);
    return in_time;
}

/* The way there. DONE and LOST: it is there now, `*back` ms away; else *e says why nothing comes
 * of it, or nothing soon. */
static enum fate send(struct handle *h, bool changes, uint64_t *back, struct err *e)
{
    struct sim_bucket *b = h->b;
    const struct sim_bucket_faults *f = &b->faults;
    enum fate fate = prng_chance(&b->p, f->fails)             ? FAILS
                     : prng_chance(&b->p, f->lost)            ? LOST
                     : changes && prng_chance(&b->p, f->late) ? LATE
                                                              : DONE;
    uint64_t most = f->slow_ms ? f->slow_ms : prng_below(&b->p, 10) == 0 ? 60 : 6;
    uint64_t there = prng_below(&b->p, most / 2 + 1);

    *back = prng_below(&b->p, most / 2 + 1);
    b->stats->object_requests++;
    if (f->away || h->from->dead) {
        (void)wait(h, AWAY_MS);
        (void)err_set(e, ERR_UNAVAILABLE, "injected: the object store is not reached");
        return FAILS;
    }
    if (!wait(h, there) || h->from->dead) {
        (void)err_set(e, ERR_TIMEOUT, "injected: the object store is slow");
        return FAILS;
    }
    if (fate != DONE)
        b->stats->object_errors++;
    if (fate == FAILS)
        (void)err_set(e, ERR_UNAVAILABLE, "injected: the object store fails");
    if (fate == LATE)
        (void)err_set(e, ERR_TIMEOUT, "injected: no answer of the object store");
    return fate;
}

/* The way back of what was done. */
static int answer(struct handle *h, enum fate fate, uint64_t back, struct err *e)
{
    if (!wait(h, back) || fate == LOST || h->from->dead)
        return err_set(e, ERR_TIMEOUT, "injected: no answer of the object store");
    return 0;
}

static void change_free(struct change *c)
{
    list_del(&c->link);
    loop_timer_free(c->timer);
    xfree(c->name);
    buf_deinit(&c->data);
    xfree(c);
}

static void on_late(void *cookie)
{
    struct change *c = cookie;

    c->b->stats->objects_late++;
    if (c->del)
        del(c->b, str_c(c->name));
    else
        (void)put(c->b, str_c(c->name), buf_str(&c->data));
    change_free(c);
}

static void later(struct sim_bucket *b, struct str name, struct str data, bool is_del)
{
    struct change *c = XNEW(struct change);

    c->b = b;
    c->del = is_del;
    c->name = name_copy(name);
    buf_init(&c->data, data.len + 1);
    CHECK(buf_add_str(&c->data, data));
    c->timer = loop_timer_new(b->loop, on_late, c);
    loop_timer_start(c->timer, prng_below(&b->p, LATE_MS), 0);
    list_add_tail(&b->late, &c->link);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int sim_put(struct object_store *o, struct str name, struct str data, struct err *e)
{
    struct handle *h = of(o);
    uint64_t back;
    enum fate fate = send(h, true, &back, e);
    bool new;

    if (fate == LATE)
        later(h->b, name, data, false);
    if (fate == LATE || fate == FAILS)
        return e->code;
    new = put(h->b, name, data);
    if (h->b->mutant == SIM_BUCKET_FORGETS && prng_chance(&h->b->p, 0.2))
        later(h->b, name, STR_NULL, true);
    if (answer(h, fate, back, e))
        return e->code;
    return new ? 0 : err_set(e, ERR_CONFLICT, "%.*s is taken", STR_ARG(name));
}

static int sim_read(struct object_store *o, struct str name, uint64_t from, size_t len,
                    struct buf *out, struct err *e)
{
    struct handle *h = of(o);
    uint64_t back;
    enum fate fate = send(h, false, &back, e);
    const struct object *x;
    bool there, whole;

    if (fate == FAILS)
        return e->code;
    x = find(h->b, name);
    there = x != NULL;
    whole = there && from <= x->data.len && len <= x->data.len - from;
    if (whole && fate == DONE)
        CHECK(buf_add(out, x->data.ptr + from, len));
    if (answer(h, fate, back, e))
        return e->code;
    if (!there)
        return err_set(e, ERR_NOT_FOUND, "%.*s is not there", STR_ARG(name));
    return whole ? 0 : err_set(e, ERR_CORRUPT, "%.*s is shorter", STR_ARG(name));
}

static int sim_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e)
{
    struct handle *h = of(o);
    uint64_t back;
    enum fate fate = send(h, false, &back, e);
    const struct object *x;

    if (fate == FAILS)
        return e->code;
    x = find(h->b, name);
    *ret = x ? x->data.len : 0;
    if (answer(h, fate, back, e))
        return e->code;
    return x ? 0 : err_set(e, ERR_NOT_FOUND, "%.*s is not there", STR_ARG(name));
}

static int sim_list(struct object_store *o, struct str prefix, struct str after, object_list_fn fn,
                    void *cookie, struct err *e)
{
    struct handle *h = of(o);
    struct sim_bucket *b = h->b;
    uint64_t back;
    enum fate fate = send(h, false, &back, e);
    VEC(struct object) found = { 0 };
    bool more, heard;

    if (fate == FAILS)
        return e->code;
    for (size_t i = at_or_behind(b, str_cmp(prefix, after) > 0 ? prefix : after);
         i < b->objects.len && str_starts(str_c(b->objects.ptr[i].name), prefix); i++)
        if (!after.len || str_cmp(str_c(b->objects.ptr[i].name), after) > 0)
            vec_push(&found, ((struct object){ .name = xstrdup(b->objects.ptr[i].name),
                                               .data.len = b->objects.ptr[i].data.len }));
    heard = more = answer(h, fate, back, e) == 0;
    vec_for (i, &found) {
        more = more && fn(cookie, str_c(found.ptr[i].name), found.ptr[i].data.len);
        xfree(found.ptr[i].name);
    }
    vec_free(&found);
    return heard ? 0 : e->code;
}

static int sim_del(struct object_store *o, struct str name, struct err *e)
{
    struct handle *h = of(o);
    uint64_t back;
    enum fate fate = send(h, true, &back, e);

    if (fate == LATE)
        later(h->b, name, STR_NULL, true);
    if (fate == LATE || fate == FAILS)
        return e->code;
    del(h->b, name);
    return answer(h, fate, back, e);
}

static void sim_close(struct object_store *o)
{
    xfree(of(o));
}

static const struct object_ops sim_ops = { .put = sim_put,
                                           .read = sim_read,
                                           .size = sim_size,
                                           .list = sim_list,
                                           .del = sim_del,
                                           .close = sim_close };

/* ---- life ------------------------------------------------------------------------------------ */

static int open_store(const struct object_source *source, struct object_store **ret, struct err *e)
{
    const struct sim_objects *s = container_of((uintptr_t)source, struct sim_objects, source);
    struct handle *h = XNEW(struct handle);

    (void)e;
    h->o.ops = &sim_ops;
    memcpy(h->o.where, "simulation", sizeof("simulation"));
    h->b = s->bucket;
    h->from = s;
    *ret = &h->o;
    return 0;
}

void sim_objects_init(struct sim_objects *s, struct sim_bucket *b)
{
    *s = (struct sim_objects){ .source = { .open = open_store }, .bucket = b };
}

struct sim_bucket *sim_bucket_new(struct loop *loop, uint64_t seed, int mutant,
                                  struct sim_stats *stats)
{
    struct sim_bucket *b = XNEW(struct sim_bucket);

    b->loop = loop;
    b->stats = stats;
    b->mutant = mutant;
    prng_init(&b->p, seed);
    list_init(&b->late);
    return b;
}

void sim_bucket_free(struct sim_bucket *b)
{
    if (!b)
        return;
    list_for (it, &b->late)
        change_free(container_of(it, struct change, link));
    vec_for (i, &b->objects) {
        xfree(b->objects.ptr[i].name);
        buf_deinit(&b->objects.ptr[i].data);
    }
    vec_free(&b->objects);
    xfree(b);
}

struct sim_bucket_faults *sim_bucket_faults(struct sim_bucket *b)
{
    return &b->faults;
}
