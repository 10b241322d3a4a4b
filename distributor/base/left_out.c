/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/base/left_out.h"

#include "common/base/buf.h"
#include "common/base/hash.h"
#include "common/obs/log.h"

#define TEXT_MAX 1024 /* all of them, with twenty digits each */

static bool put_text(const uint64_t drops[PUSH_DROPS], struct buf *text)
{
    buf_init(text, TEXT_MAX);
    for (enum push_drop i = 0; i < PUSH_DROPS; i++)
        if (drops[i])
            buf_addf(text, "%s%s=%" PRIu64, text->len ? ", " : "", push_drop_name(i), drops[i]);
    CHECK(buf_ok(text));
    return text->len > 0;
}

void left_out_tell(struct http_req *r, const uint64_t drops[PUSH_DROPS])
{
    struct buf text;

    if (put_text(drops, &text))
        http_reply_header(r, LEFT_OUT_HEADER, buf_str(&text));
    buf_deinit(&text);
}

void left_out_trail(struct http_req *r, const uint64_t drops[PUSH_DROPS])
{
    struct buf text;

    if (put_text(drops, &text))
        http_reply_trailer(r, LEFT_OUT_HEADER, buf_str(&text));
    buf_deinit(&text);
}

void left_out_json(const uint64_t drops[PUSH_DROPS], struct json *j)
{
    json_obj(j);
    for (enum push_drop i = 0; i < PUSH_DROPS; i++) {
        if (!drops[i])
            continue;
        json_put_u64(j, push_drop_name(i), drops[i]);
    }
    json_obj_end(j);
}

static bool line_free(struct left_out_said *said, uint64_t now_ms)
{
    if (now_ms >= said->lines_until_ms) {
        said->lines_until_ms = now_ms + LEFT_OUT_EVERY_MS;
        said->lines = 0;
    }
    return said->lines < LEFT_OUT_LINES_MAX;
}

void left_out_log(struct left_out_said *said, const struct left_out_of *of,
                  const uint64_t drops[PUSH_DROPS], uint64_t now_ms)
{
    uint64_t key =
        hash64(of->service.ptr, of->service.len, hash64(of->tenant.ptr, of->tenant.len, 1)) | 1;
    size_t at = key >> 8 & (LEFT_OUT_SAID - 1);
    struct buf text;

    if (put_text(drops, &text) && (said->key[at] != key || now_ms >= said->until_ms[at]) &&
        line_free(said, now_ms)) {
        said->lines++;
        said->key[at] = key;
        said->until_ms[at] = now_ms + LEFT_OUT_EVERY_MS;
        log_warn("parts of a push were left out or changed", KV_STR("tenant", of->tenant),
                 KV_STR("service", of->service), KV_CSTR("format", of->format),
                 KV_STR("left_out", buf_str(&text)));
    }
    buf_deinit(&text);
}
