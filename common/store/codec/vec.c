/* SPDX-License-Identifier: Apache-2.0
 *
 * vec: reading vector rows; vec_encode.c writes them.
 *
 * Why bytes and planes: most gaps between ids and most values fit one byte, and a loop over bytes
 * does not mispredict, which varints of mixed length do. What does not fit stands in streams beside
 * (escapes, overflow) that the loops touch rarely. General compression is RocksDB's business: over
 * many rows of one series zstd finds the same bytes in either form.
 *
 * Why validation is cheap: whatever a row says, bytes of ids make strictly ascending numbers. So it
 * is enough to know sums: the last id is the sum of all gaps, the total is a sum over planes
 * weighed by 256^p. Sums and counts of bytes run over eight at a time.
 *
 * Bytes of a row may come from a damaged disk or another process: nothing here trusts them before
 * vec_open has passed, and nothing checks them after.
 */
#include "common/store/codec/vec.h"

#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vec_bytes.h"
#include "common/store/codec/vec_impl.h"

/* The part of value i that stands in planes. */
static uint64_t low_part(const struct vec_section *s, size_t i)
{
    uint64_t v = 0;

    for (size_t p = 0; p < s->planes; p++)
        v |= (uint64_t)s->values[p * s->len + i] << 8 * p;
    return v;
}

/* ---- validation ---- */

static int corrupt(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "vector row: %s", what);
}

/* Sets s->last. */
static int check_ids(struct vec_section *s, struct err *e)
{
    struct rd r = rd_of(s->escapes);
    uint64_t escapes, last = vec_sum(s->ids, s->len, 255, &escapes) + s->len - 1;

    for (; escapes; escapes--) {
        uint64_t more;
        if (!rd_varint(&r, &more) || more > UINT32_MAX)
            return corrupt(e, "an escape of ids is cut off or too large");
        last += more; /* at most 2^32 times 2^32 - 1 on top of 2^40: fits */
        if (last > UINT32_MAX)
            break;
    }
    if (last > UINT32_MAX)
        return corrupt(e, "ids pass 2^32");
    if (rd_left(&r))
        return corrupt(e, "more escapes than ids need");
    s->last = (uint32_t)last;
    return 0;
}

/* Walks the overflow: adds it to *sum, counts entries whose planes are all zero. */
static int check_overflow(const struct vec_section *s, u128 *sum, uint64_t *ret_low_zero,
                          struct err *e)
{
    struct rd r = rd_of(s->overflow);
    uint64_t next = 0;

    *ret_low_zero = 0;
    while (rd_left(&r)) {
        uint64_t skip, high, scaled;
        if (!rd_varint(&r, &skip) || !rd_varint(&r, &high))
            return corrupt(e, "the overflow of values is cut off");
        if (skip >= s->len || next + skip >= s->len)
            return corrupt(e, "overflow behind the last entry");
        if (!high || s->planes > 7 || high > UINT64_MAX >> 8 * s->planes)
            return corrupt(e, "an overflow is zero or does not fit 64 bits");
        uint64_t low = low_part(s, next + skip);
        if (!u64_mul(high << 8 * s->planes | low, s->scale, &scaled))
            return corrupt(e, "a value does not fit 64 bits");
        *ret_low_zero += low == 0;
        *sum += (u128)high << 8 * s->planes;
        next += skip + 1;
    }
    return 0;
}

/* Adds the section's values to *total. */
static int check_values(const struct vec_section *s, u128 *total, struct err *e)
{
    u128 sum = 0; /* of at most 2^32 quotients below 2^64 */
    uint64_t low_zero, zeros = 0;
    int rc = check_overflow(s, &sum, &low_zero, e);

    if (rc)
        return rc;
    for (size_t p = 0; p < s->planes; p++)
        sum += (u128)vec_sum(s->values + p * s->len, s->len, 0, &zeros) << 8 * p;
    if (s->planes > 1)
        zeros = vec_count_zero(s->values, s->len, s->planes);
    if (zeros != low_zero)
        return corrupt(e, "a value is zero");
    /* A quotient of k planes times scale fits when scale <= 2^64 / 256^k; else look at each. */
    uint64_t room = s->planes == 8 ? 1 : UINT64_MAX >> 8 * s->planes;
    for (size_t i = 0; s->scale > room && i < s->len; i++) {
        uint64_t scaled;
        if (!u64_mul(low_part(s, i), s->scale, &scaled))
            return corrupt(e, "a value does not fit 64 bits");
    }
    *total += sum * s->scale; /* every product fits 64 bits, so the sum is below 2^96 */
    return 0;
}

/* The head of a section and where its streams lie; nothing about their contents. */
static bool read_section(struct rd *r, struct vec_section *s)
{
    uint64_t epoch, n, scale = 1, escapes = 0, overflow = 0, planes_len;
    uint8_t form;
    struct str ids, planes;

    if (!rd_varint(r, &epoch) || epoch > UINT32_MAX || !rd_varint(r, &n) || !n || n > UINT32_MAX ||
        !rd_u8(r, &form))
        return false;
    uint32_t k = form & VEC_FORM_PLANES;
    if (form & VEC_FORM_UNKNOWN || k < 1 || k > 8)
        return false;
    if (form & VEC_FORM_SCALE && (!rd_varint(r, &scale) || scale < 2))
        return false;
    if (form & VEC_FORM_ESCAPES && (!rd_varint(r, &escapes) || !escapes))
        return false;
    if (form & VEC_FORM_OVERFLOW && (!rd_varint(r, &overflow) || !overflow))
        return false;
    planes_len = n * k;
    if (!rd_bytes(r, n, &ids) || !rd_bytes(r, escapes, &s->escapes) ||
        !rd_bytes(r, planes_len, &planes) || !rd_bytes(r, overflow, &s->overflow))
        return false;
    s->epoch = (uint32_t)epoch;
    s->len = (uint32_t)n;
    s->planes = k;
    s->scale = scale;
    s->ids = (const uint8_t *)(const void *)ids.ptr;
    s->values = (const uint8_t *)(const void *)planes.ptr;
    return true;
}

static int check_section(struct rd *r, struct vec_section *s, u128 *total, struct err *e)
{
    if (!read_section(r, s))
        return corrupt(e, "a section's head is malformed or its bytes are cut off");
    int rc = check_ids(s, e);
    return rc ? rc : check_values(s, total, e);
}

int vec_peek(struct str row, struct vec_reader *ret, struct err *e)
{
    struct rd r = rd_of(row);
    struct vec_reader v = { .meta = { .writes = 1 }, .sections = 1 };
    uint64_t sections = 1;
    uint8_t version, flags;

    if (!rd_u8(&r, &version) || !rd_u8(&r, &flags))
        return corrupt(e, "shorter than its head");
    if (version != VEC_VERSION || flags & VEC_UNKNOWN)
        return err_set(e, ERR_CORRUPT,
                       "vector row: version %u with flags 0x%02x is damaged, or of a newer program",
                       version, flags);
    v.meta.saturated = flags & VEC_SATURATED;
    if (!rd_varint(&r, &v.meta.total) ||
        (flags & VEC_WRITES && (!rd_varint(&r, &v.meta.writes) || v.meta.writes == 1)) ||
        (flags & VEC_SECTIONS && (!rd_varint(&r, &sections) || sections == 1)) ||
        !rd_u64le(&r, &v.meta.fp))
        return corrupt(e, "its head is malformed");
    if (sections > VEC_SECTIONS_MAX || v.meta.fp >= FP_P)
        return corrupt(e, "too many sections, or no fingerprint");
    v.sections = (uint32_t)sections;
    v.rest = r;
    *ret = v;
    return 0;
}

static int check_sections(struct vec_reader *v, struct err *e)
{
    struct rd r = v->rest;
    struct vec_section s = { 0 };
    u128 total = 0; /* 4096 sections below 2^96 */

    for (uint32_t i = 0; i < v->sections; i++) {
        uint32_t before = s.epoch;
        int rc = check_section(&r, &s, &total, e);
        if (rc)
            return rc;
        if (i && s.epoch <= before)
            return corrupt(e, "epochs do not ascend");
        if (i == 0)
            v->first = s;
    }
    if (rd_left(&r))
        return corrupt(e, "bytes follow the last section");
    bool fits = total <= UINT64_MAX;
    if (v->meta.total != (fits ? (uint64_t)total : UINT64_MAX) || (!fits && !v->meta.saturated))
        return corrupt(e, "its total is not the sum of its values");
    return 0;
}

int vec_open(struct str row, struct vec_reader *ret, struct err *e)
{
    struct vec_reader v;

    if (row.len < VEC_CRC_BYTES)
        return corrupt(e, "shorter than its head");
    struct str body = str_sub(row, 0, row.len - VEC_CRC_BYTES);
    if (crc32c(0, body.ptr, body.len) != get_u32le(row.ptr + body.len))
        return corrupt(e, "its checksum does not match");
    int rc = vec_peek(body, &v, e);
    if (!rc)
        rc = check_sections(&v, e);
    if (rc)
        return rc;
    *ret = v;
    return 0;
}

int vec_count(struct str row, uint64_t *ret, struct err *e)
{
    struct vec_reader v;
    struct vec_section s;
    uint64_t n = 0;

    if (vec_peek(row, &v, e))
        return e->code;
    for (uint32_t i = 0; i < v.sections; i++, n += s.len)
        if (!read_section(&v.rest, &s))
            return corrupt(e, "a section's head is malformed or its bytes are cut off");
    *ret = n;
    return 0;
}

bool vec_next(struct vec_reader *r, struct vec_section *ret)
{
    struct err e;
    u128 total = 0;

    if (r->next == r->sections)
        return false;
    if (r->next == 0) {
        *ret = r->first;
        if (r->sections > 1) /* else nothing is left to find */
            CHECK(read_section(&r->rest, &r->first));
    } else {
        CHECK(check_section(&r->rest, ret, &total, &e) == 0);
    }
    r->next++;
    return true;
}

/* ---- reading ---- */

static void overflow_step(struct vec_iter *it)
{
    uint64_t skip = 0;

    if (!rd_left(&it->overflow)) {
        it->overflow_at = UINT64_MAX;
        return;
    }
    CHECK(rd_varint(&it->overflow, &skip) && rd_varint(&it->overflow, &it->overflow_high));
    it->overflow_at += skip + 1;
}

void vec_iter_init(struct vec_iter *it, const struct vec_section *s)
{
    *it = (struct vec_iter){
        .s = *s,
        .overflow_at = UINT64_MAX, /* -1: the first step adds 1 */
        .escapes = rd_of(s->escapes),
        .overflow = rd_of(s->overflow),
    };
    overflow_step(it);
}

/* ids of the next n entries. */
static void next_ids(struct vec_iter *it, uint32_t *ids, size_t n)
{
    const uint8_t *p = it->s.ids + it->at;
    uint32_t base = it->base;

    for (size_t i = 0, stop; i < n; i = stop) {
        stop = MIN(i + 8, n);
        uint32_t after = stop - i == 8 ? vec_ids8(p + i, base, ids + i) : base;
        if (LIKELY(after != base)) {
            base = after;
            continue;
        }
        for (size_t k = i; k < stop; k++) {
            uint64_t more = 0;
            if (p[k] == 255)
                CHECK(rd_varint(&it->escapes, &more));
            base += p[k] + (uint32_t)more;
            ids[k] = base++;
        }
    }
    it->base = base;
}

/* What the planes hold of the next n values, not scaled. */
static void next_low_parts(const struct vec_iter *it, uint64_t *values, size_t n)
{
    const uint8_t *p = it->s.values + it->at;
    size_t len = it->s.len;

    for (size_t i = 0; i < n; i++)
        values[i] = p[i];
    for (size_t k = 1; k < it->s.planes; k++) {
        p += len;
        for (size_t i = 0; i < n; i++)
            values[i] |= (uint64_t)p[i] << 8 * k;
    }
}

size_t vec_iter_next(struct vec_iter *it, uint32_t ids[VEC_CHUNK], uint64_t values[VEC_CHUNK])
{
    size_t n = MIN(it->s.len - it->at, VEC_CHUNK);

    next_ids(it, ids, n);
    next_low_parts(it, values, n);
    for (; it->overflow_at < it->at + n; overflow_step(it))
        values[it->overflow_at - it->at] |= it->overflow_high << 8 * it->s.planes;
    if (it->s.scale != 1)
        for (size_t i = 0; i < n; i++)
            values[i] *= it->s.scale;
    it->at += (uint32_t)n;
    return n;
}

void vec_decode(const struct vec_section *s, uint32_t *ids, uint64_t *values)
{
    struct vec_iter it;
    size_t n;

    vec_iter_init(&it, s);
    for (size_t at = 0; (n = vec_iter_next(&it, ids + at, values + at)) > 0;)
        at += n;
}

/* Adding is linear: planes first, then the overflow on top, without ever putting a value together.
 */
bool vec_add_dense(const struct vec_section *s, uint64_t *acc, size_t n)
{
    struct vec_iter it;
    uint32_t ids[VEC_CHUNK];
    const uint64_t scale = s->scale;

    if (s->last >= n)
        return false;
    vec_iter_init(&it, s);
    while (it.at < s->len) {
        size_t len = MIN(s->len - it.at, VEC_CHUNK);
        const uint8_t *p = s->values + it.at;
        next_ids(&it, ids, len);
        if (s->planes == 1)
            for (size_t i = 0; i < len; i++)
                acc[ids[i]] += p[i] * scale;
        else
            for (size_t i = 0; i < len; i++)
                acc[ids[i]] += (p[i] | (uint64_t)p[i + s->len] << 8) * scale;
        for (size_t k = 2; k < s->planes; k++)
            for (size_t i = 0; i < len; i++)
                acc[ids[i]] += ((uint64_t)p[i + k * s->len] << 8 * k) * scale;
        for (; it.overflow_at < it.at + len; overflow_step(&it))
            acc[ids[it.overflow_at - it.at]] += (it.overflow_high << 8 * s->planes) * scale;
        it.at += (uint32_t)len;
    }
    return true;
}

bool vec_add_dense_sat(const struct vec_section *s, uint64_t *acc, size_t n, uint64_t *saturated)
{
    struct vec_iter it;
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    size_t len;

    if (s->last >= n)
        return false;
    vec_iter_init(&it, s);
    while ((len = vec_iter_next(&it, ids, values)) > 0)
        for (size_t i = 0; i < len; i++)
            if (!u64_add(acc[ids[i]], values[i], &acc[ids[i]])) {
                acc[ids[i]] = UINT64_MAX;
                ++*saturated;
            }
    return true;
}
