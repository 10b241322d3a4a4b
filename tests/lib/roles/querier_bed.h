/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_bed.h: a querier behind an HTTP server without sockets, on a simulated loop, in front of
 * ingesters that answer from a list of pushes by the most obvious code there is.
 */
#ifndef TESTS_LIB_ROLES_QUERIER_BED_H
#define TESTS_LIB_ROLES_QUERIER_BED_H

#include "common/rpc/rpc_mem.h"
#include "querier/querier.h"
#include "tests/lib/net/net_mem.h"
#include "tests/lib/roles/fake_identity.h"
#include "tests/lib/roles/querier_docs.h"

#define QBED_INGESTERS_MAX 4
#define QBED_NOW           INT64_C(1750000000000) /* a multiple of 10 s */
#define QBED_CPU           "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

#define QBED_BY_SERVICE SIZE_MAX

struct qbed_push {
    size_t ingester; /* on its shard of that number; or QBED_BY_SERVICE: where it belongs */
    const char *service;
    const char *labels; /* "env=prod,pod=a" or "" */
    const char *type;
    int64_t ms;
    const char *folded; /* "a;b" */
    uint64_t value;
    bool gauge;
    const char *tenant; /* NULL: anonymous */
};

struct qbed_exemplar {
    size_t push;             /* whose samples these are */
    const char *kind_and_id; /* "span_id=00000000000000aa" */
    const char *stacks;      /* "a;b=3 a;c=4" */
};

struct qbed;
struct qbed_ingester {
    struct qbed *bed;
    size_t index;
    struct rpc_node *node;     /* NULL: never there */
    int fail;                  /* ERR_ to answer with; 0: answers */
    uint32_t delay_ms;         /* before the answer */
    bool mute;                 /* never answers */
    bool docs_at_once;         /* for documents neither holds */
    bool doc_late;             /* the next one gets no answer, and is kept in late_doc */
    struct buf late_doc;       /* a request */
    bool forever;              /* the same, for several calls */
    struct rpc_call *lost[16]; /* of forever; failed at the end */
    size_t lost_len;
    const struct str *canned; /* answered as it is, if not NULL */
    struct buf told;          /* the last RPC_DELETE */
    size_t calls, canceled;
    uint64_t left_ms; /* of the last call's deadline, when it came */
    struct timer *timer;
    struct qbed_held {
        struct rpc_call *call;
        struct str payload;
        enum rpc_method method;
    } held[8]; /* wait for delay_ms, behind the first one */
    size_t held_len;
};

struct qbed {
    struct net_world world;
    struct env env;
    struct prng prng;
    struct rpc_net *rpc;
    struct conf *conf;
    struct role_ctx ctx;
    void *self; /* the role */
    struct qbed_ingester ingesters[QBED_INGESTERS_MAX];
    size_t ingesters_len;
    const struct qbed_push *pushes;
    size_t pushes_len;
    const struct qbed_exemplar *exemplars; /* by the time of their pushes */
    size_t exemplars_len;
    int64_t coarse_ms, coarse_until_ms; /* merges: coarse nodes before coarse_until_ms; 0: leaves */
    struct fake_docs docs;              /* of all ingesters */
    struct net_mem *client;
    struct fake_doorman door;
    bool drained;
};

/* Flags: more options for the querier, NULL-ended, or NULL. */
void qbed_init(struct qbed *b, size_t ingesters, const char *const *flags);
/* Drains the role; every byte of its budget must be back. */
void qbed_deinit(struct qbed *b);
/* Set b->exemplars for questions by id. */
void qbed_data(struct qbed *b, const struct qbed_push *pushes, size_t n);

/* Sends a request on a connection that stays, without waiting. */
void qbed_send(struct qbed *b, const char *method, const char *target, const char *headers,
               const char *body);
/* What has arrived, once the reply is there; "" if it is not. Valid until the next call. */
const char *qbed_reply(struct qbed *b);
/* Both, for what answers without time passing. */
const char *qbed_get(struct qbed *b, const char *target);
const char *qbed_connect(struct qbed *b, const char *method, const char *json);
/* POST with a body of any bytes. */
const char *qbed_post(struct qbed *b, const char *target, const char *headers, struct str body);
/* The body of a reply. */
const char *qbed_body(const char *reply);
int qbed_status(const char *reply);
/* The client drops its connection and opens a new one. */
void qbed_hang_up(struct qbed *b);
uint64_t qbed_metric(struct qbed *b, const char *name_and_labels);

#endif
