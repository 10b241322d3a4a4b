/* SPDX-License-Identifier: Apache-2.0
 *
 * Sealed frames: any bytes on the port of a node with cluster keys. The input is a list of records,
 * each a mode byte, a length of two bytes and bytes. Half of the modes are an attacker without the
 * key: raw bytes, true frames of the wire with a byte changed, true ones again. The others seal the
 * bytes as a peer with the key would, so that what is behind the tag sees them as well: sealed
 * nonsense, and frames that say another thing than their envelope. A counter watches that no
 * request is served unless a holder of the key made it.
 */
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_guard.h"
#include "common/rpc/rpc_net.h"
#include "tests/lib/net/rpc_bed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum mode {
    RAW,           /* the bytes */
    RAW_ENVELOPE,  /* behind a head that is right but for key and tag */
    KEPT,          /* a frame of the wire, again */
    KEPT_CHANGED,  /* and a byte of it changed */
    SEAL_GREETING, /* the bytes as a frame, sealed as a greeting */
    SEAL_BOUND,    /* and sealed as a frame of a run */
    SEAL_REPAIRED, /* the same with a frame's magic, version and lengths */
    CALL,          /* a call of the peer that has the key */
    MODES,
};
enum { RECORDS_MAX = 64, KEPT_MAX = 64 };

struct state {
    struct rpc_bed bed;
    struct rpc_node *us, *peer;
    struct rpc_peer *to_us;
    uint64_t called, served, ended;
    VEC(struct str) kept;
    /* another member of the cluster, made by hand */
    struct rpc_guard *guard;
    struct rpc_guard_link *link;
    uint64_t sealed;
};

static void on_frame(void *cookie, struct str bytes)
{
    struct state *s = cookie;

    if (s->kept.len < KEPT_MAX)
        vec_push(&s->kept, str_n(xmemdup(bytes.ptr, bytes.len), bytes.len));
}

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct state *s = cookie;

    (void)reply, (void)err;
    s->ended++;
}

static void serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct state *s = cookie;
    struct err e;

    s->served++;
    err_set(&e, ERR_NOT_FOUND, "%zu bytes", payload.len);
    rpc_fail(call, &e);
}

static void start(struct state *s)
{
    struct rpc_node_opts o;
    struct err e;

    *s = (struct state){ 0 };
    rpc_bed_init(&s->bed, RPC_BED_MEM | RPC_BED_SEALED, 1);
    rpc_mem_tap(s->bed.net, on_frame, s);
    o = rpc_bed_opts(&s->bed, "mem://us");
    o.message_max = MIB;
    CHECK(rpc_node_new(&o, &s->us, &e) == 0);
    rpc_serve(s->us, RPC_WRITE, serve, s);
    rpc_serve(s->us, RPC_MERGE, serve, s);
    s->peer = rpc_bed_node(&s->bed, "mem://peer");
    CHECK(rpc_peer_get(s->peer, "mem://us", &s->to_us, &e) == 0);
    s->guard = rpc_guard_new(&(struct rpc_guard_opts){
        .env = &s->bed.env,
        .keys = s->bed.keys,
        .addr = "mem://hand",
        .epoch = 77,
    });
    s->link = rpc_guard_link_new(s->guard, "mem://us");
    rpc_bed_sleep(&s->bed, 50);
    CHECK(rpc_peer_up(s->to_us));
}

static void inject(struct state *s, struct str bytes)
{
    CHECK(rpc_mem_inject(s->bed.net, "mem://us", bytes));
}

/* What a fuzzer never guesses of a frame. */
static void repair(struct buf *b)
{
    static const char addr[] = "mem://hand";
    size_t head = RPC_FRAME_FIXED + strlen(addr);
    uint32_t length;

    while (b->len < head)
        buf_add_c(b, 1);
    length = (uint32_t)(b->len - head);
    memcpy(b->ptr, "EMBR\1\1\1", 7);
    put_u64le(b->ptr + 16, 77);
    memset(b->ptr + 70, 0, 10);
    memcpy(b->ptr + RPC_FRAME_FIXED, addr, strlen(addr));
    put_u32le(b->ptr + 8, (uint32_t)head | (get_u32le(b->ptr + 8) & 0xffff0000u));
    put_u32le(b->ptr + 68, (uint32_t)strlen(addr));
    put_u32le(b->ptr + 52, 0);
    put_u32le(b->ptr + 56, length);
    if (!(b->ptr[10] & RPC_FLAG_ZSTD))
        put_u32le(b->ptr + 60, length);
    put_u32le(b->ptr + 64, length);
}

static void seal(struct state *s, struct str bytes, bool greeting)
{
    struct str out;

    if (bytes.len < RPC_FRAME_FIXED)
        return; /* an envelope cannot say that */
    s->sealed++;
    if (greeting) {
        out = rpc_guard_seal_greeting(s->link, 0, bytes, STR_NULL);
    } else {
        /* The ticket our node gave to its peer, if the wire showed one: for another address. */
        for (size_t i = 0; i < s->kept.len && !rpc_guard_bound(s->link); i++) {
            struct rpc_seal of;

            if (rpc_seal_parse(s->kept.ptr[i], &of) == RPC_DROP_NONE && of.ticket)
                rpc_guard_bind(s->link, of.epoch, of.ticket);
        }
        if (!rpc_guard_bound(s->link))
            return;
        out = rpc_guard_seal(s->link, RPC_LANE_CONTROL, bytes, STR_NULL);
    }
    inject(s, out);
}

static void envelope(struct state *s, struct str bytes)
{
    struct rpc_seal head = { .cls = RPC_SEAL_BOUND, .epoch = 9, .ticket = 9, .counter = 9 };
    struct buf b;

    if (bytes.len < RPC_FRAME_FIXED + RPC_TAG_BYTES)
        return;
    head.cls = 1 + (bytes.ptr[0] & 1);
    head.counter = head.cls == RPC_SEAL_BOUND ? (uint8_t)bytes.ptr[1] + 1u : 0;
    memcpy(head.key, rpc_keys_first(s->bed.keys)->mark, RPC_KEY_MARK);
    head.length = (uint32_t)(bytes.len - RPC_TAG_BYTES);
    buf_init(&b, RPC_FRAME_MAX);
    CHECK(buf_room(&b, RPC_SEAL_HEAD));
    rpc_seal_put(&head, (uint8_t *)(void *)b.ptr);
    b.len = RPC_SEAL_HEAD;
    if (buf_add_str(&b, bytes))
        inject(s, buf_str(&b));
    buf_deinit(&b);
}

static void kept(struct state *s, struct str bytes, bool changed)
{
    size_t which = bytes.len ? (uint8_t)bytes.ptr[0] : 0;
    struct str k;
    char *copy;

    if (s->kept.len == 0)
        return;
    k = s->kept.ptr[which % s->kept.len];
    copy = xmemdup(k.ptr, k.len);
    if (changed && bytes.len >= 4)
        copy[((size_t)(uint8_t)bytes.ptr[1] << 8 | (uint8_t)bytes.ptr[2]) % k.len] ^=
            (char)(bytes.ptr[3] | 1);
    inject(s, str_n(copy, k.len));
    xfree(copy);
}

static void call(struct state *s, struct str bytes)
{
    struct buf b;

    buf_init(&b, MIB);
    buf_add_str(&b, bytes);
    s->called++;
    (void)rpc_send(s->to_us, RPC_WRITE, &b, 200, on_done, s);
    rpc_bed_sleep(&s->bed, 5);
}

static void record(struct state *s, uint8_t mode, struct str bytes)
{
    struct buf b;

    switch ((enum mode)(mode % MODES)) {
    case RAW:
        inject(s, bytes);
        break;
    case RAW_ENVELOPE:
        envelope(s, bytes);
        break;
    case KEPT:
    case KEPT_CHANGED:
        kept(s, bytes, mode % MODES == KEPT_CHANGED);
        break;
    case SEAL_GREETING:
    case SEAL_BOUND:
        seal(s, bytes, mode % MODES == SEAL_GREETING);
        break;
    case SEAL_REPAIRED:
        buf_init(&b, RPC_FRAME_CHUNK);
        buf_add_str(&b, bytes);
        repair(&b);
        seal(s, buf_str(&b), bytes.len % 2 && b.len < 400);
        buf_deinit(&b);
        break;
    case CALL:
    case MODES:
        call(s, bytes);
        break;
    }
    if (mode & 0x80)
        rpc_bed_sleep(&s->bed, 25);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rd r = rd_of(str_n(data, size));
    struct state s;
    struct str bytes;
    uint8_t mode;
    uint16_t len;

    start(&s);
    for (int i = 0; i < RECORDS_MAX && rd_u8(&r, &mode) && rd_u16le(&r, &len); i++) {
        CHECK(rd_bytes(&r, MIN((size_t)len, rd_left(&r)), &bytes));
        record(&s, mode, bytes);
    }
    rpc_bed_sleep(&s.bed, 250);
    CHECK(s.ended == s.called);
    CHECK(s.served <= s.called); /* tickets are for one address: ours by hand gets nothing served */
    CHECK(rpc_peer_up(s.to_us)); /* and no peer was cut off by it */
    rpc_mem_tap(s.bed.net, NULL, NULL);
    vec_for (i, &s.kept)
        xfree((void *)(uintptr_t)s.kept.ptr[i].ptr);
    vec_free(&s.kept);
    rpc_guard_link_free(s.link);
    rpc_guard_free(s.guard);
    rpc_node_free(s.peer);
    rpc_node_free(s.us);
    rpc_bed_deinit(&s.bed);
    return 0;
}
