/* SPDX-License-Identifier: Apache-2.0
 *
 * rocks_lossy.h: a file system below RocksDB that loses at a power cut all that was not synced, in
 * the process of the test: bytes of files behind the last fsync, and names of files made, renamed
 * or deleted since the last fsync of their folder.
 *
 * Databases opened between rocks_lossy_new and rocks_lossy_free use it; one file system at a time.
 * A killed process (rocks_lossy_kill) loses nothing: what it wrote is read by the next one, synced
 * or not. Both make every handle that is open useless: the database is then closed, to free its
 * memory, and nothing that closing does reaches the files.
 *
 * Thread: any; the functions below on one at a time.
 */
#ifndef TESTS_LIB_STORE_ROCKS_LOSSY_H
#define TESTS_LIB_STORE_ROCKS_LOSSY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a power cut leaves of bytes and names that were not synced. */
enum rocks_lossy_keep {
    LOSSY_NOTHING,
    LOSSY_SOME, /* none, all or a random part from the beginning of each file; names up to some
                   moment */
    LOSSY_TORN, /* the same, and the end of that part may be zeros */
    LOSSY_KEEPS,
};
/* Syncs that do nothing and say that all is well: each is a defect that a test must notice. */
enum rocks_lossy_deaf {
    LOSSY_DEAF_RECOVERED = 1, /* of files that were there when the database was opened */
    LOSSY_DEAF_CLOSED = 2,    /* of a log by another handle than its writer's */
    LOSSY_DEAF_REWRITE = 4,   /* bytes written once more count for nothing */
};
struct rocks_lossy;

struct rocks_lossy *rocks_lossy_new(const char *scratch, uint64_t seed); /* scratch: a folder */
void rocks_lossy_free(struct rocks_lossy *l);
void rocks_lossy_deaf(struct rocks_lossy *l, unsigned deaf);
void rocks_lossy_kill(struct rocks_lossy *l);
/* After so many more operations that change files everything fails, as if the power were gone. */
void rocks_lossy_kill_after(struct rocks_lossy *l, uint64_t operations);
bool rocks_lossy_killed(const struct rocks_lossy *l);
/* No database may be open. */
void rocks_lossy_cut(struct rocks_lossy *l, enum rocks_lossy_keep keep);
void rocks_lossy_start(struct rocks_lossy *l); /* operations work again, for new handles */
/* The next fsync of a write-ahead log fails. As with Linux, what it was to write is taken for
 * written: it is read back, no later fsync writes it, and the power cut loses it. Nor can the file
 * be made that says so. */
void rocks_lossy_fail_sync(struct rocks_lossy *l);
uint64_t rocks_lossy_operations(const struct rocks_lossy *l);

#ifdef __cplusplus
}
#endif

#endif
