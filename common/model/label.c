/* SPDX-License-Identifier: Apache-2.0
 *
 * label: a sorted array of pairs; sets are small, so a search is binary and an insertion moves the
 * rest.
 *
 * The canonical bytes are unique: labels are sorted, names are unique and not empty, and lengths
 * must be in their shortest form. labels_decode refuses everything else, so equal sets have equal
 * bytes and equal hashes on every node and in every version, and a set can be compared by memcmp.
 * Thread: any for const functions.
 */
#include "common/model/label.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

/* First index whose name is >= name. */
static size_t lower_bound(const struct labels *l, struct str name)
{
    size_t lo = 0, hi = l->len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (str_cmp(l->ptr[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool name_at(const struct labels *l, size_t i, struct str name)
{
    return i < l->len && str_eq(l->ptr[i].name, name);
}

int labels_set(struct labels *l, struct arena *a, struct str name, struct str value, struct err *e)
{
    size_t at = lower_bound(l, name);

    if (!name.len)
        return err_set(e, ERR_INPUT, "a label has an empty name");
    if (name_at(l, at, name)) {
        l->ptr[at].value = value;
        return 0;
    }
    struct label *p = ARENA_ARRAY(a, struct label, l->len + 1);
    if (!p)
        return err_set(e, ERR_LIMIT, "%zu labels do not fit the request's memory of %zu bytes",
                       l->len + 1, arena_limit(a));
    if (at)
        memcpy(p, l->ptr, at * sizeof(*p));
    p[at] = (struct label){ name, value };
    if (l->len > at)
        memcpy(p + at + 1, l->ptr + at, (l->len - at) * sizeof(*p));
    l->ptr = p;
    l->len++;
    return 0;
}

void labels_del(struct labels *l, struct str name)
{
    size_t at = lower_bound(l, name);

    if (!name_at(l, at, name))
        return;
    memmove(l->ptr + at, l->ptr + at + 1, (l->len - at - 1) * sizeof(*l->ptr));
    l->len--;
}

struct str labels_get(const struct labels *l, struct str name)
{
    size_t at = lower_bound(l, name);

    return name_at(l, at, name) ? l->ptr[at].value : STR_NULL;
}

bool labels_eq(const struct labels *a, const struct labels *b)
{
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++)
        if (!str_eq(a->ptr[i].name, b->ptr[i].name) || !str_eq(a->ptr[i].value, b->ptr[i].value))
            return false;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct label *)a)->name, ((const struct label *)b)->name);
}

int labels_sort(struct labels *l, struct err *e)
{
    if (l->len > 1)
        qsort(l->ptr, l->len, sizeof(*l->ptr), by_name);
    for (size_t i = 0; i < l->len; i++) {
        struct str name = l->ptr[i].name;
        if (!name.len)
            return err_set(e, ERR_INPUT, "a label has an empty name");
        if (i && str_eq(l->ptr[i - 1].name, name))
            return err_set(e, ERR_INPUT, "label \"%.*s\" is given twice",
                           STR_ARG(str_sub(name, 0, 100)));
    }
    return 0;
}

/* ---- canonical bytes ---- */

size_t labels_encoded_len(const struct labels *l)
{
    size_t n = varint_len(l->len);

    for (size_t i = 0; i < l->len; i++) {
        const struct label *p = &l->ptr[i];
        n += varint_len(p->name.len) + p->name.len + varint_len(p->value.len) + p->value.len;
    }
    return n;
}

static uint8_t *put_str(uint8_t *to, struct str s)
{
    to += varint_put(to, s.len);
    if (s.len)
        memcpy(to, s.ptr, s.len);
    return to + s.len;
}

void labels_encode_to(const struct labels *l, uint8_t *to)
{
    to += varint_put(to, l->len);
    for (size_t i = 0; i < l->len; i++) {
        to = put_str(to, l->ptr[i].name);
        to = put_str(to, l->ptr[i].value);
    }
}

void labels_encode(const struct labels *l, struct buf *out)
{
    size_t n = labels_encoded_len(l);
    char *to = buf_room(out, n);

    if (!to)
        return;
    labels_encode_to(l, (uint8_t *)(void *)to);
    out->len += n;
}

/* A length in its shortest form: each set of labels has one encoding only. */
static bool read_len(struct rd *r, uint64_t *ret)
{
    const uint8_t *from = r->p;

    return rd_varint(r, ret) && (size_t)(r->p - from) == varint_len(*ret);
}

static bool read_str(struct rd *r, struct str *ret)
{
    uint64_t n;

    return read_len(r, &n) && n <= rd_left(r) && rd_bytes(r, (size_t)n, ret);
}

int labels_decode(struct str in, struct arena *a, struct labels *ret, struct err *e)
{
    struct rd r = rd_of(in);
    uint64_t n;

    /* A label has 3 bytes at least: refuses absurd counts before allocating. */
    if (!read_len(&r, &n) || n > rd_left(&r) / 3)
        return err_set(e, ERR_CORRUPT, "labels of %zu bytes do not start with their count", in.len);
    struct labels l = { ARENA_ARRAY(a, struct label, (size_t)n + 1), (size_t)n };
    if (!l.ptr)
        return err_set(e, ERR_LIMIT, "%zu labels do not fit %zu bytes of memory", l.len,
                       arena_limit(a));
    for (size_t i = 0; i < l.len; i++) {
        struct label *p = &l.ptr[i];
        if (!read_str(&r, &p->name) || !read_str(&r, &p->value))
            return err_set(e, ERR_CORRUPT, "label %zu of %zu is cut off", i, l.len);
        if (!p->name.len || (i && str_cmp(l.ptr[i - 1].name, p->name) >= 0))
            return err_set(e, ERR_CORRUPT, "label %zu of %zu is empty or out of order", i, l.len);
    }
    if (rd_left(&r))
        return err_set(e, ERR_CORRUPT, "%zu bytes follow %zu labels", rd_left(&r), l.len);
    *ret = l;
    return 0;
}

uint64_t labels_hash(const struct labels *l, uint64_t seed)
{
    uint8_t small[512];
    size_t n = labels_encoded_len(l);
    uint8_t *p = n <= sizeof(small) ? small : xmalloc(n);

    labels_encode_to(l, p);
    uint64_t h = hash64(p, n, seed);
    if (p != small)
        xfree(p);
    return h;
}

/* ---- for people ---- */

/* Bytes of the UTF-8 character at s[i], 0 if there is no valid one. */
static size_t utf8_char(struct str s, size_t i)
{
    uint8_t c = (uint8_t)s.ptr[i];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    return i + n <= s.len && str_utf8_valid(str_sub(s, i, i + n)) ? n : 0;
}

static void format_quoted(struct str s, struct buf *out)
{
    buf_add_c(out, '"');
    for (size_t i = 0; i < s.len;) {
        char c = s.ptr[i];
        size_t n = utf8_char(s, i);
        if (c == '"' || c == '\\')
            buf_addf(out, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            buf_addf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!n || (uint8_t)c < 0x20 || c == 0x7f)
            buf_addf(out, "\\x%02x", (unsigned)(uint8_t)c);
        else
            buf_add(out, s.ptr + i, n);
        i += n ? n : 1;
    }
    buf_add_c(out, '"');
}

void labels_format(const struct labels *l, struct buf *out)
{
    buf_add_c(out, '{');
    for (size_t i = 0; i < l->len; i++) {
        if (i)
            buf_add_str(out, STR(", "));
        if (label_name_plain(l->ptr[i].name))
            buf_add_str(out, l->ptr[i].name);
        else
            format_quoted(l->ptr[i].name, out);
        buf_add_c(out, '=');
        format_quoted(l->ptr[i].value, out);
    }
    buf_add_c(out, '}');
}

bool label_name_plain(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i && c >= '0' && c <= '9'))
            return false;
    }
    return name.len > 0;
}
