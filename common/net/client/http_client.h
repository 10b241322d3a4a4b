/* SPDX-License-Identifier: Apache-2.0
 *
 * http_client.h: requests to other servers over HTTP and HTTPS: blocking, one at a time per client,
 * each with one deadline. For threads of their own (forwarding, scraping), never for a loop.
 *
 * No redirect is followed, no proxy is taken from the environment, and nothing but http:// and
 * https:// is spoken. Connections are kept open between requests of a client.
 */
#ifndef COMMON_NET_CLIENT_HTTP_CLIENT_H
#define COMMON_NET_CLIENT_HTTP_CLIENT_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"

/* Of https://. Files are PEM; "" or NULL: the system's certificates, no certificate of our own. */
struct http_client_tls {
    const char *ca_file, *cert_file, *key_file;
    bool insecure; /* takes any certificate of the server */
};
struct http_client_req {
    const char *method; /* "GET", "POST", ... */
    const char *url;    /* http:// or https://; a name and password in it are refused */
    /* "Name: value" lines; without a line break, or the request is refused. */
    const char *const *headers;
    size_t headers_len;
    const char *user, *password; /* basic authentication; user NULL or "": none */
    const char *bearer;          /* token; NULL or "": none */
    struct http_client_tls tls;
    struct str body; /* of POST, PUT, PATCH */
    uint32_t timeout_ms, connect_ms;
    const atomic_bool *stop; /* NULL, or: ends with ERR_CANCELED within a second once it is true */
    const char *unix_socket; /* NULL, or: the path to connect to, whatever host the URL names */
    const char *keep_header; /* NULL, or: a header of the reply to keep */
};
struct http_client_reply {
    int status;
    uint64_t retry_after_ms;      /* 0: the server did not say */
    char content_type[128];       /* "" : none; cut */
    char etag[128], encoding[32]; /* the same */
    char kept[128];               /* of keep_header, the same */
    char admin_socket[1024];      /* where a server on this machine wants to be asked instead */
    struct buf body;              /* the caller's: init before, deinit after */
    bool body_cut;                /* body.max was reached: the rest was not read */
};

struct http_client;
/* Once per process before the first client, on the main thread; more calls do nothing. */
void http_client_global(void);
struct http_client *http_client_new(void);
void http_client_free(struct http_client *c); /* NULL is fine */
/* 0 once a status and the body are there, whatever the status. ret->body is appended to; over its
 * maximum the rest is left out (body_cut). ERR_UNAVAILABLE: no connection, or it broke;
 * ERR_TIMEOUT; ERR_CANCELED: *stop; ERR_CONFIG: the request cannot be made. */
NODISCARD int http_client_do(struct http_client *c, const struct http_client_req *r,
                             struct http_client_reply *ret, struct err *e);
/* "http://host:8080/base" or https: a scheme, a host, no name, query or fragment. ERR_CONFIG. */
NODISCARD int http_client_url_check(const char *url, struct err *e);

#endif
