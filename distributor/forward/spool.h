/* SPDX-License-Identifier: Apache-2.0
 *
 * spool.h: a queue of records on disk, first in, first out, that survives kill -9 at any byte.
 *
 *   <dir>/0000000000000007.spool   segments: "EMBSPOOL" | number u64 | record | record | ...
 *   <dir>/position                 how far it was read: two slots, written in turn
 *
 *   record   len u32 | crc32c of len, at u32 | at i64 | xxh3 of the bytes u64 | bytes
 *
 * All integers little endian. Thread: one appends, syncs, and sets the maximum; any number take and
 * finish.
 */
#ifndef DISTRIBUTOR_FORWARD_SPOOL_H
#define DISTRIBUTOR_FORWARD_SPOOL_H

#include <sys/types.h>

#include "common/sys/fs.h"

#define SPOOL_HEAD        16 /* bytes before the first record of a segment */
#define SPOOL_RECORD_HEAD 24
#define SPOOL_TAKEN_MAX   64 /* taken and not finished, at most */

/* What tests make fail. */
struct spool_io {
    ssize_t (*pwrite)(void *cookie, int fd, const void *p, size_t n, off_t at);
    int (*fsync)(void *cookie, int fd);
    void *cookie;
};
struct spool_opts {
    const char *dir;        /* made if it is missing */
    const struct fs *fs;    /* free space */
    uint64_t bytes_max;     /* over it the oldest segment is dropped */
    uint64_t segment_bytes; /* 0: a sixteenth of bytes_max, at most 16 MiB */
    uint64_t reserve_bytes; /* with less free nothing is appended */
    size_t record_max;
    const struct spool_io *io; /* NULL: the real one */
};
struct spool_stats {
    uint64_t bytes, records; /* waiting or taken */
    uint64_t dropped;        /* records, to stay below bytes_max; ever since it was opened */
    uint64_t damaged;        /* records or torn ends that were passed over */
    int64_t oldest_ms;       /* of records that were taken and not finished; 0: all are */
};
struct spool;
NODISCARD int spool_open(const struct spool_opts *o, struct spool **ret, struct err *e);
void spool_close(struct spool *s); /* NULL is fine; nothing taken is finished by it */
/* 0: whole in the file, and safe from kill -9; from a power cut after spool_sync. ERR_LIMIT: larger
 * than record_max or the maximum; ERR_NO_SPACE, ERR_IO: nothing of it will be read. */
NODISCARD int spool_append(struct spool *s, struct str record, int64_t at_ms, struct err *e);
NODISCARD int spool_sync(struct spool *s, struct err *e);
void spool_set_max(struct spool *s, uint64_t bytes_max);
/* 1: the next record replaces what is in *out, finish it with *ret_ticket. 0: no record is left, or
 * SPOOL_TAKEN_MAX are out. -1: *e says what cannot be read; it was passed over. */
int spool_take(struct spool *s, struct buf *out, int64_t *ret_at_ms, uint64_t *ret_ticket,
               struct err *e);
/* The record need not be read again, also after a restart. Records finish in any order; after a
 * restart, reading begins with the oldest record that is not finished, so later ones are read again
 * with it. */
void spool_finish(struct spool *s, uint64_t ticket);
struct spool_stats spool_stats(const struct spool *s);

#endif
