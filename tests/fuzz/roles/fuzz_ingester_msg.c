/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that an ingester takes from other roles: any bytes are refused with a text, or come out
 * with all that the engine relies on. The first byte picks the message.
 */
#include "ingester/read/read_msg.h"
#include "ingester/read/rpc_read.h"
#include "ingester/write/write_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_series(const struct write_msg *m, const struct store_series *s)
{
    CHECK(s->len > 0 && s->labels.len > 0);
    for (size_t i = 1; i < s->labels.len; i++)
        CHECK(str_cmp(s->labels.ptr[i - 1].name, s->labels.ptr[i].name) < 0);
    for (size_t v = 0; v < s->len; v++) {
        CHECK(v == 0 || s->vectors[v].slot > s->vectors[v - 1].slot);
        for (size_t i = 0; i < s->vectors[v].len; i++) {
            CHECK(s->vectors[v].nodes[i] <= m->stacks.nodes && s->vectors[v].values[i] > 0);
            CHECK(i == 0 || s->vectors[v].nodes[i] > s->vectors[v].nodes[i - 1]);
        }
    }
}

static void fuzz_write(struct str payload, bool told)
{
    struct arena *a = arena_new(write_msg_arena_bytes(payload.len));
    struct write_msg m;
    struct err e = { 0 };

    if (write_msg_decode(payload, told, a, &m, &e)) {
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    } else {
        CHECK(m.write.tenant.len > 0 && m.write.service.len > 0 && m.write.len > 0);
        /* Delta writes are checked where they are staged; they may say anything, but not harm. */
        if (told)
            CHECK(dict_told_check(m.write.told, &e) == 0 || e.code == ERR_INPUT);
        else
            CHECK(stacks_view_check(m.write.stacks, &e) == 0);
        CHECK(!told || m.write.told->nodes == m.write.stacks->nodes);
        if (store_write_check(&m.write, &e))
            CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
        else
            for (size_t i = 0; i < m.write.len; i++)
                check_series(&m, &m.write.series[i]);
    }
    arena_free(a);
}

static void fuzz_read(enum rpc_method method, struct str payload)
{
    struct arena *a = arena_new(64 * KIB + 24 * payload.len);
    struct read_msg m;
    struct err e = { 0 };

    if (read_msg_decode(method, payload, a, &m, &e)) {
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    } else {
        CHECK(m.query.tenant.len > 0);
        CHECK(method == RPC_LABELS || m.query.start_ms <= m.query.end_ms);
    }
    read_msg_deinit(&m);
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str payload;

    if (size == 0)
        return 0;
    payload = str_n(data + 1, size - 1);
    switch (data[0] % 8) { /* of 4 to 7 three are taken: seeds keep their meaning */
    case 0:
        fuzz_write(payload, false);
        fuzz_write(payload, true);
        break;
    case 1:
        fuzz_read(RPC_MERGE, payload);
        break;
    case 2:
        fuzz_read(RPC_TIMELINE, payload);
        break;
    case 4:
        fuzz_read(RPC_FUNCTIONS, payload);
        break;
    case 5:
        fuzz_read(RPC_EXEMPLARS, payload);
        break;
    case 6:
        (void)read_tenant(payload);
        fuzz_read(RPC_ESTIMATE, payload);
        break;
    default:
        fuzz_read(RPC_LABELS, payload);
        break;
    }
    return 0;
}
