/* SPDX-License-Identifier: Apache-2.0
 *
 * query_spec.h: what a query text selects: matchers, and a profile type or an old application
 * name. Pure.
 *
 * Grammar: proto/WIRE.md, "Selectors".
 */
#ifndef QUERIER_SELECT_QUERY_SPEC_H
#define QUERIER_SELECT_QUERY_SPEC_H

#include "common/model/selector.h"
#include "querier/select/app_name_types.h"

#define QUERY_SPEC_SELECTORS_MAX 64

struct query_spec {
    struct selector selectors[QUERY_SPEC_SELECTORS_MAX]; /* joined by AND; the metrics are used up
    */
    size_t len;
    struct str profile_type; /* five parts; empty for an old name, and for labels */
    bool legacy;             /* an old application name: `app` */
    struct app_name_types_app app;
    struct str app_text; /* what stood before the braces */
};

/* `type{matchers}` or `{__name__="type", ...}`; with `flameql` also `app.kind{matchers}` with
 * regexes that search. Regexes are compiled to see whether they are right. ERR_INPUT. */
NODISCARD int query_spec_render(struct str text, bool flameql, struct arena *a,
                                struct query_spec *ret, struct err *e);
/* The same text as a filter of labels; empty text selects everything. */
NODISCARD int query_spec_labels(struct str text, bool flameql, struct arena *a,
                                struct query_spec *ret, struct err *e);
/* Joins one more selector of Connect's `matchers` or `label_selector`: not empty, a metric is the
 * profile type or the label __name__. */
NODISCARD int query_spec_add(struct query_spec *s, struct str text, struct arena *a, struct err *e);
/* Five or six parts; comes out as five. */
NODISCARD int query_spec_type(struct str text, struct arena *a, struct str *ret, struct err *e);

#endif
