/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog_impl.h: shared by rlog.c (a log at work) and rlog_open.c (what is read when it is opened).
 */
#ifndef COMMON_REPL_LOG_RLOG_IMPL_H
#define COMMON_REPL_LOG_RLOG_IMPL_H

#include "common/base/vec.h"
#include "common/repl/log/rlog.h"

enum { FILE_HEAD = 64, FILE_SUMMED = 56, CONTROL_SUMMED = 40, VERSION = 1, PATH_BYTES = 4096 };
#define FILE_MAGIC    UINT64_C(0x31474f4c52424d45) /* "EMBRLOG1" */
#define HARD_MARK     UINT32_C(0x45e70200)
#define RESET_MARK    UINT32_C(0x45e70300)
#define SEGMENT_BYTES (64 * MIB)
#define SEGMENTS_MAX  65536

struct segment {
    uint64_t number;
    struct rlog_file *file; /* owned */
    uint64_t size;
};
/* The place of a live entry. In order of index they are in order of (segment, offset), too. */
struct pos {
    uint64_t segment, at;
    size_t len;
};
struct run {
    uint64_t from, term;
};

struct rlog {
    const struct rlog_fs *fs;
    char *dir; /* owned */
    uint64_t segment_bytes;
    VEC(struct segment) segments;
    VEC(struct pos) pos; /* of base_index + 1, ..., from pos_head on */
    size_t pos_head;
    VEC(struct run) runs; /* the first is of the base */
    struct rlog_state st;
    uint64_t synced; /* bytes of the last segment */
    bool group;      /* something was written since the last sync */
    bool bare;       /* the last group is one hard record, which holds nothing new */
    int failed;
    struct err why;
    VEC(char) heads; /* scratch */
    VEC(struct str) parts;
};

static inline struct segment *rlog_last(struct rlog *l)
{
    return &l->segments.ptr[l->segments.len - 1];
}
/* The log is empty, behind this entry. */
void rlog_set_base(struct rlog *l, uint64_t index, uint64_t term);
/* The last entry, in place of what stood from its index on. */
void rlog_note_entry(struct rlog *l, uint64_t index, uint64_t term, struct pos pos);
int rlog_path(const struct rlog *l, uint64_t number, char ret[PATH_BYTES], struct err *e);
/* A new last file; the one before is whole and synced. */
int rlog_segment_new(struct rlog *l, uint64_t number, struct err *e);

#endif
