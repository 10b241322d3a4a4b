/* SPDX-License-Identifier: Apache-2.0
 *
 * svg: one group per bar: title (name, a line break, values), rectangle, and a name where it fits.
 * What the script needs is read back from these, so there is no second copy of the names.
 *
 * Colours: of one flame by a hash of the name's package, of a diff by the change of the share.
 */
#include "querier/render/svg.h"

#include <math.h>

#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/render/escape.h"
#include "querier/render/amount.h"

#define LEFT   10.0
#define WIDTH  1180.0
#define TOP    58u
#define ROW    16u
#define CHAR   6.7
#define CHARS3 (3 * CHAR + 6)

/* A bar of either kind with its place, as a part of the whole width. */
struct place {
    double x, total;
    uint64_t side[DIFF_SIDES], self[DIFF_SIDES];
    struct str name;
};
struct drawing {
    const struct viewer_head *h;
    struct buf *out;
    uint64_t all[DIFF_SIDES];
    bool two;
};

/* ---- one bar ----------------------------------------------------------------------------------*/

/* A package's functions look alike: what stands before the last '/' or the first '.'. */
static void put_colour_of(struct str name, struct buf *out)
{
    ptrdiff_t slash = str_rfind(name, '/'), dot = str_find(name, '.');
    ptrdiff_t cut = MAX(slash, dot);
    uint64_t h = hash64(name.ptr, cut > 0 ? (size_t)cut : name.len, 0);

    buf_addf(out, "hsl(%u,%u%%,%u%%)", (unsigned)(8 + h % 46), (unsigned)(62 + (h >> 16) % 22),
             (unsigned)(64 + (h >> 8) % 12));
}

static double share(uint64_t v, uint64_t all)
{
    return all ? (double)v / (double)all : 0;
}

static void put_change(const struct drawing *d, const struct place *p)
{
    double by = share(p->side[DIFF_RIGHT], d->all[DIFF_RIGHT]) -
                share(p->side[DIFF_LEFT], d->all[DIFF_LEFT]);
    double strength = fmin(1, sqrt(fabs(by)) * 1.6);

    if (by > -1e-12 && by < 1e-12)
        buf_add_str(d->out, STR("#c8c8c8"));
    else
        buf_addf(d->out, "hsl(%u,%u%%,%u%%)", by > 0 ? 8u : 145u, (unsigned)(20 + strength * 60),
                 (unsigned)(82 - strength * 26));
}

static void put_value(const struct drawing *d, uint64_t v, uint64_t all)
{
    amount_put(v, d->h->unit, d->out);
    buf_add_str(d->out, STR(" ("));
    amount_percent(v, all, d->out);
    buf_add_c(d->out, ')');
}

static void put_title(const struct drawing *d, const struct place *p)
{
    buf_add_str(d->out, STR("<g><title>"));
    escape_xml(p->name, d->out);
    buf_add_c(d->out, '\n');
    if (!d->two) {
        put_value(d, p->side[0], d->all[0]);
        buf_add_str(d->out, STR(", self "));
        amount_put(p->self[0], d->h->unit, d->out);
    }
    for (int s = 0; d->two && s < DIFF_SIDES; s++) {
        buf_add_str(d->out, s == DIFF_LEFT ? STR("left ") : STR(", right "));
        put_value(d, p->side[s], d->all[s]);
    }
    buf_add_str(d->out, STR("</title>"));
}

/* As much of a name as fits, whole characters only. */
static void put_label(struct str name, double width, struct buf *out)
{
    size_t room = (size_t)((width - 6) / CHAR), n = 0, chars = 0;

    for (size_t i = 0; i < name.len && chars < room; i++) {
        chars += ((unsigned char)name.ptr[i] & 0xc0) != 0x80;
        n = i + 1;
    }
    while (n < name.len && ((unsigned char)name.ptr[n] & 0xc0) == 0x80)
        n++;
    if (n == name.len) {
        escape_xml(name, out);
        return;
    }
    for (int drop = 0; drop < 2 && n > 0; drop++)
        do
            n--;
        while (n > 0 && ((unsigned char)name.ptr[n] & 0xc0) == 0x80);
    escape_xml(str_sub(name, 0, n), out);
    buf_add_str(out, STR(".."));
}

static void put_bar(const struct drawing *d, const struct place *p, size_t level)
{
    double x = p->x * WIDTH, width = p->total * WIDTH;
    size_t y = TOP + level * ROW;

    put_title(d, p);
    buf_addf(d->out, "<rect x=\"%.9g\" y=\"%zu\" width=\"%.9g\" height=\"15\" fill=\"", LEFT + x, y,
             width);
    if (d->two)
        put_change(d, p);
    else
        put_colour_of(p->name, d->out);
    buf_add_str(d->out, STR("\"/>"));
    if (width >= CHARS3) {
        buf_addf(d->out, "<text x=\"%.2f\" y=\"%zu\">", LEFT + x + 3, y + 12);
        put_label(p->name, width, d->out);
        buf_add_str(d->out, STR("</text>"));
    }
    buf_add_str(d->out, STR("</g>\n"));
}

/* ---- the file ---------------------------------------------------------------------------------*/

static void put_head(const struct drawing *d, size_t levels)
{
    size_t height = TOP + levels * ROW + 12;

    buf_addf(d->out,
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"%zu\" "
             "viewBox=\"0 0 1200 %zu\" tabindex=\"0\">\n",
             height, height);
    buf_add_str(d->out,
                STR("<style>text{font:11px ui-monospace,monospace;fill:#111}#bars g{cursor:pointer}"
                    "#bars text{pointer-events:none}#bars rect:hover{stroke:#000}"
                    "rect.hit{fill:#c050e0}#title{font-size:15px}#reset{cursor:pointer}</style>\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text id=\"title\" "
                    "x=\"10\" y=\"20\">"));
    escape_xml(d->h->title, d->out);
    buf_add_str(d->out, STR("</text>\n<text x=\"10\" y=\"36\">"));
    escape_xml(d->h->what, d->out);
    buf_add_str(d->out, d->two ? STR(": left ") : STR(": total "));
    amount_put(d->all[0], d->h->unit, d->out);
    if (d->two) {
        buf_add_str(d->out, STR(", right "));
        amount_put(d->all[1], d->h->unit, d->out);
        buf_add_str(d->out, STR("; red has a larger share on the right, green a smaller one"));
    }
    buf_add_str(d->out,
                STR("</text>\n<text id=\"details\" x=\"10\" y=\"51\"></text>"
                    "<text id=\"reset\" x=\"880\" y=\"36\" style=\"display:none\">reset zoom</text>"
                    "<text id=\"matched\" x=\"880\" y=\"20\"></text>\n"
                    "<foreignObject x=\"1030\" y=\"6\" width=\"160\" height=\"26\"><input "
                    "xmlns=\"http://www.w3.org/1999/xhtml\" id=\"search\" type=\"search\" "
                    "placeholder=\"search\" style=\"width:150px\"/></foreignObject>\n"
                    "<g id=\"bars\">\n"));
}

static void put_foot(const struct drawing *d)
{
    buf_add_str(d->out, STR("</g>\n<script><![CDATA[\n"));
    buf_add(d->out, viewer_svg_js, (size_t)(viewer_svg_js_end - viewer_svg_js));
    buf_add_str(d->out, STR("]]></script>\n</svg>\n"));
}

void svg_flame(const struct flame *f, const struct viewer_head *h, struct buf *out)
{
    struct drawing d = { .h = h, .out = out, .all = { f->total, 0 } };

    put_head(&d, f->level_end.len);
    for (size_t level = 0, i = 0; level < f->level_end.len && buf_ok(out); level++) {
        uint64_t edge = 0;
        for (; i < f->level_end.ptr[level] && buf_ok(out); i++) {
            const uint64_t *b = &f->bars.ptr[i * 4];
            struct place p = { .x = share(edge + b[0], f->total),
                               .total = share(b[1], f->total),
                               .side = { b[1], 0 },
                               .self = { b[2], 0 },
                               .name = f->names.ptr[b[3]] };
            put_bar(&d, &p, level);
            edge = edge + b[0] + b[1];
        }
    }
    put_foot(&d);
}

/* Each side has half of the width, whatever its total; all of it where the other has nothing. */
static double both(const struct drawing *d, uint64_t left, uint64_t right)
{
    double half = d->all[DIFF_LEFT] && d->all[DIFF_RIGHT] ? 0.5 : 1;

    return half * (share(left, d->all[DIFF_LEFT]) + share(right, d->all[DIFF_RIGHT]));
}

void svg_diff(const struct diff *f, const struct viewer_head *h, struct buf *out)
{
    struct drawing d = {
        .h = h, .out = out, .all = { f->ticks[DIFF_LEFT], f->ticks[DIFF_RIGHT] }, .two = true
    };

    put_head(&d, f->level_end.len);
    for (size_t level = 0, i = 0; level < f->level_end.len && buf_ok(out); level++) {
        uint64_t edge[DIFF_SIDES] = { 0 };
        for (; i < f->level_end.ptr[level] && buf_ok(out); i++) {
            const uint64_t *b = &f->bars.ptr[i * 7];
            struct place p = { .x = both(&d, edge[0] + b[0], edge[1] + b[3]),
                               .total = both(&d, b[1], b[4]),
                               .side = { b[1], b[4] },
                               .self = { b[2], b[5] },
                               .name = f->names.ptr[b[6]] };
            put_bar(&d, &p, level);
            edge[0] += b[0] + b[1];
            edge[1] += b[3] + b[4];
        }
    }
    put_foot(&d);
}
