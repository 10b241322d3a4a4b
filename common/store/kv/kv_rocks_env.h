/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_env.h: the file system below RocksDB, for tests: tests/lib/store/rocks_lossy.h.
 */
#ifndef COMMON_STORE_KV_KV_ROCKS_ENV_H
#define COMMON_STORE_KV_KV_ROCKS_ENV_H

#ifdef __cplusplus
extern "C" {
#endif

/* Databases opened from now on use this rocksdb::Env; NULL: the system's. Borrowed until they are
 * closed. Call it while no database is being opened. */
void kv_rocks_env_set(void *env);
/* What the process remembers of failed fsyncs is forgotten, as if another process had begun. */
void kv_rocks_env_forget(void);

#ifdef __cplusplus
}
#endif

#endif
