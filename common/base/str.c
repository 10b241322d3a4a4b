/* SPDX-License-Identifier: Apache-2.0
 *
 * str: comparing, cutting and parsing of slices, without NUL bytes at their ends.
 *
 * No function reads beyond len, allocates, or depends on the locale. Numbers must fill the whole
 * slice: a sign, blank or digit too many is a failure, since these functions read configuration and
 * requests. Sizes and durations are exact for whole numbers and refuse an overflow.
 * Thread: any.
 */
#include "common/base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/size.h"

struct str str_c(const char *c)
{
    return c ? (struct str){ c, strlen(c) } : STR_NULL;
}

struct str str_n(const void *p, size_t n)
{
    return (struct str){ p, n };
}

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool str_eqc(struct str a, const char *b)
{
    return str_eq(a, str_c(b));
}

static unsigned char ascii_lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (ascii_lower(a.ptr[i]) != ascii_lower(b.ptr[i]))
            return false;
    return true;
}

int str_cmp(struct str a, struct str b)
{
    size_t n = MIN(a.len, b.len);
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;

    if (c)
        return c;
    return a.len < b.len ? -1 : a.len > b.len;
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_n(s.ptr, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len && str_eq(str_sub(s, s.len - suffix.len, s.len), suffix);
}

bool str_contains(struct str s, struct str needle)
{
    return needle.len == 0 || (s.len && memmem(s.ptr, s.len, needle.ptr, needle.len));
}

struct str str_sub(struct str s, size_t from, size_t to)
{
    if (to > s.len)
        to = s.len;
    if (from > to)
        from = to;
    return (struct str){ s.ptr ? s.ptr + from : NULL, to - from };
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

struct str str_trim(struct str s)
{
    size_t from = 0, to = s.len;

    while (from < to && blank(s.ptr[from]))
        from++;
    while (to > from && blank(s.ptr[to - 1]))
        to--;
    return str_sub(s, from, to);
}

ptrdiff_t str_find(struct str s, char c)
{
    const char *p = s.len ? memchr(s.ptr, c, s.len) : NULL;

    return p ? p - s.ptr : -1;
}

ptrdiff_t str_rfind(struct str s, char c)
{
    const char *p = s.len ? memrchr(s.ptr, c, s.len) : NULL;

    return p ? p - s.ptr : -1;
}

bool str_next(struct str *rest, char c, bool *more, struct str *ret_part)
{
    if (!*more || (rest->len == 0 && rest->ptr == NULL))
        return false;
    ptrdiff_t at = str_find(*rest, c);
    if (at < 0) {
        *ret_part = *rest;
        *rest = STR_NULL;
        *more = false;
        return true;
    }
    *ret_part = str_sub(*rest, 0, (size_t)at);
    *rest = str_sub(*rest, (size_t)at + 1, rest->len);
    return true;
}

bool str_u64(struct str s, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return false;
        if (!u64_mul(v, 10, &v) || !u64_add(v, (uint64_t)(s.ptr[i] - '0'), &v))
            return false;
    }
    *ret = v;
    return true;
}

bool str_i64(struct str s, int64_t *ret)
{
    bool neg = s.len && s.ptr[0] == '-';
    uint64_t v;

    if (!str_u64(neg ? str_sub(s, 1, s.len) : s, &v))
        return false;
    if (neg) {
        if (v > (uint64_t)INT64_MAX + 1)
            return false;
        *ret = v == (uint64_t)INT64_MAX + 1 ? INT64_MIN : -(int64_t)v;
        return true;
    }
    if (v > INT64_MAX)
        return false;
    *ret = (int64_t)v;
    return true;
}

bool str_double(struct str s, double *ret)
{
    char tmp[64];
    char *end;

    if (s.len == 0 || s.len >= sizeof(tmp))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E'))
            return false;
    }
    memcpy(tmp, s.ptr, s.len);
    tmp[s.len] = '\0';
    errno = 0;
    double v = strtod(tmp, &end);
    if (end != tmp + s.len || !isfinite(v))
        return false;
    *ret = v;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* "<number>[ ]<unit>", the number may have a fraction ("1.5s"); exact for whole numbers. */
static bool str_with_unit(struct str s, const struct unit *units, size_t n, uint64_t *ret)
{
    size_t digits = 0;
    uint64_t whole;
    double frac;

    s = str_trim(s);
    while (digits < s.len &&
           ((s.ptr[digits] >= '0' && s.ptr[digits] <= '9') || s.ptr[digits] == '.'))
        digits++;
    struct str num = str_sub(s, 0, digits);
    struct str unit = str_trim(str_sub(s, digits, s.len));
    for (size_t i = 0; i < n; i++) {
        if (!str_eq_nocase(unit, str_c(units[i].name)))
            continue;
        if (str_u64(num, &whole))
            return u64_mul(whole, units[i].factor, ret);
        if (!str_double(num, &frac) || frac * (double)units[i].factor > 9e18)
            return false;
        *ret = (uint64_t)llround(frac * (double)units[i].factor);
        return true;
    }
    return false;
}

bool str_bytes(struct str s, uint64_t *ret)
{
    static const struct unit units[] = {
        { "", 1 },
        { "b", 1 },
        { "kib", KIB },
        { "mib", MIB },
        { "gib", GIB },
        { "tib", GIB * KIB },
        { "k", KIB },
        { "m", MIB },
        { "g", GIB },
        { "kb", 1000 },
        { "mb", 1000000 },
        { "gb", 1000000000 },
        { "tb", 1000000000000 },
    };
    return str_with_unit(s, units, ARRAY_LEN(units), ret);
}

bool str_duration_ms(struct str s, uint64_t *ret)
{
    static const struct unit units[] = {
        { "ms", 1 },      { "s", 1000 },     { "m", 60000 },     { "min", 60000 },
        { "h", 3600000 }, { "d", 86400000 }, { "w", 604800000 }, { "y", 31536000000 },
    };
    if (str_eqc(str_trim(s), "0")) {
        *ret = 0;
        return true;
    }
    return str_with_unit(s, units, ARRAY_LEN(units), ret);
}

/* RFC 3629: shortest forms only, no surrogates, at most U+10FFFF. */
bool str_utf8_valid(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t i = 0;

    while (i < s.len) {
        uint64_t eight;
        while (s.len - i >= sizeof(eight)) { /* ASCII, eight bytes at a time */
            memcpy(&eight, p + i, sizeof(eight));
            if (eight & UINT64_C(0x8080808080808080))
                break;
            i += sizeof(eight);
        }
        if (i == s.len)
            break;
        unsigned char c = p[i];
        size_t n = c < 0x80 ? 0 : c < 0xc2 ? 4 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : 4;
        if (n == 4 || s.len - i <= n)
            return false;
        for (size_t k = 1; k <= n; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
        if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] > 0x9f) ||
            (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] > 0x8f))
            return false;
        i += n + 1;
    }
    return true;
}
