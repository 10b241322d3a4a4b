/* SPDX-License-Identifier: Apache-2.0
 *
 * work: a program for profilers of native code, of so many seconds of CPU time, however long they
 * take. Three quarters of them belong to burn_hot, one quarter to burn_cold; 64 MiB in 32 pieces
 * stay allocated by keep_memory to the end, 32 MiB in 32,768 pieces are given back by churn.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECES     32
#define PIECE      (2 << 20)
#define CHURNS     32768
#define CHURN_SIZE 1024

static char *volatile kept[PIECES];
static volatile uint64_t sink;

__attribute__((noinline)) static void burn_hot(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sink = sink * 6364136223846793005U + (uint64_t)i;
}

__attribute__((noinline)) static void burn_cold(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sink = sink * 2862933555777941757U + (uint64_t)i;
}

__attribute__((noinline)) static void keep_memory(void)
{
    for (int i = 0; i < PIECES; i++) {
        char *piece = malloc(PIECE);
        if (!piece)
            abort();
        kept[i] = memset(piece, i, PIECE);
    }
}

__attribute__((noinline)) static void churn(void)
{
    for (int i = 0; i < CHURNS; i++) {
        char *volatile piece = malloc(CHURN_SIZE);
        if (!piece)
            abort();
        piece[0] = (char)i;
        free(piece);
    }
}

static double used(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(void)
{
    const char *seconds = getenv("SECONDS_TO_RUN");
    const double until = seconds ? strtod(seconds, NULL) : 1;

    keep_memory();
    churn();
    while (used() < until) {
        burn_hot(3000000);
        burn_cold(1000000);
    }
    return 0;
}
