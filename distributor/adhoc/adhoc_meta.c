/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_meta.c: the meta of an uploaded profile, packed and read, and its id.
 *
 * A list of uploads reads metas only, never bodies; so all that a list shows is here. What is read
 * comes from a shard and may be of another version: lengths and texts are checked, and a version
 * that is not known is an error. Pure: any thread.
 */
#include "distributor/adhoc/adhoc_meta.h"

#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"

#define VERSION   1
#define META_ROOM (12 * KIB) /* a document has 16 KiB of it */

/* ---- types ----------------------------------------------------------------------------------- */

static struct str sample_type(struct str id)
{
    struct ptype t;
    struct err e;

    return ptype_parse(id, &t, &e) ? id : t.sample_type;
}

/* Two types with one sample type are both shown by their id. */
static void name_types(struct adhoc_type *types, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        struct str name = sample_type(types[i].id);
        bool alone = true;
        for (size_t k = 0; alone && k < len; k++)
            alone = k == i || !str_eq(name, sample_type(types[k].id));
        types[i].shown = alone ? name : types[i].id;
    }
}

static size_t add_type(struct adhoc_type *types, size_t len, struct str id, uint64_t total)
{
    size_t i = 0;

    while (i < len && !str_eq(types[i].id, id))
        i++;
    if (i == len)
        types[len++] = (struct adhoc_type){ .id = id };
    types[i].total = MIN(u64_add_sat(types[i].total, total), INT64_MAX);
    return len;
}

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "the profile has too many types");
}

int adhoc_types_of_push(const struct push *p, struct arena *a, struct adhoc_meta *ret,
                        struct err *e)
{
    struct adhoc_type *types = ARENA_ARRAY(a, struct adhoc_type, p->series_len + 1);

    if (!types)
        return no_room(e);
    ret->types_len = 0;
    for (size_t i = 0; i < p->series_len; i++)
        ret->types_len =
            add_type(types, ret->types_len, p->series[i].profile_type, p->series[i].total);
    name_types(types, ret->types_len);
    ret->types = types;
    return 0;
}

int adhoc_types_of(const struct adhoc_profile *p, struct arena *a, struct adhoc_meta *ret,
                   struct err *e)
{
    struct adhoc_type *types = ARENA_ARRAY(a, struct adhoc_type, p->len + 1);

    if (!types)
        return no_room(e);
    ret->types_len = 0;
    for (size_t i = 0; i < p->len; i++)
        ret->types_len = add_type(types, ret->types_len, p->series[i].type, p->series[i].total);
    name_types(types, ret->types_len);
    ret->types = types;
    return 0;
}

/* ---- meta ------------------------------------------------------------------------------------ */

static void put_text(struct buf *b, struct str s)
{
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

static bool get_text(struct rd *r, struct str *ret)
{
    uint64_t n;

    return rd_varint(r, &n) && n <= rd_left(r) && rd_bytes(r, (size_t)n, ret);
}

void adhoc_meta_pack(const struct adhoc_meta *m, struct buf *out)
{
    size_t n = 0, room = 0;

    while (n < m->types_len && n < ADHOC_TYPES_MAX && room + m->types[n].id.len + 20 <= META_ROOM)
        room += m->types[n++].id.len + 20;
    wr_u8(out, VERSION);
    put_text(out, m->name);
    put_text(out, m->format);
    wr_varint(out, m->size);
    wr_varint(out, m->samples);
    wr_varint(out, n);
    for (size_t i = 0; i < n; i++) {
        put_text(out, m->types[i].id);
        wr_varint(out, m->types[i].total);
    }
    if (m->owner.len)
        put_text(out, m->owner);
}

int adhoc_meta_read(struct str in, struct arena *a, struct adhoc_meta *ret, struct err *e)
{
    struct rd r = rd_of(in);
    struct adhoc_type *types;
    uint8_t version;
    uint64_t n;

    *ret = (struct adhoc_meta){ 0 };
    if (!rd_u8(&r, &version) || version != VERSION || !get_text(&r, &ret->name) ||
        !get_text(&r, &ret->format) || !rd_varint(&r, &ret->size) ||
        !rd_varint(&r, &ret->samples) || !rd_varint(&r, &n) || n > ADHOC_TYPES_MAX)
        return err_set(e, ERR_CORRUPT, "what is stored about an uploaded profile is damaged");
    types = ARENA_ARRAY(a, struct adhoc_type, (size_t)n + 1);
    if (!types)
        return err_set(e, ERR_LIMIT, "the list of uploaded profiles is too long");
    for (; ret->types_len < n; ret->types_len++)
        if (!get_text(&r, &types[ret->types_len].id) ||
            !rd_varint(&r, &types[ret->types_len].total))
            return err_set(e, ERR_CORRUPT, "what is stored about an uploaded profile is damaged");
    if (rd_left(&r) && !get_text(&r, &ret->owner))
        return err_set(e, ERR_CORRUPT, "what is stored about an uploaded profile is damaged");
    name_types(types, ret->types_len);
    ret->types = types;
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

void adhoc_name_reduce(struct str name, struct buf *out)
{
    ptrdiff_t slash = MAX(str_rfind(name, '/'), str_rfind(name, '\\'));

    name = str_trim(str_sub(name, (size_t)(slash + 1), name.len));
    if (!name.len)
        name = STR("profile");
    /* The end says more: it has the extension. */
    name = str_tail(name, ADHOC_NAME_MAX);
    for (size_t i = 0; i < name.len; i++)
        buf_add_c(out, name_byte(name.ptr[i]) ? name.ptr[i] : '_');
}

void adhoc_id_make(int64_t now_ms, const uint8_t *random, struct str name, struct buf *out)
{
    char text[ADHOC_ULID_LEN];
    uint8_t bits[16];

    for (int i = 0; i < 6; i++)
        bits[i] = (uint8_t)((uint64_t)now_ms >> (40 - 8 * i));
    memcpy(bits + 6, random, 10);
    /* 128 bits in 26 digits: the first one has 3. */
    for (int i = 0; i < ADHOC_ULID_LEN; i++) {
        unsigned digit = 0;
        for (int k = 5 * i - 2; k < 5 * i + 3; k++)
            digit = digit << 1 | (k >= 0 ? bits[k / 8] >> (7 - k % 8) & 1U : 0);
        text[i] = digits[digit];
    }
    buf_add(out, text, sizeof(text));
    buf_add_c(out, '-');
    adhoc_name_reduce(name, out);
}

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

int adhoc_id_check(struct str id, struct err *e)
{
    bool ok = id.len > ADHOC_ULID_LEN + 1 && id.len <= ADHOC_ULID_LEN + 1 + ADHOC_NAME_MAX &&
              id.ptr[ADHOC_ULID_LEN] == '-' && id.ptr[0] <= '7';

    for (size_t i = 0; ok && i < id.len; i++)
        ok = i < ADHOC_ULID_LEN ? digit_of(id.ptr[i]) >= 0 : name_byte(id.ptr[i]);
    return ok ? 0
              : err_set(e, ERR_INPUT,
                        "\"%.*s\" is no id of an uploaded profile: they look like "
                        "01ARZ3NDEKTSV4RRFFQ69G5FAV-name",
                        (int)MIN(id.len, 80), id.ptr ? id.ptr : "");
}

int64_t adhoc_id_ms(struct str id)
{
    int64_t ms = 0;

    for (int i = 0; i < 10; i++)
        ms = ms << 5 | digit_of(id.ptr[i]);
    return ms;
}
