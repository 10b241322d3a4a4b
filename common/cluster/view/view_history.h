/* SPDX-License-Identifier: Apache-2.0
 *
 * view_history.h: checks whether the coordination service's state can follow from a view's state.
 *
 * Terms and versions of the map only grow, records are never deleted, and a cluster's id never
 * changes. A service with an older state, or another id, has lost data (a backup, an empty folder)
 * or is another one, and its records must not be followed here.
 */
#ifndef COMMON_CLUSTER_VIEW_VIEW_HISTORY_H
#define COMMON_CLUSTER_VIEW_VIEW_HISTORY_H

#include "common/cluster/view/view_impl.h"

enum judged {
    JUDGED_RIGHT, /* the view's state, or a later one; or the view has none */
    JUDGED_EMPTY, /* no map */
    JUDGED_OTHER, /* another id */
    JUDGED_LESS,  /* this cluster, of an earlier time */
};
struct verdict {
    enum judged is;
    bool map;                    /* the service has one */
    size_t nodes, lives;         /* active ones of the map; those that live by it */
    char id[CLUSTER_ID_LEN + 1]; /* its; "": it has none */
    struct err why;              /* of all but JUDGED_RIGHT: the fault, without advice */
};
/* True if peers have reported newer state than is known here. Then all keys are judged, also those
 * that did not change. */
bool view_told_more(const struct view *v);
/* Judges all keys of ring/. `map_rev`, of the view's map, not 0: the view's revisions come from
 * this store, as far as is known, so a key with an equal revision is not parsed again. */
void view_check_history(const struct view *v, struct str prefix, int64_t map_rev,
                        const struct coord_kv *kvs, size_t n, struct verdict *ret);
/* Judges one change of a key, which is later than the view's state of it. */
bool view_judge_one(const struct view *v, struct str prefix, const struct coord_kv *kv);

#endif
