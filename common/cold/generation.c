/* SPDX-License-Identifier: Apache-2.0
 *
 * generation: one row of the shard's database. README.md argues why it makes late deletions
 * harmless.
 */
#include "common/cold/generation.h"

#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/store/codec/keys.h"

#define VERSION   1
#define ROW_BYTES 256

static struct str row_key(char *key)
{
    key[0] = (char)KEY_COLD_GENERATION;
    return str_n(key, 1);
}

static bool parse(struct str value, struct cold_generation *ret)
{
    struct rd r = rd_of(value);
    uint8_t version;
    uint64_t n;

    if (!rd_u8(&r, &version) || version != VERSION || !rd_varint(&r, &ret->now) ||
        !rd_varint(&r, &n) || n > GENERATION_EARLIER || ret->now < GENERATION_FIRST ||
        ret->now > UINT32_MAX)
        return false;
    ret->earlier_len = (size_t)n;
    for (size_t i = 0; i < ret->earlier_len; i++)
        if (!rd_varint(&r, &ret->earlier[i]))
            return false;
    return !rd_left(&r);
}

int cold_generation_read(struct kv *kv, struct cold_generation *ret, struct err *e)
{
    struct err why = { 0 };
    struct buf row;
    char key[1];
    int rc;

    *ret = (struct cold_generation){ 0 };
    buf_init(&row, ROW_BYTES);
    rc = kv_get(kv, NULL, KV_META, row_key(key), &row, &why);
    if (!rc && !parse(buf_str(&row), ret))
        rc = err_set(e, ERR_CORRUPT, "the generation of a shard's objects cannot be read");
    else if (rc && rc != ERR_NOT_FOUND)
        *e = why;
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

void cold_generation_next(struct cold_generation *g, uint64_t over)
{
    if (g->now) {
        size_t keep = MIN(g->earlier_len, (size_t)GENERATION_EARLIER - 1);

        memmove(g->earlier + 1, g->earlier, keep * sizeof(*g->earlier));
        g->earlier[0] = g->now;
        g->earlier_len = keep + 1;
    }
    g->now = MAX(MAX(g->now, over) + 1, (uint64_t)GENERATION_FIRST);
    CHECK(g->now <= UINT32_MAX); /* one per change of leaders */
}

void cold_generation_put(const struct cold_generation *g, struct kv_batch *b)
{
    struct buf row;
    char key[1];

    buf_init(&row, ROW_BYTES);
    (void)wr_u8(&row, VERSION);
    (void)wr_varint(&row, g->now);
    (void)wr_varint(&row, g->earlier_len);
    for (size_t i = 0; i < g->earlier_len; i++)
        (void)wr_varint(&row, g->earlier[i]);
    CHECK(buf_ok(&row));
    kv_batch_put(b, KV_META, row_key(key), buf_str(&row));
    buf_deinit(&row);
}

int cold_generation_head(const struct cold_generation *g, uint64_t last, uint64_t *ret,
                         struct err *e)
{
    if (cold_generation_of_head(last) > g->now)
        return err_set(e, ERR_CONFLICT,
                       "generation %" PRIu64 " has written backups, this is generation %" PRIu64,
                       cold_generation_of_head(last), g->now);
    *ret = MAX(last + 1, g->now << 32);
    return 0;
}
