/* SPDX-License-Identifier: Apache-2.0
 *
 * render_json.h: a flame graph with timelines as one JSON answer (proto/WIRE.md, "Flamebearer
 * JSON"). Pool thread.
 */
#ifndef QUERIER_OUTPUT_RENDER_JSON_H
#define QUERIER_OUTPUT_RENDER_JSON_H

#include "common/base/json.h"
#include "querier/output/render_out.h"
#include "querier/select/flame_request.h"

/* Numbers of the questions. */
enum render_ask {
    RENDER_ASK_MERGE,
    RENDER_ASK_TIMELINE,
    RENDER_ASK_GROUPS,
    RENDER_ASK_TYPES,
    RENDER_ASK_LIST,
};
struct render {
    struct flame_request side;
    struct render_out out;
    struct plan_timeline timeline;
    struct str group_by;
    bool old; /* more keys */
    bool average;
    /* Further keys at the end; heatmap NULL: `"heatmap":null`. Both may be NULL. */
    void (*heatmap)(struct query *q, const struct render *r, struct json *j);
    void (*more)(struct query *q, const struct render *r, struct json *j);
};

/* Asks for the tree, and where JSON is wanted for the timelines. */
NODISCARD int render_ask(struct query *q, const struct render *r, struct err *e);
/* From the replies, in any format: the last step. */
NODISCARD int render_reply(struct query *q, const struct render *r, struct err *e);

#endif
