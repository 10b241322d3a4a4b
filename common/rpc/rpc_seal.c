/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_seal: the envelope of a sealed frame and what its keys are made of (layout in the header).
 * Pure functions. Which node has which key and which ticket is in rpc_guard.c.
 */
#include "common/rpc/rpc_seal.h"

#include "common/base/wr.h"

enum {
    AT_VERSION = 4,
    AT_CLASS = 5,
    AT_LANE = 6,
    AT_ZERO = 7,
    AT_KEY = 8,
    AT_SALT = 16,
    AT_EPOCH = 32,
    AT_TICKET = 40,
    AT_COUNTER = 48,
    AT_LENGTH = 56,
    AT_ZERO_2 = 60,
};
static_assert(RPC_FRAME_HEAD_MAX + RPC_FRAME_CHUNK + RPC_SEAL_MORE <= RPC_FRAME_MAX,
              "a sealed frame is a frame to the transport");
static_assert(RPC_FRAME_HEAD_MAX + RPC_FRAME_SMALL_MAX + RPC_SEAL_MORE <= RPC_SEAL_GREETING_MAX,
              "any ping fits");

static const uint8_t magic[4] = { 'E', 'M', 'B', 'S' };

bool rpc_seal_is(struct str in)
{
    return in.len >= sizeof(magic) && memcmp(in.ptr, magic, sizeof(magic)) == 0;
}

void rpc_seal_put(const struct rpc_seal *s, uint8_t out[RPC_SEAL_HEAD])
{
    memset(out, 0, RPC_SEAL_HEAD);
    memcpy(out, magic, sizeof(magic));
    out[AT_VERSION] = RPC_SEAL_VERSION;
    out[AT_CLASS] = s->cls;
    out[AT_LANE] = s->lane;
    memcpy(out + AT_KEY, s->key, RPC_KEY_MARK);
    memcpy(out + AT_SALT, s->salt, RPC_SEAL_SALT);
    put_u64le(out + AT_EPOCH, s->epoch);
    put_u64le(out + AT_TICKET, s->ticket);
    put_u64le(out + AT_COUNTER, s->counter);
    put_u32le(out + AT_LENGTH, s->length);
}

static bool contradicts(const struct rpc_seal *s, size_t bytes)
{
    if (s->lane >= RPC_LANES || s->epoch == 0 || s->length < RPC_FRAME_FIXED)
        return true;
    if (s->cls == RPC_SEAL_GREETING)
        return s->counter != 0 || bytes > RPC_SEAL_GREETING_MAX;
    return s->cls != RPC_SEAL_BOUND || s->ticket == 0 || s->counter == 0 ||
           s->counter > UINT32_MAX || bytes > RPC_FRAME_MAX;
}

enum rpc_drop rpc_seal_parse(struct str in, struct rpc_seal *ret)
{
    const uint8_t *p = (const uint8_t *)(const void *)in.ptr;

    if (in.len < RPC_SEAL_MORE)
        return RPC_DROP_SHORT;
    if (!rpc_seal_is(in))
        return RPC_DROP_MAGIC;
    if (p[AT_VERSION] != RPC_SEAL_VERSION)
        return RPC_DROP_VERSION;
    *ret = (struct rpc_seal){
        .cls = p[AT_CLASS],
        .lane = p[AT_LANE],
        .epoch = get_u64le(p + AT_EPOCH),
        .ticket = get_u64le(p + AT_TICKET),
        .counter = get_u64le(p + AT_COUNTER),
        .length = get_u32le(p + AT_LENGTH),
    };
    memcpy(ret->key, p + AT_KEY, RPC_KEY_MARK);
    memcpy(ret->salt, p + AT_SALT, RPC_SEAL_SALT);
    if (ret->length != in.len - RPC_SEAL_MORE)
        return RPC_DROP_SHORT;
    if (p[AT_ZERO] || get_u32le(p + AT_ZERO_2) || contradicts(ret, in.len))
        return RPC_DROP_HEADER;
    return RPC_DROP_NONE;
}

void rpc_seal_nonce(const struct rpc_seal *s, uint8_t ret[RPC_NONCE_BYTES])
{
    memset(ret, 0, RPC_NONCE_BYTES);
    ret[0] = s->lane;
    put_u64le(ret + 4, s->counter);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void derive(const uint8_t secret[RPC_KEY_BYTES], const struct rpc_seal *s,
                   const struct buf *info, uint8_t ret[RPC_KEY_BYTES])
{
    CHECK(buf_ok(info));
    rpc_hkdf(str_n(secret, RPC_KEY_BYTES), str_n(s->salt, RPC_SEAL_SALT), buf_str(info), ret,
             RPC_KEY_BYTES);
}

void rpc_seal_greeting_key(const uint8_t secret[RPC_KEY_BYTES], const struct rpc_seal *s,
                           uint8_t ret[RPC_KEY_BYTES])
{
    struct buf info;

    buf_init(&info, KIB);
    buf_add_str(&info, STR("embertree rpc greeting 1"));
    wr_u64le(&info, s->epoch);
    derive(secret, s, &info, ret);
    buf_deinit(&info);
}

static void add_address(struct buf *info, struct str addr)
{
    CHECK(addr.len <= RPC_ADDR_MAX);
    buf_add_c(info, (char)addr.len);
    buf_add_c(info, 0);
    buf_add_str(info, addr);
}

void rpc_seal_bound_key(const uint8_t secret[RPC_KEY_BYTES], const struct rpc_seal *s,
                        uint64_t to_epoch, struct str from, struct str to,
                        uint8_t ret[RPC_KEY_BYTES])
{
    struct buf info;

    buf_init(&info, KIB);
    buf_add_str(&info, STR("embertree rpc bound 1"));
    wr_u64le(&info, s->epoch);
    wr_u64le(&info, to_epoch);
    wr_u64le(&info, s->ticket);
    add_address(&info, from);
    add_address(&info, to);
    derive(secret, s, &info, ret);
    buf_deinit(&info);
}
