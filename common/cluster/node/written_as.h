/* SPDX-License-Identifier: Apache-2.0
 *
 * written_as.h: <data>/written-as, what a data folder must be started with.
 *
 *   shards 4     the number that places services; absent in a folder that only etcd's map placed
 *   node a       the name under which its copies promised and acked; absent without copies
 *
 * Unknown lines are skipped. Both values are 0 and "" where there is no file.
 */
#ifndef COMMON_CLUSTER_NODE_WRITTEN_AS_H
#define COMMON_CLUSTER_NODE_WRITTEN_AS_H

#include "common/cluster/map/record.h"
#include "common/sys/fs.h"

struct written_as {
    uint32_t shards;
    char node[NODE_NAME_MAX + 1];
};
/* ERR_IO, ERR_CONFIG (the path is too long). */
NODISCARD int written_as_load(const struct fs *fs, const char *dir, struct written_as *ret,
                              struct err *e);
NODISCARD int written_as_keep(const struct fs *fs, const char *dir, const struct written_as *w,
                              struct err *e);

#endif
