/* SPDX-License-Identifier: Apache-2.0
 *
 * year_space: what the simulated year takes on disk, by column family and by level.
 */
#include <stdlib.h>
#include <time.h>

#include "common/store/codec/keys.h"
#include "tests/lib/gen/year_bed.h"

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "year: %s: %s\n", what, e->text);
    exit(1);
}

const char *year_bed_family(enum kv_cf cf)
{
    static const char *const names[KV_CFS] = {
        [KV_RAW] = "raw",   [KV_FINE] = "fine", [KV_COARSE] = "coarse",
        [KV_RU] = "ru",     [KV_TL] = "tl",     [KV_FN] = "fn",
        [KV_META] = "meta", [KV_WID] = "wid",   [KV_EXM] = "exm",
    };
    return names[cf];
}

uint64_t year_bed_bytes(struct year_bed *b, uint64_t ret[KV_CFS])
{
    struct kv_disk disk;
    uint64_t sum = 0;
    struct err e;

    if (kv_disk(b->kv, &disk, &e))
        die("sizes", &e);
    for (int i = 0; i < KV_CFS; i++)
        sum += ret[i] = disk.live_bytes[i];
    return sum;
}

void year_bed_settle(struct year_bed *b)
{
    struct timespec pause = { .tv_nsec = 500000000 };
    uint64_t before = 0, same = 0, parts[KV_CFS];
    struct err e;

    if (kv_flush(b->kv, &e))
        die("flush", &e);
    for (int i = 0; i < 120 && same < 4; i++) {
        uint64_t now = year_bed_bytes(b, parts);
        same = now == before ? same + 1 : 0;
        before = now;
        nanosleep(&pause, NULL);
    }
}

/* Keys of a level are one run, in each family that has levels. */
static uint64_t level_bytes(struct year_bed *b, enum kv_cf cf, uint8_t first)
{
    char from[1] = { (char)first }, to[1] = { (char)(first + 1) };
    struct kv_range range = { str_n(from, 1), str_n(to, 1) };
    uint64_t bytes = 0;
    struct err e;

    if (kv_sizes(b->kv, cf, &range, 1, &bytes, &e))
        die("sizes", &e);
    return bytes;
}

static void print_row(const char *name, uint64_t bytes, uint64_t sum, uint64_t profiles)
{
    printf("  %-22s %12" PRIu64 " %6.1f %% %9.1f B/profile\n", name, bytes,
           100 * (double)bytes / (double)(sum ? sum : 1), (double)bytes / (double)profiles);
}

void year_bed_print_bytes(struct year_bed *b, uint64_t profiles)
{
    static const char *const levels[KEY_LEVELS] = { "10 s", "1 m", "10 m", "1 h",
                                                    "6 h",  "1 d", "8 d",  "64 d" };
    static const enum kv_cf with_levels[] = { KV_FINE, KV_COARSE, KV_RU, KV_FN, KV_TL };
    uint64_t parts[KV_CFS], sum = year_bed_bytes(b, parts);
    char name[64];

    for (int i = 0; i < KV_CFS; i++)
        if (parts[i])
            print_row(year_bed_family((enum kv_cf)i), parts[i], sum, profiles);
    print_row("all", sum, sum, profiles);
    printf("  by level (as the files' indexes tell)\n");
    for (size_t f = 0; f < ARRAY_LEN(with_levels); f++)
        for (uint32_t level = 0; level < KEY_LEVELS; level++) {
            uint64_t bytes = level_bytes(b, with_levels[f], (uint8_t)level);
            if (with_levels[f] == KV_TL)
                bytes += level_bytes(b, KV_TL, (uint8_t)(level | KEY_TL_GROUP));
            (void)snprintf(name, sizeof(name), "%s %s", year_bed_family(with_levels[f]),
                           levels[level]);
            if (bytes)
                print_row(name, bytes, sum, profiles);
        }
}
