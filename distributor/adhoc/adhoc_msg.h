/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_msg.h: messages of adhocprofiles.v1.AdHocProfileService (proto/WIRE.md, "Ad hoc
 * profiles"), in proto and in proto3 JSON. Pure: any thread.
 */
#ifndef DISTRIBUTOR_ADHOC_ADHOC_MSG_H
#define DISTRIBUTOR_ADHOC_ADHOC_MSG_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct json_val;

enum adhoc_op { ADHOC_UPLOAD, ADHOC_GET, ADHOC_LIST, ADHOC_DIFF, ADHOC_DELETE };

/* What any of the requests asks; the fields of others stay empty. */
struct adhoc_ask {
    struct str name, profile; /* upload; the profile in base64 */
    struct str id, other_id;
    struct str type;
    int64_t nodes; /* 0: not said */
};
/* Slices of the message or of the document. ERR_INPUT. */
NODISCARD int adhoc_ask_proto(enum adhoc_op op, struct str message, struct adhoc_ask *ret,
                              struct err *e);
NODISCARD int adhoc_ask_json(enum adhoc_op op, const struct json_val *root, struct adhoc_ask *ret,
                             struct err *e);

struct adhoc_row {
    struct str id, name;
    int64_t uploaded_ms;
};
/* The answer of Upload and Get (row, type, types, flame), and of Diff (types, flame). */
struct adhoc_answer {
    struct adhoc_row row;
    struct str type;
    const struct str *types;
    size_t types_len;
    struct str flame; /* JSON text: proto/WIRE.md, "Flamebearer JSON" */
};
void adhoc_answer_write(enum adhoc_op op, bool json, const struct adhoc_answer *a, struct buf *out);
void adhoc_rows_write(bool json, const struct adhoc_row *rows, size_t n, struct buf *out);

#endif
