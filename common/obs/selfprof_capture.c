/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof_capture: the same samples once more, for requests.
 *
 *   captures_ask ──asked──> captures_tick: begins ──> captures_add ... ──> captures_tick: done
 *
 * A capture counts in a fold of its own, since windows are forgotten every ten seconds. Names are
 * numbers of the profiler's fold and are translated when they are seen first.
 */
#include "common/obs/selfprof_capture.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/sys/thread.h"

#define TEXT_BYTES_MAX (64 * MIB)

enum state { FREE, ASKED, RUNS };

struct capture {
    enum state state; /* under the lock, but what only the profiler's thread changes from RUNS */
    bool enough;      /* under the lock: captures_end */
    uint64_t ms, end_ms;
    int64_t from_ms;
    selfprof_capture_fn done;
    void *cookie;
    struct fold *fold;
    struct map_u64 names; /* of the profiler's fold -> of this */
};
struct captures {
    const struct env *env;
    size_t stacks_max, names_max;
    struct mutex lock;
    struct capture all[SELFPROF_CAPTURES_MAX];
};

struct captures *captures_new(const struct env *env, size_t stacks_max, size_t names_max)
{
    struct captures *c = XNEW(struct captures);

    c->env = env;
    c->stacks_max = stacks_max;
    c->names_max = names_max;
    mutex_init(&c->lock);
    return c;
}

int captures_ask(struct captures *c, uint64_t ms, selfprof_capture_fn done, void *cookie,
                 struct err *e)
{
    bool found = false;

    mutex_lock(&c->lock);
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX && !found; i++) {
        found = c->all[i].state == FREE;
        if (found)
            c->all[i] =
                (struct capture){ .state = ASKED, .ms = ms, .done = done, .cookie = cookie };
    }
    mutex_unlock(&c->lock);
    return found ? 0
                 : err_set(e, ERR_BUSY, "%d profiles are being taken already; try again later",
                           SELFPROF_CAPTURES_MAX);
}

void captures_end(struct captures *c, const void *cookie)
{
    mutex_lock(&c->lock);
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++)
        if (c->all[i].state != FREE && c->all[i].cookie == cookie)
            c->all[i].enough = true;
    mutex_unlock(&c->lock);
}

static bool is_due(struct captures *c, const struct capture *x)
{
    mutex_lock(&c->lock);
    bool enough = x->enough;
    mutex_unlock(&c->lock);
    return enough || clock_mono_ms(c->env->clock) >= x->end_ms;
}

static void set_state(struct captures *c, struct capture *x, enum state to)
{
    mutex_lock(&c->lock);
    x->state = to;
    mutex_unlock(&c->lock);
}

static enum state state_of(struct captures *c, const struct capture *x)
{
    mutex_lock(&c->lock);
    enum state s = x->state;
    mutex_unlock(&c->lock);
    return s;
}

static void begin(struct captures *c, struct capture *x)
{
    x->from_ms = clock_wall_ms(c->env->clock);
    x->end_ms = clock_mono_ms(c->env->clock) + x->ms;
    x->fold = fold_new(c->stacks_max, c->names_max);
    map_u64_init(&x->names);
    set_state(c, x, RUNS);
}

static void end(struct captures *c, struct capture *x)
{
    struct selfprof_push parts[FOLD_SERIES_MAX];
    int64_t now = clock_wall_ms(c->env->clock);
    size_t n = fold_series_len(x->fold), at[FOLD_SERIES_MAX + 1];
    struct buf text;

    buf_init(&text, TEXT_BYTES_MAX);
    for (size_t i = 0; i < n; i++) {
        at[i] = text.len;
        fold_text(x->fold, (uint32_t)i, &text);
    }
    at[n] = text.len;
    for (size_t i = 0; i < n; i++) {
        const struct fold_series *s = fold_series_at(x->fold, i);
        parts[i] = (struct selfprof_push){ s->role,    s->thread,
                                           x->from_ms, MAX(now, x->from_ms),
                                           s->count,   str_sub(buf_str(&text), at[i], at[i + 1]) };
    }
    x->done(x->cookie, parts, buf_ok(&text) ? n : 0);
    buf_deinit(&text);
    fold_free(x->fold);
    map_u64_deinit(&x->names);
    set_state(c, x, FREE);
}

void captures_tick(struct captures *c)
{
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++) {
        struct capture *x = &c->all[i];
        enum state s = state_of(c, x);

        if (s == ASKED)
            begin(c, x);
        else if (s == RUNS && is_due(c, x))
            end(c, x);
    }
}

static uint32_t translate(struct capture *x, const struct fold *of, uint32_t name)
{
    uint32_t own = map_u64_get(&x->names, name);

    if (own == MAP_U64_EMPTY) {
        own = fold_name(x->fold, fold_name_text(of, name));
        (void)map_u64_put(&x->names, name, own);
    }
    return own;
}

void captures_add(struct captures *c, const struct fold *of, uint32_t series, const uint32_t *names,
                  size_t n, uint64_t count)
{
    const struct fold_series *s = fold_series_at(of, series);
    VEC(uint32_t) own = { 0 };

    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++) {
        struct capture *x = &c->all[i];
        if (state_of(c, x) != RUNS)
            continue;
        own.len = 0;
        for (size_t k = 0; k < n; k++)
            vec_push(&own, translate(x, of, names[k]));
        fold_add(x->fold, fold_series_of(x->fold, str_c(s->role), str_c(s->thread)), own.ptr, n,
                 count);
    }
    vec_free(&own);
}

void captures_free(struct captures *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++) {
        if (state_of(c, &c->all[i]) == ASKED) /* by another thread, a moment ago */
            begin(c, &c->all[i]);
        if (state_of(c, &c->all[i]) == RUNS)
            end(c, &c->all[i]);
    }
    mutex_deinit(&c->lock);
    xfree(c);
}
