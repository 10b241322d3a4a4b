/* SPDX-License-Identifier: Apache-2.0
 *
 * sigv4.h: AWS Signature Version 4 in the Authorization header ("Signature Calculations for the
 * Authorization Header: Transferring Payload in a Single Chunk", Amazon S3 API reference).
 */
#ifndef COMMON_OBJECT_SIGV4_H
#define COMMON_OBJECT_SIGV4_H

#include "common/base/buf.h"

#define SIGV4_DATE_LEN    16 /* 20130524T000000Z */
#define SIGV4_HEX_LEN     64
#define SIGV4_HEADERS_MAX 12

struct sigv4_header {
    const char *name; /* in small letters */
    struct str value; /* no blanks at its ends, none twice in it */
};
struct sigv4_request {
    const char *method;
    struct str path;                    /* "/bucket/name", escaped: signed as it is */
    struct str query;                   /* "a=1&b=": sorted by name and escaped, "" for none */
    const struct sigv4_header *headers; /* all that are signed; host and x-amz-date among them */
    size_t headers_len;                 /* at most SIGV4_HEADERS_MAX; any order */
    const char *payload;                /* sigv4_sha256 of the body */
};
struct sigv4_keys {
    const char *access_key, *secret_key, *region, *service;
};

/* Hex of SHA-256. */
void sigv4_sha256(struct str data, char ret[SIGV4_HEX_LEN + 1]);
/* UTC. Years 1970 to 9999. */
void sigv4_date(int64_t wall_ms, char ret[SIGV4_DATE_LEN + 1]);
/* The value of the Authorization header, appended; `date` is that of x-amz-date. False if something
 * did not fit into *out. */
bool sigv4_sign(const struct sigv4_keys *k, const struct sigv4_request *r, const char *date,
                struct buf *out);
/* Appends `s` with all but A-Z a-z 0-9 - _ . ~ as %XX: how values of queries are escaped. */
bool sigv4_escape(struct buf *out, struct str s);

#endif
