/* SPDX-License-Identifier: Apache-2.0
 *
 * ui.c: a handful of files in memory, looked up by path.
 *
 * Files with a hash in their name (/assets/...) may be cached permanently; the rest is revalidated
 * by ETag each time, so a new binary shows its new page at once. The bundle has large files twice,
 * plain and gzip'd at build time, so that serving never compresses.
 */
#include "querier/ui/ui.h"

#include "common/base/mem.h"
#include "common/net/http_not_found.h"

/* assets.S */
extern const char ui_assets_index[], ui_assets_index_end[], ui_assets_data[], ui_assets_data_end[];

static const char csp[] =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

/* ---- the bundle -------------------------------------------------------------------------------*/

static bool slice(struct str data, struct str offset, struct str len, struct str *ret)
{
    uint64_t at, n;

    if (!str_u64(offset, &at) || !str_u64(len, &n) || at > data.len || n > data.len - at)
        return false;
    *ret = (struct str){ data.ptr + at, n };
    return true;
}

/* path \t type \t offset \t length \t gzip-offset \t gzip-length \t etag */
static bool asset_parse(struct str line, struct str data, struct arena *a, struct ui_asset *ret)
{
    struct str field[7];
    bool more = true;

    for (size_t i = 0; i < ARRAY_LEN(field); i++)
        if (!str_next(&line, '\t', &more, &field[i]))
            return false;
    if (more && line.len)
        return false;
    *ret = (struct ui_asset){ .path = field[0],
                              .type = arena_strdup(a, field[1]).ptr,
                              .etag = arena_strdup(a, field[6]).ptr };
    if (!slice(data, field[2], field[3], &ret->plain) ||
        !slice(data, field[4], field[5], &ret->gzip))
        return false;
    if (ret->gzip.len == 0)
        ret->gzip = STR_NULL;
    if (!ret->etag)
        return false;
    return ret->path.len > 1 && ret->path.ptr[0] == '/' && ret->type && field[6].len > 0;
}

NODISCARD int ui_init(struct ui *u, struct str index, struct str data, struct err *e)
{
    struct str line;
    size_t lines = 0;
    bool more = true;

    for (size_t i = 0; i < index.len; i++)
        lines += index.ptr[i] == '\n';
    *u = (struct ui){ .strings = arena_new(MIB), .assets = XNEW_ARRAY(struct ui_asset, lines + 1) };
    while (str_next(&index, '\n', &more, &line)) {
        if (line.len == 0)
            continue;
        if (!asset_parse(line, data, u->strings, &u->assets[u->len])) {
            err_set(e, ERR_CORRUPT, "page bundle, line %zu: \"%.*s\" is malformed", u->len + 1,
                    STR_ARG(line));
            ui_deinit(u);
            return e->code;
        }
        u->len++;
    }
    return 0;
}

void ui_deinit(struct ui *u)
{
    xfree(u->assets);
    arena_free(u->strings);
    *u = (struct ui){ 0 };
}

NODISCARD int ui_init_linked(struct ui *u, struct err *e)
{
    return ui_init(
        u, (struct str){ ui_assets_index, (size_t)(ui_assets_index_end - ui_assets_index) },
        (struct str){ ui_assets_data, (size_t)(ui_assets_data_end - ui_assets_data) }, e);
}

static const struct ui_asset *asset_at(const struct ui *u, struct str path)
{
    for (size_t i = 0; i < u->len; i++)
        if (str_eq(u->assets[i].path, path))
            return &u->assets[i];
    return NULL;
}

const struct ui_asset *ui_find(const struct ui *u, struct str path, bool html)
{
    static const char *const not_pages[] = { "/api/", "/assets/", "/pyroscope/", "/querier.v1.",
                                             "/debug/" };
    const struct ui_asset *found = asset_at(u, path);

    if (found)
        return found;
    if (str_eqc(path, "/"))
        return asset_at(u, STR("/index.html"));
    if (!html || str_rfind(path, '.') > str_rfind(path, '/'))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(not_pages); i++)
        if (str_starts(path, str_c(not_pages[i])))
            return NULL;
    return asset_at(u, STR("/index.html"));
}

/* ---- serving ----------------------------------------------------------------------------------*/

static void reply_asset(struct http_req *r, const struct ui_asset *a)
{
    bool for_ever = str_starts(a->path, STR("/assets/"));

    http_reply_header(r, "Content-Security-Policy", str_c(csp));
    http_reply_header(r, "Referrer-Policy", STR("no-referrer"));
    http_reply_static(r, a->type, a->plain, a->gzip, a->etag,
                      for_ever ? "public, max-age=31536000, immutable" : "no-cache");
}

static void on_get(struct http_req *r)
{
    const struct ui *u = r->route_cookie;
    bool html = str_contains(http_header(r, "Accept"), STR("text/html"));
    const struct ui_asset *a = ui_find(u, r->path, html);

    if (a) {
        reply_asset(r, a);
        return;
    }
    http_reply_not_found(r);
}

void ui_route(struct ui *u, struct http_server *s)
{
    http_route(s, HTTP_GET, "/*", 0, on_get, u);
}
