/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/hex.h"

/* The value of a digit + 1; 0: the character is not a digit. */
static const uint8_t values[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

bool hex_is_lower(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (hex_digit(s.ptr[i]) < 0 || (s.ptr[i] >= 'A' && s.ptr[i] <= 'F'))
            return false;
    return s.len > 0;
}

bool hex_u64(struct str s, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.len > 16 || !hex_is_lower(s))
        return false;
    for (size_t i = 0; i < s.len; i++)
        v = v << 4 | (uint64_t)hex_digit(s.ptr[i]);
    *ret = v;
    return true;
}

/* Without a branch per digit: each id of each exemplar goes through here. */
bool hex_read(const char *from, size_t n, void *to)
{
    uint8_t *out = to;
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned high = values[(uint8_t)from[2 * i]] - 1u;
        unsigned low = values[(uint8_t)from[2 * i + 1]] - 1u;
        bad |= high | low;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return bad < 16;
}

void hex_put(const void *from, size_t n, char *to)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = from;

    for (size_t i = 0; i < n; i++) {
        to[2 * i] = digits[bytes[i] >> 4];
        to[2 * i + 1] = digits[bytes[i] & 15];
    }
}

void hex_put_c(const void *from, size_t n, char *to)
{
    hex_put(from, n, to);
    to[2 * n] = '\0';
}

bool hex_add(struct buf *out, const void *from, size_t n)
{
    char *to = buf_room(out, 2 * n);

    if (!to)
        return false;
    hex_put(from, n, to);
    out->len += 2 * n;
    return true;
}
