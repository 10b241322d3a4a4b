/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_dir.h: a scratch folder for a test, removed with all it holds, and a database in it.
 */
#ifndef TESTS_LIB_STORE_KV_DIR_H
#define TESTS_LIB_STORE_KV_DIR_H

#include "common/store/kv/kv.h"

/* A fresh folder below $TMPDIR or /tmp; free the path with kv_dir_remove. */
char *kv_dir_new(void);
void kv_dir_remove(char *dir); /* NULL is fine */
/* Small memory: many flushes. Stops the test with the error's text if it cannot be opened. */
struct kv *kv_dir_open(const char *dir);

#endif
