/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_gunzip FILE...: CPU microseconds of one libdeflate gunzip of each file, a row "path bytes
 * plain us turn" each: the physical limit beside which ingest is shown. `us` is the best of many
 * one after the other: by then the processor has learned the very bits of a small body and guesses
 * every branch. `turn` is the best of rounds over all files (at least a few should be named), which
 * is how a server meets bodies. Files that are not gzip are compressed first (level 6), since
 * agents send them so.
 */
#include <libdeflate.h>
#include <stdio.h>
#include <time.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/sys/fs.h"

#define SPEND_US 100000 /* a file */

struct body {
    struct buf raw, plain;
    double best, turn;
};

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int read_body(const char *path, struct body *b, struct err *e)
{
    struct inflate_limits l = { 512 * MIB, 0 };
    struct buf packed;

    *b = (struct body){ .best = 1e18, .turn = 1e18 };
    buf_init(&b->raw, 64 * MIB);
    buf_init(&b->plain, 512 * MIB);
    buf_init(&packed, 64 * MIB);
    int rc = fs_real()->read_file(fs_real(), path, &b->raw, e);
    if (!rc && !gzip_sniff(buf_str(&b->raw))) {
        rc = gzip(buf_str(&b->raw), 6, &packed, e);
        buf_move(&b->raw, &packed);
    }
    buf_deinit(&packed);
    return rc ? rc : gunzip(buf_str(&b->raw), &l, &b->plain, e); /* grows the buffer once */
}

/* Once; of several members only the first. Returns how long it took. */
static double once(struct body *b, struct libdeflate_decompressor *d, double *best)
{
    double began = cpu_us();
    size_t in, out;

    CHECK(libdeflate_gzip_decompress_ex(d, b->raw.ptr, b->raw.len, b->plain.ptr, b->plain.cap, &in,
                                        &out) == LIBDEFLATE_SUCCESS);
    double took = cpu_us() - began;
    *best = MIN(*best, took);
    return took + 1;
}

static void measure(struct body *all, size_t len)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    double spent;

    CHECK(d);
    for (size_t i = 0; i < len; i++)
        for (spent = 0; spent < SPEND_US;)
            spent += once(&all[i], d, &all[i].best);
    for (spent = 0; spent < SPEND_US * (double)len;)
        for (size_t i = 0; i < len; i++)
            spent += once(&all[i], d, &all[i].turn);
    libdeflate_free_decompressor(d);
}

int main(int argc, char **argv)
{
    size_t len = argc > 1 ? (size_t)argc - 1 : 0;
    struct body *all = XNEW_ARRAY(struct body, len + 1);
    struct err e;

    for (size_t i = 0; i < len; i++) {
        if (read_body(argv[i + 1], &all[i], &e)) {
            fprintf(stderr, "%s: %s\n", argv[i + 1], e.text);
            return 1;
        }
    }
    measure(all, len);
    for (size_t i = 0; i < len; i++) {
        printf("%s %zu %zu %.2f %.2f\n", argv[i + 1], all[i].raw.len, all[i].plain.len, all[i].best,
               all[i].turn);
        buf_deinit(&all[i].raw);
        buf_deinit(&all[i].plain);
    }
    xfree(all);
    return 0;
}
