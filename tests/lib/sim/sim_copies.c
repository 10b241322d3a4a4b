/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_copies: what a simulated disk does for copies by files (common/repl/copy_files.h): it fails,
 * is full and dead there, too, damages what comes in, and what was put in place of a database takes
 * its place when that is opened.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "tests/lib/sim/sim_disk.h"

static bool of_shard(const struct sim_disk *d, uint32_t shard, char ret[COPY_PATH_BYTES])
{
    (void)snprintf(ret, COPY_PATH_BYTES, "%s/shard-%" PRIu32, d->dir, shard);
    return d->dir[0];
}

/* A folder stands for each database there is; what came in lies there until it is opened. */
void sim_copies_stand_in(const struct sim_disk *d)
{
    char dir[COPY_PATH_BYTES];

    for (uint32_t i = 0; i < SIM_SHARDS_MAX; i++) {
        if (!of_shard(d, i, dir))
            return;
        if (d->kvs[i].inner)
            (void)mkdir(dir, 0755);
        else
            (void)rmdir(dir); /* unless something came in */
    }
}

/* By its place in the disk, whose folder is another one behind a crash. */
static uint64_t place_of(const struct sim_disk *d, const char *path)
{
    size_t dir = strlen(d->dir);

    CHECK(str_starts(str_c(path), str_c(d->dir)));
    return hash64(path + dir, strlen(path + dir), 1);
}

static int copy_fails(void *cookie, const char *what, const char *path)
{
    struct sim_disk *d = cookie;

    if (d->dead)
        return EIO;
    if (d->full && (!strcmp(what, "write") || !strcmp(what, "append") || !strcmp(what, "link"))) {
        d->stats->copies_full++;
        return ENOSPC;
    }
    if (d->fail_copy_in && --d->fail_copy_in == 0) {
        d->stats->copy_errors++;
        return EIO;
    }
    if (!strcmp(what, "sync"))
        vec_push(&d->synced, place_of(d, path));
    if (d->begins && !strcmp(what, "write") && str_ends(str_c(path), STR("/in/" COPY_JOURNAL)))
        d->begins(d->begins_cookie, (uint32_t)strtoul(strstr(path, "/copy-") + 6, NULL, 10));
    return 0;
}

static bool is_synced(void *cookie, const char *path)
{
    const struct sim_disk *d = cookie;

    vec_for (i, &d->synced)
        if (d->synced.ptr[i] == place_of(d, path))
            return true;
    return false;
}

static void copy_came(void *cookie, struct buf *bytes)
{
    struct sim_disk *d = cookie;
    uint64_t bit;

    if (!bytes->len || prng_below(&d->p, 40))
        return;
    bit = prng_below(&d->p, bytes->len * 8);
    bytes->ptr[bit / 8] = (char)(bytes->ptr[bit / 8] ^ 1 << bit % 8);
    d->stats->copies_damaged++;
}

static int read_files(const struct sim_disk *d, const char *dir, struct kv **ret, struct err *e)
{
    return sim_files_read(dir, d->mutant == SIM_HALF_COPY ? KV_TL : KV_CFS, ret, e);
}

static int copy_open(void *cookie, const char *dir, struct kv **ret, struct err *e)
{
    struct sim_disk *d = cookie;
    struct sim_kv *k;

    if (!str_starts(str_c(strrchr(dir, '/')), STR("/shard-")) || sim_files_any(dir))
        return read_files(d, dir, ret, e);
    k = &d->kvs[sim_disk_number(dir)];
    if (!k->inner)
        return err_set(e, ERR_NOT_FOUND, "the database does not exist");
    *ret = &k->kv;
    return 0;
}

/* What was put in place of a database is read. */
int sim_copies_take(struct sim_disk *d, uint32_t shard, struct err *e)
{
    struct sim_kv *k = &d->kvs[shard];
    char dir[COPY_PATH_BYTES];
    struct kv *came;

    if (!of_shard(d, shard, dir) || !sim_files_any(dir))
        return 0;
    if (read_files(d, dir, &came, e))
        return e->code;
    kv_close(k->inner);
    k->inner = came;
    k->holed = false;
    sim_files_remove(dir);
    d->stats->copies++;
    return 0;
}

void sim_copies_init(struct sim_disk *d, uint64_t seed)
{
    char root[SIM_FILES_DIR];

    sim_files_root((int)getpid(), root);
    (void)snprintf(d->dir, sizeof(d->dir), "%s/%016" PRIx64, root, seed);
    sim_files_make(d->dir);
    d->copies = (struct copy_faults){ copy_fails, d, copy_came, copy_open };
    d->source.copies = &d->copies;
}

/* A crash: is a copy on its way in? */
void sim_copies_crashed(struct sim_disk *d, bool power)
{
    char in[COPY_PATH_BYTES];

    for (uint32_t i = 0; i < SIM_SHARDS_MAX && d->dir[0]; i++) {
        (void)snprintf(in, sizeof(in), "%s/copy-%" PRIu32 "/in/" COPY_JOURNAL, d->dir, i);
        d->stats->copies_cut += access(in, F_OK) == 0;
    }
    if (power && d->dir[0])
        sim_files_tear(d->dir, &d->p, is_synced, d);
    d->fail_copy_in = 0;
    sim_copies_stand_in(d);
}
