/* SPDX-License-Identifier: Apache-2.0
 *
 * adjust: differences that a person accepted (rows of 74), as sums beside the rows of the ledger.
 * ledger_accept.c writes them.
 */
#include "common/store/ledger/adjust.h"

#include "common/base/rd.h"

static bool read_text(struct rd *r, struct str *ret)
{
    uint16_t len;

    return rd_u16be(r, &len) && rd_bytes(r, len, ret);
}

int ledger_accepted_read(struct str key, struct str value, struct ledger_accepted *ret,
                         struct err *e)
{
    struct rd r = rd_of(value);
    struct str sums;
    uint8_t version = 0;

    *ret = (struct ledger_accepted){ 0 };
    if (key.len != LEDGER_ACCEPTED_KEY_LEN ||
        !ledger_key_read(str_sub(key, 0, LEDGER_KEY_LEN), &ret->m, &ret->bucket))
        return err_set(e, ERR_CORRUPT, "a key of %zu bytes among accepted differences", key.len);
    ret->at_ms = (int64_t)get_u64be(key.ptr + LEDGER_KEY_LEN);
    if (!rd_u8(&r, &version) || version != LEDGER_ACCEPTED_VERSION || !rd_u64be(&r, &ret->lost) ||
        !rd_u64be(&r, &ret->doubled) || !rd_bytes(&r, (size_t)3 * LEDGER_SUM_LEN, &sums) ||
        !ledger_sum_read(sums.ptr, &ret->raw) ||
        !ledger_sum_read(sums.ptr + LEDGER_SUM_LEN, &ret->levels) ||
        !ledger_sum_read(sums.ptr + (size_t)2 * LEDGER_SUM_LEN, &ret->base) ||
        !read_text(&r, &ret->who) || !read_text(&r, &ret->reason))
        return err_set(e, ERR_CORRUPT,
                       "an accepted difference of %zu bytes is not one of version %d", value.len,
                       LEDGER_ACCEPTED_VERSION);
    return 0;
}

int ledger_adjust_read(struct str key, struct str value, struct ledger_adjust *to,
                       struct member *ret_m, uint32_t *ret_bucket, struct err *e)
{
    struct ledger_accepted x;

    if (ledger_accepted_read(key, value, &x, e))
        return e->code;
    ledger_add(&to->raw, &x.raw);
    ledger_add(&to->levels, &x.levels);
    ledger_add(&to->base, &x.base);
    to->rows++;
    *ret_m = x.m;
    *ret_bucket = x.bucket;
    return 0;
}

int ledger_get_adjust(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                      uint32_t bucket, struct ledger_adjust *ret, struct err *e)
{
    struct member of;
    struct key from, to;
    uint32_t number;
    int rc = 0;

    *ret = (struct ledger_adjust){ 0 };
    ledger_key(&from, KEY_LEDGER_ACCEPTED, m, bucket);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = ledger_adjust_read(kv_iter_key(it), kv_iter_value(it), ret, &of, &number, e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int ledger_is_past(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                   uint32_t bucket, bool *ret, struct err *e)
{
    static const enum key_table tables[] = { KEY_LEDGER_IN, KEY_LEDGER_OUT, KEY_LEDGER_FOUND };
    struct buf row;
    struct key k;
    int rc = ERR_NOT_FOUND;

    buf_init(&row, 4 * KIB);
    for (size_t i = 0; rc == ERR_NOT_FOUND && i < ARRAY_LEN(tables); i++) {
        buf_reset(&row);
        ledger_key(&k, tables[i], m, bucket);
        rc = kv_get(kv, snap, KV_META, key_str(&k), &row, e);
    }
    buf_deinit(&row);
    *ret = rc == ERR_NOT_FOUND;
    return *ret ? 0 : rc;
}
