/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.h: flame graphs as one SVG file that shows itself in any viewer, and that zooms and searches
 * in a browser. It asks for nothing from elsewhere. Names are escaped; see escape.h.
 *
 * All of the bars of a flame are drawn, the root on top: how many there are decides the size.
 */
#ifndef QUERIER_RENDER_SVG_H
#define QUERIER_RENDER_SVG_H

#include "common/render/diff.h"
#include "common/render/flame.h"
#include "querier/render/viewer.h"

/* Both stop early once *out is full (buf_ok tells). */
void svg_flame(const struct flame *f, const struct viewer_head *h, struct buf *out);
/* A bar is as wide as its share of both sides together; red where the right one's is larger. */
void svg_diff(const struct diff *d, const struct viewer_head *h, struct buf *out);

#endif
