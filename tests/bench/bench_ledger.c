/* SPDX-License-Identifier: Apache-2.0
 *
 * What it costs a distributor to remember its acks until shards are asked: 4,096 shards, 10,000
 * acks a second, some minutes of it, by CPU time; without the questions themselves.
 */
#include <stdio.h>
#include <time.h>

#include "common/base/prng.h"
#include "distributor/send/ack_log.h"

#define SHARDS  4096
#define RATE    10000
#define SECONDS 600

static double cpu_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run(unsigned tenants)
{
    struct ack_log_opts o = { 60000, 10000, 24 * MIB, 1 };
    struct ack_log *a = ack_log_new(&o);
    uint64_t missed = 0, groups = 0, entries = 0;
    size_t bytes = 0;
    struct prng p;

    prng_init(&p, 1);
    double began = cpu_s();
    for (uint64_t i = 0; i < (uint64_t)RATE * SECONDS; i++) {
        uint64_t now = 60000 + i * 1000 / RATE;
        char name[32];
        int n = snprintf(name, sizeof(name), "tenant-%u", (unsigned)prng_below(&p, tenants));
        struct ledger_write w = { (uint32_t)prng_below(&p, SHARDS), (uint32_t)(now / 60000),
                                  str_n(name, (size_t)n) };
        struct acks one = { 0 };
        uint8_t wid[16] = { (uint8_t)i, (uint8_t)(i >> 8), (uint8_t)(i >> 16) };
        struct ack_log_group *g;

        acks_add(&one, wid);
        missed += !ack_log_add(a, &w, &one, now);
        while (i % (RATE / 4) == 0 && (g = ack_log_take(a, now))) {
            groups++;
            entries += g->len;
            ack_log_end(a, g);
        }
        bytes = MAX(bytes, ack_log_bytes(a));
    }
    double took = cpu_s() - began;
    printf("%3u tenants: %6.0f ns an ack, %.3f %% of a core at %d a second; %.1f MiB at most, "
           "%.1f %% not audited, %.0f groups and %.0f entries a minute\n",
           tenants, took * 1e9 / RATE / SECONDS, 100 * took / SECONDS, RATE, (double)bytes / MIB,
           100.0 * (double)missed / RATE / SECONDS, (double)groups * 60 / SECONDS,
           (double)entries * 60 / SECONDS);
    ack_log_free(a);
}

int main(void)
{
    run(1);
    run(8);
    run(100);
    return 0;
}
