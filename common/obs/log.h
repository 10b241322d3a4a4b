/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: one line of logfmt per event, to stderr.
 *
 *   ts=2026-11-21T11:45:08.123Z level=info thread=ingester msg="slot sealed" shard=0 rows=812
 *
 * error = an operator must act, warn = degraded, info = life cycle, debug = per request. Lines are
 * written whole; a repeated warn or error is rate-limited per message (10 in 10 s; the rest are
 * counted, and the next line says how many). `msg` must be a string literal. Library code never
 * logs. Thread: any.
 */
#ifndef COMMON_OBS_LOG_H
#define COMMON_OBS_LOG_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "common/sys/clock.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_kv_type { LOG_KV_STR, LOG_KV_CSTR, LOG_KV_U64, LOG_KV_I64, LOG_KV_BOOL };
struct log_kv {
    const char *key;
    enum log_kv_type type;
    struct str s;
    uint64_t u;
    int64_t i;
};
#define KV_STR(k, v)  ((struct log_kv){ .key = (k), .type = LOG_KV_STR, .s = (v) })
#define KV_CSTR(k, v) ((struct log_kv){ .key = (k), .type = LOG_KV_CSTR, .s = str_c(v) })
#define KV_U64(k, v)  ((struct log_kv){ .key = (k), .type = LOG_KV_U64, .u = (v) })
#define KV_I64(k, v)  ((struct log_kv){ .key = (k), .type = LOG_KV_I64, .i = (v) })
#define KV_BOOL(k, v) ((struct log_kv){ .key = (k), .type = LOG_KV_BOOL, .u = (v) })
#define KV_ERR(e)     KV_CSTR("err", (e)->text)

void log_set_level(enum log_level level);
bool log_level_parse(struct str s, enum log_level *ret);
/* For tests: another file descriptor, another clock (NULL: the real one). */
void log_set_output(int fd, const struct clock *clock);
/* Events at or above the set level so far, and how many of them the rate limit kept back. */
uint64_t log_count(enum log_level level);
uint64_t log_suppressed(void);
void log_event(enum log_level level, const char *msg, const struct log_kv *kv, size_t n);

#define log_debug(msg, ...) LOG_CALL_(LOG_DEBUG, msg, __VA_ARGS__)
#define log_info(msg, ...)  LOG_CALL_(LOG_INFO, msg, __VA_ARGS__)
#define log_warn(msg, ...)  LOG_CALL_(LOG_WARN, msg, __VA_ARGS__)
#define log_error(msg, ...) LOG_CALL_(LOG_ERROR, msg, __VA_ARGS__)
/* At least one KV_: log_info("ready", KV_U64("port", 4040)). */
#define LOG_CALL_(level, msg, ...)                                    \
    log_event((level), (msg), (const struct log_kv[]){ __VA_ARGS__ }, \
              sizeof((const struct log_kv[]){ __VA_ARGS__ }) / sizeof(struct log_kv))

#endif
