/* SPDX-License-Identifier: Apache-2.0
 *
 * term.h: text for people: what a terminal can do, names made harmless, columns, numbers with
 * units. Everything writes onto a buf, so that it can be tested without a terminal.
 */
#ifndef DEPLOY_CTL_CLI_TERM_H
#define DEPLOY_CTL_CLI_TERM_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define TERM_WIDTH_MIN 40
#define TERM_WIDTH_MAX 1000

struct term {
    bool tty;       /* standard output is one */
    bool tty_err;   /* standard error is one: progress may be drawn */
    bool color;     /* styles come out as escape sequences */
    bool utf8;      /* lines may be drawn with other than ASCII */
    uint32_t width; /* columns; text that goes to a file has TERM_WIDTH_MAX */
};
enum term_style { TERM_PLAIN, TERM_DIM, TERM_BOLD, TERM_RED, TERM_YELLOW, TERM_GREEN };

/* `color`: "auto", "always", "never". `width` 0: ask the terminal. Sets the locale of characters:
 * once, on the main thread. */
void term_detect(struct term *t, const char *color, uint64_t width);
void term_style(const struct term *t, enum term_style s, struct buf *out);

/* A name from anywhere on one line: escape sequences, line breaks, marks that turn the direction
 * of text and bytes that are no UTF-8 come out as one harmless character each. At most `columns`,
 * the last one a "…" then. Returns the columns written. */
size_t term_name(const struct term *t, struct str s, size_t columns, struct buf *out);
/* The same for a text of lines, without a limit: line ends and tabs stay. */
void term_lines(const struct term *t, struct str s, struct buf *out);
/* `n` blanks. */
void term_pad(size_t n, struct buf *out);

/* "1.23 s", "12.3 MiB", "1234": at most 10 columns, three digits that count. `unit` is a sample
 * unit: nanoseconds and the like, bytes, anything else is a number (1.23 M from a million on). */
void term_value(double v, struct str unit, struct buf *out);
/* The same, right-aligned in `columns`; `sign`: with a '+' where it is above zero. */
void term_value_right(double v, struct str unit, bool sign, size_t columns, struct buf *out);
/* "2026-11-21 20:21:05" in UTC. */
void term_time(int64_t ms, struct buf *out);
/* "1 h", "90 s", "2.5 d". */
void term_duration(int64_t ms, struct buf *out);

#endif
