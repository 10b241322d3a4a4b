/* SPDX-License-Identifier: Apache-2.0
 *
 * object_impl.h: the table each kind of store fills. Only this folder and tests include it.
 */
#ifndef COMMON_OBJECT_OBJECT_IMPL_H
#define COMMON_OBJECT_OBJECT_IMPL_H

#include "common/object/object.h"

struct object_ops {
    /* ERR_CONFLICT: the name is taken, by whatever bytes. */
    int (*put)(struct object_store *o, struct str name, struct str data, struct err *e);
    int (*read)(struct object_store *o, struct str name, uint64_t from, size_t len, struct buf *out,
                struct err *e);
    int (*size)(struct object_store *o, struct str name, uint64_t *ret, struct err *e);
    int (*list)(struct object_store *o, struct str prefix, struct str after, object_list_fn fn,
                void *cookie, struct err *e);
    int (*del)(struct object_store *o, struct str name, struct err *e);
    void (*close)(struct object_store *o);
};
/* First member of each kind's own struct. */
struct object_store {
    const struct object_ops *ops;
    char where[256];
    uint64_t deadline_ms; /* object_deadline */
};

#endif
