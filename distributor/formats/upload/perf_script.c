/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_script: events of `perf script` to stacks.
 *
 *   comm pid[/tid] [cpu] [time:] [period] [event:] [frame]  comm may be padded with blanks
 *       address symbol[+0xoffset] (module)                  leaf first, until an empty line, the
 *                                                           next event, or the end
 *
 * comm may hold blanks, symbols and modules blanks and brackets: an event line is split at the
 * first number that follows a blank, a frame at its last balanced pair of brackets. '#' begins a
 * comment. Lines that are neither are left out and counted.
 *
 * Which fields there are is what `perf script -F` was asked for. A line without a time looks much
 * like a frame, so an indented one is an event only where none is open. Without the name of an
 * event all samples are of one kind, and a sample without a period is worth 1, as for
 * stackcollapse-perf.pl.
 *
 * A stack is comm, then the frames from the root on. A symbol that is [unknown] is named by its
 * module. Java's JIT writes inlined chains into one symbol of a perf-PID.map, "a->b->c", root
 * first, and "Lfoo/Bar;::baz" for foo/Bar::baz. Per event name there are two series, the samples
 * and the sum of their periods, which is a time for the clocks.
 *
 * Format: perf-script(1) (proto/FORMATS.md, "perf script").
 */
#include "distributor/formats/upload/perf_script.h"

#include <ctype.h>

#include "distributor/formats/gather.h"

#define SNIFF_BYTES 4096
#define FRAME_PARTS 64 /* of an inlined chain */

struct sample {
    uint32_t event, node;
    uint64_t period;
};
struct reader {
    struct gather g;
    uint64_t lines;
    struct str events[PERF_EVENTS_MAX];
    uint32_t events_len;
    bool period_of[PERF_EVENTS_MAX]; /* a line of the event had one */
    VEC(struct sample) samples;      /* owned */
    /* the event being read */
    bool open;
    struct sample now;
    struct str comm;
    VEC(struct str) frames; /* owned; leaf first */
};
struct event_line {
    struct str comm, event, rest; /* event: empty where the line has none */
    uint64_t period;
    bool has_time, has_period;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next word; *s moves behind it. */
static struct str word(struct str *s)
{
    size_t from = 0, to;

    while (from < s->len && is_blank(s->ptr[from]))
        from++;
    for (to = from; to < s->len && !is_blank(s->ptr[to]); to++)
        ;
    struct str w = str_sub(*s, from, to);
    *s = str_sub(*s, to, s->len);
    return w;
}

/* "-12", "12/34" */
static bool is_pid(struct str w)
{
    size_t digits = 0;

    for (size_t i = 0; i < w.len; i++) {
        if (is_digit(w.ptr[i]))
            digits++;
        else if (!((w.ptr[i] == '-' || w.ptr[i] == '/') && i + 1 < w.len &&
                   (w.ptr[i] == '-' ? i == 0 || w.ptr[i - 1] == '/' : digits > 0)))
            return false;
    }
    return digits > 0;
}

/* "9962.502413:" */
static bool is_time(struct str w)
{
    bool dot = false;

    if (w.len < 4 || w.ptr[w.len - 1] != ':' || !is_digit(w.ptr[0]))
        return false;
    for (size_t i = 0; i + 1 < w.len; i++) {
        if (w.ptr[i] == '.' && !dot)
            dot = true;
        else if (!is_digit(w.ptr[i]))
            return false;
    }
    return dot;
}

/* The symbol without offset, or the module if it has no symbol. False: no frame. */
static bool parse_frame(struct str line, struct str *ret_symbol, struct str *ret_module)
{
    struct str rest = line, address = word(&rest);
    size_t open = 0, close;

    for (size_t i = 0; i < address.len; i++)
        if (!is_digit(address.ptr[i]) && !(address.ptr[i] >= 'a' && address.ptr[i] <= 'f'))
            return false;
    rest = str_trim(rest);
    if (!address.len || !rest.len)
        return false;
    *ret_module = STR_NULL;
    if (rest.ptr[rest.len - 1] == ')') {
        for (close = rest.len; close > 0; close--) {
            open += rest.ptr[close - 1] == ')';
            if (rest.ptr[close - 1] == '(' && --open == 0)
                break;
        }
        if (close == 0)
            return false;
        *ret_module = str_sub(rest, close, rest.len - 1);
        rest = str_trim(str_sub(rest, 0, close - 1));
    }
    ptrdiff_t plus = str_rfind(rest, '+');
    if (plus > 0 && str_starts(str_sub(rest, (size_t)plus, rest.len), STR("+0x")))
        rest = str_sub(rest, 0, (size_t)plus);
    *ret_symbol = rest;
    return true;
}

/* "[003]" */
static bool is_cpu(struct str w)
{
    uint64_t n;

    return w.len > 2 && w.ptr[0] == '[' && w.ptr[w.len - 1] == ']' &&
           str_u64(str_sub(w, 1, w.len - 1), &n);
}

/* Reads up to the process; *rest is what follows it. */
static bool parse_comm(struct str line, struct str *ret_comm, struct str *ret_rest)
{
    struct str rest = line, before, w;

    (void)word(&rest); /* comm has one word at least */
    do {
        before = rest;
        w = word(&rest);
        if (!w.len)
            return false;
    } while (!is_pid(w));
    *ret_comm = str_trim(str_sub(line, 0, (size_t)(before.ptr - line.ptr)));
    *ret_rest = rest;
    return true;
}

/* Moves *rest behind the time, if there is one, or else behind the CPU. */
static bool skip_time(struct str *rest)
{
    struct str at = *rest, w = word(&at);

    for (; w.len; w = word(&at))
        if (is_time(w)) {
            *rest = at;
            return true;
        }
    at = *rest;
    w = word(&at);
    if (is_cpu(w))
        *rest = at;
    return false;
}

static bool parse_event(struct str line, struct event_line *ret)
{
    struct str rest, at, w, symbol, module;

    *ret = (struct event_line){ .event = STR(""), .period = 1 };
    if (!parse_comm(line, &ret->comm, &rest))
        return false;
    ret->has_time = skip_time(&rest);
    at = rest;
    w = word(&at);
    ret->has_period = str_u64(w, &ret->period);
    if (ret->has_period) {
        ret->rest = at;
        w = word(&at);
    } else {
        ret->rest = rest;
    }
    if (w.len > 1 && w.ptr[w.len - 1] == ':') {
        ret->event = str_sub(w, 0, w.len - 1);
        ret->rest = at;
    }
    ret->rest = str_trim(ret->rest);
    if (!ret->rest.len || ret->event.len)
        return true;
    /* Without an event the rest can only be a frame; its address may look like a period. */
    if (ret->has_period && parse_frame(rest, &symbol, &module)) {
        ret->rest = str_trim(rest);
        ret->has_period = false;
        ret->period = 1;
    }
    return parse_frame(ret->rest, &symbol, &module) && (ret->has_time || module.len);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* "Lfoo/Bar;::baz" as foo/Bar::baz; made of parts of the text, so the ';' must go by a copy. */
static struct str java_name(struct reader *r, struct str s)
{
    const char *mark = s.len > 4 && s.ptr[0] == 'L' ? memmem(s.ptr, s.len, ";::", 3) : NULL;

    if (!mark)
        return s;
    size_t class = (size_t)(mark - s.ptr);
    char *to = arena_alloc(r->g.push->arena, s.len);
    if (!to)
        return s;
    memcpy(to, s.ptr + 1, class - 1);
    memcpy(to + class - 1, s.ptr + class + 1, s.len - class - 1);
    return str_n(to, s.len - 2);
}

/* A chain in a symbol is root first, the frames are leaf first. */
static void add_chain(struct reader *r, struct str symbol)
{
    struct str parts[FRAME_PARTS];
    size_t n = 0;

    while (n + 1 < FRAME_PARTS) {
        const char *arrow = symbol.len ? memmem(symbol.ptr, symbol.len, "->", 2) : NULL;
        if (!arrow)
            break;
        parts[n++] = str_sub(symbol, 0, (size_t)(arrow - symbol.ptr));
        symbol = str_sub(symbol, (size_t)(arrow - symbol.ptr) + 2, symbol.len);
    }
    parts[n++] = symbol;
    while (n-- > 0)
        vec_push(&r->frames, java_name(r, parts[n]));
}

static struct str base_name(struct str path)
{
    ptrdiff_t slash = str_rfind(path, '/');

    return str_sub(path, (size_t)(slash + 1), path.len);
}

static struct str module_name(struct reader *r, struct str module)
{
    struct str base = base_name(module);
    char *to;

    if (!base.len || base.ptr[0] == '[')
        return base.len && !str_eqc(base, "[unknown]") ? base : STR("[unknown]");
    to = arena_alloc(r->g.push->arena, base.len + 2);
    if (!to)
        return base;
    to[0] = '[';
    memcpy(to + 1, base.ptr, base.len);
    to[base.len + 1] = ']';
    return str_n(to, base.len + 2);
}

static int add_frame(struct reader *r, struct str line, struct err *e)
{
    struct str symbol, module;

    if (!r->open || !parse_frame(line, &symbol, &module)) {
        r->g.push->drops[DROP_LINE]++;
        return 0;
    }
    if (r->frames.len > r->g.l->text_frames)
        return err_set(e, ERR_LIMIT, "line %" PRIu64 ": a stack of more than %" PRIu64 " frames",
                       r->lines, r->g.l->text_frames);
    if (gather_check_name(&r->g, symbol, "line", r->lines, e))
        return e->code;
    if (!symbol.len || str_eqc(symbol, "[unknown]"))
        vec_push(&r->frames, module_name(r, module));
    else if (str_starts(base_name(module), STR("perf-")) && str_ends(module, STR(".map")))
        add_chain(r, symbol);
    else
        vec_push(&r->frames, symbol);
    return 0;
}

static int close_event(struct reader *r, struct err *e)
{
    if (!r->open)
        return 0;
    r->open = false;
    if (r->samples.len >= r->g.l->samples)
        return err_set(e, ERR_LIMIT, "line %" PRIu64 ": more than %" PRIu64 " events", r->lines,
                       r->g.l->samples);
    vec_push(&r->frames, r->comm);
    for (size_t i = 0, k = r->frames.len; i + 1 < k; i++, k--) {
        struct str swap = r->frames.ptr[i];
        r->frames.ptr[i] = r->frames.ptr[k - 1];
        r->frames.ptr[k - 1] = swap;
    }
    const struct gather_stack s = { .names = r->frames.ptr, .n = r->frames.len };
    if (gather_node(&r->g, &s, "line", r->lines, &r->now.node, e))
        return e->code;
    vec_push(&r->samples, r->now);
    return 0;
}

/* Do they make one profile type? There every odd character is '_' (push_add). */
static bool same_event(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        const bool odd_a = !isalnum((unsigned char)a.ptr[i]);
        const bool odd_b = !isalnum((unsigned char)b.ptr[i]);
        if (odd_a != odd_b || (!odd_a && a.ptr[i] != b.ptr[i]))
            return false;
    }
    return true;
}

static int open_event(struct reader *r, const struct event_line *l, struct err *e)
{
    uint32_t i = 0;

    while (i < r->events_len && !same_event(r->events[i], l->event))
        i++;
    if (i == PERF_EVENTS_MAX)
        return err_set(e, ERR_LIMIT, "line %" PRIu64 ": more than %d kinds of events", r->lines,
                       PERF_EVENTS_MAX);
    if (i == r->events_len)
        r->events[r->events_len++] = l->event;
    r->period_of[i] |= l->has_period;
    if (gather_check_name(&r->g, l->comm, "line", r->lines, e))
        return e->code;
    r->open = true;
    r->now = (struct sample){ .event = i, .period = l->period };
    r->comm = l->comm;
    r->frames.len = 0;
    return l->rest.len ? add_frame(r, l->rest, e) : 0;
}

static bool has_time(struct str line)
{
    return skip_time(&line);
}

static int take_line(struct reader *r, struct str line, struct err *e)
{
    struct event_line l;

    r->lines++;
    while (line.len && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len && line.ptr[0] == '#')
        return 0;
    if (!str_trim(line).len)
        return close_event(r, e);
    if ((!r->open || !is_blank(line.ptr[0]) || has_time(line)) && parse_event(line, &l))
        return close_event(r, e) ? e->code : open_event(r, &l, e);
    if (is_blank(line.ptr[0]))
        return add_frame(r, line, e);
    r->g.push->drops[DROP_LINE]++;
    return close_event(r, e);
}

/* ---- series ---------------------------------------------------------------------------------- */

static int add_series(struct reader *r, uint32_t event, bool period, struct err *e)
{
    const struct labels none = { 0 };
    struct str name = r->events[event].len ? r->events[event] : STR("period");
    const bool clock = str_starts(name, STR("cpu-clock")) || str_starts(name, STR("task-clock"));
    const struct ptype type = {
        .name = clock ? STR("process_cpu") : STR("perf"),
        .sample_type = period ? (clock ? STR("cpu") : name) : STR("samples"),
        .sample_unit = period && clock ? STR("nanoseconds") : STR("count"),
        .period_type = name,
        .period_unit = clock ? STR("nanoseconds") : STR("count"),
    };

    for (size_t i = 0; i < r->samples.len; i++)
        if (r->samples.ptr[i].event == event)
            gather_put(&r->g, r->samples.ptr[i].node, period ? r->samples.ptr[i].period : 1);
    return gather_series(&r->g, &type, &none, e);
}

static int read_all(struct reader *r, struct str text, struct err *e)
{
    struct str line;
    bool more = true;

    while (str_next(&text, '\n', &more, &line))
        if (take_line(r, line, e))
            return e->code;
    if (close_event(r, e)) /* the last one may lack its empty line */
        return e->code;
    if (!r->samples.len)
        return err_set(e, ERR_INPUT, "no line of %" PRIu64 " is an event of perf script", r->lines);
    r->g.push->samples += r->samples.len;
    for (uint32_t i = 0; i < r->events_len; i++) {
        const bool values = r->events[i].len || r->period_of[i]; /* else as the samples */
        if ((values && add_series(r, i, true, e)) || add_series(r, i, false, e))
            return e->code;
    }
    return 0;
}

int perf_script_push(struct str text, const struct limits *l, struct push *push, struct err *e)
{
    struct reader r = { 0 };

    gather_init(&r.g, push, l, 1);
    int rc = read_all(&r, text, e);
    vec_free(&r.samples);
    vec_free(&r.frames);
    gather_deinit(&r.g);
    return rc;
}

/* A line without time and frame says too little: "a b 12" is folded text, too. What tells them
 * apart is that the next line is a frame. */
bool perf_script_sniff(struct str text)
{
    struct str line, symbol, module;
    struct event_line l;
    bool more = true;

    text = str_sub(text, 0, SNIFF_BYTES);
    while (str_next(&text, '\n', &more, &line)) {
        if (!str_trim(line).len || line.ptr[0] == '#')
            continue;
        if (!parse_event(line, &l))
            return false;
        if ((l.has_time && l.event.len) || l.rest.len)
            return true;
        return str_next(&text, '\n', &more, &line) && line.len && is_blank(line.ptr[0]) &&
               parse_frame(line, &symbol, &module);
    }
    return false;
}
