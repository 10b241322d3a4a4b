/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_msg: these messages are the large ones, so their length is summed up before they are
 * written; then nothing has to be moved.
 */
#include "querier/output/flame_msg.h"

enum { NAMES = 1, LEVELS, TOTAL, MAX_SELF, LEFT_TICKS, RIGHT_TICKS };
enum { VALUES = 1 };

static size_t level_len(const struct bars *b, size_t d)
{
    return (b->level_end[d] - (d ? b->level_end[d - 1] : 0)) * b->width;
}

static size_t level_bytes(const uint64_t *values, size_t n)
{
    return msg_out_size(VALUES, msg_out_i64s_size(values, n));
}

static size_t bytes_of(const struct bars *b)
{
    const uint64_t *values = b->values;
    size_t bytes = 4 * 11; /* the numbers behind */

    for (size_t i = 0; i < b->names_len; i++)
        bytes += msg_out_size(NAMES, b->names[i].len);
    for (size_t d = 0; d < b->levels; values += level_len(b, d++))
        bytes += msg_out_size(LEVELS, level_bytes(values, level_len(b, d)));
    return bytes;
}

static void put_bars(struct msg_out *o, const struct bars *b)
{
    const uint64_t *values = b->values;

    if (o->is_json) {
        struct bars_json w = { .b = *b, .message = true };
        (void)bars_json_next(&w, SIZE_MAX, &o->json);
        return;
    }
    msg_out_list(o, NAMES, "names");
    for (size_t i = 0; i < b->names_len; i++)
        msg_out_str(o, MSG_ITEM, b->names[i]);
    msg_out_list_end(o);
    msg_out_list(o, LEVELS, "levels");
    for (size_t d = 0; d < b->levels; values += level_len(b, d++)) {
        size_t n = level_len(b, d);
        msg_out_obj_of(o, MSG_ITEM, level_bytes(values, n));
        msg_out_i64s(o, VALUES, "values", values, n);
        msg_out_obj_end(o);
    }
    msg_out_list_end(o);
}

static int64_t number(uint64_t v)
{
    return (int64_t)MIN(v, (uint64_t)INT64_MAX);
}

/* All of it: an empty one has its root here. */
static struct bars bars_of(const struct flame *f)
{
    struct bars b = flame_bars(f);

    b.names_len = f->names.len;
    b.levels = f->level_end.len;
    return b;
}

static struct bars diff_bars_of(const struct diff *d)
{
    struct bars b = diff_bars(d);

    b.names_len = d->names.len;
    b.levels = d->level_end.len;
    return b;
}

struct numbers {
    int64_t total, max_self, left, right;
};

static struct numbers numbers_of(const struct flame *f)
{
    return (struct numbers){ .total = number(f->total), .max_self = number(f->max_self) };
}

static struct numbers diff_numbers_of(const struct diff *d)
{
    int64_t left = number(d->ticks[DIFF_LEFT]), right = number(d->ticks[DIFF_RIGHT]);

    return (struct numbers){ .total = left > INT64_MAX - right ? INT64_MAX : left + right,
                             .max_self = number(d->max_self),
                             .left = left,
                             .right = right };
}

static void put(struct msg_out *o, uint32_t field, const char *name, const struct bars *b,
                const struct numbers *n)
{
    msg_out_obj_of(o, field, name, o->is_json ? 0 : bytes_of(b));
    put_bars(o, b);
    msg_out_i64(o, TOTAL, "total", n->total);
    msg_out_i64(o, MAX_SELF, "maxSelf", n->max_self);
    msg_out_i64(o, LEFT_TICKS, "leftTicks", n->left);
    msg_out_i64(o, RIGHT_TICKS, "rightTicks", n->right);
    msg_out_obj_end(o);
}

void flame_msg(struct msg_out *o, uint32_t field, const char *name, const struct flame *f)
{
    struct bars b = bars_of(f);
    struct numbers n = numbers_of(f);

    put(o, field, name, &b, &n);
}

void flame_msg_diff(struct msg_out *o, uint32_t field, const char *name, const struct diff *d)
{
    struct bars b = diff_bars_of(d);
    struct numbers n = diff_numbers_of(d);

    put(o, field, name, &b, &n);
}

/* ---- in pieces ---- */

struct bars_json flame_msg_bars(const struct flame *f, const struct diff *d, bool two)
{
    return (struct bars_json){ .b = two ? diff_bars_of(d) : bars_of(f), .message = true };
}

static void put_number(struct json *j, const char *key, int64_t v)
{
    if (!v)
        return;
    json_put_i64_str(j, key, v);
}

void flame_msg_numbers(const struct flame *f, const struct diff *d, bool two, struct json *j)
{
    struct numbers n = two ? diff_numbers_of(d) : numbers_of(f);

    put_number(j, "total", n.total);
    put_number(j, "maxSelf", n.max_self);
    put_number(j, "leftTicks", n.left);
    put_number(j, "rightTicks", n.right);
    json_obj_end(j);
}
