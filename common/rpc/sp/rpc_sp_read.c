/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp_read: a frame that is whole in the bytes that came is handed on where it lies. Else it is
 * put together in a buffer that grows with the received bytes, not with the length in its head, so
 * that a client has to send every byte that it wants us to keep.
 */
#include "common/rpc/sp/rpc_sp_read.h"

#include <string.h>

#include "common/base/wr.h"
#include "common/rpc/rpc_frame.h"

enum { IPC_MESSAGE = 1, KEPT_BYTES = 4096 };

void rpc_sp_hello(enum rpc_sp_kind self, char ret[RPC_SP_HELLO])
{
    memcpy(ret, "\0SP\0\0\0\0", RPC_SP_HELLO);
    ret[5] = (char)self;
}

size_t rpc_sp_head(bool ipc, size_t len, char ret[RPC_SP_HEAD_MAX])
{
    size_t at = 0;

    if (ipc)
        ret[at++] = IPC_MESSAGE;
    put_u64be(ret + at, len);
    return at + 8;
}

void rpc_sp_reader_init(struct rpc_sp_reader *r, bool ipc, enum rpc_sp_kind other)
{
    *r = (struct rpc_sp_reader){ .ipc = ipc, .other = other };
    buf_init(&r->part, RPC_FRAME_MAX);
}

void rpc_sp_reader_deinit(struct rpc_sp_reader *r)
{
    buf_deinit(&r->part);
}

static int take_hello(struct rpc_sp_reader *r, struct err *e)
{
    char want[RPC_SP_HELLO];

    rpc_sp_hello(r->other, want);
    if (memcmp(r->head, want, sizeof(want)) != 0)
        return err_set(e, ERR_INPUT, "the connection does not begin as one of a node does");
    r->greeted = true;
    r->head_len = 0;
    return 0;
}

static int take_head(struct rpc_sp_reader *r, struct err *e)
{
    uint64_t len = get_u64be(r->head + (r->ipc ? 1 : 0));

    if (r->ipc && r->head[0] != IPC_MESSAGE)
        return err_set(e, ERR_INPUT, "a message of kind %u, want %d",
                       (unsigned)(unsigned char)r->head[0], IPC_MESSAGE);
    if (len == 0 || len > RPC_FRAME_MAX)
        return err_set(e, ERR_INPUT, "a message of %" PRIu64 " bytes, want 1 to %zu", len,
                       (size_t)RPC_FRAME_MAX);
    r->want = (size_t)len;
    r->head_len = 0;
    return 0;
}

/* Bytes of the hello or the head, from the front of *rest. */
static int fill_head(struct rpc_sp_reader *r, struct str *rest, struct err *e)
{
    size_t need = r->greeted && r->ipc ? RPC_SP_HEAD_MAX : RPC_SP_HELLO;
    size_t n = MIN(need - r->head_len, rest->len);

    memcpy(r->head + r->head_len, rest->ptr, n);
    r->head_len = (uint8_t)(r->head_len + n);
    *rest = str_sub(*rest, n, rest->len);
    if (r->head_len < need)
        return 0;
    return r->greeted ? take_head(r, e) : take_hello(r, e);
}

/* Bytes of the frame. */
static int fill_frame(struct rpc_sp_reader *r, struct str *rest,
                      bool (*on_frame)(void *, struct str), void *cookie, struct err *e)
{
    size_t n = MIN(r->want - r->part.len, rest->len);
    struct str piece = str_sub(*rest, 0, n);
    bool go_on;

    *rest = str_sub(*rest, n, rest->len);
    if (n < r->want) {
        CHECK(buf_add_str(&r->part, piece));
        if (r->part.len < r->want)
            return 0;
        piece = buf_str(&r->part);
    }
    r->want = 0;
    go_on = on_frame(cookie, piece);
    if (r->part.cap > KEPT_BYTES) {
        buf_deinit(&r->part);
        buf_init(&r->part, RPC_FRAME_MAX);
    } else {
        buf_reset(&r->part);
    }
    return go_on ? 0 : err_set(e, ERR_CANCELED, "closed");
}

int rpc_sp_reader_take(struct rpc_sp_reader *r, struct str bytes,
                       bool (*on_frame)(void *cookie, struct str frame), void *cookie,
                       struct err *e)
{
    while (bytes.len) {
        int rc = r->want ? fill_frame(r, &bytes, on_frame, cookie, e) : fill_head(r, &bytes, e);

        if (rc)
            return rc;
    }
    return 0;
}
