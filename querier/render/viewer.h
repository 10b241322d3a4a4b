/* SPDX-License-Identifier: Apache-2.0
 *
 * viewer.h: what SVG and HTML answers have in common: what they say about their values, and the
 * scripts linked in by viewer.S. None of these files holds "]]>" or an end tag.
 */
#ifndef QUERIER_RENDER_VIEWER_H
#define QUERIER_RENDER_VIEWER_H

#include "common/base/buf.h"

struct viewer_head {
    struct str title; /* of the page */
    struct str what;  /* sample type: "cpu" */
    struct str unit;  /* of the values */
};

extern const char viewer_svg_js[], viewer_svg_js_end[];
extern const char viewer_page_js[], viewer_page_js_end[];
extern const char viewer_page_css[], viewer_page_css_end[];

#endif
