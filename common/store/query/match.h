/* SPDX-License-Identifier: Apache-2.0
 *
 * match.h: which series and profile types a selector means, in the snapshot of a view.
 *
 * Thread: any, one at a time per match.
 */
#ifndef COMMON_STORE_QUERY_MATCH_H
#define COMMON_STORE_QUERY_MATCH_H

#include <roaring/roaring.h>
#include <stdatomic.h>

#include "common/model/ptype.h"
#include "common/store/catalog/series.h"
#include "common/store/mask/mask.h"
#include "common/store/store.h"

struct match_type {
    uint16_t number;
    bool gauge;
    struct str id;
    struct ptype parts; /* of id */
};
struct match {
    struct store_view *v;
    const struct selector *selector;
    struct arena *arena;
    bool found; /* the tenant is known here; else there are no types and no series */
    uint32_t tenant, next_ordinal;
    VEC(struct match_type) types; /* that the selector allows, by number */
    roaring_bitmap_t *ordinals;   /* that the selector allows, whatever their types */
    struct masks masks;           /* deletes that are not purged */
};
/* Texts go into the arena. match_close in any case. */
NODISCARD int match_open(struct match *m, struct store_view *v, struct str tenant,
                         const struct selector *selector, struct arena *arena, struct err *e);
/* The same in two steps: without series; then the series. */
NODISCARD int match_open_types(struct match *m, struct store_view *v, struct str tenant,
                               const struct selector *selector, struct arena *arena, struct err *e);
NODISCARD int match_open_series(struct match *m, struct err *e);
void match_close(struct match *m);
const struct match_type *match_type_by_id(const struct match *m, struct str id);
const struct match_type *match_type_by_number(const struct match *m, uint16_t number);

struct match_series {
    uint32_t ordinal, scope;
    uint64_t id;
    struct str labels;               /* canonical bytes */
    const struct series_type *types; /* all it has */
    size_t len;
};
typedef int (*match_fn)(void *cookie, const struct match_series *s, struct err *e);
/* In order of ordinals. Slices are valid during the call. A code fn returns ends it. */
NODISCARD int match_each(struct match *m, const atomic_bool *cancel, match_fn fn, void *cookie,
                         struct err *e);

/* Calls fn for each service that the matchers of the service name allow. Whether a service has
 * series that match is not checked. */
typedef int (*match_service_fn)(void *cookie, uint32_t scope, struct str name, struct err *e);
NODISCARD int match_services(struct match *m, match_service_fn fn, void *cookie, struct err *e);
bool match_is_service(struct str name); /* of a label: it holds the service's name */
/* After match_open_series: no series but those of these services. */
NODISCARD int match_only_services(struct match *m, const struct str *names, size_t n,
                                  struct err *e);

/* Days of a range in ms, both inclusive; false if it is empty. 0, 0: all. */
bool match_days(int64_t start_ms, int64_t end_ms, uint32_t *ret_first, uint32_t *ret_last);
static inline bool match_active(struct days d, uint32_t first, uint32_t last)
{
    return d.first <= last && d.last >= first;
}

#endif
