/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_fixture.h: one store under test and short words for what tests do with it. One at a time.
 */
#ifndef TESTS_LIB_STORE_KV_FIXTURE_H
#define TESTS_LIB_STORE_KV_FIXTURE_H

#include "common/store/kv/kv_mem.h"

struct kv_fixture {
    bool rocks;
    char *dir; /* owned; rocks only */
    struct kv *k;
    struct kv_batch *b;
    struct buf out;
    struct kv_mem_faults faults; /* mem only */
};
extern struct kv_fixture kvt;

/* For cmocka: a fresh, empty store of either kind; closes and removes. */
int kvt_setup_rocks(void **state);
int kvt_setup_mem(void **state);
int kvt_teardown(void **state);

/* Closes and opens, as after a kill. */
void kvt_reopen(void);
/* Into kvt.b, then written without sync. */
void kvt_put(enum kv_cf cf, const char *key, const char *value);
void kvt_commit(void);
/* Fails the test unless the key has this value; NULL = is not there. */
void kvt_want(const struct kv_snap *s, enum kv_cf cf, const char *key, const char *value);
/* The same for all of [from, to) as "k=v k=v". */
void kvt_want_range(const struct kv_snap *s, enum kv_cf cf, const char *from, const char *to,
                    const char *text);
/* Bytes no compressor can shorten. */
void kvt_fill(char *p, size_t n, uint64_t seed);

#endif
