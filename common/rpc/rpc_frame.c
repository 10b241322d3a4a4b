/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_frame: encode and check one frame (layout in the header). Pure functions over slices.
 *
 * The checks are strict on purpose: a frame whose fields contradict each other is refused whole, so
 * that the code behind it (reassembly, tables) never sees a length or an offset that is not exact.
 * Order matters: magic and version first, because the place of every other field depends on them;
 * then the checksum, so that a flipped bit is counted as that and not as an odd header.
 */
#include "common/rpc/rpc_frame.h"

#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/base/wr.h"

enum {
    AT_VERSION = 4,
    AT_SPEAKS_MIN = 5,
    AT_SPEAKS_MAX = 6,
    AT_KIND = 7,
    AT_HEAD = 8,
    AT_FLAGS = 10,
    AT_LANE = 11,
    AT_METHOD = 12,
    AT_CODE = 14,
    AT_EPOCH = 16,
    AT_TO_EPOCH = 24,
    AT_SEQ = 32,
    AT_ID = 40,
    AT_LEFT = 48,
    AT_OFFSET = 52,
    AT_TOTAL = 56,
    AT_RAW = 60,
    AT_LENGTH = 64,
    AT_ADDR_LEN = 68,
    AT_ZERO = 70,
    AT_CRC = 76,
    AT_ADDR = 80,
};
static_assert(AT_ADDR == RPC_FRAME_FIXED, "the address follows the fixed part");
static_assert(RPC_FRAME_HEAD_MAX + RPC_FRAME_CHUNK <= RPC_FRAME_MAX, "a full chunk fits a frame");

static const uint8_t magic[4] = { 'E', 'M', 'B', 'R' };

static void put_u16le(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, 2);
}

const char *rpc_kind_name(uint8_t kind)
{
    static const char *const names[] = { "?",     "ping",   "pong", "request", "reply",
                                         "error", "cancel", "fin",  "fin_ack" };

    return kind < ARRAY_LEN(names) ? names[kind] : "?";
}

const char *rpc_drop_name(enum rpc_drop d)
{
    static const char *const names[RPC_DROPS] = {
        [RPC_DROP_NONE] = "none",           [RPC_DROP_SHORT] = "short",
        [RPC_DROP_MAGIC] = "magic",         [RPC_DROP_VERSION] = "version",
        [RPC_DROP_CHECKSUM] = "checksum",   [RPC_DROP_HEADER] = "header",
        [RPC_DROP_DUPLICATE] = "duplicate", [RPC_DROP_EPOCH] = "epoch",
        [RPC_DROP_OVERSIZE] = "oversize",   [RPC_DROP_BUDGET] = "budget",
        [RPC_DROP_SOURCES] = "sources",     [RPC_DROP_INCOMPLETE] = "incomplete",
        [RPC_DROP_UNPACK] = "unpack",       [RPC_DROP_ROUTE] = "route",
        [RPC_DROP_EXPIRED] = "expired",     [RPC_DROP_QUEUE] = "queue",
        [RPC_DROP_UNSEALED] = "unsealed",   [RPC_DROP_KEY] = "key",
        [RPC_DROP_FORGED] = "forged",       [RPC_DROP_REPLAYED] = "replayed",
        [RPC_DROP_TICKET] = "ticket",       [RPC_DROP_CLUSTER] = "cluster",
    };

    CHECK((unsigned)d < RPC_DROPS);
    return names[d];
}

size_t rpc_frame_head_bare(const struct rpc_frame *f, uint8_t out[RPC_FRAME_HEAD_MAX])
{
    size_t again = RPC_FRAME_FIXED + f->addr.len + RPC_FRAME_LINK;
    size_t head = again;

    if (f->cluster)
        head += RPC_FRAME_AGAIN + RPC_FRAME_CLUSTER;
    else if (f->again_s)
        head += RPC_FRAME_AGAIN;
    CHECK(f->addr.len && f->addr.len <= RPC_ADDR_MAX);
    CHECK(f->body.len <= RPC_FRAME_CHUNK);
    memset(out, 0, RPC_FRAME_FIXED);
    memcpy(out, magic, sizeof(magic));
    out[AT_VERSION] = f->version;
    out[AT_SPEAKS_MIN] = f->speaks_min;
    out[AT_SPEAKS_MAX] = f->speaks_max;
    out[AT_KIND] = f->kind;
    put_u16le(out + AT_HEAD, (uint16_t)head);
    out[AT_FLAGS] = f->flags;
    out[AT_LANE] = f->lane;
    put_u16le(out + AT_METHOD, f->method);
    put_u16le(out + AT_CODE, f->code);
    put_u64le(out + AT_EPOCH, f->epoch);
    put_u64le(out + AT_TO_EPOCH, f->to_epoch);
    put_u64le(out + AT_SEQ, f->seq);
    put_u64le(out + AT_ID, f->id);
    put_u32le(out + AT_LEFT, f->left_ms);
    put_u32le(out + AT_OFFSET, f->offset);
    put_u32le(out + AT_TOTAL, f->total);
    put_u32le(out + AT_RAW, f->raw);
    put_u32le(out + AT_LENGTH, u32_from(f->body.len));
    put_u16le(out + AT_ADDR_LEN, (uint16_t)f->addr.len);
    memcpy(out + AT_ADDR, f->addr.ptr, f->addr.len);
    put_u32le(out + AT_ADDR + f->addr.len, f->link);
    if (head > again)
        put_u32le(out + again, f->again_s);
    if (f->cluster)
        put_u64le(out + again + RPC_FRAME_AGAIN, f->cluster);
    return head;
}

size_t rpc_frame_head(const struct rpc_frame *f, uint8_t out[RPC_FRAME_HEAD_MAX])
{
    size_t head = rpc_frame_head_bare(f, out);
    uint32_t crc = crc32c(0, out, head);

    if (f->body.len)
        crc = crc32c(crc, f->body.ptr, f->body.len);
    put_u32le(out + AT_CRC, crc);
    return head;
}

static uint32_t frame_crc(const uint8_t *p, size_t n)
{
    static const uint8_t zero[4];
    uint32_t crc = crc32c(0, p, AT_CRC);

    crc = crc32c(crc, zero, sizeof(zero));
    return crc32c(crc, p + AT_CRC + 4, n - AT_CRC - 4);
}

/* Which of the header's promises is broken; NULL if none. */
static const char *contradiction(const struct rpc_frame *f, size_t length)
{
    bool tiny = f->kind == RPC_PING || f->kind == RPC_PONG || f->kind == RPC_CANCEL ||
                f->kind == RPC_FIN || f->kind == RPC_FINACK;

    if (f->kind < RPC_PING || f->kind > RPC_FINACK)
        return "kind";
    if (f->flags & ~RPC_FLAG_ZSTD || (f->flags && f->kind != RPC_REQUEST && f->kind != RPC_REPLY))
        return "flags";
    if (f->lane >= RPC_LANES)
        return "lane";
    if ((f->kind == RPC_REQUEST) != (f->method != 0))
        return "method";
    if ((f->kind == RPC_ERROR) != (f->code != 0))
        return "code";
    if (f->speaks_min == 0 || f->speaks_min > f->speaks_max)
        return "range of versions";
    if (f->epoch == 0 || f->seq == 0)
        return "epoch or sequence number";
    if (f->offset % RPC_FRAME_CHUNK || f->offset > f->total ||
        length != MIN(RPC_FRAME_CHUNK, f->total - f->offset) || (!length && f->total))
        return "chunk";
    if (f->flags & RPC_FLAG_ZSTD ? !f->raw || !f->total : f->raw != f->total)
        return "size before compression";
    if (f->total > (tiny ? RPC_FRAME_SMALL_MAX : f->kind == RPC_ERROR ? ERR_TEXT_MAX : UINT32_MAX))
        return "size for its kind";
    return NULL;
}

static bool addr_printable(struct str a)
{
    for (size_t i = 0; i < a.len; i++) {
        if (a.ptr[i] <= ' ' || a.ptr[i] > '~')
            return false;
    }
    return a.len && a.len <= RPC_ADDR_MAX;
}

static void read_fields(const uint8_t *p, struct rpc_frame *f)
{
    *f = (struct rpc_frame){
        .version = p[AT_VERSION],
        .speaks_min = p[AT_SPEAKS_MIN],
        .speaks_max = p[AT_SPEAKS_MAX],
        .kind = p[AT_KIND],
        .flags = p[AT_FLAGS],
        .lane = p[AT_LANE],
        .method = get_u16le(p + AT_METHOD),
        .code = get_u16le(p + AT_CODE),
        .epoch = get_u64le(p + AT_EPOCH),
        .to_epoch = get_u64le(p + AT_TO_EPOCH),
        .seq = get_u64le(p + AT_SEQ),
        .id = get_u64le(p + AT_ID),
        .left_ms = get_u32le(p + AT_LEFT),
        .offset = get_u32le(p + AT_OFFSET),
        .total = get_u32le(p + AT_TOTAL),
        .raw = get_u32le(p + AT_RAW),
    };
}

static bool version_read(const uint8_t *p, uint8_t speaks_min, uint8_t speaks_max)
{
    uint8_t version = p[AT_VERSION], kind = p[AT_KIND];

    if (kind == RPC_PING || kind == RPC_PONG)
        return version == RPC_FRAME_VERSION_PING;
    return version >= speaks_min && version <= speaks_max;
}

struct accepted {
    uint8_t min, max; /* versions of this build */
    bool bare;        /* the checksum is 0 */
};

static int parse(struct str in, const struct accepted *a, struct rpc_frame *ret,
                 enum rpc_drop *ret_why, struct err *e)
{
    const uint8_t *p = (const uint8_t *)(const void *)in.ptr;
    static const uint8_t zero[AT_CRC - AT_ZERO];
    struct rpc_frame f;
    const char *odd;

    *ret_why = RPC_DROP_SHORT;
    if (in.len < RPC_FRAME_FIXED)
        return err_set(e, ERR_CORRUPT, "frame of %zu bytes, least is %d", in.len, RPC_FRAME_FIXED);
    *ret_why = RPC_DROP_MAGIC;
    if (memcmp(p, magic, sizeof(magic)))
        return err_set(e, ERR_CORRUPT, "frame does not start with EMBR");
    *ret_why = RPC_DROP_VERSION;
    if (!version_read(p, a->min, a->max))
        return err_set(e, ERR_UNAVAILABLE,
                       "frame is in rpc version %u, this build reads %u to %u: upgrade one "
                       "version at a time",
                       p[AT_VERSION], a->min, a->max);

    size_t head = get_u16le(p + AT_HEAD), addr_len = get_u16le(p + AT_ADDR_LEN);
    uint32_t length = get_u32le(p + AT_LENGTH);

    *ret_why = RPC_DROP_SHORT;
    if (head < RPC_FRAME_FIXED + addr_len || head > in.len || length != in.len - head)
        return err_set(e, ERR_CORRUPT, "frame of %zu bytes says %zu of head and %u of payload",
                       in.len, head, length);
    *ret_why = RPC_DROP_CHECKSUM;
    if ((a->bare ? 0 : frame_crc(p, in.len)) != get_u32le(p + AT_CRC))
        return err_set(e, ERR_CORRUPT, "frame of %zu bytes has a wrong checksum", in.len);
    *ret_why = RPC_DROP_HEADER;
    read_fields(p, &f);
    f.addr = str_n(p + AT_ADDR, addr_len);
    f.body = str_n(p + head, length);
    if (head >= RPC_FRAME_FIXED + addr_len + RPC_FRAME_LINK)
        f.link = get_u32le(p + AT_ADDR + addr_len);
    size_t again = RPC_FRAME_FIXED + addr_len + RPC_FRAME_LINK;
    if (f.kind == RPC_ERROR && head >= again + RPC_FRAME_AGAIN)
        f.again_s = get_u32le(p + again);
    if (head >= again + RPC_FRAME_AGAIN + RPC_FRAME_CLUSTER)
        f.cluster = get_u64le(p + again + RPC_FRAME_AGAIN);
    odd = memcmp(p + AT_ZERO, zero, sizeof(zero)) ? "reserved bytes"
          : !addr_printable(f.addr)               ? "address"
                                                  : contradiction(&f, length);
    if (odd)
        return err_set(e, ERR_CORRUPT, "%s frame has a wrong %s", rpc_kind_name(f.kind), odd);
    *ret_why = RPC_DROP_NONE;
    *ret = f;
    return 0;
}

int rpc_frame_parse(struct str in, uint8_t speaks_min, uint8_t speaks_max, struct rpc_frame *ret,
                    enum rpc_drop *ret_why, struct err *e)
{
    return parse(in, &(struct accepted){ speaks_min, speaks_max, .bare = false }, ret, ret_why, e);
}

int rpc_frame_parse_bare(struct str in, uint8_t speaks_min, uint8_t speaks_max,
                         struct rpc_frame *ret, enum rpc_drop *ret_why, struct err *e)
{
    return parse(in, &(struct accepted){ speaks_min, speaks_max, .bare = true }, ret, ret_why, e);
}
