/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/repl/kept_say.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

const struct map *kept_say_map(uint64_t version, uint32_t shards)
{
    struct map_node nodes[4] = { { "a", "tcp://127.0.0.1:1", "", MAP_ACTIVE },
                                 { "b", "tcp://127.0.0.1:2", "", MAP_ACTIVE },
                                 { "c", "tcp://127.0.0.1:3", "", MAP_DRAINING },
                                 { "gone", "tcp://127.0.0.1:4", "", MAP_LEFT } };
    struct map from = { .version = version, .shards = shards, .replicas = 3 };
    const struct map *m;
    struct err e;

    from.nodes = nodes;
    from.nodes_len = 4;
    assert_int_equal(map_new(&from, &m, &e), 0);
    return m;
}

struct repl_record kept_say_rec(uint64_t term, const char *leader, bool established)
{
    struct repl_record r = { .term = term, .established = established };

    (void)snprintf(r.leader, sizeof(r.leader), "%s", leader);
    assert_true(name_set_add(&r.members, "a") && name_set_add(&r.members, "b") &&
                name_set_add(&r.members, "c"));
    if (!established)
        r.prev_members = r.members;
    return r;
}

struct cluster_dump kept_say(const char *node, uint64_t version, uint64_t term)
{
    struct cluster_dump k;

    cluster_dump_init(&k, kept_say_map(version, SHARDS));
    memcpy(k.cluster, ID, sizeof(ID));
    (void)snprintf(k.node, sizeof(k.node), "%s", node);
    k.keeps = true;
    for (uint32_t i = 0; i < SHARDS; i++)
        k.shards[i] = (struct cluster_dump_shard){ .known = true,
                                                   .record = kept_say_rec(term, "a", true),
                                                   .promised = term };
    return k;
}

int kept_say_add(struct cluster_dump_join *j, struct cluster_dump k)
{
    struct err e;
    int code = cluster_dump_merge_add(j, &k, k.node, &e);

    cluster_dump_deinit(&k);
    return code;
}

struct cluster_dump_join *kept_say_three(void)
{
    struct cluster_dump_join *j = cluster_dump_merge_new();

    assert_int_equal(kept_say_add(j, kept_say("a", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, kept_say("b", 7, 5)), 0);
    assert_int_equal(kept_say_add(j, kept_say("c", 7, 5)), 0);
    return j;
}

const struct cluster_dump *kept_say_end(struct cluster_dump_join *j)
{
    const struct cluster_dump *all;
    struct err e;

    assert_int_equal(cluster_dump_merge_end(j, &all, &e), 0);
    return all;
}
