/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_keep: the file of last profiles.
 *
 *   "EMTSCRP1" | { id u64 | at_ms u64 | bytes u32 | bytes } ... | hash of all before u64     (LE)
 *
 * It is written once, when a distributor ends in order, and removed before anything of it is used.
 * That is what makes it safe: a stale file (after a crash, say) would make growth count that was
 * stored already. After a crash there is no file, and entries begin with a
 * first profile: what grew since the last one they stored is not counted then, and never twice.
 */
#include "distributor/scrape/scrape_keep.h"

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define HEAD      "EMTSCRP1"
#define HEAD_LEN  8
#define END_LEN   8
#define KEEP_SEED UINT64_C(0x73637270)

void scrape_keep_head(struct buf *out)
{
    (void)buf_add(out, HEAD, HEAD_LEN);
}

void scrape_keep_one(const struct scrape_kept *k, struct buf *out)
{
    CHECK(k->bytes.len <= UINT32_MAX);
    (void)wr_u64le(out, k->id);
    (void)wr_u64le(out, (uint64_t)k->at_ms);
    (void)wr_u32le(out, (uint32_t)k->bytes.len);
    (void)buf_add_str(out, k->bytes);
}

void scrape_keep_end(struct buf *out)
{
    (void)wr_u64le(out, hash64(out->ptr, out->len, KEEP_SEED));
}

static bool read_one(struct rd *r, struct scrape_kept *ret)
{
    uint64_t at;
    uint32_t len;

    if (!rd_u64le(r, &ret->id) || !rd_u64le(r, &at) || !rd_u32le(r, &len) ||
        !rd_bytes(r, len, &ret->bytes))
        return false;
    ret->at_ms = (int64_t)at;
    return true;
}

int scrape_keep_each(struct str text, int64_t now_ms,
                     void (*fn)(void *cookie, const struct scrape_kept *k), void *cookie,
                     struct err *e)
{
    struct scrape_kept k;

    if (text.len < HEAD_LEN + END_LEN || !str_starts(text, str_n(HEAD, HEAD_LEN)))
        return err_set(e, ERR_INPUT, "no file of last profiles");
    struct str body = str_sub(text, 0, text.len - END_LEN);
    if (hash64(body.ptr, body.len, KEEP_SEED) != get_u64le(text.ptr + body.len))
        return err_set(e, ERR_INPUT, "the file of last profiles is broken");
    struct rd all = rd_of(str_sub(body, HEAD_LEN, body.len)), r = all;
    while (rd_left(&r))
        if (!read_one(&r, &k))
            return err_set(e, ERR_INPUT, "the file of last profiles is cut");
    while (rd_left(&all)) {
        CHECK(read_one(&all, &k));
        if (k.bytes.len && k.at_ms <= now_ms && k.at_ms > now_ms - SCRAPE_KEEP_MS)
            fn(cookie, &k);
    }
    return 0;
}
