/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_rows.h: the bytes of dictionary rows (meta table 21): up to 1,024 consecutive entries.
 *
 *   row      version u8 = 1 | n varint, 1..1024 | columns | crc32c u32le of all bytes before
 *
 *   strings  n varints: lengths | bytes of all, one after the other
 *   frames   n zigzag varints: func  - that of the entry before (first: - 0)
 *            n zigzag varints: file  -  "       n zigzag varints: module - "
 *            n varints: line                    n zigzag varints: addr - "
 *   nodes    n varints: own id - parent id      n zigzag varints: frame - that of the entry before
 *
 * The id of the first entry stands in the key. Ids of one kind are dense from 0; string 0 is "" and
 * node 0 the root, and neither is stored: rows of strings and nodes begin with id 1.
 *
 *   strings 1, 2 = "main", "a.c":  01 02 04 03 6d 61 69 6e 61 2e 63 | xx xx xx xx
 *   frame 0 = (1, 2, 0, line 7):   01 01 02 04 00 07 00 | xx xx xx xx
 *   nodes 1, 2 = (0, 0), (1, 0):   01 02 01 01 00 00 | xx xx xx xx
 */
#ifndef COMMON_STORE_DICT_DICT_ROWS_H
#define COMMON_STORE_DICT_DICT_ROWS_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/model/stacks.h"

#define DICT_ROW_MAX    1024
#define DICT_JOIN_BYTES (256 * KIB) /* of strings in a row that replaces others */

struct dict_node {
    uint32_t parent, frame;
};

/* Replace *out; n is 1..DICT_ROW_MAX; out->max must do (a CHECK). */
void dict_rows_strings(const struct str *s, size_t n, struct buf *out);
void dict_rows_frames(const struct frame *f, size_t n, struct buf *out);
void dict_rows_nodes(const struct dict_node *d, size_t n, uint32_t first, struct buf *out);

/* Into arrays of DICT_ROW_MAX. Strings point into the row. ERR_CORRUPT, also when a node's parent
 * is not before it; whether ids exist in other kinds is the caller's check. */
NODISCARD int dict_rows_read_strings(struct str row, struct str *ret, size_t *ret_n, struct err *e);
NODISCARD int dict_rows_read_frames(struct str row, struct frame *ret, size_t *ret_n,
                                    struct err *e);
NODISCARD int dict_rows_read_nodes(struct str row, uint32_t first, struct dict_node *ret,
                                   size_t *ret_n, struct err *e);

#endif
