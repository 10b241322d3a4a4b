/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a vector row (the right checksum is put behind them): refused, or every way of
 * reading agrees, nothing is zero or out of order, and encoding what was read gives a row with the
 * same contents.
 */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/codec/vec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    uint32_t *ids;
    uint64_t *values;
};

static void read_section(const struct vec_section *s, struct copy *c)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_iter it;
    size_t at = 0, n;

    c->ids = XNEW_ARRAY(uint32_t, s->len);
    c->values = XNEW_ARRAY(uint64_t, s->len);
    vec_decode(s, c->ids, c->values);
    vec_iter_init(&it, s);
    for (; (n = vec_iter_next(&it, ids, values)) > 0; at += n)
        for (size_t i = 0; i < n; i++)
            CHECK(ids[i] == c->ids[at + i] && values[i] == c->values[at + i]);
    CHECK(at == s->len && c->ids[at - 1] == s->last);
    for (size_t i = 0; i < at; i++)
        CHECK(c->values[i] > 0 && (i == 0 || c->ids[i] > c->ids[i - 1]));
    if (s->last >= 1 << 20)
        return;
    uint64_t *acc = XNEW_ARRAY(uint64_t, (size_t)s->last + 1);
    uint64_t *sat = XNEW_ARRAY(uint64_t, (size_t)s->last + 1);
    uint64_t saturated = 0;
    CHECK(!vec_add_dense(s, acc, s->last));
    CHECK(vec_add_dense(s, acc, (size_t)s->last + 1));
    CHECK(vec_add_dense_sat(s, sat, (size_t)s->last + 1, &saturated) && !saturated);
    for (size_t i = 0; i < at; i++)
        CHECK(acc[c->ids[i]] == c->values[i] && sat[c->ids[i]] == c->values[i]);
    xfree(acc);
    xfree(sat);
}

static void compare(struct str row, const struct vec_meta *meta, const struct vec_part *parts,
                    size_t count)
{
    struct vec_reader r;
    struct vec_section s;
    struct err e;

    CHECK(vec_open(row, &r, &e) == 0);
    CHECK(r.sections == count && r.meta.total == meta->total && r.meta.writes == meta->writes &&
          r.meta.fp == meta->fp && r.meta.saturated == meta->saturated);
    for (size_t i = 0; i < count; i++) {
        struct copy c;
        CHECK(vec_next(&r, &s) && s.epoch == parts[i].epoch && s.len == parts[i].len);
        read_section(&s, &c);
        CHECK(memcmp(c.ids, parts[i].ids, s.len * sizeof(*c.ids)) == 0);
        CHECK(memcmp(c.values, parts[i].values, s.len * sizeof(*c.values)) == 0);
        xfree(c.ids);
        xfree(c.values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vec_part parts[VEC_SECTIONS_MAX];
    static struct copy copies[VEC_SECTIONS_MAX];
    struct vec_reader r;
    struct vec_section s;
    struct buf row, again;
    struct err e;
    size_t count = 0;

    buf_init(&row, GIB);
    buf_init(&again, GIB);
    buf_add(&row, data, size);
    wr_u32le(&row, crc32c(0, data, size));
    if (vec_open(buf_str(&row), &r, &e) == 0) {
        struct vec_meta meta = r.meta;
        for (; vec_next(&r, &s); count++) {
            read_section(&s, &copies[count]);
            parts[count] =
                (struct vec_part){ s.epoch, copies[count].ids, copies[count].values, s.len };
        }
        CHECK(vec_encode(parts, count, &meta, &again));
        compare(buf_str(&again), &meta, parts, count);
    } else {
        CHECK(e.code == ERR_CORRUPT);
    }
    for (size_t i = 0; i < count; i++) {
        xfree(copies[i].ids);
        xfree(copies[i].values);
    }
    buf_deinit(&row);
    buf_deinit(&again);
    return 0;
}
