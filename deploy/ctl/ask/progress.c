/* SPDX-License-Identifier: Apache-2.0
 *
 * progress: a thread draws while the main one waits for the server; a pipe ends it at once, so that
 * a quick answer stays quick.
 */
#include "deploy/ctl/ask/progress.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/rate_estimate.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "deploy/ctl/cli/term.h"

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

/* ---- how far, in words ---- */

void progress_left(uint64_t s, struct buf *out)
{
    static const struct {
        uint64_t s;
        const char *unit;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "m" }, { 1, "s" } };
    size_t i = 0;

    while (i + 1 < ARRAY_LEN(units) && s < units[i].s)
        i++;
    (void)buf_addf(out, "%" PRIu64 " %s ", s / units[i].s, units[i].unit);
    s %= units[i].s;
    if (i + 1 < ARRAY_LEN(units) && s / units[i + 1].s)
        (void)buf_addf(out, "%" PRIu64 " %s ", s / units[i + 1].s, units[i + 1].unit);
    (void)buf_add_str(out, STR("left"));
}

void progress_speed(const struct progress_now *p, uint64_t left, struct buf *out)
{
    if (!p->timed)
        return;
    if (!p->per_s) {
        if (left)
            (void)buf_add_str(out, STR(", stands still"));
        return;
    }
    (void)buf_add_str(out, STR(", "));
    term_value((double)p->per_s, STR("bytes"), out);
    (void)buf_add_str(out, STR("/s, "));
    progress_left(rate_estimate_left_s(p->per_s, left), out);
}

/* Both in the unit of the second. */
static void put_of(uint64_t done, uint64_t total, struct buf *out)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double a = (double)done, b = (double)total;
    size_t i = 0;

    for (; b >= 1000 && i + 1 < ARRAY_LEN(units); i++) {
        a /= 1024;
        b /= 1024;
    }
    int digits = i == 0 || b >= 99.95 ? 0 : b >= 9.995 ? 1 : 2;
    (void)buf_addf(out, "%.*f of %.*f %s", digits, a, digits, b, units[i]);
}

void progress_words(const struct progress_now *p, struct buf *out)
{
    if (p->total) {
        put_of(p->done, p->total, out);
        progress_speed(p, p->total - MIN(p->done, p->total), out);
        return;
    }
    term_value((double)p->done, STR("bytes"), out);
    (void)buf_add_str(out, STR(" so far"));
    if (p->timed && !p->per_s) {
        (void)buf_add_str(out, STR(", stands still"));
    } else if (p->timed) {
        (void)buf_add_str(out, STR(", "));
        term_value((double)p->per_s, STR("bytes"), out);
        (void)buf_add_str(out, STR("/s"));
    }
}
