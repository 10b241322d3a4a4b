/* SPDX-License-Identifier: Apache-2.0
 *
 * appname.h: the `name` of a push: app.cpu{key=value,key2=value2} (proto/WIRE.md, "Name grammar").
 *
 * Service name: [A-Za-z0-9_./-]+. Keys: [A-Za-z0-9_.]+. Values: valid UTF-8 without ',' and '}'.
 * Blanks around all of them go; of a key given twice the last one wins; an empty value is no label;
 * an unterminated last value is dropped, and so is what follows the closing brace. `__name__`
 * replaces the service name. Messages start with "name: ", which clients match on.
 */
#ifndef DISTRIBUTOR_FORMATS_APPNAME_H
#define DISTRIBUTOR_FORMATS_APPNAME_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/label.h"

struct appname {
    struct str app;       /* never empty */
    struct labels labels; /* sorted, without __name__ */
};
struct appname_limits {
    size_t labels_max;
    size_t name_bytes_max;
    size_t value_bytes_max;
};

/* Slices point into `s`; the array comes from the arena. ERR_INPUT, or ERR_LIMIT over a limit. */
NODISCARD int appname_parse(struct str s, const struct appname_limits *l, struct arena *a,
                            struct appname *ret, struct err *e);
/* app{k1=v1,k2=v2}: keys sorted, always with braces. */
void appname_format(const struct appname *n, struct buf *out);

#endif
