/* SPDX-License-Identifier: Apache-2.0
 *
 * exid: from text, bytes or a number to the packed form, and back to text.
 *
 * Hex is decided by the text alone: 16 or 32 hex digits, or a UUID. So an agent that sends hex and
 * another that sends the same bytes get equal ids, and comparing packed bytes is enough. An id of
 * zeros is refused, since agents write "no span" so.  Thread: any.
 */
#include "common/model/exid.h"

#include "common/base/hex.h"

/* True if all of the text is hex digits; 8-4-4-4-12 with dashes counts as 32 of them. */
static bool take_hex(struct str s, struct exid *ret)
{
    const char *p = s.ptr;
    char *to = ret->packed + 1;
    size_t n = s.len == 16 ? 8 : 16;
    bool ok;

    if (s.len == 36)
        ok = p[8] == '-' && p[13] == '-' && p[18] == '-' && p[23] == '-' && hex_read(p, 4, to) &&
             hex_read(p + 9, 2, to + 4) && hex_read(p + 14, 2, to + 6) &&
             hex_read(p + 19, 2, to + 8) && hex_read(p + 24, 6, to + 10);
    else
        ok = (s.len == 16 || s.len == 32) && hex_read(p, n, to);
    if (!ok)
        return false;
    ret->packed[0] = (char)(EXID_HEX | n);
    ret->len = (uint8_t)(1 + n);
    return true;
}

static bool all(struct str s, char c)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] != c)
            return false;
    return true;
}

bool exid_parse(struct str text, struct exid *ret)
{
    if (text.len == 0 || text.len > EXID_BYTES_MAX || all(text, '0'))
        return false;
    if (!take_hex(text, ret)) {
        ret->packed[0] = (char)text.len;
        memcpy(ret->packed + 1, text.ptr, text.len);
        ret->len = (uint8_t)(1 + text.len);
    }
    return exid_valid(exid_str(ret)); /* a UUID of zeros is not an id */
}

bool exid_bytes(struct str bytes, struct exid *ret)
{
    if ((bytes.len != 8 && bytes.len != 16) || all(bytes, 0))
        return false;
    ret->packed[0] = (char)(EXID_HEX | bytes.len);
    memcpy(ret->packed + 1, bytes.ptr, bytes.len);
    ret->len = (uint8_t)(1 + bytes.len);
    return true;
}

bool exid_number(uint64_t n, struct exid *ret)
{
    char b[8];

    for (size_t i = 0; i < sizeof(b); i++)
        b[i] = (char)(n >> (56 - 8 * i));
    return exid_bytes(str_n(b, sizeof(b)), ret);
}

size_t exid_len(struct str s)
{
    uint8_t head = s.len ? (uint8_t)s.ptr[0] : 0;
    size_t n = head & ~EXID_HEX;

    if (n == 0 || n > EXID_BYTES_MAX || s.len < 1 + n)
        return 0;
    return (head & EXID_HEX) && n != 8 && n != 16 ? 0 : 1 + n;
}

bool exid_valid(struct str packed)
{
    struct str bytes = str_sub(packed, 1, packed.len);
    struct exid again;

    if (packed.len == 0 || exid_len(packed) != packed.len)
        return false;
    if ((uint8_t)packed.ptr[0] & EXID_HEX)
        return !all(bytes, 0);
    return !all(bytes, '0') && !take_hex(bytes, &again); /* else it has another packed form */
}

size_t exid_text(struct str packed, char out[EXID_BYTES_MAX])
{
    size_t n = packed.len - 1;

    CHECK(packed.len > 0 && n <= EXID_BYTES_MAX);
    if (!((uint8_t)packed.ptr[0] & EXID_HEX)) {
        memcpy(out, packed.ptr + 1, n);
        return n;
    }
    CHECK(2 * n <= EXID_BYTES_MAX);
    hex_put(packed.ptr + 1, n, out);
    return 2 * n;
}

enum exid_kind exid_label(struct str name)
{
    if (str_eqc(name, "span_id") || str_eqc(name, "profile_id"))
        return EXID_SPAN;
    return str_eqc(name, "trace_id") ? EXID_TRACE : EXID_NONE;
}
