/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_disk: layers over kv_mem and rlog_fake. A crash is: from this moment on everything fails and
 * nothing changes (`dead`); the role is ended, which takes its time, and no node sees what it still
 * does; then the power cut takes all bytes not synced at that moment.
 *
 * A database that failed once fails until it is opened again, as RocksDB does.
 */
#include "tests/lib/sim/sim_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/store/kv/kv_mem.h"

#define BATCH_LEAST 100 /* bytes: smaller ones are no writes */

/* ---- databases ------------------------------------------------------------------------------- */

static struct sim_kv *of(struct kv *k)
{
    return container_of(k, struct sim_kv, kv);
}

static bool now(uint64_t *in)
{
    return *in && --*in == 0;
}

static bool is_note(const struct kv_entry *op) /* apply.c */
{
    return op->cf == KV_META && str_eq(op->key, STR("\x02\x08"));
}

/* Part of a snapshot: entries end with the note which one they are. */
static bool is_part(const struct kv_batch *b)
{
    struct rd r = rd_of(buf_str(&b->ops));
    struct kv_entry op = { 0 };

    while (kv_batch_next(&r, &op))
        if (op.op != KV_PUT)
            return false;
    return !is_note(&op);
}

static bool left_out(int mutant, const struct kv_entry *op)
{
    if (op->op != KV_PUT)
        return false;
    return (mutant == SIM_NO_WRITE_IDS && op->cf == KV_WID) ||
           (mutant == SIM_HALF_SNAPSHOT && op->cf == KV_TL) ||
           (mutant == SIM_SKIPPED && !is_note(op));
}

static int write_without(struct sim_kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    struct kv_batch *less = kv_batch_new();
    struct rd r = rd_of(buf_str(&b->ops));
    struct kv_entry op;
    int rc;

    while (kv_batch_next(&r, &op)) {
        if (left_out(k->disk->mutant, &op))
            continue;
        if (op.op == KV_PUT)
            kv_batch_put(less, op.cf, op.key, op.value);
        else if (op.op == KV_DEL)
            kv_batch_del(less, op.cf, op.key);
        else
            kv_batch_del_range(less, op.cf, op.key, op.value);
    }
    rc = kv_write(k->inner, less, sync, e);
    kv_batch_free(less);
    return rc;
}

static int write_swapped(struct sim_kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    int rc;

    if (!k->held && kv_batch_bytes(b) > BATCH_LEAST && ++k->tick % 4 == 0) {
        k->held = kv_batch_new();
        kv_batch_append(k->held, b);
        return 0;
    }
    rc = kv_write(k->inner, b, sync, e);
    if (!rc && k->held) {
        rc = kv_write(k->inner, k->held, sync, e);
        kv_batch_free(k->held);
        k->held = NULL;
    }
    return rc;
}

static int write_mutant(struct sim_kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    struct sim_disk *d = k->disk;

    if (d->mutant == SIM_NO_WRITE_IDS || (d->mutant == SIM_HALF_SNAPSHOT && is_part(b)) ||
        (d->mutant == SIM_SKIPPED && d->odd && kv_batch_bytes(b) > BATCH_LEAST &&
         ++k->tick % 8 == 0))
        return write_without(k, b, sync, e);
    if (d->mutant == SIM_SWAPPED && d->odd)
        return write_swapped(k, b, sync, e);
    return kv_write(k->inner, b, sync, e);
}

static int sim_write(struct kv *kv, const struct kv_batch *b, bool sync, struct err *e)
{
    struct sim_kv *k = of(kv);
    struct sim_disk *d = k->disk;

    if (!k->failed && d->dead)
        k->failed = ERR_IO;
    else if (!k->failed && d->full)
        k->failed = ERR_NO_SPACE;
    else if (!k->failed && now(&k->fail_writes_in)) {
        k->failed = k->fail_code;
        d->stats->kv_errors++;
    }
    if (k->failed)
        return err_set(e, k->failed, "injected: the database cannot write");
    d->stats->snapshot_parts += is_part(b);
    if (d->mutant)
        return write_mutant(k, b, sync, e);
    return kv_write(k->inner, b, sync, e);
}

static int sim_get(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                   struct buf *out, struct err *e)
{
    struct sim_kv *k = of(kv);

    if (now(&k->fail_gets_in)) {
        k->disk->stats->kv_errors++;
        return err_set(e, ERR_IO, "injected: a read failed");
    }
    return kv_get(k->inner, snap, cf, key, out, e);
}

static struct kv_snap *sim_snap_new(struct kv *k)
{
    return kv_snap_new(of(k)->inner);
}

static void sim_snap_free(struct kv *k, struct kv_snap *s)
{
    kv_snap_free(of(k)->inner, s);
}

static struct kv_iter *sim_iter_new(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf,
                                    struct str from, struct str to)
{
    struct kv *inner = of(kv)->inner;

    return inner->ops->iter_new(inner, snap, cf, from, to);
}

static void sim_stats(struct kv *k, struct kv_stats *ret)
{
    kv_stats(of(k)->inner, ret);
}

static int sim_flush(struct kv *kv, struct err *e)
{
    struct sim_kv *k = of(kv);

    if (k->failed || k->disk->dead)
        return err_set(e, k->failed ? k->failed : ERR_IO, "injected: a write failed before");
    if (k->disk->full)
        return err_set(e, ERR_NO_SPACE, "injected: no space");
    return k->disk->mutant == SIM_SYNC_LIES ? 0 : kv_flush(k->inner, e);
}

static int sim_checkpoint(struct kv *kv, const char *dir, struct err *e)
{
    const struct sim_kv *k = of(kv);

    return sim_files_write(k->inner, dir, prng_below(&k->disk->p, 16) == 0, e);
}

static void sim_close(struct kv *k)
{
    (void)k;
}

static const struct kv_ops sim_kv_ops = {
    .write = sim_write,
    .get = sim_get,
    .snap_new = sim_snap_new,
    .snap_free = sim_snap_free,
    .iter_new = sim_iter_new,
    .stats = sim_stats,
    .flush = sim_flush,
    .close = sim_close,
};

/* The same with files. */
static const struct kv_ops sim_kv_files = {
    .write = sim_write,
    .get = sim_get,
    .snap_new = sim_snap_new,
    .snap_free = sim_snap_free,
    .iter_new = sim_iter_new,
    .stats = sim_stats,
    .flush = sim_flush,
    .checkpoint = sim_checkpoint,
    .close = sim_close,
};

static struct sim_disk *disk_of(const struct kv_source *src)
{
    return container_of((uintptr_t)src, struct sim_disk, source);
}

/* "memory/shard-1", "memory/log-1" */
uint32_t sim_disk_number(const char *dir)
{
    const char *dash = strrchr(dir, '-');
    unsigned long n = strtoul(dash + 1, NULL, 10);

    CHECK(dash && n < SIM_SHARDS_MAX);
    return (uint32_t)n;
}

static int open_kv(const struct kv_source *src, const struct kv_opts *o, struct kv **ret,
                   struct err *e)
{
    struct sim_disk *d = disk_of(src);
    uint32_t shard = sim_disk_number(o->dir);
    struct sim_kv *k = &d->kvs[shard];

    if (d->dead)
        return err_set(e, ERR_IO, "injected: the disk is gone");
    if (d->full && k->failed)
        return err_set(e, ERR_NO_SPACE, "injected: no space");
    k->failed = 0;
    if (sim_copies_take(d, shard, e))
        return e->code;
    if (!k->inner) {
        kv_close(k->ghost); /* its folder is made again, so that it went is on the disk */
        k->ghost = NULL;
        k->inner = kv_mem_new(NULL);
    }
    if (k->holed && d->mutant != SIM_HOLE_SERVED) {
        d->stats->holes_found++;
        return err_set(e, ERR_CORRUPT, "injected: rows are missing in the middle");
    }
    sim_copies_stand_in(d);
    *ret = &k->kv;
    return 0;
}

/* Of logs, whose names outlive the folder of this life. */
static const char *below(const struct sim_disk *d, const char *path)
{
    size_t len = strlen(d->dir);

    return len && strncmp(path, d->dir, len) == 0 ? path + len + 1 : path;
}

struct unlink {
    struct sim_disk *d;
    const char *dir;
};

static void unlink_one(void *cookie, const char *name)
{
    const struct unlink *u = cookie;
    const struct rlog_fs *fs = rlog_fake_fs(u->d->log);
    char path[300];
    struct err e;

    (void)snprintf(path, sizeof(path), "%s/%s", u->dir, name);
    CHECK(fs->unlink(fs, path, &e) == 0);
}

static void remove_dir(const struct kv_source *src, const char *dir)
{
    struct sim_disk *d = disk_of(src);
    struct unlink u = { d, below(d, dir) };
    const struct rlog_fs *fs = rlog_fake_fs(d->log);
    struct sim_kv *k = &d->kvs[sim_disk_number(dir)];
    struct err e;

    if (d->dead)
        return;
    if (strstr(dir, "/log-")) {
        dir = u.dir;
        if (d->rot.path[0] && !d->rot.aside && sim_disk_number(dir) == d->rot.shard) {
            d->rot.aside = true;
            d->stats->rot_found++;
        }
        CHECK(fs->list(fs, dir, unlink_one, &u, &e) == 0 && fs->sync_dir(fs, dir, &e) == 0);
        return;
    }
    kv_batch_free(k->held);
    k->held = NULL;
    kv_close(k->ghost);
    k->ghost = k->inner;
    k->inner = NULL;
    k->ghost_holed = k->holed;
    k->holed = false;
    if (d->dir[0])
        sim_files_remove(dir);
    d->stats->removed++;
}

/* ---- files of the log ------------------------------------------------------------------------ */

static struct sim_disk *log_of(const struct rlog_fs *fs)
{
    return container_of((uintptr_t)fs, struct sim_disk, fs);
}

static int refused(const struct sim_disk *d, bool grows, struct err *e)
{
    if (d->dead)
        return err_set(e, ERR_IO, "injected: the disk is gone");
    if (d->full && grows)
        return err_set(e, ERR_NO_SPACE, "injected: no space");
    return 0;
}

static int log_list(const struct rlog_fs *fs, const char *dir,
                    void (*each)(void *cookie, const char *name), void *cookie, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    return in->list(in, below(log_of(fs), dir), each, cookie, e);
}

static int log_open(const struct rlog_fs *fs, const char *path, bool create, struct rlog_file **ret,
                    uint64_t *ret_size, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (create && refused(log_of(fs), true, e))
        return e->code;
    return in->open(in, below(log_of(fs), path), create, ret, ret_size, e);
}

static void log_close(const struct rlog_fs *fs, struct rlog_file *f)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    in->close(in, f);
}

static int log_write(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at,
                     const struct str *parts, size_t n, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (refused(log_of(fs), true, e))
        return e->code;
    log_of(fs)->unsynced++;
    return in->write(in, f, at, parts, n, e);
}

static int log_read(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at, char *to, size_t n,
                    struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    return in->read(in, f, at, to, n, e);
}

static int log_sync(const struct rlog_fs *fs, struct rlog_file *f, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (refused(log_of(fs), false, e))
        return e->code;
    log_of(fs)->unsynced = 0;
    if (log_of(fs)->mutant == SIM_SYNC_LIES)
        return 0;
    return in->sync(in, f, e);
}

static int log_truncate(const struct rlog_fs *fs, struct rlog_file *f, uint64_t size, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (refused(log_of(fs), false, e))
        return e->code;
    return in->truncate(in, f, size, e);
}

static int log_sync_dir(const struct rlog_fs *fs, const char *dir, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (refused(log_of(fs), false, e))
        return e->code;
    return in->sync_dir(in, below(log_of(fs), dir), e);
}

static int log_unlink(const struct rlog_fs *fs, const char *path, struct err *e)
{
    const struct rlog_fs *in = rlog_fake_fs(log_of(fs)->log);

    if (refused(log_of(fs), false, e))
        return e->code;
    if (strcmp(below(log_of(fs), path), log_of(fs)->rot.path) == 0)
        log_of(fs)->rot.path[0] = 0; /* it was not needed any more */
    return in->unlink(in, below(log_of(fs), path), e);
}

/* Most of the time a disk is fast; a slow one is so each time. */
static uint32_t lag(const struct rlog_fs *fs)
{
    struct sim_disk *d = log_of(fs);
    uint64_t dice = prng_below(&d->p, 20);

    if (d->slow_ms)
        return (uint32_t)(d->slow_ms / 2 + prng_below(&d->p, d->slow_ms));
    return (uint32_t)prng_below(&d->p, dice == 0 ? 60 : dice < 4 ? 10 : 3);
}

static bool hangs(const struct rlog_fs *fs)
{
    return log_of(fs)->hung && !log_of(fs)->dead;
}

/* ---- life and faults ------------------------------------------------------------------------- */

static int space(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                 struct err *e)
{
    const struct sim_disk *d = container_of((uintptr_t)fs, struct sim_disk, files);

    (void)path, (void)e;
    *ret_free = d->full ? 0 : 50 * GIB;
    *ret_total = 100 * GIB;
    return 0;
}

static int read_kept(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    const struct sim_disk *d = container_of((uintptr_t)fs, struct sim_disk, files);

    if (strcmp(path, SIM_KEPT) != 0)
        return fs_real()->read_file(fs_real(), path, out, e);
    if (!d->kept.len)
        return err_set(e, ERR_NOT_FOUND, "no %s", path);
    return buf_add_str(out, buf_str(&d->kept)) ? 0 : err_set(e, ERR_LIMIT, "%s: too long", path);
}

static int write_kept(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    struct sim_disk *d = container_of((uintptr_t)fs, struct sim_disk, files);

    if (strcmp(path, SIM_KEPT) != 0)
        return fs_real()->write_file(fs_real(), path, data, e);
    if (d->dead || d->full)
        return err_set(e, d->dead ? ERR_IO : ERR_NO_SPACE, "%s is not written", path);
    buf_reset(&d->kept);
    CHECK(buf_add_str(&d->kept, data));
    return 0;
}

void sim_disk_init(struct sim_disk *d, uint64_t seed, int mutant, bool files,
                   struct sim_stats *stats)
{
    *d = (struct sim_disk){ .mutant = mutant, .stats = stats, .files = *fs_real() };
    prng_init(&d->p, seed);
    d->files.space = space;
    d->files.read_file = read_kept;
    d->files.write_file = write_kept;
    buf_init(&d->kept, MIB);
    d->source = (struct kv_source){ .open = open_kv, .remove = remove_dir };
    d->fs = (struct rlog_fs){ log_list,     log_open,     log_close,  log_write, log_read, log_sync,
                              log_truncate, log_sync_dir, log_unlink, d,         lag,      hangs };
    d->log = rlog_fake_new(seed);
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++) {
        d->kvs[i].kv.ops = files ? &sim_kv_files : &sim_kv_ops;
        d->kvs[i].disk = d;
    }
    if (files)
        sim_copies_init(d, seed);
}

void sim_disk_deinit(struct sim_disk *d)
{
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++) {
        kv_batch_free(d->kvs[i].held);
        kv_close(d->kvs[i].inner);
        kv_close(d->kvs[i].ghost);
    }
    rlog_fake_free(d->log);
    vec_free(&d->synced);
    if (d->dir[0])
        sim_files_remove(d->dir);
    buf_deinit(&d->kept);
}

/* A database that is opened again syncs what it finds (rocks_wal.cc). */
static enum kv_mem_crash crash_of(const struct sim_disk *d, bool power)
{
    return power                              ? KV_MEM_POWER
           : d->mutant == SIM_REOPEN_UNSYNCED ? KV_MEM_KILL_UNSYNCED
                                              : KV_MEM_KILL;
}

/* Batches that a hole takes; 0: there is to be none. */
static uint64_t hole_in(struct sim_disk *d, bool holes, struct kv *k, bool power)
{
    uint64_t n = holes && power ? kv_mem_unsynced(k) : 0;

    if (n < 4) /* one may be in doubt */
        return 0;
    d->stats->holes++;
    return 1 + prng_below(&d->p, n - 3);
}

static void revive_kv(struct sim_disk *d, struct sim_kv *k, bool power)
{
    uint64_t hole = hole_in(d, d->holes, k->inner, power);

    k->holed |= hole > 0;
    k->inner =
        hole ? kv_mem_reopen(k->inner, KV_MEM_HOLE, hole)
             : kv_mem_reopen(k->inner, crash_of(d, power),
                             power ? prng_below(&d->p, kv_mem_unsynced(k->inner) + 1) : UINT64_MAX);
}

static void revive(struct sim_disk *d, bool power)
{
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++) {
        struct sim_kv *k = &d->kvs[i];

        k->failed = 0;
        k->fail_writes_in = k->fail_gets_in = 0;
        kv_batch_free(k->held);
        k->held = NULL;
        if (k->inner && d->forget) {
            kv_close(k->inner);
            k->inner = NULL;
            k->holed = false;
        }
        if (!k->inner && k->ghost && power && prng_chance(&d->p, 0.5)) {
            k->inner = k->ghost;
            k->ghost = NULL;
            k->holed = k->ghost_holed;
        }
        if (k->inner)
            revive_kv(d, k, power);
    }
    d->dead = d->full = d->hung = d->forget = d->holes = false;
    d->slow_ms = 0;
    sim_copies_crashed(d, power);
}

void sim_disk_kill(struct sim_disk *d)
{
    struct rlog_fake_faults *f = rlog_fake_faults(d->log);

    f->fail_write_in = f->fail_sync_in = 0;
    revive(d, false);
}

void sim_disk_power_cut(struct sim_disk *d)
{
    rlog_fake_power_cut(d->log);
    revive(d, true);
}

static void fork_kv(struct sim_disk *to, size_t i, const struct sim_kv *from, bool holes,
                    bool power)
{
    bool back = !from->inner && from->ghost && power && prng_chance(&to->p, 0.5);
    struct kv *k = back ? from->ghost : from->inner;
    struct sim_kv *kv = &to->kvs[i];

    if (!k)
        return;
    uint64_t hole = hole_in(to, holes, k, power);
    kv->holed = hole > 0 || (back ? from->ghost_holed : from->holed);
    kv->inner = hole ? kv_mem_fork(k, KV_MEM_HOLE, hole)
                     : kv_mem_fork(k, crash_of(to, power),
                                   power ? prng_below(&to->p, kv_mem_unsynced(k) + 1) : UINT64_MAX);
}

void sim_disk_fork(const struct sim_disk *d, struct sim_disk *to, uint64_t seed, bool power)
{
    CHECK(d->dead);
    sim_disk_init(to, seed, d->mutant, d->dir[0], d->stats);
    to->odd = d->odd;
    CHECK(buf_add_str(&to->kept, buf_str(&d->kept)));
    rlog_fake_free(to->log);
    to->log = rlog_fake_fork(d->log, seed);
    to->rot = d->rot;
    if (power)
        rlog_fake_power_cut(to->log);
    for (size_t i = 0; i < SIM_SHARDS_MAX && !d->forget; i++)
        fork_kv(to, i, &d->kvs[i], d->holes, power);
    if (!to->dir[0])
        return;
    sim_files_copy(d->dir, to->dir);
    vec_for (i, &d->synced)
        vec_push(&to->synced, d->synced.ptr[i]);
    sim_copies_crashed(to, power);
}

void sim_disk_wipe(struct sim_disk *d)
{
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++) {
        kv_close(d->kvs[i].inner);
        kv_close(d->kvs[i].ghost);
        d->kvs[i].inner = d->kvs[i].ghost = NULL;
        d->kvs[i].holed = d->kvs[i].ghost_holed = false;
    }
    buf_reset(&d->kept);
    d->rot.path[0] = 0;
    rlog_fake_free(d->log);
    d->log = rlog_fake_new(prng_u64(&d->p));
    d->synced.len = 0;
    if (d->dir[0]) {
        sim_files_remove(d->dir);
        sim_files_make(d->dir);
    }
}

void sim_disk_fail_log(struct sim_disk *d)
{
    struct rlog_fake_faults *f = rlog_fake_faults(d->log);

    f->code = prng_chance(&d->p, 0.3) ? ERR_NO_SPACE : ERR_IO;
    if (prng_chance(&d->p, 0.5))
        f->fail_write_in = 1 + prng_below(&d->p, 6);
    else
        f->fail_sync_in = 1 + prng_below(&d->p, 6);
    d->stats->log_errors++;
}

void sim_disk_fail_kv(struct sim_disk *d)
{
    struct sim_kv *k = &d->kvs[prng_below(&d->p, SIM_SHARDS_MAX)];

    k->fail_code = prng_chance(&d->p, 0.3) ? ERR_NO_SPACE : ERR_IO;
    if (prng_chance(&d->p, 0.7))
        k->fail_writes_in = 1 + prng_below(&d->p, 20);
    else
        k->fail_gets_in = 1 + prng_below(&d->p, 40);
}

bool sim_disk_rot(struct sim_disk *d, uint32_t shard)
{
    char dir[40];
    const char *path;

    (void)snprintf(dir, sizeof(dir), d->dir[0] ? "log-%" PRIu32 : "memory/log-%" PRIu32, shard);
    path = rlog_fake_rot_old(d->log, dir, &d->p, d->mutant == SIM_ROT_TORN);
    if (!path)
        return false;
    d->stats->rots++;
    (void)snprintf(d->rot.path, sizeof(d->rot.path), "%s", path);
    d->rot.shard = shard;
    d->rot.aside = false;
    return true;
}

void sim_disk_calm(struct sim_disk *d)
{
    struct rlog_fake_faults *f = rlog_fake_faults(d->log);

    f->fail_write_in = f->fail_sync_in = 0;
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++)
        d->kvs[i].fail_writes_in = d->kvs[i].fail_gets_in = 0;
}

bool sim_disk_sound(const struct sim_disk *d)
{
    for (size_t i = 0; i < SIM_SHARDS_MAX; i++)
        if (d->kvs[i].failed)
            return false;
    return !d->dead && !d->full && !d->hung && !d->slow_ms;
}

uint64_t sim_disk_hash(const struct sim_disk *d, uint32_t shard)
{
    struct kv *k = d->kvs[shard].inner;
    uint64_t h = 0;

    for (size_t cf = 0; k && cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(k, NULL, (enum kv_cf)cf, STR(""), STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            struct str key = kv_iter_key(it), value = kv_iter_value(it);
            h = hash64(key.ptr, key.len, h + cf);
            h = hash64(value.ptr, value.len, h);
        }
        kv_iter_free(it);
    }
    return h;
}
