/* SPDX-License-Identifier: Apache-2.0
 *
 * What RocksDB's log, memtables, compaction and tables cost with the settings of kv_rocks_open.c
 * and with others, in counts that do not depend on how busy the machine is.
 *
 * The batches an engine writes for HOURS of a simulated service (20 pods: pushes, seals, nodes,
 * deletions) are recorded once, in order, and written again into an empty database for each row of
 * the table, as fast as flushes and compactions follow. Then the database is opened afresh with an
 * empty cache and a few queries are asked.
 *
 *   flushed, moved   bytes written by flushes and by compactions, beside bytes of batches: sum =
 *                    write amplification, the log aside    log  most of it at once
 *   files, MB        table files at the end, and their bytes    mem  most in memtables at once
 *   stall            of the writer                                cpu  seconds, all threads
 *   blocks, KiB      read by the queries from files               seeks  of files' iterators
 *
 *   HOURS=8    ALL=1 alternatives, too    ONLY=text those whose name contains it
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/kv/kv_rocks_impl.h"
#include "tests/lib/gen/year_bed.h"
#include "tests/lib/store/kv_dir.h"

#define PODS      20
#define MEMTABLE  (16 * MIB)
#define CACHE     (16 * MIB)
#define IDLE_MS   60
#define SERVICE   "{service_name=\"kafka\"}"
#define SOME_PODS "{service_name=\"kafka\",pod=~\".*[01]\"}"

/* Levels and files a 64th and a 128th of what they are, so that some hours have as many levels as
 * months. */
#define SMALL "all:max_bytes_for_level_base=2097152 all:target_file_size_base=1048576"

static const struct alternative {
    const char *name, *tune;
    uint64_t memtable, rate;
} alternatives[] = {
    { "as set", "", 0, 0 },
    /* the log */
    { "log: at most 16 MiB", "db:max_total_wal_size=16777216", 0, 0 },
    { "log: at most 512 MiB", "db:max_total_wal_size=536870912", 0, 0 },
    { "log: zstd", "db:wal_compression=kZSTD", 0, 0 },
    { "log: files used again", "db:recycle_log_file_num=4", 0, 0 },
    /* memtables */
    { "memtables: a quarter", "", 4 * MIB, 0 },
    { "memtables: double", "", 32 * MIB, 0 },
    { "memtables: half", "", 8 * MIB, 0 },
    { "memtables: a family all of it", "all:write_buffer_size=16777216", 0, 0 },
    { "memtables: a family a quarter", "all:write_buffer_size=4194304", 0, 0 },
    { "memtables: 2 per family", "all:max_write_buffer_number=2", 0, 0 },
    { "memtables: 8 per family", "all:max_write_buffer_number=8", 0, 0 },
    { "memtables: 2 merged per flush", "all:min_write_buffer_number_to_merge=2", 0, 0 },
    { "memtables: arenas of 1 MiB", "all:arena_block_size=1048576", 0, 0 },
    { "memtables: no bloom", "all:memtable_prefix_bloom_size_ratio=0", 0, 0 },
    /* compaction, in a small model of a large shard */
    { "small: as set", SMALL "", 4 * MIB, 0 },
    { "small: universal", SMALL " all:compaction_style=kCompactionStyleUniversal", 4 * MIB, 0 },
    { "small: levels of fixed size", SMALL " all:level_compaction_dynamic_level_bytes=false",
      4 * MIB, 0 },
    { "small: files a quarter", SMALL " all:target_file_size_base=262144", 4 * MIB, 0 },
    { "small: files 4 times", SMALL " all:target_file_size_base=4194304", 4 * MIB, 0 },
    { "small: first level a quarter", SMALL " all:max_bytes_for_level_base=524288", 4 * MIB, 0 },
    { "small: first level 4 times", SMALL " all:max_bytes_for_level_base=8388608", 4 * MIB, 0 },
    { "small: levels times 5", SMALL " all:max_bytes_for_level_multiplier=5", 4 * MIB, 0 },
    { "small: level 0 of 2 files", SMALL " all:level0_file_num_compaction_trigger=2", 4 * MIB, 0 },
    { "small: level 0 of 8 files", SMALL " all:level0_file_num_compaction_trigger=8", 4 * MIB, 0 },
    { "small: oldest files first", SMALL " all:compaction_pri=kOldestSmallestSeqFirst", 4 * MIB,
      0 },
    /* background work */
    { "1 background job", "db:max_background_jobs=1", 0, 0 },
    { "4 background jobs", "db:max_background_jobs=4", 0, 0 },
    { "jobs split in 2", "db:max_subcompactions=2", 0, 0 },
    { "rate: 8 MiB/s", "", 0, 8 * MIB },
    { "bytes_per_sync 0", "db:bytes_per_sync=0", 0, 0 },
    { "bytes_per_sync 8 MiB", "db:bytes_per_sync=8388608", 0, 0 },
    { "read ahead of compactions", "db:compaction_readahead_size=2097152", 0, 0 },
    /* tables */
    { "index in one piece",
      "all:block_based_table_factory={index_type=kBinarySearch;partition_filters=false}", 0, 0 },
    { "index blocks of 16 KiB", "all:block_based_table_factory={metadata_block_size=16384}", 0, 0 },
    { "index outside the cache",
      "all:block_based_table_factory={cache_index_and_filter_blocks=false}", 0, 0 },
    { "hashes in blocks",
      "all:block_based_table_factory={data_block_index_type=kDataBlockBinaryAndHash}", 0, 0 },
    { "restarts every 4", "all:block_based_table_factory={block_restart_interval=4}", 0, 0 },
    { "restarts every 64", "all:block_based_table_factory={block_restart_interval=64}", 0, 0 },
    { "crc32c", "all:block_based_table_factory={checksum=kCRC32c}", 0, 0 },
    { "no filters at the bottom", "all:optimize_filters_for_hits=true", 0, 0 },
    { "prefixes: up to the type",
      "fine:prefix_extractor=fixed:15 coarse:prefix_extractor=fixed:15 "
      "ru:prefix_extractor=fixed:15 tl:prefix_extractor=fixed:15",
      0, 0 },
    { "prefixes: up to the series",
      "fine:prefix_extractor=fixed:23 coarse:prefix_extractor=fixed:23", 0, 0 },
    { "64 open files", "db:max_open_files=64", 0, 0 },
};

static void must(int code, const struct err *e)
{
    if (code) {
        (void)fprintf(stderr, "%s\n", e->text);
        abort();
    }
}

static double cpu_s(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* ---- recording ---- */

static struct record {
    struct kv_ops ops; /* RocksDB's, with a write that keeps a copy */
    int (*write)(struct kv *k, const struct kv_batch *b, bool sync, struct err *e);
    FILE *to;
    uint64_t bytes, batches;
} record;

static int record_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    uint64_t head[2] = { b->ops.len, b->count };

    if (b->count) {
        CHECK(fwrite(head, sizeof(head), 1, record.to) == 1);
        CHECK(fwrite(b->ops.ptr, 1, b->ops.len, record.to) == b->ops.len);
        record.bytes += b->ops.len;
        record.batches++;
    }
    return record.write(k, b, sync, e);
}

/* Returns the slot at the end. */
static uint32_t record_hours(uint32_t hours)
{
    struct year_opts o = { .seed = 7,
                           .kind = YEAR_KAFKA,
                           .pods = PODS,
                           .stacks = 40000,
                           .deploy_days = 4,
                           .moved = 300,
                           .start = 1995 * YEAR_DAY_SLOTS };
    struct year_bed_opts bo = { .slot = o.start };
    struct year *y = year_new(&o);
    struct year_bed b;

    record.to = tmpfile();
    CHECK(record.to);
    year_bed_open(&b, &bo);
    record.ops = *b.kv->ops;
    record.write = record.ops.write;
    record.ops.write = record_write;
    b.kv->ops = &record.ops;
    year_bed_live(&b, y, o.start, o.start + hours * 720, PODS);
    year_bed_work(&b);
    uint32_t end = year_bed_slot(&b);
    year_bed_remove(&b);
    year_free(y);
    return end;
}

/* ---- writing it again ---- */

struct figures {
    double user, flushed, moved, read, log_max, mem_max, files, bytes, stall_ms, cpu;
    uint64_t blocks, block_bytes, seeks, total;
    double query_cpu;
};

/* A counter of RocksDB's statistics: "name COUNT : n". */
static double ticker(const char *text, const char *name)
{
    char what[128];

    (void)snprintf(what, sizeof(what), "%s COUNT : ", name);
    const char *at = strstr(text, what);
    return at ? strtod(at + strlen(what), NULL) : 0;
}

static uint64_t prop(struct kv *k, int cf, const char *name)
{
    struct kv_rocks *r = kv_rocks_of(k);
    uint64_t v = 0;

    return rocksdb_property_int_cf(r->db, r->cf[cf], name, &v) ? 0 : v;
}

static void sample(struct kv *k, struct figures *f)
{
    struct kv_disk d;
    struct err e;
    uint64_t mem = 0;

    must(kv_disk(k, &d, &e), &e);
    for (int i = 0; i < KV_CFS; i++)
        mem += prop(k, i, "rocksdb.size-all-mem-tables");
    f->log_max = MAX(f->log_max, (double)d.log_bytes);
    f->mem_max = MAX(f->mem_max, (double)mem);
}

static bool running(struct kv *k)
{
    return prop(k, 0, "rocksdb.num-running-compactions") > 0 ||
           prop(k, 0, "rocksdb.num-running-flushes") > 0;
}

static bool quiet(struct kv *k)
{
    uint64_t n = running(k);

    for (int i = 0; i < KV_CFS; i++)
        n += prop(k, i, "rocksdb.compaction-pending") +
             prop(k, i, "rocksdb.mem-table-flush-pending");
    return n == 0;
}

/* Until flushes and compactions have caught up, as they do when hours take hours. So figures do not
 * depend on how much of the machine they got. */
static void catch_up(struct kv *k)
{
    struct timespec pause = { .tv_nsec = 1000000 };

    /* The universal style keeps saying "pending" where it finds nothing worth doing. */
    for (int idle = 0; idle < IDLE_MS && !quiet(k); idle = running(k) ? 0 : idle + 1)
        nanosleep(&pause, NULL);
}

static void settle(struct kv *k)
{
    struct timespec pause = { .tv_nsec = 20000000 };
    struct err e;

    must(kv_flush(k, &e), &e);
    for (int same = 0; same < 4; nanosleep(&pause, NULL)) {
        catch_up(k);
        same = running(k) ? 0 : same + 1;
    }
}

static void replay(struct kv *k, struct figures *f)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t head[2], n = 0;
    struct err e;

    rewind(record.to);
    while (fread(head, sizeof(head), 1, record.to) == 1) {
        kv_batch_clear(b);
        char *room = buf_room(&b->ops, head[0]);
        CHECK(room && fread(room, 1, head[0], record.to) == head[0]);
        b->ops.len += head[0];
        b->count = head[1];
        must(kv_write(k, b, false, &e), &e);
        if (n++ % 16 == 0) {
            sample(k, f);
            catch_up(k);
        }
    }
    kv_batch_free(b);
}

static void count_files(struct kv *k, struct figures *f)
{
    struct kv_rocks *r = kv_rocks_of(k);
    struct kv_disk d;
    struct err e;

    must(kv_disk(k, &d, &e), &e);
    f->bytes = (double)d.tables_bytes;
    for (int cf = 0; cf < KV_CFS; cf++)
        for (int level = 0; level < 7; level++) {
            char name[64];
            (void)snprintf(name, sizeof(name), "rocksdb.num-files-at-level%d", level);
            char *n = rocksdb_property_value_cf(r->db, r->cf[cf], name);
            f->files += n ? strtod(n, NULL) : 0;
            rocksdb_free(n);
        }
}

/* ---- asking ---- */

static void ask(struct kv *k, uint32_t end, struct figures *f)
{
    struct year_bed b = { .kv = k };
    struct store_opts s = { .clock = &b.clock.clock,
                            .kv = k,
                            .dict_bytes_max = 256 * MIB,
                            .seal_delay_ms = 90000,
                            .build_delay_ms = 60000,
                            .build_all = true,
                            .wid_horizon_ms = 4 * 3600 * 1000 };
    struct err e;

    clock_fake_init(&b.clock, slot_to_ms(end));
    must(store_open(&s, &b.s, &e), &e);
    (void)year_bed_merge(&b, SERVICE, end - 6, end, 1); /* dictionaries */
    rocksdb_set_perf_level(rocksdb_enable_count);
    rocksdb_perfcontext_t *p = rocksdb_perfcontext_create();
    rocksdb_perfcontext_reset(p);
    double began = cpu_s();
    for (uint32_t back = 6; back <= 1440; back = back * 3 + 1) {
        f->total += year_bed_merge(&b, SERVICE, end - back, end - back / 2, 1).total;
        f->total += year_bed_merge(&b, SOME_PODS, end - back, end, 1).total;
        f->total += year_bed_timeline(&b, SERVICE, end - back, end, 6, "pod", 1).total;
    }
    f->query_cpu = cpu_s() - began;
    f->blocks = rocksdb_perfcontext_metric(p, rocksdb_block_read_count);
    f->block_bytes = rocksdb_perfcontext_metric(p, rocksdb_block_read_byte);
    f->seeks = rocksdb_perfcontext_metric(p, rocksdb_seek_child_seek_count);
    rocksdb_perfcontext_destroy(p);
    rocksdb_set_perf_level(rocksdb_disable);
    store_close(b.s);
}

/* ---- the table ---- */

static struct figures measure(const struct alternative *a, uint32_t end)
{
    char *dir = kv_dir_new(), tune[512];
    struct kv_opts o = { .dir = dir,
                         .block_cache_bytes = CACHE,
                         .memtable_bytes = a->memtable ? a->memtable : MEMTABLE,
                         .background_bytes_per_s = a->rate,
                         .tune = tune };
    struct figures f = { .user = (double)record.bytes };
    struct kv *k;
    struct err e;

    (void)snprintf(tune, sizeof(tune), "statistics %s", a->tune);
    must(kv_rocks_open(&o, &k, &e), &e);
    double began = cpu_s();
    replay(k, &f);
    settle(k);
    f.cpu = cpu_s() - began;
    char *text = rocksdb_options_statistics_get_string(kv_rocks_of(k)->db_options);
    f.flushed = ticker(text, "rocksdb.flush.write.bytes");
    f.moved = ticker(text, "rocksdb.compact.write.bytes");
    f.stall_ms = ticker(text, "rocksdb.stall.micros") / 1e3;
    rocksdb_free(text);
    count_files(k, &f);
    kv_close(k);
    must(kv_rocks_open(&o, &k, &e), &e); /* an empty cache */
    ask(k, end, &f);
    kv_dir_remove(dir);
    return f;
}

static void print_row(const char *name, const struct figures *f)
{
    printf("%-31s %7.2f %6.2f %6.1f %6.0f %7.1f %6.1f %7.0f %6.2f %7" PRIu64 " %8.0f %6" PRIu64
           " %6.2f\n",
           name, f->flushed / f->user, f->moved / f->user, f->log_max / 1e6, f->files,
           f->bytes / 1e6, f->mem_max / 1e6, f->stall_ms, f->cpu, f->blocks,
           (double)f->block_bytes / 1024, f->seeks, f->query_cpu);
    (void)fflush(stdout);
}

int main(void)
{
    uint64_t hours = 8;
    const char *only = getenv("ONLY"), *text = getenv("HOURS");
    uint64_t total = 0;

    if (text && (!str_u64(str_c(text), &hours) || hours == 0))
        hours = 8;
    uint32_t end = record_hours((uint32_t)hours);
    printf("%" PRIu64 " h of %d pods: %" PRIu64 " batches, %.1f MB\n", hours, PODS, record.batches,
           (double)record.bytes / 1e6);
    printf("%-31s %7s %6s %6s %6s %7s %6s %7s %6s %7s %8s %6s %6s\n", "", "flushed", "moved",
           "log MB", "files", "MB", "mem MB", "stall ms", "cpu s", "blocks", "KiB", "seeks",
           "cpu s");
    for (size_t i = 0; i < ARRAY_LEN(alternatives); i++) {
        const struct alternative *a = &alternatives[i];
        if (i && (only ? !strstr(a->name, only) : !getenv("ALL")))
            continue;
        struct figures f = measure(a, end);
        print_row(a->name, &f);
        if (!i)
            total = f.total;
        else if (f.total != total)
            printf("  WRONG: %" PRIu64 " in place of %" PRIu64 "\n", f.total, total);
    }
    (void)fclose(record.to);
    return 0;
}
