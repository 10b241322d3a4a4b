/* SPDX-License-Identifier: Apache-2.0
 *
 * group_rows: bytes of the rows of groups (group.h), and what a rule drops.
 *
 * Four rows: the service, a rule, a group, and the groups of a series. Each has a version byte;
 * readers check lengths and counts, and a row with more than its fields is damaged. What a rule
 * drops is decided here as well, because names with a `*` at the end match by prefix.
 *
 * Pure, but for group_service_get: any thread.
 */
#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/group.h"

#define VERSION 1

static int bad(struct err *e, const char *what, size_t len)
{
    return err_set(e, ERR_CORRUPT, "%s row of %zu bytes is not one of version %d", what, len,
                   VERSION);
}

void group_service_put(const struct group_service *g, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u32be(out, g->rules);
    wr_u32be(out, g->next);
    for (size_t i = 0; i < GROUP_DIMS; i++)
        wr_u32be(out, g->since[i]);
}

int group_service_read(struct str row, struct group_service *ret, struct err *e)
{
    if (row.len != 9 + 4 * GROUP_DIMS || row.ptr[0] != VERSION || !get_u32be(row.ptr + 1) ||
        get_u32be(row.ptr + 1) > GROUP_RULES_MAX)
        return bad(e, "grouping", row.len);
    ret->rules = get_u32be(row.ptr + 1);
    ret->next = get_u32be(row.ptr + 5);
    for (size_t i = 0; i < GROUP_DIMS; i++)
        ret->since[i] = get_u32be(row.ptr + 9 + 4 * i);
    return 0;
}

void group_rule_put(const struct group_rule *r, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u32be(out, r->since);
    wr_varint(out, r->len);
    for (size_t i = 0; i < r->len; i++) {
        wr_u8(out, r->flags[i]);
        wr_varint(out, r->names[i].len);
        buf_add_str(out, r->names[i]);
    }
}

int group_rule_read(struct str row, struct group_rule *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version;
    uint64_t n, len;

    ret->len = 0;
    if (!rd_u8(&r, &version) || version != VERSION || !rd_u32be(&r, &ret->since) ||
        !rd_varint(&r, &n) || n > GROUP_NAMES_MAX)
        return bad(e, "grouping rule", row.len);
    for (; n; n--, ret->len++) {
        if (!rd_u8(&r, &ret->flags[ret->len]) ||
            ret->flags[ret->len] > (GROUP_SEEN | GROUP_VARIED) || !rd_varint(&r, &len) || !len ||
            len > GROUP_NAME_MAX || !rd_bytes(&r, (size_t)len, &ret->names[ret->len]))
            return bad(e, "grouping rule", row.len);
    }
    return rd_left(&r) ? bad(e, "grouping rule", row.len) : 0;
}

void group_row_put(const struct group_row *g, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u32be(out, g->rule);
    buf_add_str(out, g->labels);
}

int group_row_read(struct str row, struct group_row *ret, struct err *e)
{
    if (row.len < 6 || row.ptr[0] != VERSION)
        return bad(e, "group", row.len);
    ret->rule = get_u32be(row.ptr + 1);
    ret->labels = str_sub(row, 5, row.len);
    return 0;
}

void group_of_put(const struct group_of *g, size_t n, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_varint(out, n);
    for (size_t i = 0; i < n; i++) {
        wr_u32be(out, g[i].rule);
        wr_u32be(out, g[i].ordinal);
    }
}

int group_of_read(struct str row, struct group_of *ret, size_t *ret_n, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version;
    uint64_t n;

    *ret_n = 0;
    if (!rd_u8(&r, &version) || version != VERSION || !rd_varint(&r, &n) || n < 1 ||
        n > GROUP_RULES_MAX || rd_left(&r) != 8 * n)
        return bad(e, "groups of a series", row.len);
    for (size_t i = 0; i < n; i++) {
        if (!rd_u32be(&r, &ret[i].rule) || !rd_u32be(&r, &ret[i].ordinal) ||
            ret[i].rule <= (i ? ret[i - 1].rule : 0))
            return bad(e, "groups of a series", row.len);
    }
    *ret_n = (size_t)n;
    return 0;
}

bool group_name_drops(struct str name, struct str label)
{
    if (name.len && name.ptr[name.len - 1] == '*')
        return str_starts(label, str_sub(name, 0, name.len - 1));
    return str_eq(name, label);
}

int group_rule_drops(const struct group_rule *r, struct str label)
{
    if (str_eq(label, SERVICE_LABEL))
        return -1;
    for (size_t i = 0; i < r->len; i++)
        if (group_name_drops(r->names[i], label))
            return (int)i;
    return -1;
}

int group_service_get(struct kv *kv, const struct kv_snap *snap, uint32_t tenant, uint32_t scope,
                      struct group_service *ret, struct err *e)
{
    struct buf row;
    struct key k;

    *ret = (struct group_service){ .since = { GROUP_NEVER, GROUP_NEVER } };
    buf_init(&row, KIB);
    key_rule(&k, tenant, scope);
    int rc = kv_get(kv, snap, KV_META, key_str(&k), &row, e);
    if (!rc)
        rc = group_service_read(buf_str(&row), ret, e);
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}
