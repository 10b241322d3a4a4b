/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_gunzip FILE...: CPU microseconds of one libdeflate gunzip of each file (best of several
 * repeats), one "path bytes plain us" row each: the physical limit beside which ingest is shown.
 * Files that are not gzip are compressed first (level 6), since agents send them so.
 */
#include <libdeflate.h>
#include <stdio.h>
#include <time.h>

#include "common/base/compress.h"
#include "common/sys/fs.h"

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int measure(const char *path, struct err *e)
{
    struct buf raw, packed, plain;
    int rc;

    buf_init(&raw, 64 * MIB), buf_init(&packed, 64 * MIB), buf_init(&plain, 512 * MIB);
    rc = fs_real()->read_file(fs_real(), path, &raw, e);
    if (!rc && !gzip_sniff(buf_str(&raw))) {
        rc = gzip(buf_str(&raw), 6, &packed, e);
        buf_move(&raw, &packed);
    }
    struct inflate_limits l = { 512 * MIB, 0 };
    if (!rc)
        rc = gunzip(buf_str(&raw), &l, &plain, e); /* grows the buffer once */
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    double best = 1e18, spent = 0;
    while (!rc && spent < 100000) {
        double began = cpu_us();
        size_t n;
        if (libdeflate_gzip_decompress(d, raw.ptr, raw.len, plain.ptr, plain.cap, &n))
            break; /* several members: the first timing loop would need more than one call */
        double took = cpu_us() - began;
        best = MIN(best, took);
        spent += took + 1;
    }
    libdeflate_free_decompressor(d);
    if (!rc)
        printf("%s %zu %zu %.2f\n", path, raw.len, plain.len, best);
    buf_deinit(&raw), buf_deinit(&packed), buf_deinit(&plain);
    return rc;
}

int main(int argc, char **argv)
{
    struct err e;

    for (int i = 1; i < argc; i++) {
        if (measure(argv[i], &e)) {
            fprintf(stderr, "%s: %s\n", argv[i], e.text);
            return 1;
        }
    }
    return 0;
}
