/* SPDX-License-Identifier: Apache-2.0
 *
 * html.h: flame graphs as one HTML file with a viewer of its own: graph, table, search. It asks for
 * nothing from elsewhere, and its policy forbids that. Names are JSON in a script that does not
 * run; the viewer never makes markup of them.
 */
#ifndef QUERIER_RENDER_HTML_H
#define QUERIER_RENDER_HTML_H

#include "common/render/diff.h"
#include "common/render/flame.h"
#include "querier/render/viewer.h"

/* For the header Content-Security-Policy of both SVG and HTML answers: the page's origin is not
 * that of the server. */
#define HTML_POLICY                                                                     \
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src " \
    "'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

/* Both stop early once *out is full (buf_ok tells). */
void html_flame(const struct flame *f, const struct viewer_head *h, struct buf *out);
void html_diff(const struct diff *d, const struct viewer_head *h, struct buf *out);

#endif
