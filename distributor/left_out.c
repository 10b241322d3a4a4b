/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/left_out.h"

#include "common/base/buf.h"

#define TEXT_MAX 1024 /* all of them, with twenty digits each */

void left_out_tell(struct http_req *r, const uint64_t drops[PUSH_DROPS])
{
    struct buf text;

    buf_init(&text, TEXT_MAX);
    for (enum push_drop i = 0; i < PUSH_DROPS; i++)
        if (drops[i])
            buf_addf(&text, "%s%s=%" PRIu64, text.len ? ", " : "", push_drop_name(i), drops[i]);
    CHECK(buf_ok(&text));
    if (text.len)
        http_reply_header(r, LEFT_OUT_HEADER, buf_str(&text));
    buf_deinit(&text);
}
