/* SPDX-License-Identifier: Apache-2.0
 *
 * bars: a state machine that stops between two values, so that a large reply can be sent in pieces.
 *
 * The state is the position in names and levels; the JSON writer remembers which arrays are open.
 * Inside a level the size of the output is checked every LOOK_EVERY values only.
 * Thread: one at a time.
 */
#include "common/render/bars.h"

#include "common/sys/pool.h"

#define LOOK_EVERY 256 /* values, between looks at the size */

static void begin_levels(struct bars_json *w, struct json *j)
{
    if (w->b.names_len || !w->message)
        json_arr_end(j);
    if (w->b.levels || !w->message) {
        json_key(j, "levels");
        json_arr(j);
    }
    w->phase = BARS_LEVELS;
}

static void put_name(struct bars_json *w, struct json *j)
{
    if (w->name == w->b.names_len)
        begin_levels(w, j);
    else
        json_str(j, w->b.names[w->name++]);
}

static size_t end_of(const struct bars_json *w)
{
    return w->b.level_end[w->level] * w->b.width;
}

static void put_level(struct bars_json *w, struct json *j)
{
    if (w->level == w->b.levels) {
        if (w->b.levels || !w->message)
            json_arr_end(j);
        w->phase = BARS_END;
        return;
    }
    if (w->message)
        json_obj(j);
    if (w->message && w->at < end_of(w))
        json_key(j, "values");
    if (!w->message || w->at < end_of(w))
        json_arr(j);
    w->phase = BARS_VALUES;
}

static void put_values(struct bars_json *w, struct json *j)
{
    size_t begin = w->level ? w->b.level_end[w->level - 1] * w->b.width : 0, end = end_of(w);

    for (size_t n = 0; w->at < end && n < LOOK_EVERY; n++, w->at++) {
        uint64_t v = w->b.values[w->at];
        if (w->message)
            json_i64_str(j, (int64_t)MIN(v, (uint64_t)INT64_MAX));
        else
            json_u64(j, v);
    }
    pool_slice();
    if (w->at < end)
        return;
    if (!w->message || begin < end)
        json_arr_end(j);
    if (w->message)
        json_obj_end(j);
    w->level++;
    w->phase = BARS_LEVELS;
}

bool bars_json_next(struct bars_json *w, size_t want, struct json *j)
{
    size_t from = j->out->len;

    while (w->phase != BARS_END && j->out->len - from < want && buf_ok(j->out)) {
        switch (w->phase) {
        case BARS_BEGIN:
            if (w->b.names_len || !w->message) {
                json_key(j, "names");
                json_arr(j);
            }
            w->phase = BARS_NAMES;
            break;
        case BARS_NAMES:
            put_name(w, j);
            break;
        case BARS_LEVELS:
            put_level(w, j);
            break;
        case BARS_VALUES:
            put_values(w, j);
            break;
        case BARS_END:
            break;
        }
    }
    return w->phase != BARS_END;
}
