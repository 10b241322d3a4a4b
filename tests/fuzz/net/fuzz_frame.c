/* SPDX-License-Identifier: Apache-2.0
 *
 * RPC frames: any bytes on the port of a live node. The input is a list of records, each a mode
 * byte, a length of two bytes and the frame. Modes that repair what random bytes never get right
 * (magic, lengths, checksum, a whole chunk of body) let the fuzzer reach reassembly,
 * decompression and the calls behind them. A call is under way meanwhile: it ends exactly once.
 */
#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_frame.h"
#include "tests/lib/net/rpc_bed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    REPAIR = 1,     /* magic, version, head, length, checksum */
    FILL_CHUNK = 2, /* the body becomes as long as offset and total want */
    STEP = 4,       /* time passes */
    FROM_PEER = 8,  /* from the address that is being called */
    TO_US = 16,     /* the epoch that is answered is ours */
    RECORDS_MAX = 64,
};

struct state {
    struct rpc_bed bed;
    struct rpc_node *node;
    int ends;
    uint64_t epoch; /* ours */
};

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct state *s = cookie;

    (void)reply;
    CHECK(!err || (err->code > 0 && err->code < ERR_CODES && str_utf8_valid(str_c(err->text))));
    s->ends++;
}

static void serve_fail(void *cookie, struct rpc_call *call, struct str payload)
{
    struct err e;

    (void)cookie;
    err_set(&e, ERR_NOT_FOUND, "%zu bytes", payload.len);
    rpc_fail(call, &e);
}

static void repair(struct buf *b, int mode, uint64_t epoch)
{
    static const char filler[RPC_FRAME_CHUNK];
    const char *addr = mode & FROM_PEER ? "mem://peer" : "mem://other";
    uint32_t total, offset, want;
    size_t head = RPC_FRAME_FIXED + strlen(addr);

    while (b->len < head)
        buf_add_c(b, 1);
    memcpy(b->ptr, "EMBR\1\1\1", 7);
    put_u64le(b->ptr + 16, get_u64le(b->ptr + 16) | 1); /* epoch */
    if (mode & TO_US)
        put_u64le(b->ptr + 24, epoch);
    put_u64le(b->ptr + 32, get_u64le(b->ptr + 32) | 1); /* seq */
    memset(b->ptr + 70, 0, 6);
    memcpy(b->ptr + RPC_FRAME_FIXED, addr, strlen(addr));
    b->ptr[8] = (char)head;
    b->ptr[9] = 0;
    b->ptr[68] = (char)strlen(addr);
    b->ptr[69] = 0;
    offset = get_u32le(b->ptr + 52) % 4 * (uint32_t)RPC_FRAME_CHUNK;
    total = get_u32le(b->ptr + 56) % (MIB + 1000);
    if (mode & FILL_CHUNK) {
        offset = offset > total ? 0 : offset;
        want = MIN(total - offset, (uint32_t)RPC_FRAME_CHUNK);
        if (b->len < head + want)
            buf_add(b, filler, head + want - b->len);
        b->len = head + want;
    } else {
        offset = 0;
        total = (uint32_t)(b->len - head);
    }
    put_u32le(b->ptr + 52, offset);
    put_u32le(b->ptr + 56, total);
    if (!(b->ptr[10] & RPC_FLAG_ZSTD))
        put_u32le(b->ptr + 60, total);
    put_u32le(b->ptr + 64, (uint32_t)(b->len - head));
    put_u32le(b->ptr + 76, 0);
    put_u32le(b->ptr + 76, crc32c(0, b->ptr, b->len));
}

static void parse_alone(struct str bytes)
{
    struct rpc_frame f;
    enum rpc_drop why;
    struct err e;

    if (rpc_frame_parse(bytes, 1, 1, &f, &why, &e) == 0) {
        uint8_t head[RPC_FRAME_HEAD_MAX];

        CHECK(why == RPC_DROP_NONE && f.body.len <= RPC_FRAME_CHUNK);
        CHECK(rpc_frame_head(&f, head) <= bytes.len - f.body.len);
    } else {
        CHECK(why != RPC_DROP_NONE && e.text[0]);
    }
}

static void feed(struct state *s, const uint8_t *data, size_t size)
{
    struct rd r = rd_of(str_n(data, size));
    struct str bytes;
    uint8_t mode;
    uint16_t len;

    for (int i = 0; i < RECORDS_MAX && rd_u8(&r, &mode) && rd_u16le(&r, &len); i++) {
        struct buf b;

        CHECK(rd_bytes(&r, MIN((size_t)len, rd_left(&r)), &bytes));
        buf_init(&b, RPC_FRAME_MAX);
        buf_add_str(&b, bytes);
        parse_alone(bytes);
        if (mode & REPAIR)
            repair(&b, mode, s->epoch);
        CHECK(rpc_mem_inject(s->bed.net, "mem://us", buf_str(&b)));
        if (mode & STEP)
            rpc_bed_sleep(&s->bed, 25);
        buf_deinit(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state s = { 0 };
    struct rpc_node_opts o;
    struct rpc_peer *p;
    struct buf payload;
    struct prng same;
    struct err e;

    rpc_bed_init(&s.bed, RPC_BED_MEM, 1);
    prng_init(&same, 1);
    for (int i = 0; i < 64; i += 8)
        s.epoch |= (prng_u64(&same) & 0xff) << i; /* the first random bytes the node asks for */
    o = rpc_bed_opts(&s.bed, "mem://us");
    o.message_max = MIB;
    o.pending_max = 8;
    CHECK(rpc_node_new(&o, &s.node, &e) == 0);
    rpc_bed_echo(s.node, RPC_WRITE);
    rpc_serve(s.node, RPC_MERGE, serve_fail, NULL);
    CHECK(rpc_peer_get(s.node, "mem://peer", &p, &e) == 0);
    buf_init(&payload, 8);
    (void)rpc_send(p, RPC_WRITE, &payload, 200, on_done, &s);
    feed(&s, data, size);
    rpc_bed_sleep(&s.bed, 1000);
    CHECK(s.ends == 1);
    rpc_node_free(s.node);
    rpc_bed_deinit(&s.bed);
    return 0;
}
