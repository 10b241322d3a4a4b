/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_files.h: files of a simulated database, for copies of it (common/repl/copy.h). They lie in a
 * real folder: a checkpoint writes the rows there, a file for each column family, and a folder that
 * copies were put in becomes rows in memory when it is opened.
 */
#ifndef TESTS_LIB_SIM_SIM_FILES_H
#define TESTS_LIB_SIM_SIM_FILES_H

#include "common/base/prng.h"
#include "common/store/kv/kv.h"

#define SIM_FILES_DIR 200

/* Below it, the folders of all disks of a process. */
void sim_files_root(int pid, char ret[SIM_FILES_DIR]);
/* With all that is in it; a missing folder is fine. */
void sim_files_remove(const char *dir);
void sim_files_copy(const char *from, const char *to);
void sim_files_make(const char *dir);

/* As a folder that is there whole or not at all. `large`: one file takes more than one piece. */
NODISCARD int sim_files_write(struct kv *k, const char *dir, bool large, struct err *e);
/* Are there any? */
bool sim_files_any(const char *dir);
/* `without`: a column family that is left out; KV_CFS: none. ERR_CORRUPT: these are no rows. */
NODISCARD int sim_files_read(const char *dir, enum kv_cf without, struct kv **ret, struct err *e);
/* Half of what of an incoming copy has not been synced is not there any more. `synced`: does a path
 * survive? */
void sim_files_tear(const char *dir, struct prng *p, bool (*synced)(void *cookie, const char *path),
                    void *cookie);

#endif
