/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_msg: these messages are the large ones, so their length is summed up before they are
 * written; then nothing has to be moved.
 */
#include "querier/flame_msg.h"

#define FLAME_BAR 4
#define DIFF_BAR  7

enum { NAMES = 1, LEVELS, TOTAL, MAX_SELF, LEFT_TICKS, RIGHT_TICKS };
enum { VALUES = 1 };

/* What both have. */
struct bars {
    const struct str *names;
    size_t names_len;
    const uint64_t *values;
    const size_t *level_end;
    size_t levels;
    size_t width; /* values per bar */
};

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

    msg_out_list(o, NAMES, "names");
    for (size_t i = 0; i < b->names_len; i++)
        msg_out_str(o, MSG_ITEM, b->names[i]);
    msg_out_list_end(o);
    msg_out_list(o, LEVELS, "levels");
    for (size_t d = 0; d < b->levels; values += level_len(b, d++)) {
        size_t n = level_len(b, d);
        msg_out_obj_of(o, MSG_ITEM, o->is_json ? 0 : level_bytes(values, n));
        msg_out_i64s(o, VALUES, "values", values, n);
        msg_out_obj_end(o);
    }
    msg_out_list_end(o);
}

static int64_t number(uint64_t v)
{
    return (int64_t)MIN(v, (uint64_t)INT64_MAX);
}

void flame_msg(struct msg_out *o, uint32_t field, const char *name, const struct flame *f)
{
    struct bars b = { f->names.ptr,     f->names.len,     f->bars.ptr,
                      f->level_end.ptr, f->level_end.len, FLAME_BAR };

    msg_out_obj_of(o, field, name, o->is_json ? 0 : bytes_of(&b));
    put_bars(o, &b);
    msg_out_i64(o, TOTAL, "total", number(f->total));
    msg_out_i64(o, MAX_SELF, "maxSelf", number(f->max_self));
    msg_out_obj_end(o);
}

void flame_msg_diff(struct msg_out *o, uint32_t field, const char *name, const struct diff *d)
{
    struct bars b = { d->names.ptr,     d->names.len,     d->bars.ptr,
                      d->level_end.ptr, d->level_end.len, DIFF_BAR };
    uint64_t left = d->ticks[DIFF_LEFT], right = d->ticks[DIFF_RIGHT];

    msg_out_obj_of(o, field, name, o->is_json ? 0 : bytes_of(&b));
    put_bars(o, &b);
    msg_out_i64(o, TOTAL, "total",
                number(number(left) > INT64_MAX - number(right) ? INT64_MAX : left + right));
    msg_out_i64(o, MAX_SELF, "maxSelf", number(d->max_self));
    msg_out_i64(o, LEFT_TICKS, "leftTicks", number(left));
    msg_out_i64(o, RIGHT_TICKS, "rightTicks", number(right));
    msg_out_obj_end(o);
}
