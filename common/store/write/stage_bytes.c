/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_bytes: about how many bytes a request adds to a batch if all of it is new, rather too many
 * than too few. For callers that must not make a batch that is refused for its size.
 *
 *   labels   the series' row, the rows of its pairs, the labels of its groups; a posting per pair,
 *            and every 64th time the chunk it joins
 *   stacks   bytes of strings, the rest in varints
 *   vectors  key, head and write id; ids and values in varints
 */
#include "common/store/dict/dict_known.h"
#include "common/store/dict/dict_rows.h"
#include "common/store/store.h"

/* Names; and the last rows of the dictionary, which are written again. */
#define REQUEST_BYTES  (DICT_JOIN_BYTES + 64 * KIB)
#define SERIES_BYTES   1024
#define LABEL_BYTES    300
#define LABEL_COPIES   4
#define VECTOR_BYTES   300
#define SAMPLE_BYTES   12
#define STRING_BYTES   6
#define FRAME_BYTES    24
#define NODE_BYTES     10
#define EXEMPLAR_BYTES 512

static size_t dict_bytes(const struct stacks_view *v)
{
    return v->string_data.len + v->strings * STRING_BYTES + v->frames * FRAME_BYTES +
           v->nodes * NODE_BYTES;
}

static size_t series_bytes(const struct store_series *r)
{
    size_t sum = SERIES_BYTES, values = 0;

    for (size_t i = 0; i < r->labels.len; i++)
        sum +=
            LABEL_BYTES + LABEL_COPIES * (r->labels.ptr[i].name.len + r->labels.ptr[i].value.len);
    for (size_t i = 0; i < r->len; i++)
        values += r->vectors[i].len;
    for (size_t i = 0; i < r->exemplars_len; i++)
        values += r->exemplars[i].len;
    return sum + r->len * VECTOR_BYTES + r->exemplars_len * EXEMPLAR_BYTES + values * SAMPLE_BYTES;
}

size_t store_write_bytes(const struct store_write *w)
{
    size_t sum = REQUEST_BYTES + dict_bytes(w->told ? &w->told->more : w->stacks);

    for (size_t i = 0; i < w->len; i++)
        sum += series_bytes(&w->series[i]);
    return sum;
}
