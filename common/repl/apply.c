/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: the data of an entry are the operations of a batch as kv_impl.h lays them out, so the
 * entry's memory is the batch: the row that notes the index is put behind them, where an entry has
 * room for it. Nothing is copied.
 */
#include "common/repl/apply.h"

#include <string.h>

#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_chain.h"
#include "common/store/kv/kv_impl.h"

#define NOTE_KEY   STR("\x02\x08") /* keys.h: control, CONTROL_REPL */
#define NOTE_BYTES 16              /* index u64 | term u64 */

/* Puts the note behind `len` bytes of operations; the whole as a batch that borrows them. */
static struct kv_batch batch_with_note(const struct repl_entry *x, char *ops, size_t len)
{
    char *p = ops + len;

    *p++ = (char)(KV_PUT << 4 | KV_META);
    *p++ = (char)NOTE_KEY.len;
    memcpy(p, NOTE_KEY.ptr, NOTE_KEY.len);
    p += NOTE_KEY.len;
    *p++ = NOTE_BYTES;
    put_u64be(p, x->index);
    put_u64be(p + 8, x->term);
    p += NOTE_BYTES;
    return (struct kv_batch){ .ops = { .ptr = ops,
                                       .len = (size_t)(p - ops),
                                       .cap = (size_t)(p - ops),
                                       .max = KV_BATCH_BYTES_MAX },
                              .count = 1 };
}

static int drop_files(struct kv *db, struct str data, struct err *e)
{
    struct rd r = rd_of(data);
    struct str from, last;
    uint8_t cf;

    struct kv_batch *nothing;
    uint64_t n;
    int code;

    if (!db->ops->drop_files)
        return 0;
    CHECK(rd_u8(&r, &cf) && cf < KV_CFS);
    CHECK(rd_varint(&r, &n) && rd_bytes(&r, n, &from) && rd_varint(&r, &n) &&
          rd_bytes(&r, n, &last));
    nothing = kv_batch_new();
    code = kv_write(db, nothing, true, e); /* what was deleted before is on disk before files go */
    kv_batch_free(nothing);
    return code ? code : db->ops->drop_files(db, (enum kv_cf)cf, from, last, e);
}

static int flush_soon(struct kv *db, struct str data, struct err *e)
{
    CHECK(data.len == 1 && (uint8_t)data.ptr[0] < KV_CFS);
    return db->ops->flush_soon ? db->ops->flush_soon(db, (enum kv_cf)data.ptr[0], e) : 0;
}

int apply_entry(struct kv *db, struct repl_entry *x, struct err *e)
{
    struct str data = str_n(x->data, x->len);
    bool batch = x->kind == REPL_BATCH;
    char note[ENTRY_ROOM_APPLY];
    struct kv_batch b;
    int code = 0;

    if (x->kind == REPL_DROP_FILES)
        code = drop_files(db, data, e);
    else if (x->kind == REPL_FLUSH)
        code = flush_soon(db, data, e);
    if (code)
        return code;
    b = batch_with_note(x, batch ? x->data : note, batch ? x->len : 0);
    return kv_write(db, &b, false, e);
}

static void note_put(struct kv_batch *b, uint64_t index, uint64_t term)
{
    char row[NOTE_BYTES];

    put_u64be(row, index);
    put_u64be(row + 8, term);
    kv_batch_put(b, KV_META, NOTE_KEY, str_n(row, sizeof(row)));
}

int apply_note(struct kv *db, uint64_t index, uint64_t term, struct err *e)
{
    struct kv_batch *b = kv_batch_new();

    note_put(b, index, term);
    int code = kv_write(db, b, true, e);
    kv_batch_free(b);
    return code;
}

int apply_forget(struct kv *db, struct err *e)
{
    struct kv_batch *b = kv_batch_new();

    kv_batch_del(b, KV_META, NOTE_KEY);
    int rc = kv_write(db, b, true, e);
    kv_batch_free(b);
    return rc;
}

int apply_check_files(const char *dir, struct err *e)
{
    static_assert(APPLY_HALF == KV_CHAIN_ANY, "half a database is as of nothing");
    return kv_rocks_check_chain(dir, KV_META, NOTE_KEY, e);
}

bool apply_is_note(int cf, struct str key)
{
    return cf == KV_META && str_eq(key, NOTE_KEY);
}

int apply_empty(struct kv *db, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    char last[256]; /* above every key there is */

    memset(last, 0xff, sizeof(last));
    for (int cf = 0; cf < KV_CFS; cf++)
        kv_batch_del_range(b, (enum kv_cf)cf, STR_NULL, str_n(last, sizeof(last)));
    note_put(b, APPLY_HALF, 0);
    int code = kv_write(db, b, true, e);
    kv_batch_free(b);
    return code;
}

int apply_any_row(struct kv *db, bool *ret, struct err *e)
{
    int code = 0;

    *ret = false;
    for (int cf = 0; cf < KV_CFS && !code && !*ret; cf++) {
        struct kv_iter *it = kv_iter_new(db, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        *ret = kv_iter_valid(it);
        code = kv_iter_status(it, e);
        kv_iter_free(it);
    }
    return code;
}

int apply_read(struct kv *db, uint64_t *ret_index, uint64_t *ret_term, struct err *e)
{
    return apply_read_at(db, NULL, ret_index, ret_term, e);
}

int apply_read_at(struct kv *db, const struct kv_snap *snap, uint64_t *ret_index,
                  uint64_t *ret_term, struct err *e)
{
    struct buf row;
    int code;

    *ret_index = *ret_term = 0;
    buf_init(&row, 64);
    code = kv_get(db, snap, KV_META, NOTE_KEY, &row, e);
    if (code == ERR_NOT_FOUND) {
        code = 0;
    } else if (!code && row.len != NOTE_BYTES) {
        code = err_set(e, ERR_CORRUPT, "the note of the last entry has %zu bytes", row.len);
    } else if (!code) {
        *ret_index = get_u64be(row.ptr);
        *ret_term = get_u64be(row.ptr + 8);
    }
    buf_deinit(&row);
    return code;
}
