/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_msg: the messages of a file copy, as protocol buffers.
 *
 * The names in a list of files are checked here, since the receiver makes paths of them: a name is
 * a plain file name, and occurs once. A reader skips fields that it does not know.
 */
#include "common/repl/copy_msg.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/repl/copy_files.h"

static void put_num(struct buf *out, unsigned f, uint64_t v)
{
    wr_varint(out, (uint64_t)f << 3);
    wr_varint(out, v);
}

static void put_bytes(struct buf *out, unsigned f, struct str s)
{
    wr_varint(out, (uint64_t)f << 3 | 2);
    wr_varint(out, s.len);
    buf_add_str(out, s);
}

/* ---- questions ---- */

/* Numbers of the fields of proto/repl.proto. */
enum { A_FROM = 4, A_FIELDS = 14 };

static uint64_t *ask_num(struct copy_ask *a, uint32_t field)
{
    switch (field) {
    case 3:
        return &a->id;
    case 5:
        return &a->term;
    case 6:
        return &a->index;
    case 7:
        return &a->index_term;
    case 8:
        return &a->base;
    case 9:
        return &a->bytes;
    case 10:
        return &a->format;
    case 11:
        return &a->file;
    case 12:
        return &a->offset;
    case 13:
        return &a->len;
    case 14:
        return &a->total;
    default:
        return NULL;
    }
}

void copy_ask_write(const struct copy_ask *a, struct buf *out)
{
    struct copy_ask copy = *a;

    put_num(out, 1, a->kind);
    put_num(out, 2, a->shard);
    for (uint32_t f = 3; f <= A_FIELDS; f++) {
        const uint64_t *v = ask_num(&copy, f);
        if (v && *v)
            put_num(out, f, *v);
    }
    if (a->from[0])
        put_bytes(out, A_FROM, str_c(a->from));
}

static int ask_check(const struct copy_ask *a, struct err *e)
{
    if (a->kind < COPY_OFFER || a->kind > COPY_END)
        return err_set(e, ERR_INPUT, "a question about a copy is of kind %u, which is unknown",
                       (unsigned)a->kind);
    if (a->kind != COPY_OFFER && !a->id)
        return err_set(e, ERR_INPUT, "a question about a copy does not say about which");
    if (a->kind == COPY_OFFER &&
        (!a->index || a->index >= UINT64_MAX / 2 || !node_name_ok(str_c(a->from))))
        return err_set(e, ERR_INPUT, "an offer of a copy does not say of what, or from whom");
    if (a->kind == COPY_PIECE && (!a->len || a->len > COPY_PIECE_BYTES ||
                                  a->offset % COPY_PIECE_BYTES || a->file >= COPY_FILES_MAX))
        return err_set(e, ERR_INPUT, "a piece of a copy is at %" PRIu64 ", %" PRIu64 " bytes",
                       a->offset, a->len);
    return 0;
}

int copy_ask_read(struct str bytes, struct copy_ask *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret = (struct copy_ask){ .shard = 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        uint64_t *v = ask_num(ret, f.number);
        if (f.number <= A_FIELDS && (f.number == A_FROM) != (f.wire == 2))
            return err_set(e, ERR_INPUT, "field %" PRIu32 " of a question about a copy is odd",
                           f.number);
        if (f.number == A_FROM && f.bytes.len <= NODE_NAME_MAX && f.bytes.len)
            memcpy(ret->from, f.bytes.ptr, f.bytes.len);
        else if (f.number == 1)
            ret->kind = f.u64 <= COPY_END ? (enum copy_kind)f.u64 : (enum copy_kind)0;
        else if (f.number == 2)
            ret->shard = (uint32_t)f.u64;
        else if (v)
            *v = f.u64;
    }
    if (got < 0)
        return err_set(e, ERR_INPUT, "a question about a copy is no protobuf");
    return ask_check(ret, e);
}

/* ---- answers ---- */

void copy_reply_write(const struct copy_reply *r, struct buf *out)
{
    put_num(out, 1, r->state);
    if (r->sum)
        put_num(out, 2, r->sum);
    if (r->bytes.len)
        put_bytes(out, 3, r->bytes);
}

int copy_reply_read(struct str bytes, struct copy_reply *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret = (struct copy_reply){ .sum = 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 1 && f.wire == 0)
            ret->state = f.u64 <= COPY_WORKING ? (enum copy_state)f.u64 : (enum copy_state)0;
        else if (f.number == 2 && f.wire == 0)
            ret->sum = f.u64;
        else if (f.number == 3 && f.wire == 2)
            ret->bytes = f.bytes;
    }
    return got < 0 ? err_set(e, ERR_INPUT, "an answer about a copy is no protobuf") : 0;
}

/* ---- lists ---- */

void copy_list_write(const struct copy_list *l, struct buf *out)
{
    struct buf one;

    put_num(out, 1, l->index);
    put_num(out, 2, l->index_term);
    buf_init(&one, KIB);
    for (size_t i = 0; i < l->len; i++) {
        buf_reset(&one);
        put_bytes(&one, 1, str_c(l->files[i].name));
        put_num(&one, 2, l->files[i].size);
        put_num(&one, 3, l->files[i].tail);
        put_bytes(out, 3, buf_str(&one));
    }
    buf_deinit(&one);
}

bool copy_name_ok(struct str name)
{
    if (!name.len || name.len > COPY_NAME_MAX || name.ptr[0] == '.' || str_ends(name, STR(".tmp")))
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '-' && c != '_' && c != '.')
            return false;
    }
    return !str_eqc(name, COPY_JOURNAL) && !str_eqc(name, COPY_COMPLETE);
}

static bool file_read(struct str bytes, struct copy_file *ret)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret = (struct copy_file){ 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 1 && f.wire == 2 && copy_name_ok(f.bytes))
            memcpy(ret->name, f.bytes.ptr, f.bytes.len);
        else if (f.number == 2)
            ret->size = f.u64;
        else if (f.number == 3)
            ret->tail = f.u64;
    }
    return got == 0 && ret->name[0];
}

static int by_name(const void *a, const void *b)
{
    const struct copy_file *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static bool names_differ(const struct copy_list *l)
{
    const struct copy_file **at = XNEW_ARRAY(const struct copy_file *, l->len + 1);
    bool ok = true;

    for (size_t i = 0; i < l->len; i++)
        at[i] = &l->files[i];
    qsort(at, l->len, sizeof(const struct copy_file *), by_name);
    for (size_t i = 1; i < l->len; i++)
        ok &= strcmp(at[i - 1]->name, at[i]->name) != 0;
    xfree(at);
    return ok;
}

int copy_list_read(struct str bytes, struct copy_list *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    VEC(struct copy_file) files = { 0 };
    struct copy_file one;
    struct pb_field f;
    bool ok = true;
    int got;

    *ret = (struct copy_list){ 0 };
    while (ok && (got = rd_pb(&r, &f)) != 0) {
        ok = got > 0;
        if (ok && f.number == 1 && f.wire == 0) {
            ret->index = f.u64;
        } else if (ok && f.number == 2 && f.wire == 0) {
            ret->index_term = f.u64;
        } else if (ok && f.number == 3 && f.wire == 2) {
            ok = files.len < COPY_FILES_MAX && file_read(f.bytes, &one) &&
                 one.size <= COPY_BYTES_MAX - ret->bytes;
            if (ok) {
                vec_push(&files, one);
                ret->bytes += one.size;
            }
        }
    }
    ret->files = files.ptr;
    ret->len = files.len;
    if (ok && ret->len && ret->index && ret->index < UINT64_MAX / 2 && names_differ(ret))
        return 0;
    copy_list_free(ret);
    return err_set(e, ERR_INPUT, "the list of a copy's files is invalid");
}

void copy_list_free(struct copy_list *l)
{
    xfree(l->files);
    *l = (struct copy_list){ 0 };
}
