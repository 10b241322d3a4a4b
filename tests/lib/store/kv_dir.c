/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/kv_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"

char *kv_dir_new(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[4096];

    CHECK((size_t)snprintf(path, sizeof(path), "%s/kv-XXXXXX", tmp ? tmp : "/tmp") < sizeof(path));
    CHECK(mkdtemp(path) != NULL);
    return xstrdup(path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void kv_dir_remove(char *dir)
{
    if (dir)
        nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    xfree(dir);
}

struct kv *kv_dir_open(const char *dir)
{
    struct kv_opts o = { .dir = dir, .block_cache_bytes = 8 * MIB, .memtable_bytes = 4 * MIB };
    struct kv *k = NULL;
    struct err e = { 0 };

    if (kv_rocks_open(&o, &k, &e)) {
        fprintf(stderr, "%s: %s\n", err_name(e.code), e.text);
        abort();
    }
    return k;
}
