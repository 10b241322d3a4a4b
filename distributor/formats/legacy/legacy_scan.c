/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_scan: lines of the text formats, numbers in them, and the memory map at their end.
 *
 *   start-end perms offset dev inode file      /proc/PID/maps; only what may be executed counts
 *   start-end: file                            short
 *
 * Of a path only the file's name is kept in the end, so that "$build/bin/x" below a row
 * "build=/path" needs no replacing.
 *
 * Format: proc(5), /proc/PID/maps (proto/FORMATS.md, "Legacy pprof").
 */
#include "distributor/formats/legacy/legacy_impl.h"

#include "common/base/hex.h"

#define HEX_DIGITS 16

/* ---- lines ----------------------------------------------------------------------------------- */

bool legacy_peek(const struct legacy *g, struct str *ret)
{
    struct str rest = g->rest;
    bool more = rest.len > 0;

    if (!str_next(&rest, '\n', &more, ret))
        return false;
    if (ret->len && ret->ptr[ret->len - 1] == '\r')
        ret->len--;
    return true;
}

bool legacy_line(struct legacy *g, struct str *ret)
{
    ptrdiff_t end = str_find(g->rest, '\n');

    if (!legacy_peek(g, ret))
        return false;
    g->rest = end < 0 ? STR_NULL : str_sub(g->rest, (size_t)end + 1, g->rest.len);
    return true;
}

bool legacy_blank(struct str line)
{
    return str_trim(line).len == 0;
}

bool legacy_map_begins(struct str line)
{
    struct str s = line;

    return scan_text(&s, "MAPPED_LIBRARIES:") || scan_text(&s, "--- Memory map: ---");
}

/* ---- pieces ---------------------------------------------------------------------------------- */

void scan_blanks(struct str *s)
{
    size_t n = 0;

    while (n < s->len && (s->ptr[n] == ' ' || s->ptr[n] == '\t'))
        n++;
    *s = str_sub(*s, n, s->len);
}

bool scan_text(struct str *s, const char *text)
{
    struct str rest = *s, want = str_c(text);

    scan_blanks(&rest);
    if (!str_starts(rest, want))
        return false;
    *s = str_sub(rest, want.len, rest.len);
    return true;
}

bool scan_u64(struct str *s, uint64_t *ret)
{
    struct str rest = *s;
    size_t n = 0;

    scan_blanks(&rest);
    while (n < rest.len && rest.ptr[n] >= '0' && rest.ptr[n] <= '9')
        n++;
    if (!str_u64(str_sub(rest, 0, n), ret))
        return false;
    *s = str_sub(rest, n, rest.len);
    return true;
}

bool scan_i64(struct str *s, int64_t *ret)
{
    struct str rest = *s;
    bool minus = scan_text(&rest, "-");
    uint64_t v;

    if (!scan_u64(&rest, &v) || v > INT64_MAX)
        return false;
    *ret = minus ? -(int64_t)v : (int64_t)v;
    *s = rest;
    return true;
}

bool scan_hex(struct str *s, uint64_t *ret)
{
    struct str rest = *s;
    uint64_t v = 0;
    size_t n = 0, digits = 0;

    scan_blanks(&rest);
    for (; n < rest.len && hex_digit(rest.ptr[n]) >= 0; n++) {
        v = v << 4 | (uint64_t)hex_digit(rest.ptr[n]);
        digits += digits || v;
    }
    if (n == 0 || digits > HEX_DIGITS)
        return false;
    *ret = v;
    *s = str_sub(rest, n, rest.len);
    return true;
}

bool scan_attribute(struct str line, struct str *ret_key, struct str *ret_value)
{
    ptrdiff_t at = str_find(line, '=');

    if (at <= 0)
        return false;
    *ret_key = str_trim(str_sub(line, 0, (size_t)at));
    *ret_value = str_trim(str_sub(line, (size_t)at + 1, line.len));
    return ret_key->len > 0;
}

int scan_pcs(struct legacy *g, struct str s, uint64_t less, bool but_leaf, size_t from)
{
    uint64_t pc;

    for (ptrdiff_t x; (x = str_find(s, 'x')) >= 0;) {
        bool zero = x > 0 && s.ptr[x - 1] == '0';
        s = str_sub(s, (size_t)x + 1, s.len);
        if (!zero || !s.len || hex_digit(s.ptr[0]) < 0 || !scan_hex(&s, &pc))
            continue;
        if (pc && !(but_leaf && g->pcs.len == from))
            pc -= less;
        if (legacy_pc(g, pc))
            return g->e->code;
    }
    return 0;
}

int scan_go_name(struct legacy *g, struct str line)
{
    struct legacy_line to = { .func = STR_NULL };
    struct str s = line;
    uint64_t pc, number;
    ptrdiff_t plus;

    if (!scan_text(&s, "#") || !scan_text(&s, "0x") || !scan_hex(&s, &pc))
        return 0;
    s = str_trim(s);
    plus = str_rfind(s, '+');
    if (plus > 0) {
        struct str file = str_sub(s, (size_t)plus + 1, s.len);
        if (!scan_text(&file, "0x") || !scan_hex(&file, &number))
            return 0;
        file = str_trim(file);
        s = str_sub(s, 0, (size_t)plus);
        ptrdiff_t colon = str_rfind(file, ':');
        if (colon > 0 && str_u64(str_sub(file, (size_t)colon + 1, file.len), &number)) {
            to.file = str_sub(file, 0, (size_t)colon);
            to.line = number < UINT32_MAX ? (uint32_t)number : 0;
        }
    }
    to.func = str_trim(s);
    return to.func.len ? legacy_name(g, pc, &to) : 0;
}

/* ---- the memory map -------------------------------------------------------------------------- */

static struct str next_word(struct str *s)
{
    size_t n = 0;

    scan_blanks(s);
    while (n < s->len && s->ptr[n] != ' ' && s->ptr[n] != '\t')
        n++;
    struct str w = str_sub(*s, 0, n);
    *s = str_sub(*s, n, s->len);
    return w;
}

static bool is_perms(struct str w)
{
    if (w.len < 3 || w.len > 5)
        return false;
    for (size_t i = 0; i < w.len; i++)
        if (str_find(STR("rwxsp-"), w.ptr[i]) < 0)
            return false;
    return true;
}

/* False: no row. A row of what is not executed leaves m->limit 0. */
static bool parse_map(struct str line, struct legacy_map *m)
{
    struct str s = line, w, before;
    uint64_t number;

    *m = (struct legacy_map){ 0 };
    (void)scan_text(&s, "0x");
    if (!scan_hex(&s, &m->start) || !scan_text(&s, "-"))
        return false;
    (void)scan_text(&s, "0x");
    if (!scan_hex(&s, &m->limit))
        return false;
    (void)scan_text(&s, ":");
    before = s;
    w = next_word(&s);
    if (is_perms(w)) {
        if (str_find(w, 'x') < 0)
            m->limit = 0;
        before = s;
        if (scan_hex(&s, &m->offset)) {
            (void)next_word(&s); /* device */
            before = s;
            if (scan_u64(&s, &number)) /* inode */
                before = s;
        } else {
            m->offset = 0;
        }
    }
    m->file = str_trim(before);
    if (str_ends(m->file, STR(" (deleted)")))
        m->file.len -= sizeof(" (deleted)") - 1;
    return m->limit == 0 || m->start < m->limit;
}

int legacy_maps(struct legacy *g)
{
    struct legacy_map m;
    struct str line;

    while (legacy_line(g, &line)) {
        if (!parse_map(line, &m) || m.limit == 0)
            continue;
        if (g->maps.len >= g->l->samples)
            return err_set(g->e, ERR_LIMIT, "pprof: more than %" PRIu64 " mappings", g->l->samples);
        if (m.file.len > g->l->symbol_bytes)
            return err_set(g->e, ERR_LIMIT, "pprof: a file name of %zu bytes, at most %" PRIu64,
                           m.file.len, g->l->symbol_bytes);
        vec_push(&g->maps, m);
    }
    return 0;
}
