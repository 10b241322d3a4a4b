/* SPDX-License-Identifier: Apache-2.0
 *
 * gzip in pieces, by zlib: libdeflate, which compresses everything else, wants the whole at once.
 * Members of their own behind each other would do without zlib's state, too, but some clients of
 * HTTP stop reading after the first. Each piece ends in a sync flush (four bytes and the bits up to
 * a byte's end), so that whoever got it can read all of it.
 *
 * What deflateInit2 takes for a window of 2^15 and memLevel 8 is (1 << 17) + (1 << 17) bytes and
 * its own struct, some 6 KiB: GZIP_STREAM_BYTES.
 */
#include <zlib.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"

#define WINDOW_GZIP (MAX_WBITS + 16) /* zlib's way to ask for gzip's head and trailer */
#define MEM_LEVEL   8
#define ROOM        (16 * KIB)
#define IN_MOST     ((size_t)1 << 30) /* avail_in is an unsigned int */

struct gzip_stream {
    z_stream z;
    bool ended;
};

struct gzip_stream *gzip_stream_new(int level)
{
    struct gzip_stream *s = XNEW(struct gzip_stream);

    CHECK(deflateInit2(&s->z, level, Z_DEFLATED, WINDOW_GZIP, MEM_LEVEL, Z_DEFAULT_STRATEGY) ==
          Z_OK);
    return s;
}

void gzip_stream_free(struct gzip_stream *s)
{
    if (!s)
        return;
    (void)deflateEnd(&s->z); /* says so where data are left, which is no error here */
    xfree(s);
}

/* Until zlib leaves room over: then all that it had is written. */
static bool deflate_all(struct gzip_stream *s, int flush, struct buf *out)
{
    do {
        size_t room = MIN(ROOM, out->max - out->len);
        char *to = room ? buf_room(out, room) : NULL;
        if (!to)
            return false;
        s->z.next_out = (Bytef *)(void *)to;
        s->z.avail_out = (uInt)room;
        int rc = deflate(&s->z, flush);
        /* Nothing to do is Z_BUF_ERROR: an empty piece. */
        CHECK(rc == Z_OK || rc == Z_BUF_ERROR || (rc == Z_STREAM_END && flush == Z_FINISH));
        out->len += room - s->z.avail_out;
    } while (s->z.avail_out == 0);
    return true;
}

int gzip_stream_add(struct gzip_stream *s, struct str in, enum gzip_stream_flush flush,
                    struct buf *out, struct err *e)
{
    static const int how[] = { [GZIP_STREAM_MORE] = Z_NO_FLUSH,
                               [GZIP_STREAM_PIECE] = Z_SYNC_FLUSH,
                               [GZIP_STREAM_END] = Z_FINISH };

    CHECK(!s->ended);
    s->ended = flush == GZIP_STREAM_END;
    do {
        size_t n = MIN(in.len, IN_MOST);
        s->z.next_in = (Bytef *)(uintptr_t)in.ptr;
        s->z.avail_in = (uInt)n;
        in = str_sub(in, n, in.len);
        if (!deflate_all(s, in.len ? Z_NO_FLUSH : how[flush], out))
            return err_set(e, ERR_LIMIT, "compressed data would pass %zu bytes", out->max);
        CHECK(s->z.avail_in == 0);
    } while (in.len);
    return 0;
}
