/* SPDX-License-Identifier: Apache-2.0
 *
 * entry.h: one entry of a shard's replication log, and its bytes.
 *
 * An entry is made once, by the leader, and never changes: the log, the messages to all followers
 * and the thread that applies it hold the same memory (refcounted). Disk and wire use the same
 * record, and the checksum of the data is the leader's from end to end:
 *
 *   0     4     8       16     24          32         40           48
 *   | mark | len | index | term | prev_term | data sum | head sum   | data, zeros up to 8 bytes |
 *     u32    u32   u64     u64    u64         u64        u64            all little-endian
 *
 * mark = ENTRY_MARK | kind; head sum = hash64 of the first 40 bytes with a seed (0 on the wire, the
 * number of the segment on disk). prev_term is the term of the entry before.
 *
 * Thread: refs on any; index, term and prev_term are set before the entry is handed to another.
 */
#ifndef COMMON_REPL_LOG_ENTRY_H
#define COMMON_REPL_LOG_ENTRY_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/rd.h"

/* Append only. */
enum repl_kind {
    REPL_NOOP = 1,       /* opens a term */
    REPL_BATCH = 2,      /* operations of a kv batch (store/kv/kv_impl.h) */
    REPL_DROP_FILES = 3, /* cf u8 | from varint bytes | last varint bytes: files inside may go */
    REPL_FLUSH = 4,      /* cf u8: its memtable should be written out soon */
    REPL_DIGEST = 5,     /* all replicas compute checksums of the database as of here (digest.h) */
    REPL_KINDS = 6,
};
#define ENTRY_MARK       UINT32_C(0x45e70100)
#define ENTRY_HEAD       ((size_t)48)
#define REPL_BYTES_MAX   (56 * MIB) /* data of one entry: fits a message of the rpc */
#define ENTRY_ROOM_APPLY ((size_t)64)

struct repl_entry {
    _Atomic uint32_t refs;
    enum repl_kind kind;
    uint64_t index, term, prev_term;
    uint64_t sum; /* of data */
    size_t len;
    char data[]; /* and ENTRY_ROOM_APPLY bytes behind it, for the apply thread (apply.c) */
};

/* With one reference; copies data. */
struct repl_entry *entry_new(enum repl_kind kind, struct str data);
struct repl_entry *entry_ref(struct repl_entry *e);
void entry_unref(struct repl_entry *e); /* NULL is fine */
/* Bytes of its record. */
static inline size_t entry_bytes(size_t len)
{
    return ENTRY_HEAD + ((len + 7) & ~(size_t)7);
}
/* The head of its record, for this seed; data and padding follow. */
void entry_head_put(const struct repl_entry *e, uint64_t seed, char ret[ENTRY_HEAD]);

struct entry_head {
    enum repl_kind kind;
    uint32_t len;
    uint64_t index, term, prev_term, sum;
};
/* False: these 48 bytes are no head of a record with this seed. */
bool entry_head_read(const char *p, uint64_t seed, struct entry_head *ret);
/* Reads one whole record of a message or file. ERR_CORRUPT names the fault. The data of a batch are
 * checked, too (entry_check), so that the apply thread need not. */
NODISCARD int entry_read(struct rd *r, uint64_t seed, struct repl_entry **ret, struct err *e);
/* Appends the record to a message. */
void entry_write(const struct repl_entry *e, struct buf *out);
/* Do the data parse as what the kind says? */
bool entry_check(enum repl_kind kind, struct str data);

#endif
