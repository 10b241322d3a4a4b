/* SPDX-License-Identifier: Apache-2.0
 *
 * log: builds the line on the stack and hands it to the kernel in one write(2), so that lines of
 * several threads and processes on one stderr never mix. A line that does not fit is cut and says
 * so with "...". A write that fails is dropped: there is no other place to report it.
 *
 * Rate limit: a call site is known by the address of its message. Within a window of WINDOW_MS a
 * site may print BURST warnings or errors; the rest are counted, and the first line after the
 * window carries the count (`suppressed=n`). More than SITES sites: the surplus is not limited.
 *
 * Thread: any; one mutex guards the site table, and only warnings and errors take it.
 */
#include "common/obs/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/sys/thread.h"

enum { LINE_MAX_BYTES = 4096, TAIL_BYTES = 8, SITES = 256, BURST = 10, WINDOW_MS = 10000 };

struct site {
    const char *msg; /* NULL: free */
    uint64_t window_ms;
    uint32_t printed;
    uint64_t suppressed;
};

static _Atomic int min_level = LOG_INFO;
static _Atomic int out_fd = STDERR_FILENO;
static _Atomic(const struct clock *) log_clock;
static _Atomic uint64_t counts[LOG_ERROR + 1];
static _Atomic uint64_t suppressed_total;
static struct mutex sites_lock = MUTEX_INIT;
static struct site sites[SITES];

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_set_level(enum log_level level)
{
    atomic_store(&min_level, (int)level);
}

void log_set_output(int fd, const struct clock *clock)
{
    atomic_store(&out_fd, fd);
    atomic_store(&log_clock, clock);
}

bool log_level_parse(struct str s, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
        if (str_eqc(s, level_names[i])) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

uint64_t log_count(enum log_level level)
{
    return atomic_load_explicit(&counts[level], memory_order_relaxed);
}

uint64_t log_suppressed(void)
{
    return atomic_load_explicit(&suppressed_total, memory_order_relaxed);
}

/* ---- the line -------------------------------------------------------------------------------- */

struct line {
    char text[LINE_MAX_BYTES];
    size_t len; /* at most sizeof(text) - TAIL_BYTES, so that the end always fits */
    bool cut;
};

static void line_add(struct line *l, const char *p, size_t n)
{
    size_t room = sizeof(l->text) - TAIL_BYTES - l->len;

    if (n > room) {
        l->cut = true;
        n = room;
        /* Not in the middle of a UTF-8 sequence. */
        while (n && ((unsigned char)p[n] & 0xc0) == 0x80)
            n--;
    }
    memcpy(l->text + l->len, p, n);
    l->len += n;
}

static void line_add_c(struct line *l, const char *s)
{
    line_add(l, s, strlen(s));
}

static bool plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f)
            return false;
    }
    return s.len > 0;
}

/* As is, or in quotes with JSON's escapes; bytes that are no UTF-8 become \xNN. */
static void line_add_value(struct line *l, struct str s)
{
    bool utf8 = str_utf8_valid(s);

    if (utf8 && plain(s)) {
        line_add(l, s.ptr, s.len);
        return;
    }
    line_add_c(l, "\"");
    for (size_t i = 0; i < s.len && !l->cut; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        char esc[8];

        if (c == '"' || c == '\\') {
            (void)snprintf(esc, sizeof(esc), "\\%c", c);
        } else if (c == '\n') {
            (void)snprintf(esc, sizeof(esc), "\\n");
        } else if (c < ' ' || c == 0x7f || (c >= 0x80 && !utf8)) {
            (void)snprintf(esc, sizeof(esc), "\\x%02x", c);
        } else {
            line_add(l, s.ptr + i, 1);
            continue;
        }
        line_add_c(l, esc);
    }
    line_add_c(l, "\"");
}

static void line_add_time(struct line *l, int64_t wall_ms)
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    char text[128];

    if (!gmtime_r(&s, &tm))
        memset(&tm, 0, sizeof(tm));
    (void)snprintf(text, sizeof(text), "ts=%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                   (int)(wall_ms % 1000));
    line_add_c(l, text);
}

static void line_add_kv(struct line *l, const struct log_kv *kv)
{
    char number[24];

    line_add_c(l, " ");
    line_add_c(l, kv->key);
    line_add_c(l, "=");
    switch (kv->type) {
    case LOG_KV_STR:
    case LOG_KV_CSTR:
        line_add_value(l, kv->s);
        break;
    case LOG_KV_U64:
        (void)snprintf(number, sizeof(number), "%" PRIu64, kv->u);
        line_add_c(l, number);
        break;
    case LOG_KV_I64:
        (void)snprintf(number, sizeof(number), "%" PRId64, kv->i);
        line_add_c(l, number);
        break;
    case LOG_KV_BOOL:
        line_add_c(l, kv->u ? "true" : "false");
        break;
    }
}

static void line_write(struct line *l)
{
    const char *at = l->text;
    size_t left;

    if (l->cut) {
        memcpy(l->text + l->len, "...", 3);
        l->len += 3;
    }
    l->text[l->len++] = '\n';
    left = l->len;
    while (left) {
        ssize_t n = write(atomic_load(&out_fd), at, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += n;
        left -= (size_t)n;
    }
}

/* ---- rate limit ------------------------------------------------------------------------------ */

/* The site of a message, or NULL when the table is full. */
static struct site *site_of(const char *msg, uint64_t now_ms)
{
    size_t at = (size_t)hash_u64((uintptr_t)msg) % SITES;

    for (size_t i = 0; i < SITES; i++) {
        struct site *s = &sites[(at + i) % SITES];

        if (!s->msg)
            *s = (struct site){ .msg = msg, .window_ms = now_ms };
        if (s->msg == msg)
            return s;
    }
    return NULL;
}

/* True if the line may be printed; *ret_suppressed is how many of its kind were not. */
static bool admit(const char *msg, uint64_t now_ms, uint64_t *ret_suppressed)
{
    struct site *s;
    bool yes = true;

    *ret_suppressed = 0;
    mutex_lock(&sites_lock);
    s = site_of(msg, now_ms);
    if (s && now_ms - s->window_ms >= WINDOW_MS) {
        s->window_ms = now_ms;
        s->printed = 0;
    }
    if (s && s->printed >= BURST) {
        s->suppressed++;
        atomic_fetch_add_explicit(&suppressed_total, 1, memory_order_relaxed);
        yes = false;
    } else if (s) {
        s->printed++;
        *ret_suppressed = s->suppressed;
        s->suppressed = 0;
    }
    mutex_unlock(&sites_lock);
    return yes;
}

void log_event(enum log_level level, const char *msg, const struct log_kv *kv, size_t n)
{
    const struct clock *clock = atomic_load(&log_clock);
    uint64_t suppressed = 0;
    struct line l;
    char thread[17] = { 0 };

    if ((int)level < atomic_load_explicit(&min_level, memory_order_relaxed))
        return;
    if (!clock)
        clock = clock_real();
    atomic_fetch_add_explicit(&counts[level], 1, memory_order_relaxed);
    if (level >= LOG_WARN && !admit(msg, clock_mono_ms(clock), &suppressed))
        return;
    l.len = 0;
    l.cut = false;
    line_add_time(&l, clock_wall_ms(clock));
    line_add_c(&l, " level=");
    line_add_c(&l, level_names[level]);
    (void)prctl(PR_GET_NAME, thread, 0, 0, 0);
    line_add_c(&l, " thread=");
    line_add_value(&l, str_c(thread));
    line_add_c(&l, " msg=");
    line_add_value(&l, str_c(msg));
    for (size_t i = 0; i < n; i++)
        line_add_kv(&l, &kv[i]);
    if (suppressed) {
        struct log_kv s = KV_U64("suppressed", suppressed);

        line_add_kv(&l, &s);
    }
    line_write(&l);
}
