/* SPDX-License-Identifier: Apache-2.0
 *
 * clock: another wall clock for one process: LD_PRELOAD=clock.so CLOCK_BY=-3600, and, if it is to
 * be set right later, CLOCK_RIGHT_AFTER=8 seconds. World builds it.
 *
 * libfaketime hangs in programs that carry an allocator of their own which asks for the time while
 * the first library is loaded. This one does nothing but ask the kernel and add.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long by;       /* 0 until the libraries are loaded */
static long right_at; /* of the monotonic clock; 0: never */

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("CLOCK_BY"), *after = getenv("CLOCK_RIGHT_AFTER");
    struct timespec now;

    if (after && syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0)
        right_at = now.tv_sec + strtol(after, NULL, 10);
    by = text ? strtol(text, NULL, 10) : 0;
}

static int is_right(void)
{
    struct timespec now;

    return right_at && syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0 &&
           now.tv_sec >= right_at;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
    long rc = syscall(SYS_clock_gettime, id, ret);

    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && !is_right())
        ret->tv_sec += by;
    return (int)rc;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    if (rc == 0)
        *ret = (struct timeval){ now.tv_sec, now.tv_nsec / 1000 };
    return rc;
}

time_t time(time_t *ret)
{
    struct timespec now;

    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
