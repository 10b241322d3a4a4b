/* SPDX-License-Identifier: Apache-2.0
 *
 * spare.h: a file of nothing, <data>/spare, that is given up at a start on a volume without room.
 * Opening databases and logs writes some; without any room a node could not even be read, nor could
 * anything be deleted with its help.
 *
 * Thread: any, one at a time.
 */
#ifndef INGESTER_BASE_SPARE_H
#define INGESTER_BASE_SPARE_H

#include "common/base/base.h"

/* A quarter of the reserve (data.disk_reserve), at most 32 MiB. */
uint64_t spare_bytes(uint64_t reserve);
/* Sees to it that it is there, where so much more than the reserve is free that it can be taken.
 * False: ask again later. */
bool spare_keep(const char *dir, uint64_t reserve, uint64_t free_bytes);
/* At a start, before anything is written: removes it where less is free than a start may need. */
void spare_give_up(const char *dir);

#endif
