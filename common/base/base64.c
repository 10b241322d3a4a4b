/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/base64.h"

#define BAD 0xff

/* Value of a letter, or BAD. */
static uint8_t value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint8_t)(c - '0' + 52);
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : BAD;
}

/* Two to four letters to one to three bytes. The bits that are left over must be 0. */
static bool put_group(const uint8_t *v, size_t n, char **to)
{
    uint32_t bits = (uint32_t)v[0] << 18 | (uint32_t)v[1] << 12;

    if (n > 2)
        bits |= (uint32_t)v[2] << 6;
    if (n > 3)
        bits |= v[3];
    if ((n == 2 && (bits & 0xffff)) || (n == 3 && (bits & 0xff)))
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        *(*to)++ = (char)(bits >> (16 - 8 * i));
    return true;
}

bool base64_decode(struct str text, struct buf *out)
{
    char *start = buf_room(out, text.len / 4 * 3 + 3), *to = start;
    uint8_t group[4];
    size_t n = 0, i = 0;

    if (!start)
        return false;
    while (i < text.len) {
        if (text.ptr[i] == '=') {
            size_t pads = 0;
            while (i < text.len && text.ptr[i] == '=' && n + pads < 4) {
                pads++;
                i++;
            }
            if (n < 2 || n + pads != 4 || !put_group(group, n, &to))
                return false;
            n = 0;
            continue;
        }
        group[n] = value_of(text.ptr[i++]);
        if (group[n++] == BAD)
            return false;
        if (n == 4) {
            (void)put_group(group, 4, &to);
            n = 0;
        }
    }
    if (n == 1 || (n > 1 && !put_group(group, n, &to)))
        return false;
    out->len += (size_t)(to - start);
    return true;
}

bool base64_encode(struct str bytes, struct buf *out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = (const uint8_t *)(const void *)bytes.ptr;
    char *to = buf_room(out, (bytes.len + 2) / 3 * 4);

    if (!to)
        return false;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = MIN(bytes.len - i, 3);
        uint32_t bits = (uint32_t)p[i] << 16;
        if (n > 1)
            bits |= (uint32_t)p[i + 1] << 8;
        if (n > 2)
            bits |= p[i + 2];
        to[0] = letters[bits >> 18];
        to[1] = letters[bits >> 12 & 63];
        to[2] = '=';
        to[3] = '=';
        if (n > 1)
            to[2] = letters[bits >> 6 & 63];
        if (n > 2)
            to[3] = letters[bits & 63];
        to += 4;
    }
    out->len += (bytes.len + 2) / 3 * 4;
    return true;
}
