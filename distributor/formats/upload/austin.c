/* SPDX-License-Identifier: Apache-2.0
 *
 * austin: folded text whose head says what its numbers are.
 *
 *   # austin: 3.7.0
 *   # interval: 1000
 *   # mode: wall                           microseconds; so with cpu. memory: bytes
 *
 *   P16592;T0:16592;work.py:<module>:24;work.py:burn_hot:10 1301
 *
 * Read as any folded text they would be samples of ten milliseconds each. Mode `full` has three
 * numbers a line, of which folded text has no room for two.
 *
 * Format: Austin 3 (proto/FORMATS.md, "Austin").
 */
#include "distributor/formats/upload/austin.h"

#include "distributor/formats/folded.h"
#include "distributor/formats/kinds.h"

#define HEAD        "# austin: "
#define MODE        "# mode: "
#define PER_SECOND  1000000
#define SNIFF_LINES 16

bool austin_sniff(struct str text)
{
    return str_starts(text, STR(HEAD));
}

static struct str mode_of(struct str text)
{
    struct str line;
    bool more = true;

    for (int i = 0; i < SNIFF_LINES && str_next(&text, '\n', &more, &line); i++)
        if (str_starts(line, STR(MODE)))
            return str_trim(str_sub(line, sizeof(MODE) - 1, line.len));
    return STR("wall");
}

int austin_push(struct str text, const struct limits *l, struct push *push, struct err *e)
{
    static const struct {
        const char *mode, *name;
        uint64_t rate;
    } rows[] = {
        { "wall", "austin.wall", PER_SECOND },
        { "cpu", "austin.cpu", PER_SECOND },
        { "memory", "austin.alloc_space", 0 },
    };
    struct str mode = mode_of(text);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!str_eqc(mode, rows[i].mode))
            continue;
        const struct kind kind = kind_of(str_c(rows[i].name), rows[i].rate);
        return folded_push(text, true, &kind, l, push, e);
    }
    return err_set(e, ERR_INPUT,
                   "this is Austin's text of mode \"%.*s\": record wall time, CPU time or memory, "
                   "each in a file of its own",
                   STR_ARG(str_sub(mode, 0, 32)));
}
