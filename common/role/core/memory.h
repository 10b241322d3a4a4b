/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the one account of a process's memory: how much of --memory.limit each part may hold,
 * how much it holds, and what happens when their sum comes near the limit.
 *
 *   CALM ──(> 75 % resident)──> SHRUNK: caches drop half ──(> 85 %)──> REFUSING: caches at their
 *   least, new pushes and queries get 503, builds pause ──(< 78 %)──> SHRUNK ──(< 65 %)──> CALM
 *
 * Thread: as each function says; where nothing is said, the loop's.
 */
#ifndef COMMON_ROLE_CORE_MEMORY_H
#define COMMON_ROLE_CORE_MEMORY_H

#include "common/base/json.h"
#include "common/obs/metrics.h"
#include "common/sys/budget.h"

/* Parts, percent of the limit, and what they never have less than. Together 88: the rest is for
 * code, stacks, what allocators hold back, and RocksDB's own working memory. Logs are those of
 * replicated shards; staging is what shards keep from one write to the next. */
#define MEMORY_PARTS(X)                           \
    X(MEMORY_MEMTABLES, "memtables", 10, 4 * MIB) \
    X(MEMORY_CACHE, "block_cache", 10, 8 * MIB)   \
    X(MEMORY_DICTS, "dictionaries", 12, 8 * MIB)  \
    X(MEMORY_NAMES, "names", 5, 4 * MIB)          \
    X(MEMORY_HOT, "hot_sums", 3, 2 * MIB)         \
    X(MEMORY_LOGS, "logs", 3, 8 * MIB)            \
    X(MEMORY_BUILDS, "builds", 4, 8 * MIB)        \
    X(MEMORY_HTTP, "http", 9, 4 * MIB)            \
    X(MEMORY_PUSHES, "pushes", 11, 8 * MIB)       \
    X(MEMORY_KNOWN, "known_stacks", 2, 2 * MIB)   \
    X(MEMORY_WRITES, "writes", 3, 8 * MIB)        \
    X(MEMORY_STAGING, "staging", 1, 2 * MIB)      \
    X(MEMORY_READS, "reads", 6, 24 * MIB)         \
    X(MEMORY_QUERIES, "queries", 9, 32 * MIB)

#define MEMORY_PART_ID(id, name, percent, least) id,
enum memory_part { MEMORY_PARTS(MEMORY_PART_ID) MEMORY_PARTS_LEN };

enum memory_state { MEMORY_CALM, MEMORY_SHRUNK, MEMORY_REFUSING };

/* What a part may hold under this limit. Pure; any thread. */
uint64_t memory_share(uint64_t limit, enum memory_part part);

struct memory;
struct memory_opts {
    uint64_t limit;
    struct metrics *metrics;
    uint64_t (*resident)(void *cookie); /* NULL: of this process */
    void *cookie;
};
struct memory *memory_new(const struct memory_opts *o);
void memory_free(struct memory *m); /* after memory_stop; NULL is fine */
/* A thread that looks 20 times a second: the loop may be busy just when it matters. */
void memory_start(struct memory *m);
void memory_stop(struct memory *m); /* twice is fine; the state stays as it is */
/* One look; what the thread does. One thread at a time. */
void memory_look(struct memory *m);

/* What a part holds, besides what others say of the same part. Asked by memory_gather. */
void memory_watch(struct memory *m, enum memory_part part, uint64_t (*used)(void *cookie),
                  void *cookie);
void memory_watch_budget(struct memory *m, enum memory_part part, const struct budget *b);
/* Registers a cache: on each change of state fn gets the percentage of its share that it may hold.
 * It runs on the thread that checks the memory. */
void memory_on_shrink(struct memory *m, void (*fn)(void *cookie, unsigned percent), void *cookie);
/* Forgets all that was given with this cookie or budget: before it goes. */
void memory_forget(struct memory *m, const void *cookie);

/* Asks all parts how much they hold, for metrics and the status page. */
void memory_gather(struct memory *m);
void memory_json(struct memory *m, struct json *j); /* an object */

enum memory_state memory_state(const struct memory *m); /* any thread; NULL: CALM */
static inline bool memory_refuses(const struct memory *m)
{
    return memory_state(m) == MEMORY_REFUSING;
}

#endif
