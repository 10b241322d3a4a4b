/* SPDX-License-Identifier: Apache-2.0
 *
 * knowns: a shelf by tenant and service.
 *
 * The first push of a service leaves only its shelf: services that push once (a job, a test) are
 * not worth remembering. What is out belongs to its shelf still: a shelf with something out stays.
 * Over the bound the shelf that was not used for longest loses what it has, and nothing is made for
 * it for a while: with more services than memory, remembering would be work for nothing.
 */
#include "distributor/send/symbol_sessions.h"

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"

#define SHELVES_MAX 65536
#define SHELF_COST  256
#define IDLE_MAX    8              /* of one service */
#define SHARE       4              /* one service may take a part of all in so many */
#define PAUSE_FIRST UINT64_C(1000) /* ms */
#define PAUSE_MOST  UINT64_C(300000)
#define EVICTED_MS  UINT64_C(60000)

struct shelf {
    struct list link; /* of knowns.shelves: last used at the end */
    struct str key;   /* owned: tenant, NUL, service */
    VEC(struct symbol_session *) idle;
    uint32_t out;
    uint64_t not_before_ms, pause_ms;
    bool twice; /* has pushed before */
};
struct symbol_sessions {
    struct mutex lock;
    size_t bytes, bytes_max;
    unsigned percent;
    struct env *env; /* borrowed */
    uint64_t seed, made;
    struct map_str *map;
    struct list shelves;
    size_t shelves_len;
};

struct symbol_sessions *symbol_sessions_new(size_t bytes_max, struct env *env, uint64_t seed)
{
    struct symbol_sessions *a = XNEW(struct symbol_sessions);

    mutex_init(&a->lock);
    a->bytes_max = bytes_max;
    a->percent = 100;
    a->env = env;
    a->seed = seed;
    a->map = map_str_new();
    list_init(&a->shelves);
    return a;
}

/* ---- holding the lock ---- */

static void uncharge(struct symbol_sessions *a, struct symbol_session *k)
{
    a->bytes -= k->charged;
    k->charged = 0;
}

static void give_up(struct symbol_sessions *a, struct symbol_session *k)
{
    atomic_store_explicit(&k->dead, true, memory_order_relaxed);
    uncharge(a, k);
    k->shelf = NULL;
    symbol_session_unref(k);
}

static void empty_shelf(struct symbol_sessions *a, struct shelf *s)
{
    vec_for (i, &s->idle)
        give_up(a, s->idle.ptr[i]);
    s->idle.len = 0;
}

static void shelf_free(struct symbol_sessions *a, struct shelf *s)
{
    CHECK(s->out == 0);
    empty_shelf(a, s);
    (void)map_str_del(a->map, s->key);
    list_del(&s->link);
    a->shelves_len--;
    a->bytes -= SHELF_COST + s->key.len;
    vec_free(&s->idle);
    xfree((void *)(uintptr_t)s->key.ptr);
    xfree(s);
}

static size_t most(const struct symbol_sessions *a)
{
    return a->bytes_max / 100 * a->percent;
}

/* From the shelf that was not used for longest. */
static void trim(struct symbol_sessions *a, uint64_t now_ms)
{
    list_for (it, &a->shelves) {
        struct shelf *s = container_of(it, struct shelf, link);
        if (a->bytes <= most(a) && a->shelves_len <= SHELVES_MAX)
            return;
        if (s->idle.len) {
            empty_shelf(a, s);
            s->not_before_ms = MAX(s->not_before_ms, now_ms + EVICTED_MS);
        }
        if (!s->out && a->shelves_len > SHELVES_MAX / 2 &&
            (a->bytes > most(a) || a->shelves_len > SHELVES_MAX))
            shelf_free(a, s);
    }
}

static struct shelf *shelf_of(struct symbol_sessions *a, struct str tenant, struct str service)
{
    char small[512];
    size_t len = tenant.len + 1 + service.len;

    if (len > sizeof(small))
        return NULL;
    memcpy(small, tenant.ptr, tenant.len);
    small[tenant.len] = 0;
    memcpy(small + tenant.len + 1, service.ptr, service.len);
    struct shelf *s = map_str_get(a->map, str_n(small, len));
    if (s) {
        s->twice = true;
        list_del(&s->link);
        list_add_tail(&a->shelves, &s->link);
        return s;
    }
    s = XNEW(struct shelf);
    char *key = xmalloc(len);
    memcpy(key, small, len);
    s->key = str_n(key, len);
    map_str_put(a->map, s->key, s);
    list_add_tail(&a->shelves, &s->link);
    a->shelves_len++;
    a->bytes += SHELF_COST + len;
    return s;
}

static struct symbol_session *make(struct symbol_sessions *a, uint64_t symbol_keep)
{
    uint8_t session[SYMBOL_SESSION_BYTES];

    a->env->random(a->env, session, sizeof(session));
    return symbol_session_new(session, hash_u64(a->seed + ++a->made), symbol_keep,
                              a->bytes_max / SHARE);
}

/* ---- any thread ---- */

void symbol_sessions_free(struct symbol_sessions *a)
{
    if (!a)
        return;
    list_for (it, &a->shelves)
        shelf_free(a, container_of(it, struct shelf, link));
    map_str_free(a->map);
    mutex_deinit(&a->lock);
    xfree(a);
}

struct symbol_session *symbol_sessions_take(struct symbol_sessions *a, struct str tenant,
                                            struct str service, uint64_t symbol_keep,
                                            uint64_t now_ms)
{
    struct symbol_session *k = NULL;

    mutex_lock(&a->lock);
    struct shelf *s = shelf_of(a, tenant, service);
    while (s && s->idle.len && !k) {
        k = s->idle.ptr[--s->idle.len];
        if (k->symbol_keep != symbol_keep) {
            give_up(a, k);
            k = NULL;
        }
    }
    if (s && !k && s->twice && now_ms >= s->not_before_ms) {
        k = make(a, symbol_keep);
        k->shelf = s;
    }
    if (k) {
        s->out++;
        symbol_session_ref(k); /* the shelf's and the push's */
    }
    trim(a, now_ms);
    mutex_unlock(&a->lock);
    return k;
}

void symbol_sessions_put(struct symbol_sessions *a, struct symbol_session *k)
{
    mutex_lock(&a->lock);
    struct shelf *s = k->shelf;
    s->out--;
    if (atomic_load_explicit(&k->dead, memory_order_relaxed) || s->idle.len == IDLE_MAX) {
        give_up(a, k);
    } else {
        uncharge(a, k);
        k->charged = symbol_session_bytes(k);
        a->bytes += k->charged;
        vec_push(&s->idle, k);
    }
    mutex_unlock(&a->lock);
}

void symbol_sessions_refused(struct symbol_sessions *a, struct symbol_session *k, uint64_t now_ms)
{
    mutex_lock(&a->lock);
    struct shelf *s = k->shelf;
    bool first = !atomic_exchange(&k->dead, true);
    if (s && first) {
        s->pause_ms = MIN(MAX(s->pause_ms * 4, PAUSE_FIRST), PAUSE_MOST);
        /* The first time is a restart over there, most likely. */
        s->not_before_ms = s->pause_ms > PAUSE_FIRST ? now_ms + s->pause_ms : 0;
        for (size_t i = 0; i < s->idle.len; i++) {
            if (s->idle.ptr[i] != k)
                continue;
            s->idle.ptr[i] = s->idle.ptr[--s->idle.len];
            give_up(a, k);
            break;
        }
    }
    mutex_unlock(&a->lock);
}

void symbol_sessions_understood(struct symbol_sessions *a, struct symbol_session *k,
                                const struct symbol_session_counts *upto)
{
    mutex_lock(&k->lock);
    bool more = upto->nodes > k->told.nodes || upto->frames > k->told.frames ||
                upto->strings > k->told.strings;
    bool again = k->told.nodes > 1; /* it was understood before */
    k->told.strings = MAX(k->told.strings, upto->strings);
    k->told.frames = MAX(k->told.frames, upto->frames);
    k->told.nodes = MAX(k->told.nodes, upto->nodes);
    mutex_unlock(&k->lock);
    if (more || !again)
        return;
    mutex_lock(&a->lock);
    if (k->shelf)
        k->shelf->pause_ms = 0;
    mutex_unlock(&a->lock);
}

size_t symbol_sessions_bytes(struct symbol_sessions *a)
{
    mutex_lock(&a->lock);
    size_t n = a->bytes;
    mutex_unlock(&a->lock);
    return n;
}

void symbol_sessions_shrink(struct symbol_sessions *a, unsigned percent)
{
    mutex_lock(&a->lock);
    a->percent = percent;
    trim(a, 0);
    mutex_unlock(&a->lock);
}
