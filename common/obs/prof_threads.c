/* SPDX-License-Identifier: Apache-2.0
 *
 * prof_threads: one POSIX timer per thread on that thread's CPU clock, signal to that very thread.
 *
 * Why not ITIMER_PROF: its signal is one per process, so on several cores most ticks find one still
 * pending and are lost, and it may be delivered to another thread than the thread that used the
 * time. A timer of the thread's own clock counts exactly (with the overrun count), costs nothing
 * while the thread sleeps, and needs nothing from the thread: the kernel lets any thread of a
 * process make a timer on another's clock, so threads of RocksDB are sampled like ours.
 *
 * The price: threads are found by looking (twice a second), so a thread that lives shorter is
 * missed. All threads of this program live long.
 */
#include "common/obs/prof_threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/str.h"

enum { YOUNG_SCANS = 3, GONE_SCANS = 60 };

struct known_thread {
    pid_t tid;
    timer_t timer;
    bool armed, seen;
    uint32_t scans, gone; /* scans since it was found; since it was missed */
    char name[PROF_NAME_MAX];
};
struct prof_threads {
    uint64_t period_ns;
    struct prng prng; /* spreads first ticks, so that threads do not tick together */
    struct known_thread list[PROF_THREADS_MAX];
    size_t len;
};

struct prof_threads *prof_threads_new(uint64_t hz)
{
    struct prof_threads *t = XNEW(struct prof_threads);

    CHECK(hz > 0 && hz <= 1000);
    t->period_ns = 1000000000 / hz;
    prng_init(&t->prng, (uint64_t)getpid());
    return t;
}

static void disarm(struct known_thread *k)
{
    if (k->armed)
        (void)timer_delete(k->timer);
    k->armed = false;
}

void prof_threads_disarm(struct prof_threads *t)
{
    for (size_t i = 0; i < t->len; i++)
        disarm(&t->list[i]);
}

void prof_threads_free(struct prof_threads *t)
{
    if (!t)
        return;
    prof_threads_disarm(t);
    xfree(t);
}

/* The kernel's number for the CPU clock of a thread: inverted id, and "per thread, scheduler". */
static clockid_t cpu_clock(pid_t tid)
{
    return (clockid_t)(~(unsigned)tid << 3 | 6u);
}

/* Fails when the thread just ended, or over the limit of signals; it is not sampled then. */
static void arm(struct prof_threads *t, struct known_thread *k)
{
    struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF };
    uint64_t first = 1 + prng_below(&t->prng, t->period_ns);
    struct itimerspec when = {
        .it_interval = { 0, (long)(t->period_ns % 1000000000) },
        .it_value = { 0, (long)MIN(first, 999999999u) },
    };

    when.it_interval.tv_sec = (time_t)(t->period_ns / 1000000000);
    ev._sigev_un._tid = k->tid; /* glibc has no public name for it */
    if (timer_create(cpu_clock(k->tid), &ev, &k->timer))
        return;
    k->armed = true;
    if (timer_settime(k->timer, 0, &when, NULL))
        disarm(k);
}

static void read_name(struct known_thread *k)
{
    char path[64];
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)k->tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    n = read(fd, k->name, sizeof(k->name) - 1);
    (void)close(fd);
    n = n < 0 ? 0 : n;
    if (n && k->name[n - 1] == '\n')
        n--;
    k->name[n] = '\0';
}

static struct known_thread *find(const struct prof_threads *t, pid_t tid)
{
    for (size_t i = 0; i < t->len; i++)
        if (t->list[i].tid == tid)
            return (struct known_thread *)(uintptr_t)&t->list[i];
    return NULL;
}

static void see(struct prof_threads *t, pid_t tid, bool names)
{
    struct known_thread *k = find(t, tid);

    if (k && k->gone) { /* the number is used again: another thread, another clock */
        disarm(k);
        *k = (struct known_thread){ .tid = tid };
        arm(t, k);
    } else if (!k) {
        if (t->len == PROF_THREADS_MAX)
            return;
        k = &t->list[t->len++];
        *k = (struct known_thread){ .tid = tid };
        arm(t, k);
    }
    if (names || k->scans < YOUNG_SCANS)
        read_name(k);
    k->scans++;
    k->seen = true;
}

void prof_threads_scan(struct prof_threads *t, bool names)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *d;
    size_t kept = 0;

    if (!dir)
        return;
    for (size_t i = 0; i < t->len; i++)
        t->list[i].seen = false;
    while ((d = readdir(dir)) != NULL) {
        uint64_t tid;

        if (str_u64(str_c(d->d_name), &tid) && tid <= INT32_MAX)
            see(t, (pid_t)tid, names);
    }
    (void)closedir(dir);
    for (size_t i = 0; i < t->len; i++) {
        struct known_thread *k = &t->list[i];

        if (!k->seen) {
            disarm(k);
            k->gone++;
        }
        /* Kept for a while, for samples that are still on their way. */
        if (k->gone < GONE_SCANS)
            t->list[kept++] = *k;
    }
    t->len = kept;
}

const char *prof_threads_name(const struct prof_threads *t, pid_t tid)
{
    const struct known_thread *k = find(t, tid);

    return k ? k->name : "";
}

size_t prof_threads_armed(const struct prof_threads *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len; i++)
        n += t->list[i].armed;
    return n;
}
