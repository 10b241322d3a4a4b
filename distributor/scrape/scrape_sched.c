/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_sched: a heap by due time with one timer, and a queue of due entries that wait for a
 * place.
 *
 *   OFF ──add──> WAITS (heap) ──due──> QUEUED ──place free──> RUNS ──done──> WAITS
 *
 * The turns of an entry are at hash mod interval within each interval of monotonic time, so that a
 * thousand targets are a steady trickle and a restart changes nothing for them. A jitter of up to a
 * thirtieth of the interval comes on top; the grid stays, so nothing drifts. A run that is longer
 * than the interval skips turns instead of piling up.
 */
#include "distributor/scrape/scrape_sched.h"

#include "common/base/mem.h"
#include "common/base/vec.h"

#define JITTER_PART     30
#define JITTER_MOST_MS  500
#define BACKOFF_DOUBLES 10

struct sched {
    struct sched_opts o;
    struct timer *timer;
    VEC(struct sched_entry *) heap;
    struct list queue;
    size_t queued, running;
    uint64_t skipped;
    bool stopped, pumping;
};

static uint64_t now_ms(const struct sched *s)
{
    return clock_mono_ms(s->o.env->clock);
}

/* ---- heap ------------------------------------------------------------------------------------ */

static void place(struct sched *s, size_t i, struct sched_entry *x)
{
    s->heap.ptr[i] = x;
    x->at = i;
}

static void sift_up(struct sched *s, size_t i, struct sched_entry *x)
{
    for (; i > 0 && s->heap.ptr[(i - 1) / 2]->due_ms > x->due_ms; i = (i - 1) / 2)
        place(s, i, s->heap.ptr[(i - 1) / 2]);
    place(s, i, x);
}

static void sift_down(struct sched *s, size_t i, struct sched_entry *x)
{
    for (size_t child = 2 * i + 1; child < s->heap.len; child = 2 * i + 1) {
        if (child + 1 < s->heap.len && s->heap.ptr[child + 1]->due_ms < s->heap.ptr[child]->due_ms)
            child++;
        if (s->heap.ptr[child]->due_ms >= x->due_ms)
            break;
        place(s, i, s->heap.ptr[child]);
        i = child;
    }
    place(s, i, x);
}

static void heap_add(struct sched *s, struct sched_entry *x)
{
    vec_push(&s->heap, x);
    sift_up(s, s->heap.len - 1, x);
}

static void heap_del(struct sched *s, struct sched_entry *x)
{
    size_t i = x->at;
    struct sched_entry *last;

    CHECK(i < s->heap.len && s->heap.ptr[i] == x);
    last = s->heap.ptr[--s->heap.len];
    if (last == x)
        return;
    sift_down(s, i, last);
    if (last->at == i)
        sift_up(s, i, last);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void set_timer(struct sched *s)
{
    uint64_t now = now_ms(s);

    if (s->stopped || s->heap.len == 0)
        loop_timer_stop(s->timer);
    else
        loop_timer_start(s->timer, s->heap.ptr[0]->due_ms > now ? s->heap.ptr[0]->due_ms - now : 0,
                         0);
}

/* The first turn after `from`. */
static uint64_t turn_after(const struct sched_entry *x, uint64_t from)
{
    uint64_t phase = x->hash % x->interval_ms, start = from - from % x->interval_ms + phase;

    return start > from ? start : start + x->interval_ms;
}

static uint64_t backoff(const struct sched_entry *x)
{
    uint64_t turns, most = MAX(x->interval_ms, SCHED_BACKOFF_MS);

    if (x->failures < 2)
        return 0;
    turns = (UINT64_C(1) << MIN(x->failures - 1, BACKOFF_DOUBLES)) - 1;
    return MIN(turns * x->interval_ms, most - most % x->interval_ms);
}

static void schedule(struct sched *s, struct sched_entry *x, uint64_t from)
{
    uint64_t r, jitter = MIN(x->interval_ms / JITTER_PART, JITTER_MOST_MS);

    s->o.env->random(s->o.env, &r, sizeof(r));
    x->due_ms = turn_after(x, from + backoff(x)) + (jitter ? r % jitter : 0);
    x->state = SCHED_WAITS;
    heap_add(s, x);
}

static void pump(struct sched *s)
{
    if (s->pumping)
        return;
    s->pumping = true;
    while (!s->stopped && s->queued && s->running < s->o.running_max) {
        struct sched_entry *x = container_of(s->queue.next, struct sched_entry, queue);
        list_del(&x->queue);
        s->queued--;
        s->running++;
        x->state = SCHED_RUNS;
        s->o.start(s->o.cookie, x);
    }
    s->pumping = false;
}

static void on_timer(void *cookie)
{
    struct sched *s = cookie;
    uint64_t now = now_ms(s);

    while (s->heap.len && s->heap.ptr[0]->due_ms <= now) {
        struct sched_entry *x = s->heap.ptr[0];
        heap_del(s, x);
        x->state = SCHED_QUEUED;
        list_add_tail(&s->queue, &x->queue);
        s->queued++;
    }
    pump(s);
    set_timer(s);
}

void sched_add(struct sched *s, struct sched_entry *x)
{
    CHECK(x->state == SCHED_OFF && x->interval_ms > 0);
    list_init(&x->queue);
    schedule(s, x, now_ms(s));
    set_timer(s);
}

void sched_del(struct sched *s, struct sched_entry *x)
{
    CHECK(x->state != SCHED_RUNS);
    if (x->state == SCHED_WAITS)
        heap_del(s, x);
    if (x->state == SCHED_QUEUED) {
        list_del(&x->queue);
        s->queued--;
    }
    x->state = SCHED_OFF;
    set_timer(s);
}

void sched_interval(struct sched *s, struct sched_entry *x, uint64_t interval_ms)
{
    CHECK(interval_ms > 0);
    x->interval_ms = interval_ms;
    if (x->state != SCHED_WAITS) {
        x->due_ms = now_ms(s); /* turns of the old one are not skipped ones of the new */
        return;
    }
    heap_del(s, x);
    schedule(s, x, now_ms(s));
    set_timer(s);
}

void sched_done(struct sched *s, struct sched_entry *x, bool ok, bool again)
{
    uint64_t now = now_ms(s), next = turn_after(x, x->due_ms);

    CHECK(x->state == SCHED_RUNS && s->running > 0);
    s->running--;
    x->state = SCHED_OFF;
    x->failures = ok ? 0 : MIN(x->failures + 1, 1000);
    if (next <= now)
        s->skipped += (now - next) / x->interval_ms + 1;
    if (again)
        schedule(s, x, now);
    pump(s);
    set_timer(s);
}

void sched_stop(struct sched *s)
{
    s->stopped = true;
    set_timer(s);
}

size_t sched_running(const struct sched *s)
{
    return s->running;
}

size_t sched_queued(const struct sched *s)
{
    return s->queued;
}

uint64_t sched_skipped(const struct sched *s)
{
    return s->skipped;
}

struct sched *sched_new(const struct sched_opts *o)
{
    struct sched *s = XNEW(struct sched);

    CHECK(o->running_max > 0);
    s->o = *o;
    list_init(&s->queue);
    s->timer = loop_timer_new(o->loop, on_timer, s);
    return s;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    loop_timer_free(s->timer);
    vec_free(&s->heap);
    xfree(s);
}
