/* SPDX-License-Identifier: Apache-2.0
 *
 * err.h: what went wrong, as a code for programs and one sentence for people.
 *
 * Functions that can fail return 0 or an ERR_ code and take `struct err *e` last (never NULL). The
 * text names what is wrong and, where it helps, what to do next. Callers add context on the way up
 * with err_wrap; the edge of a role logs or replies once. After a success *e may hold anything
 * (from a lookup that found nothing, for example): code that keeps an err for later must decide by
 * the return value and clear it.
 */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H

#include "common/base/base.h"

/* Codes travel over rpc: append only, never renumber. */
enum err_code {
    ERR_OK = 0,
    ERR_INPUT = 1,           /* undecodable or invalid input: 400 invalid_argument */
    ERR_LIMIT = 2,           /* input over a fixed limit: 400, or 413 when it is the body's size */
    ERR_TOO_LARGE = 3,       /* body too large: 413 */
    ERR_RATE = 4,            /* over a rate or quota: 429 with Retry-After */
    ERR_UNAUTHENTICATED = 5, /* 401 */
    ERR_FORBIDDEN = 6,       /* 403 */
    ERR_NOT_FOUND = 7,       /* 404 */
    ERR_BUSY = 8,            /* over a budget, queue full: 503 with Retry-After */
    ERR_UNAVAILABLE = 9,     /* peer down, draining, no quorum: 503 with Retry-After */
    ERR_TIMEOUT = 10,        /* deadline passed: 504 */
    ERR_CANCELED = 11,       /* the client went away: 499 */
    ERR_CONFIG = 12,         /* a configuration is wrong */
    ERR_IO = 13,             /* the disk or the system said no */
    ERR_NO_SPACE = 14,       /* disk reserve reached: 503 with Retry-After */
    ERR_CORRUPT = 15,        /* stored bytes or a frame do not check */
    ERR_UNIMPLEMENTED = 16,  /* 501 */
    ERR_INTERNAL = 17,       /* our fault: 500 */
    ERR_UNSUPPORTED_MEDIA = 18, /* 415 */
    ERR_METHOD = 19,            /* 405 */
    ERR_CONFLICT = 20,          /* another version is there: 409 */
    ERR_CODES = 21,
};

#define ERR_TEXT_MAX 512

struct err {
    int code;
    char text[ERR_TEXT_MAX]; /* always NUL-terminated, valid UTF-8 if the arguments were */
    uint32_t again_s;        /* a retry makes sense after so many seconds; 0: unknown */
};

/* Sets code and text; returns the code, so that `return err_set(...)` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);
/* The same, with after how long the sender may try again (Retry-After); also kept by err_wrap. */
int err_set_again(struct err *e, int code, uint32_t again_s, const char *fmt, ...) PRINTF(4, 5);
/* Puts "context: " in front of the text, keeps the code; returns the code. */
int err_wrap(struct err *e, const char *fmt, ...) PRINTF(2, 3);
/* Sets ERR_IO (ERR_NO_SPACE for ENOSPC) with strerror of `errnum` behind the text. */
int err_errno(struct err *e, int errnum, const char *fmt, ...) PRINTF(3, 4);
void err_clear(struct err *e);

/* "invalid_argument", "resource_exhausted", ...: the name of the Connect code (proto/WIRE.md,
 * "Error codes"). */
const char *err_connect_name(int code);
/* 400, 413, 429 ...: the HTTP status for plain routes. */
int err_http_status(int code);
/* Status on Connect routes, where e.g. a too large message is 429 (same heading). */
int err_connect_status(int code);
/* "ERR_INPUT" etc., for logs and tests. */
const char *err_name(int code);

#endif
