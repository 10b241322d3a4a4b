/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests about the ledger as an ingester unpacks them: any bytes are refused with a text, or
 * come out with all that the ledger relies on; what is accepted is again the same when it is
 * packed. The first byte picks the message.
 */
#include "common/store/ledger/ledger.h"
#include "ingester/admin/accept_msg.h"
#include "ingester/read/read_msg.h"
#include "ingester/shard/shards.h"
#include "proto/ledger.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ProtobufCBinaryData bytes(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static void pack(const struct accept_msg *m, struct buf *out)
{
    Embertree__LedgerAcceptRequest r = EMBERTREE__LEDGER_ACCEPT_REQUEST__INIT;

    r.tenant = bytes(m->tenant);
    r.who = bytes(m->who);
    r.reason = bytes(m->reason);
    r.shards = (uint32_t *)(uintptr_t)m->shards;
    r.n_shards = m->shards_len;
    size_t len = embertree__ledger_accept_request__get_packed_size(&r);
    buf_init(out, len + 1);
    char *to = buf_room(out, len + 1);
    CHECK(to);
    out->len += embertree__ledger_accept_request__pack(&r, (uint8_t *)(void *)to);
}

static void fuzz_accept(struct str payload)
{
    struct arena *a = arena_new(accept_msg_arena_bytes(payload.len)), *b;
    struct accept_msg m, again;
    struct err e = { 0 };
    struct buf packed;

    if (accept_msg_decode(payload, a, &m, &e)) {
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    } else {
        CHECK(m.tenant.len > 0 && m.shards_len <= SHARDS_MAX);
        CHECK(m.who.len > 0 && m.who.len <= LEDGER_WHO_MAX);
        CHECK(m.reason.len > 0 && m.reason.len <= LEDGER_REASON_MAX);
        pack(&m, &packed);
        b = arena_new(accept_msg_arena_bytes(packed.len));
        CHECK(accept_msg_decode(buf_str(&packed), b, &again, &e) == 0);
        CHECK(str_eq(again.tenant, m.tenant) && str_eq(again.who, m.who));
        CHECK(str_eq(again.reason, m.reason) && again.shards_len == m.shards_len);
        for (size_t i = 0; i < m.shards_len; i++)
            CHECK(again.shards[i] == m.shards[i]);
        arena_free(b);
        buf_deinit(&packed);
    }
    arena_free(a);
}

static void fuzz_ask(struct str payload)
{
    struct arena *a = arena_new(64 * KIB + 24 * payload.len);
    struct read_msg m;
    struct err e = { 0 };

    if (read_msg_decode(RPC_LEDGER, payload, a, &m, &e))
        CHECK((e.code == ERR_INPUT || e.code == ERR_LIMIT) && e.text[0]);
    else
        CHECK(m.shards_len <= READ_SHARDS_MAX && (!m.ledger || m.shards_len > 0));
    read_msg_deinit(&m);
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2)
        fuzz_ask(str_n(data + 1, size - 1));
    else
        fuzz_accept(str_n(data + 1, size - 1));
    return 0;
}
