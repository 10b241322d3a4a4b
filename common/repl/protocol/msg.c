/* SPDX-License-Identifier: Apache-2.0
 *
 * msg: the messages between replicas, as protocol buffers (proto/repl.proto).
 *
 * An entry has the same bytes in a message as in the log (log/entry.h). A reader skips unknown
 * fields and takes 0 for missing ones: replicas of different versions understand each other, and a
 * new field must mean "not said" where it is 0.
 */
#include "common/repl/protocol/msg.h"

#include "common/base/mem.h"
#include "common/base/wr.h"

/* Numbers of the fields of proto/repl.proto. */
enum field {
    F_KIND = 1,
    F_SHARD = 2,
    F_FROM = 3,
    F_TERM = 4,
    F_OK = 5,
    F_PREV_INDEX = 6,
    F_PREV_TERM = 7,
    F_LAST_INDEX = 8,
    F_LAST_TERM = 9,
    F_COMMIT = 10,
    F_ROUND = 11,
    F_SEQ = 12,
    F_BASE = 13,
    F_ENTRIES = 14,
    F_WANTS_SNAPSHOT = 15,
    F_NO_ROOM = 16,
    F_RECLAIMED = 17,
    F_ALL_HAVE = 18,
    F_KNOWN_TERM = 19,
    F_KNOWN_MAP = 20,
};

static void put_num(struct buf *out, enum field f, uint64_t v)
{
    if (!v)
        return;
    wr_varint(out, (uint64_t)f << 3);
    wr_varint(out, v);
}

void repl_msg_write(const struct repl_msg *m, struct buf *out)
{
    size_t bytes = 0;

    put_num(out, F_KIND, (uint64_t)m->kind);
    put_num(out, F_SHARD, m->shard);
    wr_varint(out, F_FROM << 3 | 2);
    wr_varint(out, strlen(m->from));
    buf_add(out, m->from, strlen(m->from));
    put_num(out, F_TERM, m->term);
    put_num(out, F_OK, m->ok);
    put_num(out, F_PREV_INDEX, m->prev_index);
    put_num(out, F_PREV_TERM, m->prev_term);
    put_num(out, F_LAST_INDEX, m->last_index);
    put_num(out, F_LAST_TERM, m->last_term);
    put_num(out, F_COMMIT, m->commit);
    put_num(out, F_ROUND, m->round);
    put_num(out, F_SEQ, m->seq);
    put_num(out, F_BASE, m->base);
    put_num(out, F_WANTS_SNAPSHOT, m->wants_snapshot);
    put_num(out, F_NO_ROOM, m->no_room);
    put_num(out, F_RECLAIMED, m->reclaimed);
    put_num(out, F_ALL_HAVE, m->all_have);
    put_num(out, F_KNOWN_TERM, m->known_term);
    put_num(out, F_KNOWN_MAP, m->known_map);
    for (size_t i = 0; i < m->entries_len; i++)
        bytes += entry_bytes(m->entries[i]->len);
    if (!bytes)
        return;
    wr_varint(out, F_ENTRIES << 3 | 2);
    wr_varint(out, bytes);
    if (!buf_room(out, bytes)) /* all at once: no growing by steps */
        return;
    for (size_t i = 0; i < m->entries_len; i++)
        entry_write(m->entries[i], out);
}

static int read_entries(struct str bytes, struct repl_msg *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct repl_entry **list = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;

    while (!rc && rd_left(&r)) {
        if (n == REPL_ENTRIES_MAX) {
            rc = err_set(e, ERR_LIMIT, "a message with more than %d entries", REPL_ENTRIES_MAX);
            break;
        }
        if (n == cap) {
            cap = MAX(cap * 2, 8);
            list = xreallocarray(list, cap, sizeof(struct repl_entry *));
        }
        rc = entry_read(&r, 0, &list[n], e);
        n += rc == 0;
    }
    ret->entries = list;
    ret->entries_len = n;
    return rc;
}

/* Others are of a newer version. */
static void read_known(const struct pb_field *f, struct repl_msg *m)
{
    if (f->number == F_KNOWN_TERM)
        m->known_term = f->u64;
    else if (f->number == F_KNOWN_MAP)
        m->known_map = f->u64;
}

static int read_field(const struct pb_field *f, struct repl_msg *m, struct err *e)
{
    switch (f->number) {
    case F_KIND:
        m->kind = (enum repl_msg_kind)MIN(f->u64, 255);
        break;
    case F_SHARD:
        m->shard = (uint32_t)f->u64;
        break;
    case F_FROM:
        if (f->wire != 2 || !node_name_ok(f->bytes))
            return err_set(e, ERR_INPUT, "a replica's message names no sender");
        memcpy(m->from, f->bytes.ptr, f->bytes.len);
        m->from[f->bytes.len] = '\0';
        break;
    case F_TERM:
        m->term = f->u64;
        break;
    case F_OK:
        m->ok = f->u64 != 0;
        break;
    case F_PREV_INDEX:
        m->prev_index = f->u64;
        break;
    case F_PREV_TERM:
        m->prev_term = f->u64;
        break;
    case F_LAST_INDEX:
        m->last_index = f->u64;
        break;
    case F_LAST_TERM:
        m->last_term = f->u64;
        break;
    case F_COMMIT:
        m->commit = f->u64;
        break;
    case F_ROUND:
        m->round = f->u64;
        break;
    case F_SEQ:
        m->seq = f->u64;
        break;
    case F_BASE:
        m->base = f->u64;
        break;
    case F_WANTS_SNAPSHOT:
        m->wants_snapshot = f->u64 != 0;
        break;
    case F_NO_ROOM:
        m->no_room = f->u64 != 0;
        break;
    case F_RECLAIMED:
        m->reclaimed = f->u64;
        break;
    case F_ALL_HAVE:
        m->all_have = f->u64;
        break;
    case F_ENTRIES:
        if (f->wire != 2 || m->entries)
            return err_set(e, ERR_INPUT, "a replica's message has odd entries");
        return read_entries(f->bytes, m, e);
    default:
        read_known(f, m);
        break;
    }
    return 0;
}

int repl_msg_read(struct str bytes, struct repl_msg *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got, rc = 0;

    memset(ret, 0, sizeof(*ret));
    while (!rc && (got = rd_pb(&r, &f)) != 0)
        rc = got < 0 ? err_set(e, ERR_INPUT, "a replica's message is no protobuf")
                     : read_field(&f, ret, e);
    if (!rc && (ret->kind < REPL_PREPARE || ret->kind > REPL_FETCHED || !ret->from[0]))
        rc = err_set(e, ERR_INPUT, "a replica's message of kind %d", (int)ret->kind);
    if (rc)
        repl_msg_free(ret);
    return rc;
}

void repl_msg_free(struct repl_msg *m)
{
    for (size_t i = 0; i < m->entries_len; i++)
        entry_unref(m->entries[i]);
    xfree((void *)(uintptr_t)m->entries);
    m->entries = NULL;
    m->entries_len = 0;
}

void repl_msg_copy(struct repl_msg *to, const struct repl_msg *from)
{
    struct repl_entry **list = NULL;

    *to = *from;
    if (from->entries_len)
        list = xcalloc(from->entries_len, sizeof(struct repl_entry *));
    for (size_t i = 0; i < from->entries_len; i++)
        list[i] = entry_ref(from->entries[i]);
    to->entries = list;
}
