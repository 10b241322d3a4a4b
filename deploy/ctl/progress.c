/* SPDX-License-Identifier: Apache-2.0
 *
 * progress: a thread draws while the main one waits for the server; a pipe ends it at once, so that
 * a quick answer stays quick.
 */
#include "deploy/ctl/progress.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define SILENT_MS 1000
#define DRAW_MS   250
#define BAR       30
#define WIPE      "\r\033[K"

struct progress {
    struct thread thread;
    const char *what;
    int end[2]; /* closing [1] ends the thread */
};

static void draw(void *cookie)
{
    const struct progress *p = cookie;
    uint64_t began = clock_mono_ms(clock_real());
    struct pollfd f = { p->end[0], POLLIN, 0 };
    bool drawn = false;

    while (poll(&f, 1, drawn ? DRAW_MS : SILENT_MS) == 0) {
        (void)fprintf(stderr, WIPE "waiting for %s, %" PRIu64 " s", p->what,
                      (clock_mono_ms(clock_real()) - began) / 1000);
        (void)fflush(stderr);
        drawn = true;
    }
    if (drawn)
        (void)fprintf(stderr, WIPE);
}

struct progress *progress_start(const struct cli *c, const char *what)
{
    struct progress *p;

    if (!c->term.tty_err || c->o.quiet)
        return NULL;
    p = XNEW(struct progress);
    p->what = what;
    if (pipe(p->end)) {
        xfree(p);
        return NULL;
    }
    thread_start(&p->thread, "progress", draw, p);
    return p;
}

void progress_stop(struct progress *p)
{
    if (!p)
        return;
    (void)close(p->end[1]);
    thread_join(&p->thread);
    (void)close(p->end[0]);
    xfree(p);
}

void progress_bar(const struct cli *c, const char *what, uint64_t done, uint64_t all)
{
    char bar[BAR + 1];
    uint64_t full = all ? done * BAR / all : 0;

    if (!c->term.tty_err || c->o.quiet || all < 2)
        return;
    for (uint64_t i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    (void)fprintf(stderr, WIPE "%s [%s] %" PRIu64 " of %" PRIu64 "%s", what, bar, done, all,
                  done == all ? "\n" : "");
    (void)fflush(stderr);
}
