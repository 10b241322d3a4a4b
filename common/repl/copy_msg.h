/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_msg.h: the messages of two replicas while one fetches the files of the other's database
 * (RPC_REPL_COPY, proto/repl.proto).
 */
#ifndef COMMON_REPL_COPY_MSG_H
#define COMMON_REPL_COPY_MSG_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/cluster/map/record.h"

#define COPY_FORMAT      1 /* of the files: RocksDB's, as kv_rocks_open.c writes them */
#define COPY_PIECE_BYTES ((size_t)MIB)
#define COPY_NAME_MAX    63
#define COPY_FILES_MAX   65536
#define COPY_BYTES_MAX   (UINT64_C(1) << 50)

enum copy_kind {
    COPY_OFFER = 1, /* leader -> replica: my database is to be had, take it */
    COPY_LIST = 2,  /* replica -> whoever made the copy: its files */
    COPY_PIECE = 3, /* bytes of a file */
    COPY_END = 4,   /* is this what you gave me? */
};
struct copy_ask {
    enum copy_kind kind;
    uint32_t shard;
    uint64_t id; /* of the copy; an offer: 0 if none is made yet */
    /* An offer. */
    char from[NODE_NAME_MAX + 1];
    uint64_t term, index, index_term, base; /* base: of the leader's log */
    uint64_t bytes, format;
    /* A piece. */
    uint64_t file, offset, len;
    uint64_t total; /* COPY_END: sum of the sums of all files */
};
enum copy_state {
    COPY_ROWS = 1,    /* send rows (snapshot.h), here files are of no use */
    COPY_NO = 2,      /* not wanted */
    COPY_HAVE = 3,    /* it is in place */
    COPY_READY = 4,   /* make one, another one than that, then offer it */
    COPY_WAIT = 5,    /* not now: no room, or others come first */
    COPY_PULLING = 6, /* on its way, from you or from another one */
    COPY_SAME = 7,    /* COPY_END: it is */
    COPY_DIFFERS = 8, /* it is not */
    COPY_WORKING = 9, /* still adding up: ask again */
};
struct copy_reply {
    enum copy_state state;
    uint64_t sum;     /* of a piece */
    struct str bytes; /* borrowed */
};
struct copy_file {
    char name[COPY_NAME_MAX + 1];
    uint64_t size;
    uint64_t tail; /* sum of its last bytes: tells files of one name apart */
};
struct copy_list {
    uint64_t index, index_term; /* the database is as of here */
    uint64_t bytes;             /* of all */
    struct copy_file *files;    /* owned */
    size_t len;
};

void copy_ask_write(const struct copy_ask *a, struct buf *out);
/* Checked as far as it can be alone. ERR_INPUT. */
NODISCARD int copy_ask_read(struct str bytes, struct copy_ask *ret, struct err *e);
void copy_reply_write(const struct copy_reply *r, struct buf *out);
NODISCARD int copy_reply_read(struct str bytes, struct copy_reply *ret, struct err *e);
void copy_list_write(const struct copy_list *l, struct buf *out);
/* Names are plain and occur once, sizes add up. ret is to be freed after success only. */
NODISCARD int copy_list_read(struct str bytes, struct copy_list *ret, struct err *e);
void copy_list_free(struct copy_list *l);
/* Letters, digits, '-', '_', '.', not first; none of the names the receiver uses itself. */
bool copy_name_ok(struct str name);

#endif
