/* SPDX-License-Identifier: Apache-2.0
 *
 * term: names of functions, labels and services come from unknown senders: a name with an escape
 * sequence in it could clear the screen, change its title or type an answer. So no byte of a name
 * gets to a terminal but through here.
 */
#include "deploy/ctl/cli/term.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* ---- the terminal ---- */

static uint32_t width_of(uint64_t wanted, bool tty)
{
    struct winsize w;
    const char *columns = getenv("COLUMNS");
    uint64_t n = 0;

    if (wanted)
        n = wanted;
    else if (!tty)
        n = TERM_WIDTH_MAX;
    else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
        n = w.ws_col;
    else if (!columns || !str_u64(str_c(columns), &n))
        n = 80;
    return (uint32_t)MIN(MAX(n, TERM_WIDTH_MIN), TERM_WIDTH_MAX);
}

void term_detect(struct term *t, const char *color, uint64_t width)
{
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool dumb = !kind || strcmp(kind, "dumb") == 0;

    t->tty = isatty(STDOUT_FILENO) == 1;
    t->tty_err = isatty(STDERR_FILENO) == 1;
    t->width = width_of(width, t->tty);
    t->color = strcmp(color, "always") == 0 ||
               (strcmp(color, "auto") == 0 && t->tty && !dumb && !(no_color && no_color[0]));
    /* What the terminal shows is the user's locale; how wide characters are is always asked of a
     * UTF-8 one. */
    t->utf8 = setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    (void)setlocale(LC_CTYPE, "C.UTF-8");
}

void term_style(const struct term *t, enum term_style s, struct buf *out)
{
    static const char *const codes[] = { "0", "2", "1", "31", "33", "32" };

    if (t->color)
        (void)buf_addf(out, "\033[%sm", codes[s]);
}

void term_pad(size_t n, struct buf *out)
{
    while (n--)
        (void)buf_add_c(out, ' ');
}

/* ---- names ---- */

#define BAD UINT32_MAX

/* The code point at s and its length; BAD and one byte if s is not UTF-8. */
static uint32_t decode(struct str s, size_t *ret_len)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    uint32_t c = (uint8_t)s.ptr[0];
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

    *ret_len = 1;
    if (n == 1)
        return c;
    if (c < 0xc2 || c > 0xf4 || n > s.len)
        return BAD;
    c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) {
        if (((uint8_t)s.ptr[i] & 0xc0) != 0x80)
            return BAD;
        c = c << 6 | ((uint8_t)s.ptr[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return BAD;
    *ret_len = n;
    return c;
}

/* Controls, and what is not seen but changes what is: direction, joiners, separators, tags. */
static bool harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe01ff) || c == BAD;
}

/* One character of s: what to show for it, and how wide it is. */
static struct str shown(const struct term *t, struct str s, size_t *ret_len, size_t *ret_columns)
{
    uint32_t c = decode(s, ret_len);
    int columns = 1;

    *ret_columns = 1;
    if (harmful(c) || (c >= 0x80 && t->tty && !t->utf8))
        return STR("?");
    if (c >= 0x80)
        columns = wcwidth((wchar_t)c);
    *ret_columns = columns < 0 ? 1 : (size_t)columns;
    return str_sub(s, 0, *ret_len);
}

size_t term_name(const struct term *t, struct str s, size_t columns, struct buf *out)
{
    struct str dots = t->utf8 ? STR("…") : STR("~");
    size_t used = 0, safe = 0, safe_len = out->len, n, w, chars = 0;

    for (; s.len; s = str_sub(s, n, s.len)) {
        struct str c = shown(t, s, &n, &w);
        /* Marks of no width may stand behind a letter, but not in endless piles. */
        if (used + w > columns || (!w && ++chars > 4 * columns))
            break;
        (void)buf_add_str(out, c);
        used += w;
        if (used < columns) {
            safe = used;
            safe_len = out->len;
        }
    }
    if (!s.len || !columns)
        return used;
    out->len = safe_len;
    (void)buf_add_str(out, dots);
    return safe + 1;
}

void term_lines(const struct term *t, struct str s, struct buf *out)
{
    size_t n, w;

    for (; s.len; s = str_sub(s, n, s.len)) {
        struct str c = shown(t, s, &n, &w);
        if (s.ptr[0] == '\n' || s.ptr[0] == '\t')
            c = str_sub(s, 0, 1);
        (void)buf_add_str(out, c);
    }
}

/* ---- numbers ---- */

struct step {
    double from;
    const char *unit;
};

static void put_scaled(double v, const struct step *steps, size_t n, struct buf *out)
{
    double a = fabs(v);
    size_t i = 0;

    /* Up to where three digits would round to a thousand of the smaller unit. */
    while (i + 1 < n && a >= steps[i + 1].from * 0.9995)
        i++;
    double x = v / steps[i].from, ax = fabs(x);
    const char *gap = steps[i].unit[0] ? " " : "";
    if (ax == floor(ax) && ax < 1000)
        (void)buf_addf(out, "%.0f%s%s", x, gap, steps[i].unit);
    else
        (void)buf_addf(out, "%.*f%s%s", ax < 9.995 ? 2 : ax < 99.95 ? 1 : 0, x, gap, steps[i].unit);
}

void term_value(double v, struct str unit, struct buf *out)
{
    static const struct step seconds[] = { { 1, "ns" },      { 1e3, "us" },    { 1e6, "ms" },
                                           { 1e9, "s" },     { 60e9, "min" },  { 3600e9, "h" },
                                           { 86400e9, "d" }, { 31536e12, "y" } };
    static const struct step bytes[] = { { 1, "B" },
                                         { 1024., "KiB" },
                                         { 1048576., "MiB" },
                                         { 1073741824., "GiB" },
                                         { 1099511627776., "TiB" },
                                         { 1125899906842624., "PiB" },
                                         { 1152921504606846976., "EiB" } };
    static const struct step numbers[] = { { 1, "" },     { 1e6, "M" },  { 1e9, "G" },
                                           { 1e12, "T" }, { 1e15, "P" }, { 1e18, "E" } };

    if (str_eqc(unit, "nanoseconds") || str_eqc(unit, "lock_nanoseconds"))
        put_scaled(v, seconds, ARRAY_LEN(seconds), out);
    else if (str_eqc(unit, "microseconds"))
        put_scaled(v * 1e3, seconds, ARRAY_LEN(seconds), out);
    else if (str_eqc(unit, "milliseconds"))
        put_scaled(v * 1e6, seconds, ARRAY_LEN(seconds), out);
    else if (str_eqc(unit, "seconds"))
        put_scaled(v * 1e9, seconds, ARRAY_LEN(seconds), out);
    else if (str_eqc(unit, "bytes"))
        put_scaled(v, bytes, ARRAY_LEN(bytes), out);
    else if (fabs(v) < 999500)
        (void)buf_addf(out, "%.*f", v == floor(v) ? 0 : fabs(v) < 9.995 ? 2 : 1, v);
    else
        put_scaled(v, numbers, ARRAY_LEN(numbers), out);
}

void term_value_right(double v, struct str unit, bool sign, size_t columns, struct buf *out)
{
    struct buf b;

    buf_init(&b, 64);
    if (sign && v > 0)
        (void)buf_add_c(&b, '+');
    term_value(v, unit, &b);
    term_pad(b.len < columns ? columns - b.len : 0, out);
    (void)buf_add_str(out, buf_str(&b));
    buf_deinit(&b);
}

void term_time(int64_t ms, struct buf *out)
{
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    char text[32];

    if (!gmtime_r(&s, &tm) || !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm))
        (void)buf_addf(out, "%" PRId64 " ms", ms);
    else
        (void)buf_add_str(out, str_c(text));
}

void term_duration(int64_t ms, struct buf *out)
{
    if (ms >= 86400000)
        (void)buf_addf(out, "%.4g d", (double)ms / 86400e3);
    else if (ms >= 3600000)
        (void)buf_addf(out, "%.4g h", (double)ms / 3600e3);
    else if (ms >= 600000)
        (void)buf_addf(out, "%.4g min", (double)ms / 60e3);
    else
        (void)buf_addf(out, "%.4g s", (double)ms / 1e3);
}
