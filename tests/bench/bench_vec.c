/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector codec: nanoseconds and bytes per entry, beside memcpy of the same rows and beside the
 * obvious codec (delta and value varints). Synthetic rows: 64 of one series each, drawn from one
 * population of stacks with a third missing each time and CPU-like values.
 */
#include <stdio.h>
#include <time.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/vec.h"
#include "tests/lib/gen/vec_gen.h"

#define ROWS 64

struct rows {
    size_t entries, nodes;
    uint32_t *ids[ROWS];
    uint64_t *values[ROWS];
    size_t len[ROWS];
    struct buf planes[ROWS], varints[ROWS];
    struct buf all_planes, all_varints;
};

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void encode_varints(const uint32_t *ids, const uint64_t *values, size_t n, struct buf *out)
{
    uint32_t base = 0;

    wr_varint(out, n);
    for (size_t i = 0; i < n; i++) {
        wr_varint(out, ids[i] - base);
        base = ids[i];
    }
    for (size_t i = 0; i < n; i++)
        wr_varint(out, values[i]);
}

/* The checks a varint codec needs are part of its reading. */
static bool add_varints(struct str row, uint64_t *acc, size_t nodes)
{
    struct rd ids = rd_of(row), values;
    uint64_t n, id = 0, gap, v;

    if (!rd_varint(&ids, &n))
        return false;
    values = ids;
    for (uint64_t i = 0; i < n; i++)
        if (!rd_varint(&values, &v))
            return false;
    for (uint64_t i = 0; i < n; i++) {
        if (!rd_varint(&ids, &gap) || !rd_varint(&values, &v) || (id += gap) >= nodes)
            return false;
        acc[id] += v;
    }
    return true;
}

static void make_rows(struct rows *r, struct prng *p, size_t entries, uint32_t spread)
{
    size_t population = entries * 3 / 2;
    uint32_t *ids = XNEW_ARRAY(uint32_t, population);
    population = vec_gen_ids(p, ids, population, spread);

    *r = (struct rows){ .nodes = (size_t)ids[population - 1] + 1 };
    buf_init(&r->all_planes, GIB);
    buf_init(&r->all_varints, GIB);
    for (size_t i = 0; i < ROWS; i++) {
        r->ids[i] = XNEW_ARRAY(uint32_t, population);
        r->values[i] = XNEW_ARRAY(uint64_t, population);
        for (size_t k = 0; k < population; k++)
            if (prng_below(p, 3))
                r->ids[i][r->len[i]++] = ids[k];
        vec_gen_values(p, r->values[i], r->len[i], VEC_GEN_PROFILE);
        r->entries += r->len[i];
        buf_init(&r->planes[i], GIB);
        buf_init(&r->varints[i], GIB);
        encode_varints(r->ids[i], r->values[i], r->len[i], &r->varints[i]);
        buf_add_str(&r->all_varints, buf_str(&r->varints[i]));
    }
    xfree(ids);
}

static void free_rows(struct rows *r)
{
    for (size_t i = 0; i < ROWS; i++) {
        xfree(r->ids[i]);
        xfree(r->values[i]);
        buf_deinit(&r->planes[i]);
        buf_deinit(&r->varints[i]);
    }
    buf_deinit(&r->all_planes);
    buf_deinit(&r->all_varints);
}

static void encode_rows(struct rows *r)
{
    struct vec_meta meta = { .writes = 1, .fp = 1 };

    for (size_t i = 0; i < ROWS; i++) {
        buf_reset(&r->planes[i]);
        CHECK(vec_encode(&(struct vec_part){ 0, r->ids[i], r->values[i], r->len[i] }, 1, &meta,
                         &r->planes[i]));
    }
}

enum work { ENCODE, OPEN, OPEN_ADD, VARINT_ADD, COPY, COPY_ACC, WORKS };

static void work_once(struct rows *r, enum work w, uint64_t *acc, char *to)
{
    struct vec_reader reader;
    struct vec_section s;
    struct err e;

    if (w == ENCODE) {
        encode_rows(r);
        return;
    }
    for (size_t i = 0; i < ROWS; i++) {
        struct str row = buf_str(&r->planes[i]);
        if (w == OPEN || w == OPEN_ADD)
            CHECK(vec_open(row, &reader, &e) == 0);
        if (w == OPEN_ADD)
            while (vec_next(&reader, &s))
                CHECK(vec_add_dense(&s, acc, r->nodes));
        if (w == VARINT_ADD)
            CHECK(add_varints(buf_str(&r->varints[i]), acc, r->nodes));
        if (w == COPY)
            memcpy(to, row.ptr, row.len);
        if (w == COPY_ACC)
            memcpy(to, r->values[i], r->len[i] * sizeof(uint64_t));
        __asm__ volatile("" : : "r"(to), "r"(acc) : "memory");
    }
}

/* Best of several rounds: the machine is shared. */
static double ns_per_entry(struct rows *r, enum work w)
{
    uint64_t *acc = XNEW_ARRAY(uint64_t, r->nodes);
    char *to = xmalloc(MAX(r->nodes, r->entries) * sizeof(uint64_t));
    double best = 1e18;

    for (int round = 0; round < 25; round++) {
        int times = 0;
        double start = now_ns(), took;
        do {
            work_once(r, w, acc, to);
            times++;
        } while ((took = now_ns() - start) < 4e6);
        best = MIN(best, took / times / (double)r->entries);
    }
    xfree(acc);
    xfree(to);
    return best;
}

static double zstd_per_entry(const struct rows *r, struct str all)
{
    struct buf out;
    struct err e;

    buf_init(&out, GIB);
    CHECK(zstd_compress(all, 3, &out, &e) == 0);
    double n = (double)out.len / (double)r->entries;
    buf_deinit(&out);
    return n;
}

int main(void)
{
    static const struct {
        const char *name;
        size_t entries;
        uint32_t spread;
    } shapes[] = {
        { "leaf, 550 of 100,000 nodes", 550, 120 },
        { "leaf, 550 of 10,000 nodes", 550, 12 },
        { "10 m, 3,000 of 100,000 nodes", 3000, 22 },
        { "roll-up, 33,000 of 100,000 nodes", 33000, 2 },
    };
    struct prng p;

    prng_init(&p, 1);
    printf("%-34s %8s %8s %10s %10s %8s %8s   %s\n", "ns per entry", "encode", "open", "open+add",
           "varints", "memcpy", "memcpy8", "bytes per entry: planes, varints; in zstd");
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct rows r;
        double ns[WORKS];
        make_rows(&r, &p, shapes[i].entries, shapes[i].spread);
        encode_rows(&r);
        for (size_t k = 0; k < ROWS; k++)
            buf_add_str(&r.all_planes, buf_str(&r.planes[k]));
        for (int w = 0; w < WORKS; w++)
            ns[w] = ns_per_entry(&r, (enum work)w);
        printf("%-34s %8.2f %8.2f %10.2f %10.2f %8.3f %8.3f   %.2f, %.2f; %.2f, %.2f\n",
               shapes[i].name, ns[ENCODE], ns[OPEN], ns[OPEN_ADD], ns[VARINT_ADD], ns[COPY],
               ns[COPY_ACC], (double)r.all_planes.len / (double)r.entries,
               (double)r.all_varints.len / (double)r.entries,
               zstd_per_entry(&r, buf_str(&r.all_planes)),
               zstd_per_entry(&r, buf_str(&r.all_varints)));
        free_rows(&r);
    }
    printf("encode: ids and values to a row. open: all checks. open+add: into a dense array.\n"
           "varints: checked delta and value varints into the same array. memcpy: of the row;\n"
           "memcpy8: of the values as u64.\n");
    return 0;
}
