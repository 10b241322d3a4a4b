/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of POST /api/v1/import: any bytes are refused with a text, or every message of it becomes
 * one that the ingester takes. The first byte picks the level.
 */
#include "common/model/slot.h"
#include "distributor/import_msg.h"
#include "ingester/write_msg.h"

#define NOW_MS INT64_C(1790000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str packed, uint32_t node_slots)
{
    struct arena *a = arena_new(write_msg_arena_bytes(packed.len));
    struct write_msg m;
    struct err e;

    CHECK(write_msg_decode(packed, a, &m, &e) == 0);
    CHECK(str_eq(m.write.tenant, STR("tenant")) && m.shard < 7);
    for (size_t i = 0; i < m.write.len; i++) {
        const struct store_series *s = &m.write.series[i];
        CHECK(str_eq(labels_get(&s->labels, STR("service_name")), m.write.service));
        for (size_t k = 0; !s->gauge && node_slots > LEAF_SLOTS && k < s->len; k++)
            CHECK(s->vectors[k].slot % node_slots == 0);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const levels[] = { "", "1m", "10m", "1h" };
    struct limits limits = limits_default();
    struct write_secret secret = { 1, 2 };
    struct arena *frames = arena_new(4 * MIB);
    struct import_opts o = { .tenant = STR("tenant"),
                             .secret = &secret,
                             .limits = &limits,
                             .accept = { NOW_MS, UINT64_C(34560000000), 600000 },
                             .shards = 7 };
    struct import_frames all;
    struct import_count count;
    struct err e = { 0 };

    CHECK(import_level(str_c(levels[size ? data[0] % 4 : 0]), &o.node_slots, &e) == 0);
    if (size && import_frames(str_n(data + 1, size - 1), frames, &all, &e) == 0) {
        for (size_t i = 0; i < all.len; i++) {
            struct arena *a = arena_new(import_arena_bytes(all.at[i].len));
            struct buf out;
            buf_init(&out, 64 * MIB);
            if (import_msg(all.at[i], &o, a, &out, &count, &e))
                CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
            else
                check(buf_str(&out), o.node_slots);
            buf_deinit(&out);
            arena_free(a);
        }
    } else {
        CHECK(!size || ((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]));
    }
    arena_free(frames);
    return 0;
}
