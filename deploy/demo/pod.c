/* SPDX-License-Identifier: Apache-2.0
 *
 * pod: workers that serve at a steady rate, and the profiler beside them.
 *
 * The rate is what version 1 could serve with the given share of a core, measured at the start; so
 * both versions get the same requests, and the slower one shows by using more CPU, as in life. The
 * rate swells and ebbs over two minutes, to give the timeline a shape.
 */
#include "deploy/demo/pod.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "common/obs/log.h"
#include "common/obs/selfprof.h"
#include "common/sys/thread.h"

enum { WORKERS = 2, WARM_UP = 100, HZ = 250, TIDE_S = 120 };
#define NS 1e9
#define PI 3.14159265358979

struct worker {
    struct thread thread;
    struct shop *shop;
    double rate; /* requests per second, mean */
    _Atomic bool *stop;
};

static double cpu_s(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / NS;
}

/* CPU seconds of one request in version 1. */
static double cost_of_request(uint64_t seed)
{
    struct shop *s = shop_new(SHOP_V1, seed);
    double before, cost;

    for (int i = 0; i < WARM_UP; i++)
        shop_serve_one(s);
    before = cpu_s();
    for (int i = 0; i < WARM_UP; i++)
        shop_serve_one(s);
    cost = (cpu_s() - before) / WARM_UP;
    shop_free(s);
    return MAX(cost, 1e-6);
}

static void wait_ns(uint64_t ns)
{
    struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

    (void)nanosleep(&t, NULL);
}

static void worker_run(void *cookie)
{
    struct worker *w = cookie;
    const struct clock *clock = clock_real();
    uint64_t began = clock_mono_ns(clock), due = began;

    while (!atomic_load(w->stop)) {
        uint64_t now = clock_mono_ns(clock);
        double tide = 1 + 0.4 * sin((double)(now - began) / NS * 2 * PI / TIDE_S);

        if (due > now) {
            wait_ns(MIN(due - now, (uint64_t)200000000));
            continue;
        }
        shop_serve_one(w->shop);
        due += (uint64_t)(NS / (w->rate * tide));
        /* After a pause of the machine: no burst to catch up. */
        if (due + 1000000000 < now)
            due = now;
    }
}

static void on_error(void *cookie, const struct err *e)
{
    (void)cookie;
    log_warn("cannot push the demo's profile", KV_ERR(e));
}

static struct selfprof *start_profiler(const struct pod_opts *o)
{
    char labels[128];
    struct selfprof_opts p = { .env = env_real(),
                               .hz = HZ,
                               .url = o->url,
                               .service = "demo-shop",
                               .labels = labels,
                               .push_at_stop = true,
                               .on_error = on_error };
    struct selfprof *prof = NULL;
    struct err e = { 0 };

    (void)snprintf(labels, sizeof(labels), "version=%s,region=%s,pod=%s",
                   o->version == SHOP_V1 ? "v1" : "v2", o->region, o->name);
    if (selfprof_start(&p, &prof, &e))
        log_error("the demo cannot be profiled", KV_ERR(&e));
    return prof;
}

static void wait_for_signal(uint64_t seconds)
{
    struct timespec t = { (time_t)seconds, 0 };
    sigset_t set;

    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGTERM) == 0 && sigaddset(&set, SIGINT) == 0 &&
          sigaddset(&set, SIGHUP) == 0);
    if (seconds)
        (void)sigtimedwait(&set, NULL, &t);
    else
        while (sigwaitinfo(&set, NULL) < 0)
            ;
}

int pod_run(const struct pod_opts *o)
{
    struct worker w[WORKERS] = { { .rate = 0 } };
    double cost = cost_of_request(o->seed);
    _Atomic bool stop = false;
    struct selfprof *prof = start_profiler(o);

    if (!prof)
        return 1;
    thread_name_self("shop");
    for (uint64_t i = 0; i < WORKERS; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "worker-%u", (unsigned)i);
        w[i].shop = shop_new(o->version, o->seed * 10 + i);
        w[i].rate = o->load / WORKERS / cost;
        w[i].stop = &stop;
        thread_start(&w[i].thread, name, worker_run, &w[i]);
    }
    wait_for_signal(o->seconds);
    atomic_store(&stop, true);
    for (int i = 0; i < WORKERS; i++)
        thread_join(&w[i].thread);
    selfprof_stop(prof);
    for (int i = 0; i < WORKERS; i++)
        shop_free(w[i].shop);
    return 0;
}
