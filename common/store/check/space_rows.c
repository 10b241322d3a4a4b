/* SPDX-License-Identifier: Apache-2.0
 *
 * space_rows: the order of rows of space reports, and their sum. Knows no database: ingesters and
 * queriers use it for replies.
 */
#include <stdlib.h>

#include "common/store/check/space.h"

int space_row_cmp(const void *a, const void *b)
{
    const struct space_row *x = a, *y = b;
    int c = str_cmp(x->tenant, y->tenant);

    if (!c)
        c = str_cmp(x->service, y->service);
    if (!c)
        c = (int)x->kind - (int)y->kind;
    return c ? c : x->level < y->level ? -1 : x->level > y->level;
}

size_t space_rows_unite(struct space_row *rows, size_t len)
{
    size_t n = 0;

    if (len)
        qsort(rows, len, sizeof(*rows), space_row_cmp);
    for (size_t i = 0; i < len; i++) {
        if (n && space_row_cmp(&rows[n - 1], &rows[i]) == 0) {
            rows[n - 1].bytes += rows[i].bytes;
            rows[n - 1].far_bytes += rows[i].far_bytes;
        } else {
            rows[n++] = rows[i];
        }
    }
    return n;
}
