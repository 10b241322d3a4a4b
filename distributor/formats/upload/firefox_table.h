/* SPDX-License-Identifier: Apache-2.0
 *
 * firefox_table.h: the tables of a Firefox profile, in both layouts, as columns of numbers.
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_FIREFOX_TABLE_H
#define DISTRIBUTOR_FORMATS_UPLOAD_FIREFOX_TABLE_H

#include "common/base/vec.h"
#include "common/net/jpull.h"
#include "distributor/formats/gather.h"

#define FIREFOX_NONE    UINT32_MAX       /* null, a negative number, or nothing there */
#define FIREFOX_BEYOND  (UINT32_MAX - 1) /* more than any table has rows, or not a number */
#define FIREFOX_COLUMNS 4

/* Zeroed: nothing was read. */
struct firefox_table {
    const char *from; /* the text that it was read from; NULL: none */
    bool raw;
    bool has[FIREFOX_COLUMNS];              /* the column is there */
    VEC(uint32_t) columns[FIREFOX_COLUMNS]; /* owned */
    VEC(double) weights;                    /* owned; NAN: none. Only of samples */
    size_t rows;                            /* of the raw layout */
};
/* What a table is read for. */
struct firefox_want {
    const char *names[FIREFOX_COLUMNS];
    size_t len;
    const char *weights; /* NULL: no such column */
};
struct firefox_strings {
    const char *from;
    VEC(uint32_t) at; /* owned; where in the file each element begins */
};

/* Reads the table, unless it was read from the same text before. An empty text is a table without
 * columns. Memory is charged to g. */
NODISCARD int firefox_table_read(struct firefox_table *t, const struct jpull *file, struct str text,
                                 const struct firefox_want *want, struct gather *g, struct err *e);
void firefox_table_deinit(struct firefox_table *t);
/* Rows of a column; 0 where it is not there. */
size_t firefox_table_len(const struct firefox_table *t, size_t column);
/* Its number in that row; FIREFOX_NONE past the end. */
uint32_t firefox_table_at(const struct firefox_table *t, size_t column, uint32_t row);
double firefox_table_weight(const struct firefox_table *t, size_t row); /* 1 where it has none */

NODISCARD int firefox_strings_read(struct firefox_strings *s, const struct jpull *file,
                                   struct str text, struct gather *g, struct err *e);
/* Null gives STR_NULL. */
NODISCARD int firefox_string(const struct firefox_strings *s, const struct jpull *file, uint32_t at,
                             struct str *ret, struct err *e);

#endif
