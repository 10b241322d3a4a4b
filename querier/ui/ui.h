/* SPDX-License-Identifier: Apache-2.0
 *
 * ui.h: the page, served from the binary: bundle made by querier/ui/build, linked by assets.S.
 *
 * Every answer has an ETag and a policy that forbids other hosts. Paths the page routes itself
 * (a browser asking for HTML) get the index; anything else unknown is 404.
 */
#ifndef QUERIER_UI_UI_H
#define QUERIER_UI_UI_H

#include "common/base/err.h"
#include "common/net/http.h"

struct ui_asset {
    struct str path;
    const char *type, *etag; /* etag without quotes */
    struct str plain;
    struct str gzip; /* {NULL,0}: not worth it */
};
struct ui {
    struct arena *strings;   /* owned */
    struct ui_asset *assets; /* owned; slices point into the bundle */
    size_t len;
};
/* Reads a bundle index; both slices must outlive it. ERR_CORRUPT. */
NODISCARD int ui_init(struct ui *u, struct str index, struct str data, struct err *e);
void ui_deinit(struct ui *u);
/* The bundle linked into this binary. */
NODISCARD int ui_init_linked(struct ui *u, struct err *e);

/* The asset for a path; the index for "/" and, if `html`, for a route of the page; NULL: 404. */
const struct ui_asset *ui_find(const struct ui *u, struct str path, bool html);
/* Registers the catch-all route; u must outlive the server. */
void ui_route(struct ui *u, struct http_server *s);

#endif
