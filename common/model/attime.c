/* SPDX-License-Identifier: Apache-2.0
 *
 * attime: a parser of one pass over a copy of at most TEXT_MAX characters without blanks.
 *
 * `column` keeps where each copied character was in the text of the user, so that an error can name
 * the column. Sums are checked for overflow before they are used; dates are computed here and not
 * by libc, whose functions depend on the time zone. Thread: any.
 */
#include "common/model/attime.h"

#include "common/base/size.h"

#define TEXT_MAX 64

/* Civil date to days since 1970 (proleptic Gregorian; H. Hinnant's algorithm, years >= 0). */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t of_era = y - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool date_ms(uint64_t v, int64_t *ret_ms)
{
    static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int64_t year = (int64_t)(v / 10000), month = (int64_t)(v / 100 % 100), day = (int64_t)(v % 100);

    if (year <= 1900 || month < 1 || month > 12)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day < 1 || day > days[month - 1] + (month == 2 && leap))
        return false;
    *ret_ms = days_of(year, month, day) * 86400000;
    return true;
}

static int digits_ms(struct str s, int64_t *ret_ms, struct err *e)
{
    uint64_t v, ms;

    if (!str_u64(s, &v))
        return err_set(e, ERR_INPUT, "time \"%.*s\" is too large", STR_ARG(s));
    if (s.len == 8 && date_ms(v, ret_ms))
        return 0;
    if (s.len == 13)
        ms = v;
    else if (s.len == 16)
        ms = v / 1000;
    else if (s.len == 19)
        ms = v / 1000000;
    else if (!u64_mul(v, 1000, &ms) || ms > INT64_MAX)
        return err_set(e, ERR_INPUT, "time \"%.*s\" is too large", STR_ARG(s));
    *ret_ms = (int64_t)ms;
    return 0;
}

/* 0 if there is no such unit. M is a month and m a minute; the longer words know no case. */
static uint64_t unit_ms(struct str unit)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {
        { "s", 1000 },           { "sec", 1000 },         { "second", 1000 },
        { "m", 60000 },          { "min", 60000 },        { "minute", 60000 },
        { "h", 3600000 },        { "hour", 3600000 },     { "d", 86400000 },
        { "day", 86400000 },     { "w", 604800000 },      { "week", 604800000 },
        { "mon", 2592000000 },   { "month", 2592000000 }, { "y", 31536000000 },
        { "year", 31536000000 },
    };

    if (str_eqc(unit, "M"))
        return 2592000000;
    if (unit.len > 3 && (unit.ptr[unit.len - 1] == 's' || unit.ptr[unit.len - 1] == 'S'))
        unit.len--; /* hours, mins */
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (str_eq_nocase(unit, str_c(units[i].name)))
            return units[i].ms;
    return 0;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* `column` is that of each character of s in the text people wrote. */
static int offset_ms(struct str s, const size_t *column, uint64_t *ret_ms, struct err *e)
{
    uint64_t sum = 0, n, part;
    size_t at = 0;

    while (at < s.len) {
        size_t from = at;
        while (at < s.len && digit(s.ptr[at]))
            at++;
        size_t unit_at = at;
        while (at < s.len && !digit(s.ptr[at]))
            at++;
        struct str unit = str_sub(s, unit_at, at);
        uint64_t factor = unit_ms(unit);
        if (!str_u64(str_sub(s, from, unit_at), &n) || !factor)
            return err_set(e, ERR_INPUT,
                           "column %zu: \"%.*s\" is no time offset: write e.g. 30s, 5m, 1h30m, 7d, "
                           "2w, 3M, 1y",
                           column[from], STR_ARG(str_sub(s, from, s.len)));
        if (!u64_mul(n, factor, &part) || !u64_add(sum, part, &sum) || sum > INT64_MAX / 2)
            return err_set(e, ERR_INPUT, "column %zu: time offset \"%.*s\" is too large",
                           column[from], STR_ARG(s));
    }
    if (s.len == 0)
        return err_set(e, ERR_INPUT, "column %zu: the time offset is empty: write e.g. now-1h",
                       column[0]);
    *ret_ms = sum;
    return 0;
}

int attime_parse(struct str s, int64_t now_ms, int64_t *ret_ms, struct err *e)
{
    char text[TEXT_MAX] = { 0 };
    size_t column[TEXT_MAX + 1]; /* of text[i] in s */
    size_t n = 0, digits = 0;
    uint64_t offset = 0;

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '_' || c == ',' || str_trim(str_n(&c, 1)).len == 0)
            continue;
        if (n == sizeof(text))
            return err_set(e, ERR_INPUT, "a time of over %d characters is no time", TEXT_MAX);
        digits += digit(c);
        column[n] = i + 1;
        text[n++] = c;
    }
    column[n] = s.len + 1;
    struct str t = str_n(text, n);
    if (n == 0)
        return err_set(e, ERR_INPUT, "the time is empty: write e.g. now-1h or seconds since 1970");
    if (digits == n)
        return digits_ms(t, ret_ms, e);
    ptrdiff_t sign = str_find(t, '+');
    if (sign < 0)
        sign = str_find(t, '-');
    struct str reference = str_sub(t, 0, sign < 0 ? n : (size_t)sign);
    if (reference.len && !str_eq_nocase(reference, STR("now")))
        return err_set(e, ERR_INPUT,
                       "column %zu: \"%.*s\" is no time: write e.g. now-1h, 20261121 or seconds "
                       "since 1970",
                       column[0], STR_ARG(t));
    if (sign >= 0 && offset_ms(str_sub(t, (size_t)sign + 1, n), column + sign + 1, &offset, e))
        return e->code;
    bool back = sign >= 0 && t.ptr[sign] == '-';
    *ret_ms = back ? now_ms - (int64_t)offset : now_ms + (int64_t)offset;
    return 0;
}
