/* SPDX-License-Identifier: Apache-2.0
 *
 * map_change.h: an operator changes the map. It is read, edited (map_edit.h) and swapped by its
 * revision, again if another writer was faster. Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_VIEW_MAP_CHANGE_H
#define COMMON_CLUSTER_VIEW_MAP_CHANGE_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/map/map.h"

struct map_change_opts {
    struct coord *coord;
    const char *prefix; /* of the keys */
    /* The next map, or *ret = NULL where nothing is to be changed. May be called several times. */
    int (*edit)(void *cookie, const struct map *m, const struct map **ret, struct err *e);
    /* Once, later, with NULL, or edit's error, or ERR_UNAVAILABLE, ERR_TIMEOUT (it may have
     * happened; asking again does no harm), ERR_BUSY. Not after coord_free. */
    void (*done)(void *cookie, const struct err *e);
    void *cookie;
};
void map_change(const struct map_change_opts *o);

#endif
