/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: shares say what each part may hold; resident memory says what all of them, the allocator
 * and the libraries really do. The first keeps the second in bounds in all but strange cases; the
 * second decides whether new work is taken.
 *
 * Why both: shares are counted by their owners and refuse early and locally, with a name. But no
 * count sees fragmentation, freed pages the allocator has not given back yet, or RocksDB's buffers,
 * and the kernel kills by resident memory.
 *
 * Caches shrink first, since what they hold can be read again. Freed pages go back to the system at
 * once while memory is short (jemalloc keeps them for two seconds otherwise), or the process would
 * refuse work because of unused memory. Thresholds are apart, so that the state does not flutter.
 *
 * Threads: a thread of its own looks and changes the state; the loop registers and gathers. The
 * lists are kept by `lock`; callbacks run under it, so that memory_forget waits for them.
 */
#include "common/role/core/memory.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/obs/log.h"
#include "common/sys/chan.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define LOOK_MS      50
#define PURGE_EVERY  10 /* looks */
#define SHRINK_ABOVE 75 /* percent of the limit */
#define CALM_BELOW   65
#define REFUSE_ABOVE 85
#define RESUME_BELOW 78
#define ALL_ARENAS   "arena.4096.purge"

/* In builds that link jemalloc. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *new_value,
                   size_t new_len) WEAK;

struct row {
    const char *name;
    unsigned percent;
    uint64_t least;
};
#define MEMORY_PART_ROW(id, name, percent, least) [id] = { name, percent, least },
static const struct row rows[MEMORY_PARTS_LEN] = { MEMORY_PARTS(MEMORY_PART_ROW) };

static const struct {
    const char *name;
    unsigned cache_percent;
} states[] = {
    [MEMORY_CALM] = { "calm", 100 },
    [MEMORY_SHRUNK] = { "shrunk", 50 },
    [MEMORY_REFUSING] = { "refusing", 10 },
};

struct watch {
    enum memory_part part;
    uint64_t (*used)(void *cookie);
    const void *cookie;
};
struct shrinker {
    void (*fn)(void *cookie, unsigned percent);
    void *cookie;
};
struct memory {
    struct memory_opts o;
    _Atomic int state;
    _Atomic uint64_t resident;
    uint64_t looks; /* the looking thread's */
    struct mutex lock;
    VEC(struct watch) watches;
    VEC(struct shrinker) shrinkers;
    uint64_t used[MEMORY_PARTS_LEN]; /* as last gathered; the loop's */
    struct metric_cell *bytes[MEMORY_PARTS_LEN], *changes[ARRAY_LEN(states)];
    struct metric_cell *state_cell, *allocated, *retained;
    struct thread thread;
    struct chan *stop; /* NULL: no thread runs */
};

uint64_t memory_share(uint64_t limit, enum memory_part part)
{
    return MAX(limit / 100 * rows[part].percent, rows[part].least);
}

/* ---- looking ---- */

/* Resident pages are the second number of statm. */
static uint64_t own_resident(void)
{
    char text[128];
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long total, pages = 0;

    if (!f)
        return 0;
    if (!fgets(text, sizeof(text), f) || sscanf(text, "%llu %llu", &total, &pages) != 2)
        pages = 0;
    (void)fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t allocator_stat(const char *name)
{
    uint64_t epoch = 1;
    size_t v = 0, len = sizeof(v), epoch_len = sizeof(epoch);

    if (!mallctl || mallctl("epoch", &epoch, &epoch_len, &epoch, epoch_len) ||
        mallctl(name, &v, &len, NULL, 0))
        return 0;
    return v;
}

static enum memory_state next_state(enum memory_state now, uint64_t resident, uint64_t limit)
{
    uint64_t percent = resident / MAX(limit / 100, 1);

    if (percent > REFUSE_ABOVE || (now == MEMORY_REFUSING && percent >= RESUME_BELOW))
        return MEMORY_REFUSING;
    if (percent > SHRINK_ABOVE || (now != MEMORY_CALM && percent >= CALM_BELOW))
        return MEMORY_SHRUNK;
    return MEMORY_CALM;
}

static void tell(struct memory *m, enum memory_state from, enum memory_state to)
{
    metric_set(m->state_cell, (int64_t)to);
    metric_add(m->changes[to], 1);
    mutex_lock(&m->lock);
    vec_for (i, &m->shrinkers)
        m->shrinkers.ptr[i].fn(m->shrinkers.ptr[i].cookie, states[to].cache_percent);
    mutex_unlock(&m->lock);
    if (to == MEMORY_REFUSING)
        log_warn("memory is short: pushes and queries are refused until some is free",
                 KV_U64("resident_bytes", atomic_load(&m->resident)),
                 KV_U64("limit_bytes", m->o.limit));
    else if (from == MEMORY_REFUSING)
        log_info("memory is free again: pushes and queries are taken",
                 KV_U64("resident_bytes", atomic_load(&m->resident)));
    else
        log_debug(to == MEMORY_SHRUNK ? "caches shrink" : "caches may grow again",
                  KV_U64("resident_bytes", atomic_load(&m->resident)));
}

void memory_look(struct memory *m)
{
    uint64_t resident = m->o.resident ? m->o.resident(m->o.cookie) : own_resident();
    enum memory_state from = memory_state(m), to = next_state(from, resident, m->o.limit);

    atomic_store_explicit(&m->resident, resident, memory_order_relaxed);
    if (to != from) {
        atomic_store_explicit(&m->state, (int)to, memory_order_release);
        tell(m, from, to);
    }
    if (to != MEMORY_CALM && mallctl && (to != from || m->looks % PURGE_EVERY == 0))
        (void)mallctl(ALL_ARENAS, NULL, NULL, NULL, 0);
    m->looks++;
}

enum memory_state memory_state(const struct memory *m)
{
    return m ? (enum memory_state)atomic_load_explicit(&m->state, memory_order_acquire)
             : MEMORY_CALM;
}

static void look_run(void *cookie)
{
    struct memory *m = cookie;
    void *msg;

    while (chan_wait(m->stop, &msg, 1, LOOK_MS) == 0)
        memory_look(m);
}

void memory_start(struct memory *m)
{
    m->stop = chan_new(1, NULL, NULL);
    thread_start(&m->thread, "memory", look_run, m);
}

void memory_stop(struct memory *m)
{
    if (!m || !m->stop)
        return;
    CHECK(chan_send(m->stop, m));
    thread_join(&m->thread);
    chan_free(m->stop);
    m->stop = NULL;
}

/* ---- what each part holds ---- */

static uint64_t budget_used(void *cookie)
{
    const struct budget *b = cookie;

    return atomic_load_explicit(&b->used, memory_order_relaxed);
}

void memory_watch(struct memory *m, enum memory_part part, uint64_t (*used)(void *cookie),
                  void *cookie)
{
    if (!m)
        return;
    mutex_lock(&m->lock);
    vec_push(&m->watches, ((struct watch){ part, used, cookie }));
    mutex_unlock(&m->lock);
}

void memory_watch_budget(struct memory *m, enum memory_part part, const struct budget *b)
{
    union {
        const void *from;
        void *to;
    } cookie = { .from = b };

    memory_watch(m, part, budget_used, cookie.to);
}

void memory_on_shrink(struct memory *m, void (*fn)(void *cookie, unsigned percent), void *cookie)
{
    if (!m)
        return;
    mutex_lock(&m->lock);
    vec_push(&m->shrinkers, ((struct shrinker){ fn, cookie }));
    mutex_unlock(&m->lock);
}

void memory_forget(struct memory *m, const void *cookie)
{
    size_t n = 0;

    if (!m)
        return;
    mutex_lock(&m->lock);
    vec_for (i, &m->watches) {
        if (m->watches.ptr[i].cookie != cookie)
            m->watches.ptr[n++] = m->watches.ptr[i];
    }
    m->watches.len = n;
    n = 0;
    vec_for (i, &m->shrinkers) {
        if (m->shrinkers.ptr[i].cookie != cookie)
            m->shrinkers.ptr[n++] = m->shrinkers.ptr[i];
    }
    m->shrinkers.len = n;
    mutex_unlock(&m->lock);
}

void memory_gather(struct memory *m)
{
    if (!m)
        return;
    memset(m->used, 0, sizeof(m->used));
    mutex_lock(&m->lock);
    vec_for (i, &m->watches) {
        const struct watch *w = &m->watches.ptr[i];
        union {
            const void *from;
            void *to;
        } cookie = { .from = w->cookie };

        m->used[w->part] += w->used(cookie.to);
    }
    mutex_unlock(&m->lock);
    for (size_t i = 0; i < MEMORY_PARTS_LEN; i++)
        metric_set(m->bytes[i], (int64_t)m->used[i]);
    metric_set(m->allocated, (int64_t)allocator_stat("stats.allocated"));
    metric_set(m->retained, (int64_t)allocator_stat("stats.resident"));
}

void memory_json(struct memory *m, struct json *j)
{
    memory_gather(m);
    json_obj(j);
    json_put_cstr(j, "state", states[memory_state(m)].name);
    json_put_u64(j, "limitBytes", m->o.limit);
    json_put_u64(j, "residentBytes", atomic_load(&m->resident));
    json_put_u64(j, "refuseAboveBytes", m->o.limit / 100 * REFUSE_ABOVE);
    json_put_u64(j, "allocatedBytes", metric_value(m->allocated));
    json_key(j, "parts");
    json_obj(j);
    for (size_t i = 0; i < MEMORY_PARTS_LEN; i++) {
        json_key(j, rows[i].name);
        json_obj(j);
        json_put_u64(j, "bytes", m->used[i]);
        json_put_u64(j, "shareBytes", memory_share(m->o.limit, (enum memory_part)i));
        json_obj_end(j);
    }
    json_obj_end(j);
    json_obj_end(j);
}

/* ---- life ---- */

static void gather(void *cookie)
{
    memory_gather(cookie);
}

static struct metric_cell *cell(struct metrics *m, const char *name, const char *help)
{
    return metric_at(metric_new(m, METRIC_GAUGE, name, help, NULL), NULL, 0);
}

struct memory *memory_new(const struct memory_opts *o)
{
    struct memory *m = XNEW(struct memory);
    struct metric *bytes = metric_new(o->metrics, METRIC_GAUGE, "embertree_memory_bytes",
                                      "Memory a part of the process holds", "part");
    struct metric *share = metric_new(o->metrics, METRIC_GAUGE, "embertree_memory_share_bytes",
                                      "Memory a part of the process may hold", "part");
    struct metric *changes =
        metric_new(o->metrics, METRIC_COUNTER, "embertree_memory_changes_total",
                   "How often the process went into a state of its memory", "state");

    m->o = *o;
    mutex_init(&m->lock);
    for (size_t i = 0; i < MEMORY_PARTS_LEN; i++) {
        struct str name = str_c(rows[i].name);

        m->bytes[i] = metric_at(bytes, &name, 1);
        metric_set(metric_at(share, &name, 1),
                   (int64_t)memory_share(o->limit, (enum memory_part)i));
    }
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        struct str name = str_c(states[i].name);

        m->changes[i] = metric_at(changes, &name, 1);
    }
    m->state_cell = cell(o->metrics, "embertree_memory_state",
                         "0 calm, 1 caches are shrunk, 2 pushes and queries are refused");
    m->allocated = cell(o->metrics, "embertree_memory_allocated_bytes",
                        "Memory in use as the allocator counts it; 0 if it cannot tell");
    m->retained = cell(o->metrics, "embertree_memory_mapped_bytes",
                       "Memory the allocator holds from the system, free parts as well");
    metrics_on_render(o->metrics, gather, m);
    return m;
}

void memory_free(struct memory *m)
{
    if (!m)
        return;
    CHECK(!m->stop);
    vec_free(&m->watches);
    vec_free(&m->shrinkers);
    mutex_deinit(&m->lock);
    xfree(m);
}
