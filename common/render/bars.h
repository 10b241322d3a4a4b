/* SPDX-License-Identifier: Apache-2.0
 *
 * bars.h: names and levels of a flame graph or a diff as JSON, at once or in pieces. The text is
 * many times as large as the bars, so no caller should need the whole of it.
 *
 *      "names":["total",..],"levels":[[0,10,..],..]                    flamebearer
 *      "names":["total",..],"levels":[{"values":["0","10",..]},..]     proto3 JSON of a message
 */
#ifndef COMMON_RENDER_BARS_H
#define COMMON_RENDER_BARS_H

#include "common/base/json.h"

struct bars { /* borrowed */
    const struct str *names;
    size_t names_len;
    const uint64_t *values;  /* level by level */
    const size_t *level_end; /* level d ends before bar level_end[d] */
    size_t levels;
    size_t width; /* values of a bar */
};
struct bars_json {
    struct bars b;
    bool message; /* as a message: lists without items are left out, values at most INT64_MAX */
    enum { BARS_BEGIN, BARS_NAMES, BARS_LEVELS, BARS_VALUES, BARS_END } phase;
    size_t name, level, at; /* the next ones */
};

/* Two keys of the object that is open in *j. Appends about `want` bytes to it (SIZE_MAX: all), and
 * is to be called again with the same j, whose buffer may be another one: true while there is more.
 * Ends early where the buffer failed. */
bool bars_json_next(struct bars_json *w, size_t want, struct json *j);

#endif
