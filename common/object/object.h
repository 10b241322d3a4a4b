/* SPDX-License-Identifier: Apache-2.0
 *
 * object.h: whole objects under names, somewhere with a lot of room: a directory, or a server that
 * speaks the S3 API. What the cold tier needs of them and nothing else: objects are written once,
 * read by ranges, listed in order, deleted; never changed.
 *
 * Names are "a/b/c": parts of [A-Za-z0-9._-], none of them "." or "..", OBJECT_NAME_MAX bytes in
 * all; so that none needs escaping anywhere and a directory cannot be left.
 *
 * Calls block, with a deadline each; one thread at a time per handle, open more for more. Errors:
 * ERR_CONFIG (keys, bucket, URL), ERR_NOT_FOUND, ERR_CONFLICT, ERR_LIMIT, ERR_UNAVAILABLE and
 * ERR_TIMEOUT (tried again already), ERR_CANCELED, ERR_IO, ERR_NO_SPACE, ERR_CORRUPT (the server's
 * answer).
 */
#ifndef COMMON_OBJECT_OBJECT_H
#define COMMON_OBJECT_OBJECT_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/sys/env.h"

#define OBJECT_NAME_MAX  512
#define OBJECT_BYTES_MAX (256 * MIB) /* of one object: written in one request */

struct object_store;

/* Could it be opened? Nothing is made. ERR_CONFIG. */
NODISCARD int object_dir_check(const char *dir, struct err *e);
/* Below `dir`, which is made. Written objects are fsynced with their folders. */
NODISCARD int object_dir_open(const char *dir, struct object_store **ret, struct err *e);

struct object_s3_opts {
    struct env *env;      /* clock and randomness; borrowed */
    const char *endpoint; /* "https://s3.eu-central-1.amazonaws.com", "http://127.0.0.1:9000" */
    const char *bucket;   /* exists */
    const char *prefix;   /* in front of all names: "" or "a/b/" */
    const char *region;   /* "" : us-east-1, which servers other than Amazon's mostly accept */
    const char *access_key, *secret_key;
    const char *session_token; /* "" : none */
    const char *keys_file;     /* NULL, or in place of these three: s3_keys.h. It is read again for
                                * each request; while it cannot be, the keys before hold */
    bool path_style;           /* http://host/bucket/name instead of http://bucket.host/name */
    const char *ca_file;       /* of https; "": the system's */
    uint32_t timeout_ms;       /* of one attempt; 0: 30 s */
    uint32_t tries;            /* 0: 5, with pauses between them that double */
    const atomic_bool *stop;   /* NULL, or: calls end with ERR_CANCELED once it is true */
};
/* Asks nothing of the server. Strings are copied. ERR_CONFIG. */
NODISCARD int object_s3_open(const struct object_s3_opts *o, struct object_store **ret,
                             struct err *e);
void object_close(struct object_store *o); /* NULL is fine */
/* For messages: "s3 bucket at https://...", "directory /x". */
const char *object_where(const struct object_store *o);

/* From now on, requests end with ERR_TIMEOUT at that time (monotonic, ms); 0: with their own
 * timeouts and tries. A directory does not wait. */
void object_deadline(struct object_store *o, uint64_t mono_ms);

bool object_name_ok(struct str name);

/* Durable when it returns 0; readers see all of it or nothing. ERR_CONFLICT: an object of that name
 * is there and holds other bytes; the same bytes are success, so that it may be tried again. A name
 * is never given other bytes. */
NODISCARD int object_put(struct object_store *o, struct str name, struct str data, struct err *e);
/* Bytes [from, from + len) appended to *out, exactly `len` of them; ERR_CORRUPT if the object is
 * shorter. */
NODISCARD int object_read(struct object_store *o, struct str name, uint64_t from, size_t len,
                          struct buf *out, struct err *e);
NODISCARD int object_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e);
/* Calls `fn` with names that begin with `prefix` and come after `after` (empty: all), in byte
 * order, until it returns false. Objects whose names are not ours are left out. What is written or
 * deleted meanwhile may be among them or not. */
typedef bool (*object_list_fn)(void *cookie, struct str name, uint64_t size);
NODISCARD int object_list(struct object_store *o, struct str prefix, struct str after,
                          object_list_fn fn, void *cookie, struct err *e);
/* Succeeds also if the object does not exist. */
NODISCARD int object_delete(struct object_store *o, struct str name, struct err *e);

#endif
