/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof: the self-profiler.
 *
 *   every thread: CPU timer ──SIGPROF──> on_sigprof: unwind.c ──> sample_ring
 *   "selfprof":   4 x a second  sample_ring ──> symbolize.c ──> fold.c
 *                 2 x a second  look for new threads (prof_threads.c) and new libraries
 *                 each 10 s     fold ──> folded text ──> selfprof_send.c ──> POST /ingest
 *
 * In the handler only atomics, the stack, and system calls: no lock, no allocation. It finds the
 * profiler through `active`, and is counted in `in_flight` while it runs. Code that takes something
 * away from handlers (an old map of modules, the ring at the end) first unpublishes it and then
 * waits until it sees in_flight at 0: a handler that starts later finds the new state.
 *
 * The handler stays installed after the end, and does nothing then: a late signal must not meet
 * the default action, which ends the process.
 *
 * Addresses become names when they leave the ring, not when they are pushed: until then a library
 * may be gone, and another one in its place.
 *
 * Cost at 100 Hz and one busy core: 100 walks of about a microsecond, 100 signals, and the thread's
 * bookkeeping; tests/bench/bench_selfprof.c measures it.
 */
#include "common/obs/selfprof.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/obs/fold.h"
#include "common/obs/prof_threads.h"
#include "common/obs/sample_ring.h"
#include "common/obs/selfprof_capture.h"
#include "common/obs/selfprof_send.h"
#include "common/obs/symbolize.h"
#include "common/sys/thread.h"

enum {
    TICK_MS = 250,
    SCAN_TICKS = 2,
    RING_WORDS = 1 << 18, /* 2 MiB: some 6,000 samples of usual depth */
    HEAD_WORDS = 2,       /* thread and end of the walk; weight */
    RECORD_WORDS_MAX = HEAD_WORDS + UNWIND_DEPTH_MAX,
    STACKS_MAX = 32768,
    NAMES_MAX = 65536,
    ADDRESSES_MAX = 1 << 20,
    TEXT_BYTES_MAX = 16 << 20,
};

struct selfprof {
    struct selfprof_opts o; /* its strings are owned copies; url is NULL */
    int stop_fd;            /* eventfd; readable: stop */
    struct thread thread;
    _Atomic(struct unwind_map *) map; /* owned; handlers read it */
    struct sample_ring *ring;         /* owned; handlers write it */
    struct captures *captures;        /* owned */
    /* From here on: only the profiler's thread. */
    struct prof_threads *threads;
    struct symbolizer *symbolizer;
    struct map_u64 by_address; /* address -> name in fold */
    struct fold *fold;
    struct selfprof_sender *sender;
    uint32_t broken_name, deep_name;
    int64_t window_from_ms;
    uint64_t next_push_ms; /* wall clock */
    uint64_t dropped_seen;
    struct metric_cell *samples, *broken, *dropped, *armed;
};

static _Atomic(struct selfprof *) active;
static _Atomic uint32_t in_flight;
static _Atomic bool taken;

/* ---- in the signal handler ------------------------------------------------------------------- */

static void take_sample(struct selfprof *p, const siginfo_t *si, const ucontext_t *uc)
{
    const struct unwind_map *map = atomic_load(&p->map);
    const greg_t *regs = uc->uc_mcontext.gregs;
    struct unwind_regs r = { (uint64_t)regs[REG_RIP], (uint64_t)regs[REG_RSP],
                             (uint64_t)regs[REG_RBP] };
    uint64_t words[RECORD_WORDS_MAX];
    enum unwind_end end;
    size_t n;

    end =
        unwind_walk(map, r, unwind_stack_end(map, r.sp), words + HEAD_WORDS, UNWIND_DEPTH_MAX, &n);
    words[0] = (uint64_t)(uint32_t)syscall(SYS_gettid) | (uint64_t)end << 32;
    /* Ticks that came while this one was pending belong to the same place. */
    words[1] = 1 + (uint64_t)MAX(si->si_overrun, 0);
    (void)sample_ring_put(p->ring, words, HEAD_WORDS + n);
}

static void on_sigprof(int number, siginfo_t *si, void *context)
{
    int saved = errno;
    struct selfprof *p;

    (void)number;
    atomic_fetch_add(&in_flight, 1);
    p = atomic_load(&active);
    if (p && si->si_code == SI_TIMER)
        take_sample(p, si, context);
    atomic_fetch_sub(&in_flight, 1);
    errno = saved;
}

/* After this no handler uses data published before the call. */
static void wait_for_handlers(void)
{
    while (atomic_load(&in_flight) != 0)
        (void)usleep(50);
}

static void install_handler(void)
{
    struct sigaction sa = { .sa_flags = SA_SIGINFO | SA_RESTART };

    sa.sa_sigaction = on_sigprof;
    /* No other handler may interrupt ours: it might not return. */
    CHECK(sigfillset(&sa.sa_mask) == 0);
    CHECK(sigaction(SIGPROF, &sa, NULL) == 0);
}

/* ---- from the ring to names ------------------------------------------------------------------ */

static uint32_t name_of(struct selfprof *p, uint64_t pc)
{
    uint32_t name = map_u64_get(&p->by_address, pc);
    struct buf text;

    if (name != MAP_U64_EMPTY)
        return name;
    if (p->by_address.len >= ADDRESSES_MAX)
        map_u64_reset(&p->by_address);
    buf_init(&text, 2 * SYMBOL_MAX);
    symbolizer_name(p->symbolizer, atomic_load(&p->map), pc, &text);
    name = fold_name(p->fold, buf_str(&text));
    buf_deinit(&text);
    (void)map_u64_put(&p->by_address, pc, name);
    return name;
}

struct role_rule {
    const char *prefix, *role;
};

/* The role a thread works for, by the name it was given; shards are the ingester's. */
static const char *role_of(const struct selfprof *p, const char *thread)
{
    static const struct role_rule rules[] = {
        { "distributor", "distributor" }, { "ingester", "ingester" }, { "shard-", "ingester" },
        { "commit-", "ingester" },        { "rocksdb:", "ingester" }, { "querier", "querier" },
        { "compactor", "compactor" },     { "selfprof", "selfprof" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (str_starts(str_c(thread), str_c(rules[i].prefix)))
            return rules[i].role;
    return p->o.role ? p->o.role : "shared";
}

static uint32_t series_of(struct selfprof *p, pid_t tid)
{
    const char *thread = prof_threads_name(p->threads, tid);

    if (!p->o.per_thread)
        return fold_series_of(p->fold, STR(""), STR(""));
    if (!*thread)
        thread = "unknown";
    return fold_series_of(p->fold, str_c(role_of(p, thread)), str_c(thread));
}

static void metric_count(struct metric_cell *c, uint64_t n)
{
    if (c && n)
        metric_add(c, n);
}

static void add_sample(struct selfprof *p, const uint64_t *words, size_t n)
{
    uint32_t names[UNWIND_DEPTH_MAX + 1];
    enum unwind_end end = (enum unwind_end)(words[0] >> 32);
    size_t len = 0;

    for (size_t i = HEAD_WORDS; i < n; i++)
        names[len++] = name_of(p, words[i]);
    if (end != UNWIND_WHOLE)
        names[len++] = end == UNWIND_DEEP ? p->deep_name : p->broken_name;
    uint32_t series = series_of(p, (pid_t)(uint32_t)words[0]);
    fold_add(p->fold, series, names, len, words[1]);
    captures_add(p->captures, p->fold, series, names, len, words[1]);
    metric_count(p->samples, words[1]);
    metric_count(p->broken, end == UNWIND_BROKEN ? words[1] : 0);
}

static void drain_ring(struct selfprof *p)
{
    uint64_t words[RECORD_WORDS_MAX], dropped;
    size_t n;

    while ((n = sample_ring_take(p->ring, words, ARRAY_LEN(words))) > HEAD_WORDS)
        add_sample(p, words, n);
    dropped = sample_ring_dropped(p->ring);
    metric_count(p->dropped, dropped - p->dropped_seen);
    p->dropped_seen = dropped;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void refresh_map(struct selfprof *p)
{
    struct unwind_map *old = atomic_load(&p->map), *next;

    if (!unwind_map_stale(old))
        return;
    next = unwind_map_new(old);
    drain_ring(p); /* names from the objects that were there when it was sampled */
    atomic_store(&p->map, next);
    wait_for_handlers();
    map_u64_reset(&p->by_address);
    unwind_map_free(old, next);
    symbolizer_load(p->symbolizer, next);
}

static void push_window(struct selfprof *p, int64_t now_ms)
{
    struct buf text;

    buf_init(&text, TEXT_BYTES_MAX);
    for (size_t i = 0; i < fold_series_len(p->fold); i++) {
        const struct fold_series *s = fold_series_at(p->fold, i);
        struct selfprof_push push = { s->role, s->thread, p->window_from_ms,
                                      now_ms,  s->count,  STR_NULL };

        if (s->count == 0)
            continue;
        buf_reset(&text);
        fold_text(p->fold, (uint32_t)i, &text);
        push.folded = buf_str(&text);
        if (p->o.on_push)
            p->o.on_push(p->o.cookie, &push);
        else if (buf_ok(&text))
            selfprof_sender_add(p->sender, &push);
    }
    buf_deinit(&text);
    fold_reset(p->fold);
    p->window_from_ms = now_ms;
}

/* Windows end at full ten seconds of the wall clock; a jump of the clock starts a new one. */
static void push_if_due(struct selfprof *p)
{
    int64_t now = clock_wall_ms(p->o.env->clock);

    if (now < p->window_from_ms || now > p->window_from_ms + 6 * SELFPROF_EVERY_MS)
        p->window_from_ms = now;
    else if ((uint64_t)now < p->next_push_ms)
        return;
    push_window(p, now);
    p->next_push_ms = ((uint64_t)now / SELFPROF_EVERY_MS + 1) * SELFPROF_EVERY_MS;
}

static bool stop_asked(const struct selfprof *p, int wait_ms)
{
    struct pollfd fd = { p->stop_fd, POLLIN, 0 };

    return poll(&fd, 1, wait_ms) > 0;
}

/* Distributions strip the C library of the two names that stand at the root of every thread. We are
 * such a thread, so our own outermost frames show where those functions are. */
static void learn_thread_start(struct selfprof *p)
{
    const struct unwind_map *map = atomic_load(&p->map);
    uint64_t pcs[64];
    const struct module *m;
    ucontext_t uc;
    size_t n;

    if (getcontext(&uc))
        return;
    struct unwind_regs r = { (uint64_t)uc.uc_mcontext.gregs[REG_RIP],
                             (uint64_t)uc.uc_mcontext.gregs[REG_RSP],
                             (uint64_t)uc.uc_mcontext.gregs[REG_RBP] };
    if (unwind_walk(map, r, unwind_stack_end(map, r.sp), pcs, ARRAY_LEN(pcs), &n) != UNWIND_WHOLE ||
        n < 4)
        return;
    m = unwind_module(map, pcs[n - 1]);
    if (m && m->cfi && m == unwind_module(map, pcs[n - 2])) {
        symbolizer_alias(p->symbolizer, cfi_function(m->cfi, pcs[n - 1]), "clone");
        symbolizer_alias(p->symbolizer, cfi_function(m->cfi, pcs[n - 2]), "start_thread");
    }
}

static void run(void *cookie)
{
    struct selfprof *p = cookie;

    p->window_from_ms = clock_wall_ms(p->o.env->clock);
    p->next_push_ms = (uint64_t)p->window_from_ms + SELFPROF_FIRST_MS;
    atomic_store(&p->map, unwind_map_new(NULL));
    learn_thread_start(p);
    atomic_store(&active, p);
    prof_threads_scan(p->threads, true);
    symbolizer_load(p->symbolizer, atomic_load(&p->map)); /* seen by the profiler already */
    for (uint64_t tick = 1; !stop_asked(p, TICK_MS); tick++) {
        if (tick % SCAN_TICKS == 0) {
            refresh_map(p);
            prof_threads_scan(p->threads, tick % (SELFPROF_EVERY_MS / TICK_MS) == 0);
            if (p->armed)
                metric_set(p->armed, (int64_t)prof_threads_armed(p->threads));
        }
        drain_ring(p);
        captures_tick(p->captures);
        push_if_due(p);
        selfprof_sender_run(p->sender, p->stop_fd);
    }
    prof_threads_disarm(p->threads);
    atomic_store(&active, NULL);
    wait_for_handlers();
    drain_ring(p);
    captures_free(p->captures);
    p->captures = NULL;
    if (p->o.push_at_stop || p->o.on_push) {
        push_window(p, clock_wall_ms(p->o.env->clock));
        selfprof_sender_run(p->sender, -1);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void add_metrics(struct selfprof *p)
{
    struct metrics *m = p->o.metrics;

    if (!m)
        return;
    p->samples = metric_at(metric_new(m, METRIC_COUNTER, "embertree_selfprof_samples_total",
                                      "Samples of our own CPU.", NULL),
                           NULL, 0);
    p->broken = metric_at(metric_new(m, METRIC_COUNTER, "embertree_selfprof_broken_stacks_total",
                                     "Samples whose stack could not be walked to its root.", NULL),
                          NULL, 0);
    p->dropped = metric_at(metric_new(m, METRIC_COUNTER, "embertree_selfprof_dropped_samples_total",
                                      "Samples dropped because the ring was full.", NULL),
                           NULL, 0);
    p->armed = metric_at(metric_new(m, METRIC_GAUGE, "embertree_selfprof_threads",
                                    "Threads that are sampled.", NULL),
                         NULL, 0);
}

/* A copy that free_strings may free; NULL stays NULL. */
static const char *own(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static void own_strings(struct selfprof_opts *o)
{
    o->tenant = own(o->tenant);
    o->service = own(o->service);
    o->labels = own(o->labels);
    o->role = own(o->role);
}

static void free_strings(const struct selfprof_opts *o)
{
    const char *const strings[] = { o->tenant, o->service, o->labels, o->role };

    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        xfree((void *)(uintptr_t)strings[i]);
}

static void selfprof_free(struct selfprof *p)
{
    free_strings(&p->o);
    prof_threads_free(p->threads);
    unwind_map_free(atomic_load(&p->map), NULL);
    sample_ring_free(p->ring);
    captures_free(p->captures);
    symbolizer_free(p->symbolizer);
    map_u64_deinit(&p->by_address);
    fold_free(p->fold);
    selfprof_sender_free(p->sender);
    if (p->stop_fd >= 0)
        (void)close(p->stop_fd);
    xfree(p);
    atomic_store(&taken, false);
}

int selfprof_start(const struct selfprof_opts *o, struct selfprof **ret, struct err *e)
{
    struct selfprof *p;

    if (o->hz == 0 || o->hz > SELFPROF_HZ_MAX)
        return err_set(e, ERR_CONFIG, "%" PRIu64 " samples a second: want 1 to %d", o->hz,
                       SELFPROF_HZ_MAX);
    if (atomic_exchange(&taken, true))
        return err_set(e, ERR_BUSY, "the self-profiler runs already");
    p = XNEW(struct selfprof);
    p->o = *o;
    own_strings(&p->o);
    map_u64_init(&p->by_address);
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->stop_fd < 0 || selfprof_sender_new(&p->o, &p->sender, e)) {
        int code = p->stop_fd < 0 ? err_errno(e, errno, "no eventfd") : e->code;

        selfprof_free(p);
        return code;
    }
    p->o.url = NULL; /* the sender has parsed it */
    p->threads = prof_threads_new(o->hz);
    p->ring = sample_ring_new(RING_WORDS);
    p->captures = captures_new(o->env, STACKS_MAX, NAMES_MAX);
    p->symbolizer = symbolizer_new();
    p->fold = fold_new(STACKS_MAX, NAMES_MAX);
    p->broken_name = fold_name(p->fold, STR("[broken stack]"));
    p->deep_name = fold_name(p->fold, STR("[deep stack]"));
    add_metrics(p);
    install_handler();
    thread_start(&p->thread, "selfprof", run, p);
    *ret = p;
    return 0;
}

int selfprof_capture(struct selfprof *p, uint64_t ms, selfprof_capture_fn done, void *cookie,
                     struct err *e)
{
    return captures_ask(p->captures, ms, done, cookie, e);
}

void selfprof_capture_end(struct selfprof *p, const void *cookie)
{
    captures_end(p->captures, cookie);
}

uint64_t selfprof_hz(const struct selfprof *p)
{
    return p->o.hz;
}

void selfprof_stop(struct selfprof *p)
{
    uint64_t one = 1;

    if (!p)
        return;
    CHECK(write(p->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    thread_join(&p->thread);
    selfprof_free(p);
}
