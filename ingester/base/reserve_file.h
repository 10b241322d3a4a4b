/* SPDX-License-Identifier: Apache-2.0
 *
 * reserve_file.h: a file without content, <data>/spare, that is deleted when a process starts on a
 * full volume. Opening databases and logs writes some bytes; on a full volume a node could neither
 * be read nor used to delete data.
 *
 * Thread: any, one at a time.
 */
#ifndef INGESTER_BASE_RESERVE_FILE_H
#define INGESTER_BASE_RESERVE_FILE_H

#include "common/base/base.h"

/* A quarter of the reserve (data.disk_reserve), at most 32 MiB. */
uint64_t reserve_file_bytes(uint64_t reserve);
/* Sees to it that it is there, where so much more than the reserve is free that it can be taken.
 * False: ask again later. */
bool reserve_file_keep(const char *dir, uint64_t reserve, uint64_t free_bytes);
/* At a start, before anything is written: removes it where less is free than a start may need. */
void reserve_file_release(const char *dir);

#endif
