/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_job.h: one request about uploaded profiles, from its head to its reply; what api_adhoc.c
 * (loop) and adhoc_work.c (pool) share. No other file includes it.
 *
 * Thread: the loop's, but between pool_submit and its done call the pool's.
 */
#ifndef DISTRIBUTOR_ADHOC_ADHOC_JOB_H
#define DISTRIBUTOR_ADHOC_ADHOC_JOB_H

#include "common/net/svc/svc.h"
#include "distributor/adhoc/adhoc_meta.h"
#include "distributor/adhoc/adhoc_msg.h"
#include "distributor/base/state.h"
#include "distributor/formats/push.h"

#define ADHOC_MAGIC   MAGIC('a', 'd', 'h', 'c')
#define ADHOC_SMALL   (64 * KIB) /* a message that holds no file */
#define ADHOC_SIDES   2
#define ADHOC_DOC_MAX (16 * MIB) /* body of a document, common/store/delete/tenant_doc.h */

struct adhoc_doc {
    struct str id;
    struct str meta; /* in the job's arena */
    struct buf body;
};
struct adhoc_job {
    uint32_t magic;
    struct distributor *d;
    struct http_req *http;
    struct svc_call *call; /* NULL: plain HTTP */
    enum adhoc_op op;
    bool folded; /* the answer is text */
    struct str tenant_name;
    struct tenant *tenant; /* of an upload, entered */
    struct adhoc_ask ask;  /* texts are in the arena or in the request */
    struct str content_type;
    struct arena *arena; /* owned: small things */
    size_t reserved;     /* of d->memory */
    uint64_t seed;
    int64_t now_ms;
    uint8_t random[10];
    struct adhoc_doc docs[ADHOC_SIDES]; /* upload: what is to be stored */
    size_t docs_len;                    /* those that came */
    bool own;                           /* only what this identity made is there for it */
    uint64_t left_out[PUSH_DROPS];      /* of an upload */
    struct buf out;
    const char *out_type;
    struct err err; /* code 0: fine */
};

/* Sets so much aside, until the end; never more than half of what all may have. ERR_BUSY. */
NODISCARD int adhoc_job_take(struct adhoc_job *job, uint64_t bytes, struct err *e);

/* Any thread. May the identity of the request see an upload with this owner? A key for all series
 * of the tenant sees all uploads, others their own: an upload has labels of its sender's making,
 * which say nothing of the readers it is for. */
bool adhoc_job_sees(const struct adhoc_job *job, struct str owner);
/* Pool. */
void adhoc_work_upload(void *cookie); /* docs[0] and out are made, or err */
void adhoc_work_view(void *cookie);   /* docs to out, or err */
/* Any thread: rows of a list to out; those that may not be seen are dropped from `rows`. */
struct doc_row {
    struct str id, meta;
    uint64_t bytes;
};
NODISCARD int adhoc_work_list(struct adhoc_job *job, struct doc_row *rows, size_t n, struct err *e);

#endif
