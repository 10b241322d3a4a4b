/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/push_gen.h"

#include "tests/lib/gen/gen_pprof.h"

void push_gen_pprof(const char *leaf, int64_t value, int64_t time_ns, struct buf *out)
{
    struct gen_pprof g;
    uint64_t stack[2];

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    gen_period(&g, "cpu", "nanoseconds", 10000000);
    g.time_ns = time_ns;
    stack[0] = gen_location(&g, gen_function(&g, leaf, "a.go"), 3);
    stack[1] = gen_location(&g, gen_function(&g, "main", "a.go"), 9);
    gen_sample(&g, stack, 2, &value, 1);
    gen_pprof_finish(&g, out);
    gen_pprof_deinit(&g);
}

void push_gen_series(const char *labels, const struct str *raws, const char *const *ids, size_t n,
                     struct buf *request)
{
    struct str rest = str_c(labels), part;
    struct buf series, one;
    bool more = true;

    buf_init(&series, 256 * MIB);
    buf_init(&one, 256 * MIB);
    while (str_next(&rest, ',', &more, &part)) {
        if (part.len == 0)
            break;
        size_t at = (size_t)str_find(part, '=');
        buf_reset(&one);
        gen_bytes(&one, 1, str_sub(part, 0, at));
        gen_bytes(&one, 2, str_sub(part, at + 1, part.len));
        gen_bytes(&series, 1, buf_str(&one));
    }
    for (size_t i = 0; i < n; i++) {
        buf_reset(&one);
        gen_bytes(&one, 1, raws[i]);
        if (ids && ids[i] && ids[i][0])
            gen_bytes(&one, 2, str_c(ids[i]));
        gen_bytes(&series, 2, buf_str(&one));
    }
    gen_bytes(request, 1, buf_str(&series));
    buf_deinit(&one);
    buf_deinit(&series);
}

void push_gen_base64(struct str bytes, bool url, struct buf *out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int have = 0;

    for (size_t i = 0; i < bytes.len; i++) {
        bits = bits << 8 | (unsigned char)bytes.ptr[i];
        for (have += 8; have >= 6; have -= 6) {
            char c = letters[bits >> (have - 6) & 63];
            buf_add_c(out, !url ? c : c == '+' ? '-' : c == '/' ? '_' : c);
        }
    }
    if (have)
        buf_add_c(out, letters[bits << (6 - have) & 63]);
    while (!url && out->len % 4)
        buf_add_c(out, '=');
}

void push_gen_series_json(const char *labels, const struct str *raws, const char *const *ids,
                          size_t n, struct buf *series)
{
    struct str rest = str_c(labels), part;
    const char *comma = "";
    struct buf text;
    bool more = true;

    buf_init(&text, 256 * MIB);
    buf_addf(series, "{\"labels\":[");
    while (str_next(&rest, ',', &more, &part)) {
        size_t at = (size_t)str_find(part, '=');
        buf_addf(series, "%s{\"name\":\"%.*s\",\"value\":\"%.*s\"}", comma,
                 STR_ARG(str_sub(part, 0, at)), STR_ARG(str_sub(part, at + 1, part.len)));
        comma = ",";
    }
    buf_addf(series, "],\"samples\":[");
    for (size_t i = 0; i < n; i++) {
        buf_reset(&text);
        push_gen_base64(raws[i], false, &text);
        buf_addf(series, "%s{\"rawProfile\":\"", i ? "," : "");
        buf_add_str(series, buf_str(&text));
        buf_addf(series, "\",\"ID\":\"%s\"}", ids && ids[i] ? ids[i] : "");
    }
    buf_addf(series, "]}");
    buf_deinit(&text);
}

void push_gen_frame(uint8_t flags, struct str bytes, struct buf *out)
{
    buf_add_c(out, (char)flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_add_c(out, (char)(bytes.len >> shift));
    buf_add_str(out, bytes);
}
