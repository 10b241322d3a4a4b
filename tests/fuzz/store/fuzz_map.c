/* SPDX-License-Identifier: Apache-2.0
 *
 * The cluster's documents: map, record of a shard, progress, a node that lives, what one keeps of
 * all that. Any bytes; what is taken comes back from its own text, keeps its rules, and a map's
 * answers are within bounds.
 */
#include <stdlib.h>

#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/map.h"
#include "common/cluster/map/progress.h"
#include "common/cluster/map/record.h"
#include "common/cluster/rebuild/cluster_dump_merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_places(const struct map *m, struct str tenant, struct str service)
{
    static const int64_t when[] = { MAP_WHEN_FIRST, 0, 1, 1700000000000, INT64_MAX };
    uint32_t places[MAP_PLACES_MAX], all[CLUSTER_SHARDS_MAX];
    size_t n = map_places(m, tenant, service, places, ARRAY_LEN(places));
    size_t of = map_tenant_places(m, tenant, all, ARRAY_LEN(all));

    CHECK(n > 0 && n <= ARRAY_LEN(places) && of <= m->shards);
    for (size_t k = 0; k < ARRAY_LEN(when); k++) {
        uint32_t shard = map_shard(m, tenant, service, n * 77, when[k]);
        bool found = false, within = of == 0;

        for (size_t i = 0; i < n; i++) {
            CHECK(places[i] < m->shards);
            found = found || places[i] == shard;
        }
        for (size_t i = 0; i < of; i++)
            within = within || all[i] == shard;
        CHECK(found && within);
        CHECK(!map_outdates(m, tenant, service, m->version + 1, when[k]));
    }
}

static void fuzz_map(struct str bytes)
{
    const struct map *m, *back;
    struct buf one, two;
    struct err e;

    if (map_parse("m", bytes, bytes.len % 2 == 1, &m, &e))
        return;
    check_places(m, STR("t"), STR("s"));
    for (size_t i = 0; i < m->tenants_len && i < 8; i++)
        check_places(m, m->tenants[i].name, STR("s"));
    for (size_t i = 0; i < m->services_len && i < 8; i++)
        check_places(m, m->services[i].tenant, m->services[i].name);
    buf_init(&one, 64 * MIB);
    buf_init(&two, 64 * MIB);
    map_write(m, &one);
    /* Text that is no UTF-8 is written as U+FFFD: two names may become one then. */
    if (str_utf8_valid(bytes) && one.len <= MAP_BYTES_MAX &&
        map_parse("m", buf_str(&one), true, &back, &e) == 0) {
        map_write(back, &two);
        CHECK(str_eq(buf_str(&one), buf_str(&two)));
        map_unref(back);
    }
    buf_deinit(&one);
    buf_deinit(&two);
    map_unref(m);
}

static void fuzz_record(struct str bytes)
{
    struct repl_record r, back;
    struct buf out;
    struct err e;

    if (record_parse(bytes, &r, &e))
        return;
    CHECK(record_check(&r, &e) == 0);
    buf_init(&out, RECORD_BYTES_MAX);
    record_write(&r, &out);
    CHECK(buf_ok(&out) && record_parse(buf_str(&out), &back, &e) == 0 && record_eq(&r, &back));
    buf_deinit(&out);
    record_next_leader(&r, r.members.names[r.members.len - 1], &back);
    if (r.established || r.prev_members.len)
        CHECK(record_may_follow(&r, &back, &e) == 0 || r.term == UINT64_MAX);
}

static void fuzz_progress(struct str bytes)
{
    struct arena *a = arena_new(16 * MIB);
    struct progress p, back;
    struct buf out;
    struct err e;

    if (progress_parse(bytes, a, &p, &e) == 0) {
        buf_init(&out, 8 * MIB);
        progress_write(&p, &out);
        if (out.len <= PROGRESS_BYTES_MAX) {
            CHECK(progress_parse(buf_str(&out), a, &back, &e) == 0);
            CHECK(back.shards_len == p.shards_len && back.services_len == p.services_len);
        }
        buf_deinit(&out);
    }
    arena_free(a);
}

static void fuzz_live(struct str bytes)
{
    struct live l, back;
    struct buf out;
    struct err e;

    if (live_parse(bytes, &l, &e))
        return;
    buf_init(&out, 4 * KIB);
    live_write(&l, &out);
    CHECK(live_parse(buf_str(&out), &back, &e) == 0 && l.id == back.id);
    CHECK(l.methods == back.methods);
    buf_deinit(&out);
}

/* As an answer, joined with itself, and as a request. */
static void fuzz_kept(struct str bytes)
{
    struct cluster_dump_join *j;
    const struct cluster_dump *all;
    struct cluster_dump k, back;
    struct buf out;
    struct err e;

    if (cluster_dump_parse(bytes, &k, &e))
        return;
    j = cluster_dump_merge_new();
    CHECK(cluster_dump_merge_add(j, &k, "x", &e) == 0 &&
          cluster_dump_merge_add(j, &k, "x", &e) == 0);
    if (cluster_dump_merge_end(j, &all, &e) == 0) {
        cluster_dump_merge_lost(j);
        for (uint32_t i = 0; i < all->map->shards; i++)
            CHECK(!all->shards[i].known || record_check(&all->shards[i].record, &e) == 0);
        buf_init(&out, CLUSTER_DUMP_BYTES_MAX);
        cluster_dump_write(all, &out);
        /* Terms near the limit may be past it now, and names of tenants may have become one. */
        if (buf_ok(&out) && cluster_dump_parse(buf_str(&out), &back, &e) == 0)
            cluster_dump_deinit(&back);
        buf_deinit(&out);
    }
    cluster_dump_merge_free(j);
    cluster_dump_deinit(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes = str_n(data + 1, size ? size - 1 : 0), node;
    uint32_t shard;

    if (size == 0)
        return 0;
    switch (data[0]) {
    case 'm':
        fuzz_map(bytes);
        break;
    case 'r':
        fuzz_record(bytes);
        break;
    case 'p':
        fuzz_progress(bytes);
        break;
    case 'k':
        fuzz_kept(bytes);
        break;
    case 'l':
        fuzz_live(bytes);
        break;
    default:
        (void)key_parse(STR("/e"), bytes, &shard, &node);
        break;
    }
    return 0;
}
