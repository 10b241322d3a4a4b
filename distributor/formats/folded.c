/* SPDX-License-Identifier: Apache-2.0
 *
 * folded: lines of text to stacks.
 *
 *   frame;frame;...;leaf <count>     root first; the count stands behind the LAST blank, since
 *                                    frames have blanks themselves
 *
 * A count is [0-9]+ below 2^63. Lines without one (headers, "1.5", "-3") are left out and counted;
 * a body that has lines but not one good one is refused, so that a picture or a pprof sent by
 * mistake does not vanish with a 200. UTF-16 with a byte order mark (what some shells make of `>`)
 * becomes UTF-8 first; a UTF-8 mark, CR before LF, empty lines and a missing last newline are fine.
 * An empty frame ("a;;b") is a frame of its own. A line may be as long as the body.
 *
 * Stacks deeper than limits.frames_keep keep both ends around one mark, as in pprof_walk.c; the
 * hard limit is higher here, since a text of 16,000 frames is an honest recursion.
 */
#include "distributor/formats/folded.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "distributor/formats/kinds.h"

#define MARK        "[truncated]"
#define EMPTY_FRAME "[unknown]"
#define SNIFF_BYTES 1024

struct folder {
    const struct limits *l;
    struct push *push;
    uint64_t period;
    VEC(uint64_t) values; /* by node */
    uint64_t lines, good;
    uint64_t stacks;         /* that brought a node */
    uint32_t overflow_frame; /* STACKS_FULL before it is needed */
    bool over;               /* the stack being walked ended in it */
    struct buf tmp;
};

/* ---- bytes to UTF-8 ---------------------------------------------------------------------------
 */

static size_t utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* RFC 2781; a lone surrogate and a lone last byte become U+FFFD. */
static bool utf16_to_utf8(struct arena *a, struct str in, bool big, struct str *ret)
{
    const unsigned char *p = (const unsigned char *)in.ptr;
    char *out = arena_alloc(a, in.len / 2 * 3 + 4);
    size_t n = 0;

    if (!out)
        return false;
    for (size_t i = 0; i < in.len; i += 2) {
        uint32_t c = 0xfffd, low;
        if (i + 1 < in.len)
            c = (uint32_t)(big ? p[i] << 8 | p[i + 1] : p[i + 1] << 8 | p[i]);
        if (c >= 0xd800 && c < 0xdc00 && i + 3 < in.len) {
            low = (uint32_t)(big ? p[i + 2] << 8 | p[i + 3] : p[i + 3] << 8 | p[i + 2]);
            if (low >= 0xdc00 && low < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                i += 2;
            }
        }
        if (c >= 0xd800 && c < 0xe000)
            c = 0xfffd;
        n += utf8_put(out + n, c);
    }
    *ret = str_n(out, n);
    return true;
}

static int to_utf8(struct arena *a, const struct push *push, struct str *body, struct err *e)
{
    struct str s = *body;
    bool little = str_starts(s, STR("\xff\xfe")), big = str_starts(s, STR("\xfe\xff"));

    if ((little || big) && !utf16_to_utf8(a, str_sub(s, 2, s.len), big, body))
        return push_full(push, e);
    if (str_starts(*body, STR("\xef\xbb\xbf")))
        *body = str_sub(*body, 3, body->len);
    if (str_find(str_sub(*body, 0, SNIFF_BYTES), '\0') >= 0)
        return err_set(e, ERR_INPUT,
                       "the body is not text: name its format (format=pprof for a pprof profile)");
    return 0;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static uint32_t frame_of(struct folder *f, struct str name)
{
    struct frame frame = { 0 };

    if (name.len == 0)
        name = STR(EMPTY_FRAME);
    name = push_symbol(f->push, name, (size_t)f->l->symbol_keep_bytes, &f->tmp);
    frame.func = stacks_string(&f->push->stacks, name);
    return stacks_frame(&f->push->stacks, &frame);
}

/* As step, once there are as many stacks as may be: what is there, and [overflow]. */
static uint32_t step_over(struct folder *f, uint32_t node, struct str name)
{
    struct stacks *s = &f->push->stacks;

    if (f->over)
        return node;
    uint32_t frame = frame_of(f, name);
    uint32_t known = frame == STACKS_FULL ? frame : stacks_node_known(s, node, frame);
    if (known != STACKS_FULL || frame == STACKS_FULL)
        return known;
    f->over = true;
    if (f->overflow_frame == STACKS_FULL)
        f->overflow_frame = frame_of(f, STR(PUSH_OVERFLOW));
    return stacks_node(s, node, f->overflow_frame);
}

static uint32_t step(struct folder *f, uint32_t node, struct str name)
{
    if (UNLIKELY(f->stacks >= f->l->stacks))
        return step_over(f, node, name);
    return stacks_node(&f->push->stacks, node, frame_of(f, name));
}

/* The first `n` frames of a stack, from node; *ret_rest is what follows them. */
static uint32_t walk(struct folder *f, struct str stack, size_t n, uint32_t node)
{
    struct str frame;
    bool more = true;

    while (n-- > 0 && node != STACKS_FULL && str_next(&stack, ';', &more, &frame))
        node = step(f, node, frame);
    return node;
}

/* Where the last n frames of a stack start. */
static struct str last_frames(struct str stack, size_t n)
{
    size_t at = stack.len;

    for (; at > 0; at--)
        if (stack.ptr[at - 1] == ';' && --n == 0)
            break;
    return str_sub(stack, at, stack.len);
}

static uint32_t walk_deep(struct folder *f, struct str stack)
{
    size_t keep = (size_t)f->l->frames_keep, root = keep / 2, leaf = keep - root - 1;
    uint32_t node = walk(f, stack, root, 0);

    f->push->drops[CHANGE_TRUNCATED]++;
    if (node != STACKS_FULL)
        node = step(f, node, STR(MARK));
    return node == STACKS_FULL ? node : walk(f, last_frames(stack, leaf), leaf, node);
}

/* How many frames, none of them longer than a symbol may be. */
static int count_frames(const struct folder *f, struct str stack, size_t *ret, struct err *e)
{
    struct str frame;
    bool more = true;
    size_t n = 0;

    while (str_next(&stack, ';', &more, &frame)) {
        n++;
        if (frame.len > f->l->symbol_bytes)
            return err_set(e, ERR_LIMIT, "line %" PRIu64 ": a frame of %zu bytes, at most %" PRIu64,
                           f->lines, frame.len, f->l->symbol_bytes);
    }
    if (n > f->l->text_frames)
        return err_set(e, ERR_LIMIT, "line %" PRIu64 ": a stack of %zu frames, at most %" PRIu64,
                       f->lines, n, f->l->text_frames);
    *ret = n;
    return 0;
}

static int add_line(struct folder *f, struct str stack, uint64_t count, struct err *e)
{
    uint64_t value;
    size_t frames = 0;

    if (f->good++ >= f->l->samples)
        return err_set(e, ERR_LIMIT, "line %" PRIu64 ": more than %" PRIu64 " stacks", f->lines,
                       f->l->samples);
    if (count_frames(f, stack, &frames, e))
        return e->code;
    if (count == 0)
        return 0;
    size_t before = f->push->stacks.node_parent.len;
    f->over = false;
    uint32_t node = frames > f->l->frames_keep ? walk_deep(f, stack) : walk(f, stack, frames, 0);
    f->stacks += !f->over && f->push->stacks.node_parent.len > before;
    f->push->drops[CHANGE_STACKS] += f->over;
    if (node == STACKS_FULL)
        return push_full(f->push, e);
    while (f->values.len <= node)
        vec_push(&f->values, 0);
    if (!u64_mul(count, f->period, &value) || value > INT64_MAX) {
        value = INT64_MAX;
        f->push->drops[CHANGE_SATURATED]++;
    }
    f->values.ptr[node] = push_sum(f->push, f->values.ptr[node], value);
    return 0;
}

static int take_line(struct folder *f, struct str line, bool counts, struct err *e)
{
    uint64_t count = 1;

    while (line.len && line.ptr[line.len - 1] == '\r')
        line.len--;
    f->lines++;
    if (line.len == 0)
        return 0;
    if (counts) {
        ptrdiff_t blank = str_rfind(line, ' ');
        struct str number = str_sub(line, (size_t)(blank + 1), line.len);
        if (blank <= 0 || !str_u64(number, &count) || count > INT64_MAX) {
            f->push->drops[DROP_LINE]++;
            return 0;
        }
        line = str_sub(line, 0, (size_t)blank);
    }
    return add_line(f, line, count, e);
}

static int take_lines(struct folder *f, struct str body, bool counts, struct err *e)
{
    struct str line;
    bool more = true;

    while (str_next(&body, '\n', &more, &line))
        if (take_line(f, line, counts, e))
            return e->code;
    f->push->samples += f->good;
    if (f->good == 0)
        return err_set(e, ERR_INPUT, "no line of %" PRIu64 " has the form \"frame;frame count\"",
                       f->lines);
    return 0;
}

/* Nodes with a value, ascending, to one series. */
static int add_series(struct folder *f, const struct kind *kind, struct err *e)
{
    struct labels none = { 0 };
    struct push_series s = { .unit = kind->period };
    size_t n = 0, at = 0;

    for (size_t i = 0; i < f->values.len; i++)
        n += f->values.ptr[i] > 0;
    if (n == 0)
        return 0;
    uint32_t *nodes = arena_alloc(f->push->arena, n * sizeof(*nodes));
    uint64_t *values = arena_alloc(f->push->arena, n * sizeof(*values));
    if (!nodes || !values)
        return push_full(f->push, e);
    for (size_t i = 0; i < f->values.len; i++) {
        if (f->values.ptr[i] == 0)
            continue;
        nodes[at] = (uint32_t)i;
        values[at++] = f->values.ptr[i];
    }
    s.nodes = nodes;
    s.values = values;
    s.len = n;
    return push_add(f->push, &kind->type, &none, &s, e);
}

int folded_push(struct str body, bool counts, const struct kind *kind, const struct limits *l,
                struct push *push, struct err *e)
{
    struct folder f = {
        .l = l, .push = push, .period = kind->period, .overflow_frame = STACKS_FULL
    };

    if (body.len == 0)
        return err_set(e, ERR_INPUT, "the body is empty");
    if (to_utf8(push->arena, push, &body, e))
        return e->code;
    buf_init(&f.tmp, (size_t)l->symbol_bytes);
    int rc = take_lines(&f, body, counts, e);
    if (!rc)
        rc = add_series(&f, kind, e);
    vec_free(&f.values);
    buf_deinit(&f.tmp);
    return rc;
}
