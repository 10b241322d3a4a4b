/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of POST /api/v1/import: any bytes are refused with a text, or every message of it becomes
 * a message that the ingester takes, and pushes of the same sums. The first byte picks the level.
 */
#include "common/model/slot.h"
#include "distributor/api/import_push.h"
#include "ingester/write/write_msg.h"
#include "tests/lib/roles/batch_keep.h"
#include "tests/lib/roles/dist_push.h"

#define NOW_MS INT64_C(1790000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str packed, uint32_t node_slots)
{
    struct arena *a = arena_new(write_msg_arena_bytes(packed.len));
    struct write_msg m;
    struct err e;

    CHECK(write_msg_decode(packed, false, a, &m, &e) == 0);
    CHECK(str_eq(m.write.tenant, STR("tenant")) && m.shard < 7);
    for (size_t i = 0; i < m.write.len; i++) {
        const struct store_series *s = &m.write.series[i];
        CHECK(str_eq(labels_get(&s->labels, STR("service_name")), m.write.service));
        for (size_t k = 0; !s->gauge && node_slots > LEAF_SLOTS && k < s->len; k++)
            CHECK(s->vectors[k].slot % node_slots == 0);
    }
    arena_free(a);
}

static uint64_t sum_of(const Embertree__WriteRequest *m, uint64_t *ret_vectors)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_series; i++) {
        for (size_t k = 0; k < m->series[i]->n_vectors; k++) {
            const Embertree__WriteVector *v = m->series[i]->vectors[k];
            *ret_vectors += v->n_node > 0;
            for (size_t n = 0; n < v->n_node; n++)
                sum += v->value[n];
        }
    }
    return sum;
}

static void check_pushes(struct str msg, const struct import_opts *o)
{
    struct arena *a = arena_new(import_arena_bytes(msg.len));
    struct import_opened opened;
    struct import_pushes *all;
    struct batch_keep keep;
    uint64_t sum = 0, series = 0, saturated = 0, vectors = 0;
    struct err e;

    batch_keep_init(&keep, o->limits, NOW_MS);
    if (import_open(msg, o, a, &opened, &e) == 0 && import_pushes_new(&opened, a, &all, &e) == 0) {
        uint64_t want = sum_of(opened.m, &vectors);
        CHECK(import_pushes_run(all, 0, import_pushes_len(all), &keep.sink, &e) == 0);
        CHECK(keep.pushes.len == import_pushes_len(all));
        vec_for (i, &keep.pushes) {
            const struct push *p = &keep.pushes.ptr[i]->push;
            saturated += p->drops[CHANGE_SATURATED];
            series += p->series_len;
            for (size_t k = 0; k < p->series_len; k++) {
                const struct push_series *s = &p->series[k];
                for (size_t n = 0; n < s->len; n++) {
                    CHECK(!n || s->nodes[n] > s->nodes[n - 1]);
                    sum += s->values[n];
                }
                dist_check_exemplars(s);
            }
        }
        CHECK(keep.rejected || (series == vectors && (saturated || sum == want)));
    }
    batch_keep_free(&keep);
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
            check_pushes(all.at[i], &o);
            buf_deinit(&out);
            arena_free(a);
        }
    } else {
        CHECK(!size || ((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]));
    }
    arena_free(frames);
    return 0;
}
