/* SPDX-License-Identifier: Apache-2.0
 *
 * write_id.h: the 128-bit id under which a series of a push is counted once (write_id.c says what
 * goes into it).
 */
#ifndef DISTRIBUTOR_SEND_WRITE_ID_H
#define DISTRIBUTOR_SEND_WRITE_ID_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/sys/env.h"
#include "distributor/base/write_secret.h"
#include "distributor/formats/push.h"

#define WRITE_ID_BYTES 16

enum write_key {
    WRITE_KEY_CLIENT = 1,
    WRITE_KEY_BODY = 2,
    WRITE_KEY_RANDOM = 3,
    WRITE_KEY_IMPORT = 4,
    WRITE_KEY_SENDER = 5,
};
/* What the sender says of a push. */
struct write_sender {
    struct str key; /* Idempotency-Key of the request, or {NULL, 0} */
    struct str id;  /* its own id of this profile, or {NULL, 0} */
};
/* What all series of one push share. */
struct write_base {
    enum write_key kind;
    struct hash128 digest;
    uint64_t print; /* of a client's key: fingerprint of the request, never 0; else 0 */
};
/* `body`: the bytes that a retry repeats, without the coding of HTTP. Unique unless the client or
 * the body says when it is a retry. */
struct write_base write_base_of(const struct write_secret *tenant,
                                const struct write_sender *sender, const struct ingest *in,
                                const struct push *p, struct str body, struct env *env);
/* The n-th push (1 and up) of one request that has this base, and is no repeat of the first. */
struct write_base write_base_again(const struct write_secret *tenant, const struct write_base *base,
                                   uint64_t n);
/* Of imported data: the sender's id of a series, or the bytes of its message. */
struct write_base write_base_import(const struct write_secret *tenant, struct str id);
void write_id(const struct write_secret *tenant, const struct write_base *base,
              const struct push_series *s, uint8_t ret[WRITE_ID_BYTES]);

#endif
