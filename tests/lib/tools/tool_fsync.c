/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_fsync DIR BYTES COUNT: appends BYTES and calls fdatasync, COUNT times, into a file in DIR;
 * prints the wall-clock microseconds of each, sorted: what the disk can do at best.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/str.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    uint64_t bytes, count;
    char path[4096];

    if (argc != 4 || !str_u64(str_c(argv[2]), &bytes) || !str_u64(str_c(argv[3]), &count) ||
        !count || bytes > 64 * MIB || count > 1000000) {
        fprintf(stderr, "usage: tool_fsync DIR BYTES COUNT\n");
        return 2;
    }
    snprintf(path, sizeof(path), "%s/fsync-probe", argv[1]);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    char *data = xcalloc(1, bytes);
    double *us = XNEW_ARRAY(double, count);
    for (uint64_t i = 0; fd >= 0 && i < count; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (write(fd, data, bytes) != (ssize_t)bytes || fdatasync(fd))
            break;
        clock_gettime(CLOCK_MONOTONIC, &b);
        us[i] = (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3;
    }
    if (fd < 0 || close(fd) || unlink(path)) {
        perror(path);
        return 1;
    }
    qsort(us, count, sizeof(*us), by_value);
    for (uint64_t i = 0; i < count; i++)
        printf("%.1f\n", us[i]);
    xfree(data);
    xfree(us);
    return 0;
}
