/* SPDX-License-Identifier: Apache-2.0
 *
 * html.c: one page: style, a skeleton of elements, the profile as JSON, the viewer's script.
 *
 * Names are only in the JSON, whose script element has a type that browsers do not run; json.h
 * escapes `<`, so that no name can end the element. The viewer sets text, never markup. Bars are
 * the numbers of the flame graph or of the diff, level by level.
 */
#include "querier/render/html.h"

#include "common/render/escape.h"

static const char body[] =
    "<header><h1 id=\"title\"></h1><span id=\"total\"></span>"
    "<button id=\"graph-button\">graph</button><button id=\"table-button\">table</button>"
    "<input id=\"search\" type=\"search\" placeholder=\"search\" aria-label=\"search\">"
    "<button id=\"reset\" hidden>reset zoom</button><span id=\"note\"></span></header>"
    "<div id=\"scroll\"><canvas id=\"canvas\" role=\"img\" aria-label=\"flame graph\"></canvas>"
    "<div id=\"space\"></div></div>"
    "<div id=\"table\" hidden><table><thead><tr id=\"heads\"></tr></thead>"
    "<tbody id=\"rows\"></tbody></table></div><div id=\"tip\" hidden></div>\n";

static struct str between(const char *from, const char *to)
{
    return str_n(from, (size_t)(to - from));
}

static void put_begin(const struct viewer_head *h, struct buf *out)
{
    buf_add_str(out, STR("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                         "<meta name=\"viewport\" content=\"width=device-width\">"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                         "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
                         "<title>"));
    escape_xml(h->title, out);
    buf_add_str(out, STR("</title>\n<style>\n"));
    buf_add_str(out, between(viewer_page_css, viewer_page_css_end));
    buf_add_str(out, STR("</style></head>\n<body>"));
    buf_add_str(out, str_n(body, sizeof(body) - 1));
    buf_add_str(out, STR("<script type=\"application/json\" id=\"profile\">"));
}

static void put_end(struct buf *out)
{
    buf_add_str(out, STR("</script>\n<script>\n"));
    buf_add_str(out, between(viewer_page_js, viewer_page_js_end));
    buf_add_str(out, STR("</script></body></html>\n"));
}

struct columns {
    const struct str *names;
    size_t names_len;
    const uint64_t *bars;
    const size_t *level_end;
    size_t levels, bar; /* numbers per bar */
    unsigned sides;
};

static void put_data(const struct columns *c, const struct viewer_head *h, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "sides", c->sides);
    json_put_str(&j, "type", h->what);
    json_put_str(&j, "unit", h->unit);
    json_key(&j, "names");
    json_arr(&j);
    for (size_t i = 0; i < c->names_len && buf_ok(out); i++)
        json_str(&j, c->names[i]);
    json_arr_end(&j);
    json_key(&j, "levels");
    json_arr(&j);
    for (size_t d = 0, i = 0; d < c->levels && buf_ok(out); d++) {
        json_arr(&j);
        for (; i < c->level_end[d] * c->bar; i++)
            json_u64(&j, c->bars[i]);
        json_arr_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
}

static void put_page(const struct columns *c, const struct viewer_head *h, struct buf *out)
{
    put_begin(h, out);
    put_data(c, h, out);
    put_end(out);
}

void html_flame(const struct flame *f, const struct viewer_head *h, struct buf *out)
{
    struct columns c = {
        f->names.ptr, f->names.len, f->bars.ptr, f->level_end.ptr, f->level_end.len, 4, 1
    };

    put_page(&c, h, out);
}

void html_diff(const struct diff *d, const struct viewer_head *h, struct buf *out)
{
    struct columns c = {
        d->names.ptr, d->names.len, d->bars.ptr, d->level_end.ptr, d->level_end.len, 7, 2
    };

    put_page(&c, h, out);
}
