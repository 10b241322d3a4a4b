/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_conf.h: the file distributor.forward_config_file: to whom pushes are forwarded, and how.
 * An example: deploy/config/forward.yaml.
 */
#ifndef DISTRIBUTOR_FORWARD_FORWARD_CONF_H
#define DISTRIBUTOR_FORWARD_FORWARD_CONF_H

#include <stdatomic.h>

#include "common/model/selector.h"
#include "common/net/client/http_client.h"
#include "common/sys/thread.h"
#include "distributor/rules/relabel.h"

#define FORWARD_TARGETS_MAX     32
#define FORWARD_NAME_MAX        64
#define FORWARD_CONCURRENCY_MAX 16
#define FORWARD_FILE_MAX        MIB

enum forward_mode {
    FORWARD_PUSH,   /* push.v1: Embertree, Pyroscope since 1.0 */
    FORWARD_INGEST, /* POST /ingest: Pyroscope up to 0.37 */
};
enum forward_sync {
    FORWARD_SYNC_NONE,     /* when the kernel likes */
    FORWARD_SYNC_INTERVAL, /* each second */
    FORWARD_SYNC_ALWAYS,   /* before the push is answered */
};
struct forward_target_conf {
    struct forward_conf *owner;
    const char *name, *url; /* without a trailing '/' */
    enum forward_mode mode;
    const char *const *headers; /* "Name: value" */
    size_t headers_len;
    const char *user, *password, *password_file, *bearer, *bearer_file;
    const char *tenant;  /* X-Scope-OrgID; "" : none */
    bool forward_tenant; /* the one the push came with, instead */
    struct http_client_tls tls;
    uint64_t timeout_ms, backoff_least_ms, backoff_most_ms, concurrency;
    uint64_t spool_bytes;
    enum forward_sync sync;
    struct labels add;             /* set on every series */
    struct selector *match, *drop; /* one of match, if there are any, and none of drop */
    size_t match_len, drop_len;
    struct relabel *relabel;
    struct mutex lock; /* of match, drop, relabel: their regexes serve one thread at a time */
};
struct forward_conf {
    _Atomic unsigned refs;
    struct arena *arena;
    struct forward_target_conf *targets;
    size_t len;
};

/* ERR_CONFIG with the line. An empty text has no targets. */
NODISCARD int forward_conf_parse(const char *file, struct str text, struct forward_conf **ret,
                                 struct err *e);
struct forward_conf *forward_conf_ref(struct forward_conf *c);
void forward_conf_unref(struct forward_conf *c); /* NULL is fine */
/* What the target gets of a series: 1 and its labels, 0 nothing, -1 with the error set. The labels
 * are those of the series with __name__; new ones come from the arena. Any thread. */
int forward_conf_labels(struct forward_target_conf *t, struct labels *l, struct arena *a,
                        struct err *e);

#endif
