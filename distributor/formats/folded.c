/* SPDX-License-Identifier: Apache-2.0
 *
 * folded: lines of text to stacks.
 *
 *   frame;frame;...;leaf <count>     root first; the count stands behind the LAST blank, since
 *                                    frames have blanks themselves
 *
 * A count is [0-9]+ below 2^63. Lines without one ("1.5", "-3") and headers ("# duration: 12") are
 * left out and counted;
 * a body that has lines but not one good one is refused, so that a picture or a pprof sent by
 * mistake does not vanish with a 200. So is one with more lines that end in no number at all than
 * good ones: the report of another tool, which has some lines with a number at their end by chance.
 * UTF-16 with a byte order mark (what some shells make of `>`)
 * becomes UTF-8 first; a UTF-8 mark, CR before LF, empty lines and a missing last newline are fine.
 * An empty frame ("a;;b") is a frame of its own, but ';' at the end of a stack begins none:
 * heaptrack ends each of its stacks so. A line may be as long as the body.
 *
 * Format: folded stacks of brendangregg/FlameGraph at 41fee1f99f92 (proto/FORMATS.md,
 * "Folded text", "Lines").
 */
#include "distributor/formats/folded.h"

#include "common/base/utf8.h"
#include "distributor/formats/gather.h"
#include "distributor/formats/kinds.h"

#define SNIFF_BYTES 1024
#define LINE_SHOWN  60
#define WORDS_LEAST 3 /* a line or two that were cut make no report of another tool */

struct folder {
    struct gather g;
    uint64_t lines;
    uint64_t words;        /* lines that end in a word, comments left aside */
    struct str first;      /* that has no count */
    VEC(struct str) names; /* owned; of one line */
};

/* ---- bytes to UTF-8 ---------------------------------------------------------------------------
 */

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

static int add_line(struct folder *f, struct str stack, uint64_t count, struct err *e)
{
    struct str frame;
    bool more = true;

    while (stack.len && stack.ptr[stack.len - 1] == ';')
        stack.len--;
    f->names.len = 0;
    while (str_next(&stack, ';', &more, &frame)) {
        if (gather_check_name(&f->g, frame, "line", f->lines, e))
            return e->code;
        if (f->names.len <= f->g.l->text_frames)
            vec_push(&f->names, frame);
    }
    const struct gather_stack s = { .names = f->names.ptr, .n = f->names.len };
    return gather_add(&f->g, &s, count, "line", f->lines, e);
}

/* Of Austin and others, "# duration: 12"; a frame may begin with '#'. */
static bool is_header(struct str line)
{
    return str_starts(line, STR("# "));
}

static bool is_comment(struct str line)
{
    return is_header(line) || str_starts(line, STR("//")) || str_eqc(line, "#");
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
        if (blank <= 0 || is_header(line) || str_trim(str_sub(line, 0, (size_t)blank)).len == 0 ||
            !str_u64(number, &count) || count > INT64_MAX) {
            f->g.push->drops[DROP_LINE]++;
            f->words += !is_comment(line) && !str_double(number, &(double){ 0 });
            if (!f->first.len && !is_comment(line))
                f->first = line;
            return 0;
        }
        line = str_sub(line, 0, (size_t)blank);
    }
    return add_line(f, line, count, e);
}

/* Adds the first line without a count to the error, as far as it can be shown. */
static int show_first(const struct folder *f, struct err *e)
{
    struct str shown = f->first;

    if (shown.len > LINE_SHOWN)
        for (shown.len = LINE_SHOWN; shown.len && !str_utf8_valid(shown);)
            shown.len--;
    struct err was = *e;
    if (!shown.len || !str_utf8_valid(shown))
        return e->code;
    return err_set(e, ERR_INPUT, "%s; the first one is \"%.*s%s\"", was.text, STR_ARG(shown),
                   shown.len < f->first.len ? "..." : "");
}

static int take_lines(struct folder *f, struct str body, bool counts, struct err *e)
{
    struct str line;
    bool more = true;

    while (str_next(&body, '\n', &more, &line))
        if (take_line(f, line, counts, e))
            return e->code;
    f->g.push->samples += f->g.taken;
    if (f->g.taken && (f->words <= f->g.taken || f->words < WORDS_LEAST))
        return 0;
    if (f->g.taken)
        (void)err_set(e, ERR_INPUT,
                      "%" PRIu64 " of %" PRIu64
                      " lines end in no number, so this is hardly folded text; its lines have the "
                      "form \"frame;frame count\"",
                      f->words, f->lines);
    else
        (void)err_set(e, ERR_INPUT,
                      "no line of %" PRIu64
                      " has the form \"frame;frame count\", with a whole number as count",
                      f->lines);
    return show_first(f, e);
}

int folded_push(struct str body, bool counts, const struct kind *kind, const struct limits *l,
                struct push *push, struct err *e)
{
    struct folder f = { .lines = 0 };
    const struct labels none = { 0 };

    if (body.len == 0)
        return err_set(e, ERR_INPUT, "the body is empty");
    if (to_utf8(push->arena, push, &body, e))
        return e->code;
    gather_init(&f.g, push, l, kind->period);
    int rc = take_lines(&f, body, counts, e);
    if (!rc)
        rc = gather_series(&f.g, &kind->type, &none, e);
    vec_free(&f.names);
    gather_deinit(&f.g);
    return rc;
}
