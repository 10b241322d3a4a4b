/* SPDX-License-Identifier: Apache-2.0
 *
 * render_out.h: the formats in which the render routes answer. JSON is each route's own; all
 * others are written here. Pool thread.
 */
#ifndef QUERIER_OUTPUT_RENDER_OUT_H
#define QUERIER_OUTPUT_RENDER_OUT_H

#include "common/render/diff.h"
#include "querier/merge/merged.h"
#include "querier/render/export.h"
#include "querier/render/viewer.h"

enum render_format {
    RENDER_JSON,
    RENDER_FOLDED, /* collapsed, folded */
    RENDER_PPROF,
    RENDER_PGO, /* pprof for Go's compiler */
    RENDER_DOT,
    RENDER_TREE,
    RENDER_SVG,
    RENDER_HTML,
};
struct render_out {
    enum render_format format;
    size_t max_nodes; /* 0: all */
    struct export_how how;
    bool old; /* collapsed text is a file */
};
/* `format`, `max-nodes` (maxNodes wins) and for pgo `keepLocations` and `aggregateCallees`. An
 * unknown format is JSON, on old routes ERR_INPUT; a max-nodes that is not a number is the default,
 * over the limit ERR_INPUT. */
NODISCARD int render_out_read(struct query *q, bool old, struct render_out *ret, struct err *e);

/* What an answer says about itself. */
struct render_about {
    struct str title;
    struct str type; /* profile type, of five parts */
    int64_t from_ms, until_ms;
};
/* Reads the replies to `ask` and writes any format but JSON to q->out. */
NODISCARD int render_out_put(struct query *q, size_t ask, const struct render_out *o,
                             const struct render_about *about, struct err *e);
/* A comparison: SVG and HTML. */
NODISCARD int render_out_diff(struct query *q, const struct diff *d, const struct render_out *o,
                              const struct render_about *about, struct err *e);

#endif
